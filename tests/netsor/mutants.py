"""Laws that are wrong in one covariance."""

import numpy as np

from hierattn.netsor.limit import Estimate, Limit


def with_a_covariance_dropped(law):
    """The law without its largest covariance of two scalars, or else of two Gaussians, or else the first score's variance."""
    mutant = Limit(law.program)
    for name in ("kappa_prime", "kappa"):
        C = getattr(law, name).value.copy()
        off = np.abs(C - np.diag(np.diag(C)))
        if off.size and off.max() > 1e-9:
            i, j = np.unravel_index(off.argmax(), off.shape)
            C[i, j] = C[j, i] = 0
            break
    else:
        name, i, j = "kappa_prime", 0, 0
        C = law.kappa_prime.value.copy()
        C[0] = C[:, 0] = 0
    vars(mutant)[name] = Estimate(C, np.zeros_like(C))
    return mutant, f"{name}[{i}, {j}]"
