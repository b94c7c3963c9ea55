"""Partition a program over global tensors into the program that each device runs (SPMD).

before: `%3.part = dot(%h, %w2, dims="bh,ho->bo") : f32[64@data, 128@-] unreduced(model)`
        `%3 = reshard(%3.part) : f32[64@data, 128@-]`
after:  `%3.part = dot(%h, %w2, dims="bh,ho->bo") : f32[16, 128]`
        `%3 = all-reduce(%3.part, axes=[model], op=add) : f32[16, 128]`

Types shrink to the shards of one device; with sharded factors, most operations remain unchanged,
attributes included. Operations that need more declare it (`shardir.partitioning`). Every `reshard`
becomes the collectives of the planner, which keep its `why`. The function records in its
`Interface` how its parameters and results are sharded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from shardir.build import Builder, Names, infer, substitute
from shardir.divergence import divergences
from shardir.errors import OperationTypeError, PartitionError
from shardir.factors import FactorRule, Kind
from shardir.ir import Block, Function, Global, Interface, Module, Op, Value
from shardir.mesh import Mesh
from shardir.ops.manual import manual_computation
from shardir.opset import OPS
from shardir.partitioning import Local, identity, local_type
from shardir.passes.align import loops_of, reduction_of
from shardir.passes.partition_checks import Checks
from shardir.passes.pipeline import Pass
from shardir.passes.planner import PLANNERS, Step, plan
from shardir.passes.program import names_of, rebuild_global_programs
from shardir.passes.reasons import Words
from shardir.passes.reshard import IDENTITIES
from shardir.passes.uneven import uneven_dims
from shardir.placement import size_of
from shardir.types import COMPLEX

SUFFIX = {
    "all-slice": "slice",
    "all-gather": "gather",
    "all-to-all": "turn",
    "collective-permute": "swap",
    "all-reduce": "sum",
    "reduce-scatter": "scatter",
    "unreduce": "first",
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
    cutter = _Cutter(mesh, names_of(function), planner)
    body = function.body
    for value, asked in zip(body.returns, function.results, strict=True):
        cutter.checks.check_result(value, asked, function)
    interface = Interface(
        tuple(Global(p.type, cutter.checks.sharding(p)) for p in body.params),
        tuple(Global(v.type, cutter.checks.sharding(v)) for v in body.returns),
    )
    made = Function(function.name, cutter.block(body), (None,) * len(body.returns), interface)
    for found in divergences(made):
        origin = f" (from {found.collective.loc})" if found.collective.loc else ""
        raise PartitionError(found.told(f"%{found.decision.name}", (mesh,)) + origin)
    return made


class _Cutter:
    """Partitions the blocks of one function."""

    def __init__(self, mesh: Mesh, names: Names, planner: str) -> None:
        self.mesh, self.names, self.planner = mesh, names, planner
        self.words = Words(mesh)
        self.checks = Checks(mesh)
        self.local: dict[Value, Value] = {}

    def piece(self, value: Value) -> Value:
        """Return the shard of a value, under the same name."""
        return Value(local_type(value), value.name)

    def block(self, block: Block) -> Block:
        params = tuple(map(self.piece, block.params))
        self.local.update(zip(block.params, params, strict=True))
        b = Builder(self.names)
        for op in block.ops:
            b.loc, b.why = op.loc, op.why
            self.op(op, b)
        return b.block(params, [self.local[v] for v in block.returns])

    def op(self, op: Op, b: Builder) -> None:
        if op.name in IDENTITIES:
            self.local[op.result] = self.move(op, b)
            return
        operands = tuple(self.local[v] for v in op.operands)
        if op.spec is manual_computation:
            self.manual(op, operands, b)
            return
        if op.blocks or op.spec.edges:
            blocks = tuple(map(self.block, op.blocks))
            self.keep(replace(op, operands=operands, blocks=blocks), op, b)
            return
        if not any(
            v.sharding and (v.sharding.unreduced or any(v.sharding.axes)) for v in op.tensors
        ):
            self.keep(replace(op, operands=operands), op, b)
            return
        local = Local(op, self.mesh)
        operands = self.masked(local, self.checks.check(op), operands, b)
        declared = op.spec.partition
        if declared is not None and declared.lower is not None:
            inner = Builder(self.names, b.loc)
            inner.why = b.why
            made = declared.lower(inner, local, *operands, **op.attrs)
            self.explain(op, inner)
            self.rename(op, (made,) if isinstance(made, Value) else tuple(made), inner, b)
        else:
            self.keep(replace(op, operands=operands), op, b)

    def explain(self, op: Op, inner: Builder) -> None:
        """Record in `why` the cause of the collectives that an operation is lowered to."""
        rule = loops_of(op)
        for i, new in enumerate(inner.ops):
            if rule is not None and new.spec.collective and new.why == op.why:
                why = self.words.within(op, rule)
                inner.ops[i] = replace(new, why=f"{why}; {op.why}" if op.why else why)

    def manual(self, op: Op, operands: Sequence[Value], b: Builder) -> None:
        """Inline the body of a manual computation, which is a per-device program already."""
        (body,) = op.blocks
        for param, value in zip(body.params, operands, strict=True):
            if self.piece(param).type != value.type:
                raise self.checks.misfit(op)
            self.local[param] = value
        inner = Builder(self.names, b.loc)
        for each in body.ops:
            inner.loc, inner.why = each.loc, each.why
            self.op(each, inner)
        self.rename(op, [self.local[value] for value in body.returns], inner, b)

    def keep(self, op: Op, old: Op, b: Builder) -> None:
        """Append the same operation on local types."""
        results = tuple(map(self.piece, old.results))
        types = tuple(v.type for v in results)
        stated = types[0] if len(types) == 1 else types
        try:
            inferred = infer(op.spec, op.operands, stated, op.attrs, op.blocks)
        except OperationTypeError as error:
            raise self.checks.misfit(old) from error
        if inferred != types:
            raise self.checks.misfit(old)
        b.append(replace(op, results=results))
        self.local.update(zip(old.results, results, strict=True))

    def rename(self, op: Op, made: Sequence[Value], inner: Builder, b: Builder) -> None:
        """Give the values that an operation was lowered to the names of its results."""
        renamed: dict[Value, Value] = {}
        defined = {value for new in inner.ops for value in new.results}
        for result, value in zip(op.results, made, strict=True):
            piece = self.piece(result)
            if value.type != piece.type:
                raise self.checks.misfit(op)
            if value in defined:
                renamed.setdefault(value, piece)
            self.local[result] = renamed.get(value, value)
        b.ops.extend(substitute(inner.block((), ()), renamed).ops)

    def move(self, op: Op, b: Builder) -> Value:
        """Append the collectives that bring a value to another sharding."""
        (source,), result = op.operands, op.result
        steps = plan(
            self.checks.sharding(source), self.checks.sharding(result), result.type, self.planner
        )
        value = self.local[source]
        for i, step in enumerate(steps):
            shape = step.sharding.local_shape(result.type.shape)
            value = self.step(step, value, shape, result, i == len(steps) - 1, b)
        return value

    def step(
        self,
        step: Step,
        value: Value,
        shape: tuple[int, ...],
        result: Value,
        last: bool,
        b: Builder,
    ) -> Value:
        """Append one collective, and the padding and slicing it needs; the result has the given
        `shape`."""
        attrs = dict(step.attrs)
        fresh = f"{result.name}.{SUFFIX[step.name]}"
        if (dim := attrs.get("split", attrs.get("dim"))) is not None and step.name != "all-gather":
            value = lengthened(b, value, dim, shape[dim] * size_of(attrs["axes"]))
        operands: tuple[Value, ...] = (value,)
        if step.name == "unreduce":
            place = b.axis_index(**attrs)
            first = b.eq(place, b.full(0, place.type))
            reduction = self.checks.sharding(result).reduction
            if reduction == "mul" and value.type.dtype in COMPLEX:
                raise PartitionError(
                    f"%{result.name} cannot become unreduced by `mul`: infinite complex numbers "
                    "times 1 are NaN; remove `unreduced[mul]`"
                )
            rest = b.full(identity(reduction, value.type.dtype), value.type)
            operands, attrs = (first, value, rest), {}
        spec = OPS["select" if step.name == "unreduce" else step.name]
        (type,) = infer(spec, operands, None, attrs)
        exact = type.shape == shape
        made = Value(type, result.name if exact and last else self.names.fresh(fresh))
        b.append(Op(spec, operands, (made,), attrs, (), b.loc, b.why))
        if exact:
            return made
        starts = {"starts": (0,) * type.rank, "strides": (1,) * type.rank}
        short = Value(
            type.with_shape(shape), result.name if last else self.names.fresh(f"{fresh}.cut")
        )
        b.append(Op(OPS["slice"], (made,), (short,), starts, (), b.loc, b.why))
        return short

    def masked(
        self, local: Local, rule: FactorRule | None, operands: tuple[Value, ...], b: Builder
    ) -> tuple[Value, ...]:
        """Return the operands with padding along reduced factors replaced by the identity."""
        op = local.op
        reduction = reduction_of(op, rule) if rule else None
        if rule is None or reduction is None:
            return operands
        folded = rule.of_kind(Kind.REDUCE)
        chosen = op.spec.partition.masked if op.spec.partition else None
        made = list(operands)
        first = True
        for i, (value, mapping) in enumerate(zip(op.operands, rule.operands, strict=True)):
            dims = [
                d
                for d in uneven_dims(value.sharding, value.type.shape)
                if mapping[d] and mapping[d][0] in folded
            ]
            if not dims or (chosen is not None and i not in chosen):
                continue
            # In a product of operands, the padding of one is minus zero and that of the others
            # zero.
            sums = reduction == "add" and not first
            filler = 0 if sums else identity(reduction, value.type.dtype)
            why, b.why = b.why, f"the padding of %{value.name} must not contribute"
            made[i] = local.masked(b, operands[i], value, dims, filler)
            b.why, first = why, False
        return tuple(made)


def lengthened(b: Builder, value: Value, dim: int, size: int) -> Value:
    """Return the value with padding at the end of a dimension."""
    type, rank = value.type, value.type.rank
    longer = type.with_shape([size if d == dim else n for d, n in enumerate(type.shape)])
    if longer == type:
        return value
    made: Value
    if not type.size:
        made = b.reshape(value, result=longer)
    else:
        # Random keys have no zero, so the padding repeats an existing key.
        none, scalar = (0,) * rank, type.with_shape(())
        if type.dtype == "key":
            one = type.with_shape((1,) * rank)
            one_of = b.slice(value, starts=none, strides=(1,) * rank, result=one)
            filler = b.reshape(one_of, result=scalar)
        else:
            filler = b.full(0, scalar)
        high = tuple(size - n if d == dim else 0 for d, n in enumerate(type.shape))
        made = b.pad(value, filler, low=none, high=high, interior=none, name=f"{value.name}.long")
    return made
