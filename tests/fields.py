"""All fields of a layer's description through all that consume it: each cell agrees with explicit networks or refuses by name.

    python -m tests.fields        prints the table, and writes it into docs/fields.md

What a consumer says of Sigma, in samples or in moments, is held against networks drawn weight by weight in NumPy
(tests/explicit.py), or at infinite head_dim against dense Gaussian scores.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
import xarray as xr
from numpyro.handlers import seed, substitute, trace

import hierattn as ha
from hierattn import Architecture, FiniteWidth, Law, RandomInputs, kernels
from hierattn.command_line.capture import write
from hierattn.diagnostics.subject import law_at
from hierattn.frameworks.description import _side_by_side as side_by_side
from hierattn.inference.calling import arguments, lookup
from hierattn.inference.fitting import check_density, check_scales
from hierattn.inference.likelihood import covariance
from hierattn.inference.methods.moment_table import Directions, averages
from hierattn.inference.methods.one_token.variances import table as table_of
from hierattn.inference.methods.registry import method_of
from hierattn.inference.problem import pose
from hierattn.inference.tree import constants
from hierattn.law import token_law
from hierattn.layer.scores import SCORE_FUNCTIONS
from hierattn.numerics import rqmc
from hierattn.observed import fits
from hierattn.observed.described import law_of
from tests import explicit
from tests.statistics import SIGMAS, same_means

PAGE = Path(__file__).parent.parent / "docs" / "fields.md"
BEGIN, END = "<!-- begin table -->", "<!-- end table -->"
NETWORKS, WIDTH, KEY = 2**13, 4, jax.random.key(0)  # as many networks as a chunk of draws has: no part of one is cut off
BUDGET, DRAWS = 2**19, 2**16  # numbers of an integral, networks for a marginal: errors are stated, and need not be small
ROUNDING = 1e-5  # of draws in single precision
K = kernels.from_inputs(np.random.default_rng(0).normal(size=(3, 4)))
K_Q = kernels.from_inputs(np.random.default_rng(1).normal(size=(2, 4)))
BIAS = np.random.default_rng(2).normal(size=(2, 3, 3))
TWO = Architecture(heads=2, sigma_q=1.6)


@dataclass(frozen=True)
class Row:
    """A layer with one field that is not the usual one.

    - field: of Architecture, or "kernel" and "query_kernel" of a law
    - words: what a refusal must name
    """

    layer: Architecture
    field: str
    words: tuple[str, ...] = ()
    query_kernel: Any = None
    each: bool = False
    token: int = 1
    seen: dict = field(default_factory=dict)

    @cached_property
    def inputs(self) -> tuple[np.ndarray, np.ndarray | None]:
        """X of keys, and of queries where they differ, with these kernels exactly."""
        X = explicit.inputs(np.linalg.cholesky(K), WIDTH)
        return X, None if self.query_kernel is None else explicit.inputs(np.linalg.cholesky(self.query_kernel), WIDTH)

    def truth(self, layer: Architecture | None = None) -> np.ndarray:
        """Sigma (network, token, token) of explicit networks, of this layer or of another."""
        layer = layer or self.layer
        if layer not in self.seen:
            rng = np.random.default_rng(3)
            if layer.head_dim is None:
                self.seen[layer] = explicit.limit_covariances(rng, layer, K, self.query_kernel, NETWORKS)
            else:
                X, X_q = self.inputs
                self.seen[layer] = explicit.covariances(rng, layer, X, X_q, NETWORKS)
        return self.seen[layer]

    @property
    def kernel(self) -> np.ndarray:
        """One, or one for each network: the same for all, so that explicit networks are those of one."""
        return np.broadcast_to(K, (NETWORKS, *K.shape)) if self.each else K

    @property
    def law(self) -> Law:
        """The law of the layer."""
        return Law(self.layer, np.stack([K, K]) if self.each else K, self.query_kernel)

    def outputs(self, networks: int) -> np.ndarray:
        """Outputs (network, token, coordinate) of networks with these covariances, two coordinates each."""
        values, vectors = np.linalg.eigh(self.truth()[:networks])
        root = vectors * np.sqrt(values.clip(0))[:, None]
        return root @ np.random.default_rng(5).normal(size=(networks, root.shape[-1], 2))

    def joined(self) -> tuple[Architecture, np.ndarray]:
        """Queries and keys as tokens of one kernel, queries first, for consumers of one kernel (docs/frameworks.md)."""
        K_all, mask, _ = side_by_side(self.query_kernel[None], K[None], np.ones((2, 3), bool), None)
        return self.layer.replace(mask=mask), K_all[0]


def rows() -> dict[str, Row]:
    """Every field; score functions as they are registered."""
    found = {
        "plain": Row(TWO, "heads"),
        "head_dim": Row(TWO.replace(head_dim=4), "head_dim"),
        "scaling linear": Row(TWO.replace(head_dim=4, scaling="linear", sigma_q=4.0), "scaling"),
        "scaling linear, infinite head_dim": Row(TWO.replace(scaling="linear"), "scaling"),
        "mask causal": Row(TWO.replace(mask="causal"), "mask", token=2),
        "mask": Row(TWO.replace(mask=np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1]], bool)), "mask"),
        "bias": Row(TWO.replace(bias=BIAS[0]), "bias"),
        "bias per head": Row(TWO.replace(bias=BIAS), "bias"),
        "rotary": Row(TWO.replace(head_dim=4, rotary=np.array([1.0, 0.3])), "rotary"),
        "rotary, infinite head_dim": Row(TWO.replace(rotary=np.array([1.0, 0.3])), "rotary"),
        "key_value_heads": Row(TWO.replace(head_dim=4, key_value_heads=1), "key_value_heads"),
        "key_value_heads, infinite head_dim": Row(TWO.replace(key_value_heads=1), "key_value_heads"),
        "scales per head": Row(Architecture(heads=2, sigma_q=[0.7, 2.0], sigma_o=[1.0, 1.5]), "sigma_q"),
        "window": Row(TWO.replace(window=2), "window"),
        "window, causal": Row(TWO.replace(window=2, mask="causal"), "window", token=2),
        "chunk": Row(TWO.replace(chunk=2), "chunk"),
        "qk_norm": Row(TWO.replace(qk_norm="rms", qk_gain=1.3), "qk_norm"),
        "qk_norm, eps": Row(TWO.replace(qk_norm="rms", qk_gain=2.0, qk_eps=0.5, sigma_k=0.7), "qk_eps"),
        "qk_norm, gain per head": Row(TWO.replace(qk_norm="rms", qk_gain=[0.7, 2.0]), "qk_gain"),
        "qk_norm, rotary": Row(TWO.replace(qk_norm="rms", rotary=np.array([1.0, 0.3])), "qk_norm", ("rotary",)),
        "qk_norm rms, head_dim": Row(TWO.replace(qk_norm="rms", qk_gain=1.3, head_dim=4), "qk_norm"),
        "qk_norm rms, head_dim, key_value_heads, eps": Row(
            TWO.replace(qk_norm="rms", qk_gain=2.0, qk_eps=0.5, head_dim=6, key_value_heads=1), "qk_norm"
        ),
        "qk_norm rms, head_dim, rotary": Row(
            TWO.replace(qk_norm="rms", qk_gain=1.3, head_dim=4, rotary=np.array([1.0, 0.3])), "qk_norm"
        ),
        "qk_norm layer, head_dim": Row(TWO.replace(qk_norm="layer", qk_gain=1.3, head_dim=5), "qk_norm"),
        "qk_norm layer, head_dim, rotary": Row(
            TWO.replace(qk_norm="layer", qk_gain=1.3, head_dim=4, rotary=np.array([1.0, 0.3])), "qk_norm"
        ),
        "qk_norm rms_all, head_dim": Row(TWO.replace(qk_norm="rms_all", qk_gain=1.3, head_dim=4), "qk_norm"),
        "cap": Row(TWO.replace(cap=1.0), "cap"),
        "cap, head_dim, bias": Row(TWO.replace(cap=1.0, head_dim=4, bias=BIAS[0]), "cap"),
        "sink": Row(TWO.replace(sink=0.5), "sink"),
        "sink per head, head_dim": Row(TWO.replace(sink=[0.5, -1.0], head_dim=4), "sink"),
        "sink_scale": Row(TWO.replace(sink=0.5, sink_scale=1.0), "sink_scale"),
        "sink_scale, head_dim": Row(TWO.replace(sink=0.5, sink_scale=1.0, head_dim=4), "sink_scale"),
        "query kernel": Row(TWO, "query_kernel", query_kernel=K_Q),
        "kernel per network": Row(
            TWO, "kernel", ("inputs: expected RandomInputs, or finite numbers of shape (tokens, width)",), each=True
        ),
    }
    for name in SCORE_FUNCTIONS:
        if name != TWO.score_function:
            layer = TWO.replace(score_function=name, heads=4 if name in ("identity", "relu") else 2)  # tails are heavy
            for some, each in ((name, layer), (f"{name}, head_dim", layer.replace(head_dim=4))):
                found[f"score_function {some}"] = Row(each, "score_function", ("shaped",))
    return found


class NotApplicableError(Exception):
    """A consumer that has no use for a field, and says why."""


CONSUMERS: dict[str, Callable[[Row], Any]] = {}


def consumer(name: str) -> Callable:
    """Register a column."""

    def add(function: Callable[[Row], Any]) -> Callable[[Row], Any]:
        CONSUMERS[name] = function
        return function

    return add


def agree(drawn: Any, truth: np.ndarray, off: float = 1.1) -> None:
    """Samples of Sigma from two sources have the same means and sizes; one that is off by a factor has not.

    Sizes are looked at through logarithms, which heavy tails leave alone.
    """
    drawn = np.asarray(drawn, float)
    assert _alike(drawn, truth)
    assert not _alike(off * drawn, truth)


def _alike(drawn: np.ndarray, truth: np.ndarray) -> bool:
    size = np.abs(truth).mean(axis=0)
    x, y = (np.concatenate([z, np.log1p(np.abs(z) / size), (np.log1p(np.abs(z) / size)) ** 2], axis=1) for z in (drawn, truth))
    error = np.sqrt(x.var(axis=0) / len(x) + y.var(axis=0) / len(y))
    return bool(np.all(np.abs(x.mean(axis=0) - y.mean(axis=0)) <= SIGMAS * error + ROUNDING * np.tile(size, (3, 1)) + ROUNDING))


def one_token(row: Row, variance: float, kurtosis: float, errors: tuple[float, float]) -> None:
    """E[v] and 3 Var(v) / E[v]^2 against explicit networks."""
    v = row.truth()[:, row.token, row.token]
    parts = v.reshape(64, -1)
    excess = 3 * parts.var(axis=1) / parts.mean(axis=1) ** 2
    expected, error = 3 * v.var() / v.mean() ** 2, excess.std() / np.sqrt(len(parts))
    assert abs(variance - v.mean()) <= errors[0] + SIGMAS * v.std() / np.sqrt(len(v)) + 1e-12
    assert abs(kurtosis - expected) <= errors[1] + SIGMAS * error + 1e-9


@consumer("sample")
def sample(row: Row) -> None:
    """Outputs: products of two coordinates, and of squares across coordinates."""
    y = np.asarray(row.law.sample(KEY, NETWORKS, 2), float)
    S, across = np.einsum("mic,mjc->mij", y, y) / 2, np.einsum("mi,mj->mij", y[..., 0], y[..., 1]) ** 2
    truth = row.truth()
    assert same_means(S, truth)
    products = np.einsum("mii,mjj->mij", truth, truth)
    assert same_means(across, products)
    assert not same_means(2 * across, products)


@consumer("sample_Sigma")
def sample_Sigma(row: Row) -> None:
    """Conditional covariances."""
    agree(row.law.sample_Sigma(KEY, NETWORKS), row.truth())


@consumer("sample_variances")
def sample_variances(row: Row) -> None:
    """One token's conditional variances, by their shortcut."""
    v = np.asarray(row.law.sample_variances(KEY, NETWORKS, row.token), float)[:, None, None]
    agree(v, row.truth()[:, row.token : row.token + 1, row.token : row.token + 1])


@consumer("moments")
def moments(row: Row) -> None:
    """One token's variance and kurtosis."""
    found = row.law.moments(row.token)
    one_token(row, found.variance, found.excess_kurtosis, (found.variance_error, found.excess_kurtosis_error))


@consumer("joint_moments")
def joint_moments(row: Row) -> None:
    """All second moments of Sigma."""
    found, Sigma = row.law.joint_moments(), row.truth()
    flat = Sigma.reshape(len(Sigma), -1)
    centred = flat - flat.mean(axis=0)
    products = np.einsum("ma,mb->mab", centred, centred)
    error = products.std(axis=0) / np.sqrt(len(flat))
    assert np.all(np.abs(found.mean.ravel() - flat.mean(axis=0)) <= SIGMAS * flat.std(axis=0) / np.sqrt(len(flat)) + 1e-6)
    covariance = found.covariance.reshape(products.shape[1:])
    assert np.all(np.abs(covariance - products.mean(axis=0)) <= SIGMAS * error + found.covariance_error.max() + 1e-6)


@consumer("marginal")
def marginal(row: Row) -> None:
    """One token's distribution."""
    found = row.law.marginal(row.token)
    errors = float(found.error("moment", 2)), float(found.error("excess_kurtosis"))
    one_token(row, float(found.variance), float(found.excess_kurtosis), errors)


@consumer("infinite_heads")
def infinite_heads(row: Row) -> None:
    """The Gaussian of infinitely many heads, and dimensions of a head."""
    mean, error = row.law.infinite_heads()
    Sigma = row.truth(row.layer.replace(head_dim=None, key_value_heads=None))
    spread = Sigma.std(axis=0) / np.sqrt(len(Sigma))
    assert np.all(np.abs(mean - Sigma.mean(axis=0)) <= SIGMAS * spread + error + 1e-9)


@consumer("FiniteWidth")
def finite_width(row: Row) -> None:
    """Random inputs, without weights; an infinite head_dim becomes the width."""
    if row.each:
        raise NotApplicableError("random inputs: every network has a kernel of its own")
    queries = None if row.query_kernel is None else len(row.query_kernel)
    law = FiniteWidth(row.layer, RandomInputs(WIDTH, 3, queries=queries))
    rng = np.random.default_rng(4)
    X = explicit.draw_inputs(rng, WIDTH, 3 + (queries or 0), lambda x: x, NETWORKS)
    X_q, X = (X[:, :, : queries or 0], X[:, :, queries or 0 :]) if queries else (None, X)
    drawn, truth = law.sample_Sigma(KEY, NETWORKS), explicit.covariances(rng, law.layer, X, X_q, NETWORKS)
    agree(drawn, truth, 1.4)


@consumer("given_inputs")
def given_inputs(row: Row) -> None:
    """The law of given inputs."""
    X, X_q = row.inputs
    law = ha.given_inputs(row.layer, np.stack([X, X]) if row.each else X, X_q)
    agree(law.sample_Sigma(KEY, NETWORKS), row.truth(row.layer.at_width(WIDTH)))


@consumer("network")
def network(row: Row) -> None:
    """The package's own explicit networks."""
    X, X_q = row.inputs
    y = ha.network.simulate(KEY, row.layer, np.stack([X, X]) if row.each else X, NETWORKS, 2, X_q).y
    y, truth = np.asarray(y, float), row.truth(row.layer.at_width(WIDTH))
    assert same_means(np.einsum("mic,mjc->mij", y, y) / 2, truth)
    assert same_means(np.prod(y**2, axis=2), np.einsum("mii->mi", truth) ** 2)


@consumer("compare_outputs")
def compare_outputs(row: Row) -> None:
    """Outputs of explicit networks against the law."""
    found = ha.compare_outputs(row.outputs(2000), row.law, row.token)
    assert min(found[f"{test}_p_value"] for test in ("ks", "scale", "projection")) > 1e-6


def posed(row: Row, tokens: list[int] | None = None) -> Any:
    """The problem of fitting outputs of explicit networks."""
    K_all, layer, seen = row.kernel, row.layer, list(range(len(row.truth()[0])))
    if row.query_kernel is not None:
        layer, K_all = row.joined()
    y = row.outputs(NETWORKS if row.each else 20)
    obs = ha.Observations(y[:, tokens or seen], K_all, tokens=tokens or seen, heads=layer.heads, mask=layer.mask)
    problem = pose(obs, layer, lookup("limit_law" if layer.head_dim is None else "finite_head_dim"), None)
    check_scales(problem)
    return problem


def method(name: str, problem: Any) -> None:
    """A method that refuses says so."""
    why_not = method_of(name).refuses(problem)
    if why_not is not None:
        raise ha.InputError(f"{name}: {why_not}")


def scales(row: Row) -> tuple[float, float]:
    """Of scores and values, which a fit takes to be the same for all heads."""
    return float(row.layer.score_scale[0]), float(row.layer.value_scale[0])


@consumer("fit networkwise")
def fit_networkwise(row: Row) -> None:
    """Sigma as the likelihood computes it, for scores from their prior."""
    problem, (q, o) = posed(row), scales(row)
    method("networkwise", problem)
    with jax.enable_x64(True):
        data = problem.data()
        Sigma = jax.jit(lambda: covariance(data, data.drawn(KEY, NETWORKS), q))()
        Sigma = o**2 * np.moveaxis(np.asarray(Sigma), -1, 0)
    agree(Sigma, row.truth())


@consumer("fit marginal")
def fit_marginal(row: Row) -> None:
    """The law of one token's v behind its likelihood."""
    problem, (q, o) = posed(row, [row.token]), scales(row)
    method("marginal", problem)
    laws = table_of(problem.law, 2, np.log(q), np.log(q))
    (at,) = np.flatnonzero(np.isclose(laws.log_q, laws.log_q[np.abs(laws.log_q - np.log(q)).argmin()]))
    moved = np.exp(laws.log_q[at]) / q  # the lattice's nearest score_scale, at which explicit networks are drawn anew
    v = row.truth(row.layer.replace(sigma_q=row.layer.sigma_q * moved))[:, row.token, row.token]
    for nodes in (half[at] for half in laws.halves):
        mean = o**2 * np.exp(laws.log_mean[at]) * np.exp(nodes[0]) @ nodes[1]
        square = o**4 * np.exp(2 * laws.log_mean[at]) * np.exp(2 * nodes[0]) @ nodes[1]
        assert abs(mean - v.mean()) <= SIGMAS * v.std() / np.sqrt(len(v)) + 1e-3 * mean
        assert abs(square - (v**2).mean()) <= SIGMAS * (v**2).std() / np.sqrt(len(v)) + 1e-2 * square


@consumer("fit moments")
def fit_moments(row: Row) -> None:
    """Mean of Sigma and of its squared trace, which moments are matched with."""
    problem, (q, o) = posed(row), scales(row)
    method("moments", problem)
    truth = row.truth()
    s = truth.shape[-1]
    found = averages(problem.law, np.array([q]), Directions(np.eye(s), np.zeros(s)), 2**14)
    trace = np.einsum("mii->m", truth)
    error = truth.std(axis=0) / np.sqrt(len(truth))
    assert np.all(np.abs(o**2 * found.Sigma[0] - truth.mean(axis=0)) <= SIGMAS * error + 5e-3 * np.abs(truth).mean())
    spread = SIGMAS * (trace**2).std() / np.sqrt(len(trace)) + 2e-2 * (trace**2).mean()
    assert abs(o**4 * found.gg[0, 0, 0] - (trace**2).mean()) <= spread


@consumer("fit nuts")
def fit_nuts(row: Row) -> None:
    """Outputs that the NumPyro model draws at known scales."""
    problem, (q, o) = posed(row), scales(row)
    method("nuts", problem)
    check_density(problem)
    number = NETWORKS if row.each else 4000
    kwargs = arguments(problem, None, observed=False) | {"networks": number, "coordinates": 2}
    model = seed(substitute(problem.model.model, {"score_scale": q, "value_scale": o}), 0)
    with jax.enable_x64(True):
        y = np.asarray(jax.jit(lambda: trace(model).get_trace(**kwargs)["y"]["value"])())
    y = np.moveaxis(y, 0, -1)
    truth = row.truth()
    assert same_means(np.einsum("mic,mjc->mij", y, y) / 2, truth)
    assert same_means(np.prod(y**2, axis=2), np.einsum("mii->mi", truth) ** 2)


@consumer("fit -> file -> diagnose")
def fit_file_diagnose(row: Row) -> None:
    """The law that a fit's file is diagnosed with, scales as the layer has them."""
    problem = posed(row)
    with tempfile.TemporaryDirectory() as folder:
        xr.DataTree.from_dict({"constant_data": constants(problem)}).to_netcdf(f"{folder}/fit.nc", engine="h5netcdf")
        with xr.open_datatree(f"{folder}/fit.nc", engine="h5netcdf") as tree:
            layer = fits.layer_of(tree)
    again = pose(problem.observations, layer, problem.model, None)
    law = law_at(again, dict(zip(("score_scale", "value_scale"), scales(row), strict=True)))
    agree(drawn_Sigma(law), row.truth())


@consumer("capture -> file -> read")
def capture_file_read(row: Row) -> None:
    """A layer described in a file beside its outputs."""
    K_all, layer, seen = row.kernel, row.layer, list(range(len(row.truth()[0])))
    if row.query_kernel is not None:
        layer, K_all = row.joined()
    obs = ha.Observations(row.outputs(NETWORKS if row.each else 20), K_all, tokens=seen, layer=layer, mask=layer.mask)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "captured.npz"
        write(path, obs, {}, 0, force=True)
        found = ha.read(path)
    agree(drawn_Sigma(law_of(found)), row.truth())


def drawn_Sigma(law: Any) -> np.ndarray:
    """Sigma of networks of a law, or of networks with a kernel each."""
    if law.L_k.ndim == 2:
        return np.asarray(law.sample_Sigma(KEY, NETWORKS))

    @jax.jit
    def draw() -> jax.Array:
        F = law.factor(law.scores_from(*law.sample_base(KEY, NETWORKS)), law.sample_values(KEY, NETWORKS))
        return F @ F.mT

    return np.asarray(draw())


def cell(row: Row, consume: Callable[[Row], Any]) -> str:
    """What becomes of a field in a consumer: agrees, a refusal that names it, or why it does not apply."""
    try:
        with mock.patch.object(rqmc, "BUDGET", BUDGET), mock.patch.object(token_law, "DRAWS", DRAWS):
            consume(row)
        return "agrees"
    except NotApplicableError as why:
        return str(why)
    except AssertionError as wrong:
        wrong.add_note(f"field {row.field}, consumer {consume.__name__}, {row.layer}")
        raise
    except ha.InputError as refused:
        message = str(refused)
    words = (row.field, row.field.replace("_", " "), *row.words, *(["head_dim"] if row.layer.head_dim else []))
    if not any(word in message for word in words):
        raise AssertionError(f"a refusal that does not name {row.field}: {message}")
    return f"refuses: {message.split(':')[0]}"


def table() -> dict[str, dict[str, str]]:
    """All cells."""
    return {name: {column: cell(row, consume) for column, consume in CONSUMERS.items()} for name, row in rows().items()}


def markdown(cells: dict[str, dict[str, str]]) -> str:
    """The table as a page shows it: consumers in rows, as there are more of them."""
    lines = ["| consumer | " + " | ".join(cells) + " |", "|---" * (1 + len(cells)) + "|"]
    lines += [f"| `{column}` | " + " | ".join(cells[name][column] for name in cells) + " |" for column in CONSUMERS]
    return "\n".join(lines)


def page(cells: dict[str, dict[str, str]]) -> str:
    """docs/fields.md with this table."""
    text = PAGE.read_text()
    return text[: text.index(BEGIN) + len(BEGIN)] + "\n" + markdown(cells) + "\n" + text[text.index(END) :]


def written() -> dict[str, dict[str, str]]:
    """The table as the page has it."""
    text = PAGE.read_text()
    lines = text[text.index(BEGIN) + len(BEGIN) : text.index(END)].strip().splitlines()
    head, _, *body = ([part.strip() for part in line.strip("|").split("|")] for line in lines)
    return {name: {line[0].strip("`"): line[i] for line in body} for i, name in enumerate(head) if i}


if __name__ == "__main__":
    every = table()
    PAGE.write_text(page(every))
    print(markdown(every))
