"""Reductions by any function of two: neighbours are combined until one is left."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from shardir.frontend import numpy as snp
from shardir.frontend.tracer import Tracer
from shardir.frontend.vectorizing import vmap

Values = tuple[Any, ...]


def fold(
    computation: Callable[..., Any],
    operands: Sequence[Tracer],
    initial: Sequence[Tracer],
    dims: tuple[int, ...],
    single: bool,
) -> Values:
    """The elements along `dims` and the initial ones, combined by an associative `computation`.

    It takes and returns scalars, one of each operand: bare ones when `single`, else in a tuple.
    """

    def combine(first: Values, second: Values) -> Values:
        if single:
            return (computation(first[0], second[0]),)
        return tuple(computation(first, second))

    rest = tuple(n for d, n in enumerate(operands[0].shape) if d not in dims)
    length = prod(operands[0].shape[d] for d in dims)
    values = tuple(
        snp.reshape(snp.moveaxis(x, dims, tuple(range(len(dims)))), (length, prod(rest)))
        for x in operands
    )
    start = tuple(
        snp.broadcast_to(snp.asarray(x, y.dtype), (1, prod(rest)))
        for x, y in zip(initial, operands, strict=True)
    )
    many = vmap(vmap(combine))
    while length > 1:
        half = length // 2
        pairs = tuple(snp.reshape(x[: 2 * half], (half, 2, -1)) for x in values)
        joined = many(tuple(x[:, 0] for x in pairs), tuple(x[:, 1] for x in pairs))
        odd = tuple(x[2 * half :] for x in values)
        values = tuple(snp.concatenate(both) for both in zip(joined, odd, strict=True))
        length -= half
    values = many(start, values) if length else start
    return tuple(snp.reshape(x, rest) for x in values)
