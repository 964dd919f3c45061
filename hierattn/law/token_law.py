"""The law of one token's conditional variance v, from the law of the scores: the nodes of `Marginal`.

    v = H^{-1} sum_a o_a^2 c'_a u_a,    u_a = w_a K w_a',    w_a the weights of q_a sqrt(c_a) R z

One head is an integral over a few standard normals z (and at finite head_dim over c ~ chi2_{n_H} / n_H): a tensor trapezoid
rule up to three dimensions, a Sobol net under random shifts beyond. Where keys are exchangeable one head's density is known
exactly (softmax: `softmax_integrals.density`), and nodes beyond three dimensions are made to meet it. Heads are independent:
their laws add up.
"""

import warnings
from collections.abc import Callable
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hierattn.base.errors import unusable
from hierattn.base.float64 import in_float64
from hierattn.base.tracing import as_numpy, tree_traced
from hierattn.law import moments
from hierattn.law.hierarchy import Hierarchy
from hierattn.law.marginal import Marginal, from_draws
from hierattn.law.row import Head, Row, coupled, diagonal_and_rest, heads_of, root, row_of
from hierattn.layer.scores import SCORE_FUNCTIONS
from hierattn.layer.weighing import Weighing
from hierattn.numerics import chi_square, mixtures, rqmc
from hierattn.numerics.mixtures import Nodes

AIM = 1e-7  # of the density's peak: the error that rules are refined to
RADIUS = 7.5  # of the ball of standard normals kept: 1e-11 of the mass of three of them lies beyond
TENSOR = 3  # dimensions of a tensor rule at most
STEPS = (0.5, 0.35, 0.25, 0.177, 0.125, 0.088, 0.0625, 0.044, 0.031)
COARSER = 1.3  # the other rule's step
SOBOL_SIZES = (14, 16)  # log2 of the points under one shift
LARGEST = 2**21  # points of a rule at most
DRAWS = 2**19  # networks, where nothing else is possible
RIDGES = 10.0 ** np.arange(-10, 1, 0.5)  # from the weakest regularisation to the strongest
CHECKS = np.linspace(0, 6.5, 40)  # standard deviations at which a known density is met


class Rule(NamedTuple):
    """Points z with weights w for standard normals, and log c for chi2_{n_H} / n_H."""

    z: Float[np.ndarray, "N d"]
    log_c: Float[np.ndarray, " N"]
    w: Float[np.ndarray, " N"]


def of_token(law: Any, token: int = 0, accuracy: float | None = None, seed: int = 0) -> Marginal:
    """The distribution of one token's outputs; rules are refined until its density's error is below accuracy x peak.

    How far one gets is in `density_error`, and a warning says where an accuracy that was asked for is not reached. For a law
    with abstract parameters (inside jit or grad) one rule is used, good for score scales up to 3: nothing can be looked at
    there. First derivatives exist, in JAX's float64 mode.
    """
    if accuracy is not None and not 0 < accuracy < 1:
        raise unusable("accuracy", "a number between 0 and 1", accuracy)
    if tree_traced(law) and not jax.config.jax_enable_x64:
        raise unusable("law", "JAX's float64 mode inside jit and grad", "float32", "use jax.enable_x64(True) around them")
    found, error = _of_token(law, token, accuracy or AIM, seed)
    if accuracy is not None and error > accuracy:
        words = f"expected an error of the density of at most {accuracy:.2g} of its peak, got {error:.2g}"
        warnings.warn(f"accuracy: {words}; Marginal.error tells it anywhere", stacklevel=3)
    return found


@in_float64
def _of_token(law: Any, token: int, accuracy: float, seed: int) -> tuple[Marginal, float]:
    row, layer, abstract = row_of(law, token), law.layer, tree_traced(law)
    heads = [head for head in heads_of(layer, row) if abstract or head.o > 0]
    if not abstract and (not np.any(row.K) or not heads):
        raise unusable("law", "outputs with a density", f"token {token}, whose outputs are zero")
    if SCORE_FUNCTIONS[layer.score_function].may_vanish:
        got = f"{layer.score_function} attention, whose outputs are zero in some networks"
        raise unusable("score_function", "outputs with a density", got)
    if coupled(layer, row.K):
        attempts = [partial(from_draws, law, token, DRAWS, seed)]
    else:
        R = root(row.C, row.weighing)
        R = R if abstract or any(head.q for head in heads) else R[:, :0]
        rules = _rules(R, heads, layer.head_dim, seed, abstract)
        attempts = [partial(_by_rules, law, row, R, heads, *rule) for rule in rules]
    before = np.inf
    for attempt in attempts:
        found = attempt()
        error = 0.0 if abstract else found.density_error()
        if error <= accuracy or error > 0.9 * before:  # good enough, or as good as it gets
            break
        before = error
    largest = row.weighing.largest(row.K) * np.mean(layer.value_scale**2) if layer.head_dim is None else np.inf
    return found._replace(v_max=largest if abstract else float(largest)), error


def summary(law: Any, token: int = 0, seed: int = 0) -> dict[str, Any]:
    """One token's law as a flat record: moments, quantiles of |y| and probabilities of its tail, each with its error."""
    record = moments.summary(law, token, seed)
    if record["variance"] == 0:
        return record
    found, reasons = of_token(law, token, seed=seed), record.pop("reasons")
    for name, p in {"99": 0.01, "999": 1e-3, "9999": 1e-4}.items():
        record |= {f"quantile_{name}": float(found.isf(p / 2)), f"quantile_{name}_error": float(found.error("isf", p / 2))}
    for sds in (3, 4, 5):
        y = sds * np.sqrt(record["variance"])
        record |= {f"tail_{sds}sd": 2 * float(found.sf(y)), f"tail_{sds}sd_error": 2 * float(found.error("sf", y))}
    return record | {"distribution_method": found.method, "reasons": reasons}


def _by_rules(law: Hierarchy, row: Row, R: Any, heads: list[Head], method: str, rules: list[Callable[[], Rule]]) -> Marginal:
    """The law of v by every rule (under Sobol shifts by all of them, then by all but one of them), heads added up."""
    n_H, abstract = law.layer.head_dim, tree_traced(law)
    totals: dict[int, Nodes] = {}
    for head in heads:
        made = [make() for make in rules]
        x = [_log_u(row.K, R, head.q, head.weighing, rule) for rule in made]
        measures: list[tuple[Any, Any]] = [(x_r, rule.w) for x_r, rule in zip(x, made, strict=True)]
        known = None
        if method == "RQMC" and abstract:
            measures = [(jnp.concatenate(x), jnp.full(len(x) * len(x[0]), 1 / (len(x) * len(x[0]))))]
        elif method == "RQMC":
            measures = list(zip(*mixtures.leaving_one_out(np.stack(x)), strict=True))
            known = _known_law(row, head, n_H, head.weighing.integrals)
        for r, measure in enumerate(measures):
            coarser = r > 0 and method != "RQMC"
            size = mixtures.SMALLER if coarser else mixtures.SIZE
            nodes = mixtures.compress(*measure, size)
            nodes = nodes if known is None else as_numpy(_meeting(nodes, *known))
            if n_H is not None:
                values = Nodes(*chi_square.log_nodes(n_H, 0.45 if coarser else 0.35, coarser))
                nodes = mixtures.multiply(nodes, values, size)
            nodes = nodes._replace(x=nodes.x + 2 * (jnp if abstract else np).log(head.o) - np.log(law.layer.heads))
            nodes = mixtures.sum_of(nodes, head.number, size)
            totals[r] = mixtures.add(totals[r], nodes, size) if r in totals else nodes
    return Marginal(mixtures.stack(list(totals.values())), method)


def _log_u(K: Any, R: Any, q: Any, weighing: Weighing, rule: Rule) -> Float[Array | np.ndarray, " N"]:
    """Log of u = w K w' at every point of a rule."""
    compiled = tree_traced((K, R, q, weighing)) or len(K) * len(rule.w) > mixtures.LARGE
    return (_log_u_compiled if compiled else _log_u_by_numpy)(K, R, q, weighing.keys_first(), rule)


def _log_u_by(xp: Any, K: Any, R: Any, q: Any, weighing: Weighing, rule: Rule) -> Any:
    w = weighing.weights(q * xp.exp(rule.log_c / 2) * (R @ rule.z.T))
    return xp.log((K @ w * w).sum(axis=0))


_log_u_by_numpy, _log_u_compiled = partial(_log_u_by, np), jax.jit(partial(_log_u_by, jnp))


def _rules(R: Any, heads: list[Head], n_H: int | None, seed: int, abstract: bool) -> list[tuple[str, list]]:
    """Methods with their rules (functions that make them), from coarse to fine."""
    d = R.shape[1]
    if d == 0:
        return [("closed form" if n_H is None else "quadrature", 2 * [partial(_tensor_rule, 1.0, 0, None)])]
    if d > TENSOR:
        sizes = SOBOL_SIZES[:1] if abstract else SOBOL_SIZES
        return [("RQMC", [partial(_sobol_rule, d, n_H, size, seed, i) for i in range(rqmc.SHIFTS)]) for size in sizes]
    scale = 3.0 if abstract else max(head.q for head in heads) * np.sqrt((R**2).sum(axis=1).max())
    points = len(chi_square.log_nodes(n_H, 0.7)[0])
    fitting = [step for step in STEPS if points * (2 * RADIUS / step) ** d < 2 * LARGEST] or [STEPS[0]]
    steps = [step for step in fitting if step <= 0.45 / max(1, scale)] or fitting[-1:]
    rules = [("quadrature", [partial(_tensor_rule, h, d, n_H) for h in (step, COARSER * step)]) for step in steps]
    return rules[:1] if abstract else rules


@lru_cache(maxsize=16)
def _tensor_rule(step: float, d: int, n_H: int | None) -> Rule:
    """The trapezoid rule in every standard normal, its points beside zero, within a ball; times one in log c."""
    reach = np.ceil(RADIUS / step)
    axis = (np.arange(-reach, reach) + 0.5) * step
    z = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d) if d else np.zeros((1, 0))
    z = z[(z**2).sum(axis=1) < RADIUS**2]
    w = np.exp(-(z**2).sum(axis=1) / 2)
    log_c, w_c = chi_square.log_nodes(n_H, 0.7)
    w = np.multiply.outer(w / w.sum(), w_c).ravel()
    return Rule(np.repeat(z, len(log_c), axis=0), np.tile(log_c, len(z)), w)


@lru_cache(maxsize=48)
def _sobol_rule(d: int, n_H: int | None, log2_points: int, seed: int, shift: int) -> Rule:
    """One random shift of a Sobol net; its last coordinate is c."""
    z = rqmc.normal_points((d + (n_H is not None),), 2**log2_points, seed * rqmc.SHIFTS + shift)
    log_c = np.zeros(len(z)) if n_H is None else chi_square.log_of_normal(n_H)(z[:, -1])
    return Rule(z[:, :d], log_c, np.full(len(z), 1 / len(z)))


def _known_law(row: Row, head: Head, n_H: int | None, integrals: ModuleType | None) -> tuple | None:
    """What is known of one head with u = d sum_j w_j^2 + c where keys are exchangeable and without bias: see `_known`; d, c."""
    if integrals is None:
        return None
    (d, c, K_fits), (tau_squared, _, C_fits) = diagonal_and_rest(row.K), diagonal_and_rest(row.C)
    alike = all(np.ptp(x) <= 1e-12 * np.abs(x).max() for x in (d, tau_squared)) and np.ptp(head.weighing.added) == 0
    tau = head.q * np.sqrt(tau_squared[0].clip(0))
    if not (K_fits and C_fits and alike and d[0] > 0 and 0.02 < tau < 20):
        return None
    return (*_known(integrals, len(d), float(tau), n_H), float(d[0]), float(c))


@lru_cache(maxsize=64)
def _known(integrals: Any, m: int, tau: float, n_H: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of u = sum_j w_j^2: the density of N(0, u) at some y, averaged over the scores' chi-square, and E[u^k], k = 0, 1, 2."""
    log_c, w_c = chi_square.log_nodes(n_H, 0.7)
    scales = tau * np.exp(log_c / 2)
    given_c = [integrals.moments(np.ones(m), np.zeros(m), np.full(m, scale)) for scale in scales]
    powers = w_c @ np.array([[1, u.mean, u.variance + u.mean**2] for u in given_c if u is not None])
    y = CHECKS * np.sqrt(powers[1])
    return y, sum(w * integrals.density(y, m, scale) for scale, w in zip(scales, w_c, strict=True)), powers


@jax.jit
def _meeting(nodes: Nodes, y: Array, density: Array, powers: Array, d: float, c: float) -> Nodes:
    """Nodes of u = d sum_j w_j^2 + c made to meet what is known: weights w_k (1 + delta_k) with the smallest delta that do.

    It is met as closely as weights can that change by less than half.
    """
    u = (jnp.exp(nodes.x) - c) / d
    N = jnp.exp(-(y[:, None] ** 2) / (2 * u)) / jnp.sqrt(2 * jnp.pi * u)
    functions = jnp.concatenate([N / density[0], 10 * u ** jnp.arange(3)[:, None] / powers[:, None]])
    U, S, Vt = jnp.linalg.svd(functions * nodes.w, full_matrices=False)
    projected = U.T @ (jnp.concatenate([density / density[0], 10 * jnp.ones(3)]) - functions @ nodes.w)
    deltas = jax.vmap(lambda ridge: Vt.T @ (projected * S / (S**2 + (ridge * S[0]) ** 2)))(RIDGES)
    weakest = jnp.argmax(jnp.abs(deltas).max(axis=1) < 0.5)
    return nodes._replace(w=nodes.w * (1 + jnp.where(jnp.abs(deltas[weakest]).max() < 0.5, deltas[weakest], 0)))
