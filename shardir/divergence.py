"""Whether all devices of a mesh meet the same collectives in the same order.

A per-device program goes other ways on other devices only where a loop or a branch is decided by
a value that differs between them. Along which mesh axes a value differs is found without listing
devices: arguments differ along the axes that cut them, `axis-index` along its own, what is
gathered or reduced no longer differs along the axes of that, and all else as its operands do. A
collective inside of a loop or a branch whose decision differs would be met by some devices and
not by others: they would wait for ever, or take one another's numbers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product
from math import lcm

from shardir.axes import append, coexist, overlap
from shardir.ir import Block, Function, Op, Value
from shardir.mesh import Mesh
from shardir.placement import Axes, Axis
from shardir.text.printer import mesh_of, show_axis

Parts = frozenset[Axis]
"""Parts of mesh axes, none of which overlap."""
ALIKE: Parts = frozenset()
GATHERING = ("all-reduce", "all-gather")
"""Operations after which all devices along their axes have the same."""
WAYS = 16
"""In how many ways axes are looked at whose parts fit no one way to split them."""


@dataclass(frozen=True)
class Divergence:
    """A collective that only some devices meet: `control` goes as `decision` says, which differs
    along `axes`."""

    collective: Op
    control: Op
    decision: Value
    axes: Axes

    def told(self, decision: str, meshes: tuple[Mesh, ...]) -> str:
        """What is wrong, where the value that decides is called `decision`."""
        along = ", ".join(show_axis(axis, mesh_of(axis.name, meshes)) for axis in self.axes)
        return (
            f"{self.collective.name} may be met by some devices only: {self.control.name} goes as "
            f"{decision} says, which differs along {along}; decide by what all devices have, such "
            "as an all-reduce of it"
        )


def divergences(function: Function) -> list[Divergence]:
    """Every collective of a per-device function that some devices may not meet."""
    risky = any(
        inner.spec.collective
        for op in function.body.walk()
        if _decides(op)
        for block in op.blocks
        for inner in block.walk()
    )
    if not risky:
        return []
    # Each way to see the axes finds too many rather than too few.
    first, *others = (_Ways(function, bounds).found() for bounds in _bounds(function))
    met = [{divergence.collective for divergence in found} for found in others]
    return [d for d in first if all(d.collective in found for found in met)]


def differing(function: Function) -> dict[Value, Parts]:
    """Along which parts of axes the values of a per-device function may differ.

    A value that is not listed differs along none.
    """
    ways = _Ways(function, next(_bounds(function)))
    ways.found()
    return ways.differs


def _decides(op: Op) -> bool:
    return op.name in ("while", "case")


class _Ways:
    """Along which parts of axes each value of a function differs."""

    def __init__(self, function: Function, bounds: dict[str, Axes]) -> None:
        self.function = function
        self.differs: dict[Value, Parts] = {}
        self.changed = False
        self.bounds = bounds
        assert function.spmd is not None
        for value, outer in zip(function.body.params, function.spmd.params, strict=True):
            sharding = outer.sharding
            self.note(value, self.touched((*sharding.used(), *sharding.unreduced)))

    def found(self) -> list[Divergence]:
        self.changed = True
        while self.changed:  # What goes round loops takes a few rounds.
            self.changed = False
            self.block(self.function.body)
        return list(dict.fromkeys(self.meetings(self.function.body, None)))

    def note(self, value: Value, parts: Parts) -> None:
        known = self.differs.get(value)
        if known is None or not parts <= known:
            self.differs[value] = parts | (known or ALIKE)
            self.changed = True

    def of(self, values: Iterable[Value]) -> Parts:
        return ALIKE.union(*(self.differs.get(value, ALIKE) for value in values))

    def block(self, block: Block) -> None:
        for op in block.ops:
            if not op.blocks:
                parts = self.made(op)
                for value in op.results:
                    self.note(value, parts)
                continue
            edges = op.edges()
            for edge in edges:
                for target in edge.targets:
                    self.note(target, self.of(edge.sources))
            for inner in op.blocks:
                self.block(inner)
            decided = self.of(self.decision(op))
            bound = {target for edge in edges for target in edge.targets}
            for value in op.results:
                more = ALIKE if value in bound else self.of(v for b in op.blocks for v in b.returns)
                self.note(value, decided | more)

    def decision(self, op: Op) -> tuple[Value, ...]:
        """The value by which an operation goes one way or another."""
        if not _decides(op):
            return ()
        return op.blocks[0].returns if op.name == "while" else op.operands[:1]

    def made(self, op: Op) -> Parts:
        """Along which parts the results of an operation without blocks differ."""
        parts, name = self.of(op.operands), op.name.removesuffix("-start")
        axes = op.attrs.get("axes", ())
        if name in GATHERING:
            crossing = [a for a in axes if not all(coexist(a, p) for p in parts)]
            return (parts | self.touched(crossing)) - self.covered(axes)
        if name == "reduce-scatter":
            return (parts - self.covered(axes)) | self.touched(axes)
        if name == "collective-permute" and not axes:
            return self.moved(parts, op.attrs["source"], op.attrs["target"])
        if op.spec.exchange is not None or op.spec.spmd:
            return parts | self.touched(axes)
        return parts

    def moved(self, parts: Parts, source: Axes, target: Axes) -> Parts:
        """What differed along `source` differs along `target`, and the other way round where one
        of both has axes that the other has not."""
        old, new = self.touched(source), self.touched(target)
        if not parts & (old | new):
            return parts
        kept = parts - self.covered(source) - self.covered(target)
        kept |= new if parts & old else ALIKE
        return kept | (old - new if parts & (new - old) else ALIKE)

    def meetings(self, block: Block, under: tuple[Op, Value] | None) -> Iterator[Divergence]:
        """The collectives under a decision that differs; `under` is the outermost."""
        for op in block.ops:
            if under and op.spec.collective:
                yield Divergence(op, *under, self.axes(self.differs[under[1]]))
            differing = (v for v in self.decision(op) if self.differs.get(v))
            decision = next(differing, None)
            inside = under or (None if decision is None else (op, decision))
            for inner in op.blocks:
                yield from self.meetings(inner, inside)

    # Parts of axes

    def touched(self, axes: Sequence[Axis]) -> Parts:
        """The parts that overlap any of `axes`, or cannot be told apart from it."""
        return frozenset(p for a in axes for p in self.bounds[a.name] if overlap((p,), (a,)))

    def covered(self, axes: Sequence[Axis]) -> Parts:
        """The parts that lie inside one of `axes`."""
        return frozenset(
            p for a in axes for p in self.bounds[a.name] if a.contains(p) and coexist(a, p)
        )

    def axes(self, parts: Parts) -> Axes:
        joined: Axes = ()
        for part in sorted(parts):
            joined = append(joined, part)
        return joined


def _bounds(function: Function) -> Iterator[dict[str, Axes]]:
    """Each mesh axis that is named, in parts that every use of it is made of, if there are such.

    If not, all ways to split it that some of its uses have in common, up to a few.
    """
    ends: dict[str, set[int]] = {}
    for axis in _named(function):
        ends.setdefault(axis.name, {1}).update((axis.pre, axis.next))
    ways = [
        [
            tuple(Axis(name, low, high // low) for low, high in pairwise(chain))
            for chain in _chains(sorted({*found, lcm(*found)}))
        ]
        for name, found in ends.items()
    ]
    for parts in islice(product(*ways), WAYS):
        yield dict(zip(ends, parts, strict=True))


def _chains(numbers: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The longest lists from the first to the last of rising numbers that divide one another."""
    first, *rest = numbers
    if not rest:
        yield (first,)
    for i, number in enumerate(rest):
        between = [n for n in rest[:i] if number % n == 0 and n % first == 0]
        if number % first == 0 and not between:
            for chain in _chains(rest[i:]):
                yield (first, *chain)


def _named(function: Function) -> Iterator[Axis]:
    """Every axis that the function speaks of."""
    assert function.spmd is not None
    for outer in function.spmd.params:
        yield from (*outer.sharding.used(), *outer.sharding.unreduced)
    for op in function.body.walk():
        for name in ("axes", "source", "target"):
            yield from op.attrs.get(name, ())
