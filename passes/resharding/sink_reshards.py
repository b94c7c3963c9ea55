"""Sink reshards below pointwise operations: move one result instead of several or wider operands.

before: `%a.columns = reshard(%a)`, `%b.columns = reshard(%b)`, `%c = mul(%a.columns, %b.columns)`
after:  `%c.before_reshard = mul(%a, %b)`, `%c = reshard(%c.before_reshard)`

Runs after `sink-reductions`. The pass applies to pointwise operations whose operands have the same
source sharding and whose reshards have no other use, if that sends less; unreduced operands require
an operation that is linear in all of them together. Constants are created with the source sharding.
Two reduce-scatters become one in this way.
"""

from dataclasses import dataclass, replace

from shardir import ops
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding
from shardir.op_rules.linearity import commuting_groups
from shardir.passes.def_use import UNANALYZED_REGIONS, DefUse, analyze_def_use
from shardir.passes.global_programs import rebuild_global_programs
from shardir.passes.pipeline import Pass
from shardir.passes.resharding.cost import reshard_cost, scalar_cost, sharding_or_unsharded
from shardir.passes.resharding.reshard import sharding_annotation
from shardir.passes.rewriting import used_names


@dataclass(frozen=True)
class SinkReshards(Pass, name="sink-reshards"):
    """Reshard results of pointwise operations instead of their operands."""

    def __call__(self, module: Module) -> Module:
        return rebuild_global_programs(module, _sink_reshards)


def _sink_reshards(function: Function, mesh: Mesh) -> Function:
    joiner = _ReshardSinker(function, mesh.name)
    body = joiner.block(function.body)
    return replace(function, body=body) if joiner.changed else function


class _ReshardSinker:
    """Walks the blocks of one function in order, so that chains of operations are rewritten."""

    def __init__(self, function: Function, mesh: str) -> None:
        self.mesh = mesh
        self.names = used_names(function)
        self.uses: DefUse = analyze_def_use(function)
        self.reshard_of: dict[Value, Op] = {}
        """The `reshard` of the rewritten program that defines each value."""
        self.transpose_of: dict[Value, Op] = {}
        """The `transpose` that defines each value from a value of its block without other uses."""
        self.changed = False

    def block(self, block: Block) -> Block:
        new_ops: dict[Op, None] = {}
        local: set[Value] = set()
        for op in block.ops:
            if op.blocks and op.spec not in UNANALYZED_REGIONS:
                op = replace(op, blocks=tuple(map(self.block, op.blocks)))
            is_pointwise = op.spec.elementwise and op.spec is not ops.reshard
            source = self.common_source_sharding(op, local) if is_pointwise else None
            if source is None:
                new_ops[op] = None
            else:
                self.sink(op, source, new_ops)
            if op.spec is ops.reshard:
                self.reshard_of[op.result] = op
            elif op.spec is ops.transpose and self.has_one_use(op.operands[0], local):
                self.transpose_of[op.result] = op
            local.update(op.results)
        return Block(block.params, tuple(new_ops), block.returns)

    def has_one_use(self, value: Value, local: set[Value]) -> bool:
        """Return whether a value is computed in this block and has a single use."""
        return value in local and len(self.uses.users[value]) == 1

    def common_source_sharding(self, op: Op, local: set[Value]) -> Sharding | None:
        """Return the sharding that all operands are resharded from if computing there is
        cheaper."""
        tensors = [v for v in op.operands if v.type.rank]
        moved = [v for v in dict.fromkeys(tensors) if not self.is_constant(v)]
        if any(v not in local for v in moved):
            return None
        if any(self.uses.users[v] != [original_operation(self.uses, op)] for v in moved):
            return None
        sources = dict.fromkeys(self.source_sharding(v) for v in moved)
        if len(sources) != 1:
            return None
        (source,) = sources
        if source is None:
            return None
        if source.unreduced and not self.can_reduce_after(op, moved, source.reduction):
            return None
        now = [reshard_cost(source, sharding_or_unsharded(v, self.mesh), v.type) for v in moved]
        after = reshard_cost(source, sharding_or_unsharded(op.result, self.mesh), op.result.type)
        if scalar_cost(after, 0) >= sum(scalar_cost(cost, 0) for cost in now):
            return None
        return source

    def source_sharding(self, value: Value) -> Sharding | None:
        """Return the sharding that a value is resharded from, in its dimension order after a
        transpose."""
        turn = self.transpose_of.get(value)
        move = self.reshard_of.get(turn.operands[0] if turn else value)
        if move is None:
            return None
        source = sharding_or_unsharded(move.operands[0], self.mesh)
        if turn:
            source = replace(source, dims=tuple(source.dims[d] for d in turn.attrs["perm"]))
        return source

    def can_reduce_after(self, op: Op, moved: list[Value], reduction: str) -> bool:
        """Return whether the pending reduction of operands can be completed after an operation."""
        groups = [[op.operands[i] for i in group] for group in commuting_groups(op, reduction)]
        return any(set(group) == set(moved) for group in groups)

    def is_constant(self, value: Value) -> bool:
        maker = self.uses.maker.get(value)
        return maker is not None and maker.spec is ops.constant

    def sink(self, op: Op, source: Sharding, new_ops: dict[Op, None]) -> None:
        self.changed = True
        operands: list[Value] = []
        reasons: list[str] = []
        new_operands: dict[Value, Value] = {}
        for operand in op.operands:
            value = operand
            if value in new_operands:
                operands.append(new_operands[value])
                continue
            if value.type.rank and not self.is_constant(value):
                value = self.unreshard(value, new_ops, reasons)
            elif value.type.rank:
                maker = self.uses.maker[value]
                sharding = sharding_annotation(replace(source, unreduced=(), reduction="add"))
                value = replace(value, name=self.names.fresh(value.name), sharding=sharding)
                new_ops[replace(maker, results=(value,))] = None
            operands.append(new_operands.setdefault(operand, value))
        word = "partial" if source.unreduced else "before_reshard"
        name = self.names.fresh(f"{op.result.name}.{word}")
        raw = Value(op.result.type, name, sharding_annotation(source))
        new_ops[replace(op, operands=tuple(operands), results=(raw,))] = None
        why = "; ".join(dict.fromkeys(filter(None, reasons)))
        move = Op(OPS["reshard"], (raw,), op.results, {}, (), op.loc, why)
        new_ops[move] = None
        self.reshard_of[op.result] = move

    def unreshard(self, value: Value, new_ops: dict[Op, None], reasons: list[str]) -> Value:
        """Return an operand before its reshard, and drop the reshard and a transpose after it."""
        turn = self.transpose_of.get(value)
        move = self.reshard_of[turn.operands[0] if turn else value]
        new_ops.pop(move, None)
        reasons.append(move.why)
        if turn is None:
            return move.operands[0]
        new_ops.pop(turn, None)
        sharding = sharding_annotation(self.source_sharding_of(value))
        raw = replace(
            value, name=self.names.fresh(f"{value.name}.before_reshard"), sharding=sharding
        )
        new_ops[replace(turn, operands=move.operands, results=(raw,))] = None
        return raw

    def source_sharding_of(self, value: Value) -> Sharding:
        source = self.source_sharding(value)
        assert source is not None
        return source


def original_operation(uses: DefUse, op: Op) -> Op:
    """Return the operation of the original program that defines the same results."""
    return uses.maker[op.results[0]]
