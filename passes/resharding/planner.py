"""Plan a reshard: a sequence of collectives from one sharding of a tensor to another.

There are two planners: `greedy` decides as OpenXLA Shardy does
(`shardir.passes.resharding.greedy`); `optimal`, the default, searches for the cheapest plan and is
never more expensive. A plan is a path in the lattice of shardings. Every step changes some axes:
`all-slice` adds axes to a dimension, `all-gather` removes its last ones, `all-to-all` moves the
last axes of one dimension to the end of another, `collective-permute` replaces axes without
changing the number of shards, `all-reduce` and `reduce-scatter` complete pending reductions. The
cheapest plan has the fewest bytes received per device, then the fewest collectives. The planner
never enumerates devices: planning for a mesh of eight takes as long as for one of four thousand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from shardir.cost.collective_bytes import bytes_sent
from shardir.ir.device_groups import merge_axes
from shardir.ir.operation import Attr, Symbol
from shardir.ir.sharding import Axis, Sharding, count_positions
from shardir.ir.types import TensorType
from shardir.passes.resharding.greedy import GreedyCollective, greedy_collectives
from shardir.passes.resharding.lattice import DimSubAxes, LatticeState, ReshardProblem, StepKind
from shardir.passes.resharding.lattice_moves import LatticeMove
from shardir.passes.resharding.lattice_search import find_cheapest_path, gather_and_slice_path


def same_placement(a: Sharding, b: Sharding) -> bool:
    """Return whether every device holds the same data under both shardings."""
    if a is b:
        return True
    combined = a.reduction == b.reduction or not a.unreduced
    return a.axes == b.axes and a.unreduced == b.unreduced and combined


@dataclass(frozen=True, slots=True)
class PlanStep:
    """One step of a plan: an operation with its attributes, and the resulting sharding.

    `unreduce` stands for several operations: it makes a value unreduced by keeping it on the first
    device of each group and the identity of the reduction on the others.
    """

    kind: StepKind
    attrs: tuple[tuple[str, Attr], ...]
    sharding: Sharding
    nbytes: int
    """Bytes received by each device."""


PLANNERS = ("optimal", "greedy")
LOCAL_STEPS = (StepKind.ALL_SLICE, StepKind.UNREDUCE)
"""Steps without communication."""
MERGED_STEPS = (StepKind.ALL_SLICE, StepKind.REDUCE_SCATTER, StepKind.ALL_GATHER)
"""Steps of which adjacent ones on one dimension are one step."""


@lru_cache(maxsize=1 << 14)
def plan_reshard(
    source: Sharding, target: Sharding, type: TensorType, planner: str = "optimal"
) -> tuple[PlanStep, ...]:
    """Return the steps from `source` to `target`, both closed, by one of `PLANNERS`."""
    if same_placement(source, target):
        return ()
    problem = ReshardProblem(source, target, type)
    greedy = tuple(_greedy_steps(problem)) if problem.solvable else ()
    ends = (source, target, *(step.sharding for step in greedy))
    if not all(_is_even(sharding, type) for sharding in ends):
        greedy = ()  # The greedy planner does not support padding.
    if greedy and planner == "greedy":
        return greedy
    result = tuple(
        _steps_of_moves(
            problem,
            find_cheapest_path(problem) if problem.solvable else gather_and_slice_path(problem),
        )
    )
    return min(result, greedy or result, key=_plan_cost)


def _is_even(sharding: Sharding, type: TensorType) -> bool:
    return not any(
        size % dim.num_shards for size, dim in zip(type.shape, sharding.dims, strict=True)
    )


def _plan_cost(steps: tuple[PlanStep, ...]) -> tuple[int, int]:
    return sum(step.nbytes for step in steps), sum(step.kind not in LOCAL_STEPS for step in steps)


def _greedy_steps(problem: ReshardProblem) -> Iterator[PlanStep]:
    """Yield the collectives of the greedy planner, one step for each dimension."""
    source, target, type = problem.source, problem.target, problem.type
    begun = problem.begins_unreduced
    # In terms of sub-axes, a pending reduction that remains is in both source and target.
    still_unreduced = merge_axes([problem.sub_axes[a] for a in sorted(problem.goal[1])])
    due = merge_axes([problem.sub_axes[a] for a in sorted(problem.start[1] - problem.goal[1])])
    start = replace(source, unreduced=(*still_unreduced, *due))
    end = replace(
        target, unreduced=still_unreduced, reduction=source.reduction if still_unreduced else "add"
    )
    before = source
    for collective in greedy_collectives(start, end, type.shape):
        for step in _split_collective_by_dim(collective, before, source.reduction, type):
            if not same_placement(step.sharding, before):
                yield step
            before = step.sharding
    if begun:
        yield PlanStep(StepKind.UNREDUCE, (("axes", begun),), replace(target, replicated=()), 0)


def _split_collective_by_dim(
    collective: GreedyCollective, before: Sharding, reduction: str, type: TensorType
) -> Iterator[PlanStep]:
    """Yield one collective on all dimensions as steps on one dimension each."""
    local_bytes = type.with_shape(before.local_shape(type.shape)).nbytes
    op = ("op", Symbol(reduction))
    if collective.kind is StepKind.COLLECTIVE_PERMUTE:
        yield PlanStep(
            collective.kind,
            _replaced_axes(before, collective.sharding),
            collective.sharding,
            local_bytes,
        )
        return
    if collective.kind is StepKind.ALL_REDUCE:
        (axes,) = collective.axes
        nbytes = bytes_sent(collective.kind.value, local_bytes, count_positions(axes))
        yield PlanStep(collective.kind, (("axes", axes), op), collective.sharding, nbytes)
        return
    touched = [dim for dim, axes in enumerate(collective.axes) if axes]
    for dim in touched:
        axes = collective.axes[dim]
        pieces = count_positions(axes)
        after = (
            collective.sharding if dim == touched[-1] else _sharding_up_to(collective, before, dim)
        )
        if collective.kind is StepKind.ALL_TO_ALL:
            attrs = (("split", collective.target), ("concat", dim), ("axes", axes))
            yield PlanStep(collective.kind, attrs, after, local_bytes - local_bytes // pieces)
        elif collective.kind is StepKind.ALL_GATHER:
            yield PlanStep(
                collective.kind, (("dim", dim), ("axes", axes)), after, local_bytes * (pieces - 1)
            )
            local_bytes *= pieces
        elif collective.kind is StepKind.REDUCE_SCATTER:
            yield PlanStep(
                collective.kind,
                (("dim", dim), ("axes", axes), op),
                after,
                local_bytes - local_bytes // pieces,
            )
            local_bytes //= pieces
        else:
            yield PlanStep(collective.kind, (("dim", dim), ("axes", axes)), after, 0)
            local_bytes //= pieces
        before = after


def _sharding_up_to(collective: GreedyCollective, before: Sharding, dim: int) -> Sharding:
    """Return the sharding after the collective has changed the dimensions up to `dim`."""
    dims = (*before.dims[:dim], collective.sharding.dims[dim], *before.dims[dim + 1 :])
    due = before.unreduced
    if collective.kind is StepKind.REDUCE_SCATTER:
        due = tuple(axis for axis in due if axis not in collective.axes[dim])
    return replace(before, dims=dims, unreduced=due)


def _replaced_axes(before: Sharding, after: Sharding) -> tuple[tuple[str, Attr], ...]:
    """Return the axes that a permutation replaces, and their replacements."""
    source: list[Axis] = []
    target: list[Axis] = []
    for old, new in zip(before.axes, after.axes, strict=True):
        if old != new:
            source.extend(old)
            target.extend(new)
    return (("source", tuple(source)), ("target", tuple(target)))


def _steps_of_moves(problem: ReshardProblem, moves: list[LatticeMove]) -> Iterator[PlanStep]:
    """Yield moves as steps; adjacent moves of one kind on one dimension are merged."""
    before = problem.start
    for move in _merge_adjacent_moves(moves):
        yield _step_of_move(problem, before, move)
        before = move.after
    if problem.begins_unreduced:
        end = replace(problem.target, dims=problem.sharding(before).dims, replicated=())
        yield PlanStep(StepKind.UNREDUCE, (("axes", problem.begins_unreduced),), end, 0)


def _merge_adjacent_moves(moves: list[LatticeMove]) -> list[LatticeMove]:
    merged: list[LatticeMove] = []
    for move in moves:
        last = merged[-1] if merged else None
        if last and (last.kind, last.dim) == (move.kind, move.dim) and move.kind in MERGED_STEPS:
            # A gather removes the last axes first; the other steps add axes in order.
            parts = (move, last) if move.kind is StepKind.ALL_GATHER else (last, move)
            sub_axes = tuple(a for part in parts for a in part.sub_axes)
            cost = (last.cost[0] + move.cost[0], last.cost[1], last.cost[2])
            merged[-1] = replace(move, sub_axes=sub_axes, cost=cost)
        else:
            merged.append(move)
    return merged


def _step_of_move(problem: ReshardProblem, before: LatticeState, move: LatticeMove) -> PlanStep:
    parts = [problem.sub_axes[a] for a in move.sub_axes]
    axes = merge_axes(parts)
    op = Symbol(problem.source.reduction)
    attrs: dict[str, Attr]
    match move.kind:
        case StepKind.ALL_TO_ALL:
            attrs = {"split": move.other, "concat": move.dim, "axes": axes}
        case StepKind.COLLECTIVE_PERMUTE:
            attrs = _permutation(problem, before[0], move.after[0])
        case StepKind.ALL_REDUCE:
            attrs = {"axes": merge_axes(_in_unreduced_order(parts, problem.source)), "op": op}
        case StepKind.REDUCE_SCATTER:
            attrs = {"dim": move.dim, "axes": axes, "op": op}
        case _:
            attrs = {"dim": move.dim, "axes": axes}
    return PlanStep(move.kind, tuple(attrs.items()), problem.sharding(move.after), move.cost[0])


def _in_unreduced_order(parts: Sequence[Axis], source: Sharding) -> list[Axis]:
    """Sort parts of unreduced axes as these are written: devices combine terms in the order of the
    axes, and the result must not depend on the target."""

    def position(part: Axis) -> tuple[int, int]:
        axes = enumerate(source.unreduced)
        return next(i for i, axis in axes if axis.contains(part)), part.pre

    return sorted(parts, key=position)


def _permutation(problem: ReshardProblem, before: DimSubAxes, after: DimSubAxes) -> dict[str, Attr]:
    """Return the replaced axes and their replacements, merged to the largest possible sub-axes."""
    source: list[Axis] = []
    target: list[Axis] = []
    last = (-1, -1)
    for dim, dim_axes in enumerate(before):
        pairs = list(zip(dim_axes, after[dim], strict=True))
        aligned = all(problem.sizes[a] == problem.sizes[b] for a, b in pairs)
        for i, (a, b) in enumerate(pairs):
            if a == b and aligned:
                continue
            old, new = problem.sub_axes[a], problem.sub_axes[b]
            joins = last == (dim, i - 1) and all(
                len(merge_axes(pair)) == 1 for pair in ((source[-1], old), (target[-1], new))
            )
            if joins:
                source[-1], target[-1] = (
                    merge_axes((source[-1], old))[0],
                    merge_axes((target[-1], new))[0],
                )
            else:
                source.append(old)
                target.append(new)
            last = dim, i
    return {"source": tuple(source), "target": tuple(target)}
