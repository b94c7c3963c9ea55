"""Propagate the stated shardings to all values of a program.

Every operation has factors, and its rule maps them to the dimensions of each tensor. If one
dimension is sharded, the other dimensions of its factor are sharded the same way, forwards and
backwards, until a fixed point is reached. Dimensions that propagation does not reach are unsharded.

before: `%0 = dot(%x, %w1, dims="bi,ih->bh") : f32[16, 12]` with `%x: f32[16@data, 8]` and
        `%w1: f32[8, 12@model]`
after:  `%0 = dot(%x, %w1, dims="bi,ih->bh") : f32[16@data, 12@model]`

The decisions are those of OpenXLA Shardy, to the axis; docs/propagation.md describes the algorithm
in the terms of `shardir/passes/propagation`, and the differences. Rules that users state
(`shardir.op_rules.custom_rules`) replace those of operations. Unlike Shardy, operations with unused
results are kept and take part in propagation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar

from shardir import ops
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Value
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.custom_rules import RuleSet, rules_in_force
from shardir.passes.pipeline import Pass
from shardir.passes.propagation.apply_constraints import AppliedConstraints, apply_constraints
from shardir.passes.propagation.draft import FunctionDraft
from shardir.passes.propagation.finish import (
    BOUNDARY_MODES,
    BoundaryKind,
    trim_at_boundary,
    without_unit_axes,
)
from shardir.passes.propagation.manual_computations import (
    BoundaryConversion,
    state_boundary_shardings,
)
from shardir.passes.propagation.propagation_levels import (
    PROPAGATION_LEVELS,
    STRATEGIES,
    WORKLIST_ORDERS,
    PropagationRun,
    PropagationState,
    RoundObserver,
)
from shardir.passes.propagation.propagation_network import (
    PropagationNetwork,
    StepperTable,
    build_network,
)
from shardir.passes.propagation.record import PropagationRecord
from shardir.passes.propagation.recorder import AnnotationSources, PropagationRecorder
from shardir.passes.propagation.sharding_groups import (
    ShardingGroup,
    check_manual_results,
    merge_groups,
    unify_groups,
)
from shardir.passes.propagation.split_constants import split_constants
from shardir.passes.propagation.step import NO_SHARDING, ShardingTable

NO_FACTOR_RULE_REASON = "has no factor rule, so that no sharding passes through"
"""The `why` of an operation through which propagation cannot pass."""

ShardingWriter = Callable[[int, TensorType, BoundaryKind, Sharding | None], Sharding | None]
"""Maps the number of a sharding, a type, the kind of boundary, and the stated sharding to the
sharding that is written."""


@dataclass(frozen=True)
class Propagate(Pass, name="propagate"):
    """Decide the sharding of every value.

    `level`: treatment of conflicts and priorities, see `propagation_levels`.
    `strategy`: the propagation that the levels above aggressive run in each round.
    `order`: the order of the worklist.
    `border`: which axes that do not divide parameters and results are kept, see
    `propagation.finish`.
    `keep_open`: leave dimensions open that no annotation closed, and write no sharding where none
    is known.
    `leave_open`: leave dimensions open that no annotation closed, for `resolve-conflicts`.
    `conservative`: propagate no parts of axes, and not along dimensions that an operation pads,
    slices, concatenates or moves a window along.
    `prepare`: duplicate constants for each use, apply constraints, and drop axes of size 1 before
    propagation.
    """

    choices: ClassVar = {
        "level": PROPAGATION_LEVELS,
        "strategy": tuple(STRATEGIES),
        "order": WORKLIST_ORDERS,
        "border": BOUNDARY_MODES,
    }

    level: str = "user-priority"
    strategy: str = "aggressive"
    order: str = "lifo"
    keep_open: bool = False
    leave_open: bool = False
    border: str = "even"
    prepare: bool = True
    conservative: bool = False

    def __call__(self, module: Module) -> Module:
        return self.run(module, None)

    def run_recorded(self, module: Module) -> tuple[Module, PropagationRecord]:
        """Return the propagated module and the record of all propagation steps."""
        record = PropagationRecord()
        return self.run(module, record), record

    def run(self, module: Module, record: PropagationRecord | None) -> Module:
        if all(mesh.is_maximal for mesh in module.meshes):
            return module
        rules = rules_in_force()
        module = rules.bind(module)
        steppers = StepperTable(
            ShardingTable(module), explain=record is not None, conservative=self.conservative
        )
        functions = tuple(
            function
            if function.spmd
            else self.propagate_function(function, steppers, rules, record)
            for function in module.functions
        )
        return replace(module, functions=functions)

    def propagate_function(
        self,
        function: Function,
        steppers: StepperTable,
        rules: RuleSet,
        record: PropagationRecord | None,
    ) -> Function:
        """Propagate in one function."""
        prepared = self.prepare_function(function, steppers, rules)
        draft, network, stated, bridges = (
            prepared.draft, prepared.network, prepared.stated, prepared.bridges
        )  # fmt: skip
        units = not self.prepare
        state = initial_state(function, network, stated, steppers.shardings, units=units)
        # The boundary values of a manual computation state its manual axes.
        wholly = stated | {value: bridge.global_sharding for value, bridge in bridges.items()}
        recorder = record and PropagationRecorder(
            record, draft, network, steppers.shardings, wholly, prepared.annotation_sources,
            prepared.groups, state,
        )  # fmt: skip
        run = self.start_run(prepared, steppers, recorder.record_step if recorder else None)
        run.run(state)
        check_manual_results(
            prepared.groups,
            {value: bridge for value, bridge in bridges.items() if not bridge.inwards},
            lambda value: steppers.shardings[state.cells[network.cells[value]]],
        )
        close = self.sharding_writer(steppers.shardings, prepared)
        borders = dict.fromkeys(bridges, BoundaryKind.MANUAL)
        borders |= dict.fromkeys(function.body.params, BoundaryKind.FUNCTION)
        new = {
            value: Value(
                value.type,
                value.name,
                close(
                    state.cells[cell],
                    value.type,
                    borders.get(value, BoundaryKind.NONE),
                    stated.get(value) if borders.get(value) is BoundaryKind.FUNCTION else None,
                ),
            )
            for value, cell in network.cells.items()
        }
        if recorder:
            recorder.finish(state, run, new)
        draft.new_whys.update(
            (op, NO_FACTOR_RULE_REASON)
            for op in network.impassable
            if not op.why and op.spec is not ops.reshard
        )
        built = draft.build(new.__getitem__)
        results = zip(state.results, built.body.returns, function.result_shardings, strict=True)
        return replace(
            built,
            result_shardings=tuple(
                close(n, v.type, BoundaryKind.FUNCTION, own) for n, v, own in results
            ),
        )

    def prepare_function(
        self, function: Function, steppers: StepperTable, rules: RuleSet
    ) -> "PreparedFunction":
        """Return a function in its state before propagation."""
        draft = FunctionDraft(function)
        if self.prepare:
            split_constants(draft)
        owners = edge_owners(draft)
        stated = stated_shardings(draft, units=not self.prepare)
        bridges = state_boundary_shardings(
            draft, stated, steppers.shardings, units=not self.prepare
        )
        applied = AppliedConstraints()
        if self.prepare:
            applied = apply_constraints(draft, owners, stated, bridges)
        groups = merge_groups(draft)
        meshes = steppers.shardings.meshes
        members = unify_groups(draft, groups, owners, stated, applied.requested, meshes)
        edges = {
            op: draft.edges(op)
            for op in draft.walk()
            if op.spec.edges or op.spec is ops.manual_computation
        }
        network = build_network(draft, edges, groups, bridges, steppers, rules)
        annotation_sources = AnnotationSources(applied.annotated_by, members)
        return PreparedFunction(draft, network, owners, stated, bridges, groups, annotation_sources)

    def start_run(
        self,
        prepared: "PreparedFunction",
        steppers: StepperTable,
        watch: RoundObserver | None = None,
    ) -> PropagationRun:
        """Return the run that propagates a prepared function to its fixed point."""
        return PropagationRun(
            prepared.network,
            prepared.draft.inputs(prepared.draft.function.body),
            steppers,
            level=self.level,
            strategy=self.strategy,
            order=self.order,
            watch=watch,
        )

    def sharding_writer(
        self, shardings: ShardingTable, prepared: "PreparedFunction"
    ) -> ShardingWriter:
        """Return the function from sharding numbers to the shardings that are written."""
        mesh = mesh_of_unsharded_values(prepared, shardings.meshes)

        @cache
        def close(
            number: int, type: TensorType, border: BoundaryKind, annotation: Sharding | None
        ) -> Sharding | None:
            result = shardings[number]
            if self.keep_open:
                return result
            single = result is not None and shardings.meshes[result.mesh].is_maximal
            if not type.rank and not single and (result is None or not result.unreduced):
                return None  # a replicated scalar has no sharding
            if result is None and self.leave_open:
                return Sharding.open(mesh.name, type.rank)
            if result is None:
                return Sharding.fully_replicated(mesh.name, type.rank)
            its_mesh = shardings.meshes[result.mesh]
            uneven = self.border if border is BoundaryKind.FUNCTION else "even"
            result = trim_at_boundary(result, type.shape, its_mesh, border, annotation, uneven)
            return result if self.leave_open else result.close()

        return close


@dataclass(frozen=True, slots=True)
class PreparedFunction:
    """A function as a propagation network, and the shardings stated in it.

    `owners` maps each target of an edge to the owner of the edge; `stated` maps values to stated
    shardings, and `annotation_sources` records the values whose annotations apply to others.
    """

    draft: FunctionDraft
    network: PropagationNetwork
    owners: Mapping[Value, Value]
    stated: dict[Value, Sharding]
    bridges: Mapping[Value, BoundaryConversion]
    groups: Sequence[ShardingGroup]
    annotation_sources: AnnotationSources


def mesh_of_unsharded_values(prepared: PreparedFunction, meshes: Mapping[str, Mesh]) -> Mesh:
    """Return the mesh of values without a known sharding: that of all stated shardings of the
    function, else the first of several devices.
    """
    stated = (*prepared.stated.values(), *prepared.draft.function.result_shardings)
    names = {each.mesh for each in stated if each and not meshes[each.mesh].is_maximal}
    several = (mesh for mesh in meshes.values() if not mesh.is_maximal)
    return meshes[names.pop()] if len(names) == 1 else next(several)


def edge_owners(draft: FunctionDraft) -> dict[Value, Value]:
    """Return the owner of the edge of each target.

    The use lists of owners are reversed, because in MLIR the uses have moved to the edge at this
    point.
    """
    owners: dict[Value, Value] = {}
    for op in draft.walk():
        for edge in draft.edges(op):
            owners.update(dict.fromkeys(edge.targets, edge.targets[0]))
            draft.uses_of(edge.targets[0]).reverse()
    return owners


def stated_shardings(draft: FunctionDraft, *, units: bool = False) -> dict[Value, Sharding]:
    """Return the shardings stated in the program, including axes of size 1 if `units`.

    A sharding on one result of an operation makes its other results open on the same mesh, which
    differs from no sharding: constraints do not move to open values.
    """
    stated: dict[Value, Sharding] = {}

    def enter(block: Block) -> None:
        note(block.params)
        for op in draft.ops(block):
            note(op.results)
            if mesh := next((stated[v].mesh for v in op.results if v in stated), ""):
                for value in op.results:
                    stated.setdefault(value, Sharding.open(mesh, value.type.rank))
            for inner in op.blocks:
                enter(inner)

    def note(values: tuple[Value, ...]) -> None:
        stated.update(
            (v, v.sharding if units else without_unit_axes(v.sharding))
            for v in values
            if v.sharding
        )

    enter(draft.function.body)
    return stated


def initial_state(
    function: Function,
    network: PropagationNetwork,
    stated: dict[Value, Sharding],
    shardings: ShardingTable,
    *,
    units: bool = False,
) -> PropagationState:
    """Return the initial state: for a cell of several values, the first stated sharding."""
    cells = [shardings.number(stated.get(owner)) for owner in network.owners]
    for value, cell in network.cells.items():
        if cells[cell] == NO_SHARDING:
            cells[cell] = shardings.number(stated.get(value))
    result_shardings = (
        s and (s if units else without_unit_axes(s)) for s in function.result_shardings
    )
    results = [shardings.number(sharding) for sharding in result_shardings]
    return PropagationState(cells, results)
