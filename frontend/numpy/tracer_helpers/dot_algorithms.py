"""`lax.DotAlgorithm` and its presets: the element types in which a product is computed.

The presets that JAX supports on CPUs have the results of JAX there: operands are converted to a
type of the preset, and the product is accumulated in its accumulation type. The components into
which a preset splits f32 only approximate a product of f32, which is computed directly.
"""

from enum import Enum
from typing import NamedTuple

from shardir.frontend.arrays.array_types import DTypeLike
from shardir.frontend.call_signatures import with_constructor_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import dtype_of
from shardir.ops.contraction.product_dtypes import ALGORITHMS, AlgorithmDtypes


@with_constructor_errors
class DotAlgorithm(NamedTuple):
    """The element types and the number of products by which a product is computed.

    Products accept the presets of `DotAlgorithmPreset`; as in JAX on CPUs, they refuse this form.
    """

    lhs_precision_type: DTypeLike
    """The type to which the left operand is rounded."""
    rhs_precision_type: DTypeLike
    """The type to which the right operand is rounded."""
    accumulation_type: DTypeLike
    """The type of the sums."""
    lhs_component_count: int = 1
    """The number of parts whose sum is the left operand."""
    rhs_component_count: int = 1
    """The number of parts whose sum is the right operand."""
    num_primitive_operations: int = 1
    """The number of products of parts."""
    allow_imprecise_accumulation: bool = False
    """True if the sums may have a lower precision than `accumulation_type`."""


class DotAlgorithmPreset(Enum):
    """The algorithms for products by name: the types of both operands, and that of the sums."""

    DEFAULT = 1
    """The algorithm for the types of the operands."""
    ANY_F8_ANY_F8_F32 = 2
    """Refused, as in JAX on CPUs; state `preferred_element_type="float32"` instead."""
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 3
    """Refused, as in JAX on CPUs."""
    ANY_F8_ANY_F8_ANY = 4
    """Refused, as in JAX on CPUs."""
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 5
    """Refused, as in JAX on CPUs."""
    F16_F16_F16 = 6
    """Operands and sums are float16."""
    F16_F16_F32 = 7
    """Refused, as in JAX on CPUs; state `preferred_element_type="float32"` instead."""
    BF16_BF16_BF16 = 8
    """Refused, as in JAX on CPUs."""
    BF16_BF16_F32 = 9
    """Operands other than float32 are bfloat16, sums are float32."""
    BF16_BF16_F32_X3 = 10
    """Operands and sums are float32."""
    BF16_BF16_F32_X6 = 11
    """Operands and sums are float32."""
    BF16_BF16_F32_X9 = 12
    """Refused, as in JAX on CPUs."""
    TF32_TF32_F32 = 13
    """Refused, as in JAX on CPUs."""
    TF32_TF32_F32_X3 = 14
    """Refused, as in JAX on CPUs."""
    F32_F32_F32 = 15
    """Operands and sums are float32."""
    F64_F64_F64 = 16
    """Operands and sums are float64."""

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    def __str__(self) -> str:
        return self.name


def find_algorithm(precision: object) -> DotAlgorithm | DotAlgorithmPreset | None:
    """Return the algorithm that `precision` states, or `None` if it states none."""
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str):
        return DotAlgorithmPreset.__members__.get(precision)
    return None


def supported_algorithm(algorithm: DotAlgorithm | DotAlgorithmPreset) -> AlgorithmDtypes | None:
    """Return the dtypes in which an algorithm computes, or `None` for those of the operands.

    Raises `ArgumentError` for an algorithm that JAX does not support on CPUs.
    """
    if algorithm is DotAlgorithmPreset.DEFAULT:
        return None
    if isinstance(algorithm, DotAlgorithm):
        preset = _preset_of(algorithm)
        described = brief(algorithm)
        hint = f"; use {preset!r}" if preset else ""
    else:
        described, hint = algorithm.name, ""
        if described in ALGORITHMS:
            return ALGORITHMS[described]
    supported = ", ".join(("DEFAULT", *ALGORITHMS))
    raise ArgumentError(
        with_location(
            f"products do not support the algorithm {described}{hint}. As in JAX on CPUs, the "
            f"supported presets are {supported}. Products have the full precision of their element "
            "type: leave precision out, and state the type of sums as preferred_element_type"
        )
    )


def _preset_of(algorithm: DotAlgorithm) -> DotAlgorithmPreset | None:
    """Return the supported preset that multiplies and adds in one type, as `algorithm` does."""
    left, right, sums, *parts = algorithm
    if parts != [1, 1, 1, False]:
        return None
    name = "_".join(map(dtype_of, (left, right, sums))).upper()
    return DotAlgorithmPreset[name] if name in ALGORITHMS else None
