"""Rounding of floats to fewer bits than their type has."""

from functools import partial

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.lax.elementwise import bitcast_convert_type
from shardir.frontend.numpy.dtypes import finfo
from shardir.frontend.numpy.elementwise import float_parts, selection
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.ir.dtypes import UNSIGNED_BY_BITS, precision_dtype
from shardir.ir.types import FLOATS, NUMPY_DTYPES


@public(static=("exponent_bits", "mantissa_bits"))
def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Tracer:
    """Round each element to a float with the given numbers of bits, ties to even.

    A value that exceeds the exponent range becomes infinite, a value below it a zero of its sign.
    Floats of at most 8 bits are rounded as f16 or f32, and the result is converted.
    The derivative is 1: rounding is not differentiated. Raise `OperationTypeError` for other
    element types.
    """
    x = as_tracer(operand)
    name = x.value.type.dtype
    if name not in FLOATS:
        raise OperationTypeError(
            with_location(f"reduce_precision takes floating-point numbers, got {name}")
        )
    if exponent_bits < 1 or mantissa_bits < 0:
        bits = f"{exponent_bits} and {mantissa_bits}"
        raise OperationTypeError(
            with_location(
                f"reduce_precision keeps 1 bit of the exponent or more, and 0 or more of the "
                f"mantissa, got {bits}"
            )
        )
    wide = precision_dtype(name)
    rounded = custom_jvp(partial(_round_bits, wide, exponent_bits, mantissa_bits))
    rounded.defjvp(lambda primals, tangents: (rounded(*primals), tangents[0]))
    return convert(rounded(convert(x, wide)), name, x.weak_type)


def _round_bits(name: str, exponent: int, mantissa: int, x: ArrayLike) -> Tracer:
    limits = finfo(NUMPY_DTYPES[name])
    stored, width = int(limits.nmant), int(limits.bits)
    unsigned = NUMPY_DTYPES[UNSIGNED_BY_BITS[width]]
    word = partial(np.array, dtype=unsigned)
    bits = bitcast_convert_type(x, unsigned)
    if (dropped_bits := stored - mantissa) > 0:
        last = (bits >> word(dropped_bits)) & word(1)
        bits = (bits + last + word((1 << (dropped_bits - 1)) - 1)) & word(
            (1 << width) - (1 << dropped_bits)
        )
    bias = (1 << (width - stored - 2)) - 1
    reduced_bias = (1 << (exponent - 1)) - 1
    if reduced_bias < bias:
        scale = (bits >> word(stored)) & word(2 * bias + 1)
        sign = bits & word(1 << (width - 1))
        infinite = sign | word((2 * bias + 1) << stored)
        bits = selection.where(scale > word(bias + reduced_bias), infinite, bits)
        bits = selection.where(scale <= word(bias - reduced_bias), sign, bits)
    return selection.where(float_parts.isnan(x), x, bitcast_convert_type(bits, NUMPY_DTYPES[name]))
