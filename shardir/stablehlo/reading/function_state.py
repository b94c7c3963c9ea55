"""The state of reading a function: the values and operations of the block that is being read.

Rules of operations use it through `OperationReader.reader`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lark import Token

from shardir import ops
from shardir.errors import suggest_name
from shardir.ir.builder import UniqueNames, substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Loc, Op, Value
from shardir.ir.operation import OPS, Attr
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.types import TensorType
from shardir.ops.opaque import opaque
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.module_symbols import ModuleSymbols


class FunctionState(ABC):
    """The values, names and operations of a function that is being read."""

    def __init__(self, module: ModuleSymbols) -> None:
        self.module = module
        self.source, self.types, self.shardings = module.source, module.types, module.shardings
        self.names = UniqueNames()
        self.used_names: set[str] = set()
        self.values: dict[str, Value] = {}
        self.ops: list[Op] = []
        self.makers: dict[Value, Op] = {}
        self.function_params: frozenset[str] = frozenset()
        """The names of the parameters of the function, which are targets of no data flow edge."""
        self.passed_values: dict[Value, Value] = {}
        """The operand of each parameter of a call, and the returned value of each result."""
        self.removable: set[Op] = set()
        """Operations whose only users were removed; dropped if they have no other uses."""
        self.manual: tuple[Mesh, Axes] | None = None
        """The mesh and axes of the enclosing manual computations."""
        self.current_block: records.BlockRecord | None = None
        """The block that is being read."""
        self.restated_params: dict[Value, Value] = {}
        """Block parameters whose sharding is stated inside the block."""
        self.readings: list[tuple[records.OpRecord, tuple[Value, ...]]] = []
        """Every operation of the text in order, with the values that it became."""
        self.call_location: Loc | None = None
        """The location of the innermost call around the current operation that has one."""

    @abstractmethod
    def read_block(
        self, written: records.BlockRecord, params: list[tuple[Token, TensorType, Sharding | None]]
    ) -> Block:
        """Return a block of an operation; its values go out of scope at its end."""

    @abstractmethod
    def read_isolated_block(
        self,
        written: records.BlockRecord,
        params: list[tuple[Token, TensorType, Sharding | None]],
        operands: Sequence[Value],
    ) -> Block:
        """Return the block of a call, which uses no values of the blocks around it."""

    @abstractmethod
    def inline_block(self, block: records.BlockRecord) -> list[Value]:
        """Read the operations of a block into the current one; return its returned values."""

    def fresh(self, token: str) -> str:
        """Return a unique name for a value of the text: its own name if possible."""
        name_hint = token[1:].replace("#", ".")
        if name_hint[0].isdigit() and (name_hint in self.used_names or not name_hint.isdigit()):
            # `UniqueNames` ignores a taken numeric hint, and would assign another value's number.
            name_hint = f"v{name_hint}"
        name = self.names.fresh(name_hint)
        self.used_names.add(name)
        return name

    def define(self, token: Token, type: TensorType, sharding: Sharding | None = None) -> Value:
        value = Value(type, self.fresh(token), sharding)
        self.bind(str(token), value, token)
        return value

    def bind(self, name: str, value: Value, at: Token) -> None:
        if name in self.values:
            raise self.source.fail(f"{name} is defined twice", at)
        self.values[name] = value

    def use(self, token: Token) -> Value:
        name = str(token)
        value = self.values.get(name) or self.values.get(f"{name}#0")
        if value is None and name.endswith("#0"):
            value = self.values.get(name[:-2])
        if value is None:
            hint = suggest_name(name, self.values)
            message = f"{name} is not defined here"
            raise self.source.fail(f"{message}; {hint}" if hint else message, token)
        return value

    def is_read_by(self, names: Sequence[str], operation: str) -> bool:
        """Return whether an operation of the current block has one of these operands."""
        statements = self.current_block.statements if self.current_block else ()
        return any(
            isinstance(each, records.OpRecord)
            and each.name.strip('"') == operation
            and any(name in map(str, _tokens(each.parts)) for name in names)
            for each in statements
        )

    def params_of(
        self, written: records.BlockRecord
    ) -> list[tuple[Token, TensorType, Sharding | None]]:
        """Return the parameters of a block's label."""
        return [(param.name, self.types.type(param.type), None) for param in written.params]

    def append(
        self,
        name: str,
        operands: tuple[Value, ...],
        results: tuple[Value, ...],
        attrs: Mapping[str, Attr],
        blocks: tuple[Block, ...],
        loc: Token | None,
    ) -> Op:
        op_loc = self.module.resolve_location(loc) or self.call_location
        spec = OPS[name]
        if op_loc is None and spec is opaque:
            op_loc = self.position_in_text()
        op = Op(spec, operands, results, attrs, blocks, op_loc)
        self.ops.append(op)
        self.makers.update(dict.fromkeys(results, op))
        return op

    def position_in_text(self) -> Loc:
        """Return the position in the text of the current operation."""
        at = self.readings[-1][0].name.start_pos or 0
        before = self.source.text[:at]
        line = before.count("\n") + 1
        return Loc(self.source.file, line, at - before.rfind("\n"))

    def restate_sharding(self, value: Value, sharding: Sharding) -> Value:
        """Set the sharding of an existing value; return the new value."""
        new = replace(value, sharding=sharding)
        if value in self.makers:
            self.rename({value: new})
        else:
            self.restated_params[value] = new
        self.values = {name: new if v is value else v for name, v in self.values.items()}
        return new

    def rename(self, new: Mapping[Value, Value]) -> None:
        """Replace values in the operations of the current block."""
        for i, op in enumerate(self.ops):
            if any(value in new for value in (*op.results, *op.uses())):
                new_op = replace(
                    op,
                    operands=tuple(new.get(v, v) for v in op.operands),
                    results=tuple(new.get(v, v) for v in op.results),
                    blocks=tuple(substitute(block, dict(new)) for block in op.blocks),
                )
                self.ops[i] = new_op
                self.makers.update(dict.fromkeys(new_op.results, new_op))

    def append_call(
        self, callee: str, operands: Sequence[Value], body: Block, results: Sequence[Value],
        loc: Token | None,
    ) -> tuple[Value, ...]:  # fmt: skip
        """Append a call of a function; return its results."""
        self.append("call", tuple(operands), tuple(results), {"callee": callee}, (body,), loc)
        self.passed_values.update(zip(results, body.returns, strict=True))
        return tuple(results)

    def maker_of(self, value: Value) -> Op | None:
        """Return the operation that computes a value, possibly inside or outside of a call."""
        while value in self.passed_values:
            value = self.passed_values[value]
        return self.makers.get(value)

    def constant_of(self, value: Value) -> Attr:
        """Return the number that all elements of a value equal, or `None` if it is unknown."""
        op = self.maker_of(value)
        while op is not None and op.spec in (ops.broadcast, ops.reshape):
            op = self.maker_of(op.operands[0])
        if op is None or op.spec is not ops.constant:
            return None
        number = op.attrs["value"]
        if isinstance(number, bool | int | float | complex):
            return number
        flat = number.array.reshape(-1)
        return flat[0].item() if flat.size == 1 else None

    def mark_removable(self, *values: Value) -> None:
        """Mark the operations that define these values as removable if they have no other uses."""
        for value in values:
            op = self.makers.get(value)
            if op is not None:
                self.removable.add(op)
                self.mark_removable(*op.operands)


def _tokens(node: object) -> Iterator[Token]:
    if isinstance(node, Token):
        yield node
    elif isinstance(node, tuple | list):
        for part in node:
            yield from _tokens(part)
