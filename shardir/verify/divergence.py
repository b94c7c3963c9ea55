"""Divergence analysis: whether all devices of a mesh execute the same collectives in order.

Control flow in a per-device program diverges only at a loop or branch whose predicate differs
between devices. The analysis computes the classes of mesh positions at which each value is equal:
arguments differ along the axes that shard them, `axis-index` along its own axes, gathered or
reduced values do not differ along the axes of the collective, and other results differ where their
operands do. A collective inside a loop or branch with a divergent predicate would be executed by
only some devices: the program would deadlock or mix up messages. If the predicate is equal on the
devices of each group of the collective, the collective has a meaning, and
`uniform-control-flow` can make all devices execute it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from shardir import ops
from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.dtypes import INEXACT
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.operation import Attr
from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ops.communication.async_collectives import synchronous_spec
from shardir.text.printer import find_mesh_with_axis, format_axis
from shardir.verify.position_classes import EQUAL, Classes, PositionClasses

UNIFYING_COLLECTIVES = (ops.all_reduce, ops.all_gather)
"""Operations whose results are equal on all devices along their axes."""


@dataclass(frozen=True)
class Divergence:
    """A collective that only some devices execute:

    the loop or branch `control_op` depends on `predicate`, which differs along `axes`.
    `is_equal_in_groups` states whether this predicate and those of all other loops and branches
    around the collective are equal on the devices of each group of the collective.
    """

    collective: Op
    control_op: Op
    predicate: Value
    axes: Axes
    is_equal_in_groups: bool

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
    return _DivergenceAnalysis(function).find()


def find_differing(function: Function) -> dict[Value, Axes]:
    """Return the mesh axes along which the values of a per-device function may differ.

    A value that is not listed does not differ.
    """
    analysis = _DivergenceAnalysis(function)
    analysis.find()
    return {value: analysis.axes_of(value) for value in analysis.classes}


def _is_control_flow(op: Op) -> bool:
    return op.spec in (ops.while_, ops.case)


class _DivergenceAnalysis:
    """Computes the classes of mesh positions at which each value is equal."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.classes: dict[Value, Classes] = {}
        self.positions = PositionClasses(_named_axes(function), _moves(function))
        self.changed = False
        assert function.spmd is not None
        for value, outer in zip(function.body.params, function.spmd.params, strict=True):
            sharding = outer.sharding
            axes = (*sharding.used_axes(), *sharding.unreduced)
            self.separate(value, self.positions.along(axes))

    def find(self) -> list[Divergence]:
        self.changed = True
        while self.changed:  # Iterate to a fixed point; loops need several rounds.
            self.changed = False
            self.visit_block(self.function.body)
        return list(dict.fromkeys(self.find_collectives(self.function.body, ())))

    def axes_of(self, value: Value) -> Axes:
        """Return the axes along which a value may differ."""
        return self.positions.differing_axes(self.classes.get(value, EQUAL))

    def separate(self, value: Value, classes: Classes) -> None:
        """State that a value may differ between positions of different classes."""
        old = self.classes.get(value, EQUAL)
        new = self.positions.meet(old, classes)
        if new != old:
            self.classes[value] = new
            self.changed = True

    def classes_of(self, values: Iterable[Value]) -> Classes:
        """Return the classes of a function of the values."""
        return reduce(self.positions.meet, (self.classes.get(v, EQUAL) for v in values), EQUAL)

    def visit_block(self, block: Block) -> None:
        for op in block.ops:
            if not op.blocks:
                classes = self.classes_of_results(op)
                for value in op.results:
                    self.separate(value, classes)
                continue
            edges = op.edges()
            for edge in edges:
                for target in edge.targets:
                    self.separate(target, self.classes_of(edge.sources))
            for inner in op.blocks:
                self.visit_block(inner)
            decided = self.classes_of(self.predicates_of(op))
            bound = {target for edge in edges for target in edge.targets}
            for value in op.results:
                self.separate(value, decided)
                if value not in bound:
                    self.separate(value, self.classes_of(v for b in op.blocks for v in b.returns))

    def predicates_of(self, op: Op) -> tuple[Value, ...]:
        """Return the predicate of a control flow operation."""
        if not _is_control_flow(op):
            return ()
        return op.blocks[0].returns if op.spec is ops.while_ else op.operands[:1]

    def classes_of_results(self, op: Op) -> Classes:
        """Return the classes of the results of an operation without blocks."""
        classes, spec = self.classes_of(op.operands), synchronous_spec(op)
        axes: Axes = op.attrs.get("axes", ())
        if spec in UNIFYING_COLLECTIVES:
            # Sums of floating-point numbers depend on the order of the terms.
            in_order = spec is ops.all_gather or op.result.type.dtype in INEXACT
            return self.positions.gather(classes, axes, in_order)
        if spec is ops.collective_permute:
            return self.classes_after_permute(classes, op.attrs)
        if op.spec.collective:
            return self.positions.exchange(classes, axes)
        return self.positions.meet(classes, self.positions.along(axes))

    def classes_after_permute(self, classes: Classes, attributes: Mapping[str, Attr]) -> Classes:
        """Return the classes of the result of a collective permute."""
        axes: Axes = attributes.get("axes", ())
        if not axes:
            return self.positions.permute(classes, attributes["source"], attributes["target"])
        # If each position receives a value, those that are equal along the axes stay so.
        is_complete = len(attributes["pairs"]) == count_positions(axes)
        if is_complete and self.positions.gather(classes, axes) == classes:
            return classes
        return self.positions.exchange(classes, axes)

    def find_collectives(
        self, block: Block, under: tuple[tuple[Op, Value], ...]
    ) -> Iterator[Divergence]:
        """Yield the collectives below divergent predicates; `under` holds these, from the outermost
        to the innermost, with the loops and branches that depend on them."""
        for op in block.ops:
            if under and op.spec.collective:
                yield self.describe_divergence(op, under)
            differing = tuple((op, v) for v in self.predicates_of(op) if v in self.classes)
            for inner in op.blocks:
                yield from self.find_collectives(inner, under + differing)

    def describe_divergence(
        self, collective: Op, under: tuple[tuple[Op, Value], ...]
    ) -> Divergence:
        """Return the divergence of a collective; it names the outermost predicate that differs
        within a group of the collective, or the outermost one if none does."""
        axes = crossed_axes(collective.attrs)
        differing = [
            (op, predicate)
            for op, predicate in under
            if not self.positions.is_equal_along(self.classes[predicate], axes)
        ]
        control_op, predicate = (differing or under)[0]
        return Divergence(collective, control_op, predicate, self.axes_of(predicate), not differing)


def _named_axes(function: Function) -> Iterator[Axis]:
    """Yield every axis that the function mentions."""
    assert function.spmd is not None
    for outer in function.spmd.params:
        yield from (*outer.sharding.used_axes(), *outer.sharding.unreduced)
    for op in function.body.walk():
        yield from crossed_axes(op.attrs)


def _moves(function: Function) -> Iterator[tuple[Axes, Axes]]:
    """Yield the source and target axes of every permute that states them."""
    for op in function.body.walk():
        if synchronous_spec(op) is ops.collective_permute and not op.attrs.get("axes"):
            yield op.attrs["source"], op.attrs["target"]
