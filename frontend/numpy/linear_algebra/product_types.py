"""The element types of products: those of the operands, of the sums and of the result."""

from typing import NamedTuple

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import DTypeLike
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.tracer_helpers.product_precision import algorithm_of
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import convert
from shardir.frontend.tracing.promotion import dtype_of
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.dtypes import KEYS
from shardir.ops.contraction.product_dtypes import (
    algorithm_dtypes,
    is_narrower_result,
    product_dtypes,
    wider_operand,
)


class Product(NamedTuple):
    """The operands of a product in the element types in which it is computed."""

    x: Tracer
    y: Tracer
    computed: str
    """The type of the product, in which sums are accumulated."""
    result: str
    """The type to which the product is converted."""


def prepare_product(
    x: Tracer, y: Tracer, preferred_element_type: DTypeLike | None, precision: object
) -> Product:
    """Return the operands of a product in the element types in which it is computed.

    Raise `ArgumentError` for a precision that is none, for an algorithm that is not supported, and
    for an algorithm of complex operands, and `OperationTypeError` for a preferred type that is
    narrower than an integer or a complex type.
    """
    algorithm = algorithm_of(precision)
    names = x.value.type.dtype, y.value.type.dtype
    if any(name in KEYS for name in names):
        return Product(x, y, names[0], names[0])  # The operation `dot` refuses keys.
    common = wider_operand(*names)
    result = common if preferred_element_type is None else dtype_of(preferred_element_type)
    if algorithm is not None:
        try:
            computed = algorithm_dtypes(*names, algorithm)
        except TypeError as error:
            raise ArgumentError(
                with_location(f"{error}; {_way_without_algorithm(precision)}")
            ) from None
    elif is_narrower_result(common, result):
        raise OperationTypeError(
            with_location(
                f"preferred_element_type {result} is narrower than {common}, the type of the "
                "product; convert the operands, or the result"
            )
        )
    else:
        computed = product_dtypes(*names, result)
    return Product(convert(x, computed.x), convert(y, computed.y), computed.product, result)


def _way_without_algorithm(precision: object) -> str:
    """Return how a program states no algorithm for a product."""
    if precision is not None:
        return "leave it out"
    return (
        "state precision=lax.Precision.HIGHEST, because the setting default_matmul_precision is "
        f"{config.default_matmul_precision!r}"
    )
