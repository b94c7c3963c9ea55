"""Find bool arguments that a program only compares with 0, so that any nonzero byte can be true.

NumPy's bool arrays may hold such bytes, and such a program reads them without a copy.
Operations that move bytes or use them as integers need bytes that are 0 or 1.
"""

from collections.abc import Sequence

from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.kernels.elementwise.rules import RULES as LOOPS
from shardir.backends.cpu.kernels.selection.argminmax import RULES as EXTREMES
from shardir.backends.cpu.schedule.arena import BufferKind, PlannedBuffer
from shardir.backends.cpu.schedule.items import CopyItem, GatherElements, Item, Segment, WorkItem

NONZERO_TEST_OPS = frozenset((*LOOPS, *EXTREMES))
"""Operations whose kernels compare bool bytes with 0."""


def find_bool_arguments(items: Sequence[Item], buffers: Sequence[PlannedBuffer]) -> tuple[int, ...]:
    """Return the indices of bool arguments that only such operations read.

    Loops, branches and NumPy calls may read any byte, so that programs with them have none.
    """
    only_tested_by_slot: dict[int, bool] = {}
    for item in items:
        if not isinstance(item, Segment):
            return ()
        for cause in item.causes:
            for view in (cause.source,) if isinstance(cause, CopyItem) else cause.operands:
                only_tested_by_slot[view.slot] = only_tested_by_slot.get(
                    view.slot, True
                ) and _is_nonzero_test(cause, view)
    return tuple(
        buffers[slot].number
        for slot, only_tested in sorted(only_tested_by_slot.items())
        if only_tested and buffers[slot].kind is BufferKind.ARGUMENT
    )


def _is_nonzero_test(cause: WorkItem | GatherElements | CopyItem, view: BufferView) -> bool:
    return (
        isinstance(cause, WorkItem) and cause.op.name in NONZERO_TEST_OPS and view.dtype == "bool"
    )
