"""Products of vectors, matrices and batches of them, each of them one `dot` operation.

The letters of a `dot` follow a convention: `bi,ih->bh` is a product of two matrices. A dimension of
size 1 that would be broadcast against a larger one is dropped instead of repeated.
"""

from collections.abc import Iterable, Sequence
from operator import index
from string import ascii_letters
from typing import SupportsIndex

from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ShapeError
from shardir.frontend.numpy.linear_algebra.product_types import prepare_product
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import broadcast_in_dim, flatten
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    as_bool,
    check_no_out,
    emit_conjugate,
    emit_elementwise,
)
from shardir.frontend.numpy.tracer_helpers.product_precision import Precision, algorithm_of
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast_shapes,
    convert,
    promote,
    reshape,
)
from shardir.frontend.tracing.trace import emit, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import abstract_text
from shardir.ir.types import TensorType

BATCH_LETTERS = [letter for letter in ascii_letters if letter not in "bih"]
PRODUCT_STATIC_ARGNAMES = ("precision", "preferred_element_type")


def contract(
    x: Tracer,
    y: Tracer,
    dims: str,
    preferred_element_type: DTypeLike | None = None,
    precision: object = None,
) -> Tracer:
    """Emit `dot` of operands of any element types, in the types of `prepare_product`.

    For bools, an element of the result is true if at least one product is true; with another
    preferred type it is the number of these products.
    """
    product = prepare_product(x, y, preferred_element_type, precision)
    weak = x.weak_type and y.weak_type and preferred_element_type is None
    made = _emit_product(product.x, product.y, dims, product.computed, weak)
    return made if product.result == product.computed else convert(made, product.result, weak)


def _emit_product(x: Tracer, y: Tracer, dims: str, dtype: str, weak: bool) -> Tracer:
    """Emit `dot` with the element type `dtype`, which accumulates that of both operands."""
    left, right, output = dims.replace("->", ",").split(",")
    if dtype == "bool":
        if left == right and not output and x.shape == y.shape:
            # This is a reduction with `any`, without a sum, so that a backend can stop at the first
            # true element.
            some: Tracer = emit("any", emit("and", x, y), dims=tuple(range(x.ndim)))
            return some
        # A sum of ones is never rounded to zero, and products of floats are fastest.
        return as_bool(_emit_product(convert(x, "f32"), convert(y, "f32"), dims, "f32", False))
    x, left = _drop_broadcast_dims(x, left, y, right)
    y, right = _drop_broadcast_dims(y, right, x, left)
    sizes = dict(zip(left + right, x.shape + y.shape, strict=True))
    has_own_type = x.value.type.dtype == y.value.type.dtype == dtype
    shape = tuple(sizes[letter] for letter in output)
    result = None if has_own_type else TensorType(shape, dtype)
    made: Tracer = emit("dot", x, y, dims=f"{left},{right}->{output}", result=result, weak=weak)
    return made


def _drop_broadcast_dims(x: Tracer, letters: str, y: Tracer, others: str) -> tuple[Tracer, str]:
    """Drop the dimensions of size 1 of `x` that have another size in `y`."""
    sizes = dict(zip(others, y.shape, strict=True))
    kept = [
        (letter, n)
        for letter, n in zip(letters, x.shape, strict=True)
        if n != 1 or sizes.get(letter, 1) == 1
    ]
    return reshape(x, [n for _, n in kept]), "".join(letter for letter, _ in kept)


def _check_contracted_sizes(name: str, x: Tracer, i: int, y: Tracer, j: int) -> None:
    """Raise `ShapeError` unless two contracted dimensions have the same size."""
    if x.shape[i] != y.shape[j]:
        raise ShapeError(
            with_location(
                f"{name} multiplies axis {i % x.ndim} of shape {x.shape} with axis {j % y.ndim} "
                f"of shape {y.shape}, but {x.shape[i]} is not {y.shape[j]}"
            )
        )


@public(static=PRODUCT_STATIC_ARGNAMES)
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return the matrix product over the last two axes; the axes before them are batch axes and
    broadcast.

    A vector is a row on the left and a column on the right; the result lacks that axis.
    Products have the precision of the element type, whatever `precision` states; a
    `lax.DotAlgorithmPreset` states the types in which they are computed. The result has the
    promoted element type, or `preferred_element_type`.
    """
    x, y = promote(a, b)
    if not x.ndim or not y.ndim:
        raise ShapeError(
            with_location(
                f"matmul takes no scalars, got shapes {x.shape} and {y.shape}; use multiply"
            )
        )
    _check_contracted_sizes("matmul", x, -1, y, -2 if y.ndim > 1 else -1)
    stacks = max(x.ndim - 2, 0), max(y.ndim - 2, 0)
    broadcast_shapes(x.shape[: stacks[0]], y.shape[: stacks[1]])
    _check_batch_shardings("matmul", x, y, range(-3, -3 - min(stacks), -1))
    stack = "".join(BATCH_LETTERS[: max(stacks)])
    left, right = (stack[len(stack) - n :] for n in stacks)
    row, column = ("b" if x.ndim > 1 else ""), ("h" if y.ndim > 1 else "")
    dims = f"{left}{row}i,{right}i{column}->{stack}{row}{column}"
    return contract(x, y, dims, preferred_element_type, precision)


def exact_matmul(a: ArrayLike, b: ArrayLike) -> Tracer:
    """Return `matmul` in the element types of the operands.

    Functions that compute something other than products use it: the setting
    `default_matmul_precision` has no effect on it.
    """
    return as_tracer(matmul(a, b, precision=Precision.HIGHEST))


@public(static=PRODUCT_STATIC_ARGNAMES)
def dot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return the sum of products over the last axis of `a` and the last but one (or only) axis of
    `b`.

    The result has the remaining axes of `a`, then those of `b`. Scalars are multiplied.
    `precision` is that of `matmul`.
    """
    x, y = promote(a, b)
    if not x.ndim or not y.ndim:
        return _multiply_scalars(x, y, preferred_element_type, precision)
    _check_contracted_sizes("dot", x, -1, y, -2 if y.ndim > 1 else -1)
    rows = "b" if x.ndim == 2 else "".join(BATCH_LETTERS[: x.ndim - 1])
    columns = "h" if y.ndim == 2 else "".join(BATCH_LETTERS[x.ndim :][: y.ndim - 1])
    right = f"{columns[:-1]}i{columns[-1:]}"
    return contract(x, y, f"{rows}i,{right}->{rows}{columns}", preferred_element_type, precision)


def _check_batch_shardings(name: str, x: Tracer, y: Tracer, dims: Iterable[int]) -> None:
    """Refuse batch dimensions of one size with different axes, as JAX does in these functions."""
    types = require_trace(name).program.sharding_types
    if types is None or types.is_untyped(x.value) or types.is_untyped(y.value):
        return
    left, right = types.sharding_of(x.value), types.sharding_of(y.value)
    if left is None or right is None:
        return
    for dim in dims:
        axes = left.spec.axes(range(x.ndim)[dim]), right.spec.axes(range(y.ndim)[dim])
        if x.shape[dim] == y.shape[dim] and axes[0] != axes[1]:
            types.refuse(
                f"the operands of {name}, {abstract_text(x.abstract)} and "
                f"{abstract_text(y.abstract)}, have different shardings along a batch dimension; "
                "reshard one of them (sharding.reshard)"
            )


def _multiply_scalars(
    x: Tracer, y: Tracer, preferred_element_type: DTypeLike | None, precision: object
) -> Tracer:
    """Return the products of operands of which one is a scalar."""
    if preferred_element_type is None and algorithm_of(precision) is None:
        return apply_elementwise("mul", x, y)
    product = prepare_product(x, y, preferred_element_type, precision)
    weak = x.weak_type and y.weak_type and preferred_element_type is None
    made = apply_elementwise(
        "mul", convert(product.x, product.computed), convert(product.y, product.computed)
    )
    return convert(made, product.result, weak)


@public(static=PRODUCT_STATIC_ARGNAMES)
def vdot(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:
    """Return the sum of the products of all elements, those of `a` conjugated, as a scalar."""
    x, y = map(flatten, promote(a, b))
    _check_contracted_sizes("vdot", x, 0, y, 0)
    return contract(emit_conjugate(x), y, "i,i->", preferred_element_type, precision)


@public(static=("axis", *PRODUCT_STATIC_ARGNAMES))
def vecdot(
    x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1, precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:  # fmt: skip
    """Return the dot products of vectors along `axis`, `x1` conjugated; the other axes
    broadcast.
    """
    x, y = promote(x1, x2)
    i, j = canonicalize_axis(axis, x.ndim), canonicalize_axis(axis, y.ndim)
    _check_contracted_sizes("vecdot", x, i, y, j)
    stack = BATCH_LETTERS[: max(x.ndim, y.ndim) - 1]
    left, right = (stack[len(stack) - v.ndim + 1 :] for v in (x, y))
    sizes = ([n for d, n in enumerate(v.shape) if d != k] for v, k in ((x, i), (y, j)))
    broadcast_shapes(*map(tuple, sizes))
    if x.ndim == y.ndim:
        _check_batch_shardings("vecdot", x, y, [d for d in range(x.ndim) if d != i])
    left.insert(i, "i")
    right.insert(j, "i")
    dims = f"{''.join(left)},{''.join(right)}->{''.join(stack)}"
    return contract(emit_conjugate(x), y, dims, preferred_element_type, precision)


@public(static=PRODUCT_STATIC_ARGNAMES)
def matvec(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:
    """Return the products of matrices with vectors in the last axes; the axes before broadcast."""
    x, y = promote(x1, x2)
    if x.ndim < 2 or not y.ndim:
        raise ShapeError(
            with_location(f"matvec takes matrices and vectors, got shapes {x.shape} and {y.shape}")
        )
    columns = reshape(y, (*y.shape, 1))
    product = as_tracer(
        matmul(x, columns, precision=precision, preferred_element_type=preferred_element_type)
    )
    return reshape(product, product.shape[:-1])


@public(static=PRODUCT_STATIC_ARGNAMES)
def vecmat(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:
    """Return the products of conjugated vectors with matrices in the last axes; others
    broadcast.
    """
    x, y = promote(x1, x2)
    if not x.ndim or y.ndim < 2:
        raise ShapeError(
            with_location(f"vecmat takes vectors and matrices, got shapes {x.shape} and {y.shape}")
        )
    rows = reshape(emit_conjugate(x), (*x.shape[:-1], 1, x.shape[-1]))
    product = as_tracer(
        matmul(rows, y, precision=precision, preferred_element_type=preferred_element_type)
    )
    return reshape(product, (*product.shape[:-2], product.shape[-1]))


@public(static=PRODUCT_STATIC_ARGNAMES)
def inner(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
) -> Tracer:
    """Return the sum of products over the last axes of both arrays; scalars are multiplied.

    The result has the remaining axes of `a`, then those of `b`.
    """
    x, y = promote(a, b)
    if not x.ndim or not y.ndim:
        return _multiply_scalars(x, y, preferred_element_type, precision)
    _check_contracted_sizes("inner", x, -1, y, -1)
    rows = "".join(BATCH_LETTERS[: x.ndim - 1])
    columns = "".join(BATCH_LETTERS[x.ndim :][: y.ndim - 1])
    return contract(x, y, f"{rows}i,{columns}i->{rows}{columns}", preferred_element_type, precision)


@public()
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Tracer:
    """Return the products of each element of `a` with each element of `b` as a matrix."""
    check_no_out("outer", out)
    return outer_product(*map(flatten, promote(a, b)))


def outer_product(x: Tracer, y: Tracer) -> Tracer:
    """Return the products of each element of the vector `x` with each of the vector `y`."""
    if x.value.type.dtype == "bool":
        return contract(x, y, "b,h->bh", precision=Precision.HIGHEST)
    # Without a sum, products keep the sign of zero.
    shape = (x.shape[0], y.shape[0])
    return emit_elementwise(
        "mul", broadcast_in_dim(x, shape, (0,)), broadcast_in_dim(y, shape, (1,))
    )


@public(static=("axes", *PRODUCT_STATIC_ARGNAMES))
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: SupportsIndex | list[int | Sequence[int]] | tuple[int | Sequence[int], ...] = 2,
    *,
    precision: object = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return the sum of products over several axes.

    `axes` is a number n (the last n axes of `a` and the first n of `b`) or a pair of lists of axes.
    The result has the remaining axes of `a`, then those of `b`.
    """
    x, y = promote(a, b)
    if isinstance(axes, (tuple, list)):
        pair = [(e,) if not isinstance(e, (tuple, list)) else tuple(e) for e in axes]
        if len(pair) != 2 or len(pair[0]) != len(pair[1]):
            raise ShapeError(
                with_location(
                    f"axes={axes} of tensordot is neither a number nor a pair of lists of one "
                    f"length"
                )
            )
        first = [canonicalize_axis(d, x.ndim) for d in pair[0]]
        second = [canonicalize_axis(d, y.ndim) for d in pair[1]]
    else:
        count = index(axes)
        if not 0 <= count <= min(x.ndim, y.ndim):
            raise ShapeError(
                with_location(
                    f"axes={count} of tensordot is more than shapes {x.shape}, {y.shape} have"
                )
            )
        first, second = list(range(x.ndim - count, x.ndim)), list(range(count))
    left, right = list(ascii_letters[: x.ndim]), list(ascii_letters[x.ndim :][: y.ndim])
    for i, j in zip(first, second, strict=True):
        _check_contracted_sizes("tensordot", x, i, y, j)
        right[j] = left[i]
    output = [s for d, s in enumerate(left) if d not in first]
    output += [s for d, s in enumerate(right) if d not in second]
    dims = f"{''.join(left)},{''.join(right)}->{''.join(output)}"
    return contract(x, y, dims, preferred_element_type, precision)


@public()
def kron(a: ArrayLike, b: ArrayLike) -> Tracer:
    """Return the Kronecker product: blocks of `b`, each multiplied by one element of `a`."""
    x, y = promote(a, b)
    rank = max(x.ndim, y.ndim)
    x, y = (reshape(v, (1,) * (rank - v.ndim) + v.shape) for v in (x, y))
    left, right = ascii_letters[:rank], ascii_letters[26 : 26 + rank]
    output = "".join(u + v for u, v in zip(left, right, strict=True))
    blocks = contract(x, y, f"{left},{right}->{output}", precision=Precision.HIGHEST)
    return reshape(blocks, [n * m for n, m in zip(x.shape, y.shape, strict=True)])
