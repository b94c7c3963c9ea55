"""The memory of a step at its peak, by kind and by source line.

Live ranges follow the order of the program. Reshapes and other views share the memory of their
operands, the carried values of a loop that of its results, and results that of donated arguments
of their type.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shardir import ops
from shardir.cost.memory import MemoryTimeline, block_timeline, used_by
from shardir.ir.location import SourceLocations, find_location
from shardir.ir.module import Block, Module, Op, Value
from shardir.passes.autodiff.phases import is_in_gradient
from shardir.passes.fusion.groups import is_free
from shardir.passes.simulation.argument_kinds import MemoryKind, kinds_of_arguments
from shardir.passes.simulation.host_calls import CallCosts, cost_of_call
from shardir.passes.simulation.work import VIEWS
from shardir.text.literals import format_name


@dataclass(frozen=True, slots=True)
class LineMemory:
    """The bytes that the values of one source line hold at the peak.

    `place` is the line, or the kind of arguments; `values` are the names of the values, the largest
    first.
    """

    place: str
    kind: MemoryKind
    nbytes: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The bytes at the peak on each device, in total, by kind, and by source line.

    `position` is the operation at the peak, as text; `alive` are the bytes while each operation of
    the body runs, in the order of the program.
    """

    peak: int
    by_kind: dict[MemoryKind, int]
    by_line: tuple[LineMemory, ...]
    position: str
    alive: dict[Op, int] = field(compare=False)


def memory_use(
    module: Module,
    donated: Sequence[int] = (),
    places: SourceLocations | None = None,
    calls: CallCosts | None = None,
) -> MemoryUse:
    """Return the memory of a per-device program, whose arguments `donated` results may reuse."""
    return _MemoryCounter(module, donated, places, calls or {}).count()


def share_memory(body: Block, donated: Sequence[int] = ()) -> dict[Value, Value]:
    """Return, for the values of a body that have no memory of their own, the value whose memory
    they share: views share that of their operands, carried values that of results, and results that
    of a donated argument of their type, one for each."""
    storage: dict[Value, Value] = {}
    _share_views(body, storage)
    roots = dict.fromkeys(storage.get(value, value) for value in body.returns)
    # An argument that is a result keeps its memory.
    free = [x for x in (body.params[number] for number in donated) if x not in roots]
    arguments = set(body.params)
    reused: dict[Value, Value] = {}
    for root in roots:
        if root in arguments:
            continue
        argument = next((x for x in free if x.type == root.type), None)
        if argument is not None:
            free.remove(argument)
            reused[root] = argument
    storage.update({v: reused[root] for v, root in storage.items() if root in reused})
    storage.update(reused)
    return storage


def _share_views(block: Block, storage: dict[Value, Value]) -> None:
    for op in block.ops:
        if op.spec in VIEWS:
            for operand, result in zip(op.operands, op.results, strict=True):
                storage[result] = storage.get(operand, operand)
        if op.spec in (ops.scan, ops.while_):
            count = op.attrs.get("carries", len(op.results))
            for inner in op.blocks:
                storage.update(zip(inner.params[:count], op.results, strict=False))
        if not op.spec.is_loop_nest:
            for inner in op.blocks:
                _share_views(inner, storage)


class _MemoryCounter:
    def __init__(
        self,
        module: Module,
        donated: Sequence[int],
        places: SourceLocations | None,
        calls: CallCosts,
    ) -> None:
        self.function, self.places = module.main, places
        body = module.main.body
        found = ((op, cost_of_call(op, calls)) for op in body.ops)
        self.calls = {op: cost for op, cost in found if cost is not None}
        self.storage = share_memory(body, donated)
        self.kinds = kinds_of_arguments(module.main)
        self.kinds.update(dict.fromkeys(self._activations(body), MemoryKind.ACTIVATIONS))
        results = (self.storage.get(value, value) for value in body.returns)
        self.kinds.update({x: MemoryKind.RESULTS for x in results if x not in self.kinds})

    def _activations(self, block: Block) -> Iterator[Value]:
        """Yield the activations of a block and of its blocks: values of the forward computation
        that the gradient uses."""
        in_gradient: set[Value] = set()
        forward: set[Value] = set()
        for op in block.ops:
            if not op.spec.is_loop_nest:
                for inner in op.blocks:
                    yield from self._activations(inner)
            uses = {self.storage.get(value, value) for value in used_by(op)}
            if _belongs_to_gradient(op) or not in_gradient.isdisjoint(uses):
                in_gradient.update(op.results)
                yield from uses & forward
            else:
                forward.update(op.results)

    def count(self) -> MemoryUse:
        body = self.function.body
        arguments = sum(value.type.nbytes for value in body.params)
        inside = {op: sum(cost.memory.values()) for op, cost in self.calls.items()}
        timeline = block_timeline(body, self.storage, inside)
        rows = [
            *((value.type.nbytes, self.kinds[value], self.kinds[value].value, value.name)
              for value in body.params),
            *self._rows(body, timeline),
        ]  # fmt: skip
        by_kind: Counter[MemoryKind] = Counter()
        lines: dict[tuple[str, MemoryKind], list[tuple[int, str]]] = {}
        for nbytes, kind, place, name in rows:
            by_kind[kind] += nbytes
            lines.setdefault((place, kind), []).append((nbytes, f"%{format_name(name)}"))
        by_line = [
            LineMemory(
                place,
                kind,
                sum(nbytes for nbytes, _ in values),
                tuple(name for _, name in sorted(values, key=lambda each: -each[0])),
            )
            for (place, kind), values in lines.items()
        ]
        peak = arguments + max(timeline.alive, default=0)
        return MemoryUse(
            peak,
            {kind: by_kind[kind] for kind in MemoryKind if by_kind[kind]},
            tuple(sorted((row for row in by_line if row.nbytes), key=lambda row: -row.nbytes)),
            self._describe(body.ops[timeline.position]) if body.ops else "",
            {op: arguments + n for op, n in zip(body.ops, timeline.alive, strict=True)},
        )

    def _rows(
        self, block: Block, timeline: MemoryTimeline
    ) -> Iterator[tuple[int, MemoryKind, str, str]]:
        """Yield bytes, kind, line and name of the values that a block holds at its peak."""
        if not block.ops:
            return
        makers = {value: op for op in block.ops for value in op.results}
        for value in timeline.values:
            kind = self.kinds.get(value, MemoryKind.TEMPORARIES)
            yield value.type.nbytes, kind, self._line(makers[value]), value.name
        op = block.ops[timeline.position]
        if op in self.calls:
            for kind, nbytes in self.calls[op].memory.items():
                yield nbytes, kind, self._line(op), op.results[0].name
        if op.blocks and not op.spec.is_loop_nest:
            inner, found = max(
                ((each, block_timeline(each, self.storage)) for each in op.blocks),
                key=lambda each: each[1].arguments + max(each[1].alive, default=0),
            )
            for param in inner.params:
                if param not in self.storage:
                    yield param.type.nbytes, MemoryKind.TEMPORARIES, self._line(op), param.name
            yield from self._rows(inner, found)

    def _line(self, op: Op) -> str:
        loc = op.loc
        names: Iterable[Value] = op.results
        for value in names:
            if loc is None:
                loc = find_location(self.function.name, f"%{format_name(value.name)}", self.places)
        return "" if loc is None else f"{loc.file}:{loc.line}"

    def _describe(self, op: Op) -> str:
        results = ", ".join(f"%{format_name(value.name)}" for value in op.results[:2])
        line = self._line(op)
        made = f"{results} = {op.name}" if results else op.name
        return f"{made}, {line}" if line else made


def _belongs_to_gradient(op: Op) -> bool:
    """Return whether an operation computes a gradient. A fused operation does if all operations
    that cost something do: the forward computation may include masks for the gradient.
    """
    if op.spec.is_loop_nest:
        return all(is_in_gradient(inner) or is_free(inner) for inner in op.blocks[0].ops)
    return is_in_gradient(op)
