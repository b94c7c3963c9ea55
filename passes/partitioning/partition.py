"""Partition a program over global tensors into the program that each device runs (SPMD).

before: `%y.partial = dot(%x, %w, dims="bi,io->bo") : f32[16@data, 4@-] unreduced(model)`
        `%y = reshard(%y.partial) : f32[16@data, 4@-]`
after:  `%y.partial = dot(%x, %w, dims="bi,io->bo") : f32[4, 4]`
        `%y = all-reduce(%y.partial, axes=[model], op=add) : f32[4, 4]`

Types shrink to the shards of one device; with sharded factors, most operations remain unchanged,
attributes included. Operations that need more declare it (`shardir.op_rules.partitioning`). Every
`reshard` becomes the collectives of the planner, which keep its `why`. The function records in its
`SpmdInterface` how its parameters and results are sharded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardir.errors import OperationTypeError, PartitionError
from shardir.ir.builder import Builder, UniqueNames, copy_op, infer_types, substitute
from shardir.ir.dtypes import KEYS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, GlobalTensor, Module, Op, SpmdInterface, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding, count_positions
from shardir.ir.types import COMPLEX
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.op_rules.partitioning import LocalOp, identity_element, local_type_of
from shardir.ops.communication.annotations import reshard
from shardir.ops.control_flow.custom_partitioning import custom_partitioning, device_program_of
from shardir.ops.control_flow.manual_computation import manual_computation
from shardir.passes.collectives.uniform_control_flow import make_collectives_uniform
from shardir.passes.global_programs import rebuild_global_programs
from shardir.passes.partitioning.checks import PartitionChecks
from shardir.passes.pipeline import Pass
from shardir.passes.resharding.align import partitioning_rule, pending_reduction
from shardir.passes.resharding.explanations import Explanations
from shardir.passes.resharding.lattice import StepKind
from shardir.passes.resharding.planner import PLANNERS, PlanStep, plan_reshard
from shardir.passes.resharding.reshard import RESHARDING_OPERATIONS
from shardir.passes.resharding.uneven import uneven_dims
from shardir.passes.rewriting import used_names
from shardir.verify.divergence import find_divergences

STEP_SUFFIXES = {
    StepKind.ALL_SLICE: "slice",
    StepKind.ALL_GATHER: "gather",
    StepKind.ALL_TO_ALL: "turn",
    StepKind.COLLECTIVE_PERMUTE: "swap",
    StepKind.ALL_REDUCE: "sum",
    StepKind.REDUCE_SCATTER: "scatter",
    StepKind.UNREDUCE: "first",
}
"""Suffix of the names of intermediate results, by the step that makes them."""


@dataclass(frozen=True)
class Partition(Pass, name="partition"):
    """Replace every value by the shard that one device holds.

    `planner`: the planner that chooses the collectives of a reshard, see
    `passes.resharding.planner`.
    """

    choices: ClassVar = {"planner": PLANNERS}

    planner: str = "optimal"

    def __call__(self, module: Module) -> Module:
        return rebuild_global_programs(
            module, lambda function, mesh: _function(function, mesh, self.planner)
        )


def _function(function: Function, mesh: Mesh, planner: str) -> Function:
    cutter = _Partitioner(mesh, used_names(function), planner)
    body = function.body
    for value, requested in zip(body.returns, function.result_shardings, strict=True):
        cutter.checks.check_result(value, requested, function)
    interface = SpmdInterface(
        tuple(GlobalTensor(p.type, cutter.checks.sharding(p)) for p in body.params),
        tuple(GlobalTensor(v.type, cutter.checks.sharding(v)) for v in body.returns),
    )
    result = Function(function.name, cutter.block(body), (None,) * len(body.returns), interface)
    divergences = find_divergences(result)
    for divergence in divergences:
        if divergence.is_equal_in_groups:
            continue
        origin = f" (from {divergence.collective.loc})" if divergence.collective.loc else ""
        raise PartitionError(divergence.message(f"%{divergence.predicate.name}", (mesh,)) + origin)
    return make_collectives_uniform(result, mesh) if divergences else result


class _Partitioner:
    """Partitions the blocks of one function."""

    def __init__(self, mesh: Mesh, names: UniqueNames, planner: str) -> None:
        self.mesh, self.names, self.planner = mesh, names, planner
        self.words = Explanations(mesh)
        self.checks = PartitionChecks(mesh)
        self.local: dict[Value, Value] = {}

    def local_value(self, value: Value) -> Value:
        """Return the shard of a value, under the same name."""
        return Value(local_type_of(value), value.name)

    def block(self, block: Block) -> Block:
        params = tuple(map(self.local_value, block.params))
        self.local.update(zip(block.params, params, strict=True))
        b = Builder(self.names)
        for op in block.ops:
            b.loc, b.why = op.loc, op.why
            self.op(op, b)
        return b.block(params, [self.local[v] for v in block.returns])

    def op(self, op: Op, b: Builder) -> None:
        if op.spec in RESHARDING_OPERATIONS:
            self.local[op.result] = self.append_reshard(op, b)
            return
        operands = tuple(self.local[v] for v in op.operands)
        if op.spec is manual_computation:
            self.manual(op, operands, b)
            return
        if op.spec is custom_partitioning:
            self.custom(op, b)
            return
        if op.blocks or op.spec.edges:
            blocks = tuple(map(self.block, op.blocks))
            self.append_local(op, operands, b, blocks)
            return
        if not any(
            v.sharding and (v.sharding.unreduced or any(v.sharding.axes)) for v in op.tensors
        ):
            self.append_local(op, operands, b)
            return
        local = LocalOp(op, self.mesh)
        operands = self.mask_padding(local, self.checks.check(op), operands, b)
        declared = op.spec.partition
        if declared is not None and declared.lower is not None:
            inner = Builder(self.names, b.loc)
            inner.why = b.why
            results = declared.lower(inner, local, *operands, **op.rule_arguments)
            self.explain(op, inner)
            self.rename(op, (results,) if isinstance(results, Value) else tuple(results), inner, b)
        else:
            self.append_local(op, operands, b)

    def explain(self, op: Op, inner: Builder) -> None:
        """Record in `why` the cause of the collectives that an operation is lowered to."""
        rule = partitioning_rule(op)
        for i, new in enumerate(inner.ops):
            if rule is not None and new.spec.collective and new.why == op.why:
                why = self.words.explain_communication(op, rule)
                inner.ops[i] = replace(new, why=f"{why}; {op.why}" if op.why else why)

    def manual(self, op: Op, operands: Sequence[Value], b: Builder) -> None:
        """Inline the body of a manual computation, which is a per-device program already."""
        (body,) = op.blocks
        for param, value in zip(body.params, operands, strict=True):
            if self.local_value(param).type != value.type:
                raise self.checks.error_of(op)
            self.local[param] = value
        inner = Builder(self.names, b.loc)
        for each in body.ops:
            inner.loc, inner.why = each.loc, each.why
            self.op(each, inner)
        self.rename(op, [self.local[value] for value in body.returns], inner, b)

    def custom(self, op: Op, b: Builder) -> None:
        """Inline the program of one device of a call, between the reshards that it needs."""
        self.checks.check(op)
        program = device_program_of(op)
        inner = Builder(self.names, b.loc)
        new = {
            param: self.reshard_value(value, program_sharding, inner)
            for param, value, program_sharding in zip(
                program.block.params, op.operands, program.operands, strict=True
            )
        }
        for each in program.block.ops:
            inner.append(copy_op(each, new, self.names))
        results = []
        for result, value, sharding in zip(
            op.results, program.block.returns, program.results, strict=True
        ):
            whole = Value(result.type, result.name, sharding)
            self.local[whole] = new.get(value, value)
            results.append(self.reshard_value(whole, self.checks.sharding(result), inner))
        self.rename(op, results, inner, b)

    def reshard_value(self, value: Value, sharding: Sharding, b: Builder) -> Value:
        """Append the collectives that bring a value to a sharding that no `reshard` states."""
        target = Value(value.type, self.names.fresh(value.name), sharding)
        b.why = "the sharding that the partition function states"
        return self.append_reshard(Op(reshard, (value,), (target,), {}, (), b.loc, b.why), b)

    def append_local(
        self, op: Op, operands: Sequence[Value], b: Builder, blocks: tuple[Block, ...] = ()
    ) -> None:
        """Append the same operation on local types."""
        results = tuple(map(self.local_value, op.results))
        types = tuple(v.type for v in results)
        stated = types[0] if len(types) == 1 else types
        try:
            inferred = infer_types(op.spec, operands, stated, op.attrs, blocks)
        except OperationTypeError as error:
            raise self.checks.error_of(op) from error
        if inferred != types:
            raise self.checks.error_of(op)
        new = op.with_tensors(tuple(operands), results)
        b.append(replace(new, blocks=blocks) if blocks else new)
        self.local.update(zip(op.results, results, strict=True))

    def rename(self, op: Op, results: Sequence[Value], inner: Builder, b: Builder) -> None:
        """Give the values that an operation was lowered to the names of its results."""
        renamed: dict[Value, Value] = {}
        defined = {value for new in inner.ops for value in new.results}
        for result, value in zip(op.results, results, strict=True):
            piece = self.local_value(result)
            if value.type != piece.type:
                raise self.checks.error_of(op)
            if value in defined:
                renamed.setdefault(value, piece)
            self.local[result] = renamed.get(value, value)
        b.ops.extend(substitute(inner.block((), ()), renamed).ops)

    def append_reshard(self, op: Op, b: Builder) -> Value:
        """Append the collectives that bring a value to another sharding."""
        (source,), result = op.operands, op.result
        steps = plan_reshard(
            self.checks.sharding(source), self.checks.sharding(result), result.type, self.planner
        )
        value = self.local[source]
        for i, step in enumerate(steps):
            shape = step.sharding.local_shape(result.type.shape)
            value = self.append_step(step, value, shape, result, i == len(steps) - 1, b)
        return value

    def append_step(
        self,
        step: PlanStep,
        value: Value,
        shape: tuple[int, ...],
        result: Value,
        last: bool,
        b: Builder,
    ) -> Value:
        """Append one collective, and the padding and slicing it needs; the result has the given
        `shape`."""
        attrs = dict(step.attrs)
        fresh = f"{result.name}.{STEP_SUFFIXES[step.kind]}"
        if (
            dim := attrs.get("split", attrs.get("dim"))
        ) is not None and step.kind is not StepKind.ALL_GATHER:
            value = pad_to_size(b, value, dim, shape[dim] * count_positions(attrs["axes"]))
        operands: tuple[Value, ...] = (value,)
        if step.kind is StepKind.UNREDUCE:
            position = b.axis_index(**attrs)
            first = b.eq(position, b.full(0, position.type))
            reduction = self.checks.sharding(result).reduction
            if reduction == "mul" and value.type.dtype in COMPLEX:
                raise PartitionError(
                    f"%{result.name} cannot become unreduced by `mul`: infinite complex numbers "
                    "times 1 are NaN; remove `unreduced[mul]`"
                )
            rest = b.full(identity_element(reduction, value.type.dtype), value.type)
            operands, attrs = (first, value, rest), {}
        spec = OPS["select" if step.kind is StepKind.UNREDUCE else step.kind]
        (type,) = infer_types(spec, operands, None, attrs)
        exact = type.shape == shape
        output = Value(type, result.name if exact and last else self.names.fresh(fresh))
        b.append(Op(spec, operands, (output,), attrs, (), b.loc, b.why))
        if exact:
            return output
        starts = {"starts": (0,) * type.rank, "strides": (1,) * type.rank}
        short = Value(
            type.with_shape(shape), result.name if last else self.names.fresh(f"{fresh}.unpadded")
        )
        b.append(Op(OPS["slice"], (output,), (short,), starts, (), b.loc, b.why))
        return short

    def mask_padding(
        self, local: LocalOp, rule: FactorRule | None, operands: tuple[Value, ...], b: Builder
    ) -> tuple[Value, ...]:
        """Return the operands with padding along reduced factors replaced by the identity."""
        op = local.op
        if rule is None or (reduction := pending_reduction(op, rule)) is None:
            return operands
        folded = rule.of_kind(FactorKind.REDUCE)
        chosen = op.spec.partition.masked if op.spec.partition else None
        result = list(operands)
        first = True
        for i, (value, mapping) in enumerate(zip(op.operands, rule.operands, strict=True)):
            dims = [
                d for d in uneven_dims(value.sharding, value.type.shape) if mapping[d][0] in folded
            ]
            if not dims or (chosen is not None and i not in chosen):
                continue
            # In a product of operands, the padding of one is minus zero and that of the others
            # zero.
            sums = reduction == "add" and not first
            filler = 0 if sums else identity_element(reduction, value.type.dtype)
            why, b.why = b.why, f"the padding of %{value.name} must not contribute"
            result[i] = local.mask_padding(b, operands[i], value, dims, filler)
            b.why, first = why, False
        return tuple(result)


def pad_to_size(b: Builder, value: Value, dim: int, size: int) -> Value:
    """Return the value with padding at the end of a dimension."""
    type, rank = value.type, value.type.rank
    longer = type.with_shape([size if d == dim else n for d, n in enumerate(type.shape)])
    if longer == type:
        return value
    result: Value
    if not type.size:
        result = b.reshape(value, result=longer)
    else:
        # Random keys have no zero, so the padding repeats an existing key.
        none, scalar = (0,) * rank, type.with_shape(())
        if type.dtype in KEYS:
            one = type.with_shape((1,) * rank)
            one_of = b.slice(value, starts=none, strides=(1,) * rank, result=one)
            filler = b.reshape(one_of, result=scalar)
        else:
            filler = b.full(0, scalar)
        high = tuple(size - n if d == dim else 0 for d, n in enumerate(type.shape))
        result = b.pad(
            value, filler, low=none, high=high, interior=none, name=f"{value.name}.padded"
        )
    return result
