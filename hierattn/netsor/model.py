"""A program's law as a NumPyro model, whose sites have the names of the program's variables.

Scalars p ~ N(0, kappa') in the plate network, families one after another, each given those before. Outputs that are linear in
the Gaussians are sites y | p ~ N(0, Sigma(p)) in the plates coordinate and network, and can be observed; others follow from
their Gaussians Z ~ N(0, kappa), which are sites then.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.distributions.transforms import AffineTransform, ReshapeTransform

from hierattn.base.errors import unusable
from hierattn.law.distributions import Gaussian
from hierattn.law.plates import observe, plates
from hierattn.layer import kernels
from hierattn.netsor.limit import Limit
from hierattn.netsor.notation import Family


def model(law: Limit, outputs: Any = None, networks: int = 1, coordinates: int = 1) -> None:
    """Scalars of networks and their coordinates; outputs (network, output, coordinate) may be given, all indices one axis."""
    program, size = law.program, law.program.y.atoms.size
    network, coordinate, observed = plates(outputs, size, networks, coordinates)
    if observed is not None and not law.linear:
        expected = "None, as these outputs are not linear in Gaussians and have no density at hand"
        raise unusable("outputs", expected, "an array", "condition on the sites of the Gaussians")
    with network:
        p = _sample(law, program.scalars, program.dots, law.kappa_prime.value, (network.size,))
        if law.linear:
            F = jax.vmap(law.factor)(p).reshape(network.size, size, -1)
            observe(Gaussian(F), coordinate, observed)
        else:
            with coordinate:
                Z = _sample(law, program.gaussians, program.base, law.kappa.value, (coordinate.size, network.size))
            y = jax.vmap(program.evaluate)(p, Z.transpose(1, 2, 0)).reshape(network.size, size, coordinate.size)
            numpyro.deterministic("y", y.transpose(2, 0, 1))


def _sample(law: Limit, families: Sequence[Family], atoms: Sequence[Any], C: np.ndarray, batch: tuple[int, ...]) -> Any:
    """Joint Gaussians (batch, atom), a site a family."""
    position, values, done = {atom: k for k, atom in enumerate(atoms)}, jnp.zeros((*batch, len(atoms))), np.zeros(0, int)
    for f in families:
        new = np.array([position[atom] for atom in f.atoms.flat])
        pull = C[np.ix_(new, done)] @ np.linalg.pinv(C[np.ix_(done, done)], hermitian=True)
        rest = C[np.ix_(new, new)] - pull @ C[np.ix_(done, new)]
        shift = AffineTransform(values[..., done] @ pull.T, 1.0)
        shape = ReshapeTransform(f.atoms.shape, (f.atoms.size,))
        noise = Gaussian(jnp.asarray(kernels.factor((rest + rest.T) / 2)))
        drawn = numpyro.sample(law.program.names.get(f, str(f)), dist.TransformedDistribution(noise, [shift, shape]))
        values, done = values.at[..., new].set(drawn.reshape(*batch, -1)), np.append(done, new)
    return values
