"""Insert the reshards that OpenXLA Shardy inserts.

before: `%y = slice(%x, starts=[0], strides=[1]) : f32[8@-]` with `%x: f32[16@x]`
after:  `%x.unsharded = reshard(%x) : f32[16@-]`, then
        `%y = slice(%x.unsharded, starts=[0], strides=[1]) : f32[8@-]`

The decisions are those of Shardy's pass `insert-explicit-reshards{enable-full-version=true}`, see
`shardir.passes.resharding.align_as_shardy`. Operations that cannot run on shards after this pass
are left to a following `reshard`, as Shardy leaves them to `resolve-permutation-factors`. If
shardings are on meshes that differ only in device order, operations run on the mesh of most of
their tensors.

An operation with a result on a single device runs there: all its operands are resharded to the
device, and all its results from it, to their stated sharding or replicated over the mesh.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from shardir.errors import PartitionError
from shardir.ir.dtypes import KEYS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Loc, Module, Op, Value
from shardir.ir.sharding import Axes, Sharding
from shardir.ir.sub_axes import take_disjoint_part
from shardir.ir.types import TOKEN
from shardir.op_rules.factors import FactorRule
from shardir.passes.pipeline import Pass
from shardir.passes.propagation.manual_computations import remove_manual_axes
from shardir.passes.resharding.align import Alignment, pending_reduction
from shardir.passes.resharding.align_as_shardy import align_as_shardy
from shardir.passes.resharding.cost import with_unreduced
from shardir.passes.resharding.reshard import (
    Reshard,
    ReshardInserter,
    ReshardScope,
    insert_reshards,
)
from shardir.passes.rewriting import all_values


@dataclass(frozen=True)
class InsertExplicitReshards(Pass, name="insert-explicit-reshards"):
    """Insert `reshard` wherever Shardy inserts it."""

    def __call__(self, module: Module) -> Module:
        functions = tuple(
            function if function.spmd else _rewrite_function(function, module)
            for function in module.functions
        )
        return replace(module, functions=functions)


def _rewrite_function(function: Function, module: Module) -> Function:
    used = [v.sharding.mesh for v in all_values(function.body) if v.sharding]
    used += [s.mesh for s in function.result_shardings if s]
    meshes = [mesh for name in dict.fromkeys(used) if (mesh := module.mesh(name)).axes]
    meshes += [mesh for mesh in module.meshes if mesh.axes]
    return (
        insert_reshards(function, _ShardyReshardInserter(meshes[0], function, module))
        if meshes
        else function
    )


class _ShardyReshardInserter(ReshardInserter):
    """Rebuilds the blocks of one function as Shardy does."""

    def __init__(self, mesh: Mesh, function: Function, module: Module) -> None:
        super().__init__(mesh, function, Reshard())
        self.meshes = {mesh.name: mesh for mesh in module.meshes}

    def close_sharding(
        self, sharding: Sharding | None, value: Value, *, border: bool = False
    ) -> Sharding:
        """Return the sharding closed. A later pass checks divisibility."""
        if sharding is None:
            return Sharding.fully_replicated(self.mesh.name, value.type.rank)
        return replace(sharding.close(), replicated=())

    def trim_padding(self, value: Value) -> Value:
        """Return a value at the boundary of a manual computation, pending reductions included."""
        return self.close_value(value)

    def manual_result_sharding(self, op: Op, value: Value, result: Value) -> Sharding:
        """Return the stated sharding of the result without manual axes; the reshard to it is inside
        of the body."""
        return remove_manual_axes(self.sharding_of(result), op.attrs["axes"])

    def result_sharding(self, sharding: Sharding | None, old: Value, new: Value) -> Sharding:
        """Return the sharding of a function result: unsharded if none is stated."""
        return self.close_sharding(sharding, old)

    def same(self, a: Sharding, b: Sharding) -> bool:
        """Return whether both shardings are equal, device order and single devices included."""
        if not super().same(a, b):
            return False
        if self.is_single(a) or self.is_single(b):
            return self.meshes[a.mesh].device_ids == self.meshes[b.mesh].device_ids
        return self.meshes[a.mesh].device_ids == self.meshes[b.mesh].device_ids or not any(a.axes)

    def is_single(self, sharding: Sharding) -> bool:
        """Return whether a tensor is on a single device."""
        return self.meshes[sharding.mesh].is_maximal

    def plain(self, op: Op, scope: ReshardScope, new_ops: list[Op]) -> None:
        """Rewrite an operation without blocks, which runs on a single device if a result is
        there."""
        meshes = {v.sharding.mesh for v in op.results if v.sharding and self.is_single(v.sharding)}
        if not meshes:
            super().plain(op, scope, new_ops)
            return
        mesh, *others = sorted(meshes)
        for other in others:
            if self.meshes[other].device_ids != self.meshes[mesh].device_ids:
                raise PartitionError(
                    f"%{op.results[0].name} = {op.name} has results on the single devices of "
                    f"@{mesh} and @{other}; state one device for all of them"
                )
        operands = []
        for i, value in enumerate(map(scope.value, op.operands)):
            why = f"operand {i} of %{op.results[0].name} = {op.name} needs the device of @{mesh}"
            there = self.on_device(value, mesh)
            operands.append(self.reshard_value(value, there, scope, new_ops, op.loc, why))
        results, raw = [], []
        for value in map(self.close_value, op.results):
            if self.is_single(self.sharding_of(value)):
                value = replace(value, sharding=self.whole(value))
            results.append(value)
            raw.append(self.unresharded_result(value, self.on_device(value, mesh)))
        self.finish(op, op.with_tensors(tuple(operands), op.results), results, raw, scope, new_ops)

    def on_device(self, value: Value, mesh: str) -> Sharding:
        """Return the sharding of a tensor on the single device of a mesh; a token has no device."""
        if value.type.dtype == TOKEN:
            return self.sharding_of(value)
        return Sharding.fully_replicated(mesh, value.type.rank)

    def factor_rule(self, op: Op) -> FactorRule | None:
        return op.factors()

    def align_operation(
        self,
        op: Op,
        rule: FactorRule | None,
        operands: Sequence[Value],
        results: Sequence[Value],
    ) -> tuple[Alignment, str | None]:
        """Return the alignment of an operation; without factor rule or common mesh it stays as it
        is."""
        places = tuple(map(self.sharding_of, (*operands, *results)))
        mesh = self.common_mesh(places)
        stated = "custom>" in str(op.attrs.get("attributes", ""))
        if rule is None or mesh is None or stated:
            return Alignment(places, (), ()), None
        shardings = tuple(
            replace(sharding, mesh=mesh, unreduced=(), reduction="add") for sharding in places
        )
        elements = tuple(prod(value.type.shape) for value in (*operands, *results))
        reshapes = "stablehlo.reshape" in (op.attrs.get("operation"), f"stablehlo.{op.name}")
        aligned = align_as_shardy(rule, shardings, elements, reshapes)
        # Random keys have no sum.
        keys = any(result.type.dtype in KEYS for result in results)
        reduction = None if keys else pending_reduction(op, rule)
        return self.keep_unreduced(aligned, places, len(operands)), reduction

    def keep_unreduced(
        self, aligned: Alignment, places: Sequence[Sharding], count: int
    ) -> Alignment:
        """Return the alignment with the axes that stay unreduced from operands to results.

        Axes that shard a tensor of the operation do not stay unreduced: the operand is reduced
        before. Neither do the axes of an operand that another reduction combines than the result.
        """
        unreduced_axes = places[count].unreduced if len(places) > count else ()
        kept_reduction = places[count].reduction if len(places) > count else "add"
        sharding_axes = [axis for each in aligned.tensors for axes in each.axes for axis in axes]
        used = (*sharding_axes, *aligned.pending)
        unreduced_axes = tuple(
            axis for axis in unreduced_axes if take_disjoint_part(axis, used) == axis
        )
        tensors = [
            with_unreduced(
                sharding, _intersection(placement.unreduced, unreduced_axes), kept_reduction
            )
            if placement.reduction == kept_reduction
            else sharding
            for sharding, placement in zip(aligned.tensors[:count], places, strict=False)
        ]
        unreduced = tuple(dict.fromkeys(axis for each in tensors for axis in each.unreduced))
        results = (
            with_unreduced(sharding, unreduced, kept_reduction)
            for sharding in aligned.tensors[count:]
        )
        return replace(aligned, tensors=(*tensors, *results))

    def common_mesh(self, places: Sequence[Sharding]) -> str | None:
        """Return the mesh of most of the sharded tensors; `None` if the axes of their meshes
        differ."""
        counts = Counter(sharding.mesh for sharding in places if any(sharding.axes))
        if len({self.meshes[name].axes for name in counts}) > 1:
            return None
        return counts.most_common(1)[0][0] if counts else self.mesh.name

    def reshard_value(
        self,
        value: Value,
        target: Sharding,
        scope: ReshardScope,
        new_ops: list[Op],
        loc: Loc | None,
        why: str,
    ) -> Value:
        """Insert a reshard for each use; `cse` merges equal ones later."""
        scope.resharded.clear()
        return super().reshard_value(value, target, scope, new_ops, loc, why)


def _intersection(axes: Axes, others: Axes) -> Axes:
    return tuple(axis for axis in axes if axis in others)
