"""The propagation record of one function, indexed for queries.

Propagation keeps the sharding of each value in a cell; values that are connected around a loop
share one. A *place* is a dimension of a cell. Axes come to places in steps and are refused there;
the history indexes the steps and refusals of each cell, its stated sharding, and its final
sharding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from shardir import ops
from shardir.ir.location import SourceLocations
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Loc, Module, Op, Value
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorRule
from shardir.passes.explain.reports import Annotation, Subject
from shardir.passes.propagation.factor_projection import ProjectedTensor, project_to_factors
from shardir.passes.propagation.record import PropagationHistory, PropagationStep, StatedSharding
from shardir.passes.resharding.explanations import einsum_letter, factor_name
from shardir.passes.resharding.reshard import Reshard
from shardir.passes.rewriting import all_values
from shardir.text.literals import format_name
from shardir.text.printer import Printer, format_axis


class ShardingChange(NamedTuple):
    """A change of the sharding of a value by a pass after propagation, and its reason."""

    by: str
    before: Sharding | None
    after: Sharding | None
    why: str


ShardingChanges = Mapping[tuple[str, str], Sequence[ShardingChange]]
"""The changes of each value or result of a function (`result 0`), by function and name."""


class ExplainedValue(NamedTuple):
    """A value or a result of a function, with its cell, its sharding in the program that is
    partitioned, and its sharding after propagation."""

    name: str
    value: Value
    cell: int
    sharding: Sharding | None
    propagated: Sharding | None


DEFAULT_RESHARD = Reshard()
NO_CHANGES: ShardingChanges = {}
RESULT_PREFIX = "result "
"""The name of a result of a function is this prefix and its number."""
Derived = TypeVar("Derived")
TensorVisit = tuple[PropagationStep, int]
"""A visit of an operation, and the number of one of its tensors."""


class FunctionHistory:
    """The propagation record of one function.

    `module` is the module with the final shardings, which passes after propagation may have
    changed, and `reshard` the pass that reshards its values.
    """

    def __init__(
        self,
        module: Module,
        story: PropagationHistory,
        places: SourceLocations,
        reshard: Reshard = DEFAULT_RESHARD,
        changes: ShardingChanges = NO_CHANGES,
    ) -> None:
        self.story = story
        self.name = story.function.name
        self.places = places
        self.reshard = reshard
        self.sharding_changes = changes
        self.printer = Printer(module.meshes)
        self.meshes = {mesh.name: mesh for mesh in module.meshes}
        self.function = next(f for f in module.functions if f.name == self.name)
        self.stated: dict[int, StatedSharding] = {stated.cell: stated for stated in story.stated}
        self.made: dict[str, Value] = {v.name: v for v in all_values(self.function.body)}
        self._interned: dict[Sharding, Sharding] = {}
        self._derived: dict[object, Any] = {}
        self._views: dict[tuple[int, int, int], ProjectedTensor] = {}
        self._annotations: dict[int, Annotation] = {}

    @cached_property
    def changes(self) -> dict[int, list[tuple[int, int]]]:
        """For each cell the steps that changed it, as (position, tensor), the earliest first."""
        changes: dict[int, list[tuple[int, int]]] = {}
        for position, step in enumerate(self.story.steps):
            for tensor, cell in enumerate(step.cells):
                if step.before[tensor] != step.after[tensor]:
                    changes.setdefault(cell, []).append((position, tensor))
        return changes

    @cached_property
    def final_visits(self) -> dict[int, list[TensorVisit]]:
        """For each cell the final visits of the operations it takes part in."""
        looks: dict[int, list[TensorVisit]] = {}
        for step in self.story.final_visits:
            for tensor, cell in enumerate(step.cells):
                looks.setdefault(cell, []).append((step, tensor))
        return looks

    @cached_property
    def refusing_visits(self) -> dict[int, list[TensorVisit]]:
        """The final visits of each cell in which an operation refuses an axis."""
        visits = {
            cell: [visit for visit in looks if visit[0].refusals]
            for cell, looks in self.final_visits.items()
        }
        return {cell: some for cell, some in visits.items() if some}

    @property
    def final_shardings(self) -> dict[int, Sharding | None]:
        """The final sharding of each cell."""
        return self.story.final

    def intern(self, sharding: Sharding | None) -> Sharding | None:
        """Return one object for equal shardings, so that caches can compare their identity."""
        return None if sharding is None else self._interned.setdefault(sharding, sharding)

    @cached_property
    def decided_shardings(self) -> dict[Value, Sharding | None]:
        """The sharding of each value of the prepared function in the program that is
        partitioned."""
        made, written = self.made, self.story.written
        return {
            value: self.intern(
                found.sharding
                if (found := made.get(value.name)) is not None and found.type == value.type
                else written[value].sharding
            )
            for value in self.story.cells
        }

    def result_sharding(self, number: int) -> Sharding | None:
        """Return the final sharding of a result of the function."""
        return self.intern(self.function.result_shardings[number])

    def explained_value(self, value: Value) -> ExplainedValue:
        name, sharding = value_text(value), self.decided_shardings[value]
        changes = self.changes_of(value.name)
        propagated = changes[0].before if changes else sharding
        return ExplainedValue(name, value, self.story.cells[value], sharding, propagated)

    def changes_of(self, name: str) -> Sequence[ShardingChange]:
        """Return the changes of a value or result by passes after propagation."""
        return self.sharding_changes.get((self.name, name), ())

    def explained_result(self, number: int) -> ExplainedValue:
        """Return a result of the function; its value has the name of the result."""
        type = self.story.function.body.returns[number].type
        name = f"{RESULT_PREFIX}{number}"
        sharding, changes = self.result_sharding(number), self.changes_of(name)
        propagated = changes[0].before if changes else sharding
        return ExplainedValue(name, Value(type, name), -1 - number, sharding, propagated)

    @cached_property
    def impassable(self) -> dict[int, list[Op]]:
        """For each cell the operations without a rule that it takes part in."""
        mute: dict[int, list[Op]] = {}
        for op in self.story.impassable:
            for value in op.tensors:
                mute.setdefault(self.story.cells[value], []).append(op)
        return mute

    @cached_property
    def makers(self) -> dict[str, Op]:
        """The operation that defines each value, by name."""
        functions = self.function, self.story.function  # Passes may remove operations.
        return {v.name: op for f in functions for op in f.body.walk() for v in op.results}

    @cached_property
    def computations(self) -> dict[str, tuple[Op, ...]]:
        """The manual computations around each value inside of one, by name, the innermost last."""
        around: dict[str, tuple[Op, ...]] = {}

        def enter(block: Block, manual: tuple[Op, ...]) -> None:
            if manual:
                around.update((value.name, manual) for value in block.values())
            for op in block.ops:
                for inner in op.blocks:
                    enter(inner, (*manual, op) if op.spec is ops.manual_computation else manual)

        enter(self.function.body, ())
        return around

    @cached_property
    def manual_boundaries(self) -> dict[str, tuple[Op, TensorType]]:
        """The manual computation of each of its parameters and results by name, with the type that
        the tensor has outside of it."""
        found: dict[str, tuple[Op, TensorType]] = {}
        for op in self.function.body.walk():
            if op.spec is ops.manual_computation:
                outside = (*op.operands, *op.results)
                inside = (*op.blocks[0].params, *op.results)
                for value, known in zip(inside, outside, strict=True):
                    found[value.name] = op, known.type
        return found

    @cached_property
    def values(self) -> dict[str, Value]:
        """The values of the prepared function, by name."""
        return {value.name: value for value in self.story.cells}

    def views(self, step: PropagationStep) -> list[ProjectedTensor]:
        """Return the tensors of a step in terms of its factors, before the step."""
        return [self.view(step, tensor) for tensor in range(len(step.cells))]

    def view(self, step: PropagationStep, tensor: int) -> ProjectedTensor:
        """Return one tensor of a step; results are cached, because programs are repetitive.

        The record keeps rules and shardings alive, so their identity serves as the key.
        """
        sharding = step.before[tensor]
        key = id(step.rule), tensor, id(sharding)
        result = self._views.get(key)
        if result is None:
            result = project_to_factors(step.rule.tensors[tensor], sharding, sizes_of(step.rule))
            self._views[key] = result
        return result

    def compute_once(self, make: "Callable[[FunctionHistory], Derived]") -> Derived:
        """Return `make(self)`, which is computed once."""
        result: Derived | None = self._derived.get(make)
        if result is None:
            result = self._derived[make] = make(self)
        return result

    # Names

    def mesh(self, sharding: Sharding | None) -> Mesh:
        """Return the mesh of a sharding, or the one on which unknown shardings are replicated."""
        if sharding is None:
            return next(mesh for mesh in self.meshes.values() if not mesh.is_maximal)
        return self.meshes[sharding.mesh]

    def axis(self, axis: Axis, mesh: Mesh) -> str:
        return format_axis(axis, mesh)

    def tensor(self, step: PropagationStep, tensor: int) -> str:
        """Return the name of a tensor of a step; the last cell may be a result of the function."""
        if step.cells[tensor] < 0:
            return f"result {-1 - step.cells[tensor]}"
        return value_text(step.tensors[tensor])

    def op(self, step: PropagationStep) -> str:
        """Return the name of an operation, by its first result."""
        if step.op is None:
            return f"result {-1 - step.cells[-1]} of @{self.name}"
        if step.edge is not None:
            callee = step.op.attrs.get("callee")
            name = step.op.name if callee is None else f"{step.op.name} @{format_name(callee)}"
            return f"{value_text(step.edge.targets[0])} of {name}"
        return op_text(step.op)

    def factor_name(self, step: PropagationStep, factor: int) -> str:
        """Return the name of a factor of an operation."""
        if step.op is not None and step.edge is None and step.op.spec is not ops.sharding_group:
            return factor_name(step.op, step.rule, factor)
        for tensor, mapping in enumerate(step.rule.tensors):
            for dim, factors in enumerate(mapping):
                if factor in factors:
                    return f"dimension {dim} of {self.tensor(step, tensor)}"
        return "a factor"

    def factor_in_tensor(self, step: PropagationStep, factor: int, tensor: int) -> str:
        """Return the name of a factor as the dimension of a tensor: `'b' of %x`, or `dimension 0 of
        %x`."""
        (dim,) = dims_of(step.rule, tensor, factor)
        letter = None if step.op is None else einsum_letter(step.op, step.rule, factor)
        return f"{letter or f'dimension {dim}'} of {self.tensor(step, tensor)}"

    def loc(self, step: PropagationStep) -> Loc | None:
        if step.op is None:
            return self.places.get((self.name, f"result {-1 - step.cells[-1]}"))
        return self.loc_of_op(step.op)

    def loc_of_op(self, op: Op) -> Loc | None:
        if op.loc is None and op.results:
            return self.places.get((self.name, value_text(op.results[0])))
        return op.loc

    def loc_of_value(self, name: str) -> Loc | None:
        """Return the source line of the definition of a value."""
        maker = self.makers.get(name)
        if maker is not None and maker.loc is not None:
            return maker.loc
        return self.places.get((self.name, f"%{format_name(name)}"))

    def annotating_value(self, stated: StatedSharding, op: Op) -> Value:
        """Return the value through which a constraint or a manual computation annotates another."""
        if op.spec is not ops.manual_computation:
            return op.result
        cells = [self.story.cells.get(operand) for operand in op.operands]
        return (
            op.blocks[0].params[cells.index(stated.cell)] if stated.cell in cells else op.results[0]
        )

    def annotation(self, stated: StatedSharding) -> Annotation:
        """Return the annotation of a stated sharding, as it is written in the program."""
        if self.stated.get(stated.cell) is not stated:
            return self._annotation(stated)
        result = self._annotations.get(stated.cell)
        if result is None:
            result = self._annotations[stated.cell] = self._annotation(stated)
        return result

    def _annotation(self, stated: StatedSharding) -> Annotation:
        if stated.value is None:
            number = -1 - stated.cell
            type = self.story.function.body.returns[number].type
            text = self.printer.sharded_type(type, self.story.function.result_shardings[number])
            loc = self.places.get((self.name, f"result {number}"))
            return Annotation(Subject.RESULT, str(number), text, self.name, loc)
        value, subject = stated.value, Subject.VALUE
        if stated.constraint is not None:
            value = self.annotating_value(stated, stated.constraint)
        manual = self.manual_boundaries.get(value.name)
        if manual is not None:
            op, type = manual
            text = self.printer.sharded_type(type, stated.sharding)
            loc = self.loc_of_value(value.name) or self.loc_of_op(op)
            return Annotation(subject, value_text(value), text, self.name, loc)
        maker = self.makers.get(value.name)
        if maker is not None and maker.spec is ops.sharding_constraint:
            subject = Subject.CONSTRAINT
        elif value in self.story.function.body.params:
            subject = Subject.ARGUMENT
        text = self.printer.sharded_type(value.type, value.sharding)
        return Annotation(
            subject, value_text(value), text, self.name, self.loc_of_value(value.name)
        )  # fmt: skip


def value_text(value: Value) -> str:
    return f"%{format_name(value.name)}"


def op_text(op: Op) -> str:
    """Return `%c = dot`, or the sharding group of a `sharding_group`."""
    if op.spec is ops.sharding_group:
        return f"sharding group {op.attrs['group']}"
    return f"{', '.join(map(value_text, op.results))} = {op.name}" if op.results else op.name


def sizes_of(rule: FactorRule) -> tuple[int, ...]:
    return tuple(factor.size for factor in rule.factors)


def dims_of(rule: FactorRule, tensor: int, factor: int) -> list[int]:
    """Return the dimensions of a tensor that have a factor: one or none."""
    return [dim for dim, factors in enumerate(rule.tensors[tensor]) if factor in factors]


def step_time(step: PropagationStep) -> str:
    """Return when a step happened: `round 2`, or `round 2 of priority 1`."""
    return f"round {step.round}" + (f" of priority {step.priority}" if step.priority else "")


def stated_annotations(history: FunctionHistory) -> Iterator[StatedSharding]:
    """Yield the shardings stated in a function, in program order."""
    function = history.story.function
    for value in all_values(function.body):
        if value.sharding is not None:
            yield StatedSharding(0, value.sharding, value)
    for i, sharding in enumerate(function.result_shardings):
        if sharding is not None:
            yield StatedSharding(-1 - i, sharding, None)
