"""Reading of function bodies: names, blocks, calls and opaque operations.

`remove_unused` drops operations that the reader has made unused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from lark import Token

from shardir.errors import count_noun, suggest_name
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import (
    CALLEES,
    READERS,
    SHARDING,
    OperationReader,
    ReadingRule,
    UnsupportedOperation,
)
from shardir.stablehlo.reading.expansions.lapack import is_lapack
from shardir.stablehlo.reading.function_state import FunctionState
from shardir.stablehlo.reading.module_symbols import ModuleSymbols
from shardir.stablehlo.reading.opaque import emit_opaque
from shardir.stablehlo.reading.opaque_rules import SHARDING_RULE_ATTRIBUTE, check_stated_rule
from shardir.stablehlo.reading.propagation_edges import DebugReader

GSPMD_SHARDING = "mhlo.sharding"
_GSPMD_WITHOUT_AXES = ("", "{replicated}", "{maximal device=0}")
"""Shardings of GSPMD that state no axes."""


def remove_unused(body: Block, spare: set[Op], makers: Mapping[Value, Op]) -> Block:
    """Return the body without unused operations among `spare`."""
    here: set[Op] = set()
    uses: dict[Value, int] = {}
    for block in _blocks(body):
        here.update(spare.intersection(block.ops))
        for op in block.ops:
            for value in op.operands:
                uses[value] = uses.get(value, 0) + 1
        for value in block.returns:
            uses[value] = uses.get(value, 0) + 1
    dropped: set[Op] = set()
    waiting = [op for op in here if not any(uses.get(v) for v in op.results)]
    while waiting:
        op = waiting.pop()
        dropped.add(op)
        for value in op.operands:
            uses[value] -= 1
            maker = makers.get(value)
            if maker in here and not any(uses.get(v) for v in maker.results):
                waiting.append(maker)
    return _prune(body, dropped) if dropped else body


def _blocks(block: Block) -> list[Block]:
    inner = [each for op in block.ops for b in op.blocks for each in _blocks(b)]
    return [block, *inner]


def _prune(block: Block, dropped: set[Op]) -> Block:
    ops = []
    for op in block.ops:
        if op in dropped:
            continue
        blocks = tuple(_prune(inner, dropped) for inner in op.blocks)
        ops.append(op if not blocks else Op(op.spec, op.operands, op.results, op.attrs, blocks,
                                            op.loc, op.why))  # fmt: skip
    return Block(block.params, tuple(ops), block.returns)


MAX_CALLED_OPERATIONS = 200_000
"""The maximum number of operations in the bodies of the calls of a function; each call has its own
body."""

RETURNS = ("return", "func.return", "stablehlo.return", "sdy.return")


class FunctionCall(NamedTuple):
    """A call with its body; `start` and `end` are the range of its operations in
    `FunctionReader.readings`."""

    callee: str
    body: Block
    start: int
    end: int


class FunctionReader(FunctionState):
    """Reads one function, including the functions that it calls."""

    def __init__(
        self,
        module: ModuleSymbols,
        written: records.FunctionRecord,
        debug: DebugReader | None = None,
    ) -> None:
        super().__init__(module)
        self.written = written
        self.debug = debug
        self.call_stack: list[str] = []
        self.num_called_operations = 0
        """The number of operations that were read for calls."""
        self.called: list[FunctionCall] = []
        """The calls; inner calls precede outer ones."""

    def read_function(self) -> Function:
        written = self.written
        assert written.body is not None
        self.call_stack.append(self.types.string(written.name))
        params = []
        for param in written.params:
            if param.name is None:
                raise self.source.fail("a function with a body names its parameters", param.type)
            type = self.types.type(param.type)
            params.append(self.define(param.name, type, self.sharding_of(param, type)))
        self.function_params = frozenset(param.name for param in params)
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
        if self.debug is not None:
            name = self.types.string(written.name)
            for number, (param, value) in enumerate(zip(written.params, params, strict=True)):
                self.debug.read_param(name, number, param, value.sharding)
            for number, result in enumerate(written.results):
                self.debug.read_result(name, number, result, shardings[number])
        body = Block(tuple(params), tuple(ops), tuple(returns))
        body = remove_unused(body, self.removable, self.makers)
        body = substitute(body, self.restated_params) if self.restated_params else body
        return Function(self.types.string(written.name), body, shardings)

    def sharding_of(self, param: records.ParamRecord, type: TensorType) -> Sharding | None:
        stated: Sharding | None = None
        for entry in param.attrs.entries if param.attrs else ():
            key = self.types.string(entry.key)
            if key == SHARDING and isinstance(entry.value, Token):
                stated = self.shardings.sharding(entry.value, type)
            elif key == GSPMD_SHARDING:
                self.check_gspmd_sharding(entry.value, entry.key)
        return stated

    def check_gspmd_sharding(self, value: object, at: Token) -> None:
        """Raise `ParseError` for a sharding in the form of XLA's partitioner GSPMD."""
        if isinstance(value, Token) and self.types.string(value) in _GSPMD_WITHOUT_AXES:
            return
        raise self.source.fail(
            f"{GSPMD_SHARDING} is a sharding of GSPMD, and the reader reads those of Shardy "
            f'({SHARDING}); lower the program with jax.config.update("jax_use_shardy_partitioner", '
            "True), JAX's default",
            at,
        )

    def read_statements(self, block: records.BlockRecord) -> tuple[list[Op], list[Value]]:
        """Return the operations of a block and its returned values."""
        outer, self.ops = self.ops, []
        returns = self.inline_block(block)
        ops, self.ops = self.ops, outer
        return ops, returns

    def inline_block(self, block: records.BlockRecord) -> list[Value]:
        outer, self.current_block = self.current_block, block
        try:
            return self._inline(block)
        finally:
            self.current_block = outer

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
        before = dict(self.values)
        values = tuple(self.define(*param) for param in params)
        ops, returns = self.read_statements(written)
        self.values = before
        block = Block(values, tuple(ops), tuple(returns))
        return substitute(block, self.restated_params) if self.restated_params else block

    def read_isolated_block(
        self,
        written: records.BlockRecord,
        params: list[tuple[Token, TensorType, Sharding | None]],
        operands: Sequence[Value],
    ) -> Block:
        """Return the block of a call, which uses no values of the blocks around it."""
        outer, self.values = self.values, {}
        values = tuple(self.define(*param) for param in params)
        self.passed_values.update(zip(values, operands, strict=True))
        ops, returns = self.read_statements(written)
        self.values = outer
        block = Block(values, tuple(ops), tuple(returns))
        return substitute(block, self.restated_params) if self.restated_params else block

    def read_op(self, written: records.OpRecord) -> None:
        """Read an operation into the current block."""
        before, position = len(self.ops), len(self.readings)
        self.readings.append((written, ()))
        call = OperationReader(self, written)
        callee = CALLEES.get(call.name)
        rule = READERS.get(call.name) if callee is None else self._call_rule(callee)
        call.check_operands()
        check_stated_rule(call)
        if GSPMD_SHARDING in call.attrs:
            self.check_gspmd_sharding(call.attrs[GSPMD_SHARDING], call.at)
        operands = tuple(call.all_operands)
        try:
            if rule is None:
                raise UnsupportedOperation("")
            if SHARDING_RULE_ATTRIBUTE in call.attrs and not is_lapack(call):
                raise UnsupportedOperation("it states a sharding rule")
            results = rule(call)
        except UnsupportedOperation as error:
            del self.ops[before:], self.readings[position + 1 :]
            results = emit_opaque(call, str(error))
        self.readings[position] = written, results
        if self.debug is not None:
            name = self.types.string(self.written.name)
            self.debug.read_operation(call, name, operands, results, self.ops[before:])
        if not written.results:
            return
        at = [r.name for r in written.results for _ in range(self.types.integer(r.number) if
                                                            r.number else 1)]  # fmt: skip
        for name, value, token in zip(call.names, results, at, strict=True):
            self.bind(name, value, token)

    def _call_rule(self, callee: Callable[[OperationReader], Token]) -> ReadingRule:
        return lambda call: self.read_call(call, callee(call))

    def read_call(self, call: OperationReader, symbol: Token) -> tuple[Value, ...]:
        """Read a call with the body of the function as its block."""
        callee = self._find_callee(call, symbol)
        name = self.types.string(symbol)
        # The results are defined first, so that values of the body do not take their names.
        results = call.define(call.results, self._result_shardings(call, callee))
        self.call_stack.append(name)
        outer_location = self.call_location
        self.call_location = self.module.resolve_location(call.written.loc) or outer_location
        start = len(self.readings)
        body = self._read_callee(call, callee)
        self.call_location = outer_location
        self.call_stack.pop()
        self.called.append(FunctionCall(name, body, start, len(self.readings)))
        if [value.type for value in body.returns] != call.results:
            raise call.fail(f"{callee.name} does not return what its call states", symbol)
        return self.append_call(name, call.operands, body, results, call.written.loc)

    def _read_callee(self, call: OperationReader, callee: records.FunctionRecord) -> Block:
        """Return the body of a function for one of its calls."""
        assert callee.body is not None
        types = [self.types.type(param.type) for param in callee.params]
        completed = self.complete_shardings(map(self.sharding_of, callee.params, types), types)
        params = []
        for param, type, value, sharding in zip(
            callee.params, types, call.operands, completed, strict=True
        ):
            assert param.name is not None
            if type != value.type:
                raise call.fail(f"{callee.name} takes {type} here, not {value.type}", param.type)
            params.append((param.name, type, sharding))
        return self.read_isolated_block(callee.body, params, call.operands)

    def _find_callee(self, call: OperationReader, symbol: Token) -> records.FunctionRecord:
        """Return the function that a call names after checking that it can be called."""
        callee = self.module.functions.get(self.types.string(symbol))
        if callee is None:
            hint = suggest_name(self.types.string(symbol), self.module.functions)
            message = f"no function is called {self.types.string(symbol)!r}"
            raise call.fail(f"{message}; {hint}" if hint else message, symbol)
        if callee.body is None:
            raise UnsupportedOperation(f"{callee.name} has no body")
        if self.types.string(symbol) in self.call_stack:
            raise call.fail(self._explain_recursion(self.types.string(symbol)), symbol)
        if len(callee.params) != len(call.operands):
            raise call.fail(
                f"{callee.name} takes {count_noun(len(callee.params), 'argument')}, "
                f"got {len(call.operands)}",
                symbol,
            )
        if len(self.call_stack) == 1:  # Nested calls are included in this count.
            self.num_called_operations += self.module.count_operations_of(callee)
        if self.num_called_operations > MAX_CALLED_OPERATIONS:
            raise call.fail(
                f"{self.written.name} would have more than {MAX_CALLED_OPERATIONS} operations "
                "in called functions; call fewer functions, or loop with stablehlo.while",
                symbol,
            )
        return callee

    def _result_shardings(
        self, call: OperationReader, callee: records.FunctionRecord
    ) -> list[Sharding | None]:
        """Return the shardings of the results of a call: its own, or those of the callee."""
        of_callee = map(self.sharding_of, callee.results, call.results)
        merged = [outer or inner for outer, inner in zip(call.shardings, of_callee, strict=True)]
        if None not in call.shardings:
            return merged
        return self.complete_shardings(merged, call.results)

    def _explain_recursion(self, name: str) -> str:
        """Return the message for a function that calls itself, possibly through others."""
        through = self.call_stack[self.call_stack.index(name) + 1 :]
        path = f" through {', '.join(f'@{each}' for each in through)}" if through else ""
        return f"@{name} calls itself{path}; write the recursion as a loop, with stablehlo.while"

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
