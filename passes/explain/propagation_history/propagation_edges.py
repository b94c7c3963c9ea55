"""Propagation edges: which step of propagation brought an axis from which tensor to which others.

These are the `sdy.propagation_edges` that Shardy writes with its option
`debug-propagation-edge-sharding`. An operation has the edges of its steps, with the numbers of the
steps; `operand-0` and `result-0` are its tensors. For each axis, source and target, only the first
step counts. The edges of loops, branches, calls and manual computations are those of their results
and of the parameters of their blocks. A result of the function has the edges between it and the
returned value. A constraint that states the sharding of its operand is a step before all others.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from shardir import ops
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Op, Value
from shardir.ir.sharding import Axes, Axis
from shardir.ir.sub_axes import is_prefix
from shardir.passes.explain.propagation_history.history import sizes_of
from shardir.passes.propagation.factor_projection import project_to_factors
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.propagation.record import PropagationHistory, PropagationStep
from shardir.stablehlo.debug_attributes import (
    BLOCK_PARAMETER_EDGES,
    PROPAGATION_EDGES,
    RESULT_EDGES,
    DebugAttributes,
)
from shardir.stablehlo.printer import show
from shardir.stablehlo.propagation_edges import AxisEdge, EdgeTensor, format_edges


@dataclass(slots=True)
class PropagationEdges:
    """The edges of one function, in the order of the steps, and the mesh of the axes.

    `values` has those of loops and the like by the result or parameter, `results` those of results
    of the function.
    """

    mesh: Mesh
    operations: dict[Op, list[AxisEdge]] = field(default_factory=dict)
    values: dict[Value, list[AxisEdge]] = field(default_factory=dict)
    results: dict[int, list[AxisEdge]] = field(default_factory=dict)


def show_propagation_edges(module: Module, propagate: Propagate) -> str:
    """Return the propagated module as StableHLO text with the edges of all operations."""
    propagated, record = propagate.run_recorded(module)
    debug = DebugAttributes()
    for function in propagated.functions:
        history = record.histories.get(function.name)
        if history is not None:
            edges = propagation_edges(history, module)
            _add_attributes(debug, edges, history, function.name)
    return show(propagated, debug=debug)


def propagation_edges(history: PropagationHistory, module: Module) -> PropagationEdges:
    """Return the edges of a recorded propagation."""
    mesh = next(mesh for mesh in module.meshes if not mesh.is_maximal)
    found = PropagationEdges(mesh)
    number = 0
    for op, position, axes in _applied_constraints(history):
        operand, result = EdgeTensor(False, 0), EdgeTensor(True, 0)
        edges = [AxisEdge(number, axis, result, operand) for axis in axes]
        if op.spec is ops.manual_computation:
            found.values.setdefault(op.blocks[0].params[position], []).extend(edges)
        else:
            found.operations.setdefault(op, []).extend(edges)
        number += 1
    for step in history.steps:
        if step.op is not None and step.op.spec is ops.sharding_group:
            continue
        edges = list(_edges_of_step(step, number))
        if step.op is None:
            found.results.setdefault(-1 - step.cells[1], []).extend(edges)
        elif step.edge is None:
            found.operations.setdefault(step.op, []).extend(edges)
        else:
            found.values.setdefault(step.edge.targets[0], []).extend(edges)
        number += 1
    return found


def _applied_constraints(history: PropagationHistory) -> Iterator[tuple[Op, int, Axes]]:
    """Yield the constraints that state the sharding of an operand, its number, and the axes."""
    positions = {op: i for i, op in enumerate(history.function.body.walk())}
    constraints = {stated.constraint for stated in history.stated}
    # The operands of visits include copies of constants. The members of a group have one sharding.
    numbers: dict[tuple[Op | None, Value | None], int] = {
        (visit.op, value): 0 if visit.edge is None else _parameter_number(visit)
        for visit in history.final_visits
        if visit.op in constraints
        for value in visit.tensors[: len(visit.rule.operands)]
    }
    applied = {
        (stated.constraint, numbers[stated.constraint, stated.value]): stated.sharding
        for stated in history.stated
        if stated.constraint is not None
    }
    for op, number in sorted(applied, key=lambda each: positions[each[0]]):
        yield op, number, tuple(applied[op, number].used_axes())


def _parameter_number(visit: PropagationStep) -> int:
    """Return the number of the parameter that an edge gives the sharding of an operand; 0 for a
    result."""
    assert visit.op is not None
    assert visit.edge is not None
    # Constraints have no edges, and manual computations one block.
    params, target = visit.op.blocks[0].params, visit.edge.targets[0]
    return params.index(target) if target in params else 0


def _edges_of_step(step: PropagationStep, number: int) -> Iterator[AxisEdge]:
    """Yield the edges of one visit."""
    sizes, count = sizes_of(step.rule), len(step.rule.operands)
    before, after = (
        [
            project_to_factors(mapping, sharding, sizes).factor_shardings
            for mapping, sharding in zip(step.rule.tensors, shardings, strict=True)
        ]
        for shardings in (step.before, step.after)
    )
    tensors = [
        EdgeTensor(i >= count, i - count if i >= count else i) for i in range(len(step.cells))
    ]
    for tensor, mapping in enumerate(step.rule.tensors):
        sources: dict[Axis, EdgeTensor] = {}
        for factors in mapping:
            last: Axis | None = None
            for factor in factors:
                old, new = before[tensor][factor].axes, after[tensor][factor].axes
                gained = list(new[len(old) :])
                if old and old[-1] != new[len(old) - 1]:
                    gained.insert(0, new[len(old) - 1])
                if last is not None and gained and last.name == gained[-1].name and (
                    last.next == gained[-1].pre
                ):  # fmt: skip
                    sources.pop(last, None)
                    gained[-1] = Axis(last.name, last.pre, last.size * gained[-1].size)
                last = gained[-1] if gained else None
                holders = (
                    i
                    for i, each in enumerate(before)
                    if factor in each and is_prefix(new, each[factor].axes)
                )
                if (source := next(holders, None)) is not None:
                    for axis in gained:
                        sources.setdefault(axis, tensors[source])
        for axis, source_tensor in sources.items():
            yield AxisEdge(number, axis, source_tensor, tensors[tensor])


def _add_attributes(
    debug: DebugAttributes, edges: PropagationEdges, history: PropagationHistory, function: str
) -> None:
    """Add the edges of one function to the attributes of its operations and results."""

    def text(of: list[AxisEdge]) -> str:
        return format_edges(of, edges.mesh)

    def add(op: Op, key: str, value: str) -> None:
        if op.results:
            written = history.written[op.results[0]]
            debug.operations.setdefault(written, {})[key] = value

    for op, own in edges.operations.items():
        if own:
            add(op, PROPAGATION_EDGES, text(own))
    for op in history.function.body.walk():
        for key, values in (
            (BLOCK_PARAMETER_EDGES, [p for b in op.blocks for p in b.params]),
            (RESULT_EDGES, list(op.results)),
        ):
            known = [text(edges.values[value]) for value in values if edges.values.get(value)]
            if known:
                add(op, key, f"[{', '.join(known)}]")
    for number, own in edges.results.items():
        if own:
            debug.results[function, number] = {PROPAGATION_EDGES: text(own)}
