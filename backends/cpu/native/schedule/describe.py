"""Print schedules as text: phases, tasks, buffers and bytes."""

from collections.abc import Iterator, Sequence

from shardir.backends.cpu.native.data import View
from shardir.backends.cpu.native.schedule.items import (
    Branch,
    Host,
    Item,
    Loop,
    Segment,
    While,
)
from shardir.backends.cpu.native.schedule.memory import Kind, aligned
from shardir.backends.cpu.native.schedule.schedule import ARENA, Schedule
from shardir.errors import counted
from shardir.ir import Function

_WORDS = {
    Kind.ARGUMENT: "argument",
    Kind.RESULT: "result",
    Kind.CONSTANT: "constant",
    Kind.ARENA: "arena",
    Kind.MOVING: "rows of",
}


def describe(function: Function, schedule: Schedule) -> str:
    """Return the schedule of a function as text, one line for each phase."""
    lines = [f"schedule of @{function.name}", "", "memory"]
    held = sum(b.nbytes for b in schedule.buffers if b.kind is Kind.ARGUMENT)
    result_numbers = {number for kind, number in schedule.sources if kind is Kind.RESULT}
    written = sum(schedule.result_bytes[number] for number in result_numbers)
    lines += [
        f"  arguments {_bytes(held)}",
        f"  results {_bytes(written)}",
        f"  arena {_bytes(schedule.arena_bytes)}",
        "",
        "buffers",
        *_buffers(function, schedule),
        "",
        "phases",
        *_items(schedule.items, "  "),
    ]
    params, returns = function.body.params, function.body.returns
    for value, (kind, number) in zip(returns, schedule.sources, strict=True):
        if kind is Kind.ARGUMENT:
            lines.append(f"  %{value.name} shares the memory of %{params[number].name}")
        elif returns[number] is not value:
            lines.append(f"  %{value.name} shares the memory of %{returns[number].name}")
    return "\n".join(lines) + "\n"


def _buffers(function: Function, schedule: Schedule) -> Iterator[str]:
    made = {number for kind, number in schedule.sources if kind is Kind.RESULT}
    over = {result: function.body.params[number].name for number, result in schedule.offered}
    end = 0
    for buffer in schedule.buffers:
        if buffer.kind is Kind.RESULT and buffer.number not in made:
            continue
        if buffer.kind is Kind.ARENA and buffer.last < 0:
            continue  # Its operation was fused into another one.
        where = _WORDS[buffer.kind]
        if buffer.kind is Kind.ARENA:
            where += f" at {buffer.offset:,}, alive {buffer.first} to {buffer.last}"
            end = max(end, aligned(buffer.offset + buffer.nbytes))
        if buffer.kind is Kind.RESULT and buffer.number in over:
            where += f", over %{over[buffer.number]} if it is donated"
        yield f"  %{buffer.name}: {_bytes(buffer.nbytes)}, {where}"
    if end < schedule.arena_bytes:
        yield f"  temporaries of operations: {_bytes(schedule.arena_bytes - end)}, arena at {end:,}"


def _items(items: Sequence[Item], indent: str) -> Iterator[str]:
    for item in items:
        if isinstance(item, Segment):
            yield f"{indent}native call of {counted(len(item.phases), 'phase')}"
            for phase in item.phases:
                tasks = counted(phase.tasks, "task")
                yield f"{indent}  {phase.label or phase.kernel.name}: {tasks}, {_time(phase.cost)}"
        elif isinstance(item, Host):
            results = ", ".join(f"%{value.name}" for value in item.op.results)
            who = "messages" if item.op.spec.collective else "numpy"
            yield f"{indent}{who}: {results} = {item.op.name} {_places(item.results)}"
        elif isinstance(item, Loop):
            yield f"{indent}{item.length} iterations of scan"
            yield from _items(item.body, indent + "  ")
        elif isinstance(item, While):
            yield f"{indent}while"
            yield from _items(item.condition, indent + "  ")
            yield f"{indent}do"
            yield from _items(item.body, indent + "  ")
        elif isinstance(item, Branch):
            for number, branch in enumerate(item.branches):
                yield f"{indent}in case {number}"
                yield from _items(branch, indent + "  ")


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count:,} bytes"


def _places(views: Sequence[View]) -> str:
    return ", ".join(
        f"at {view.offset:,}" if view.slot == ARENA else f"in slot {view.slot}" for view in views
    )


def _time(nanoseconds: float) -> str:
    """Format an estimated time."""
    if nanoseconds < 1000:
        return f"about {nanoseconds:.0f} ns"
    if nanoseconds < 1e6:
        return f"about {nanoseconds / 1e3:.1f} us"
    return f"about {nanoseconds / 1e6:.2f} ms"
