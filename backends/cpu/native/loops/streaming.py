"""Decide which results are stored past the caches."""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.native.llvm.hints import goes_past_caches
from shardir.backends.cpu.native.llvm.target import Machine
from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.loops.access import Place
from shardir.backends.cpu.native.loops.along import LINE
from shardir.backends.cpu.native.loops.axes import Array, Axis
from shardir.backends.cpu.native.loops.layout import Layout
from shardir.backends.cpu.native.loops.stages import Stages
from shardir.backends.cpu.native.vector.registers import itemsize


def streams(
    arrays: Sequence[Array], written: Sequence[int], axes: Sequence[Axis], column: Axis,
    lanes: int, machine: Machine,
) -> bool:  # fmt: skip
    """Return whether to stream results.

    This requires much traffic, and aligned full vectors at the start of all columns if the buffer
    is aligned, which the kernel checks: a donated argument may not be.
    """
    if column.extent % lanes or not written:
        return False
    others = [axis for axis in axes if axis is not column]
    for i in written:
        array = arrays[i]
        if array.view is None:
            return False
        size = min(lanes * array.step, LINE)
        ends = [array.view.offset, *(axis.strides[i] for axis in others)]
        if column.strides[i] != array.step or any(end % size for end in ends):
            return False
    every = [_moved(a, i, (*others, column)) for i, a in enumerate(arrays) if a.view is not None]
    results = sum(every[i] for i in written)
    return goes_past_caches(results, sum(every) - results, machine)


def layout_streams(layout: Layout, stages: Stages, machine: Machine) -> bool:
    """Return whether to stream the results along the vector axis of a reduction."""
    first = len(layout.arrays) - layout.counted - len(stages.body.results)
    along = [first + i for i in range(len(stages.body.results))]
    if layout.column.reduced:
        along = [i for i in along if layout.column.strides[i]]
    others = (*layout.kept, *layout.reduced)
    return streams(layout.arrays, along, others, layout.column, layout.lanes, machine)


def _moved(array: Array, number: int, axes: Sequence[Axis]) -> int:
    """Return the bytes of an array; repeated elements count once."""
    return array.step * prod(axis.extent for axis in axes if axis.strides[number])


def are_aligned(f: Function, places: Sequence[Place], lanes: int) -> Value:
    """Return whether all results begin at addresses where full vectors can be streamed."""
    wrong = f.value(0, "i64")
    for place in places:
        size = min(lanes * itemsize(place.dtype), LINE)
        wrong = wrong | (place.address.to("i64", "ptrtoint") & (size - 1))
    return wrong.is_("eq", 0)
