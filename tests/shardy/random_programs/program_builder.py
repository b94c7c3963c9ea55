"""Builder of a random program: its values so far, and shardings of new values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from shardir import ops as ops  # declares the operations
from shardir.ir.builder import Builder, UniqueNames
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Value
from shardir.ir.sharding import Axes, Axis, DimSharding, Sharding
from shardir.ir.sub_axes import append_axis
from shardir.ir.types import TensorType

MESHES = (
    (("x", 2), ("y", 2)),
    (("x", 4), ("y", 2)),
    (("x", 2), ("y", 2), ("z", 2)),
    (("x", 8),),
    (("x", 4), ("y", 4)),
    (("x", 2), ("y", 3)),
    (("x", 6), ("y", 2)),
    (("x", 4), ("y", 3), ("z", 2)),
    (("x", 12), ("y", 5)),
    (("x", 4), ("one", 1)),
    (("one", 1), ("x", 2), ("y", 4), ("uno", 1)),
    (("one", 1),),
)


SIZES = (1, 2, 3, 4, 4, 6, 8, 8, 12, 16, 24)


KINDS: dict[str, Callable[["ProgramBuilder"], Any]] = {}
"""A function that draws an operation, for each kind that `random_programs.programs` lists."""


@dataclass
class Options:
    """Options of random programs."""

    size: int = 8
    priorities: bool = True
    constraints: bool = True
    regions: bool = True
    constants: bool = True
    groups: bool = True
    manual: bool = True
    meshes: int = 1
    """Shardings are on the first of so many meshes, mostly."""
    maximal: bool = False
    """Whether some values are on a single device."""
    calls: bool = False
    """Whether functions are called, which only the text of a program can say."""
    kinds: Sequence[str] = ()
    """The kinds of operations, all if empty."""


@dataclass
class ProgramBuilder:
    """Builds one random program."""

    random: Random
    options: Options
    meshes: tuple[Mesh, ...]
    names: UniqueNames = field(default_factory=UniqueNames)
    params: list[Value] = field(default_factory=list)
    depth: int = 0
    shapes: dict[tuple[int, ...], int] = field(default_factory=dict)
    """A number for each shape that has groups."""
    local: tuple[str, ...] = ()
    """The manual axes."""
    functions: list[Function] = field(default_factory=list)
    """What is called."""
    single: Mesh | None = None
    """The mesh of a single device, if values may be on one."""

    def __post_init__(self) -> None:
        self.b = Builder(self.names)
        self.pool: list[Value] = []

    # --- values

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        rank = self.random.choice((1, 2, 2, 2, 3, 3, 4)) if rank is None else rank
        return tuple(self.random.choice(SIZES) for _ in range(rank))

    def fresh(self, shape: tuple[int, ...]) -> Value:
        """A new parameter, or a constant."""
        type = TensorType(shape, "f32")
        if self.options.constants and self.chance(0.2):
            return self.constant(type)
        sharding = self.sharding(shape) if self.chance(0.5) else None
        param = Value(type, self.names.fresh("p"), sharding)
        self.params.append(param)
        return param

    def constant(self, type: TensorType) -> Value:
        kind = self.random.randrange(4 if type.rank else 1)
        made: Value
        if kind == 0:
            made = self.b.constant(value=1.0, result=type)
        elif kind == 1:
            made = self.b.iota(dim=self.random.randrange(type.rank), result=type)
        elif kind == 2:
            scalar = Value(TensorType((), "f32"), self.names.fresh("s"))
            self.params.append(scalar)
            made = self.b.broadcast(scalar, dims=(), result=type)
        else:
            made = self.b.neg(self.b.constant(value=1.0, result=type))
        self.pool.append(made)
        return made

    def any(self, rank: int | None = None) -> Value:
        """Return a value of the pool (a recent one more often), or a new one."""
        fits = [
            v
            for v in self.pool
            if v.type.rank and rank in (None, v.type.rank) and v.type.dtype == "f32"
        ]
        if fits and self.chance(0.85):
            return fits[-1] if self.chance(0.4) else self.random.choice(fits)
        value = self.fresh(self.shape(rank))
        self.pool.append(value)
        return value

    def like(self, shape: tuple[int, ...]) -> Value:
        """Return a value with a shape."""
        fits = [v for v in self.pool if v.type == TensorType(shape, "f32")]
        if fits and self.chance(0.7):
            return self.random.choice(fits)
        value = self.fresh(shape)
        self.pool.append(value)
        return value

    def index(self) -> Value:
        """Return a rank-0 start index."""
        start: Value = self.b.constant(value=0, result=TensorType((), "i32"))
        return start

    # --- shardings

    def atoms(self, mesh: Mesh) -> list[Axis]:
        """Return the axes, some of them divided into two or three sub-axes."""
        atoms = []
        for name, size in mesh.axes:
            if name in self.local:
                continue
            pre = 1
            while self.chance(0.25) and size // pre > 3:
                parts = [n for n in range(2, size // pre) if (size // pre) % n == 0]
                if not parts:
                    break
                part = self.random.choice(parts)
                atoms.append(Axis(name, pre, part))
                pre *= part
            atoms.append(Axis(name, pre, size // pre))
        return atoms

    def sharding(self, shape: tuple[int, ...], *, closed: float = 0.4) -> Sharding:
        if self.single and not self.local and self.chance(0.1):
            return Sharding.fully_replicated(self.single.name, len(shape))
        mesh = self.random.choice(self.meshes) if self.chance(0.3) else self.meshes[0]
        atoms = self.atoms(mesh)
        self.random.shuffle(atoms)
        cuts: list[Axes] = [()] * len(shape)
        replicated: list[Axis] = []
        for axis in atoms:
            if shape and self.chance(0.5):
                dim = self.random.randrange(len(shape))
                cuts[dim] = append_axis(cuts[dim], axis)
            elif self.chance(0.15) and not any(a.name == axis.name for a in replicated):
                replicated.append(axis)
        order = list(mesh.sizes)
        replicated.sort(key=lambda axis: order.index(axis.name))
        all_closed = self.chance(0.3)
        return Sharding(
            mesh.name,
            tuple(self.dim(cut, all_closed or self.chance(closed)) for cut in cuts),
            tuple(replicated),
        )

    def dim(self, axes: Axes, closed: bool) -> DimSharding:
        priority = None
        if self.options.priorities and self.chance(0.12) and (axes or not closed):
            priority = self.random.choice((0, 1, 1, 2, 3))
        return DimSharding(axes, not closed, priority)

    # --- operations

    def run(self) -> None:
        kinds = self.options.kinds or [kind for kind in KINDS if self.allowed(kind)]
        for _ in range(self.options.size):
            made = KINDS[self.random.choice(kinds)](self)
            if made is None:
                continue
            results = list(made) if isinstance(made, tuple) else [made]
            if self.chance(0.15):
                results = self.annotate(results)
            self.pool += results
            if self.options.constraints and self.chance(0.1):
                self.pool.append(self.constrain(self.random.choice(results)))
            if self.options.groups and self.chance(0.25):
                self.group()

    def allowed(self, kind: str) -> bool:
        if kind == "call":
            return self.options.calls and self.depth < 2
        if kind == "manual":
            return self.options.manual and self.depth < 2
        return (self.options.regions and self.depth < 2) or kind not in ("while", "case")

    def annotate(self, results: list[Value]) -> list[Value]:
        """Annotate the results of the last operation."""
        op = self.b.ops[-1]
        if tuple(results) != op.results:
            return results
        if op.name == "manual_computation":
            return results
        new = tuple(
            replace(v, sharding=self.sharding(v.type.shape)) if self.chance(0.7) else v
            for v in results
        )
        self.b.ops[-1] = replace(op, results=new)
        return list(new)

    def group(self) -> None:
        """Put values of one shape into one of two groups of that shape.

        Results of manual computations are excluded: a group may assign manual axes to them, which
        Shardy's own verifier rejects.
        """
        one = self.any()
        if one.name.startswith("m."):
            return
        shape = one.type.shape
        alike = [
            v
            for v in self.pool
            if v.type.shape == shape and v is not one and not v.name.startswith("m.")
        ]
        number = 2 * self.shapes.setdefault(shape, len(self.shapes)) + self.random.randrange(2)
        for value in [one, *self.random.sample(alike, min(len(alike), self.random.randint(0, 3)))]:
            self.b.sharding_group(value, group=number)

    def constrain(self, value: Value) -> Value:
        sharding = self.sharding(value.type.shape, closed=0.6)
        made: Value = self.b.sharding_constraint(value, sharding=sharding)
        return made
