"""A layer of latent attention as it ran in one network, and the description that follows. See `runs` and `description`.

c = norm(X W^C),  k_a = c W^{K,a},  v_a = c W^{V,a},  q_a = norm(X W^D) W^{Q,a} or X W^{Q,a},  scores factor (q_a k_a' + turned)
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from hierattn.base.errors import unusable
from hierattn.frameworks.description import Description
from hierattn.frameworks.measured import Grams, Tally
from hierattn.frameworks.runs import BY_HAND, SCORES, Linear, Norm, check_outputs, turned
from hierattn.layer.latent import LatentAttention
from hierattn.layer.weighing import Weighing


@dataclass(frozen=True, eq=False)
class LatentRun:
    """One layer of latent attention of one network as it ran on a batch of sequences.

    - X: inputs; y: outputs, after W^O
    - maps: c to the latent, r to the shared key that is turned, q, k, v and o; d to the latent of queries if they have one
    - norms: of the latents c and d
    - dims: coordinates of a head's queries and keys less those that are turned, and of its values
    - rotary: frequencies by which coordinates d and d + B of the turned parts are turned
    - others: as of a `Run`
    """

    X: Float[np.ndarray, "batch s n"]
    y: Float[np.ndarray, "batch s m"]
    maps: dict[str, Linear]
    norms: dict[str, Norm]
    heads: int
    dims: tuple[int, int]
    factor: float
    allowed: Bool[np.ndarray, "batch s s"]
    rotary: Float[np.ndarray, " B"]
    initialisers: dict[str, tuple[float, ...]] = field(default_factory=dict)
    sinks: None = None

    @property
    def X_q(self) -> Float[np.ndarray, "batch s n"]:
        """Queries see what keys see."""
        return self.X

    def same_setting(self, other: "LatentRun") -> bool:
        """Are heads, norms, frequencies, factor and mask those of another run?"""
        same = (self.heads, self.dims, self.factor) == (other.heads, other.dims, other.factor)
        same &= np.array_equal(self.allowed, other.allowed) and np.array_equal(self.rotary, other.rotary)
        return same and all(norm.same(other.norms[name]) for name, norm in self.norms.items())

    def check(self, name: str) -> None:
        """Refuse a layer that does something else than was understood."""
        given = [key for key, linear in self.maps.items() if linear.b is not None]
        if given:
            raise unusable(name, "latent attention without biases", f"some of {', '.join(given)}", "nothing describes them yet")
        check_outputs(self.outputs, self.y, name)

    @property
    def outputs(self) -> Float[np.ndarray, "batch s m"]:
        """By the formula, in float64."""
        (n_H, _), X = self.dims, self.X.astype(float)
        c, source = self._latent("c"), self._latent("d") if "d" in self.maps else X
        k, v, q = self._heads(c, "k"), self._heads(c, "v"), self._heads(source, "q")
        shared = turned((X @ self.maps["r"].W)[:, None], self.rotary)
        p = q[..., :n_H] @ k.swapaxes(-1, -2) + turned(q[..., n_H:], self.rotary) @ shared.swapaxes(-1, -2)
        A = Weighing(None, None, self.allowed[:, None], None, None, SCORES).weights(self.factor * p)
        return np.moveaxis(A @ v, 1, 2).reshape(*X.shape[:2], -1) @ self.maps["o"].W

    def _latent(self, name: str) -> Float[np.ndarray, "batch s r"]:
        return self.norms[name].of((self.X.astype(float) @ self.maps[name].W)[:, None])[:, 0]

    def _heads(self, x: np.ndarray, name: str) -> Float[np.ndarray, "batch heads s dim"]:
        return np.moveaxis((x @ self.maps[name].W).reshape(*x.shape[:2], self.heads, -1), 2, 1)


def describe_latent(run: LatentRun, tally: Tally, grams: Grams, module: str) -> tuple[Description, Any]:
    """The description, and the kernel over its tokens: one for all networks where they have the same inputs."""
    if len(run.X) > 1 or not _causal(run.allowed[0]):
        raise unusable(module, "one sequence, causal or not, of latent attention", f"{len(run.X)} sequences or another mask")
    variances = {name: tally.variance(name, run.initialisers.get(name, ())) for name in run.maps}
    fan_in = {name: linear.W.shape[0] for name, linear in run.maps.items()}
    sigma = {name: float(np.sqrt(fan_in[name] * found.value)) for name, found in variances.items()}
    gain = {name: _gain(norm, module) for name, norm in run.norms.items()}
    (n_H, n_V), eps = run.dims, {norm.eps for norm in run.norms.values()}
    if len(eps) > 1:
        raise unusable(module, "one eps of both latents", sorted(eps), BY_HAND)
    layer = LatentAttention(
        heads=run.heads,
        head_dim=n_H,
        value_dim=n_V,
        key_rank=fan_in["k"],
        query_rank=fan_in["q"] if "d" in run.maps else None,
        rotary=run.rotary,
        sigma_q=run.factor * (n_H + 2 * len(run.rotary)) ** 0.5 * sigma["q"] * gain.get("d", 1.0),
        sigma_k=sigma["k"] * gain["c"],
        sigma_r=sigma["r"],
        sigma_v=sigma["v"] * gain["c"],
        sigma_o=sigma["o"],
        sigma_query_latent=sigma.get("d", 1.0),
        sigma_key_latent=sigma["c"],
        eps=eps.pop(),
        mask=None if run.allowed.all() else "causal",
    )
    remark = "latent attention: its law is LatentLaw(description.layer, kernel); files, fits and diagnose do not hold it"
    return Description(module, layer, variances, np.arange(run.X.shape[1]), (remark,)), grams.keys


def _causal(allowed: Bool[np.ndarray, "s s"]) -> bool:
    return bool(allowed.all()) or np.array_equal(allowed, np.tri(len(allowed), dtype=bool))


def _gain(norm: Norm, module: str) -> float:
    """The same for all coordinates."""
    if norm.kind != "rms" or np.ptp(norm.gain):
        raise unusable(module, "root mean squares of latents with one gain for all coordinates", "others", BY_HAND)
    return float(norm.gain[0])
