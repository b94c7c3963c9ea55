"""Conflicts: which of two conflicting shardings an operation keeps, and what the other costs.

An operation runs on shards only if its tensors are sharded alike along each of its factors, and no
axis shards two of them. `align` decides with which shardings; a tensor with another one is
resharded. Every resharded tensor has therefore lost the axes of at least one factor: to another
tensor that is sharded differently along it, to another factor that has the axis, or because the
operation cannot be sharded along it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardir import ops
from shardir.display.byte_sizes import show_bytes
from shardir.errors import count_noun
from shardir.ir.location import SourceLocations
from shardir.ir.module import Op
from shardir.ir.sharding import REPLICATED_DIM, Axes, DimSharding, Sharding, count_positions
from shardir.ir.sub_axes import take_disjoint_prefix
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.ops.control_flow.manual_computation import add_manual_axes
from shardir.passes.explain.propagated_program import Program, pipeline_of, propagate_with_history
from shardir.passes.explain.propagation_history.axis_origins import origin_annotations
from shardir.passes.explain.propagation_history.factor_precedence import delay_reason, lost_to
from shardir.passes.explain.propagation_history.history import FunctionHistory, dims_of, sizes_of
from shardir.passes.explain.propagation_history.manual_edges import manual_edge, tensor_types
from shardir.passes.explain.propagation_history.sub_axes import overlaps_any
from shardir.passes.explain.reports import Annotation, AxesRequest, Conflict, Conflicts, Verdict
from shardir.passes.propagation.factor_projection import ProjectedTensor, project_to_factors
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.propagation.record import PropagationStep, RefusalReason
from shardir.passes.resharding.align import (
    Alignment,
    align,
    partitioning_rule,
    pending_reduction,
    shardable_factors,
    sharding_of_factors,
)
from shardir.passes.resharding.layouts import (
    alignment_reshard_cost,
    choose_alignment,
)
from shardir.passes.resharding.planner import LOCAL_STEPS, plan_reshard, same_placement
from shardir.passes.resharding.reshard import RESHARDING_OPERATIONS
from shardir.passes.resharding.uneven import close_sharding, paddable_factors, uneven_dims
from shardir.passes.rewriting import merge_in_mesh_order


def conflicts(
    program: Program,
    *,
    propagate: Propagate | None = None,
    places: SourceLocations | None = None,
    pipeline: str | None = None,
) -> Conflicts:
    """Return every tensor that is resharded because of a conflicting sharding.

    The most expensive ones come first. `pipeline` and `propagate` are those of `explain`.
    """
    run = propagate_with_history(program, pipeline_of(program, pipeline, propagate), places)
    rows = [row for history in run.histories.values() for row in conflicts_of(history)]
    return Conflicts(tuple(sorted(rows, key=lambda row: -row.nbytes)))


def conflicts_of(history: FunctionHistory) -> Iterator[Conflict]:
    """Yield the conflicts of one function, in program order."""
    cache: dict[object, _OperationShardings | None] = {}
    for step in history.story.final_visits:
        if step.op is not None and step.op.spec is ops.sharding_group:
            continue  # its members have one sharding, and no operation runs
        written = tuple(
            [_final_sharding(history, step, tensor) for tensor in range(len(step.cells))]
        )
        key = _equivalence_key(step, written)
        if key not in cache:
            cache[key] = _operation_shardings(history, step, written)
        terms = cache[key]
        if terms is not None:
            yield from _ConflictAnalysis(
                history, terms.step_for_partitioning(step), terms
            ).conflicts()


def _equivalence_key(step: PropagationStep, written: tuple[Sharding | None, ...]) -> object:
    """Return a key that operations share if they run with the same shardings; the record keeps
    objects that are identified by `id` alive."""
    op = step.op if step.edge is None else None
    application = (op.spec, tuple(op.attrs.items())) if op else ()
    types = tuple([value.type for value in step.tensors])
    return id(step.rule), application, types, tuple([id(sharding) for sharding in written])


def _final_sharding(
    history: FunctionHistory, step: PropagationStep, tensor: int
) -> Sharding | None:
    """Return the final sharding of a tensor; outside of a manual computation, at its edges."""
    cell = step.cells[tensor]
    if cell < 0:
        return history.result_sharding(-1 - cell)
    sharding = history.decided_shardings[step.tensors[tensor]]
    edge = manual_edge(step)
    if sharding is None or edge is None or tensor == edge.outer:
        return sharding
    return history.intern(add_manual_axes(sharding, edge.dim_axes))


def _operation_shardings(
    history: FunctionHistory, step: PropagationStep, written: tuple[Sharding | None, ...]
) -> "_OperationShardings | None":
    """Return the shardings with which an operation runs; `None` if no tensor is resharded."""
    mesh_name = next((s.mesh for s in written if s is not None), history.mesh(None).name)
    shardings = tuple(
        close_sharding(sharding, type.shape, pads=history.reshard.uneven != "replicate")
        if sharding is not None
        else Sharding.fully_replicated(mesh_name, type.rank)
        for sharding, type in zip(written, tensor_types(step), strict=True)
    )
    if len({sharding.mesh for sharding in shardings}) > 1:
        return None
    if step.op is None or step.edge is not None or step.op.spec in RESHARDING_OPERATIONS:
        needed, factor_axes = _align_to_last(step, shardings)
        terms = _OperationShardings(step.rule, shardings, needed, factor_axes, (), True)
    elif rule := partitioning_rule(step.op):
        terms = _aligned_operation(history, step, step.op, rule, shardings)
    else:
        whole = tuple(Sharding.fully_replicated(mesh_name, len(s.dims)) for s in shardings)
        unsharded: tuple[Axes, ...] = ((),) * len(step.rule.factors)
        terms = _OperationShardings(step.rule, shardings, whole, unsharded, (), False)
    return terms if terms.resharded_tensors else None


def _aligned_operation(
    history: FunctionHistory,
    step: PropagationStep,
    op: Op,
    rule: FactorRule,
    shardings: tuple[Sharding, ...],
) -> "_OperationShardings":
    """Return the shardings with which an operation with a factor rule for partitioning runs."""
    mesh = history.meshes[shardings[0].mesh]
    odd = any(
        uneven_dims(sharding, value.type.shape)
        for sharding, value in zip(shardings, step.tensors, strict=True)
    )
    padded = paddable_factors(op, rule) if odd and history.reshard.uneven == "pad" else ()
    fitting = choose_alignment(
        op, rule, shardings, padded, history.reshard.layouts, mesh, history.reshard.cost_on(mesh)
    )
    return _OperationShardings(
        rule,
        shardings,
        _shardings_of_operation(history, op, rule, fitting),
        fitting.factor_axes,
        shardable_factors(op, rule),
        False,
        padded,
    )


def _align_to_last(
    step: PropagationStep, shardings: tuple[Sharding, ...]
) -> tuple[tuple[Sharding, ...], tuple[Axes, ...]]:
    """Return the shardings of tensors that must have that of the last one, and the axes of the
    factors."""
    last = shardings[-1]
    factor_axes: dict[int, Axes] = {
        factor: dim.axes
        for factors, dim in zip(step.rule.results[0], last.dims, strict=True)
        for factor in factors
    }
    needed = [
        Sharding(
            last.mesh,
            tuple(
                DimSharding(factor_axes[factors[0]], open=False)
                if factors[0] in factor_axes
                else REPLICATED_DIM
                for factors in mapping
            ),
        )
        for mapping in step.rule.operands
    ]
    return (*needed, last), tuple(factor_axes.get(i, ()) for i in range(len(step.rule.factors)))


def _shardings_of_operation(
    history: FunctionHistory, op: Op, rule: FactorRule, fitting: Alignment
) -> tuple[Sharding, ...]:
    """Return the shardings with which an operation runs; those of results with their unreduced
    axes."""
    operands = len(rule.operands)
    reduction = pending_reduction(op, rule)
    if reduction is None:
        return fitting.tensors
    pending = merge_in_mesh_order(fitting.pending, history.meshes[fitting.tensors[0].mesh])
    results = (
        replace(s, unreduced=pending, reduction=reduction) for s in fitting.tensors[operands:]
    )
    return (*fitting.tensors[:operands], *results)


@dataclass(frozen=True, slots=True)
class _OperationShardings:
    """The shardings that the tensors of an operation have, those that it `needed`, and the axes of
    its factors.

    `cuttable` are the factors that can be sharded, and `padded` those of them that can be sharded
    unevenly. `stated` states that the last tensor decides.
    """

    rule: FactorRule
    shardings: tuple[Sharding, ...]
    needed: tuple[Sharding, ...]
    factor_axes: tuple[Axes, ...]
    cuttable: tuple[int, ...]
    stated: bool
    padded: tuple[int, ...] = ()

    @property
    def resharded_tensors(self) -> list[int]:
        """The indices of the tensors that are resharded."""
        pairs = enumerate(zip(self.shardings, self.needed, strict=True))
        return [tensor for tensor, (has, needs) in pairs if not same_placement(has, needs)]

    def step_for_partitioning(self, step: PropagationStep) -> PropagationStep:
        """Return a step in terms of the factors for partitioning; if propagation used other ones,
        its refusals do not apply."""
        if self.rule is step.rule:
            return step
        same = self.rule.tensors == step.rule.tensors
        return replace(step, rule=self.rule, refusals=step.refusals if same else ())


@dataclass(frozen=True, slots=True)
class _ConflictAnalysis:
    """An operation, and the shardings with which it runs."""

    history: FunctionHistory
    step: PropagationStep
    terms: _OperationShardings

    def conflicts(self) -> Iterator[Conflict]:
        rule = self.step.rule
        sizes = sizes_of(rule)
        views = [
            project_to_factors(m, s, sizes)
            for m, s in zip(rule.tensors, self.terms.shardings, strict=True)
        ]
        for tensor in self.terms.resharded_tensors:
            lost = {
                factor: (*factor_sharding.axes, *factor_sharding.overflow)
                for factor, factor_sharding in views[tensor].factor_shardings.items()
                if (*factor_sharding.axes, *factor_sharding.overflow)
                != self.terms.factor_axes[factor]
            }
            # Additional axes of other factors are no conflict if the tensor lost axes.
            requests = {factor: axes for factor, axes in lost.items() if axes} or lost
            for factor, axes in requests.items():
                row = self.conflict(tensor, factor, axes, views)
                if row.nbytes or row.kept.axes != "-" != row.given_up.axes:
                    yield row

    def conflict(
        self, tensor: int, factor: int, axes: Axes, views: list[ProjectedTensor]
    ) -> Conflict:
        """Return the conflict in which a tensor loses the axes of a factor."""
        history, step = self.history, self.step
        winner, loop, theirs = self.winner(factor, axes, views)
        verdict, detail = self.verdict(factor, axes, views)
        steps = self.reshard_steps(tensor)
        return Conflict(
            history.op(step),
            history.name,
            history.loc(step),
            self.request(winner, loop, theirs),
            self.request(tensor, factor, axes),
            verdict,
            detail,
            tuple(name for name, _ in steps),
            sum(nbytes for _, nbytes in steps),
        )

    def winner(
        self, factor: int, axes: Axes, views: list[ProjectedTensor]
    ) -> tuple[int, int, Axes]:
        """Return the tensor whose axes the operation keeps, the factor, and the axes."""
        theirs = self.terms.factor_axes[factor]
        if self.terms.stated:
            return len(views) - 1, factor, theirs
        if not theirs:
            for other, other_axes in enumerate(self.terms.factor_axes):
                if any(overlaps_any(axis, other_axes) for axis in axes):
                    return self.holder(other, other_axes, views), other, other_axes
        return self.holder(factor, theirs, views), factor, theirs

    def holder(self, factor: int, axes: Axes, views: list[ProjectedTensor]) -> int:
        """Return the first tensor with these axes, else the first that has the factor."""
        walks = [i for i, view in enumerate(views) if factor in view.factor_shardings]
        same = [i for i in walks if views[i].factor_shardings[factor].axes == axes]
        return (same or walks)[0]

    def request(self, tensor: int, factor: int, axes: Axes) -> AxesRequest:
        history, step = self.history, self.step
        mesh = history.meshes[self.terms.shardings[tensor].mesh]
        text = ", ".join(history.axis(axis, mesh) for axis in axes) or "-"
        return AxesRequest(
            history.tensor(step, tensor),
            history.factor_name(step, factor),
            text,
            self.elements(tensor),
            self.annotations(tensor, factor, axes),
        )

    def elements(self, tensor: int) -> int:
        return tensor_types(self.step)[tensor].size

    def annotations(self, tensor: int, factor: int, axes: Axes) -> tuple[Annotation, ...]:
        """Return the origin of the axes; without axes, the annotation that closes the dimension."""
        history, cell = self.history, self.step.cells[tensor]
        dims = dims_of(self.step.rule, tensor, factor)
        if axes:
            result = [
                r
                for dim in dims
                for axis in axes
                for r in origin_annotations(history, cell, dim, axis)
            ]
            return tuple(dict.fromkeys(result))
        stated = history.stated.get(cell)
        if stated is None or all(stated.sharding.dims[dim].open for dim in dims):
            return ()
        return (history.annotation(stated),)

    def reshard_steps(self, tensor: int) -> list[tuple[str, int]]:
        """Return the collectives that reshard a tensor, with their bytes."""
        has, needs = self.terms.shardings[tensor], self.terms.needed[tensor]
        source, target = (has, needs) if tensor < len(self.step.rule.operands) else (needs, has)
        steps = plan_reshard(source, target, tensor_types(self.step)[tensor])
        return [(step.kind, step.nbytes) for step in steps]

    def verdict(self, factor: int, axes: Axes, views: list[ProjectedTensor]) -> tuple[Verdict, str]:
        step = self.step
        if self.terms.stated:
            return Verdict.STATED, ""
        assert step.op is not None  # Otherwise the result of the function states the sharding.
        if partitioning_rule(step.op) is None:
            return Verdict.CANNOT, "the operation runs unsharded"
        if factor not in self.terms.cuttable:
            return Verdict.CANNOT, f"factors of kind {step.rule.factors[factor].kind.value}"
        if later := self.later_decision(step.op):
            return Verdict.LATER_PASS, later
        for refusal in step.refusals:
            if refusal.factor != factor or not overlaps_any(refusal.axis, axes):
                continue
            if refusal.reason is RefusalReason.USED:
                lost = lost_to(self.history, step, refusal)
                if lost:
                    return lost.verdict, str(lost)
                late = delay_reason(self.history, step, refusal)
                return Verdict.FIRST, f"the other was delayed: {late.value}" if late else ""
        walking = [i for i, mapping in enumerate(step.rule.tensors) if any(mapping)]
        pieces = count_positions(axes)
        if not self.terms.factor_axes[factor] and step.rule.factors[factor].size % pieces:
            positions = count_noun(step.rule.factors[factor].size, "position")
            return Verdict.CANNOT, f"{positions} in {count_noun(pieces, 'shard')}"
        if cheaper := self.cost_verdict(step.op, factor, axes):
            return cheaper
        if len(walking) == 2:
            sizes = sorted((self.elements(i) for i in walking), reverse=True)
            if sizes[0] == sizes[1]:
                elements = count_noun(sizes[0], "element")
                return Verdict.FOLLOWED, f"both have {elements}, so more shards decide"
            return Verdict.FOLLOWED, f"{count_noun(sizes[0], 'element')} against {sizes[1]}"
        supporters = self.votes(factor, self.terms.factor_axes[factor], views)
        opponents = self.votes(factor, axes, views)
        if not supporters:
            return Verdict.MAJORITY, (
                "no tensor has exactly the kept axes; they are the parts of axes that tensors with "
                "the most elements have"
            )
        return Verdict.MAJORITY, f"{count_noun(supporters, 'element')} against {opponents}"

    def later_decision(self, op: Op) -> str:
        """Return the reason for which a pass after propagation changed a result of the operation,
        empty if none did."""
        history = self.history
        for value in op.results:
            for change in history.changes_of(value.name):
                return f"{change.by}: {change.why}" if change.why else change.by
        return ""

    def cost_verdict(self, op: Op, factor: int, axes: Axes) -> tuple[Verdict, str] | None:
        """Return the reason for which the operation does not run with the other sharding of a
        factor; `None` if costs do not decide."""
        terms, rule = self.terms, self.terms.rule
        if self.history.reshard.layouts != "cheapest":
            return None
        factor_axes = [
            axes if i == factor else take_disjoint_prefix(others, axes)
            for i, others in enumerate(terms.factor_axes)
        ]
        mesh = terms.shardings[0].mesh
        aligned_shardings = tuple(
            sharding_of_factors(mapping, factor_axes, mesh) for mapping in rule.tensors
        )
        other = align(rule, aligned_shardings, terms.cuttable, terms.padded)
        words = self.history.factor_name(self.step, factor)
        names = [self.history.axis(axis, self.history.meshes[mesh]) for axis in axes]
        case = (
            f"with {words} sharded over {', '.join(names)}" if axes else f"with {words} unsharded"
        )
        if other.factor_axes[factor] != axes:
            return Verdict.CANNOT, f"the operation cannot run {case}"
        types = tuple(value.type for value in self.step.tensors)
        reduction = pending_reduction(op, rule)
        then = alignment_reshard_cost(rule, other, terms.shardings, types, reduction)
        steps = [step for tensor in terms.resharded_tensors for step in self.reshard_steps(tensor)]
        nbytes = sum(step_bytes for _, step_bytes in steps)
        now = f"each device receives {show_bytes(nbytes)}"
        if nbytes < then[0]:
            return Verdict.CHEAPER, f"{now}, and would receive {show_bytes(then[0])} {case}"
        if nbytes == then[0]:
            return Verdict.EQUAL, f"{now}, and would receive as much {case}"
        count = sum(name not in LOCAL_STEPS for name, _ in steps)
        if count < then[1]:
            return Verdict.FEWER, (
                f"{now} in {count_noun(count, 'collective')}, and would receive "
                f"{show_bytes(then[0])} in {then[1]} {case}"
            )
        text = f"{now}, and would receive {show_bytes(then[0])} {case}"
        if rule.of_kind(FactorKind.REDUCE):
            return Verdict.LESS_WORK, f"{text}, but compute more"
        return Verdict.NOT_TRIED, f"{text}, which is not among the tried shardings"

    def votes(self, factor: int, axes: Axes, views: list[ProjectedTensor]) -> int:
        """Return the elements of the tensors with these axes along a factor."""
        return sum(
            self.elements(i)
            for i, view in enumerate(views)
            if factor in view.factor_shardings and view.factor_shardings[factor].axes == axes
        )
