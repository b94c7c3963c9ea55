"""Plan how a tensor gets from one sharding to another: the cheapest sequence of collectives.

A plan is a path in the lattice of shardings. Every step moves some cuts: `all-slice` adds cuts to
a dimension, `all-gather` removes its last ones, `all-to-all` moves the last cuts of one dimension
to the end of another, `collective-permute` cuts along other axes without changing how many pieces
there are, `all-reduce` and `reduce-scatter` finish pending sums. The cheapest plan has the fewest
bytes received per device, then the fewest collectives. Devices are never listed: planning for a
mesh of eight takes as long as for one of four thousand.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from shardir.groups import merge
from shardir.opset import Attr, Symbol
from shardir.passes.lattice import Cuts, Move, Problem, State, plain, search
from shardir.placement import Axis, Sharding
from shardir.types import TensorType


def same_placement(a: Sharding, b: Sharding) -> bool:
    """Whether every device holds the same under both."""
    combined = a.reduction == b.reduction or not a.unreduced
    return a.axes == b.axes and a.unreduced == b.unreduced and combined


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan: an operation with its attributes, and the sharding it leads to.

    `unreduce` is not an operation but a few: it begins a pending sum by keeping the value on the
    first device of each group and the identity of the reduction on the others.
    """

    name: str
    attrs: tuple[tuple[str, Attr], ...]
    sharding: Sharding
    nbytes: int
    """Received by each device."""


@lru_cache(maxsize=1 << 14)
def plan(source: Sharding, target: Sharding, type: TensorType) -> tuple[Step, ...]:
    """The cheapest steps from `source` to `target`, both closed and dividing `type`."""
    if same_placement(source, target):
        return ()
    problem = Problem(source, target, type)
    moves = search(problem) if problem.solvable else plain(problem)
    return tuple(_steps(problem, moves))


def _steps(problem: Problem, moves: list[Move]) -> Iterator[Step]:
    """Moves as operations; neighbours of one kind on one dimension are one."""
    before = problem.start
    for move in _joined(moves):
        yield _step(problem, before, move)
        before = move.after
    if problem.begun:
        end = replace(problem.target, dims=problem.sharding(before).dims, replicated=())
        yield Step("unreduce", (("axes", problem.begun),), end, 0)


def _joined(moves: list[Move]) -> Iterator[Move]:
    last: Move | None = None
    for move in moves:
        same = last is not None and (last.name, last.dim) == (move.name, move.dim)
        if last is not None and same and move.name in ("all-slice", "reduce-scatter"):
            last = _both(last, move, (*last.atoms, *move.atoms))
        elif last is not None and same and move.name == "all-gather":
            last = _both(last, move, (*move.atoms, *last.atoms))
        else:
            if last is not None:
                yield last
            last = move
    if last is not None:
        yield last


def _both(first: Move, then: Move, atoms: tuple[int, ...]) -> Move:
    cost = (first.cost[0] + then.cost[0], first.cost[1], first.cost[2])
    return replace(then, atoms=atoms, cost=cost)


def _step(problem: Problem, before: State, move: Move) -> Step:
    axes = merge([problem.atoms[a] for a in move.atoms])
    op = Symbol(problem.source.reduction)
    attrs: dict[str, Attr]
    match move.name:
        case "all-to-all":
            attrs = {"split": move.other, "concat": move.dim, "axes": axes}
        case "collective-permute":
            attrs = _permutation(problem, before[0], move.after[0])
        case "all-reduce":
            attrs = {"axes": axes, "op": op}
        case "reduce-scatter":
            attrs = {"dim": move.dim, "axes": axes, "op": op}
        case _:
            attrs = {"dim": move.dim, "axes": axes}
    return Step(move.name, tuple(attrs.items()), problem.sharding(move.after), move.cost[0])


def _permutation(problem: Problem, before: Cuts, after: Cuts) -> dict[str, Attr]:
    """The axes that are replaced and what replaces them, as whole as they can be written."""
    source: list[Axis] = []
    target: list[Axis] = []
    last = (-1, -1)
    for dim, cut in enumerate(before):
        pairs = list(zip(cut, after[dim], strict=True))
        aligned = all(problem.sizes[a] == problem.sizes[b] for a, b in pairs)
        for i, (a, b) in enumerate(pairs):
            if (a == b and aligned) or cut == after[dim]:
                continue
            old, new = problem.atoms[a], problem.atoms[b]
            joins = last == (dim, i - 1) and all(
                len(merge(pair)) == 1 for pair in ((source[-1], old), (target[-1], new))
            )
            if joins:
                source[-1], target[-1] = merge((source[-1], old))[0], merge((target[-1], new))[0]
            else:
                source.append(old)
                target.append(new)
            last = dim, i
    return {"source": tuple(source), "target": tuple(target)}
