"""How tokens enter a stack: rows of tables that are drawn with the network, or inputs given once and for all."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from hierattn.base.errors import as_array, check_counts, unusable
from hierattn.layer import kernels
from hierattn.stack.blocks import Norm


@dataclass(frozen=True, eq=False, kw_only=True)
class Embedding:
    """The stream before the first block.

    Drawn: coordinates are i.i.d. N(0, K); of tables K_ij = var_token 1(id_i = id_j) + var_position 1(i = j) + var_type 1(..).
    Given: inputs of this Gram matrix X X' / n and these means over coordinates, the same for all networks.

    - kernel: K; made by `of_tokens` from tables
    - gram, means: those of given inputs; made by `given` from X
    - norm: of the embedded tokens, as in BERT
    """

    kernel: Any = None
    gram: Any = None
    means: Any = None
    norm: Norm | None = None

    def __post_init__(self) -> None:
        if (self.kernel is None) == (self.gram is None):
            raise unusable("kernel", "a kernel of drawn tokens, or the gram of given ones", "both or neither")
        for name in ("kernel", "gram"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.asarray(kernels.check(getattr(self, name), name), float))
        if self.means is not None:
            object.__setattr__(self, "means", as_array("means", self.means))
            if self.gram is None or self.means.shape != (self.tokens,):
                raise unusable("means", "one for each token of a gram", f"shape {self.means.shape}")

    @classmethod
    def of_tokens(
        cls,
        ids: Any,
        token_variance: float = 1.0,
        position_variance: float = 0.0,
        types: Any = None,
        type_variance: float = 0.0,
        norm: Norm | None = None,
    ) -> Self:
        """Tables of Gaussian rows, one for each id, position and type, added up."""
        ids = as_array("ids", ids, None)
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu":
            raise unusable("ids", "a list of whole numbers, one for each token", f"{ids.dtype} of shape {ids.shape}")
        types = np.zeros_like(ids) if types is None else as_array("types", types, None)
        if types.shape != ids.shape:
            raise unusable("types", f"one for each of the {len(ids)} tokens", f"shape {types.shape}")
        K = token_variance * (ids[:, None] == ids) + position_variance * np.eye(len(ids))
        return cls(kernel=K + type_variance * (types[:, None] == types), norm=norm)

    @classmethod
    def independent(cls, tokens: int, variance: float = 1.0, norm: Norm | None = None) -> Self:
        """Tokens that are all different."""
        check_counts(tokens=tokens)
        return cls.of_tokens(np.arange(tokens), variance, norm=norm)

    @classmethod
    def given(cls, X: Any, norm: Norm | None = None) -> Self:
        """Inputs X (tokens, width), the same for all networks."""
        X = as_array("X", X)
        if X.ndim != 2:
            raise unusable("X", "shape (tokens, width)", f"shape {X.shape}")
        return cls(gram=X @ X.T / X.shape[1], means=X.mean(axis=1), norm=norm)

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return len(self.gram if self.kernel is None else self.kernel)


@dataclass(frozen=True, kw_only=True)
class Unembedding:
    """Logits of every token, of weights that nothing else shares: entries N(0, variance), no bias.

    - vocabulary: how many logits a token has
    - variance: of an entry; a Hugging Face model's is initializer_range^2
    """

    vocabulary: int
    variance: float

    def __post_init__(self) -> None:
        check_counts(vocabulary=self.vocabulary)
        if not (np.isfinite(self.variance) and self.variance >= 0):
            raise unusable("variance", "a finite number of at least 0", self.variance)
