"""The law as NumPyro distributions: scores p, outputs y given p, and the factors that finite head dimensions add.

Singular kernels are exact here too: scores then live on the range of L (x) L and have their density there; outputs have one on
the range of Sigma(p) if the scores cannot move that range (equal tokens), and otherwise an error says why there is none.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpyro import distributions as dist  # the whole of it first: ArviZ may have left a lazy module behind
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

from hierattn.base.errors import InputError, unusable
from hierattn.law.hierarchy import Base
from hierattn.law.law import Law
from hierattn.layer.checks import SCALE_NAMES
from hierattn.layer.scores import SCORE_FUNCTIONS
from hierattn.numerics.random_numbers import normals


class ScoreTransform(Transform):
    """E -> p = sigma_Q sigma_K L E L', head by head, and back; densities are taken on the range of the map."""

    domain = constraints.independent(constraints.real, 3)
    codomain = constraints.independent(constraints.real, 3)

    def __init__(self, law: Law) -> None:
        self.law = law

    def __call__(self, E: Array) -> Array:
        return self.law.scores_from(E)

    def _inverse(self, p: Array) -> Array:
        L_q, L_k = (jnp.linalg.pinv(L)[..., None, :, :] for L in self.law.score_factors())
        return L_q @ (p / self.law.scale_of_scores(p.dtype)) @ L_k.mT

    def log_abs_det_jacobian(self, E: Array, p: Array, intermediates: Any = None) -> Array:
        r_q, r_k = E.shape[-2:]
        scale = r_q * r_k * jnp.sum(jnp.log(self.law.scale_of_scores(E.dtype)))
        of_queries, of_keys = (_log_volume(L) for L in self.law.score_factors())
        return scale + self.law.layer.heads * (r_k * of_queries + r_q * of_keys)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-2], *self.law.shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-2], self.law.L_q.shape[-1], self.law.L_k.shape[-1])

    def tree_flatten(self) -> tuple:
        return (self.law,), (("law",), {})


class WaveTransform(ScoreTransform):
    """E -> p with rotary embeddings: two waves a frequency add up to one score, so there is no way back."""

    domain = constraints.independent(constraints.real, 4)

    def _inverse(self, p: Array) -> Array:
        raise unusable("p", "a density of the scores", "rotary embeddings", "sample them non-centred (TransformReparam)")

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-3], *self.law.shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-2], 2 * len(self.law.layer.rotary), self.law.L_q.shape[-1], self.law.L_k.shape[-1])


class Scores(dist.TransformedDistribution):
    """p ~ N(0, kappa'), event (head, query, key), for an infinite head_dim.

    A transformed standard normal, so that numpyro's TransformReparam makes it non-centred. With a singular K the density is
    that on the range of kappa', and log_prob is -inf off it.
    """

    def __init__(self, law: Law, *, validate_args: bool | None = None) -> None:
        layer = law.layer
        if layer.head_dim is not None:
            raise unusable("head_dim", "None: scores are Gaussian at infinite head_dim only", layer.head_dim, "use score_base")
        if layer.sink_scale is not None:
            raise unusable("sink_scale", "None: with sinks that vary scores have no density here", "a number", "use score_base")
        transform = ScoreTransform(law) if layer.rotary is None else WaveTransform(law)
        super().__init__(score_base(law).E, transform, validate_args=validate_args)

    def log_prob(self, value: Array, intermediates: Any = None) -> Array:
        transform, tolerance = self.transforms[0], np.sqrt(jnp.finfo(value.dtype).eps)
        off_range = jnp.abs(transform(transform._inverse(value)) - value).max(axis=(-3, -2, -1))
        inside = off_range <= tolerance * (1 + jnp.abs(value).max(axis=(-3, -2, -1)))
        return jnp.where(inside, super().log_prob(value, intermediates), -jnp.inf)


class Gaussian(dist.Distribution):
    """N(0, F F') on tokens, event (token,), for a factor F (..., token, m); with a density on a subspace if that is singular.

    - basis: orthonormal basis (token, r) of the range of F F', None if that is everything
    - no_density: why there is none, for a range that moves with the scores
    """

    arg_constraints = {"factor": constraints.independent(constraints.real, 2)}
    support = constraints.real_vector
    reparametrized_params = ["factor"]
    pytree_data_fields = ("factor", "basis")
    pytree_aux_fields = ("no_density",)

    def __init__(
        self, factor: Array, basis: Any = None, no_density: str | None = None, *, validate_args: bool | None = None
    ) -> None:
        self.factor, self.basis, self.no_density = factor, basis, no_density
        super().__init__(factor.shape[:-2], factor.shape[-2:-1], validate_args=validate_args)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        shape = (*sample_shape, *self.batch_shape, self.factor.shape[-1])
        return jnp.einsum("...ij,...j->...i", self.factor, normals(key, shape, self.factor.dtype))

    @property
    def mean(self) -> Array:
        return jnp.zeros((*self.batch_shape, *self.event_shape), self.factor.dtype)

    @property
    def variance(self) -> Array:
        return jnp.sum(self.factor**2, axis=-1)

    @property
    def covariance_matrix(self) -> Array:
        return self.factor @ self.factor.mT

    def log_prob(self, value: Array) -> Array:
        if self.no_density is not None:
            raise InputError(self.no_density)
        if self.basis is None:
            return _log_density(self.factor, value)
        U = jnp.asarray(self.basis, self.factor.dtype)
        along = value @ U
        off_range = jnp.abs(along @ U.T - value).max(axis=-1)
        inside = off_range <= np.sqrt(jnp.finfo(U.dtype).eps) * jnp.abs(value).max(axis=-1)
        return jnp.where(inside, _log_density(U.T @ self.factor, along), -jnp.inf)


class Outputs(Gaussian):
    """y | p ~ N(0, Sigma(p)), one coordinate for all tokens. Batch shape is that of p; D are the values at finite head_dim."""

    def __init__(self, law: Law, p: Array, D: Array | None = None, *, validate_args: bool | None = None) -> None:
        basis, no_density = None, None
        try:
            basis = output_basis(law)
        except InputError as error:
            no_density = str(error)
        super().__init__(law.factor(p, D), basis, no_density, validate_args=validate_args)


def _log_density(F: Array, y: Array) -> Array:
    """Log N(y; 0, F F') from the triangle of F' = Q R: forming F F' would square its condition number."""
    R = jnp.linalg.qr(F.mT, mode="r")
    shape = jnp.broadcast_shapes(R.shape[:-2], y.shape[:-1])
    R, y = jnp.broadcast_to(R, (*shape, *R.shape[-2:])), jnp.broadcast_to(y, (*shape, y.shape[-1]))
    z = jax.lax.linalg.triangular_solve(R, y[..., None, :], left_side=False, lower=False)[..., 0, :]
    log_det = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(R, axis1=-2, axis2=-1))), axis=-1)
    return -0.5 * jnp.sum(z**2, axis=-1) - log_det - 0.5 * y.shape[-1] * jnp.log(2 * jnp.pi)


def output_basis(law: Law) -> Float[np.ndarray, "s r"] | None:
    """Basis of the subspace on which outputs have a density; None if that is all of R^s. Looks at a few draws of Sigma.

    Equal tokens give equal outputs, and any other relation that holds whatever the scores takes a dimension away. If Sigma is
    singular in directions that move with the scores, as with H rank(K) < s, no density exists and this is an error. Scales
    that are not known yet, inside jit, count as positive, and a K that is not known as definite.
    """
    if SCORE_FUNCTIONS[law.layer.score_function].may_vanish:
        got = f"{law.layer.score_function} attention, whose outputs are zero in some networks"
        raise unusable("score_function", "outputs with a density", got)
    if isinstance(law.L_k, jax.core.Tracer) or law.L_k.ndim > 2 or _is_regular(law):
        return None
    scales = {name: _zero_or_one(getattr(law.layer, name)) for name in (*SCALE_NAMES, "qk_gain")}
    factors = (np.asarray(L, float) for L in (law.L_k, law.L_q))
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        probe = Law.from_factors(law.layer.replace(**scales), *factors)
        Sigma = np.asarray(probe.sample_Sigma(jax.random.key(0), 4))
    values, vectors = np.linalg.eigh(np.concatenate([Sigma, Sigma.mean(axis=0, keepdims=True)]))
    ranks = (values > 1e-13 * np.abs(values).max()).sum(axis=1)
    s, rank, union = Sigma.shape[-1], ranks[:-1].min(), ranks[-1]
    if union == 0:
        raise unusable("outputs", "outputs that vary", "K or the values zero", "outputs are then zero and have no density")
    if rank < union:
        remedy = "observe fewer tokens or use more heads: H rank(K), and at finite head_dim H head_dim, must reach the tokens"
        raise unusable("outputs", f"{union} tokens with a density", f"Sigma of rank {rank} that moves with the scores", remedy)
    return None if union == s else vectors[-1][:, -union:]


def _is_regular(law: Law) -> bool:
    """Definite kernels and enough heads, no mask but a causal one: attention matrices are then regular almost surely."""
    (s_q, s_k), layer = law.shape, law.layer
    definite = law.L_q.shape[-1] == s_q and law.L_k.shape[-1] == s_k
    unmasked = layer.mask is None or isinstance(layer.mask, str)
    moving = all(np.all(_zero_or_one(x)) for x in (layer.score_scale, layer.value_scale)) and layer.score_factor > 0
    return definite and unmasked and moving and layer.heads * min(layer.head_dim or s_k, s_k) >= s_q


def _zero_or_one(scale: Any) -> Any:
    """A scale as far as ranks are concerned."""
    return 1.0 if isinstance(scale, jax.core.Tracer) else np.where(np.asarray(scale) > 0, 1.0, 0.0)


def score_base(law: Law) -> Base:
    """Distributions of the standard variables of one network's scores, None for those that the law does not have."""
    shapes, dtype = law.base_shapes(), law.dtype
    batch = law.L_k.shape[:-2] if law.layer.head_dim is None else ()
    found = Base(*(None if shape is None else _standard_normal(dtype, batch, *shape) for shape in shapes))
    if shapes.B is None or law.layer.rotary is not None:
        return found
    (groups, size, m), R = shapes.B, shapes.R
    R = None if R is None else _wishart_factor(law.freedom - m, R[1], R[0], dtype)
    return found._replace(B=_wishart_factor(law.freedom, size, groups, dtype), R=R)


def wishart_factor(law: Law) -> dist.Distribution:
    """Factors of values, one per group."""
    return _wishart_factor(law.head_dim, law.L_k.shape[-1], law.layer.groups, law.dtype)


def _wishart_factor(df: int, size: int, number: int, dtype: Any) -> dist.Distribution:
    """Factors W with W W' ~ Wishart_df(I): triangular, or plain normal if df < size."""
    if df < size:
        return _standard_normal(dtype, (), number, size, df)
    triangular = dist.WishartCholesky(jnp.asarray(df, dtype), scale_tril=jnp.eye(size, dtype=dtype))
    return triangular.expand([number]).to_event(1)


def _standard_normal(dtype: Any, batch: tuple[int, ...], *event: Any) -> dist.Distribution:
    return dist.Normal(jnp.zeros((), dtype), 1).expand([*batch, *event]).to_event(len(event))


def _log_volume(L: Any) -> Array:
    """Log of the volume by which L stretches its domain: log |det L| if square."""
    return jnp.sum(jnp.log(jnp.linalg.svd(L, compute_uv=False)), axis=-1)
