"""The operations of a StableHLO program after our passes.

Our operations do not always correspond to StableHLO's: some become several, some none (a data flow
edge only annotates its operand). A function that is called is the block of its calls. Values keep
their names, so that result names identify an operation of the text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.op_rules.factors import FactorRule
from shardir.ops.control_flow.manual_computation import add_manual_axes
from shardir.passes.propagation.conservative_rules import conservative_rule
from shardir.stablehlo.reader import ModuleReader
from shardir.stablehlo.reading.call import SHARDING
from shardir.stablehlo.reading.function import FunctionCall
from shardir.stablehlo.reading.records import ParamRecord
from shardir.stablehlo.reading.syntax import MlirSource
from shardir.stablehlo.writing.rules import STABLEHLO_NAMES

OURS = {
    **{ours: f"stablehlo.{theirs}" for ours, theirs in STABLEHLO_NAMES.items()},
    **{
        name: f"stablehlo.{name}"
        for name in ("abs", "iota", "reshape", "sign", "slice", "transpose")
    },
    "constant": "sdy.constant",
    "broadcast": "stablehlo.broadcast_in_dim",
    "sharding_constraint": "sdy.sharding_constraint",
    "reshard": "sdy.reshard",
    "sharding_group": "sdy.sharding_group",
    "manual_computation": "sdy.manual_computation",
    "call": "func.call",
}
_NUMBERED = re.compile(r"(.*)_\d+")
_COPY = re.compile(r"(.*)\.\d+")


@dataclass
class Entry:
    """One operation. `reads` and `makes` are names of values."""

    operation: str
    reads: frozenset[str]
    makes: tuple[str, ...]
    shardings: tuple[Sharding | None, ...]
    ins: tuple[Sharding | None, ...]
    rule: FactorRule | None
    op: Op | None
    depth: int
    number: int = -1
    """Where in the text it is, if that is known."""


@dataclass
class Listing:
    """One function after the passes."""

    function: Function
    entries: list[Entry]
    params: tuple[Value, ...]

    def is_dead(self, entry: Entry) -> bool:
        """Return whether all results of an operation are unused, so that Shardy would have
        erased it.
        """
        if entry.op is None or entry.op.spec.effect:
            return False
        blocks = [self.function.body]
        for op in self.function.body.walk():
            blocks += op.blocks
        used = {v.name for block in blocks for v in block.returns}
        used.update(v.name for op in self.function.body.walk() for v in op.operands)
        return not used.intersection(entry.makes)


def with_conservative_rule(entry: Entry) -> Entry:
    """Return the entry with the rule of conservative propagation."""
    if entry.op is None or entry.rule is None:
        return entry
    return replace(entry, rule=conservative_rule(entry.op, entry.rule))


def read_part(part: str, file: str, *, whole: bool = False) -> tuple[Module, ModuleReader]:
    reader = ModuleReader(MlirSource(part, file), whole=whole)
    return reader.read_module(), reader


def list_function(module: Module, reader: ModuleReader, name: str) -> Listing | None:
    """Return the operations of a function under the names of the text; `None` if it does not
    exist any more.
    """
    function = next((f for f in module.functions if f.name == name), None)
    if function is None:
        return _find_called(module, reader, name)
    read = reader.functions_read.get(name)
    inner = [range(call.start, call.end) for call in (read.called if read else ())]
    entries = [
        entry
        for entry in _Lister(function, reader, name, module).entries()
        # A call inside of a called function is not a call of this function.
        if not ("call" in entry.operation and any(entry.number in each for each in inner))
    ]
    return Listing(function, entries, function.body.params)


def _find_called(module: Module, reader: ModuleReader, name: str) -> Listing | None:
    """Return a function that replaced its first call, or the part of it that is still present.

    `bar_0` is Shardy's name of the copy of @bar for a later call, and `bar_0_1` of a copy of it.
    """
    for host in module.functions:
        read = reader.functions_read.get(host.name)
        calls = [call for call in (read.called if read else ()) if call.callee == name]
        original = name
        while not calls and read and (copy := _NUMBERED.fullmatch(original)):
            original = copy[1]
            calls = [call for call in read.called if call.callee == original][::-1]
        for call in calls:
            lister = _Lister(host, reader, host.name, module)
            params = tuple(lister.values.get(value.name, value) for value in call.body.params)
            inside = _operations_of_call(host, call)
            entries = [
                entry
                for entry in lister.entries()
                if entry.op in inside or lister.is_between(entry, call.start, call.end)
            ]
            returns = [lister.values.get(value.name, value) for value in call.body.returns]
            outer = _results_of_call(host, call) or returns
            # A result for which the function states a sharding has that of the call's result.
            stated = (SHARDING in _keys(param) for param in reader.functions[original].results)
            results = tuple(
                result.sharding if is_stated else value.sharding
                for value, result, is_stated in zip(returns, outer, stated, strict=True)
            )
            return Listing(replace(host, result_shardings=results), entries, params)
    return None


def _mesh(op: Op, module: Module) -> str:
    """Return the first mesh with the manual axes of an operation."""
    names = {axis.name for axis in op.attrs["axes"]}
    return next((mesh.name for mesh in module.meshes if names <= set(mesh.sizes)), "")


def _keys(param: ParamRecord) -> list[str]:
    """Return the names of the attributes of a parameter or result."""
    return [str(entry.key) for entry in param.attrs.entries] if param.attrs else []


def _results_of_call(host: Function, call: FunctionCall) -> tuple[Value, ...]:
    """Return the results of a call after the passes; none if it was inlined."""
    names = {value.name for value in call.body.values()}
    return next(
        (op.results for op in host.body.walk()
         if op.name == "call" and not names.isdisjoint(v.name for v in op.blocks[0].values())),
        (),
    )  # fmt: skip


def _operations_of_call(host: Function, call: FunctionCall) -> frozenset[Op]:
    """Return the operations of a call after the passes, including those that a pass added."""
    names = {value.name for value in call.body.values()}
    return frozenset(
        inner
        for op in host.body.walk()
        if op.name == "call" and not names.isdisjoint(v.name for v in op.blocks[0].values())
        for inner in op.blocks[0].walk()
    )


class _Lister:
    def __init__(self, function: Function, reader: ModuleReader, name: str, module: Module) -> None:
        self.module = module
        self.function = function
        read = reader.functions_read.get(name)
        self.readings = read.readings if read else []
        self.names: dict[str, str] = {}
        """What the text calls the operation that makes a value."""
        self.aliases: dict[int, list[tuple[str, tuple[str, ...]]]] = {}
        self.made: dict[str, Op] = {}
        self.values = {v.name: v for v in _values(function.body)}
        self.number: dict[str, int] = {}
        self.callees: dict[str, str] = {}
        """The name of the operation in the text that calls each function."""
        made = {value.name for op, _ in _walk(function.body, 0) for value in op.results}
        for number, (written, values) in enumerate(self.readings):
            operation = written.name.strip('"')
            names = [value.name for value in values if value.name not in self.names]
            fresh = [name for name in names if name in made]
            if values and not fresh:
                self.aliases.setdefault(number, []).append(
                    (operation, tuple(value.name for value in values))
                )
            for value in fresh:
                self.names[value] = operation
                self.number[value] = number
        for op, _ in _walk(function.body, 0):
            if op.spec.name == "call" and op.results and op.results[0].name in self.names:
                self.callees[op.attrs["callee"]] = self.names[op.results[0].name]

    def is_between(self, entry: Entry, start: int, end: int) -> bool:
        """Return whether an operation is one of those of the text from `start` to `end`."""
        numbers = (self.number.get(name) for name in entry.makes)
        return any(number is not None and start <= number < end for number in numbers)

    def entries(self) -> list[Entry]:
        for op, _ in _walk(self.function.body, 0):
            self.made.update((value.name, op) for value in op.results)
        listed: list[Entry] = []
        done = -1
        for op, depth in _walk(self.function.body, 0):
            numbers = [self.number[v.name] for v in op.results if v.name in self.number]
            if numbers:
                listed += self.between(done, max(numbers), depth)
                done = max(done, *numbers)
            listed.append(self.entry(op, depth))
        return [*listed, *self.between(done, len(self.readings), 0)]

    def between(self, done: int, number: int, depth: int) -> list[Entry]:
        """Return the operations of the text from `done` to `number` that only renamed values."""
        found = []
        for i in range(done + 1, number + 1):
            for operation, names in self.aliases.get(i, ()):
                values = [self.values[name] for name in names if name in self.values]
                makes = tuple(value.name for value in values)
                found.append(
                    Entry(
                        operation,
                        frozenset(() if "call" in operation else makes),
                        makes,
                        tuple(value.sharding for value in values),
                        (),
                        None,
                        None,
                        depth,
                        i,
                    )
                )
        return found

    def entry(self, op: Op, depth: int) -> Entry:
        return Entry(
            self.operation(op),
            frozenset(self.sources(op, set())),
            tuple(value.name for value in op.results),
            _outside(op, self.module),
            _inside(op, self.module),
            op.factors(),
            op,
            depth,
            max((self.number.get(value.name, -1) for value in op.results), default=-1),
        )

    def operation(self, op: Op) -> str:
        """Return the name in the text of an operation, or of a copy of it."""
        if op.spec.name in ("sharding_constraint", "reshard", "sharding_group"):
            return OURS[op.spec.name]
        if op.spec.name == "opaque":
            return str(op.attrs["operation"]).partition(" ")[0]
        for value in op.results:
            name = value.name
            while name not in self.names and (copy := _COPY.fullmatch(name)):
                name = copy[1]
            if name in self.names:
                return self.names[name]
        if op.spec.name == "call":
            return self.callees.get(op.attrs["callee"], "func.call")
        return OURS.get(op.spec.name, op.spec.name)

    def sources(self, op: Op, seen: set[str]) -> Iterator[str]:
        """Return the values that an operation reads, through steps that the text does not have."""
        for value in op.operands:
            if value.name in seen:
                continue
            seen.add(value.name)
            yield value.name
            maker = self.made.get(value.name)
            if maker is not None and not any(v.name in self.names for v in maker.results):
                yield from self.sources(maker, seen)


def _inside(op: Op, module: Module) -> tuple[Sharding | None, ...]:
    """Return the shardings of the global tensors that a manual computation or a call receives."""
    if op.spec.name == "call":
        return tuple(param.sharding for param in op.blocks[0].params)
    if op.spec.name != "manual_computation":
        return ()
    mesh = _mesh(op, module)
    return tuple(
        add_manual_axes(param.sharding or Sharding.open(mesh, param.type.rank), cuts)
        for param, cuts in zip(op.blocks[0].params, op.attrs["in_axes"], strict=True)
    )


def _outside(op: Op, module: Module) -> tuple[Sharding | None, ...]:
    """Return the shardings of results; for a manual computation, the lower bound of their axes."""
    if op.spec.name != "manual_computation":
        return tuple(value.sharding for value in op.results)
    mesh = _mesh(op, module)
    return tuple(
        value.sharding or add_manual_axes(Sharding.open(mesh, value.type.rank), cuts)
        for value, cuts in zip(op.results, op.attrs["out_axes"], strict=True)
    )


def _walk(block: Block, depth: int) -> Iterator[tuple[Op, int]]:
    for op in block.ops:
        yield op, depth
        for inner in op.blocks:
            yield from _walk(inner, depth + 1)


def _values(block: Block) -> Iterator[Value]:
    yield from block.values()
    for op in block.walk():
        for inner in op.blocks:
            yield from inner.values()
