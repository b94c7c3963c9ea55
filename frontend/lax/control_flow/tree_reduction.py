"""Reductions by an arbitrary associative function: adjacent elements are combined until one
remains.
"""

from collections.abc import Sequence
from math import prod

from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.numpy.shaping import concatenation, reshaping
from shardir.frontend.pytree_types import UserFunction
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.vmap import vmap

ScalarTuple = tuple[Tracer, ...]


def reduce_pairwise(
    computation: UserFunction,
    operands: Sequence[Tracer],
    initial: Sequence[Tracer],
    dims: tuple[int, ...],
    single: bool,
) -> ScalarTuple:
    """Combine the elements along `dims` and the initial values by an associative `computation`.

    It maps scalars, one per operand, to scalars: bare scalars if `single`, else in a tuple.
    """

    def combine(first: ScalarTuple, second: ScalarTuple) -> ScalarTuple:
        if single:
            return (computation(first[0], second[0]),)
        return tuple(computation(first, second))

    rest = tuple(n for d, n in enumerate(operands[0].shape) if d not in dims)
    length = prod(operands[0].shape[d] for d in dims)
    # The other dimensions are kept, because a mesh may shard them.
    values = tuple(
        reshaping.reshape(reshaping.moveaxis(x, dims, tuple(range(len(dims)))), (length, *rest))
        for x in operands
    )
    start = tuple(
        reshaping.broadcast_to(array_conversion.asarray(x, y.dtype), (1, *rest))
        for x, y in zip(initial, operands, strict=True)
    )
    combine_rows: UserFunction = combine
    for _ in range(1 + len(rest)):
        combine_rows = vmap(combine_rows)
    while length > 1:
        half = length // 2
        pairs = tuple(reshaping.reshape(x[: 2 * half], (half, 2, *rest)) for x in values)
        combined = combine_rows(tuple(x[:, 0] for x in pairs), tuple(x[:, 1] for x in pairs))
        odd = tuple(x[2 * half :] for x in values)
        values = tuple(concatenation.concatenate(both) for both in zip(combined, odd, strict=True))
        length -= half
    values = combine_rows(start, values) if length else start
    return tuple(reshaping.reshape(x, rest) for x in values)
