"""Insert explicit reshards, so that each operation can run on local shards.

before: `%0 = dot(%x, %w, dims="bi,io->bo") : f32[8@-, 4@-]` with `%x: f32[8@-, 16@x]`
after:  `%0.partial = dot(%x, %w, dims="bi,io->bo") : f32[8@-, 4@-] unreduced(x)`, then
        `%0 = reshard(%0.partial) : f32[8@-, 4@-]`

before: `%3 = mul(%2, %scale) : f32[8@x, 4@-]` with `%2 = add(%0, %1) : f32[8@-, 4@-]`
after:  `%2.sharded = reshard(%2) : f32[8@x, 4@-]`, then
        `%3 = mul(%2.sharded, %scale) : f32[8@x, 4@-]`

Afterwards the tensors of every operation are sharded alike along its factors, values that enter and
leave a block have the shardings of the block, and results have those of the function. A sharded
reduced factor leaves an unreduced value, `%3.partial`, and the `reshard` after it completes the
reduction. Shardings that do not divide a dimension lead to padding at its end (see
`shardir.passes.resharding.uneven`); an operation states in `why` where padding begins, or why it
is impossible. The `why` of each `reshard` states its purpose; `shardir.passes.resharding.planner`
chooses its collectives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardir import ops as specs
from shardir.errors import PartitionError, PipelineError, count_noun
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Loc, Module, Op, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding
from shardir.op_rules.factors import FactorRule
from shardir.ops.control_flow.manual_computation import add_manual_axes, manual_computation
from shardir.passes.global_programs import rebuild_global_programs
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pass
from shardir.passes.resharding.align import (
    Alignment,
    BlockShardings,
    partitioning_rule,
    pending_reduction,
)
from shardir.passes.resharding.cost import MachineCost, ReshardCost, reshard_cost
from shardir.passes.resharding.explanations import Explanations, format_lenient_choice
from shardir.passes.resharding.layouts import LAYOUT_POLICIES, choose_alignment
from shardir.passes.resharding.planner import same_placement
from shardir.passes.resharding.uneven import (
    UNEVEN_MODES,
    close_sharding,
    paddable_factors,
    uneven_dims,
)
from shardir.passes.rewriting import merge_in_mesh_order, used_names

RESHARDING_OPERATIONS = (specs.reshard, specs.sharding_constraint)
"""Operations whose result equals their operand, with another sharding."""
FALLBACK_MODES = ("replicate", "error")
"""Treatment of operations without a factor rule."""


@dataclass(frozen=True)
class Reshard(Pass, name="reshard"):
    """Insert `reshard` wherever shardings are incompatible.

    `uneven`: treatment of shardings that do not divide their dimension. `pad` keeps them,
    `replicate` trims them to the axes that divide, and `error` raises `PartitionError`. Parameters
    and results keep the stated shardings in any case.

    `layouts`: the shardings with which an operation with incompatible operands runs: those with the
    `cheapest` reshards, or those of OpenXLA Shardy (`shardy`). `machine` is the name of a machine
    whose times decide which reshards are the cheapest ones; without it, bytes and the number of
    collectives do.

    `on_fallback`: treatment of an operation with sharded operands but no factor rule: every device
    computes all of it (`replicate`), and the reshards state the bytes received for that; or `error`
    raises `PartitionError`.
    """

    choices: ClassVar = {
        "uneven": UNEVEN_MODES,
        "layouts": LAYOUT_POLICIES,
        "on_fallback": FALLBACK_MODES,
    }

    uneven: str = "pad"
    layouts: str = "cheapest"
    on_fallback: str = "replicate"
    machine: str = ""

    def cost_on(self, mesh: Mesh) -> ReshardCost:
        """Return the function that compares reshards on a mesh."""
        return MachineCost(self.machine, mesh) if self.machine else reshard_cost

    def __call__(self, module: Module) -> Module:
        if self.machine and self.layouts == "shardy":
            raise PipelineError(
                "reshard has layouts=shardy, which compare no costs, and machine="
                f"{self.machine}; leave one of them out"
            )
        if self.machine and any(function.spmd for function in module.functions):
            steps = DEFAULT_PIPELINE.replace(",reshard,", f",{self},")
            raise PipelineError(
                f"@{module.main.name} has been partitioned, and {self} decides before; write it "
                f"instead of the step reshard of the default pipeline: {steps}"
            )
        self.cost_on(Mesh("", ()))  # An unknown machine is an error without a mesh, too.
        return rebuild_global_programs(
            module,
            lambda function, mesh: insert_reshards(function, ReshardInserter(mesh, function, self)),
        )


def insert_reshards(function: Function, rewriter: "ReshardInserter") -> Function:
    """Return the function with explicit reshards."""
    body = function.body
    scope = ReshardScope({p: rewriter.close_value(p, border=True) for p in body.params}, None)
    ops = rewriter.ops(body, scope)
    returns, results = [], []
    for i, (value, requested) in enumerate(
        zip(body.returns, function.result_shardings, strict=True)
    ):
        new = scope.value(value)
        target = rewriter.result_sharding(requested, value, new)
        why = f"result {i} of @{function.name} needs {rewriter.words.format_sharding(target)}"
        returns.append(rewriter.reshard_value(new, target, scope, ops, None, why))
        results.append(sharding_annotation(target))
    return replace(function, body=Block(scope.params(body), tuple(ops), tuple(returns)),
                   result_shardings=tuple(results))  # fmt: skip


def separate_operations(op: Op) -> list[Op]:
    """Return the operations of a loop nest, which is no single one if shards are exchanged in it.

    They define its results, except that a result that is an operand or another result is a reshard
    to the same sharding.
    """
    (block,) = op.blocks
    new = dict(zip(block.params, op.operands, strict=True))
    same: list[Op] = []
    for value, result in zip(block.returns, op.results, strict=True):
        if value in new:
            same.append(Op(specs.reshard, (new[value],), (result,), loc=op.loc))
        else:
            new[value] = result
    return [*substitute(block, new).ops, *same]


class ReshardScope:
    """Rewritten values of a block, and the resharded copies that are available."""

    def __init__(self, new: dict[Value, Value], outer: "ReshardScope | None") -> None:
        self.new, self.outer = new, outer
        self.resharded: dict[tuple[Value, Sharding], Value] = {}

    def value(self, old: Value) -> Value:
        result = self.new.get(old)
        if result is None:
            assert self.outer is not None, f"%{old.name} is not defined"
            return self.outer.value(old)
        return result

    def find_resharded(self, value: Value, sharding: Sharding) -> Value | None:
        resharded = self.resharded.get((value, sharding))
        return (
            self.outer.find_resharded(value, sharding)
            if resharded is None and self.outer
            else resharded
        )

    def params(self, block: Block) -> tuple[Value, ...]:
        return tuple(self.new[p] for p in block.params)


class ReshardInserter:
    """Inserts reshards into the blocks of one function."""

    def __init__(self, mesh: Mesh, function: Function, options: Reshard) -> None:
        self.mesh = mesh
        self.uneven, self.layouts = options.uneven, options.layouts
        self.on_fallback = options.on_fallback
        self.cost = options.cost_on(mesh)
        self.names = used_names(function)
        self.words = Explanations(mesh)

    # Final shardings

    def close_sharding(
        self, sharding: Sharding | None, value: Value, *, border: bool = False
    ) -> Sharding:
        """Return the sharding closed, and without axes that do not divide unless they are
        padded."""
        if sharding is None:
            return Sharding.fully_replicated(self.mesh.name, value.type.rank)
        shape = value.type.shape
        odd = uneven_dims(sharding, shape)
        if odd and self.uneven == "error":
            raise PartitionError(self.words.explain_uneven(sharding, value, odd[0]))
        if odd and border:
            return sharding.close()
        return close_sharding(sharding, shape, pads=self.uneven == "pad")

    def close_value(self, value: Value, *, border: bool = False) -> Value:
        sharding = sharding_annotation(self.close_sharding(value.sharding, value, border=border))
        return value if sharding == value.sharding else replace(value, sharding=sharding)

    def result_sharding(self, sharding: Sharding | None, old: Value, new: Value) -> Sharding:
        """Return the stated sharding of a function result; that of the value if none is stated."""
        return (
            self.close_sharding(sharding, old, border=True) if sharding else self.sharding_of(new)
        )

    def sharding_of(self, value: Value) -> Sharding:
        """Return the final sharding of a value."""
        return value.sharding or self.whole(value)

    same = staticmethod(same_placement)

    def whole(self, value: Value) -> Sharding:
        return Sharding.fully_replicated(self.mesh.name, value.type.rank)

    # Operations

    def ops(self, block: Block, scope: ReshardScope) -> list[Op]:
        new_ops: list[Op] = []
        for op in block.ops:
            if op.spec is specs.sharding_group:
                continue  # propagation has decided the group's sharding
            if op.spec in RESHARDING_OPERATIONS:
                self.identity(op, scope, new_ops)
            elif op.spec is manual_computation:
                self.manual(op, scope, new_ops)
            elif op.blocks or op.spec.edges:
                self.control(op, scope, new_ops)
            else:
                self.plain(op, scope, new_ops)
        return new_ops

    def identity(self, op: Op, scope: ReshardScope, new_ops: list[Op]) -> None:
        """Rewrite an explicit reshard or constraint; drop it if the operand already has the
        sharding."""
        source, result = scope.value(op.operands[0]), self.close_value(op.result)
        if self.same(self.sharding_of(source), self.sharding_of(result)):
            scope.new[op.result] = source
            return
        why = (
            op.why
            or f"%{result.name} = {op.name} states "
            f"{self.words.format_sharding(self.sharding_of(result))}"
        )
        self.reshard(source, result, scope, new_ops, op.loc, why)
        scope.new[op.result] = result

    def plain(self, op: Op, scope: ReshardScope, new_ops: list[Op]) -> None:
        """Rewrite an operation without blocks: align its operands and results."""
        operands = tuple(map(scope.value, op.operands))
        results = tuple(map(self.close_value, op.results))
        rule = self.factor_rule(op)
        fitting, reduction = self.align_operation(op, rule, operands, results)
        count = len(operands)
        moved = []
        for i, (value, sharding) in enumerate(zip(operands, fitting.tensors, strict=False)):
            if not self.same(self.sharding_of(value), sharding):
                why = self.words.explain_operand(op, i, sharding, rule is not None)
                ends = value, sharding
                padless = self.words.explain_missing_padding(op, i, ends, rule, self.uneven)
                if rule is None:
                    why += padless + self.fallback(op, value, sharding)
                else:
                    why += padless or self.words.explain_lost_axes(op, value, i, rule, fitting)
                why += format_lenient_choice(op)
                value = self.reshard_value(value, sharding, scope, new_ops, op.loc, why)
            moved.append(value)
        raw = []
        for result, sharding in zip(results, fitting.tensors[count:], strict=True):
            if fitting.pending and reduction:
                pending = merge_in_mesh_order((*sharding.unreduced, *fitting.pending), self.mesh)
                sharding = replace(sharding, unreduced=pending, reduction=reduction)
            raw.append(self.unresharded_result(result, sharding))
        self.finish(
            op,
            op.with_tensors(tuple(moved), op.results),
            results,
            raw,
            scope,
            new_ops,
            rule,
            fitting,
        )

    def fallback(self, op: Op, value: Value, replicated: Sharding) -> str:
        """Describe the bytes received because an operation without factor rule needs an unsharded
        operand.

        Raises `PartitionError` if `on_fallback` is `error`.
        """
        nbytes, _ = reshard_cost(self.sharding_of(value), replicated, value.type)
        if self.on_fallback == "error" and nbytes:
            at = f" (from {op.loc})" if op.loc else ""
            raise PartitionError(
                f"{op.name} has no sharding rule, and each device would receive "
                f"{count_noun(nbytes, 'byte')} of %{value.name}, which is sharded "
                f"{self.words.format_sharding(self.sharding_of(value))}; state its rule, "
                f"constrain %{value.name} to be replicated, or set on_fallback=replicate{at}"
            )
        return f", for which each device receives {count_noun(nbytes, 'byte')}" if nbytes else ""

    def factor_rule(self, op: Op) -> FactorRule | None:
        """Return the factor rule along which an operation may be sharded."""
        return partitioning_rule(op)

    def align_operation(
        self,
        op: Op,
        rule: FactorRule | None,
        operands: Sequence[Value],
        results: Sequence[Value],
    ) -> tuple[Alignment, str | None]:
        """Return the shardings with which an operation can run, and how unreduced results
        combine."""
        tensors = (*operands, *results)
        if rule is None:
            free = op.spec.partition is not None and not operands
            kept = tuple(
                replace(self.sharding_of(t), unreduced=()) if free else self.whole(t)
                for t in tensors
            )
            return Alignment(kept, (), ()), None
        places = tuple(map(self.sharding_of, tensors))
        odd = any(uneven_dims(t.sharding, t.type.shape) for t in tensors)
        padding = paddable_factors(op, rule) if odd and self.uneven == "pad" else ()
        fitting = choose_alignment(op, rule, places, padding, self.layouts, self.mesh, self.cost)
        return fitting, pending_reduction(op, rule)

    def unresharded_result(self, result: Value, sharding: Sharding) -> Value:
        """Return the value that an operation defines before the reshard to `result`."""
        required = self.sharding_of(result)
        if self.same(required, sharding):
            return result
        suffix = "partial" if sharding.unreduced else "before_reshard"
        return Value(
            result.type, self.names.fresh(f"{result.name}.{suffix}"), sharding_annotation(sharding)
        )

    def finish(
        self,
        old: Op,
        new: Op,
        results: Sequence[Value],
        raw: Sequence[Value],
        scope: ReshardScope,
        new_ops: list[Op],
        rule: FactorRule | None = None,
        fitting: Alignment | None = None,
    ) -> None:
        """Append an operation, and the reshards of its results to their final shardings."""
        new = new.with_tensors(new.operands, tuple(raw))
        padding = "" if new.why or new.blocks else self.words.explain_new_padding(new.operands, raw)
        if new.spec.is_loop_nest and any(op.spec is specs.reshard for op in new.blocks[0].ops):
            new_ops += separate_operations(new)
        else:
            new_ops.append(replace(new, why=padding) if padding else new)
        for value, result, made_as in zip(old.results, results, raw, strict=True):
            scope.new[value] = result
            if made_as is not result:
                why = self.words.explain_result(old, result, made_as, rule, fitting)
                self.reshard(made_as, result, scope, new_ops, old.loc, why)

    def control(self, op: Op, scope: ReshardScope, new_ops: list[Op]) -> None:
        """Rewrite an operation with blocks: all values of an edge have one sharding."""
        flow = BlockShardings(
            op, lambda value: self.sharding_of(self.close_value(value)), self.whole
        )
        name = op.results[0].name if op.results else op.name
        operands = []
        for i, value in enumerate(op.operands):
            sharding = flow.operands[i]
            why = self.words.explain_operand(op, i, sharding)
            why += self.words.explain_scan_operand(op, i)
            operands.append(
                self.reshard_value(scope.value(value), sharding, scope, new_ops, op.loc, why)
            )
        blocks = []
        for number, block in enumerate(op.blocks):
            params = {
                p: replace(p, sharding=sharding_annotation(flow.params[p])) for p in block.params
            }
            inner = ReshardScope(params, scope)
            ops = self.ops(block, inner)
            returns = []
            for i, value in enumerate(block.returns):
                sharding = flow.returns[number][i]
                needed = self.words.format_sharding(sharding)
                why = f"what {op.name} yields for %{name} needs {needed}"
                returned = inner.value(value)
                returns.append(self.reshard_value(returned, sharding, inner, ops, op.loc, why))
            blocks.append(Block(inner.params(block), tuple(ops), tuple(returns)))
        results = tuple(map(self.close_value, op.results))
        raw = [self.unresharded_result(result, flow.results[i]) for i, result in enumerate(results)]
        new = replace(op, operands=tuple(operands), blocks=tuple(blocks))
        self.finish(op, new, results, raw, scope, new_ops)

    def manual(self, op: Op, scope: ReshardScope, new_ops: list[Op]) -> None:
        """Rewrite a manual computation: operands have the parameters' shardings behind the manual
        axes."""
        (body,) = op.blocks
        params = {param: self.trim_padding(param) for param in body.params}
        inner = ReshardScope(params, None)
        operands = []
        for i, (value, dim_axes) in enumerate(zip(op.operands, op.attrs["in_axes"], strict=True)):
            sharding = add_manual_axes(self.sharding_of(params[body.params[i]]), dim_axes)
            why = self.words.explain_operand(op, i, sharding)
            operands.append(
                self.reshard_value(scope.value(value), sharding, scope, new_ops, op.loc, why)
            )
        ops = self.ops(body, inner)
        results = tuple(map(self.close_value, op.results))
        returns, raw = [], []
        for value, result, dim_axes in zip(
            body.returns, results, op.attrs["out_axes"], strict=True
        ):
            free = self.manual_result_sharding(op, inner.value(value), result)
            needed = self.words.format_sharding(free)
            why = f"what {op.name} returns for %{result.name} needs {needed}"
            returns.append(self.reshard_value(inner.value(value), free, inner, ops, op.loc, why))
            raw.append(self.unresharded_result(result, add_manual_axes(free, dim_axes)))
        block = Block(inner.params(body), tuple(ops), tuple(returns))
        self.finish(
            op, replace(op, operands=tuple(operands), blocks=(block,)), results, raw, scope, new_ops
        )

    def manual_result_sharding(self, op: Op, value: Value, result: Value) -> Sharding:
        """Return the sharding of a value that a manual computation returns, without its manual
        axes."""
        return self.sharding_of(self.trim_padding(value))

    def trim_padding(self, value: Value) -> Value:
        """Return a value at the boundary of a manual computation, without padding, which would be
        inside the dimension."""
        sharding = close_sharding(self.sharding_of(value), value.type.shape, pads=False)
        return replace(
            value, sharding=sharding_annotation(replace(sharding, unreduced=(), reduction="add"))
        )

    # Moving values

    def reshard_value(
        self,
        value: Value,
        target: Sharding,
        scope: ReshardScope,
        new_ops: list[Op],
        loc: Loc | None,
        why: str,
    ) -> Value:
        """Return `value` with the sharding `target`: itself, or an existing or new reshard of
        it."""
        if self.same(self.sharding_of(value), target):
            return value
        result = scope.find_resharded(value, target)
        if result is None:
            suffix = "sharded" if any(target.axes) else "unsharded"
            result = Value(
                value.type, self.names.fresh(f"{value.name}.{suffix}"), sharding_annotation(target)
            )
            self.reshard(value, result, scope, new_ops, loc, why)
        return result

    def reshard(
        self,
        source: Value,
        result: Value,
        scope: ReshardScope,
        new_ops: list[Op],
        loc: Loc | None,
        why: str,
    ) -> None:
        """Append a reshard, and record that both values are the same tensor in different
        shardings."""
        if begins := self.words.explain_new_padding((source,), (result,)):
            why = f"{why}; {begins}"
        new_ops.append(Op(OPS["reshard"], (source,), (result,), {}, (), loc, why))
        scope.resharded[source, self.sharding_of(result)] = result
        if not self.sharding_of(source).unreduced:
            scope.resharded[result, self.sharding_of(source)] = source


def sharding_annotation(sharding: Sharding) -> Sharding | None:
    """Return a sharding as it is written on a value: `None` on a replicated scalar."""
    return sharding if sharding.dims or sharding.unreduced else None
