"""Decide which results are stored past the caches."""

from collections.abc import Sequence
from math import prod

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.codegen.memory_hints import should_stream_stores
from shardir.backends.cpu.codegen.target import CACHE_LINE_BYTES, HostDescription
from shardir.backends.cpu.kernels.elementwise.loop_axes import LoopArray, LoopAxis
from shardir.backends.cpu.kernels.elementwise.reduction_layout import ReductionLayout
from shardir.backends.cpu.kernels.elementwise.reduction_passes import ReductionPasses
from shardir.backends.cpu.kernels.elementwise.vector_access import VectorPlace
from shardir.backends.cpu.kernels.math.registers import itemsize


def can_stream_results(
    arrays: Sequence[LoopArray], written: Sequence[int], axes: Sequence[LoopAxis], column: LoopAxis,
    lanes: int, machine: HostDescription,
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
        size = min(lanes * array.unit_stride, CACHE_LINE_BYTES)
        ends = [array.view.offset, *(axis.strides[i] for axis in others)]
        if column.strides[i] != array.unit_stride or any(end % size for end in ends):
            return False
    every = [
        _distinct_bytes(a, i, (*others, column)) for i, a in enumerate(arrays) if a.view is not None
    ]
    results = sum(every[i] for i in written)
    return should_stream_stores(results, sum(every) - results, machine)


def can_stream_layout(
    layout: ReductionLayout, stages: ReductionPasses, machine: HostDescription
) -> bool:
    """Return whether to stream the results along the vector axis of a reduction."""
    first = len(layout.arrays) - layout.counted - len(stages.body.results)
    along = [first + i for i in range(len(stages.body.results))]
    if layout.column.reduced:
        along = [i for i in along if layout.column.strides[i]]
    others = (*layout.parallel, *layout.reduced)
    return can_stream_results(layout.arrays, along, others, layout.column, layout.lanes, machine)


def _distinct_bytes(array: LoopArray, number: int, axes: Sequence[LoopAxis]) -> int:
    """Return the bytes of an array; repeated elements count once."""
    return array.unit_stride * prod(axis.extent for axis in axes if axis.strides[number])


def are_aligned(f: LLVMFunction, places: Sequence[VectorPlace], lanes: int) -> LLVMValue:
    """Return whether all results begin at addresses where full vectors can be streamed."""
    wrong = f.value(0, "i64")
    for place in places:
        size = min(lanes * itemsize(place.dtype), CACHE_LINE_BYTES)
        wrong = wrong | (place.address.to("i64", "ptrtoint") & (size - 1))
    return wrong.is_("eq", 0)
