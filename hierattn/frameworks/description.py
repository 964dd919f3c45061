"""From the layer that ran to the law that follows, with no free parameter: a framework's conventions in ours.

A framework has p = c q k', entries of W^Q, W^K, W^V of variances var_q, var_k, var_v, and sums heads without 1/sqrt(H).
In ours (THEORY section 1) entries have variance sigma^2 / fan_in, p = q k' / sqrt(n_H), and heads are summed with 1/sqrt(H):

    sigma_q = c sqrt(n_H n var_q),  sigma_k = sqrt(n_k var_k),  sigma_v = sqrt(n_k var_v),  sigma_o = sqrt(H n_H var_o)

Of normed queries and keys, with gains g_q and g_k, the scale of scores is a gain, and sigma_q is as large as eps sees it:

    qk_gain = c sqrt(n_H) g_q g_k,  sigma_q = sqrt(n var_q)

A random bias b is one more input that is 1 for every token: q ~ N(0, var_q X X' + var_b 1 1'), which is K + beta 1 1' with
beta = var_b / (n var_q). That of the keys adds the same to all scores of a query, which softmax does not see unless something
comes between: a norm, a cap, a sink. So queries need beta_q, keys and values beta_v. W^O's own bias does not depend on the
scores: it is taken off the outputs.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from hierattn.base.errors import unusable
from hierattn.frameworks.measured import Grams, Tally, Variance
from hierattn.frameworks.runs import BY_HAND, Norm, Run
from hierattn.layer.architecture import Architecture
from hierattn.layer.latent import SIGMAS, LatentAttention
from hierattn.observed.described import told

NEGLIGIBLE = 1e-3  # of a kernel's mean variance: what queries and keys may differ by and still share one kernel


@dataclass(frozen=True, eq=False)
class Description:
    """A layer as the law sees it.

    - module: its name and class
    - layer: with all scales; mask and bias are over the kernel's tokens
    - variances: of the entries of W^Q .. W^O (q, k, v, o) and of their biases (b_q, ...)
    - tokens: those of the kernel that are observed: the queries
    - remarks: what is to be known of the translation
    """

    module: str
    layer: Architecture | LatentAttention
    variances: dict[str, Variance]
    tokens: np.ndarray
    remarks: tuple[str, ...]

    @property
    def scales(self) -> dict[str, float]:
        """score_scale and value_scale; of latent attention the scales of all its maps."""
        if isinstance(self.layer, LatentAttention):
            return {name: float(getattr(self.layer, name)) for name in SIGMAS}
        return {"score_scale": float(self.layer.score_scale[0]), "value_scale": float(self.layer.value_scale[0])}

    def with_remark(self, remark: str) -> "Description":
        """The same with one more remark."""
        return replace(self, remarks=(*self.remarks, remark))

    def record(self) -> dict[str, Any]:
        """Flat, for printing and for JSON."""
        record: dict[str, Any] = {"module": self.module}
        if isinstance(self.layer, LatentAttention):
            names = ("heads", "head_dim", "value_dim", "key_rank", "query_rank", "eps", "mask")
            record |= {name: getattr(self.layer, name) for name in names} | self.scales
        else:
            record |= told(self.layer)
        for name, found in self.variances.items():
            if found.origin != "none":
                key = f"variance_{name}"
                record |= {key: found.value, f"{key}_error": found.error, f"{key}_origin": found.origin}
        return record | {"remarks": list(self.remarks)}


def describe(run: Run, tally: Tally, grams: "Grams", module: str) -> tuple[Description, Float[np.ndarray, "*network t t"]]:
    """The description, and the kernel over its tokens: one for all networks where they have the same inputs."""
    names = ("q", "k", "v", "o")
    variances = {name: tally.variance(name, run.initialisers.get(name, ())) for name in names}
    variances |= {name: tally.variance(name, run.initialisers.get(name, ())) for name in map("b_{}".format, names)}
    var = {name: found.value for name, found in variances.items()}
    n, n_k, H, n_H = run.X_q.shape[-1], run.X.shape[-1], run.heads, run.head_dim
    if not all(var[name] > 0 for name in names):
        raise unusable(module, "weights that are not zero", {name: var[name] for name in names}, BY_HAND)
    beta_q, beta_k, beta_v = (var[f"b_{x}"] / (width * var[x]) for x, width in (("q", n), ("k", n_k), ("v", n_k)))
    size = float(np.mean(np.diagonal(grams.keys[0]))) * NEGLIGIBLE
    joint = run.crossed or abs(beta_q - beta_v) > size
    remarks = _remarks(var, run, beta_k, beta_v, size)
    seen = [what for what, there in (("norms", run.norms), ("a cap", run.cap), ("sinks", run.sinks)) if there is not None]
    if seen and abs(beta_k - beta_v) > size:
        raise unusable(module, f"equal biases of keys and values beside {seen[0]}", "others", BY_HAND)
    if joint and run.rotary is not None:
        raise unusable(module, "one kernel of queries and keys for rotary embeddings", "two (biases, or other inputs)", BY_HAND)
    allowed, bias = _blocks(run.allowed), None if run.bias is None else np.tile(run.bias, (1, len(run.X), len(run.X)))
    K_q, K = grams.queries + beta_q, grams.keys + beta_v
    if joint:
        K, allowed, bias = _side_by_side(K_q, K, allowed, bias)
    sinks, variances["sink"] = tally.sink(run.initialisers.get("sink", ()))
    layer = Architecture(
        heads=H,
        head_dim=n_H,
        key_value_heads=None if run.key_value_heads == H else run.key_value_heads,
        sigma_k=np.sqrt(n_k * var["k"]),
        sigma_v=np.sqrt(n_k * var["v"]),
        sigma_o=np.sqrt(H * n_H * var["o"]),
        **_scores(run, float(np.sqrt(n * var["q"])), module),
        **_seen(allowed),
        bias=bias,
        rotary=None if run.rotary is None else np.pad(run.rotary, (0, n_H // 2 - len(run.rotary))),
        cap=run.cap,
        **sinks,
    )
    return Description(module, layer, variances, np.arange(K_q.shape[-1]), tuple(remarks)), K


def _scores(run: Run, sigma_q: float, module: str) -> dict[str, Any]:
    """sigma_q, or with norms their fields and the gain."""
    c = run.factor * run.head_dim**0.5
    if run.norms is None:
        return {"sigma_q": c * sigma_q}
    q, k = run.norms
    if q.eps != k.eps:
        raise unusable(module, "one eps of queries and keys", f"{q.eps:g} and {k.eps:g}", BY_HAND)
    gain = c * _gain(q, run, module) * np.repeat(_gain(k, run, module), run.heads // run.key_value_heads)
    same = np.ptp(gain) == 0
    return {"sigma_q": sigma_q, "qk_norm": q.kind, "qk_eps": q.eps, "qk_gain": float(gain[0]) if same else gain}


def _gain(norm: Norm, run: Run, module: str) -> np.ndarray:
    """One number for each head that is normed."""
    gain = norm.gain.reshape(-1, run.head_dim)
    if np.ptp(gain, axis=1).any():
        raise unusable(module, "gains that are the same for all coordinates of a head", "others", BY_HAND)
    owners = run.heads if norm is run.norms[0] else run.key_value_heads  # type: ignore[index]
    return np.broadcast_to(gain[:, 0], (owners,))


def _seen(allowed: np.ndarray) -> dict[str, Any]:
    """A mask in the fewest words: all keys, causal, those of a window before or around, or as it is."""
    s_q, s_k = allowed.shape
    place = np.arange(max(s_q, s_k))
    apart = np.abs(place[:s_q, None] - place[:s_k])
    window = int(apart[allowed].max()) + 1
    for mask in (None, "causal") if s_q == s_k else (None,):
        most = np.ones_like(allowed) if mask is None else np.tri(s_q, dtype=bool)
        if np.array_equal(allowed, most):
            return {"mask": mask}
        if s_q == s_k and np.array_equal(allowed, most & (apart < window)):
            return {"mask": mask, "window": window}
    return {"mask": allowed}


def by_hand(layer: Architecture, grams: "Grams", module: str) -> tuple[Description, Float[np.ndarray, "*network t t"]]:
    """The same where a user describes the layer: nothing but its inputs and outputs was looked at."""
    remarks = ("described by hand: its weights were not looked at",)
    return Description(module, layer, {}, np.arange(grams.keys.shape[-1]), remarks), grams.keys


def _blocks(allowed: np.ndarray) -> np.ndarray:
    """Masks of sequences (batch, q, k) as one over all of their tokens, each of which sees its own sequence only."""
    batch, q, k = allowed.shape
    mask = np.zeros((batch, q, batch, k), bool)
    mask[np.arange(batch), :, np.arange(batch)] = allowed
    return mask.reshape(batch * q, batch * k)


def _side_by_side(K_q: np.ndarray, K: np.ndarray, allowed: np.ndarray, bias: np.ndarray | None) -> tuple:
    """Queries and keys as different tokens of one kernel, queries first: only they are observed, and they see only keys."""
    (networks, q, _), k = np.broadcast_shapes(K_q.shape[:1], K.shape[:1]) + K_q.shape[1:], K.shape[-1]
    joint = np.zeros((networks, q + k, q + k))
    joint[:, :q, :q], joint[:, q:, q:] = K_q, K
    mask = np.eye(q + k, dtype=bool)
    mask[:q] = np.concatenate([np.zeros((q, q), bool), allowed], axis=1)
    if bias is None:
        return joint, mask, None
    wide = np.zeros((len(bias), q + k, q + k))
    wide[:, :q, q:] = bias
    return joint, mask, wide


def _remarks(var: dict[str, float], run: Run, beta_k: float, beta_v: float, size: float) -> list[str]:
    """What the law treats as something else than it is, and what was done to the outputs."""
    remarks = []
    if any(var[f"b_{name}"] > 0 for name in "qkv"):
        remarks.append("biases of queries, keys and values are treated as Gaussian weights of one more input, 1 for all tokens")
    if run.rotary is not None and abs(beta_k - beta_v) > size:
        remarks.append("rotary embeddings turn the keys' bias, which is treated as if it were as large as the values'")
    if var["b_o"] > 0:
        remarks.append("the bias after W^O was taken off the outputs")
    return remarks
