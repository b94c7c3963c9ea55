"""Results that are written past the caches: there, they would push out all else.

Without that, a line of memory is read before it is written: a third of all that a copy moves.
"""

from collections.abc import Sequence

from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.loops.access import Place
from shardir.backends.cpu.native.loops.axes import Array, Axis
from shardir.backends.cpu.native.vector.registers import itemsize

STREAMING_BYTES = 32 << 20
"""Results from this size on are."""
LINE = 64
"""Bytes of a line of memory, which a vector that is streamed does not cross."""


def streams(
    arrays: Sequence[Array], written: Sequence[int], axes: Sequence[Axis], column: Axis, lanes: int
) -> bool:
    """Whether all results are large, and full vectors of them aligned wherever columns begin, if
    the buffer is (which a kernel looks at: an argument that is donated need not be)."""
    if column.extent % lanes or not written:
        return False
    for i in written:
        array = arrays[i]
        if array.view is None or array.view.nbytes < STREAMING_BYTES:
            return False
        size = min(lanes * array.step, LINE)
        ends = [array.view.offset, *(axis.strides[i] for axis in axes if axis is not column)]
        if column.strides[i] != array.step or any(end % size for end in ends):
            return False
    return True


def are_aligned(f: Function, places: Sequence[Place], lanes: int) -> Value:
    """Whether full vectors may be streamed to where results begin."""
    wrong = f.value(0, "i64")
    for place in places:
        size = min(lanes * itemsize(place.dtype), LINE)
        wrong = wrong | (place.address.to("i64", "ptrtoint") & (size - 1))
    return wrong.is_("eq", 0)
