"""Contractions with the names of `jax.lax`."""

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import TypeAlias

from shardir.errors import OperationTypeError
from shardir.frontend.argument_checks import as_items, check_integers
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.call_signatures import with_constructor_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.control_flow import loops
from shardir.frontend.numpy import dtypes
from shardir.frontend.numpy.creation import filling, ranges
from shardir.frontend.numpy.elementwise import selection
from shardir.frontend.numpy.linear_algebra.contraction import contract
from shardir.frontend.numpy.reductions import cumulative
from shardir.frontend.numpy.shaping import reshaping
from shardir.frontend.numpy.tracer_helpers.product_precision import PrecisionLike
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, reshape
from shardir.frontend.tracing.tracer import Tracer

DotDimensionNumbers: TypeAlias = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]
"""The dimensions of `dot_general`: the contracted ones of both operands, and the batch ones."""


@public(static=("dimension_numbers", "precision", "preferred_element_type"))
def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Contract the last dimension of `lhs` with the first of `rhs`; both are vectors or matrices.

    With `dimension_numbers`, return `dot_general` of arrays of any rank.
    """
    x, y = as_tracer(lhs), as_tracer(rhs)
    if dimension_numbers is not None:
        return dot_general(x, y, dimension_numbers, precision, preferred_element_type)
    if x.ndim not in (1, 2) or y.ndim not in (1, 2):
        raise OperationTypeError(
            with_location(
                f"lax.dot takes vectors and matrices, got shapes {x.shape} and {y.shape}; "
                "use snp.matmul or lax.dot_general"
            )
        )
    numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, numbers, precision, preferred_element_type)


def _check_dimension_numbers(
    given: DotDimensionNumbers, ranks: tuple[int, int]
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Return the dimensions as tuples of numbers from 0; raise `ArgumentError` unless they are two
    pairs, and `OperationTypeError` for a dimension that an operand does not have or that occurs
    twice.
    """
    pairs = [as_items(pair) for pair in as_items(given)]
    if [len(pair) for pair in pairs] != [2, 2]:
        raise ArgumentError(
            with_location(
                "dimension_numbers of dot_general are ((lhs contracting, rhs contracting), "
                f"(lhs batch, rhs batch)) dimensions, got {brief(given)}"
            )
        )
    read = tuple(
        tuple(
            tuple(
                dim + rank if -rank <= dim < 0 else dim
                for dim in check_integers("the dimensions of dot_general", dims)
            )
            for dims, rank in zip(pair, ranks, strict=True)
        )
        for pair in pairs
    )
    for side, rank, operand in zip(zip(*read, strict=True), ranks, ("lhs", "rhs"), strict=True):
        named = [dim for dims in side for dim in dims]
        for dim in named:
            if not 0 <= dim < rank:
                raise OperationTypeError(
                    with_location(f"{operand} of dot_general has {rank} dimensions, and not {dim}")
                )
            if named.count(dim) > 1:
                raise OperationTypeError(
                    with_location(
                        f"dot_general contracts or batches dimension {dim} of {operand} twice; "
                        "name each dimension once"
                    )
                )
    return read


@public(static=("dimension_numbers", "precision", "preferred_element_type"))
def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: DotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Contract ((lhs contracting, rhs contracting), (lhs batch, rhs batch)) dimensions.

    The result has the batch dimensions, then the remaining ones of `lhs`, then those of `rhs`. An
    element of the product of bools is true if at least one product is true. Operands of different
    element types are converted to `preferred_element_type`, or to the type with the larger range.
    Products have the precision of the element type, or of `preferred_element_type`, whatever
    `precision` states; a `DotAlgorithmPreset` states the types in which they are computed.
    """
    x, y = as_tracer(lhs), as_tracer(rhs)
    (contract_x, contract_y), (batch_x, batch_y) = _check_dimension_numbers(
        dimension_numbers, (x.ndim, y.ndim)
    )
    letters = iter(ascii_letters)
    left = [next(letters) for _ in range(x.ndim)]
    right = [next(letters) for _ in range(y.ndim)]
    for one, other in ((contract_x, contract_y), (batch_x, batch_y)):
        if len(one) != len(other):
            raise OperationTypeError(
                with_location(
                    f"dimensions {tuple(one)} of lhs and {tuple(other)} of rhs go in pairs"
                )
            )
        for i, j in zip(one, other, strict=True):
            if x.shape[i] != y.shape[j]:
                raise OperationTypeError(
                    with_location(
                        f"dimension {i} of shape {x.shape} and dimension {j} of shape {y.shape} "
                        "differ in size"
                    )
                )
            right[j] = left[i]
    contracted = {left[i] for i in contract_x}
    batch = [left[i] for i in batch_x]
    kept = [c for c in (*left, *right) if c not in contracted and c not in batch]
    dims = f"{''.join(left)},{''.join(right)}->{''.join((*batch, *kept))}"
    return contract(x, y, dims, preferred_element_type, precision)


@public(static=("precision",))
def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Tracer:
    """Multiply the matrices in the last two dimensions; the leading dimensions are batch
    dimensions.
    """
    x, y = as_tracer(lhs), as_tracer(rhs)
    rank = x.ndim
    if rank < 2 or y.ndim != rank:
        raise OperationTypeError(
            with_location(
                "batch_matmul takes arrays of the same rank, at least 2, got shapes "
                f"{x.shape} and {y.shape}"
            )
        )
    batch = tuple(range(rank - 2))
    return dot_general(x, y, (((rank - 1,), (rank - 2,)), (batch, batch)), precision)


@public(static=("precision", "preferred_element_type"))
def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Multiply consecutive groups of rows of `lhs` with one matrix each.

    `lhs` has the shape (rows, inner), `rhs` (groups, inner, columns), and `group_sizes` is the
    number of rows of each group; remaining rows give zeros. The implementation computes one product
    of all rows per group.
    """
    x, y, sizes = as_tracer(lhs), as_tracer(rhs), as_tracer(group_sizes)
    fits = x.ndim == 2 and y.ndim == 3 and x.shape[1] == y.shape[1]
    if not fits or sizes.shape != y.shape[:1]:
        raise OperationTypeError(
            with_location(
                "ragged_dot takes shapes (rows, inner), (groups, inner, columns) and (groups,), "
                f"got {x.shape}, {y.shape} and {sizes.shape}"
            )
        )
    ends = cumulative.cumsum(sizes)
    rows = ranges.arange(x.shape[0], dtype=ends.dtype)
    dtype = preferred_element_type or dtypes.result_type(x, y)

    def add(total: Tracer, group: tuple[Tracer, Tracer, Tracer]) -> tuple[Tracer, None]:
        matrix, size, end = group
        in_group = (rows < end) & (rows >= end - size)
        return total + dot(selection.where(in_group[:, None], x, 0), matrix, precision, dtype), None

    zeros = filling.zeros((x.shape[0], y.shape[2]), dtype)
    product: Tracer = loops.scan(add, zeros, (y, sizes, ends))[0]
    return product


@with_constructor_errors
@dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """The dimensions of `ragged_dot_general`.

    `dot_dimension_numbers` are those of `dot_general`. `lhs_ragged_dimensions` is the one dimension
    of `lhs` that consists of groups, `rhs_group_dimensions` the dimension of `rhs` that numbers
    them: none if the ragged dimension is contracted or a batch dimension.
    """

    dot_dimension_numbers: DotDimensionNumbers
    """The contracted and the batch dimensions, as for `dot_general`."""
    lhs_ragged_dimensions: Sequence[int]
    """The dimension of `lhs` that consists of groups."""
    rhs_group_dimensions: Sequence[int]
    """The dimension of `rhs` that numbers the groups, if there is one."""

    def __post_init__(self) -> None:
        """Convert lists to tuples, as JAX does, so that the dimensions have a hash."""
        (contracted, others), (batch, other_batch) = self.dot_dimension_numbers
        pairs = (tuple(contracted), tuple(others)), (tuple(batch), tuple(other_batch))
        object.__setattr__(self, "dot_dimension_numbers", pairs)
        for name in ("lhs_ragged_dimensions", "rhs_group_dimensions"):
            object.__setattr__(self, name, tuple(getattr(self, name)))


@public(static=("ragged_dot_dimension_numbers", "precision", "preferred_element_type"))
def ragged_dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    group_offset: None = None,
    *,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Contract consecutive groups of `lhs`, each with its part of `rhs`.

    `group_sizes` is the vector of the sizes of the groups along the ragged dimension, or has such a
    vector for each index of the dimensions of the same kind before it, and of the batch dimensions
    before those. If the ragged dimension is contracted, the result has a leading dimension with the
    product of each group. Remaining elements count as zeros. If it is a batch dimension, the sizes
    have no effect, as in JAX. Raise `OperationTypeError` for sizes of another shape, and for an
    offset of groups.
    """
    x, y, sizes = as_tracer(lhs), as_tracer(rhs), as_tracer(group_sizes)
    numbers = ragged_dot_dimension_numbers
    (contracted, others), (batch, other_batch) = _check_dimension_numbers(
        numbers.dot_dimension_numbers, (x.ndim, y.ndim)
    )
    ragged, group = tuple(numbers.lhs_ragged_dimensions), tuple(numbers.rhs_group_dimensions)
    if len(ragged) != 1 or not 0 <= ragged[0] < x.ndim or group_offset is not None:
        raise OperationTypeError(
            with_location(
                f"ragged_dot_general takes one ragged dimension of lhs, from 0 to {x.ndim - 1}, "
                f"and no group_offset; got {ragged}"
                f"{'' if group_offset is None else ' and an offset'}"
            )
        )
    is_free = ragged[0] not in (*contracted, *batch)
    if len(group) != is_free:
        raise OperationTypeError(
            with_location(
                "rhs of ragged_dot_general has one group dimension if the ragged dimension is "
                f"neither contracted nor a batch dimension, and none otherwise; got {group}"
            )
        )
    outer = _outer_dimensions(x, ragged[0], contracted, batch)
    _check_group_sizes(sizes, [x.shape[dim] for dim in outer])
    if ragged[0] in batch:
        dimensions = (contracted, others), (batch, other_batch)
        return dot_general(x, y, dimensions, precision, preferred_element_type)
    parts = _mask_groups(x, sizes, ragged[0], outer)
    inner, inner_batch = _next_dimensions(contracted), _next_dimensions(batch)
    if is_free:
        pairs = ((0, *inner), (*group, *others)), (inner_batch, tuple(other_batch))
    else:  # Both are masked, because infinite elements of other groups times zero are NaN.
        to_rhs = dict(zip((*contracted, *batch), (*others, *other_batch), strict=True))
        y = _mask_groups(y, sizes, to_rhs[ragged[0]], [to_rhs[dim] for dim in outer])
        batches = (0, *inner_batch), (0, *_next_dimensions(other_batch))
        pairs = (inner, _next_dimensions(others)), batches
    return dot_general(parts, y, pairs, precision, preferred_element_type)


def _next_dimensions(dims: Sequence[int]) -> tuple[int, ...]:
    """Return dimensions of an array as those of the array with another dimension in front."""
    return tuple(dim + 1 for dim in dims)


def _outer_dimensions(
    x: Tracer, ragged: int, contracted: Sequence[int], batch: Sequence[int]
) -> list[int]:
    """Return the dimensions whose indices may have group sizes of their own."""
    if ragged in batch:
        return list(batch[: batch.index(ragged)])
    same = contracted
    if ragged not in contracted:
        same = [dim for dim in range(x.ndim) if dim not in (*contracted, *batch)]
    return [*batch, *same[: same.index(ragged)]]


def _check_group_sizes(sizes: Tracer, outer: Sequence[int]) -> None:
    if sizes.ndim != 1 and (sizes.ndim == 0 or sizes.shape[:-1] != tuple(outer)):
        expected = f" or ({', '.join(map(str, outer))}, groups)" if outer else ""
        raise OperationTypeError(
            with_location(
                f"group_sizes of ragged_dot_general has the shape (groups,){expected}, got "
                f"{sizes.shape}"
            )
        )


def _mask_groups(x: Tracer, sizes: Tracer, ragged: int, outer: Sequence[int]) -> Tracer:
    """Return the elements of each group of an array, and zeros for the others, with the group as
    first dimension."""
    ends = cumulative.cumsum(sizes, axis=-1)
    number = ranges.arange(x.shape[ragged], dtype=ends.dtype)
    member = (number >= (ends - sizes)[..., None]) & (number < ends[..., None])
    dims = [*outer, ragged] if sizes.ndim > 1 else [ragged]
    order = sorted(range(len(dims)), key=dims.__getitem__)
    # The dimensions of `member` are the outer ones, the group, and the ragged one.
    position = [*range(len(dims) - 1), len(dims)]
    member = reshaping.transpose(member, (len(dims) - 1, *(position[i] for i in order)))
    shape = [size if dim in dims else 1 for dim, size in enumerate(x.shape)]
    return selection.where(reshape(member, [sizes.shape[-1], *shape]), x, 0)
