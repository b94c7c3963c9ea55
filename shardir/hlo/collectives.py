"""The collectives of a module that XLA has partitioned, as rows of the communication report."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardir.cost.collective_bytes import bytes_sent
from shardir.cost.communication import Collective
from shardir.hlo.groups import (
    Groups,
    axes_of_pairs,
    expand_to_partitions,
    name_axes,
    parse_groups,
    parse_pairs,
)
from shardir.hlo.module import (
    Computation,
    HloError,
    HloModule,
    Instruction,
    Shape,
    array_shapes,
)
from shardir.hlo.trip_counts import trip_count
from shardir.ir.location import Loc

KINDS = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)
MAX_CALL_DEPTH = 200
MAX_CALLS = 100_000
"""The maximum number of calls of computations, those of called computations included."""
MAX_FOLLOWED_OPERANDS = 100
"""The maximum number of operands that are followed to find a line."""
_RESULT_IS_SECOND = ("all-gather-start", "collective-permute-start")
"""The result of these is a tuple of the operands, the results, and handles."""


@dataclass(frozen=True, slots=True)
class HloCollectives:
    """The collectives of a module. `rows` are in program order; `arrays` is the number of arrays
    that they communicate: XLA combines collectives of several arrays into one.
    """

    rows: tuple[Collective, ...]
    arrays: int
    executed_arrays: int
    """The number of arrays over all executions; those of loops of unknown length count once."""


def list_hlo_collectives(
    module: HloModule, mesh: Mapping[str, int] | None = None
) -> HloCollectives:
    """Return every collective of a partitioned module, with those of loops and branches.

    `mesh` gives the names and sizes of the axes; without it, collectives are described by the
    number and the size of their groups. A module that is not partitioned has none.
    """
    visit = _Visit(module, dict(mesh or {}))
    rows = tuple(visit.collectives_of(module.entry, 1))
    return HloCollectives(rows, visit.arrays, visit.executed_arrays)


@dataclass
class _Visit:
    module: HloModule
    mesh: dict[str, int]
    arrays: int = 0
    executed_arrays: int = 0
    num_visits: int = 0
    open: list[str] = field(default_factory=list)
    """The computations that are being visited, which cannot call themselves."""

    def collectives_of(self, name: str, times: int | None) -> Iterator[Collective]:
        computation = self.module.computations.get(name)
        if computation is None or name in self.open:
            return
        self.num_visits += 1
        if len(self.open) > MAX_CALL_DEPTH or self.num_visits > MAX_CALLS:
            raise HloError(
                f"the module {self.module.name} has more than {MAX_CALL_DEPTH} calls inside of "
                f"each other, or more than {MAX_CALLS} calls"
            )
        self.open.append(name)
        for instruction in computation.instructions.values():
            kind = instruction.opcode.removesuffix("-start")
            if kind in KINDS:
                yield self._describe(computation, instruction, kind, times)
            elif instruction.opcode == "while":
                count = trip_count(self.module, computation, instruction)
                # The condition of a loop runs once more than its body.
                for part, extra in (("condition", 1), ("body", 0)):
                    called = instruction.attributes.get(part, "").lstrip("%")
                    inner = None if count is None or times is None else times * (count + extra)
                    yield from self.collectives_of(called, inner)
            elif instruction.opcode not in ("async-update", "async-done"):  # Not a second call.
                for called in instruction.callees:
                    yield from self.collectives_of(called, times)
        self.open.pop()

    def _describe(
        self, computation: Computation, op: Instruction, kind: str, times: int | None
    ) -> Collective:
        result = _result_shape(op)
        arrays = list(array_shapes(result))
        # The operands of a variadic all-to-all are the parts of one array.
        count = 1 if kind == "all-to-all" else len(arrays)
        self.arrays += count
        self.executed_arrays += count * (1 if times is None else times)
        nbytes = sum(array.nbytes for array in arrays)
        axes, size = self._axes(op, kind)
        operand_bytes = {"all-gather": nbytes // max(size, 1), "reduce-scatter": nbytes * size}
        loc = _find_loc(computation, op)
        return Collective(
            kind,
            axes,
            size,
            nbytes,
            bytes_sent(kind, operand_bytes.get(kind, nbytes), size),
            times,
            op.name,
            loc,
            op.op_name,
            _combined_locs(computation, op, loc) if count > 1 else (),
        )

    def _axes(self, op: Instruction, kind: str) -> tuple[tuple[str, ...], int]:
        """Return the axes of a collective, or a description of its groups, and their size."""
        count = self.module.partition_count * self.module.replica_count
        if kind == "collective-permute":
            pairs = parse_pairs(op.attributes.get("source_target_pairs", "")) or []
            groups = _connected_groups(pairs)
            size = max(map(len, groups), default=1)
            axes = axes_of_pairs(pairs, self.mesh)
        else:
            device_groups = collective_groups(self.module, op)
            if device_groups is None:
                # All devices are the largest group, so that the bytes are an upper bound.
                return ("unknown groups",), count
            groups = device_groups
            size = max(map(len, groups), default=1)
            axes = name_axes(groups, self.mesh) or ()
        return axes or (_describe_groups(groups),), size


def collective_groups(module: HloModule, op: Instruction) -> Groups | None:
    """Return the groups of devices that communicate in a collective; `None` if it states no groups,
    as a collective-permute, or groups of an unknown form.

    Without global numbers, a channel joins all partitions.
    """
    kind = op.opcode.removesuffix("-start")
    if kind == "collective-permute":
        return None
    text = op.attributes.get("replica_groups", "{}")
    if "device_ids" in op.attributes:  # The printer separates it like an attribute.
        text += f", device_ids={op.attributes['device_ids']}"
    groups = parse_groups(text, module.partition_count * module.replica_count)
    joins = "channel_id" in op.attributes and "use_global_device_ids" not in op.attributes
    if groups is not None and joins and kind in ("all-reduce", "all-gather", "reduce-scatter"):
        if module.replica_count == 1 and groups == {frozenset([0])}:
            return expand_to_partitions(groups, module.partition_count)
        if max(map(max, groups)) < module.replica_count:
            return expand_to_partitions(groups, module.partition_count)
    return groups


def _find_loc(computation: Computation, op: Instruction) -> Loc | None:
    """Return the line of an instruction, or of the nearest one that computes its operands.

    XLA states no line for the collectives that change the sharding of a result of the function.
    """
    pending, seen = [op.name], {op.name}
    while pending and len(seen) <= MAX_FOLLOWED_OPERANDS:
        instruction = computation.instructions.get(pending.pop(0))
        if instruction is None:
            continue
        if instruction.loc is not None:
            return instruction.loc
        for operand in instruction.operands:
            if operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return None


def _combined_locs(computation: Computation, op: Instruction, loc: Loc | None) -> tuple[Loc, ...]:
    """Return the lines of the arrays of a collective, without the one that XLA states for it."""
    operands = (computation.instructions.get(name) for name in op.operands)
    locs = (operand.loc for operand in operands if operand is not None)
    lines = {(each.file, each.line): each for each in locs if each is not None}
    own = None if loc is None else (loc.file, loc.line)
    return tuple(each for line, each in lines.items() if line != own)


def _result_shape(op: Instruction) -> Shape:
    """Return the results of a collective without the operands and handles of an asynchronous
    one."""
    if isinstance(op.shape, tuple) and len(op.shape) > 1:
        first = op.shape[0]
        if op.opcode in _RESULT_IS_SECOND or (
            op.opcode.endswith("-start") and isinstance(first, tuple)
        ):
            return op.shape[1]
    return op.shape


def _connected_groups(pairs: list[tuple[int, int]]) -> Groups:
    """Return the sets of devices that pairs connect."""
    group: dict[int, set[int]] = {}
    for source, target in pairs:
        joined = group.get(source, {source}) | group.get(target, {target})
        for device in joined:
            group[device] = joined
    return frozenset(frozenset(each) for each in group.values())


def _describe_groups(groups: Groups) -> str:
    sizes = sorted({len(group) for group in groups})
    size = " or ".join(map(str, sizes)) or "1"
    return f"{len(groups)} groups of {size}" if len(groups) != 1 else f"{size} devices"
