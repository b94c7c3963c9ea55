"""`precision=` of products and convolutions.

All products have the full precision of their element type. A precision has no effect; an algorithm
(`dot_algorithms`) states the element types in which a product is computed. The setting
`default_matmul_precision` states the precision of products without one. A function of which JAX
fixes the precision of products, or which computes without them in JAX, states `Precision.HIGHEST`.
"""

from enum import Enum
from typing import TypeAlias

from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.tracer_helpers.dot_algorithms import (
    DotAlgorithm,
    DotAlgorithmPreset,
    find_algorithm,
    supported_algorithm,
)
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.ops.contraction.product_dtypes import ALGORITHMS, AlgorithmDtypes


class Precision(Enum):
    """The precision of products; accepted for compatibility, without effect."""

    DEFAULT = 0
    """The lowest precision of JAX."""
    HIGH = 1
    """The intermediate precision of JAX."""
    HIGHEST = 2
    """The highest precision of JAX."""


PrecisionLike: TypeAlias = (
    str
    | Precision
    | tuple[str, str]
    | tuple[Precision, Precision]
    | DotAlgorithm
    | DotAlgorithmPreset
    | None
)
"""The precision of a product, of both operands or of each, which does not change results here, or
an algorithm."""

_NAMES = (
    "highest", "float32", "high", "bfloat16_3x", "tensorfloat32", "default", "bfloat16", "fastest",
)  # fmt: skip


def algorithm_of(precision: object) -> AlgorithmDtypes | None:
    """Return the dtypes in which a product is computed, if `precision` is an algorithm, or if it is
    `None` and the setting `default_matmul_precision` is an algorithm.

    Raise `ArgumentError` for an object that states no precision, and for an algorithm that JAX does
    not support on CPUs.
    """
    if precision is None:
        return ALGORITHMS.get(config.default_matmul_precision or "")
    check_precision(precision)
    algorithm = find_algorithm(precision)
    return None if algorithm is None else supported_algorithm(algorithm)


def check_precision(precision: object) -> None:
    """Raise `ArgumentError` for an object that states no precision.

    Convolutions ignore algorithms, as in JAX.
    """
    if find_algorithm(precision) is not None:
        return
    parts = precision if isinstance(precision, (tuple, list)) else (precision, precision)
    if len(parts) == 2 and all(map(_is_precision, parts)):
        return
    raise ArgumentError(
        with_location(
            f"precision is {brief(precision)}; it is None, a lax.Precision, one of "
            f"{', '.join(_NAMES)}, a pair of these, or a lax.DotAlgorithmPreset. "
            "Products have the full precision of their element type: leave precision out"
        )
    )


def _is_precision(part: object) -> bool:
    return part is None or isinstance(part, Precision) or (isinstance(part, str) and part in _NAMES)
