"""Which arguments are read as truth alone: memory whose every byte but 0 is true will do for them.

NumPy's arrays of bool are such memory, and so need no copy on the way into a program. What moves
bytes as they are, or sees them as numbers, needs bytes that are 0 or 1.
"""

from collections.abc import Sequence

from shardir.backends.cpu.native.data import View
from shardir.backends.cpu.native.loops.rules import RULES as LOOPS
from shardir.backends.cpu.native.moves.extremes import RULES as EXTREMES
from shardir.backends.cpu.native.schedule.items import Copy, Item, LookUp, Segment, Work
from shardir.backends.cpu.native.schedule.memory import Buffer, Kind

READERS = frozenset((*LOOPS, *EXTREMES))
"""Operations whose kernels compare bytes of truth with 0."""


def read_as_truth(items: Sequence[Item], buffers: Sequence[Buffer]) -> tuple[int, ...]:
    """The numbers of arguments that nothing but such operations reads, as bool.

    Loops, branches and what NumPy does may look at any byte.
    """
    seen: dict[int, bool] = {}
    for item in items:
        if not isinstance(item, Segment):
            return ()
        for cause in item.causes:
            for view in (cause.source,) if isinstance(cause, Copy) else cause.operands:
                seen[view.slot] = seen.get(view.slot, True) and _is_truth(cause, view)
    return tuple(
        buffers[slot].number
        for slot, alone in sorted(seen.items())
        if alone and buffers[slot].kind is Kind.ARGUMENT
    )


def _is_truth(cause: Work | LookUp | Copy, view: View) -> bool:
    return isinstance(cause, Work) and cause.op.name in READERS and view.dtype == "bool"
