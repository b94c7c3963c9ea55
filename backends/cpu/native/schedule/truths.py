"""Find arguments that are only tested for being nonzero: any nonzero byte will do for true.

NumPy's bool arrays may hold such bytes, and need no copy on their way into such a program.
Operations that move bytes or use them as integers need bytes that are 0 or 1.
"""

from collections.abc import Sequence

from shardir.backends.cpu.native.data import View
from shardir.backends.cpu.native.loops.rules import RULES as LOOPS
from shardir.backends.cpu.native.moves.extremes import RULES as EXTREMES
from shardir.backends.cpu.native.schedule.items import Copy, Item, LookUp, Segment, Work
from shardir.backends.cpu.native.schedule.memory import Buffer, Kind

READERS = frozenset((*LOOPS, *EXTREMES))
"""Operations whose kernels compare bool bytes with 0."""


def read_as_truth(items: Sequence[Item], buffers: Sequence[Buffer]) -> tuple[int, ...]:
    """Return the numbers of bool arguments that only such operations read.

    Loops, branches and NumPy calls may read any byte, so that programs with them have none.
    """
    only_tested_by_slot: dict[int, bool] = {}
    for item in items:
        if not isinstance(item, Segment):
            return ()
        for cause in item.causes:
            for view in (cause.source,) if isinstance(cause, Copy) else cause.operands:
                only_tested_by_slot[view.slot] = only_tested_by_slot.get(
                    view.slot, True
                ) and _is_truth(cause, view)
    return tuple(
        buffers[slot].number
        for slot, only_tested in sorted(only_tested_by_slot.items())
        if only_tested and buffers[slot].kind is Kind.ARGUMENT
    )


def _is_truth(cause: Work | LookUp | Copy, view: View) -> bool:
    return isinstance(cause, Work) and cause.op.name in READERS and view.dtype == "bool"
