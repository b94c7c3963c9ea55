"""The axes along which `out_sharding` may make results unreduced or reduced."""

from collections.abc import Mapping, Sequence

from shardir import ops
from shardir.frontend.errors import ShardingTypeError
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.partial_sum_rules import MOVES_OF_SUMS, copied_axes, find_new_dims
from shardir.frontend.tracing.sharding_type import ShardingType, format_type, replicated_type
from shardir.frontend.tracing.sharding_type_rules import summed_axes
from shardir.ir.module import Op, Value


class PossibleSums:
    """The axes along which results of the operations of a program may be unreduced or reduced."""

    def __init__(self) -> None:
        self._summed: dict[Value, tuple[frozenset[str], bool]] = {}
        """The axes along which a result may be unreduced, and whether it may be so along a part of
        them."""
        self._new_dims: dict[Value, frozenset[int]] = {}  # Those that a reduced axis may shard.

    def record(
        self,
        op: Op,
        identities: Mapping[Value, Value],
        operands: Sequence[ShardingType | None],
        sizes: Mapping[str, int],
    ) -> None:
        """Record an operation; `identities` contains the first name of values that have two."""
        if not op.results:
            return
        result = op.results[0]
        result = identities.get(result, result)
        if op.spec in MOVES_OF_SUMS:
            moved = op.operands[0]
            summed = self._summed.get(identities.get(moved, moved))
        else:
            axes = summed_axes(op, operands, sizes)
            summed = (axes, op.spec is ops.sum_) if axes else None
        if summed is not None:
            self._summed[result] = summed
        if any(type is not None and type.reduced for type in operands):
            self._new_dims[result] = find_new_dims(op, operands)

    def check_out_spec(
        self,
        result: Value,
        type: ShardingType | None,
        spec: PartitionSpec,
        explicit_axes: frozenset[str],
    ) -> None:
        """Refuse an `out_sharding` of an operation that changes its unreduced or reduced axes.

        The result may be unreduced along the axes of its sums, and along those of its operands.
        """
        found = type or replicated_type(result.type.rank)
        possible, stated = found.unreduced, spec.unreduced & explicit_axes
        copies = copied_axes(found, spec, self._new_dims.get(result, frozenset()))
        if stated:
            axes, is_subset = self._summed.get(result, (frozenset(), False))
            # A sum may complete the partial sums of its operand, as in JAX.
            possible = (possible | axes) & stated if is_subset else possible | axes
        for word, requested_axes, own in (
            ("partial sums", stated, possible),
            ("copies whose gradients are summed", spec.reduced & explicit_axes, copies),
        ):
            if requested_axes != own:
                named = " and ".join(map(repr, sorted(own))) or "no axis"
                raise ShardingTypeError(
                    with_location(
                        f"out_sharding has {spec}, and the result of the operation, "
                        f"{format_type(result.type, found)}, has {word} along {named}; state these "
                        "axes, and change them afterwards with sharding.reshard"
                    )
                )
