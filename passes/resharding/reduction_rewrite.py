"""Rebuild a function with the values unreduced that `shardir.passes.resharding.reduction_region`
chose."""

from collections.abc import Sequence
from dataclasses import replace

from shardir import ops
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.operation import OPS
from shardir.passes.def_use import EdgeUse, Use
from shardir.passes.resharding.cost import reshard_cost, sharding_or_unsharded
from shardir.passes.resharding.explanations import REDUCTION_NOUNS, Explanations
from shardir.passes.resharding.planner import same_placement
from shardir.passes.resharding.reduction_region import ReductionRegion
from shardir.passes.rewriting import used_names

MAX_LISTED_REDUCTIONS = 3
"""Maximum number of reductions that a `why` lists before it counts the others."""
EdgeIndices = tuple[int | None, ...]
"""For each value that enters or leaves a block, the index of its edge."""


class ReductionRewriter:
    """Rebuilds a function with the flows in `pending` unreduced."""

    def __init__(self, old: Function, region: ReductionRegion, pending: set[Value]) -> None:
        self.old, self.region, self.chosen = old, region, pending
        self.uses, self.mesh = region.uses, region.mesh.name
        self.names, self.words = used_names(old), Explanations(region.mesh)
        self.whole: dict[Value, Value] = {}
        self.parts: dict[Value, Value] = {}
        self.joined: dict[tuple[Value, Block], Value] = {}
        self.sums: dict[Value, tuple[str, ...]] = {}
        """Descriptions of the reductions that an unreduced value consists of."""

    def function(self) -> Function:
        return replace(self.old, body=self.block(self.old.body))

    def is_unreduced(self, value: Value) -> bool:
        return self.uses.flow(value) in self.chosen

    # Values

    def define(self, value: Value) -> Value:
        """Return the definition in place of `value`: itself, or the unreduced value."""
        if not self.is_unreduced(value):
            self.whole[value] = value
            return value
        if value in self.region.sources:
            self.parts[value] = value
            return value
        name = value.name
        if self.is_needed_complete(value):
            name = self.names.fresh(f"{name}.partial")
        part = replace(value, name=name, sharding=self.region.unreduced_sharding(value))
        self.parts[value] = part
        return part

    def is_needed_complete(self, value: Value) -> bool:
        """Return whether a use other than a `reshard` needs the complete value; a source is used as
        it is otherwise."""
        if value in self.region.sources:
            return False
        for use in self.uses.users[value]:
            if isinstance(use, Op) and use.spec is ops.reshard:
                continue
            if not self.accepts_unreduced(use, value):
                return True
        return False

    def accepts_unreduced(self, use: Use, value: Value) -> bool:
        """Return whether a use accepts the value unreduced in all its operands."""
        if use is None or (isinstance(use, Op) and len(use.results) != 1):
            return False
        flow = use.edge.targets[0] if isinstance(use, EdgeUse) else use.result
        if flow not in self.chosen or self.region.paths[flow].through is not use:
            return False
        places = self.region.paths[flow].operand_indices
        return isinstance(use, EdgeUse) or not any(
            v is value for i, v in enumerate(use.operands) if i not in places
        )

    def complete(self, values: Sequence[Value], new_ops: list[Op]) -> None:
        """Append the reshards that complete newly defined values where complete values are
        needed."""
        for value in values:
            if value in self.parts and self.is_needed_complete(value):
                part = self.parts[value]
                new_ops.append(self.reshard(part, value, self.reason(part)))
                self.whole[value] = value

    def reshard(self, source: Value, result: Value, why: str) -> Op:
        maker = self.uses.maker.get(result) or self.uses.maker.get(source)
        loc = maker.loc if maker else None
        return Op(OPS["reshard"], (source,), (result,), {}, (), loc, why)

    def reason(self, part: Value) -> str:
        sums = self.sums.get(part, ())
        word = REDUCTION_NOUNS.get(self.region.reduction_kind, "result")
        more = (
            f" and {len(sums) - MAX_LISTED_REDUCTIONS} more"
            if len(sums) > MAX_LISTED_REDUCTIONS
            else ""
        )
        return (
            "; ".join(sums[:MAX_LISTED_REDUCTIONS]) + more
            or f"%{part.name} is a {word} whose complete value is needed"
        )

    def unreduced_value(self, value: Value, block: Block, new_ops: list[Op], op: Op) -> Value:
        """Return a value unreduced; a complete one becomes the contribution of the first device."""
        if value in self.parts:
            return self.parts[value]
        unreduced = self.joined.get((value, block))
        if unreduced is None:
            sharding = self.region.unreduced_sharding(value)
            unreduced = Value(value.type, self.names.fresh(f"{value.name}.partial"), sharding)
            maker = self.uses.maker.get(value)
            nothing = self.region.reduction_kind == "add" and maker and maker.spec is ops.constant
            if maker is not None and nothing and maker.attrs["value"] == 0:
                new_ops.append(replace(maker, results=(unreduced,)))
            else:
                over = self.words.format_axes(self.region.axes)
                result = f"%{op.results[0].name} = " if op.results else ""
                word = REDUCTION_NOUNS.get(self.region.reduction_kind, "result")
                why = (
                    f"{result}{op.name} combines it with each {word} that is unreduced over {over}"
                )
                if self.region.reduction_kind == "add":
                    why = f"{result}{op.name} adds it to sums that are unreduced over {over}"
                new_ops.append(self.reshard(self.whole[value], unreduced, why))
            self.joined[value, block] = unreduced
        return unreduced

    # Operations

    def block(self, block: Block, waiting: Sequence[bool] = (), op: Op | None = None) -> Block:
        """Return the rewritten block; `waiting` states which of its returned values `op` needs
        unreduced."""
        params = tuple(map(self.define, block.params))
        new_ops: list[Op] = []
        self.complete(block.params, new_ops)
        for inner in block.ops:
            self.operation(inner, new_ops, block)
            self.complete(inner.results, new_ops)
        returns = [
            self.unreduced_value(value, block, new_ops, op)
            if op and waiting[i]
            else self.current(value)
            for i, value in enumerate(block.returns)
        ]
        return Block(params, tuple(new_ops), tuple(returns))

    def operation(self, op: Op, new_ops: list[Op], block: Block) -> None:
        way = self.region.paths.get(op.results[0]) if op.results else None
        if op.spec is ops.reshard:
            self.move(op, new_ops)
        elif op.blocks:
            self.loop(op, new_ops, block)
        elif way is not None and way.through is op and op.result in self.chosen:
            operands = tuple(
                self.unreduced_value(value, block, new_ops, op)
                if i in way.operand_indices
                else self.current(value)
                for i, value in enumerate(op.operands)
            )
            result = self.define(op.result)
            self.record_reductions(result, operands)
            new_ops.append(op.with_tensors(operands, (result,)))
        else:
            operands = tuple(map(self.current, op.operands))
            results = tuple(map(self.define, op.results))
            new_ops.append(op.with_tensors(operands, results))
            self.sums.update((v, self.reasons_of_source(v)) for v in results if v in self.parts)

    def current(self, value: Value) -> Value:
        """Return the value of the original program: complete, or a source that is used as it is."""
        return self.whole[value] if value in self.whole else self.parts.get(value, value)

    def reasons_of_source(self, source: Value) -> tuple[str, ...]:
        """Return the `why` of the first `reshard` that completed a reduction."""
        users = self.uses.users[source]
        return next(((u.why,) for u in users if isinstance(u, Op) and u.why), ())

    def record_reductions(self, result: Value, parts: Sequence[Value]) -> None:
        """Record that an unreduced value consists of the reductions of `parts`."""
        sums = (*self.sums.get(result, ()), *(s for p in parts for s in self.sums.get(p, ())))
        self.sums[result] = tuple(dict.fromkeys(sums))

    def move(self, op: Op, new_ops: list[Op]) -> None:
        (value,), result = op.operands, op.result
        if self.is_unreduced(result):
            source = self.parts[value]
            pending = self.region.unreduced_sharding(result)
            if same_placement(self.region.unreduced_sharding(value), pending):
                self.parts[result] = source
                return
            part = self.define(result)
            self.record_reductions(part, (source,))
            new_ops.append(replace(op, operands=(source,), results=(part,)))
            return
        forms = [form[value] for form in (self.whole, self.parts) if value in form]
        target = sharding_or_unsharded(result, self.mesh)
        source = min(
            forms,
            key=lambda f: reshard_cost(sharding_or_unsharded(f, self.mesh), target, value.type),
        )
        if same_placement(sharding_or_unsharded(source, self.mesh), target):
            self.whole[result] = source
            return
        new = op
        if source is not value:
            new = replace(op, operands=(source,), why=self.reason(source))
        new_ops.append(new)
        self.whole[result] = result

    def loop(self, op: Op, new_ops: list[Op], block: Block) -> None:
        """Rewrite an operation with blocks: all values of an edge are unreduced, or none."""
        edges = op.edges()
        waits = [self.is_unreduced(edge.targets[0]) for edge in edges]
        entering, *leaving = _edge_indices(op)
        operands = tuple(
            self.unreduced_value(value, block, new_ops, op)
            if at is not None and waits[at]
            else self.current(value)
            for value, at in zip(op.operands, entering, strict=True)
        )
        results = tuple(map(self.define, op.results))
        blocks = []
        for inner, places in zip(op.blocks, leaving, strict=True):
            waiting = [at is not None and waits[at] for at in places]
            made_of = self.block(inner, waiting, op)
            for value, at in zip(made_of.returns, places, strict=True):
                if at is not None:
                    for result in edges[at].targets:
                        if result in self.parts:
                            self.record_reductions(self.parts[result], (value,))
            blocks.append(made_of)
        new_ops.append(replace(op, operands=operands, blocks=tuple(blocks), results=results))


def _edge_indices(op: Op) -> tuple[EdgeIndices, ...]:
    """Return the edge index of each operand, and of each value that each block returns."""
    # Edges name values; a distinct copy for each position keeps the positions distinguishable.
    operands = tuple(replace(value) for value in op.operands)
    blocks = tuple(Block(b.params, (), tuple(map(replace, b.returns))) for b in op.blocks)
    number = {
        value: i
        for i, edge in enumerate(replace(op, operands=operands, blocks=blocks).edges())
        for value in edge.sources
    }
    ends = (operands, *(block.returns for block in blocks))
    return tuple(tuple(number.get(value) for value in values) for values in ends)
