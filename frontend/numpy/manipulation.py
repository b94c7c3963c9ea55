"""Other shapes for the same elements: reshaping, reordering, repeating, padding."""

import builtins
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from shardir.errors import OperationTypeError
from shardir.frontend.eager import public
from shardir.frontend.locations import point
from shardir.frontend.numpy.axes import axes_of, axis_of
from shardir.frontend.numpy.joining import concatenate
from shardir.frontend.operands import (
    as_tracer,
    broadcast,
    broadcast_shapes as broadcast_shapes,
    convert,
    reshape as _reshape,
)
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer

Ints = int | Sequence[int]


def _ints(values: Any) -> tuple[int, ...]:
    return (int(values),) if isinstance(values, (int, np.integer)) else tuple(map(int, values))


def _wanted(shape: Any, size: int) -> tuple[int, ...]:
    """The shape with its one -1 replaced by what is left of `size`."""
    sizes = list(_ints(shape))
    free = [i for i, n in enumerate(sizes) if n == -1]
    known = prod(n for n in sizes if n != -1)
    if len(free) == 1 and known and size % known == 0:
        sizes[free[0]] = size // known
    if prod(sizes) != size or min(sizes, default=0) < 0:
        raise OperationTypeError(
            point(f"an array of {size} elements cannot be reshaped to {tuple(_ints(shape))}")
        )
    return tuple(sizes)


@public(static=("shape", "order", "copy"))
def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """The elements of `a`, in row-major order (`order="F"`: column-major), in another shape."""
    x = as_tracer(a)
    sizes = _wanted(shape, x.size)
    if order == "F":
        return transpose(_reshape(transpose(x), sizes[::-1]))
    if order != "C":
        raise OperationTypeError(point(f"order {order!r} is unknown; it is 'C' or 'F'"))
    return _reshape(x, sizes)


@public(static=("order",))
def ravel(a: Any, order: str = "C") -> Any:
    """All elements in one dimension."""
    return reshape(a, (-1,), order)


@public(static=("axes",))
def transpose(a: Any, axes: Any = None) -> Any:
    """Dimensions in another order; reversed unless `axes` says which comes when."""
    x = as_tracer(a)
    perm = tuple(range(x.ndim))[::-1] if axes is None else axes_of(axes, x.ndim)
    if len(perm) != x.ndim:
        raise OperationTypeError(point(f"axes {axes} are not those of an array of rank {x.ndim}"))
    return _transpose(x, perm)


def _transpose(x: Tracer, perm: Sequence[int]) -> Tracer:
    if tuple(perm) == tuple(range(x.ndim)):
        return x
    moved: Tracer = emit("transpose", x, perm=tuple(perm), weak=x.weak_type)
    return moved


permute_dims = transpose


@public()
def matrix_transpose(x: Any, /) -> Any:
    """The last two dimensions exchanged."""
    tracer = as_tracer(x)
    if tracer.ndim < 2:
        raise OperationTypeError(
            point(f"a matrix transpose takes at least two dimensions, got shape {tracer.shape}")
        )
    return swapaxes(tracer, -1, -2)


@public(static=("axis1", "axis2"))
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two dimensions exchanged."""
    x = as_tracer(a)
    perm = list(range(x.ndim))
    first, second = axis_of(axis1, x.ndim), axis_of(axis2, x.ndim)
    perm[first], perm[second] = second, first
    return _transpose(x, perm)


@public(static=("source", "destination"))
def moveaxis(a: Any, source: Ints, destination: Ints) -> Any:
    """The dimensions `source` moved to `destination`, the others in order around them."""
    x = as_tracer(a)
    here, there = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    if len(here) != len(there):
        raise OperationTypeError(
            point(f"moveaxis takes as many sources as destinations, got {source} and {destination}")
        )
    perm = [d for d in range(x.ndim) if d not in here]
    for at, d in sorted(zip(there, here, strict=True)):
        perm.insert(at, d)
    return _transpose(x, perm)


@public(static=("axis", "start"))
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Dimension `axis` moved to before `start`."""
    x = as_tracer(a)
    axis = axis_of(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, start - 1 if start > axis else start)


@public(static=("axis",))
def expand_dims(a: Any, axis: Ints) -> Any:
    """New dimensions of size 1 at `axis` of the result."""
    x = as_tracer(a)
    rank = x.ndim + len(_ints(axis))
    new = axes_of(axis, rank)
    sizes = iter(x.shape)
    return _reshape(x, tuple(1 if d in new else next(sizes) for d in range(rank)))


@public(static=("axis",))
def squeeze(a: Any, axis: Any = None) -> Any:
    """Without the dimensions of size 1, or without those that `axis` names."""
    x = as_tracer(a)
    gone = [d for d, n in enumerate(x.shape) if n == 1] if axis is None else axes_of(axis, x.ndim)
    for d in gone:
        if x.shape[d] != 1:
            raise OperationTypeError(
                point(f"dimension {d} of shape {x.shape} cannot be squeezed: it is not of size 1")
            )
    return _reshape(x, tuple(n for d, n in enumerate(x.shape) if d not in gone))


@public(static=("shape",))
def broadcast_to(array: Any, shape: Any) -> Any:
    """`array` repeated to `shape` by NumPy's rules."""
    return broadcast(as_tracer(array), _ints(shape))


@public()
def broadcast_arrays(*args: Any) -> Any:
    """All arrays repeated to their common shape."""
    tracers = [as_tracer(x) for x in args]
    shape = broadcast_shapes(*(x.shape for x in tracers))
    return [broadcast(x, shape) for x in tracers]


@public(static=("axis",))
def flip(m: Any, axis: Any = None) -> Any:
    """Backwards along `axis`, or along all dimensions."""
    x = as_tracer(m)
    dims = tuple(range(x.ndim)) if axis is None else axes_of(axis, x.ndim)
    return emit("reverse", x, dims=dims, weak=x.weak_type) if dims else x


def fliplr(m: Any) -> Any:
    """Backwards along the second dimension."""
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Backwards along the first dimension."""
    return flip(m, 0)


@public(static=("k", "axes"))
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Turned by `k` quarters in the plane of `axes`, from the first towards the second."""
    x = as_tracer(m)
    first, second = axes_of(axes, x.ndim)
    match k % 4:
        case 0:
            return x
        case 1:
            return swapaxes(flip(x, second), first, second)
        case 2:
            return flip(x, (first, second))
        case _:
            return flip(swapaxes(x, first, second), second)


def _piece(x: Tracer, dim: int, start: int, stop: int) -> Tracer:
    """The elements from `start` up to `stop` along one dimension."""
    if (start, stop) == (0, x.shape[dim]):
        return x
    shape = list(x.shape)
    shape[dim] = builtins.max(stop - start, 0)
    starts = [0] * x.ndim
    starts[dim] = start
    result = x.value.type.with_shape(shape)
    cut: Tracer = emit(
        "slice",
        x,
        starts=tuple(starts),
        strides=(1,) * x.ndim,
        result=result,
        weak=x.weak_type,
    )
    return cut


@public(static=("axis", "shift"))
def roll(a: Any, shift: Ints, axis: Any = None) -> Any:
    """Elements moved by `shift` along `axis`, around the end; without `axis` in the flat array."""
    x = as_tracer(a)
    if axis is None:
        return _reshape(roll(ravel(x), shift, 0), x.shape)
    dims = axes_of(axis, x.ndim)
    shifts = _ints(shift)
    if len(shifts) == 1:
        shifts = shifts * len(dims)
    for dim, by in zip(dims, shifts, strict=True):
        size = x.shape[dim]
        if size and by % size:
            cut = size - by % size
            x = concatenate([_piece(x, dim, cut, size), _piece(x, dim, 0, cut)], dim)
    return x


@public(static=("reps",))
def tile(A: Any, reps: Any) -> Any:
    """`A` repeated as a whole, `reps` times along each dimension."""
    x = as_tracer(A)
    times = _ints(reps)
    rank = builtins.max(x.ndim, len(times))
    x = _reshape(x, (1,) * (rank - x.ndim) + x.shape)
    times = (1,) * (rank - len(times)) + times
    apart = [n for pair in zip((1,) * rank, x.shape, strict=True) for n in pair]
    grown = [n for pair in zip(times, x.shape, strict=True) for n in pair]
    whole = tuple(t * n for t, n in zip(times, x.shape, strict=True))
    return x if whole == x.shape else _reshape(broadcast(_reshape(x, apart), grown), whole)


@public(static=("axis", "total_repeat_length"))
def repeat(a: Any, repeats: Any, axis: Any = None, *, total_repeat_length: Any = None) -> Any:
    """Each element `repeats` times in a row along `axis` (without it, in the flat array).

    Counts that differ must be known while tracing, or `total_repeat_length` be given.
    """
    from shardir.frontend.numpy.indexing import take

    x = as_tracer(a)
    if axis is None:
        x, axis = ravel(x), 0
    dim = axis_of(axis, x.ndim)
    size = x.shape[dim]
    counts = _known_counts(repeats)
    if counts is None:
        if total_repeat_length is None:
            raise OperationTypeError(
                point("repeat with traced counts needs total_repeat_length=, the size it makes")
            )
        from shardir.frontend import numpy as snp

        ends = snp.cumsum(broadcast(as_tracer(repeats), (size,)))
        index = snp.searchsorted(ends, snp.arange(total_repeat_length), side="right")
        return take(x, snp.clip(index, 0, size - 1), axis=dim)
    if counts.ndim == 0 or counts.size == 1:
        count = int(counts.reshape(()))
        shape = (*x.shape[: dim + 1], 1, *x.shape[dim + 1 :])
        grown = (*x.shape[: dim + 1], count, *x.shape[dim + 1 :])
        whole = (*x.shape[:dim], size * count, *x.shape[dim + 1 :])
        made = _reshape(broadcast(_reshape(x, shape), grown), whole)
    else:
        if counts.shape != (size,):
            raise OperationTypeError(
                point(f"repeat takes {size} counts for this axis, got {counts.shape[0]}")
            )
        made = take(x, np.repeat(np.arange(size), counts), axis=dim)
    return made if total_repeat_length is None else _fitted(made, dim, int(total_repeat_length))


def _fitted(x: Tracer, dim: int, size: int) -> Tracer:
    """Cut, or lengthened by its last element, to `size` along one dimension."""
    have = x.shape[dim]
    if have >= size:
        return _piece(x, dim, 0, size)
    last = _piece(x, dim, have - 1, have)
    more = (*x.shape[:dim], size - have, *x.shape[dim + 1 :])
    return concatenate([x, broadcast(last, more)], dim)  # type: ignore[no-any-return]


def _known_counts(repeats: Any) -> Any:
    if isinstance(repeats, Tracer):
        constant = [op for op in repeats._trace.ops if op.results == (repeats.value,)]
        if constant and constant[0].name == "constant":
            value = constant[0].attrs["value"]
            return np.asarray(getattr(value, "array", value))
        return None
    return np.asarray(repeats)


def atleast_1d(*arys: Any) -> Any:
    """With at least one dimension."""
    return _at_least(arys, lambda x: _reshape(x, (1,) * (1 - x.ndim) + x.shape))


def atleast_2d(*arys: Any) -> Any:
    """With at least two dimensions, new ones in front."""
    return _at_least(arys, lambda x: _reshape(x, (1,) * (2 - x.ndim) + x.shape))


def atleast_3d(*arys: Any) -> Any:
    """With at least three dimensions; a matrix gets one behind, a vector one on each side."""

    def grown(x: Tracer) -> Tracer:
        match x.ndim:
            case 0:
                return _reshape(x, (1, 1, 1))
            case 1:
                return _reshape(x, (1, x.shape[0], 1))
            case 2:
                return _reshape(x, (*x.shape, 1))
            case _:
                return x

    return _at_least(arys, grown)


def _at_least(arrays: Sequence[Any], grow: Callable[[Tracer], Tracer]) -> Any:
    @public()
    def each(x: Any) -> Any:
        return grow(as_tracer(x))

    grown = [each(x) for x in arrays]
    return grown[0] if len(grown) == 1 else grown


@public(static=("pad_width", "mode", "stat_length", "reflect_type"))
def pad(
    array: Any,
    pad_width: Any,
    mode: str = "constant",
    *,
    constant_values: Any = 0,
    stat_length: Any = None,
    end_values: Any = 0,
    reflect_type: str = "even",
) -> Any:
    """`array` with borders: constant, edge, reflect, symmetric, wrap, linear_ramp, or a statistic
    (maximum, mean, minimum) of the whole line."""
    x = as_tracer(array)
    widths = _pairs(pad_width, x.ndim)
    if any(low < 0 or high < 0 for low, high in widths):
        raise OperationTypeError(point(f"pad widths cannot be negative, got {pad_width}"))
    if mode in ("constant", "empty"):
        values = constant_values if mode == "constant" else 0
        return _pad_constant(x, widths, values)
    if stat_length is not None or reflect_type != "even":
        raise OperationTypeError(point("pad knows stat_length=None and reflect_type='even' only"))
    if mode not in _BORDERS and mode != "linear_ramp":
        known = ", ".join(["constant", "empty", "linear_ramp", *_BORDERS])
        raise OperationTypeError(point(f"pad mode {mode!r} is unknown; the modes are {known}"))
    for dim, (low, high) in enumerate(widths):
        if low or high:
            if mode == "linear_ramp":
                x = _pad_ramp(x, dim, low, high, end_values)
            else:
                x = _BORDERS[mode](x, dim, low, high)
    return x


def _pairs(width: Any, rank: int) -> list[tuple[int, int]]:
    pairs = np.broadcast_to(np.asarray(width, dtype=np.int64), (rank, 2))
    return [(int(low), int(high)) for low, high in pairs]


def _pad_constant(x: Tracer, widths: list[tuple[int, int]], values: Any) -> Tracer:
    def padded(x: Tracer, value: Any, low: list[int], high: list[int]) -> Tracer:
        filler = convert(as_tracer(value), x.value.type.dtype)
        interior = (0,) * x.ndim
        made: Tracer = emit("pad", x, filler, low=tuple(low), high=tuple(high), interior=interior)
        return made

    if isinstance(values, Tracer) or np.ndim(values) == 0:
        low, high = [w[0] for w in widths], [w[1] for w in widths]
        return padded(x, values, low, high)
    each = np.broadcast_to(np.asarray(values), (x.ndim, 2))
    for dim, (before, after) in enumerate(widths):
        zeros = [0] * x.ndim
        x = padded(x, each[dim, 0].item(), [*zeros[:dim], before, *zeros[dim + 1 :]], zeros)
        x = padded(x, each[dim, 1].item(), zeros, [*zeros[:dim], after, *zeros[dim + 1 :]])
    return x


def _line(x: Tracer, dim: int, index: "np.ndarray[Any, Any]") -> Tracer:
    from shardir.frontend.numpy.indexing import take

    taken: Tracer = take(x, index.astype(np.int32), axis=dim)
    return taken


def _mapped(mode: str) -> Callable[[Tracer, int, int, int], Tracer]:
    """Borders that repeat elements of the line: NumPy knows which."""

    def border(x: Tracer, dim: int, low: int, high: int) -> Tracer:
        index = np.pad(np.arange(x.shape[dim]), (low, high), mode=mode)  # type: ignore[call-overload]
        return _line(x, dim, index)

    return border


def _edge(x: Tracer, dim: int, low: int, high: int) -> Tracer:
    size = x.shape[dim]

    def repeated(at: int, count: int) -> Tracer:
        shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
        return broadcast(_piece(x, dim, at, at + 1), shape)

    return concatenate([repeated(0, low), x, repeated(size - 1, high)], dim)  # type: ignore[no-any-return]


def _statistic(name: str) -> Callable[[Tracer, int, int, int], Tracer]:
    def border(x: Tracer, dim: int, low: int, high: int) -> Tracer:
        from shardir.frontend import numpy as snp

        value = getattr(snp, name)(x, axis=dim, keepdims=True)
        if name == "mean" and x.value.type.dtype[0] in "iu":
            value = snp.round(value)
        value = convert(value, x.value.type.dtype)
        before = broadcast(value, (*x.shape[:dim], low, *x.shape[dim + 1 :]))
        after = broadcast(value, (*x.shape[:dim], high, *x.shape[dim + 1 :]))
        return concatenate([before, x, after], dim)  # type: ignore[no-any-return]

    return border


def _pad_ramp(x: Tracer, dim: int, low: int, high: int, end_values: Any) -> Tracer:
    from shardir.frontend import numpy as snp

    ends = np.broadcast_to(np.asarray(end_values), (x.ndim, 2))[dim]
    size = x.shape[dim]
    sides = []
    for at, count, end in ((0, low, ends[0]), (size - 1, high, ends[1])):
        edge = _piece(x, dim, at, at + 1)
        steps = np.arange(count) / count if count else np.zeros(0)
        shape = (*(1,) * dim, count, *(1,) * (x.ndim - dim - 1))
        weights = steps if at == 0 else (1 - steps - 1 / builtins.max(count, 1))
        ramp = float(end) + (edge - float(end)) * snp.asarray(
            weights.reshape(shape).astype(np.float32)
        )
        sides.append(convert(ramp, x.value.type.dtype))
    return concatenate([sides[0], x, sides[1]], dim)  # type: ignore[no-any-return]


_BORDERS: dict[str, Callable[[Tracer, int, int, int], Tracer]] = {
    "edge": _edge,
    "reflect": _mapped("reflect"),
    "symmetric": _mapped("symmetric"),
    "wrap": _mapped("wrap"),
    "maximum": _statistic("max"),
    "mean": _statistic("mean"),
    "minimum": _statistic("min"),
}


@public(static=("obj", "axis"))
def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """Without the elements at `obj` (an index, several, or a slice, known while tracing)."""
    x = as_tracer(arr)
    if axis is None:
        x, axis = ravel(x), 0
    dim = axis_of(axis, x.ndim)
    index = list(obj) if isinstance(obj, tuple) else obj
    return _line(x, dim, np.delete(np.arange(x.shape[dim]), index))


@public(static=("axis",))
def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """`values` behind `arr` along `axis`; without it both are flat."""
    if axis is None:
        return concatenate([ravel(arr), ravel(values)], 0)
    return concatenate([arr, values], axis)


@public(static=("new_shape",))
def resize(a: Any, new_shape: Any) -> Any:
    """As many elements of the flat array as `new_shape` takes, from the start again if short."""
    x = ravel(as_tracer(a))
    shape = _ints(new_shape)
    size = prod(shape)
    if not x.size or not size:
        return broadcast(convert(as_tracer(0), x.value.type.dtype), shape)
    times = -(-size // x.size)
    return _reshape(_piece(tile(x, times), 0, 0, size), shape)
