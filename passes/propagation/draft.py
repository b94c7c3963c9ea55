"""Mutable draft of a function during the preparation of propagation.

The IR is frozen, and two preparation steps rewire it (`split_constants`, `apply_constraints`). A
draft holds the function and the differences so far; `build` creates the new function once, at the
end.

Uses are kept in the order in which they were created: those inside the blocks of an operation
before those by the operation itself, a rewired use after all others. The worklist visits the most
recent first, as MLIR does, and this order is visible where axes conflict.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

from shardir import ops as specs
from shardir.ir.builder import UniqueNames
from shardir.ir.module import Block, DataFlowEdge, Function, Loc, Op, Value
from shardir.ir.sharding import Sharding

ValueUser = Op | Block
"""A user of a value: an operation, or a block that returns it."""
OperandUse = tuple[ValueUser, int]
"""A user, and the index of the operand or returned value."""


class FunctionDraft:
    def __init__(self, function: Function) -> None:
        self.function = function
        self.uses: dict[Value, list[OperandUse]] = {}
        self.moved_behind: dict[Value, list[Op]] = {}
        """Operations that were moved directly behind the edge that a value owns."""
        self._ops: dict[Block, list[Op]] = {}
        self._inputs: dict[ValueUser, list[Value]] = {}
        self.new_whys: dict[Op, str] = {}
        """New texts of `why` of operations."""
        self._names: UniqueNames | None = None
        self._add_uses(function.body)

    def _add_uses(self, block: Block) -> None:
        uses = self.uses
        for op in block.ops:
            for inner in op.blocks:
                self._add_uses(inner)
            for i, value in enumerate(op.operands):
                uses.setdefault(value, []).append((op, i))
        for i, value in enumerate(block.returns):
            uses.setdefault(value, []).append((block, i))

    def uses_of(self, value: Value) -> list[OperandUse]:
        return self.uses.get(value, [])

    def ops(self, block: Block) -> list[Op] | tuple[Op, ...]:
        """Return the current operations of a block."""
        return self._ops.get(block, block.ops)

    def inputs(self, user: ValueUser) -> list[Value] | tuple[Value, ...]:
        """Return the current operands of an operation, or returned values of a block."""
        changed = self._inputs.get(user)
        if changed is not None:
            return changed
        return user.operands if isinstance(user, Op) else user.returns

    def walk(self) -> Iterator[Op]:
        """Yield every operation, each before those of its own blocks."""
        return self._walk_block(self.function.body)

    def _walk_block(self, block: Block) -> Iterator[Op]:
        for op in self.ops(block):
            yield op
            for inner in op.blocks:
                yield from self._walk_block(inner)

    def values(self) -> Iterator[Value]:
        """Yield every current value: parameters and results."""
        yield from self.function.body.params
        for op in self.walk():
            yield from op.results
            for inner in op.blocks:
                yield from inner.params

    def edges(self, op: Op) -> tuple[DataFlowEdge, ...]:
        """Return the edges of an operation between current values."""
        if op.spec is specs.manual_computation:
            (body,) = op.blocks
            into = zip(self.inputs(op), body.params, strict=True)
            out = zip(self.inputs(body), op.results, strict=True)
            return tuple(DataFlowEdge((source,), (target,)) for source, target in (*into, *out))
        if op.spec.edges is None:
            return ()
        blocks = tuple(Block(b.params, (), tuple(self.inputs(b))) for b in op.blocks)
        now = Op(op.spec, tuple(self.inputs(op)), op.results, op.attrs, blocks)
        return now.edges()

    @cached_property
    def makers(self) -> dict[Value, Op]:
        """The operation that defines each value; parameters have none."""
        return {value: op for op in self.walk() for value in op.results}

    @cached_property
    def homes(self) -> dict[Op, Block]:
        """The block that contains each operation."""
        homes: dict[Op, Block] = {}

        def enter(block: Block) -> None:
            for op in self.ops(block):
                homes[op] = block
                for inner in op.blocks:
                    enter(inner)

        enter(self.function.body)
        return homes

    def rewire(self, use: OperandUse, value: Value) -> None:
        """Make one user use `value` instead of its former operand."""
        user, i = use
        inputs = self._inputs.setdefault(user, list(self.inputs(user)))
        self.uses[inputs[i]].remove(use)
        inputs[i] = value
        self.uses.setdefault(value, []).append(use)

    def block_of(self, param: Value) -> Block:
        """Return the block that has `param` as a parameter."""

        def find(block: Block) -> Iterator[Block]:
            if param in block.params:
                yield block
            for op in self.ops(block):
                for inner in op.blocks:
                    yield from find(inner)

        return next(find(self.function.body))

    def insert(self, op: Op, at: int, block: Block) -> None:
        """Insert an operation at a position of a block."""
        self._ops.setdefault(block, list(block.ops)).insert(at, op)
        self.homes[op] = block

    def remove(self, op: Op) -> None:
        """Remove an operation from its block; its uses stay."""
        home = self.homes[op]
        self._ops.setdefault(home, list(home.ops)).remove(op)

    def replace_ops(self, block: Block, ops: list[Op]) -> None:
        self._ops[block] = ops

    def constraint(self, value: Value, sharding: Sharding, loc: Loc | None) -> Op:
        """Return a new constraint of a value, without inserting it."""
        if self._names is None:
            self._names = UniqueNames([each.name for each in self.values()])
        result = Value(value.type, self._names.fresh(value.name), sharding)
        return Op(specs.sharding_constraint, (value,), (result,), loc=loc)

    def add(self, op: Op, block: Block) -> None:
        """Record a new operation and those of its blocks: their uses, definitions and blocks."""
        self.makers.update(dict.fromkeys(op.results, op))
        self.homes[op] = block
        for inner in op.blocks:
            for each in inner.ops:
                self.add(each, inner)
            for i, value in enumerate(inner.returns):
                self.uses.setdefault(value, []).append((inner, i))
        for i, value in enumerate(op.operands):
            self.uses.setdefault(value, []).append((op, i))

    def build(self, new: Callable[[Value], Value] = lambda value: value) -> Function:
        """Return the current function, with `new(v)` for every value v."""
        body = self._build_block(self.function.body, new)
        return Function(
            self.function.name, body, self.function.result_shardings, self.function.spmd
        )

    def build_op(self, op: Op, new: Callable[[Value], Value] = lambda value: value) -> Op:
        """Return an operation with its current operands and blocks, and `new(v)` for each value
        v."""

        def values(old: list[Value] | tuple[Value, ...]) -> tuple[Value, ...]:
            return tuple([new(value) for value in old])

        return Op(
            op.spec,
            values(self.inputs(op)),
            values(op.results),
            op.attrs,
            tuple([self._build_block(block, new) for block in op.blocks]),
            op.loc,
            self.new_whys.get(op, op.why),
        )

    def _build_block(self, block: Block, new: Callable[[Value], Value]) -> Block:
        ops = tuple([self.build_op(op, new) for op in self.ops(block)])
        returns = tuple([new(value) for value in self.inputs(block)])
        return Block(tuple([new(value) for value in block.params]), ops, returns)
