"""Contractions.

`dims` is an einsum: `bi,ih->bh` iterates over `b`, `i` and `h`, and sums over `i`, which the result
lacks. Its letters are its factors.
"""

from string import ascii_letters

import numpy as np

from shardir.errors import count_noun
from shardir.ir.arithmetic import Arithmetic
from shardir.ir.builder import Builder
from shardir.ir.dtypes import SMALL_FLOATS
from shardir.ir.operation import Cotangents, Value, define_op
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.batching import BatchedOp
from shardir.op_rules.factors import FactorRule, einsum_rule
from shardir.op_rules.tangents import multilinear_tangent
from shardir.ops.elementwise.numerics import accumulation_dtype, round_to
from shardir.ops.type_checks import NUMERIC, check_accumulator, common_dtype


def _split_dims(dims: str) -> tuple[str, str, str]:
    """Return the letters of both operands and of the result."""
    operands, arrow, output = dims.partition("->")
    terms = operands.split(",")
    letters = "".join((*terms, output))
    if not arrow or len(terms) != 2 or not (letters + "a").isalpha() or not letters.isascii():
        raise TypeError(f'dims={dims!r} is not a contraction of two operands such as "bi,ih->bh"')
    for term in (*terms, output):
        if len(set(term)) != len(term):
            raise TypeError(
                f"dims={dims!r} repeats a letter within {term!r}; take its diagonal first"
            )
    for letter in output:
        if letter not in operands:
            raise TypeError(
                f"dims={dims!r} has {letter!r} in the result only; broadcast the result instead"
            )
    return terms[0], terms[1], output


def _type(x: TensorType, y: TensorType, *, dims: str, result: TensorType | None) -> TensorType:
    *terms, output = _split_dims(dims)
    NUMERIC.check(x, y)
    if x.dtype != y.dtype and {x.dtype, y.dtype} <= set(SMALL_FLOATS) and result is not None:
        dtype = x.dtype  # The result is accumulated in a wider float.
    else:
        dtype = common_dtype(x, y)
    sizes: dict[str, int] = {}
    for type, term in zip((x, y), terms, strict=True):
        if len(term) != type.rank:
            raise TypeError(f"dims={dims!r} gives {count_noun(len(term), 'dimension')} to {type}")
        for letter, size in zip(term, type.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise TypeError(
                    f"{letter!r} of dims={dims!r} is both {sizes[letter]} and {size} in {x} and {y}"
                )
    computed = TensorType(tuple(sizes[letter] for letter in output), dtype)
    if result is not None and (result.dtype != dtype or x.dtype != y.dtype):
        check_accumulator(dtype, result.dtype)
        return computed.with_dtype(result.dtype)
    return computed


def _factors(x: TensorType, y: TensorType, *, dims: str, result: TensorType) -> FactorRule:
    return einsum_rule(dims, [x.shape, y.shape])


def _reference(x: NumpyArray, y: NumpyArray, *, dims: str, result: TensorType) -> NumpyArray:
    """Multiply and sum floats in f64, starting from 0.0, and round once."""
    wide = accumulation_dtype(result.numpy)
    with np.errstate(all="ignore"):
        product = np.einsum(dims, x.astype(wide), y.astype(wide), optimize=True)
        return round_to(np.asarray(product + wide.type(0)), result.numpy)


def _vjp(b: Builder, g: Value, x: Value, y: Value, z: Value, *, dims: str) -> Cotangents:
    left, right, output = _split_dims(dims)
    return (
        _cotangent(b, g, y, x.type, f"{output},{right}->", left),
        _cotangent(b, g, x, y.type, f"{output},{left}->", right),
    )


def _cotangent(b: Builder, g: Value, other: Value, to: TensorType, dims: str, term: str) -> Value:
    """Return a dot of `g` and the other operand, broadcast along letters of this operand only."""
    if g.type.dtype != other.type.dtype:
        other = b.convert(other, result=other.type.with_dtype(g.type.dtype))
    shared_letters = "".join(letter for letter in term if letter in dims)
    part = b.dot(g, other, dims=dims + shared_letters)
    if shared_letters != term:
        spread = tuple(i for i, letter in enumerate(term) if letter in shared_letters)
        part = b.broadcast(part, dims=spread, result=to.with_dtype(part.type.dtype))
    return part if part.type == to else b.convert(part, result=to)


def _batch(b: Builder, many: BatchedOp, *operands: Value, dims: str) -> Value:
    """Add a letter to the terms of batched operands and of the result."""
    left, right, output = _split_dims(dims)
    new = next(letter for letter in ascii_letters if letter not in dims)
    terms = [
        new + term if batched else term
        for term, batched in zip((left, right), many.batched, strict=True)
    ]
    return b.dot(*operands, dims=f"{','.join(terms)}->{new}{output}", result=many.emit_result)


dot = define_op(
    "dot",
    type=_type,
    factors=_factors,
    reference=_reference,
    batch=_batch,
    vjp=_vjp,
    jvp=multilinear_tangent,
    arithmetic=Arithmetic(sums_products=True),
)
"""Products of elements, summed over the letters that the result lacks.

The stated result type may have a wider element type than the operands; sums are accumulated in it.
"""
