"""From the layer that ran to the law that follows, with no free parameter: a framework's conventions in ours.

A framework has p = c q k', entries of W^Q, W^K, W^V of variances var_q, var_k, var_v, and sums heads without 1/sqrt(H).
In ours (THEORY section 1) entries have variance sigma^2 / fan_in, p = q k' / sqrt(n_H), and heads are summed with 1/sqrt(H):

    sigma_q = c sqrt(n_H n var_q),  sigma_k = sqrt(n_k var_k),  sigma_v = sqrt(n_k var_v),  sigma_o = sqrt(H n_H var_o)

A random bias b is one more input that is 1 for every token: q ~ N(0, var_q X X' + var_b 1 1'), which is K + beta 1 1' with
beta = var_b / (n var_q). That of the keys adds the same to all scores of a query, and softmax does not see it. So queries need
beta_q, keys and values beta_v. W^O's own bias does not depend on the scores: it is taken off the outputs.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from hierattn.base.errors import unusable
from hierattn.frameworks.runs import BY_HAND, Run
from hierattn.layer.architecture import Architecture
from hierattn.observed.described import told

SIGMAS = 5.0  # standard errors within which measured weights are those of an initialiser
NEGLIGIBLE = 1e-3  # of a kernel's mean variance: what queries and keys may differ by and still share one kernel


class Variance(NamedTuple):
    """The variance of a map's entries: of its initialiser, if that is known and the weights agree, or measured."""

    value: float
    error: float
    origin: str


class Tally:
    """Second and fourth moments of weights and biases, added up over networks."""

    def __init__(self) -> None:
        self.sums: dict[str, np.ndarray] = {}

    def add(self, run: Run) -> None:
        """One more network."""
        for name, (W, b) in run.maps.items():
            for key, x in ((name, W), (f"b_{name}", b)):
                if x is not None:
                    square = x.astype(float).ravel()
                    square *= square
                    self.sums[key] = self.sums.get(key, 0) + np.array([square.size, square.sum(), square @ square])

    def variance(self, name: str, initialisers: tuple[float, ...] = ()) -> Variance:
        """About zero, where initialisers put the mean; a bias that is not there, or zero, has variance 0."""
        count, second, fourth = self.sums.get(name, np.zeros(3))
        if second == 0:
            return Variance(0.0, 0.0, "none")
        mean = second / count
        error = float(np.sqrt(max(fourth / count - mean**2, 0) / count))
        for known in initialisers:
            if abs(mean - known) <= SIGMAS * error:
                return Variance(known, 0.0, "initialiser")
        return Variance(float(mean), error, "measured")


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
    layer: Architecture
    variances: dict[str, Variance]
    tokens: np.ndarray
    remarks: tuple[str, ...]

    @property
    def scales(self) -> dict[str, float]:
        """score_scale and value_scale."""
        return {"score_scale": float(self.layer.score_scale[0]), "value_scale": float(self.layer.value_scale[0])}

    def with_remark(self, remark: str) -> "Description":
        """The same with one more remark."""
        return replace(self, remarks=(*self.remarks, remark))

    def record(self) -> dict[str, Any]:
        """Flat, for printing and for JSON."""
        record: dict[str, Any] = {"module": self.module, **told(self.layer)}
        for name, found in self.variances.items():
            if found.origin != "none":
                key = f"variance_{name}"
                record |= {key: found.value, f"{key}_error": found.error, f"{key}_origin": found.origin}
        return record | {"remarks": list(self.remarks)}


def describe(run: Run, tally: Tally, grams: "Grams", module: str) -> tuple[Description, Float[np.ndarray, "*network t t"]]:
    """The description, and the kernel over its tokens: one for all networks where they have the same inputs."""
    names = ("q", "k", "v", "o")
    variances = {name: tally.variance(name, run.initialisers.get(name, ())) for name in names}
    variances |= {f"b_{name}": tally.variance(f"b_{name}") for name in names}
    var = {name: found.value for name, found in variances.items()}
    n, n_k, H, n_H = run.X_q.shape[-1], run.X.shape[-1], run.heads, run.head_dim
    if not all(var[name] > 0 for name in names):
        raise unusable(module, "weights that are not zero", {name: var[name] for name in names}, BY_HAND)
    beta_q, beta_k, beta_v = (var[f"b_{x}"] / (width * var[x]) for x, width in (("q", n), ("k", n_k), ("v", n_k)))
    size = float(np.mean(np.diagonal(grams.keys[0]))) * NEGLIGIBLE
    joint = run.crossed or abs(beta_q - beta_v) > size
    remarks = _remarks(var, run, beta_k, beta_v, size)
    if joint and run.rotary is not None:
        raise unusable(module, "one kernel of queries and keys for rotary embeddings", "two (biases, or other inputs)", BY_HAND)
    allowed, bias = _blocks(run.allowed), None if run.bias is None else np.tile(run.bias, (1, len(run.X), len(run.X)))
    K_q, K = grams.queries + beta_q, grams.keys + beta_v
    if joint:
        K, allowed, bias = _side_by_side(K_q, K, allowed, bias)
    layer = Architecture(
        heads=H,
        head_dim=n_H,
        key_value_heads=None if run.key_value_heads == H else run.key_value_heads,
        sigma_q=run.factor * np.sqrt(n_H * n * var["q"]),
        sigma_k=np.sqrt(n_k * var["k"]),
        sigma_v=np.sqrt(n_k * var["v"]),
        sigma_o=np.sqrt(H * n_H * var["o"]),
        mask=None if allowed.all() else "causal" if np.array_equal(allowed, np.tri(len(allowed), dtype=bool)) else allowed,
        bias=bias,
        rotary=run.rotary,
    )
    return Description(module, layer, variances, np.arange(K_q.shape[-1]), tuple(remarks)), K


def by_hand(layer: Architecture, grams: "Grams", module: str) -> tuple[Description, Float[np.ndarray, "*network t t"]]:
    """The same where a user describes the layer: nothing but its inputs and outputs was looked at."""
    remarks = ("described by hand: its weights were not looked at",)
    return Description(module, layer, {}, np.arange(grams.keys.shape[-1]), remarks), grams.keys


class Grams:
    """X X' / n of queries and of keys, over all tokens of all sequences, network after network."""

    def __init__(self) -> None:
        self._queries: list[np.ndarray] = []
        self._keys: list[np.ndarray] = []

    def add(self, X_q: np.ndarray, X: np.ndarray) -> None:
        """One more network."""
        self._keys.append(_gram(X))
        if X_q is not X:
            self._queries.append(_gram(X_q))

    @property
    def keys(self) -> Float[np.ndarray, "network k k"]:
        """Of keys and values: one for all networks if their inputs are the same."""
        return _shared(self._keys)

    @property
    def queries(self) -> Float[np.ndarray, "network q q"]:
        """Of the queries, with as many networks as the keys have."""
        if not self._queries:
            return self.keys
        queries, keys = _shared(self._queries), self.keys
        return np.repeat(queries, len(keys), axis=0) if len(queries) == 1 else queries


def _gram(X: np.ndarray) -> np.ndarray:
    X = X.reshape(-1, X.shape[-1]).astype(float)
    return X @ X.T / X.shape[-1]


def _shared(grams: list[np.ndarray]) -> np.ndarray:
    same = all(np.array_equal(grams[0], G) for G in grams)
    return np.stack(grams[:1] if same else grams)


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
