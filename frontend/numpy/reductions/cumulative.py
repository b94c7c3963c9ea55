"""Cumulative sums and products, differences, gradients and integrals along an axis."""

from math import pi

from shardir.errors import count_noun
from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.numpy.elementwise.arithmetic import remainder
from shardir.frontend.numpy.reductions.basic_reductions import accumulation_dtype, emit_reduction
from shardir.frontend.numpy.tracer_helpers.axes import canonicalize_axes, canonicalize_axis
from shardir.frontend.numpy.tracer_helpers.axis_slices import (
    broadcast_in_dim,
    concatenate_parts,
    flatten,
    replace_dim_size,
    slice_dim,
)
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    check_no_out,
    common_kind,
    constant_like,
    emit_elementwise,
    emit_isnan,
    emit_select,
    inexact_kind,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, broadcast, convert, promote_to, splat
from shardir.frontend.tracing.promotion import canonical_dtype, dtype_of
from shardir.frontend.tracing.trace import emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.dtypes import SIGNED
from shardir.ir.types import FLOATS, INEXACT


def _define_cumulative(name: str, op: str, neutral: int, nans: bool, meaning: str) -> UserFunction:
    def function(
        a: ArrayLike, axis: AxisLike = None, dtype: DTypeLike | None = None, out: None = None
    ) -> Tracer:
        check_no_out(name, out)
        x = as_tracer(a)
        line = flatten(x) if axis is None else x
        if nans and line.value.type.dtype in INEXACT:
            line = emit_elementwise("select", emit_isnan(line), constant_like(line, neutral), line)
        return _emit_cumulative(op, line, 0 if axis is None else axis, dtype)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"Return the {meaning} up to each element along `axis` (without it, of the flattened "
        "array). "
        "Bools become integers."
    )
    return public(static=("axis", "dtype", "out"))(function)


def _emit_cumulative(op: str, x: Tracer, axis: AxisLike, dtype: DTypeLike | None) -> Tracer:
    if dtype is not None:
        x = convert(x, dtype_of(dtype))
        if x.value.type.dtype == "bool":  # Sums of bools are logical or, products logical and.
            op = {"cumsum": "cummax", "cumprod": "cummin"}[op]
    elif x.value.type.dtype == "bool":
        x = convert(x, canonical_dtype("i64"))
    dim = canonicalize_axis(axis, x.ndim)
    result: Tracer = emit(op, x, dim=dim, reverse=False, weak=False)
    return result


cumsum = _define_cumulative("cumsum", "cumsum", 0, False, "sum")
cumprod = _define_cumulative("cumprod", "cumprod", 1, False, "product")
nancumsum = _define_cumulative("nancumsum", "cumsum", 0, True, "sum of all but NaN")
nancumprod = _define_cumulative("nancumprod", "cumprod", 1, True, "product of all but NaN")


@public(static=("axis", "dtype", "include_initial"))
def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Tracer:
    """Return the sum up to each element along `axis`; `include_initial` prepends 0."""
    return _cumulative("cumulative_sum", "cumsum", 0, x, axis, dtype, include_initial)


@public(static=("axis", "dtype", "include_initial"))
def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: AxisLike = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Tracer:
    """Return the product up to each element along `axis`; `include_initial` prepends 1."""
    return _cumulative("cumulative_prod", "cumprod", 1, x, axis, dtype, include_initial)


def _cumulative(
    name: str,
    op: str,
    first: int,
    x: ArrayLike,
    axis: AxisLike,
    dtype: DTypeLike | None,
    include_initial: bool,
) -> Tracer:
    found = as_tracer(x)
    if axis is None and found.ndim != 1:
        raise ArgumentError(with_location(f"{name} of an array of rank {found.ndim} needs axis="))
    dim = 0 if axis is None else canonicalize_axis(axis, found.ndim)
    dtype_of_operand = found.value.type.dtype
    if dtype is not None:
        result_dtype = dtype_of(dtype)
    else:  # As in JAX, products of narrow integers keep their type.
        result_dtype = (
            accumulation_dtype(dtype_of_operand)
            if dtype_of_operand == "bool" or op == "cumsum"
            else dtype_of_operand
        )
    running = _emit_cumulative(op, convert(found, result_dtype), dim, dtype)
    if not include_initial:
        return running
    start = splat(first, running.value.type.with_shape(replace_dim_size(running.shape, dim, 1)))
    return concatenate_parts([start, running], dim)


@public(static=("n", "axis"))
def diff(
    a: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
) -> Tracer:
    """Return the difference of each element to the element before along `axis`, repeated `n` times.

    Of bools, return whether they differ. `prepend` and `append` are concatenated first.
    """
    x = as_tracer(a)
    times = check_integer("n of diff", n)
    if times < 0:
        raise ArgumentError(
            with_location(f"diff takes differences n={times} times; n must not be negative")
        )
    if not x.ndim:
        raise ShapeError(with_location("diff takes an array with an axis, got a scalar"))
    dim = canonicalize_axis(axis, x.ndim)
    ends = [None if end is None else as_tracer(end) for end in (prepend, append)]
    if times and ends != [None, None]:
        kind = common_kind(x, *(end for end in ends if end is not None))
        parts = [_as_end_part(part, x, dim) for part in (ends[0], x, ends[1]) if part is not None]
        x = concatenate_parts(promote_to(kind, *parts), dim)
    op = "ne" if x.value.type.dtype == "bool" else "sub"
    for _ in range(min(times, x.shape[dim])):  # After that many differences no element remains.
        size = x.shape[dim]
        x = emit_elementwise(
            op, slice_dim(x, dim, min(1, size), size), slice_dim(x, dim, 0, max(size - 1, 0))
        )
    return x


def _as_end_part(part: Tracer, x: Tracer, dim: int) -> Tracer:
    if part.ndim not in (0, x.ndim):
        raise ShapeError(
            with_location(
                f"diff prepends and appends numbers, or arrays of rank {x.ndim} to {x.value.type}, "
                f"got {part.value.type}"
            )
        )
    return part if part.ndim else broadcast(part, replace_dim_size(x.shape, dim, 1))


@public()
def ediff1d(
    ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Tracer:
    """Return the differences of consecutive elements of the flattened array.

    `to_begin` and `to_end` are added to the result.
    """
    x = flatten(as_tracer(ary))
    found = as_tracer(diff(x))
    parts = [found]
    if to_begin is not None:
        parts.insert(0, convert(flatten(as_tracer(to_begin)), found.value.type.dtype))
    if to_end is not None:
        parts.append(convert(flatten(as_tracer(to_end)), found.value.type.dtype))
    return concatenate_parts(parts, 0)


@public(static=("axis",))
def trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
) -> Tracer:
    """Integrate `y` along `axis` by the trapezoidal rule, at the points `x` or with step `dx`."""
    if x is None:
        (values,) = promote_to(inexact_kind(y), y)
        dim = canonicalize_axis(axis, values.ndim)
        steps = dx if is_number(dx) else as_tracer(dx)
    else:
        values, points = promote_to(inexact_kind(y, x), y, x)
        dim = canonicalize_axis(axis, values.ndim)
        points_axis = 0 if points.ndim == 1 else canonicalize_axis(axis, points.ndim)
        gaps = as_tracer(diff(points, axis=points_axis))
        if gaps.ndim == 1:
            gaps = broadcast_in_dim(
                gaps, replace_dim_size(values.shape, dim, gaps.shape[0]), (dim,)
            )
        steps = gaps
    size = values.shape[dim]
    pairs = emit_elementwise(
        "add", slice_dim(values, dim, min(1, size), size), slice_dim(values, dim, 0, size - 1)
    )
    return emit_reduction("sum", pairs * steps, (dim,), False) * 0.5


@public(static=("axis", "edge_order"))
def gradient(
    f: ArrayLike, *varargs: ArrayLike, axis: AxisLike = None, edge_order: int = 1
) -> PyTree:
    """Return the gradient along each axis: central differences, one-sided ones at the ends.

    `varargs` are the distances, or the coordinates: one for all axes or one per axis.
    """
    if edge_order != 1:
        raise ArgumentError(with_location(f"gradient supports only edge_order=1, got {edge_order}"))
    (x,) = promote_to(inexact_kind(f, *varargs), f)
    dims = canonicalize_axes(axis, x.ndim)
    gaps = list(varargs) if len(varargs) == len(dims) else list(varargs or (1.0,)) * len(dims)
    if len(gaps) != len(dims):
        raise ArgumentError(
            with_location(
                "gradient takes no spacing, one, or one for each of "
                f"{count_noun(len(dims), 'axis', 'axes')}, got {len(varargs)}"
            )
        )
    gradients = [_gradient_along(x, dim, gap) for dim, gap in zip(dims, gaps, strict=True)]
    return gradients[0] if len(gradients) == 1 else gradients


def _gradient_along(x: Tracer, dim: int, gap: ArrayLike) -> Tracer:
    size = x.shape[dim]
    if size < 2:
        raise ShapeError(
            with_location(f"gradient needs two elements along axis {dim}, got {x.shape}")
        )
    given = gap if is_number(gap) else as_tracer(gap)
    first = slice_dim(x, dim, 1, 2) - slice_dim(x, dim, 0, 1)
    last = slice_dim(x, dim, size - 1, size) - slice_dim(x, dim, size - 2, size - 1)
    if not isinstance(given, Tracer) or not given.ndim:
        inner = (slice_dim(x, dim, 2, size) - slice_dim(x, dim, 0, size - 2)) * 0.5
        even: Tracer = concatenate_parts([first, inner, last], dim) / given
        return even
    if given.shape != (size,):
        raise ShapeError(
            with_location(
                f"the coordinates of gradient have shape {given.shape}, and must be a vector of "
                f"{count_noun(size, 'element')}"
            )
        )
    (steps,) = promote_to((x.value.type.dtype, given.weak_type), as_tracer(diff(given)))

    def along(part: Tracer) -> Tracer:
        return broadcast_in_dim(part, replace_dim_size(x.shape, dim, part.shape[0]), (dim,))

    differences = slice_dim(x, dim, 1, size) - slice_dim(x, dim, 0, size - 1)
    quotients = differences / along(steps)
    before, after = slice_dim(steps, 0, 0, size - 2), slice_dim(steps, 0, 1, size - 1)
    both = before + after
    inner = slice_dim(quotients, dim, 0, size - 2) * along(after / both) + slice_dim(
        quotients, dim, 1, size - 1
    ) * along(before / both)
    return concatenate_parts(
        [slice_dim(quotients, dim, 0, 1), inner, slice_dim(quotients, dim, size - 2, size - 1)], dim
    )


@public(static=("axis",))
@strip_weak_types
def unwrap(
    p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1, period: ArrayLike = 2 * pi
) -> Tracer:
    """Add periods along `axis` so that consecutive angles differ by at most half a period.

    Signed integers remain integers if the period is an integer.
    """
    (x,) = promote_to(common_kind(p, period), p)
    if x.value.type.dtype not in (*FLOATS, *SIGNED):
        (x,) = promote_to(inexact_kind(x), x)
    dim = canonicalize_axis(axis, x.ndim)
    if x.shape[dim] < 2:
        return x
    steps = as_tracer(diff(x, axis=dim))
    turn: PyTree = period if is_number(period) else as_tracer(period)
    is_exact = x.value.type.dtype in SIGNED
    half = turn // 2 if is_exact else turn * 0.5
    wrapped_steps = remainder(steps + half, turn) - half
    # A step of half a period keeps its sign; a step of half an odd integer does not exist.
    is_half = emit_elementwise("and", wrapped_steps == -half, steps > 0)
    if is_exact:
        is_half = is_half & (turn % 2 == 0)
    wrapped_steps = emit_select(is_half, half, wrapped_steps)
    correction = wrapped_steps - steps
    limit = (turn - half if is_exact else half) if discont is None else as_tracer(discont)
    correction = emit_select(abs(steps) < limit, 0, correction)
    summed: Tracer = emit("cumsum", correction, dim=dim, reverse=False)
    return concatenate_parts(
        [slice_dim(x, dim, 0, 1), slice_dim(x, dim, 1, x.shape[dim]) + summed], dim
    )
