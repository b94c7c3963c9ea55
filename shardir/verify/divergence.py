"""Divergence analysis: whether all devices of a mesh execute the same collectives in order.

Control flow in a per-device program diverges only at a loop or branch whose predicate differs
between devices. The analysis computes the mesh axes along which each value may differ, without
enumerating devices: arguments differ along the axes that shard them, `axis-index` along its own
axes, gathered or reduced values do not differ along the axes of the collective, and other results
differ along the axes of their operands. A collective inside a loop or branch with a divergent
predicate would be executed by only some devices: the program would deadlock or mix up messages.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from math import lcm

from shardir import ops
from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.sharding import Axes, Axis
from shardir.ir.sub_axes import append_axis, can_coexist, is_overlapping
from shardir.ops.communication.async_collectives import synchronous_spec
from shardir.text.printer import find_mesh_with_axis, format_axis

AxisParts = frozenset[Axis]
"""Parts of mesh axes that do not overlap."""
NO_PARTS: AxisParts = frozenset()
UNIFYING_COLLECTIVES = (ops.all_reduce, ops.all_gather)
"""Operations whose results are equal on all devices along their axes."""
MAX_REFINEMENTS = 16
"""The maximum number of refinements that are tried if uses of an axis have no common one."""


@dataclass(frozen=True)
class Divergence:
    """A collective that only some devices execute:

    the loop or branch `control_op` depends on `predicate`, which differs along `axes`.
    """

    collective: Op
    control_op: Op
    predicate: Value
    axes: Axes

    def message(self, decision: str, meshes: tuple[Mesh, ...]) -> str:
        """Return the error message, in which `decision` is the name of the predicate."""
        along = ", ".join(
            format_axis(axis, find_mesh_with_axis(axis.name, meshes)) for axis in self.axes
        )
        return (
            f"{self.collective.name} may be executed by only some devices: {self.control_op.name} "
            f"depends on {decision}, which differs along {along}; use a value that is equal on "
            "all devices, such as an all-reduce of it"
        )


def find_divergences(function: Function) -> list[Divergence]:
    """Return every collective of a per-device function that some devices may not execute."""
    risky = any(
        inner.spec.collective
        for op in function.body.walk()
        if _is_control_flow(op)
        for block in op.blocks
        for inner in block.walk()
    )
    if not risky:
        return []
    # Each refinement over-approximates divergence, so their intersection is used.
    first, *others = (
        _DivergenceAnalysis(function, bounds).find() for bounds in _refinements(function)
    )
    met = [{divergence.collective for divergence in divergences} for divergences in others]
    return [d for d in first if all(d.collective in divergences for divergences in met)]


def find_differing(function: Function) -> dict[Value, AxisParts]:
    """Return the axis parts along which the values of a per-device function may differ.

    A value that is not listed does not differ.
    """
    ways = _DivergenceAnalysis(function, next(_refinements(function)))
    ways.find()
    return ways.differs


def _is_control_flow(op: Op) -> bool:
    return op.spec in (ops.while_, ops.case)


class _DivergenceAnalysis:
    """Computes the axis parts along which each value differs, for one refinement of the axes."""

    def __init__(self, function: Function, bounds: dict[str, Axes]) -> None:
        self.function = function
        self.differs: dict[Value, AxisParts] = {}
        self.changed = False
        self.bounds = bounds
        assert function.spmd is not None
        for value, outer in zip(function.body.params, function.spmd.params, strict=True):
            sharding = outer.sharding
            self.mark_differing(
                value, self.overlapping_parts((*sharding.used_axes(), *sharding.unreduced))
            )

    def find(self) -> list[Divergence]:
        self.changed = True
        while self.changed:  # Iterate to a fixed point; loops need several rounds.
            self.changed = False
            self.visit_block(self.function.body)
        return list(dict.fromkeys(self.find_collectives(self.function.body, None)))

    def mark_differing(self, value: Value, parts: AxisParts) -> None:
        old_parts = self.differs.get(value)
        if old_parts is None or not parts <= old_parts:
            self.differs[value] = parts | (old_parts or NO_PARTS)
            self.changed = True

    def parts_of(self, values: Iterable[Value]) -> AxisParts:
        return NO_PARTS.union(*(self.differs.get(value, NO_PARTS) for value in values))

    def visit_block(self, block: Block) -> None:
        for op in block.ops:
            if not op.blocks:
                parts = self.parts_of_results(op)
                for value in op.results:
                    self.mark_differing(value, parts)
                continue
            edges = op.edges()
            for edge in edges:
                for target in edge.targets:
                    self.mark_differing(target, self.parts_of(edge.sources))
            for inner in op.blocks:
                self.visit_block(inner)
            decided = self.parts_of(self.predicates_of(op))
            bound = {target for edge in edges for target in edge.targets}
            for value in op.results:
                more = (
                    NO_PARTS
                    if value in bound
                    else self.parts_of(v for b in op.blocks for v in b.returns)
                )
                self.mark_differing(value, decided | more)

    def predicates_of(self, op: Op) -> tuple[Value, ...]:
        """Return the predicate of a control flow operation."""
        if not _is_control_flow(op):
            return ()
        return op.blocks[0].returns if op.spec is ops.while_ else op.operands[:1]

    def parts_of_results(self, op: Op) -> AxisParts:
        """Return the parts along which the results of an operation without blocks differ."""
        parts, spec = self.parts_of(op.operands), synchronous_spec(op)
        axes = op.attrs.get("axes", ())
        if spec in UNIFYING_COLLECTIVES:
            crossing = [a for a in axes if not all(can_coexist(a, p) for p in parts)]
            return (parts | self.overlapping_parts(crossing)) - self.contained_parts(axes)
        if spec is ops.reduce_scatter:
            return (parts - self.contained_parts(axes)) | self.overlapping_parts(axes)
        if spec is ops.collective_permute and not axes:
            return self.parts_after_permute(parts, op.attrs["source"], op.attrs["target"])
        if op.spec.exchange is not None or op.spec.spmd:
            return parts | self.overlapping_parts(axes)
        return parts

    def parts_after_permute(self, parts: AxisParts, source: Axes, target: Axes) -> AxisParts:
        """Return the parts after a permute: differences along `source` become differences along
        `target`, and vice versa for axes that only one of them has.
        """
        old, new = self.overlapping_parts(source), self.overlapping_parts(target)
        if not parts & (old | new):
            return parts
        result = parts - self.contained_parts(source) - self.contained_parts(target)
        result |= new if parts & old else NO_PARTS
        return result | (old - new if parts & (new - old) else NO_PARTS)

    def find_collectives(
        self, block: Block, under: tuple[Op, Value] | None
    ) -> Iterator[Divergence]:
        """Yield the collectives below a divergent predicate; `under` is the outermost one."""
        for op in block.ops:
            if under and op.spec.collective:
                yield Divergence(op, *under, self.merge_parts(self.differs[under[1]]))
            differing = (v for v in self.predicates_of(op) if self.differs.get(v))
            decision = next(differing, None)
            inside = under or (None if decision is None else (op, decision))
            for inner in op.blocks:
                yield from self.find_collectives(inner, inside)

    # Parts of axes

    def overlapping_parts(self, axes: Sequence[Axis]) -> AxisParts:
        """Return the parts that overlap any of `axes` or cannot coexist with one."""
        return frozenset(p for a in axes for p in self.bounds[a.name] if is_overlapping((p,), (a,)))

    def contained_parts(self, axes: Sequence[Axis]) -> AxisParts:
        """Return the parts that one of `axes` contains."""
        return frozenset(p for a in axes for p in self.bounds[a.name] if a.contains(p))

    def merge_parts(self, parts: AxisParts) -> Axes:
        joined: Axes = ()
        for part in sorted(parts):
            joined = append_axis(joined, part)
        return joined


def _refinements(function: Function) -> Iterator[dict[str, Axes]]:
    """Yield refinements of each named mesh axis into parts from which every use is composed.

    If there is no common refinement, the refinements of subsets of the uses are yielded, up to a
    limit.
    """
    ends: dict[str, set[int]] = {}
    for axis in _named_axes(function):
        ends.setdefault(axis.name, {1}).update((axis.pre, axis.next))
    ways = [
        [
            tuple(Axis(name, low, high // low) for low, high in pairwise(chain))
            for chain in _divisor_chains(sorted({*found, lcm(*found)}))
        ]
        for name, found in ends.items()
    ]
    for parts in islice(product(*ways), MAX_REFINEMENTS):
        yield dict(zip(ends, parts, strict=True))


def _divisor_chains(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the maximal divisor chains from the first to the last of ascending integers."""
    first, *rest = numbers
    if not rest:
        yield (first,)
    for i, number in enumerate(rest):
        between = [n for n in rest[:i] if number % n == 0 and n % first == 0]
        if number % first == 0 and not between:
            for chain in _divisor_chains(rest[i:]):
                yield (first, *chain)


def _named_axes(function: Function) -> Iterator[Axis]:
    """Yield every axis that the function mentions."""
    assert function.spmd is not None
    for outer in function.spmd.params:
        yield from (*outer.sharding.used_axes(), *outer.sharding.unreduced)
    for op in function.body.walk():
        yield from crossed_axes(op.attrs)
