"""Preconditions of partitioning: the shardings of the tensors of each operation are compatible.

A program that skipped `reshard` raises an error here, so it never computes a wrong result.
"""

from shardir import ops
from shardir.errors import PartitionError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Op, Value
from shardir.ir.sharding import Axes, Axis, DimSharding, Sharding
from shardir.op_rules.factors import FactorRule
from shardir.op_rules.linearity import commuting_groups
from shardir.passes.resharding.align import (
    align,
    partitioning_rule,
    pending_reduction,
    shardable_factors,
)
from shardir.passes.resharding.cost import with_unreduced
from shardir.passes.resharding.explanations import Explanations, factor_name
from shardir.passes.resharding.planner import same_placement
from shardir.passes.resharding.uneven import paddable_factors, uneven_dims
from shardir.passes.rewriting import merge_in_mesh_order

_PENDING = "leaves a pending reduction that no `reshard` completes"
_NEUTRAL_NUMBERS = {"add": 0, "mul": 1}
"""The number of which equal copies reduce to one copy. Other reductions do so for any number."""


def _is_kept_by_reduction(op: Op, reduction: str) -> bool:
    """Return True if equal copies of the result of an operation reduce to one copy."""
    number = _NEUTRAL_NUMBERS.get(reduction)
    return number is None or (op.spec is ops.constant and bool(op.attrs["value"] == number))


class PartitionChecks:
    """Checks the operations of a program on one mesh."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self.words = Explanations(mesh)

    def sharding(self, value: Value) -> Sharding:
        return value.sharding or Sharding.fully_replicated(self.mesh.name, value.type.rank)

    def check(self, op: Op) -> FactorRule | None:
        """Return the factor rule of an operation; raise `PartitionError` if its shardings are not
        aligned."""
        rule = partitioning_rule(op)
        if rule is None:
            if op.spec.partition is None or op.operands:
                raise self.error_of(op, "has no factor rule and cannot be sharded")
            for sharding in map(self.sharding, op.results):
                if sharding.unreduced and not _is_kept_by_reduction(op, sharding.reduction):
                    raise self.error_of(op, _PENDING)
            return None
        shardings = tuple(with_unreduced(self.sharding(v), ()) for v in op.tensors)
        odd = any(uneven_dims(v.sharding, v.type.shape) for v in op.tensors)
        padding = paddable_factors(op, rule) if odd else ()
        fitting = align(rule, shardings, shardable_factors(op, rule), padding)
        for i, (want, got) in enumerate(zip(fitting.tensors, shardings, strict=True)):
            if want.axes != got.axes:
                raise self.error_of(op, self.disagreement(op, rule, i))
        pending = fitting.pending if pending_reduction(op, rule) else ()
        pending = merge_in_mesh_order((*pending, *self.unreduced_axes(op)), self.mesh)
        for value in op.results:
            if self.sharding(value).unreduced != pending:
                raise self.error_of(op, _PENDING)
        return rule

    def unreduced_axes(self, op: Op) -> Axes:
        """Return the axes over which operands, and therefore the result, are unreduced.

        Raises `PartitionError` unless the reduction can be completed after the operation.
        """
        waiting: dict[tuple[str, Axis], set[int]] = {}
        for i, value in enumerate(op.operands):
            sharding = self.sharding(value)
            for axis in sharding.unreduced:
                waiting.setdefault((sharding.reduction, axis), set()).add(i)
        for (reduction, _), places in waiting.items():
            result_sharding = op.results[0].sharding if op.results else None
            groups = map(set, commuting_groups(op, reduction))
            if (
                places not in groups
                or result_sharding is None
                or result_sharding.reduction != reduction
            ):
                value = op.operands[min(places)]
                raise self.error_of(op, f"uses %{value.name}, which is unreduced")
        return tuple(axis for _, axis in waiting)

    def disagreement(self, op: Op, rule: FactorRule, tensor: int) -> str:
        """Describe the factor that is sharded in two ways or cannot be sharded."""
        seen: dict[int, DimSharding] = {}
        for value, mapping in zip(op.tensors, rule.tensors, strict=True):
            for dim, factors in zip(self.sharding(value).dims, mapping, strict=True):
                for factor in factors:
                    other = seen.setdefault(factor, dim)
                    if len(factors) == 1 and other.axes != dim.axes:
                        return (
                            f"shards its factor {factor_name(op, rule, factor)} over "
                            f"{self.words.format_axes(other.axes)} and over "
                            f"{self.words.format_axes(dim.axes)}"
                        )
        return f"cannot run with %{op.tensors[tensor].name} sharded as it is"

    def check_result(self, value: Value, stated: Sharding | None, function: Function) -> None:
        """Raise `PartitionError` unless the sharding of a returned value is the stated one."""
        sharding = self.sharding(value)
        if stated is not None and not same_placement(sharding, stated):
            raise PartitionError(
                f"@{function.name} states the sharding {self.words.format_sharding(stated)} for a "
                f"result, and returns %{value.name} with the sharding "
                f"{self.words.format_sharding(sharding)}; run 'reshard' before 'partition'"
            )

    def error_of(
        self, op: Op, what: str = "does not fit the shards of its operands"
    ) -> PartitionError:
        """Return the error for an operation that cannot run on shards."""
        origin = f" (from {op.loc})" if op.loc else ""
        name = op.results[0].name if op.results else ""
        return PartitionError(
            f"{op.name} {what}; run 'reshard' before 'partition', or constrain %{name}{origin}"
        )
