"""Lowering rules of data movement and constants: views of tensors, which copy nothing.

Values that are written to get their own tensor; see `assign_variables` in `control`.
"""

from collections.abc import Sequence

import numpy as np

from shardir.backends.ipu.codegen.device_types import (
    NARROW_INTEGERS,
    element_of,
    initializer_text,
    literal_text,
    physical_type,
)
from shardir.backends.ipu.codegen.emitter import (
    ProgramEmitter,
    broadcast_view,
    reshape_view,
    shuffle_view,
)
from shardir.backends.ipu.lowering.fused_groups import iota_view
from shardir.backends.ipu.lowering.lowering_table import lowers
from shardir.ir.module import Op
from shardir.ir.operation import Dense
from shardir.ir.types import TensorType
from shardir.ops.random.threefry import split_words


def _shape(op: Op) -> tuple[int, ...]:
    return physical_type(op.operands[0].type).shape


@lowers("broadcast")
def _broadcast(e: ProgramEmitter, op: Op) -> None:
    x, y = op.operands[0], op.result
    if x in e.scalars:
        e.scalars[y] = e.scalars[x]
        return
    to = physical_type(y.type).shape
    words = (y.type.rank,) if len(to) > y.type.rank else ()
    view = broadcast_view(e.text(x), _shape(op), (*op.attrs["dims"], *words), to)
    e.define(y, view, x)


@lowers("reshape")
def _reshape(e: ProgramEmitter, op: Op) -> None:
    x = op.operands[0]
    if x in e.scalars:
        e.scalars[op.result] = e.scalars[x]
        return
    to = physical_type(op.result.type).shape
    e.define(op.result, reshape_view(e.text(x), _shape(op), to), x)


@lowers("transpose")
def _transpose(e: ProgramEmitter, op: Op) -> None:
    x, perm = op.operands[0], tuple(op.attrs["perm"])
    rest = range(x.type.rank, len(_shape(op)))
    e.define(op.result, shuffle_view(e.text(x), (*perm, *rest)), x)


@lowers("reverse")
def _reverse(e: ProgramEmitter, op: Op) -> None:
    x = op.operands[0]
    turned = "".join(f".reverse({dim})" for dim in op.attrs["dims"])
    e.define(op.result, f"{e.text(x)}{turned}", x)


@lowers("concatenate")
def _concatenate(e: ProgramEmitter, op: Op) -> None:
    """Bind the result to a view of all operands; its root is the first one."""
    parts = ", ".join(map(e.text, op.operands))
    e.define(op.result, f"poplar::concat({{{parts}}}, {op.attrs['dim']})", op.operands[0])
    if len(op.operands) > 1:
        e.multi_root_views.add(op.result)


@lowers("roll")
def _roll(e: ProgramEmitter, op: Op) -> None:
    x, dim, shift = op.operands[0], op.attrs["dim"], op.attrs["shift"]
    text, size = e.text(x), x.type.shape[dim]
    if not shift:
        e.define(op.result, text, x)
        return
    split = size - shift
    tail, head = f"{text}.slice({split}, {size}, {dim})", f"{text}.slice(0, {split}, {dim})"
    e.define(op.result, f"poplar::concat({{{tail}, {head}}}, {dim})", x)


def slice_view(
    text: str, shape: Sequence[int], starts: Sequence[int], strides: Sequence[int],
    sizes: Sequence[int],
) -> str:  # fmt: skip
    """Return the view of every `strides`-th element from `starts` on."""
    for dim, (have, start, stride, size) in enumerate(
        zip(shape, starts, strides, sizes, strict=True)
    ):
        end = start + (size - 1) * stride + 1 if size else start
        if (start, end) != (0, have):
            text += f".slice({start}, {end}, {dim})"
        if stride > 1 and size > 1:
            text += f".subSample({stride}, {dim})"
    return text


@lowers("slice")
def _slice(e: ProgramEmitter, op: Op) -> None:
    x, starts, strides = op.operands[0], op.attrs["starts"], op.attrs["strides"]
    sizes = op.result.type.shape
    view = slice_view(e.text(x), x.type.shape, starts, strides, sizes)
    e.define(op.result, view, x)


@lowers("pad")
def _pad(e: ProgramEmitter, op: Op) -> None:
    """Pad dimension by dimension: interior padding, then padding or cropping at both ends."""
    x, fill = op.operands
    text = e.text(x)
    numbers = zip(op.attrs["low"], op.attrs["high"], op.attrs["interior"], strict=True)
    for dim, (low, high, interior) in enumerate(numbers):
        if (low, high, interior) != (0, 0, 0):
            arguments = f"{text}, {e.text(fill)}, {dim}, {low}, {high}, {interior}"
            text = f"{e.use_helper('padded')}({arguments})"
    e.define(op.result, text, x)
    e.multi_root_views.add(op.result)


@lowers("constant")
def _constant(e: ProgramEmitter, op: Op) -> None:
    value, y = op.attrs["value"], op.result
    if isinstance(value, Dense):
        if not y.type.shape and y.type.dtype != "key":
            e.scalars[y] = value.array.item()
            return
        e.define(y, constant_text(e, value.array, y.type.dtype))
        return
    if y.type.dtype == "key":
        e.define(y, constant_text(e, np.full(y.type.shape, value, np.uint64), "key"))
        return
    assert op.spec.reference is not None
    scalar = np.asarray(op.spec.reference(value=value, result=y.type.with_shape(())))
    e.scalars[y] = scalar.item()


def constant_text(
    e: ProgramEmitter, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", dtype: str
) -> str:
    """Return the expression of a constant array."""
    type = TensorType(array.shape, dtype)
    held = element_of(type)
    if dtype == "key":
        array = np.stack(split_words(array), -1)
        dtype = "u32"
    if dtype in NARROW_INTEGERS:
        return f"popops::cast(graph, {constant_text(e, array, 'i32')}, {held.poplar}, {e.sequence})"
    shape = initializer_text(array.shape)
    if dtype == "f16":
        words = ", ".join(f"0x{int(word):04x}" for word in array.view(np.uint16).ravel())
        return f"{e.use_helper('half_constant')}(graph, {shape}, {{{words}}})"
    words = ", ".join(literal_text(number, dtype) for number in array.ravel().tolist())
    return f"{e.use_helper('constant')}<{held.cpp}>(graph, {held.poplar}, {shape}, {{{words}}})"


@lowers("iota")
def _iota(e: ProgramEmitter, op: Op) -> None:
    e.define(op.result, iota_view(e, op))


@lowers("bitcast")
def _bitcast(e: ProgramEmitter, op: Op) -> None:
    """Reinterpret elements of equal width; keys are already stored as two words."""
    x, y = op.operands[0], op.result
    if "key" in (x.type.dtype, y.type.dtype) or x.type == y.type:
        e.alias(y, e.text(x), x)
        return
    if element_of(x.type).bytes != element_of(y.type).bytes:
        raise e.refusal_error(
            op,
            f"reinterprets {x.type} as {y.type}, but Poplar requires types of equal width",
            "extract the parts with shifts and `and`, or join them with shifts and `or`",
        )
    e.define(y, f"{e.text(x)}.reinterpret({element_of(y.type).poplar})", x)


@lowers("optimization_barrier")
def _barrier(e: ProgramEmitter, op: Op) -> None:
    for x, y in zip(op.operands, op.results, strict=True):
        e.alias(y, e.text(x), x)


@lowers("sharding_group")
def _group(e: ProgramEmitter, op: Op) -> None:
    """Write nothing: the operation has no result."""


@lowers("done")
def _done(e: ProgramEmitter, op: Op) -> None:
    e.alias(op.result, e.text(op.operands[0]), op.operands[0])
