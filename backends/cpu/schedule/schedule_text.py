"""Print schedules as text: phases, tasks, buffers and bytes."""

from collections.abc import Iterator, Sequence

from shardir.backends.cpu.kernel_api import BufferView
from shardir.backends.cpu.schedule.arena import BufferKind, align_up
from shardir.backends.cpu.schedule.items import (
    ARENA_SLOT,
    BranchItem,
    Item,
    NumPyCall,
    ScanItem,
    Schedule,
    Segment,
    WhileItem,
)
from shardir.errors import count_noun
from shardir.ir.module import Function

_KIND_NAMES = {
    BufferKind.ARGUMENT: "argument",
    BufferKind.RESULT: "result",
    BufferKind.CONSTANT: "constant",
    BufferKind.ARENA: "arena",
    BufferKind.MOVING: "rows of",
}


def describe_schedule(function: Function, schedule: Schedule) -> str:
    """Return the schedule of a function as text, one line for each phase."""
    lines = [f"schedule of @{function.name}", "", "memory"]
    held = sum(b.nbytes for b in schedule.buffers if b.kind is BufferKind.ARGUMENT)
    result_numbers = {number for kind, number in schedule.sources if kind is BufferKind.RESULT}
    written = sum(schedule.result_bytes[number] for number in result_numbers)
    lines += [
        f"  arguments {_format_bytes(held)}",
        f"  results {_format_bytes(written)}",
        f"  arena {_format_bytes(schedule.arena_bytes)}",
        "",
        "buffers",
        *_buffer_lines(function, schedule),
        "",
        "phases",
        *_item_lines(schedule.items, "  "),
    ]
    params, returns = function.body.params, function.body.returns
    for value, (kind, number) in zip(returns, schedule.sources, strict=True):
        if kind is BufferKind.ARGUMENT:
            lines.append(f"  %{value.name} shares the memory of %{params[number].name}")
        elif returns[number] is not value:
            lines.append(f"  %{value.name} shares the memory of %{returns[number].name}")
    return "\n".join(lines) + "\n"


def _buffer_lines(function: Function, schedule: Schedule) -> Iterator[str]:
    over: dict[int, list[str]] = {}
    for number, result in schedule.donation_pairs:
        over.setdefault(result, []).append(f"%{function.body.params[number].name}")
    end = 0
    for buffer in schedule.buffers:
        if buffer.last < 0:
            continue  # Its operation was fused into another one, or the result has other memory.
        where = _KIND_NAMES[buffer.kind]
        if buffer.kind is BufferKind.ARENA:
            where += f" at {buffer.offset:,}, alive {buffer.first} to {buffer.last}"
            end = max(end, align_up(buffer.offset + buffer.nbytes))
        if buffer.kind is BufferKind.RESULT and buffer.number in over:
            where += f", over {' or '.join(over[buffer.number])} if it is donated"
        yield f"  %{buffer.name}: {_format_bytes(buffer.nbytes)}, {where}"
    if end < schedule.arena_bytes:
        temporaries = _format_bytes(schedule.arena_bytes - end)
        yield f"  temporaries of operations: {temporaries}, arena at {end:,}"


def _item_lines(items: Sequence[Item], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, Segment):
            yield f"{indent}native call of {count_noun(len(item.phases), 'phase')}"
            for phase in item.phases:
                tasks = count_noun(phase.tasks, "task")
                name = phase.label or phase.kernel.name
                yield f"{indent}  {name}: {tasks}, {_format_time(phase.cost)}"
        elif isinstance(item, NumPyCall):
            results = ", ".join(f"%{value.name}" for value in item.op.results)
            who = "messages" if item.op.spec.collective else "numpy"
            yield f"{indent}{who}: {results} = {item.op.name} {_format_places(item.results)}"
        elif isinstance(item, ScanItem):
            yield f"{indent}{item.length} iterations of scan"
            yield from _item_lines(item.body, indent + "  ")
        elif isinstance(item, WhileItem):
            yield f"{indent}while"
            yield from _item_lines(item.condition, indent + "  ")
            yield f"{indent}do"
            yield from _item_lines(item.body, indent + "  ")
        elif isinstance(item, BranchItem):
            for number, branch in enumerate(item.branches):
                yield f"{indent}in case {number}"
                yield from _item_lines(branch, indent + "  ")


def _format_bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count:,} bytes"


def _format_places(views: Sequence[BufferView]) -> str:
    return ", ".join(
        f"at {view.offset:,}" if view.slot == ARENA_SLOT else f"in slot {view.slot}"
        for view in views
    )


def _format_time(nanoseconds: float) -> str:
    """Format an estimated time."""
    if nanoseconds < 1000:
        return f"about {nanoseconds:.0f} ns"
    if nanoseconds < 1e6:
        return f"about {nanoseconds / 1e3:.1f} us"
    return f"about {nanoseconds / 1e6:.2f} ms"
