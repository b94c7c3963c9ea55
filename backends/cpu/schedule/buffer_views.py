"""Views: operations that move no data, and the strides of their results.

An operation that only reorders elements is not copied: its result is the same memory with other
strides. `view_results` computes the views of its results; `operand_strides` goes the other way,
from the strides of a result to those that its operand needs.

Operations that update a part of their first operand do so in place if no other operation reads it.
Otherwise a loop that fills an array element by element would copy all of it in each iteration.
"""

from collections.abc import Sequence
from itertools import pairwise

from shardir import ops
from shardir.backends.cpu.kernel_api import BufferView
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType

VIEW_OPS = frozenset(
    {
        ops.broadcast,
        ops.transpose,
        ops.reshape,
        ops.slice_,
        ops.reverse,
        ops.bitcast,
        ops.stop_gradient,
        ops.sharding_constraint,
        ops.optimization_barrier,
        ops.propagation_barrier,
        ops.checkpoint_name,
    }
)
"""Operations whose results are views of their operands if strides permit."""


def is_view_op(op: Op) -> bool:
    """Return whether the result of an operation may be a view of its operand.

    A bool is a byte that is 0 or 1, as is its conversion to an 8-bit integer.
    """
    if op.spec is ops.convert:
        return op.operands[0].type.dtype == "bool" and op.results[0].type.dtype in ("i8", "u8")
    return op.spec in VIEW_OPS


def view_results(op: Op, views: Sequence[BufferView]) -> tuple[BufferView, ...] | None:
    """Return the results of an operation as views of its operands, `None` if that is impossible."""
    if not is_view_op(op):
        return None
    if op.spec is ops.optimization_barrier:
        return tuple(views)
    (view,), shape = views, op.results[0].type.shape
    if op.spec is ops.transpose:
        perm = op.attrs["perm"]
        return (view._replace(shape=shape, strides=tuple(view.strides[d] for d in perm)),)
    if op.spec is ops.reshape:
        strides = reshape_strides(view.shape, view.strides, shape)
        return None if strides is None else (view._replace(shape=shape, strides=strides),)
    if op.spec is ops.broadcast:
        strides_by_dim = [0] * len(shape)
        for source, dim in enumerate(op.attrs["dims"]):
            if view.shape[source] == shape[dim]:
                strides_by_dim[dim] = view.strides[source]
        return (view._replace(shape=shape, strides=tuple(strides_by_dim)),)
    if op.spec is ops.slice_:
        pairs = zip(op.attrs["starts"], view.strides, strict=True)
        offset = view.offset + sum(start * stride for start, stride in pairs)
        steps = zip(op.attrs["strides"], view.strides, strict=True)
        strides = tuple(step * stride for step, stride in steps)
        return (view._replace(offset=offset, shape=shape, strides=strides),)
    if op.spec is ops.convert:
        return (view._replace(dtype=op.results[0].type.dtype),)
    if op.spec is ops.bitcast:
        return _bitcast_view(view, op.results[0].type)
    if op.spec is ops.reverse:
        offset, turned = view.offset, list(view.strides)
        for dim in op.attrs["dims"]:
            offset += max(view.shape[dim] - 1, 0) * view.strides[dim]
            turned[dim] = -view.strides[dim]
        return (view._replace(offset=offset, strides=tuple(turned)),)
    return (view,)


def _bitcast_view(view: BufferView, type: TensorType) -> tuple[BufferView, ...] | None:
    """Reinterpret the bits of a view as elements of another type; parts of an element are
    adjacent."""
    old, new = view.itemsize, type.numpy.itemsize
    if old == new:
        return (view._replace(dtype=type.dtype),)
    if "key" in (view.dtype, type.dtype):
        return None  # The words of a key are stored in another order.
    strides: tuple[int, ...] = (*view.strides, new)
    if old < new:
        *outer, last = view.strides
        together = last == old and view.offset % new == 0
        if not together or any(stride % new for stride in outer):
            return None
        strides = tuple(outer)
    return (view._replace(shape=type.shape, strides=strides, dtype=type.dtype),)


def operand_strides(op: Op, strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the operand strides that give the result `strides`; `None` if there are none."""
    if not is_view_op(op) or len(op.operands) != 1:
        return None
    (x,), y = op.operands, op.results[0]
    if op.spec is ops.transpose:
        permuted = [0] * x.type.rank
        for dim, stride in zip(op.attrs["perm"], strides, strict=True):
            permuted[dim] = stride
        return tuple(permuted)
    if op.spec is ops.reshape:
        return reshape_strides(y.type.shape, strides, x.type.shape)
    if (
        op.spec is ops.bitcast
        and x.type.rank < y.type.rank
        and "key" not in (x.type.dtype, y.type.dtype)
    ):
        return strides[:-1] if strides[-1] == y.type.numpy.itemsize else None
    if op.spec is ops.reverse or x.type.shape != y.type.shape:
        return None
    return strides


def reshape_strides(
    shape: Sequence[int], strides: Sequence[int], to: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the strides with which memory of `shape` can be addressed as `to`; `None` needs a
    copy.

    Dimensions are grouped into runs of equal sizes on both sides. A run of the source must have a
    uniform stride, and is then split into the dimensions of the target.
    """
    if 0 in shape:
        return (0,) * len(to)
    source = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result = [0] * len(to)
    target = [d for d, n in enumerate(to) if n != 1]
    i = j = 0
    while i < len(source):
        first, start = i, j
        left, right = source[i][0], to[target[j]]
        while left != right:
            if left < right:
                i += 1
                left *= source[i][0]
            else:
                j += 1
                right *= to[target[j]]
        run = source[first : i + 1]
        if any(outer != size * inner for (_, outer), (size, inner) in pairwise(run)):
            return None
        step = source[i][1]
        for dim in reversed(target[start : j + 1]):
            result[dim] = step
            step *= to[dim]
        i, j = i + 1, j + 1
    return tuple(result)


def dimension_order(view: BufferView) -> tuple[int, ...]:
    """Return the dimensions of a view, outermost in memory first; broadcast dimensions are
    outermost."""
    return tuple(
        sorted(range(len(view.shape)), key=lambda d: (view.strides[d] != 0, -abs(view.strides[d])))
    )


def has_same_elements(first: BufferView, second: BufferView) -> bool:
    """Return whether two views address the same elements of the same memory in the same order."""
    return _normalize_strides(first) == _normalize_strides(second)


def _normalize_strides(view: BufferView) -> BufferView:
    """Return the view with strides of 0 in dimensions of size 1."""
    pairs = zip(view.shape, view.strides, strict=True)
    return view._replace(strides=tuple(0 if n == 1 else stride for n, stride in pairs))


def is_row_major(view: BufferView) -> bool:
    """Return whether the elements are contiguous in row-major order."""
    step = view.itemsize
    for size, stride in zip(reversed(view.shape), reversed(view.strides), strict=True):
        if size != 1 and stride != step:
            return 0 in view.shape
        step *= size
    return True


def written_results(op: Op) -> Sequence[int]:
    """Return the indices of the results that an operation writes; no operation reads the others.

    A sort with the attribute `order` writes the permutation only.
    """
    order = op.attrs.get("order") if op.spec is ops.sort else None
    return range(len(op.results)) if order is None else (order,)


IN_PLACE_OPS = frozenset({ops.dynamic_update_slice, ops.scatter})
"""Operations that keep most of their first operand, and can update it in place."""


def find_in_place_chain(block: Block, param: Value, last_value: Value) -> Sequence[Value] | None:
    """Return the values from `param` (exclusive) to `last_value` that can share one buffer.

    Each must be an in-place update of the one before, and no operation may read the earlier value
    or an alias of it after the update. Returns `None` otherwise.
    """
    makers = {result: op for op in block.ops for result in op.results}
    chain: list[Value] = []
    value = last_value
    while value is not param:
        op = makers.get(value)
        if op is None or op.spec not in IN_PLACE_OPS:
            return None
        chain.insert(0, value)
        value = op.operands[0]
    age = {param: 0} | {value: i + 1 for i, value in enumerate(chain)}
    written = 0
    for op in block.ops:
        used = [age[value] for value in op.uses() if value in age]
        if min(used, default=written) < written:
            return None
        if op.results and op.results[0] in chain:
            if any(value in age for value in op.operands[1:]):
                return None
            written += 1
        elif used and _may_alias(op):
            age.update((result, min(used)) for result in op.results)
    if any(value in age and value is not last_value for value in block.returns):
        return None
    return chain if list(block.returns).count(last_value) == 1 else None


def _may_alias(op: Op) -> bool:
    """Return whether results may alias operands: those of view operations and of control flow."""
    return is_view_op(op) or (bool(op.blocks) and not op.spec.is_loop_nest)
