"""The dtypes in which a product of operands of any dtypes, with a result of any dtype, is computed.

The rules are those of XLA on CPUs. Operands are converted to the dtype of the result if it has a
larger range than theirs; otherwise the product is computed in their dtype and converted. The
algorithms are JAX's presets; f32 is multiplied directly where XLA approximates it by sums of bf16.
"""

from typing import Any, NamedTuple

import ml_dtypes

from shardir.ir.dtypes import COMPLEX, DTYPE_INFO, FLOATS, REAL_OF, SMALL_FLOATS, UNSIGNED
from shardir.ops.type_checks import check_accumulator


class ProductDtypes(NamedTuple):
    """The dtypes to which both operands are converted, and that of their `dot`.

    The result of `dot` is converted to the dtype of the result.
    """

    x: str
    y: str
    product: str


class AlgorithmDtypes(NamedTuple):
    """The dtypes in which an algorithm computes a product."""

    operands: tuple[str, ...]
    """The dtypes that an operand keeps; operands of others are converted to the first."""
    accumulation: str


_F32 = AlgorithmDtypes(("f32",), "f32")

ALGORITHMS = {
    "F16_F16_F16": AlgorithmDtypes(("f16",), "f16"),
    "BF16_BF16_F32": AlgorithmDtypes(("bf16", "f32"), "f32"),
    "BF16_BF16_F32_X3": _F32,
    "BF16_BF16_F32_X6": _F32,
    "F32_F32_F32": _F32,
    "F64_F64_F64": AlgorithmDtypes(("f64",), "f64"),
}
"""The algorithms of JAX that XLA supports on CPUs: the dtypes of both operands, that of the sums,
and the number of products that approximate one of f32."""


def product_dtypes(x: str, y: str, result: str) -> ProductDtypes:
    """Return the dtypes in which a product is computed.

    A product of bools with a bool result has bools, which `dot` does not multiply: the caller
    computes whether any product is true.
    """
    common = wider_operand(x, y)
    if common == "bool":
        return ProductDtypes(result, result, result)
    if x != y:
        is_accumulated = {x, y} <= set(SMALL_FLOATS) and _accumulates(common, result)
        return ProductDtypes(*((x, y) if is_accumulated else (result, result)), result)
    if result == common or _accumulates(common, result):
        return ProductDtypes(x, y, result)
    if _order_of_range(result) > _order_of_range(common):
        return ProductDtypes(result, result, result)
    return ProductDtypes(x, y, common)


def algorithm_dtypes(x: str, y: str, algorithm: AlgorithmDtypes) -> ProductDtypes:
    """Return the dtypes in which an algorithm computes a product; raise `TypeError` for complex
    operands."""
    for dtype in (x, y):
        if dtype in COMPLEX:
            raise TypeError(f"the algorithm of a product multiplies real numbers, not {dtype}")
    first, second = (
        dtype if dtype in algorithm.operands else algorithm.operands[0] for dtype in (x, y)
    )
    return product_dtypes(first, second, algorithm.accumulation)


def wider_operand(x: str, y: str) -> str:
    """Return the dtype with the larger range, in which operands of two dtypes are multiplied."""
    return max(x, y, key=_order_of_range)


def is_narrower_result(common: str, result: str) -> bool:
    """Return whether XLA refuses a result because it has fewer bits than the product.

    Floats may become narrower.
    """
    return common not in FLOATS and _num_bits(result) < _num_bits(common)


def _accumulates(dtype: str, to: str) -> bool:
    """Return whether the operation `dot` of operands of `dtype` may have results of `to`."""
    try:
        check_accumulator(dtype, to)
    except TypeError:
        return False
    return True


def _num_bits(dtype: str) -> int:
    real = REAL_OF.get(dtype, dtype)
    return 1 if real == "bool" else DTYPE_INFO[real].bits


def _order_of_range(dtype: str) -> tuple[bool, int, int, int, bool]:
    real = REAL_OF.get(dtype, dtype)
    info: Any = ml_dtypes.finfo  # Its annotations lack the type of the argument.
    limits = info(DTYPE_INFO[real].numpy) if real in FLOATS else None
    return (
        dtype in COMPLEX,
        -1 if limits is None else int(limits.maxexp),
        -1 if limits is None else int(limits.nmant),
        _num_bits(dtype),
        dtype not in UNSIGNED,
    )
