"""Random programs with random shardings, as hard on propagation as possible.

Shapes are small and share divisors, values are used several times, shardings are open, closed,
prioritised, in parts, explicitly replicated, on parameters, results, operations and constraints.
A program is a function of its seed. Nothing in it is dead: Shardy erases dead operations while
it propagates, and we do not.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from shardir import ops as ops  # declares the operations
from shardir.axes import append
from shardir.build import Builder, Names, substitute
from shardir.ir import Block, Function, Module, Op, Value
from shardir.mesh import Mesh
from shardir.ops.manual import local_type, with_cuts
from shardir.opset import OPS
from shardir.placement import Axes, Axis, Dim, Sharding
from shardir.types import TensorType

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
)
SIZES = (1, 2, 3, 4, 4, 6, 8, 8, 12, 16, 24)
UNARY = ("neg", "exp", "tanh", "abs", "sqrt", "floor", "logistic", "cos", "log1p", "sign")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "rem")


@dataclass
class Options:
    """How programs are drawn."""

    size: int = 8
    priorities: bool = True
    constraints: bool = True
    regions: bool = True
    constants: bool = True
    groups: bool = True
    manual: bool = True
    meshes: int = 1
    """Shardings are on the first of so many meshes, mostly."""
    kinds: Sequence[str] = ()
    """The kinds of operations, all if empty."""


@dataclass
class Maker:
    """Draws one program."""

    random: Random
    options: Options
    meshes: tuple[Mesh, ...]
    names: Names = field(default_factory=Names)
    params: list[Value] = field(default_factory=list)
    depth: int = 0
    shapes: dict[tuple[int, ...], int] = field(default_factory=dict)
    """A number for each shape that has groups."""
    local: tuple[str, ...] = ()
    """The manual axes."""

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
        """A value of the pool (a recent one more often), or a new one."""
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
        """A value of a shape."""
        fits = [v for v in self.pool if v.type == TensorType(shape, "f32")]
        if fits and self.chance(0.7):
            return self.random.choice(fits)
        value = self.fresh(shape)
        self.pool.append(value)
        return value

    def index(self) -> Value:
        """A rank-0 start."""
        start: Value = self.b.constant(value=0, result=TensorType((), "i32"))
        return start

    # --- shardings

    def atoms(self, mesh: Mesh) -> list[Axis]:
        """The axes, some of them in two or three parts."""
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
        mesh = self.random.choice(self.meshes) if self.chance(0.3) else self.meshes[0]
        atoms = self.atoms(mesh)
        self.random.shuffle(atoms)
        cuts: list[Axes] = [()] * len(shape)
        replicated: list[Axis] = []
        for axis in atoms:
            if shape and self.chance(0.5):
                dim = self.random.randrange(len(shape))
                cuts[dim] = append(cuts[dim], axis)
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

    def dim(self, axes: Axes, closed: bool) -> Dim:
        priority = None
        if self.options.priorities and self.chance(0.12) and (axes or not closed):
            priority = self.random.choice((0, 1, 1, 2, 3))
        return Dim(axes, not closed, priority)

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
        if kind == "manual":
            return self.options.manual and self.depth < 2
        return (self.options.regions and self.depth < 2) or kind not in ("while", "case")

    def annotate(self, results: list[Value]) -> list[Value]:
        """Say something about the results of the last operation."""
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

        What a manual computation gives is left out: a group may set manual axes on it, on which
        Shardy's own verification fails.
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


def _unary(m: Maker) -> Any:
    return m.b.emit(OPS[m.random.choice(UNARY)], m.any())


def _binary(m: Maker) -> Any:
    x = m.any()
    pair = [x, m.like(x.type.shape)]
    m.random.shuffle(pair)
    return m.b.emit(OPS[m.random.choice(BINARY)], *pair)


def _select(m: Maker) -> Any:
    x = m.any()
    y = m.like(x.type.shape)
    pred = m.b.lt(x, y) if m.chance(0.7) else None
    if pred is None:
        pred = Value(TensorType((), "bool"), m.names.fresh("p"))
        m.params.append(pred)
    return m.b.select(pred, m.like(x.type.shape), y)


def _clamp(m: Maker) -> Any:
    x = m.any()
    if m.chance(0.5):
        low = m.b.constant(value=0.0, result=TensorType((), "f32"))
        return m.b.clamp(low, x, low)
    return m.b.clamp(m.like(x.type.shape), x, m.like(x.type.shape))


def _convert(m: Maker) -> Any:
    x = m.any()
    if m.chance(0.5):
        return m.b.convert(m.b.convert(x, result=x.type.with_dtype("i32")), result=x.type)
    bits = m.b.bitcast(x, result=x.type.with_dtype("i32"))
    return m.b.bitcast(bits, result=x.type)


def _broadcast(m: Maker) -> Any:
    x = m.any()
    rank = min(4, x.type.rank + m.random.randrange(3))
    dims = tuple(sorted(m.random.sample(range(rank), min(x.type.rank, rank))))
    if len(dims) < x.type.rank:
        return None
    shape = list(m.shape(rank))
    for size, dim in zip(x.type.shape, dims, strict=True):
        if size != 1 or m.chance(0.5):
            shape[dim] = size
    return m.b.broadcast(x, dims=dims, result=x.type.with_shape(shape))


def _reshape(m: Maker) -> Any:
    x = m.any()
    left = x.type.size
    shape: list[int] = []
    while left > 1 and len(shape) < 3:
        size = m.random.choice([n for n in range(1, left + 1) if left % n == 0])
        shape.append(size)
        left //= size
    return m.b.reshape(x, result=x.type.with_shape([*shape, left] if left > 1 else shape or [1]))


def _transpose(m: Maker) -> Any:
    x = m.any()
    perm = list(range(x.type.rank))
    m.random.shuffle(perm)
    return m.b.transpose(x, perm=tuple(perm))


def _reverse(m: Maker) -> Any:
    x = m.any()
    return m.b.reverse(x, dims=(m.random.randrange(x.type.rank),))


def _slice(m: Maker) -> Any:
    x = m.any()
    shape, strides = [], []
    for size in x.type.shape:
        stride = 2 if size > 2 and m.chance(0.3) else 1
        most = (size - 1) // stride + 1
        shape.append(most if m.chance(0.5) else m.random.randint(1, most))
        strides.append(stride)
    starts = (0,) * x.type.rank
    return m.b.slice(x, starts=starts, strides=tuple(strides), result=x.type.with_shape(shape))


def _pad(m: Maker) -> Any:
    x = m.any()
    zero = m.b.constant(value=0.0, result=TensorType((), "f32"))
    low = tuple(m.random.choice((0, 0, 1, 2)) for _ in x.type.shape)
    high = tuple(m.random.choice((0, 0, 1, 4)) for _ in x.type.shape)
    interior = tuple(m.random.choice((0, 0, 0, 1)) for _ in x.type.shape)
    return m.b.pad(x, zero, low=low, high=high, interior=interior)


def _concatenate(m: Maker) -> Any:
    x = m.any()
    dim = m.random.randrange(x.type.rank)
    shape = list(x.type.shape)
    shape[dim] = m.random.choice(SIZES)
    parts = [x, m.like(tuple(shape)), *([m.like(x.type.shape)] if m.chance(0.3) else [])]
    m.random.shuffle(parts)
    return m.b.concatenate(*parts, dim=dim)


def _dynamic_slice(m: Maker) -> Any:
    x = m.any()
    shape = [n if m.chance(0.6) else m.random.randint(1, n) for n in x.type.shape]
    starts = [m.index() for _ in shape]
    return m.b.dynamic_slice(x, *starts, result=x.type.with_shape(shape))


def _dynamic_update_slice(m: Maker) -> Any:
    x = m.any()
    shape = tuple(n if m.chance(0.6) else m.random.randint(1, n) for n in x.type.shape)
    return m.b.dynamic_update_slice(x, m.like(shape), *[m.index() for _ in shape])


def _dot(m: Maker) -> Any:
    x = m.any()
    letters = "abcdfg"[: x.type.rank]
    sizes = dict(zip(letters, x.type.shape, strict=True))
    batch = [c for c in letters if m.chance(0.3)]
    summed = [c for c in letters if c not in batch and m.chance(0.5)]
    free = ["e"] if m.chance(0.8) else []
    other = [*batch, *summed, *free]
    if not other:
        return None
    m.random.shuffle(other)
    shape = tuple(sizes.get(c) or m.random.choice(SIZES) for c in other)
    y = m.like(shape)
    kept = [*batch, *(c for c in letters if c not in batch and c not in summed), *free]
    return m.b.dot(x, y, dims=f"{letters},{''.join(other)}->{''.join(kept)}")


def _reduce(m: Maker) -> Any:
    x = m.any()
    dims = [d for d in range(x.type.rank) if m.chance(0.4)] or [0]
    name = m.random.choice(("sum", "max", "min", "prod"))
    return m.b.emit(OPS[name], x, dims=tuple(dims))


def _cumulative(m: Maker) -> Any:
    x = m.any()
    name = m.random.choice(("cumsum", "cummax"))
    dim = m.random.randrange(x.type.rank)
    return m.b.emit(OPS[name], x, dim=dim, reverse=m.chance(0.3))


def _sort(m: Maker) -> Any:
    x = m.any()
    xs = [x, m.like(x.type.shape)] if m.chance(0.5) else [x]
    return m.b.sort(*xs, dim=m.random.randrange(x.type.rank))


def _top_k(m: Maker) -> Any:
    x = m.any()
    if x.type.shape[-1] == 1:
        return None
    # Of all elements, Shardy takes top_k for a copy.
    count = m.random.randint(1, x.type.shape[-1] - 1)
    values = x.type.with_shape((*x.type.shape[:-1], count))
    return m.b.top_k(x, result=(values, values.with_dtype("i32")))


def _indices(m: Maker, batch: tuple[int, ...], width: int) -> Value:
    type = TensorType((*batch, width), "i32")
    sharding = m.sharding(type.shape) if m.chance(0.4) else None
    param = Value(type, m.names.fresh("i"), sharding)
    m.params.append(param)
    return param


def _gather(m: Maker) -> Any:
    x = m.any()
    looked_up = sorted(m.random.sample(range(x.type.rank), m.random.randint(1, x.type.rank)))
    collapsed = tuple(d for d in looked_up if m.chance(0.6))
    batch = m.shape(m.random.choice((1, 1, 2)))
    offsets = [d for d in range(x.type.rank) if d not in collapsed]
    sizes = [
        x.type.shape[d] if m.chance(0.6) else m.random.choice((1, x.type.shape[d])) for d in offsets
    ]
    rank = len(batch) + len(offsets)
    if rank > 5:
        return None
    offset_dims = tuple(sorted(m.random.sample(range(rank), len(offsets))))
    parts = {"o": iter(sizes), "b": iter(batch)}
    shape = [next(parts["o" if d in offset_dims else "b"]) for d in range(rank)]
    return m.b.gather(
        x,
        _indices(m, batch, len(looked_up)),
        offset_dims=offset_dims,
        collapsed_dims=collapsed,
        start_index_map=tuple(looked_up),
        result=x.type.with_shape(shape),
    )


def _scatter(m: Maker) -> Any:
    x = m.any()
    looked_up = sorted(m.random.sample(range(x.type.rank), m.random.randint(1, x.type.rank)))
    inserted = tuple(d for d in looked_up if m.chance(0.6))
    batch = m.shape(1)
    window = [d for d in range(x.type.rank) if d not in inserted]
    sizes = [x.type.shape[d] if m.chance(0.7) else 1 for d in window]
    rank = len(batch) + len(window)
    window_dims = tuple(sorted(m.random.sample(range(rank), len(window))))
    parts = {"w": iter(sizes), "b": iter(batch)}
    shape = tuple(next(parts["w" if d in window_dims else "b"]) for d in range(rank))
    return m.b.scatter(
        x,
        _indices(m, batch, len(looked_up)),
        m.like(shape),
        update_window_dims=window_dims,
        inserted_window_dims=inserted,
        scatter_dims=tuple(looked_up),
        op=m.random.choice(("add", "set", "max")),
    )


def _reduce_window(m: Maker) -> Any:
    x = m.any()
    window = tuple(m.random.randint(1, min(3, n)) if m.chance(0.5) else 1 for n in x.type.shape)
    strides = tuple(m.random.choice((1, 1, 2)) for _ in window)
    ones = (1,) * x.type.rank
    return m.b.reduce_window(
        x,
        op=m.random.choice(("add", "max")),
        window=window,
        strides=strides,
        padding=tuple((0, n - 1) if m.chance(0.5) else (0, 0) for n in window),
        base_dilation=ones,
        window_dilation=ones,
    )


def _convolution(m: Maker) -> Any:
    spatial = m.random.choice((1, 2))
    x = m.any(spatial + 2)
    digits = "01"[:spatial]
    lhs, rhs, out = list("bf" + digits), list("io" + digits), list("bf" + digits)
    for term in (lhs, rhs, out):
        m.random.shuffle(term)
    sizes = dict(zip(lhs, x.type.shape, strict=True))
    groups = batch_groups = 1
    output = m.random.choice(SIZES)
    if m.chance(0.3) and sizes["f"] % 2 == 0:
        groups, output = 2, output * 2
    elif m.chance(0.2) and sizes["b"] % 2 == 0:
        batch_groups, output = 2, output * 2
    kernel = {"i": sizes["f"] // groups, "o": output}
    kernel.update({d: m.random.randint(1, min(4, sizes[d])) for d in digits})
    same = m.chance(0.5)
    return m.b.convolution(
        x,
        m.like(tuple(kernel[c] for c in rhs)),
        strides=tuple(m.random.choice((1, 1, 2)) for _ in digits),
        padding=tuple((0, kernel[d] - 1) if same else (0, 0) for d in digits),
        lhs_dilation=(1,) * spatial,
        rhs_dilation=(1,) * spatial,
        dims=f"{''.join(lhs)},{''.join(rhs)}->{''.join(out)}",
        groups=groups,
        batch_groups=batch_groups,
    )


def _complex(m: Maker) -> Any:
    x = m.any()
    whole = m.b.complex(x, m.like(x.type.shape))
    return m.b.real(whole) if m.chance(0.5) else m.b.imag(whole)


def _barrier(m: Maker) -> Any:
    return m.b.optimization_barrier(*[m.any() for _ in range(m.random.randint(1, 2))])


def _inside(m: Maker, params: Sequence[Value], returns: Callable[[Maker], list[Value]]) -> Block:
    """A block over some values of the pool."""
    inner = Maker(
        m.random, replace(m.options, size=m.random.randint(1, 4)), m.meshes, m.names, m.params,
        m.depth + 1, m.shapes, m.local,
    )  # fmt: skip
    inner.pool = [*m.pool, *params, *params]
    inner.run()
    given = returns(inner)
    m.params = inner.params
    return inner.b.block(params, given)


def _while(m: Maker) -> Any:
    inits = [m.any() for _ in range(m.random.randint(1, 3))]
    types = [value.type for value in inits]
    tested = [Value(type, m.names.fresh("t")) for type in types]
    carried = [Value(type, m.names.fresh("c")) for type in types]
    test = m.b.inner()
    total = test.sum(tested[0], dims=tuple(range(types[0].rank)))
    condition = test.block(tested, [test.lt(total, test.constant(value=9.0, result=total.type))])
    body = _inside(m, carried, lambda inner: [inner.like(type.shape) for type in types])
    return m.b.emit(OPS["while"], *inits, blocks=(condition, body))


def _case(m: Maker) -> Any:
    index = Value(TensorType((), "i32"), m.names.fresh("p"))
    m.params.append(index)
    shapes = [m.any().type.shape for _ in range(m.random.randint(1, 2))]
    branches = tuple(
        _inside(m, (), lambda inner: [inner.like(shape) for shape in shapes])
        for _ in range(m.random.randint(1, 3))
    )
    return m.b.emit(OPS["case"], index, blocks=branches)


def _cuts(m: Maker, shape: tuple[int, ...], axes: Axes) -> tuple[Axes, ...]:
    """Manual axes for the dimensions of a tensor, where they divide."""
    cuts: list[Axes] = [()] * len(shape)
    left = list(shape)
    for axis in axes:
        dim = m.random.randrange(len(shape))
        if left[dim] % axis.size == 0 and m.chance(0.7):
            cuts[dim] = (*cuts[dim], axis)
            left[dim] //= axis.size
    return tuple(cuts)


def _manual(m: Maker) -> Any:
    mesh = m.meshes[0]
    names = [name for name in mesh.sizes if name not in m.local and m.chance(0.5)]
    axes = tuple(Axis.whole(name, mesh) for name in names)
    operands = [m.any() for _ in range(m.random.randint(1, 3))]
    groups = False  # a group is within one manual computation, and numbers are given by shape
    inner = Maker(
        m.random, replace(m.options, size=m.random.randint(1, 4), groups=groups), m.meshes,
        m.names, m.params, m.depth + 1, {}, (*m.local, *names),
    )  # fmt: skip
    first = replace(inner, meshes=m.meshes[:1], options=replace(m.options, priorities=False))

    def stated(shape: tuple[int, ...]) -> Sharding | None:
        return first.sharding(shape) if m.chance(0.5) else None

    in_axes = [_cuts(m, x.type.shape, axes) for x in operands]
    params = []
    for x, cuts in zip(operands, in_axes, strict=True):
        type = local_type(x.type, cuts, axes)
        params.append(Value(type, m.names.fresh("l"), stated(type.shape)))
    inner.pool = [*params, *params]
    inner.run()
    returned = [inner.any() for _ in range(m.random.randint(1, 2))]
    m.params = inner.params
    block = without_dead(inner.b.block(params, returned))
    # What it uses of the blocks around it comes in as it is.
    captured = list(dict.fromkeys(block.captures()))
    taken = {v: replace(v, name=m.names.fresh("l"), sharding=None) for v in captured}
    body = substitute(block, taken)
    body = Block((*params, *taken.values()), body.ops, body.returns)
    in_axes += [((),) * v.type.rank for v in captured]
    out_axes = tuple(_cuts(m, v.type.shape, axes) for v in returned)
    made = m.b.emit(
        OPS["manual_computation"], *operands, *captured,
        blocks=(body,), axes=axes, in_axes=tuple(in_axes), out_axes=out_axes,
    )  # fmt: skip
    results = list(made) if isinstance(made, tuple) else [made]
    for i, (value, cuts) in enumerate(zip(results, out_axes, strict=True)):
        sharding = stated(value.type.shape)
        named = replace(value, name=m.names.fresh("m.0"))
        results[i] = replace(named, sharding=sharding and with_cuts(sharding, cuts))
    m.b.ops[-1] = replace(m.b.ops[-1], results=tuple(results))
    return tuple(results)


KINDS: dict[str, Callable[[Maker], Any]] = {
    "manual": _manual,
    "unary": _unary,
    "binary": _binary,
    "select": _select,
    "clamp": _clamp,
    "convert": _convert,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "reverse": _reverse,
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "dot": _dot,
    "reduce": _reduce,
    "cumulative": _cumulative,
    "sort": _sort,
    "top_k": _top_k,
    "gather": _gather,
    "scatter": _scatter,
    "reduce_window": _reduce_window,
    "convolution": _convolution,
    "complex": _complex,
    "barrier": _barrier,
    "while": _while,
    "case": _case,
}


def program(seed: int | str, options: Options | None = None) -> Module:
    """The program of a seed."""
    random = Random(seed)
    options = options or Options()
    meshes = tuple(Mesh(f"m{i or ''}", random.choice(MESHES)) for i in range(options.meshes))
    if options.meshes > 2 and random.random() < 0.5:
        meshes = (*meshes[:-1], replace(meshes[0], name=meshes[-1].name))
    m = Maker(random, options, meshes)
    m.run()
    made = [v for op in m.b.ops for v in op.results]
    used = {v for op in m.b.ops for v in op.uses()}
    dangling = {op.result for op in m.b.ops if op.name == "sharding_constraint"}
    returns = [v for v in made if v not in used and (v not in dangling or m.chance(0.3))]
    returns = [v for v in returns if m.chance(0.7)] or made[-1:]
    if m.params and m.chance(0.2):
        returns.append(m.random.choice(m.params))
    body = without_dead(m.b.block((), returns))
    live = {v for op in body.walk() for v in op.uses()} | set(returns)
    params = tuple(p for p in m.params if p in live)
    results = tuple(m.sharding(v.type.shape) if m.chance(0.3) else None for v in returns)
    block = Block(params, body.ops, body.returns)
    return Module(meshes, (Function("main", block, results),))


def without_dead(block: Block, needed: Iterable[Value] = ()) -> Block:
    """The block without operations that nothing needs.

    Constraints are needed; what says a group is, of a parameter and of what something else needs.
    """
    live = {*needed, *block.returns, *block.params}
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.name == "sharding_group":
            if op.operands[0] in live:
                kept.append(op)
            continue
        if op.name != "sharding_constraint" and not live.intersection(op.results):
            continue
        op = replace(op, blocks=tuple(without_dead(inner, live) for inner in op.blocks))
        kept.append(op)
        live.update(op.uses())
    return Block(block.params, tuple(reversed(kept)), block.returns)
