"""Reading of function bodies: names, blocks, calls and opaque operations."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from lark import Token

from shardir.errors import count_noun, suggest_name
from shardir.ir.builder import UniqueNames, substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Loc, Op, Value
from shardir.ir.operation import OPS, Attr
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.types import TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import READERS, SHARDING, OperationReader, UnsupportedOperation
from shardir.stablehlo.reading.lapack import is_lapack
from shardir.stablehlo.reading.opaque import emit_opaque
from shardir.stablehlo.reading.opaque_rules import SHARDING_RULE_ATTRIBUTE
from shardir.stablehlo.reading.unused import remove_unused

if TYPE_CHECKING:
    from shardir.stablehlo.reader import ModuleReader

MAX_INLINED_OPERATIONS = 200_000
"""The maximum number of operations that inlining may add to a function; bodies are read once per
call.
"""

RETURNS = ("return", "func.return", "stablehlo.return", "sdy.return")


class InlinedCall(NamedTuple):
    """An inlined call; `start` and `end` are the range of its operations in `readings`."""

    callee: str
    params: tuple[Value, ...]
    returns: tuple[Value, ...]
    start: int
    end: int


class FunctionReader:
    """Reads one function, including the functions that it calls."""

    def __init__(self, module: "ModuleReader", written: records.FunctionRecord) -> None:
        self.module, self.written = module, written
        self.source, self.types, self.shardings = module.source, module.types, module.shardings
        self.names = UniqueNames()
        self.used_names: set[str] = set()
        self.values: dict[str, Value] = {}
        self.name_hints: dict[str, str] = {}
        self.ops: list[Op] = []
        self.makers: dict[Value, Op] = {}
        self.removable: set[Op] = set()
        """Operations whose only users were removed; dropped if they have no other uses."""
        self.call_stack: list[str] = []
        self.manual: tuple[Mesh, Axes] | None = None
        """The mesh and axes of the enclosing manual computations."""
        self.current_block: records.BlockRecord | None = None
        """The block that is being read."""
        self.restated_params: dict[Value, Value] = {}
        """Block parameters whose sharding is stated inside the block."""
        self.num_inlined_operations = 0
        """The number of operations that were read for inlined calls."""
        self.inlined: list[InlinedCall] = []
        """The inlined calls; inner calls precede outer ones."""
        self.readings: list[tuple[records.OpRecord, tuple[Value, ...]]] = []
        """Every operation of the text in order, with the values that it became."""

    def read_function(self) -> Function:
        written = self.written
        assert written.body is not None
        self.call_stack.append(str(written.name))
        params = []
        for param in written.params:
            if param.name is None:
                raise self.source.fail("a function with a body names its parameters", param.type)
            type = self.types.type(param.type)
            params.append(self.define(param.name, type, self.sharding_of(param, type)))
        ops, returns = self.read_statements(written.body)
        types = [self.types.type(result.type) for result in written.results]
        if len(types) != len(returns):
            raise self.source.fail(
                f"{written.name} returns {count_noun(len(returns), 'value')}, "
                f"but states {count_noun(len(types), 'result')}",
                written.name,
            )
        for value, type, result in zip(returns, types, written.results, strict=True):
            if value.type != type:
                message = f"{written.name} returns %{value.name} of type {value.type}, not {type}"
                raise self.source.fail(message, result.type)
        shardings = tuple(
            self.sharding_of(result, type)
            for result, type in zip(written.results, types, strict=True)
        )
        body = Block(tuple(params), tuple(ops), tuple(returns))
        body = remove_unused(body, self.removable, self.makers)
        body = substitute(body, self.restated_params) if self.restated_params else body
        return Function(self.types.string(written.name), body, shardings)

    def sharding_of(self, param: records.ParamRecord, type: TensorType) -> Sharding | None:
        entries = param.attrs.entries if param.attrs else ()
        for entry in entries:
            if entry.key == SHARDING and isinstance(entry.value, Token):
                return self.shardings.sharding(entry.value, type)
        return None

    # Values

    def fresh(self, token: str) -> str:
        """Return a unique name for a value of the text: its own name if possible."""
        name_hint = self.name_hints.get(token, token[1:]).replace("#", ".")
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

    # Blocks

    def read_statements(self, block: records.BlockRecord) -> tuple[list[Op], list[Value]]:
        """Return the operations of a block and its returned values."""
        outer, self.ops = self.ops, []
        returns = self.inline_block(block)
        made, self.ops = self.ops, outer
        return made, returns

    def inline_block(self, block: records.BlockRecord) -> list[Value]:
        """Read the operations of a block into the current one; return its returned values."""
        outer, self.current_block = self.current_block, block
        try:
            return self._inline(block)
        finally:
            self.current_block = outer

    def is_read_by(self, names: Sequence[str], operation: str) -> bool:
        """Return whether an operation of the current block has one of these operands."""
        statements = self.current_block.statements if self.current_block else ()
        return any(
            isinstance(each, records.OpRecord)
            and each.name.strip('"') == operation
            and any(name in map(str, _tokens(each.parts)) for name in names)
            for each in statements
        )

    def _inline(self, block: records.BlockRecord) -> list[Value]:
        for number, statement in enumerate(block.statements):
            if not isinstance(statement, records.OpRecord):
                raise self.source.fail("a function may contain only operations", block.close)
            name = statement.name.strip('"')
            if name in RETURNS:
                if number + 1 < len(block.statements):
                    raise self.source.fail("a return must be the last operation", statement.name)
                return OperationReader(self, statement).operands
            self.read_op(statement)
        raise self.source.fail("a block ends with a return", block.close)

    def read_block(
        self, written: records.BlockRecord, params: list[tuple[Token, TensorType, Sharding | None]]
    ) -> Block:
        """Return a block of an operation; its values go out of scope at its end."""
        before = dict(self.values)
        values = tuple(self.define(*param) for param in params)
        ops, returns = self.read_statements(written)
        self.values = before
        block = Block(values, tuple(ops), tuple(returns))
        return substitute(block, self.restated_params) if self.restated_params else block

    def params_of(
        self, written: records.BlockRecord
    ) -> list[tuple[Token, TensorType, Sharding | None]]:
        """Return the parameters of a block's label."""
        return [(param.name, self.types.type(param.type), None) for param in written.params]

    # Operations

    def read_op(self, written: records.OpRecord) -> None:
        """Read an operation into the current block."""
        before, place = len(self.ops), len(self.readings)
        self.readings.append((written, ()))
        call = OperationReader(self, written)
        rule = READERS.get(call.name)
        call.check_operands()
        try:
            if rule is None:
                raise UnsupportedOperation("")
            if SHARDING_RULE_ATTRIBUTE in call.attrs and not is_lapack(call):
                raise UnsupportedOperation("it states a sharding rule")
            results = rule(call)
        except UnsupportedOperation as error:
            del self.ops[before:], self.readings[place + 1 :]
            results = emit_opaque(call, str(error))
        self.readings[place] = written, results
        if not written.results:
            return
        at = [r.name for r in written.results for _ in range(self.types.integer(r.number) if
                                                            r.number else 1)]  # fmt: skip
        for name, value, token in zip(call.names, results, at, strict=True):
            self.bind(name, value, token)

    def append(
        self,
        name: str,
        operands: tuple[Value, ...],
        results: tuple[Value, ...],
        attrs: Mapping[str, Attr],
        blocks: tuple[Block, ...],
        loc: Token | None,
    ) -> Op:
        place = self.module.resolve_location(loc)
        if place is None and name == "opaque":
            place = self.position_in_text()
        op = Op(OPS[name], operands, results, attrs, blocks, place)
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
                made = replace(
                    op,
                    operands=tuple(new.get(v, v) for v in op.operands),
                    results=tuple(new.get(v, v) for v in op.results),
                    blocks=tuple(substitute(block, dict(new)) for block in op.blocks),
                )
                self.ops[i] = made
                self.makers.update(dict.fromkeys(made.results, made))

    def constant_of(self, value: Value) -> Attr:
        """Return the number that all elements of a value equal, or `None` if it is unknown."""
        op = self.makers.get(value)
        while op is not None and op.name in ("broadcast", "data_flow_edge", "reshape"):
            op = self.makers.get(op.operands[0])
        if op is None or op.name != "constant":
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

    # Calls

    def inline_call(self, call: OperationReader, symbol: Token) -> tuple[Value, ...]:
        """Read the body of a function in place of a call."""
        callee = self.module.functions.get(self.types.string(symbol))
        if callee is None:
            hint = suggest_name(self.types.string(symbol), self.module.functions)
            message = f"no function is called {self.types.string(symbol)!r}"
            raise call.fail(f"{message}; {hint}" if hint else message, symbol)
        if callee.body is None:
            raise UnsupportedOperation(f"{callee.name} has no body")
        if str(callee.name) in self.call_stack:
            raise call.fail(f"{callee.name} calls itself, and calls are inlined", symbol)
        if len(callee.params) != len(call.operands):
            raise call.fail(
                f"{callee.name} takes {count_noun(len(callee.params), 'argument')}, "
                f"got {len(call.operands)}",
                symbol,
            )
        if len(self.call_stack) == 1:  # Nested calls are included in this count.
            self.num_inlined_operations += self.module.count_operations_of(callee)
        if self.num_inlined_operations > MAX_INLINED_OPERATIONS:
            raise call.fail(
                f"{self.written.name} would have more than {MAX_INLINED_OPERATIONS} operations "
                "from "
                "inlined calls; call fewer functions, or "
                "loop with stablehlo.while",
                symbol,
            )
        self.call_stack.append(str(callee.name))
        outer = self.values, self.name_hints
        self.values, self.name_hints = {}, self._result_name_hints(callee.body, call.names)
        types = [self.types.type(param.type) for param in callee.params]
        completed = self.complete_shardings(map(self.sharding_of, callee.params, types), types)
        for param, type, value, sharding in zip(
            callee.params, types, call.operands, completed, strict=True
        ):
            assert param.name is not None
            if type != value.type:
                raise call.fail(f"{callee.name} takes {type} here, not {value.type}", param.type)
            inner = self.cross_call_boundary(call, value, sharding, entering=True)
            self.bind(str(param.name), inner, param.name)
        params = tuple(self.values[str(param.name)] for param in callee.params)
        start = len(self.readings)
        returns = self.inline_block(callee.body)
        inlined = InlinedCall(
            self.types.string(symbol), params, tuple(returns), start, len(self.readings)
        )
        self.inlined.append(inlined)
        self.values, self.name_hints = outer
        self.call_stack.pop()
        if [value.type for value in returns] != call.results:
            raise call.fail(f"{callee.name} does not return what its call states", symbol)
        asked = [self.sharding_of(result, value.type)
                 for result, value in zip(callee.results, returns, strict=True)]  # fmt: skip
        given = (outer or inner for outer, inner in zip(call.shardings, asked, strict=True))
        stated: Sequence[Sharding | None] = call.shardings
        if None in stated:
            stated = self.complete_shardings(given, call.results)
        return tuple(
            self.cross_call_boundary(call, value, sharding, entering=False)
            for value, sharding in zip(returns, stated, strict=True)
        )

    def complete_shardings(
        self, stated: Iterable[Sharding | None], types: Sequence[TensorType]
    ) -> list[Sharding | None]:
        """Return the shardings of all operands or results of a call, completed as Shardy does.

        If one of them has a sharding, the others are open on its mesh; this differs from no
        sharding, because constraints do not move there. Maximal meshes do not count; without
        another sharding they are ignored.
        """
        completed = list(stated)
        meshes = (self.shardings.meshes[sharding.mesh] for sharding in completed if sharding)
        mesh = next((mesh.name for mesh in meshes if not mesh.is_maximal), None)
        if mesh is None:
            return [None] * len(completed)
        return [
            s or Sharding.open(mesh, type.rank) for s, type in zip(completed, types, strict=True)
        ]

    def cross_call_boundary(
        self, call: OperationReader, value: Value, sharding: Sharding | None, *, entering: bool
    ) -> Value:
        """Return the value on the other side of a function boundary, a data flow edge.

        Without a mesh no edge is needed.
        """
        if not self.shardings.meshes:
            return value
        made = Value(value.type, self.names.fresh(call.derive_name("edge")), sharding)
        attrs = {"entering": True} if entering else {}
        self.append("data_flow_edge", (value,), (made,), attrs, (), call.written.loc)
        return made

    def _result_name_hints(self, body: records.BlockRecord, names: list[str]) -> dict[str, str]:
        """Return name hints for the values that a function returns: the names of the call's
        results.
        """
        last = body.statements[-1] if body.statements else None
        if not isinstance(last, records.OpRecord):
            return {}
        returned = [str(p) for p in last.parts if isinstance(p, Token) and p.type == "VALUE"]
        outer = [self.name_hints.get(name, name[1:]) for name in names]
        return dict(zip(returned, outer, strict=False))


def _tokens(node: object) -> Iterator[Token]:
    if isinstance(node, Token):
        yield node
    elif isinstance(node, tuple | list):
        for part in node:
            yield from _tokens(part)
