"""The axes along which values differ are exact, also for parts that belong to no common split."""

from collections.abc import Iterator
from itertools import pairwise
from random import Random

import pytest

from shardir.interpret.interpreter import run
from shardir.ir.device_groups import group_array, merge_axes
from shardir.ir.mesh import Mesh
from shardir.ir.sharding import Axes, Axis, count_positions
from shardir.ir.types import NumpyArray
from shardir.text.parser import parse
from shardir.text.printer import format_axis
from shardir.verify.divergence import find_differing
from shardir.verify.position_classes import EQUAL, PositionClasses

SIZES = ((6, 1), (6, 2), (12, 1), (30, 1), (4, 6))
"""The sizes of the axes x and y of the meshes."""


def find_splits(size: int, start: int = 1) -> Iterator[tuple[int, ...]]:
    """Yield the ascending divisors from `start` to `size`, each a multiple of the one before."""
    if start == size:
        yield (size,)
    for end in range(2 * start, size + 1, start):
        if size % end == 0:
            yield from ((start, *rest) for rest in find_splits(size, end))


def parts_of(split: tuple[int, ...], name: str) -> Axes:
    return tuple(Axis(name, low, high // low) for low, high in pairwise(split))


class RandomProgram:
    """A per-device program of integers that differ if anything they depend on does."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        x, y = self.random.choice(SIZES)
        self.mesh = Mesh("m", (("x", x), ("y", y)) if y > 1 else (("x", x),))
        self.lines: list[str] = []
        self.values: list[str] = []
        for _ in range(2):
            self.add_mixed(self.add(f"axis-index(axes={self.axes()})"))
        for _ in range(8):
            self.random.choice(
                (self.add_sum, self.add_gather, self.add_move, self.add_ring, self.add_function)
            )()

    def axes(self) -> str:
        """Return the text of some parts of some split of one axis, or of both."""
        found: list[Axis] = []
        for name, size in self.mesh.axes:
            parts = parts_of(self.random.choice(list(find_splits(size))), name)
            found += (part for part in parts if self.random.random() < 0.5)
        return self.text(found or [Axis.full("x", self.mesh)])

    def text(self, axes: list[Axis]) -> str:
        self.random.shuffle(axes)
        self.count = count_positions(axes)
        return f"[{', '.join(format_axis(axis, self.mesh) for axis in axes)}]"

    def add(self, text: str, type: str = "i32[]") -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text} : {type}")
        return name

    def add_mixed(self, value: str) -> None:
        """Append a polynomial of a value."""
        for _ in range(2):
            factor = self.add(f"constant(value={self.random.randrange(1, 1 << 30) | 1})")
            term = self.add(f"constant(value={self.random.randrange(1 << 30)})")
            linear = self.add(f"add({self.add(f'mul({value}, {factor})')}, {term})")
            value = self.add(f"mul({linear}, {self.add(f'add({linear}, {value})')})")
        self.values.append(value)

    def operand(self) -> str:
        return self.random.choice(self.values[-3:])

    def add_function(self) -> None:
        self.add_mixed(self.add(f"add({self.operand()}, {self.operand()})"))

    def add_sum(self) -> None:
        self.add_mixed(self.add(f"all-reduce({self.operand()}, axes={self.axes()}, op=add)"))

    def add_gather(self) -> None:
        one = self.add(f"reshape({self.operand()})", "i32[1]")
        axes = self.axes()
        n = f"i32[{self.count}]"
        parts = self.add(f"all-gather({one}, dim=0, axes={axes})", n)
        weights = self.add("iota(dim=0)", n)
        cubes = self.add(f"mul({weights}, {self.add(f'mul({weights}, {weights})', n)})", n)
        weighted = self.add(f"mul({parts}, {self.add(f'add({cubes}, {parts})', n)})", n)
        self.add_mixed(self.add(f"sum({weighted}, dims=[0])"))

    def add_move(self) -> None:
        """Append a permute from some parts of a split to the same parts in another order."""
        parts = list(parts_of(self.random.choice(list(find_splits(self.mesh.sizes["x"]))), "x"))
        source, target = self.text(parts), self.text(parts)
        text = f"collective-permute({self.operand()}, source={source}, target={target})"
        self.add_mixed(self.add(text))

    def add_ring(self) -> None:
        """Append a permute along axes along which the operand is equal: it stays equal."""
        operand, axes = self.operand(), self.axes()
        equal = self.add(f"all-reduce({operand}, axes={axes}, op=add)")
        pairs = ", ".join(f"[{i}, {(i + 1) % self.count}]" for i in range(self.count))
        self.add_mixed(self.add(f"collective-permute({equal}, axes={axes}, pairs=[{pairs}])"))

    def __str__(self) -> str:
        axes = f"({', '.join(self.mesh.sizes)})" if len(self.mesh.axes) > 1 else "x"
        results = [self.add(f"reshape({value})", "i32[1]") for value in self.values]
        types = ", ".join([f"i32[1] of i32[{self.mesh.size}@{axes}]"] * len(results))
        sizes = ", ".join(f"{name}={size}" for name, size in self.mesh.axes)
        head = f"mesh @m = [{sizes}]\n\nspmd func @main() -> ({types}) {{\n"
        return head + "\n".join(self.lines) + f"\n  return {', '.join(results)}\n}}\n"


def differs(values: NumpyArray, axis: Axis, mesh: Mesh) -> bool:
    rows = values[group_array(mesh, (axis,))]
    return bool((rows != rows[:, :1]).any())


@pytest.mark.parametrize("seed", range(40))
def test_differing_axes_are_the_fewest_along_which_values_differ(seed: int) -> None:
    program = RandomProgram(seed)
    module = parse(str(program))
    stated = find_differing(module.main)
    for value, found in zip(module.main.body.returns, run(module, []), strict=True):
        axes = stated.get(value, ())
        for name, size in program.mesh.axes:
            ways = [
                merge_axes([p for p in parts_of(split, name) if differs(found, p, program.mesh)])
                for split in find_splits(size)
            ]
            fewest = min(map(count_positions, ways))
            along = tuple(axis for axis in axes if axis.name == name)
            assert along in [way for way in ways if count_positions(way) == fewest], value.name


HALVES, THIRDS = Axis("x", 1, 2), Axis("x", 1, 3)
MINOR_THIRDS, MINOR_HALVES = Axis("x", 2, 3), Axis("x", 3, 2)


@pytest.fixture
def classes() -> PositionClasses:
    """Return the classes of the positions along an axis of size 6 that is split in both ways."""
    return PositionClasses((HALVES, MINOR_THIRDS, THIRDS, MINOR_HALVES))


def test_gathers_along_both_parts_of_one_split_make_values_equal(classes: PositionClasses) -> None:
    different = classes.along((Axis("x", 1, 6),))
    for split in ((HALVES, MINOR_THIRDS), (THIRDS, MINOR_HALVES)):
        for first, second in (split, split[::-1]):
            gathered = classes.gather(different, (first,))
            assert classes.differing_axes(gathered) == (second,)
            assert classes.gather(gathered, (second,)) == EQUAL


def test_gathers_along_minor_parts_of_two_splits_leave_values_different(
    classes: PositionClasses,
) -> None:
    rows = classes.gather(classes.along((Axis("x", 1, 6),)), (MINOR_THIRDS,))
    assert classes.of(rows).tolist() == [0, 0, 0, 3, 3, 3]
    both = classes.gather(rows, (MINOR_HALVES,))
    assert classes.of(both).tolist() == [0, 0, 2, 2, 4, 4]
    assert classes.differing_axes(both) == (THIRDS,)


def test_a_sum_in_any_order_along_major_parts_of_two_splits_is_equal(
    classes: PositionClasses,
) -> None:
    """Positions 0, 2, 4 and positions 1, 3, 5 have the same three values in another order."""
    halves = classes.gather(classes.along((Axis("x", 1, 6),)), (HALVES,))
    assert classes.of(halves).tolist() == [0, 1, 2, 0, 1, 2]
    assert classes.gather(halves, (THIRDS,), in_order=False) == EQUAL
    assert classes.of(classes.gather(halves, (THIRDS,))).tolist() == [0, 1, 0, 1, 0, 1]


ONE_OPERATION = """\
mesh @m = [x=6]

spmd func @main() -> (TYPE of TYPE) {
  %i = axis-index(axes=[x:(1)2]) : i32[]
  %0 = broadcast(%i, dims=[]) : i32[6, 6]
  OPERATION
  return %y
}
"""


@pytest.mark.parametrize(
    ("operation", "differing"),
    [
        ("all-slice(%0, dim=0, axes=[x:(1)3]) : i32[2, 6]", "x:(1)6"),
        ("all-slice(%0, dim=0, axes=[x:(2)3]) : i32[2, 6]", "x:(1)6"),
        ("all-slice(%0, dim=0, axes=[x:(1)2]) : i32[3, 6]", "x:(1)2"),
        # Positions 0 and 1 have parts 0 of (0, 0, 1) and of (0, 1, 1).
        ("all-to-all(%0, split=0, concat=1, axes=[x:(1)3]) : i32[2, 18]", "x:(1)6"),
        ("all-to-all(%0, split=0, concat=1, axes=[x:(1)2]) : i32[3, 12]", "x:(1)2"),
        ("reduce-scatter(%0, dim=0, axes=[x:(2)3], op=add) : i32[2, 6]", "x:(1)6"),
        ("reduce-scatter(%0, dim=0, axes=[x:(1)2], op=add) : i32[3, 6]", "x:(1)2"),
        ("collective-permute(%0, axes=[x:(2)3], pairs=[[0, 1], [1, 2]]) : i32[6, 6]", "x:(1)6"),
        (
            "collective-permute(%0, axes=[x:(2)3], pairs=[[0, 1], [1, 2], [2, 0]]) : i32[6, 6]",
            "x:(1)2",
        ),
        ("all-gather-start(%0, dim=0, axes=[x:(1)2]) : i32[12, 6]", ""),
    ],
)
def test_each_operation(operation: str, differing: str) -> None:
    text = ONE_OPERATION.replace("OPERATION", f"%y = {operation}")
    main = parse(text.replace("TYPE", operation.rpartition(" : ")[2])).main
    axes = find_differing(main).get(main.body.returns[0], ())
    assert ", ".join(map(str, axes)) == differing


def test_the_number_of_positions_does_not_depend_on_the_number_of_devices() -> None:
    x, major, minor = Axis("x", 1, 1024), Axis("y", 1, 32), Axis("y", 32, 32)
    y = Axis("y", 1, 1024)
    classes = PositionClasses((x, y), [((x,), (y,))])
    assert classes.mesh.size == 4
    moved = classes.permute(classes.along((x,)), (x,), (y,))
    assert classes.differing_axes(moved) == (y,)
    classes = PositionClasses((x, major, minor))
    assert classes.mesh.size == 8
    assert classes.differing_axes(classes.gather(classes.along((y,)), (major,))) == (minor,)


def test_axes_keep_their_sizes_if_a_permute_moves_values_between_other_parts() -> None:
    """Position 5 of `x` is position (1, 1) of `y` and `z`, which parts of size 2 would not have.
    Values of `z` move to `w`, and those of `w` to `v`."""
    sizes = {"x": 12, "y": 3, "z": 4, "w": 4, "v": 4}
    x, y, z, w, v = (Axis(name, 1, size) for name, size in sizes.items())
    moves: list[tuple[Axes, Axes]] = [((x,), (y, z)), ((z,), (w,)), ((w,), (v,))]
    for order in (moves, moves[::-1]):
        assert dict(PositionClasses((x, y, z, w, v), order).mesh.axes) == sizes
    scaled = PositionClasses((x, y, z, w, v), moves[1:])
    assert dict(scaled.mesh.axes) == dict.fromkeys(sizes, 2)


def test_parts_of_moved_axes_are_compared_not_only_their_sizes() -> None:
    x, y, part = Axis("x", 1, 8), Axis("y", 1, 8), Axis("y", 2, 4)
    assert dict(PositionClasses((x, y), [((x,), (y,))]).mesh.axes) == {"x": 2, "y": 2}
    assert dict(PositionClasses((x, y, part), [((x,), (y,))]).mesh.axes) == {"x": 8, "y": 8}
