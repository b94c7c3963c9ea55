"""Names, source locations and time spans of operations in a profile."""

from collections.abc import Sequence
from pathlib import Path

from shardir.backends.numpy.profiling import Activity, Span
from shardir.ir.module import Loc, Op

COLLECTIVE_PREFIXES = (
    "all-gather",
    "all-reduce",
    "all-to-all",
    "collective-permute",
    "reduce-scatter",
)
"""Prefixes of the `why` text of operations that implement collectives."""

MAX_FUSED_NAME_CHARACTERS = 40
"""Maximum length of the operation names of a fused group, in characters."""


def covered_nanoseconds(spans: Sequence[Span]) -> int:
    """Return the nanoseconds in which at least one span was active; spans are ordered by begin."""
    total = until = 0
    for span in spans:
        total += max(0, span.end - max(span.begin, until))
        until = max(until, span.end)
    return total


def activity_name(activity: Activity) -> str:
    """Return the display name of an activity."""
    op = activity.op
    if op is None:
        return activity.why
    result = f"%{op.results[0].name} = " if op.results and op.results[0].name else ""
    name = op.name
    if op.name == "fused" and not activity.why:
        inner = (each.name for each in op.blocks[0].ops if each.name != "constant")
        names = ", ".join(dict.fromkeys(inner))
        is_short = len(names) <= MAX_FUSED_NAME_CHARACTERS
        name = f"fused({names if is_short else names[: MAX_FUSED_NAME_CHARACTERS - 3] + '...'})"
    return result + name + (f" ({activity.why})" if activity.why else "")


def is_collective_activity(activity: Activity) -> bool:
    """Return whether the activity belongs, at least in part, to a collective."""
    op = activity.op
    return (op is not None and op.spec.collective) or activity.why.startswith(COLLECTIVE_PREFIXES)


def format_locations(op: Op | None) -> str:
    """Return the source locations of an operation as text, at most three."""
    locs = [] if op is None else _operation_locations(op)
    names = list(dict.fromkeys(f"{Path(loc.file).name}:{loc.line}" for loc in locs))
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _operation_locations(op: Op) -> list[Loc]:
    inner = [loc for block in op.blocks for each in block.ops for loc in _operation_locations(each)]
    return ([op.loc] if op.loc is not None else []) + inner
