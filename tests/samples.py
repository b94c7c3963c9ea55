"""One way per operation to add it to a random program.

A sampler draws operands and attributes that the operation takes, and appends it. Every program
made so runs: indices may be out of range, since the operations say what that means, but loops end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shardir import ops as ops  # declares the operations
from shardir.build import Builder
from shardir.ir import Block, Value
from shardir.mesh import Mesh
from shardir.opset import OPS, Dense, OpSpec, Symbol
from shardir.placement import Axes
from shardir.types import COMPLEX, DTYPES, FLOATS, INTEGERS, UNSIGNED, TensorType
from tests.shardings import merged, parts

NUMBERS = INTEGERS + FLOATS + COMPLEX
REAL = INTEGERS + FLOATS
ORDERED = ("bool", *REAL)
ARITHMETIC = ("bool", *NUMBERS)
SIZES = (1, 2, 3, 4, 8)
INDEX = TensorType((), "i32")


@dataclass
class Scope:
    """What a sampler draws from: values seen so far, and parameters added when none fits."""

    draw: st.DrawFn
    b: Builder
    add_param: Callable[[TensorType], Value]
    mesh: Mesh
    seen: list[Value] = field(default_factory=list)
    depth: int = 0

    def choose(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def shape(self, low: int = 0, high: int = 3) -> tuple[int, ...]:
        return tuple(self.draw(st.lists(st.sampled_from(SIZES), min_size=low, max_size=high)))

    def type(self, dtypes: Sequence[str], low: int = 0, high: int = 3) -> TensorType:
        return TensorType(self.shape(low, high), self.draw(st.sampled_from(dtypes)))

    def value(self, type: TensorType) -> Value:
        """A value of this type, seen or new."""
        return self.any(lambda value: value.type == type, lambda: type)

    def tensor(self, dtypes: Sequence[str] = DTYPES, low: int = 0, high: int = 3) -> Value:
        """A value whose element type is one of these, of a rank between `low` and `high`."""
        return self.any(
            lambda value: value.type.dtype in dtypes and low <= value.type.rank <= high,
            lambda: self.type(dtypes, low, high),
        )

    def any(self, fits: Callable[[Value], bool], new: Callable[[], TensorType]) -> Value:
        fitting = [value for value in self.seen if fits(value)]
        if fitting and self.integer(0, 3):
            return self.draw(st.sampled_from(fitting))
        value = self.add_param(new())
        return value

    def dims(self, x: Value) -> tuple[int, ...]:
        """Some of the dimensions of a value, rising."""
        return tuple(d for d in range(x.type.rank) if self.flag())

    def dim(self, x: Value) -> int:
        return self.integer(0, x.type.rank - 1)

    def each(self, x: Value, low: int, high: int) -> tuple[int, ...]:
        """An integer for each dimension."""
        return tuple(self.integer(low, high) for _ in x.type.shape)

    def axes(self) -> Axes:
        """Some axes of the mesh or parts of them, at least one, in some order."""
        ways = [self.draw(st.sampled_from(parts(self.mesh, name))) for name, _ in self.mesh.axes]
        atoms = self.draw(st.permutations([axis for way in ways for axis in way]))
        return merged(atoms[: self.integer(1, len(atoms))])

    def emit(self, name: str, *operands: Value, **options: Any) -> Any:
        wish = self.choose("", "", "h", "w.1", "x")
        made = self.b.emit(OPS[name], *operands, name=wish, **options)
        self.seen += made if isinstance(made, tuple) else [made]
        return made

    def block(
        self, params: Sequence[TensorType], body: Callable[["Scope", list[Value]], Sequence[Value]]
    ) -> Block:
        """A block; `body` makes its operations and says what it returns."""
        b = self.b.inner()
        values = [b.param(type, self.choose("", "c")) for type in params]
        seen = [*self.seen, *values]
        scope = Scope(self.draw, b, self.add_param, self.mesh, seen, self.depth + 1)
        returns = body(scope, values)
        for value in scope.seen:
            if value not in self.seen and value not in values and self.is_outer(value, b):
                self.seen.append(value)
        return b.block(values, returns)

    @staticmethod
    def is_outer(value: Value, b: Builder) -> bool:
        """Whether it is a parameter of the function that was added from within the block."""
        return False

    def some(self) -> None:
        """Add a few operations, none with blocks when blocks are deep."""
        for _ in range(self.integer(0, 2)):
            simple = [name for name in sampled(spmd=False) if not OPS[name].blocks]
            SAMPLERS[self.draw(st.sampled_from(simple))](self)


Sampler = Callable[[Scope], Any]
SAMPLERS: dict[str, Sampler] = {}


def sampled(*, spmd: bool) -> list[str]:
    """The operations for per-device programs, or for all programs."""
    return [name for name in SAMPLERS if name in OPS and OPS[name].spmd is spmd]


def sampler(*names: str) -> Callable[[Callable[[Scope, str], Any]], Callable[[Scope, str], Any]]:
    """Register a function of (scope, name) as the sampler of these operations."""

    def register(function: Callable[[Scope, str], Any]) -> Callable[[Scope, str], Any]:
        for name in names:
            SAMPLERS[name] = lambda s, name=name: function(s, name)
        return function

    return register


# Elementwise operations without attributes: what they take is found by asking their type rules.


def _takes(spec: OpSpec, arity: int, dtype: str) -> bool:
    try:
        spec.type(*[TensorType((2,), dtype)] * arity, result=None)
    except TypeError:
        return False
    return True


_APART = (
    "select", "clamp", "convert", "stop_gradient", "reshard", "sharding_constraint",
)  # fmt: skip
POINTWISE = {
    name: tuple(
        (arity, dtype) for arity in (1, 2) for dtype in DTYPES if _takes(spec, arity, dtype)
    )
    for name, spec in OPS.items()
    if spec.elementwise and name not in _APART
}


@sampler(*POINTWISE)
def _(s: Scope, name: str) -> None:
    arity = POINTWISE[name][0][0]
    x = s.tensor([dtype for _, dtype in POINTWISE[name]])
    s.emit(name, x, *(s.value(x.type) for _ in range(arity - 1)))


@sampler("stop_gradient", "reshard", "sharding_constraint")
def _(s: Scope, name: str) -> None:
    s.emit(name, s.tensor())


@sampler("select")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    pred = s.value(TensorType(s.choose(x.type.shape, ()), "bool"))
    s.emit(name, pred, x, s.value(x.type))


@sampler("clamp")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL)
    bound = x.type.with_shape(s.choose(x.type.shape, ()))
    s.emit(name, s.value(bound), x, s.value(bound))


@sampler("convert")
def _(s: Scope, name: str) -> None:
    x = s.tensor(ARITHMETIC)
    s.emit(name, x, result=x.type.with_dtype(s.choose(*ARITHMETIC)))


@sampler("bitcast")
def _(s: Scope, name: str) -> None:
    x = s.tensor([d for d in DTYPES if d not in ("bool", *COMPLEX)])
    if x.type.dtype == "key":
        s.emit(name, x, result=TensorType((*x.type.shape, 2), "u32"))
        return
    width = x.type.numpy.itemsize
    same = [d for d in REAL if TensorType((), d).numpy.itemsize <= width and d != "u32"]
    dtype = s.choose(*same)
    ratio = width // TensorType((), dtype).numpy.itemsize
    s.emit(name, x, result=TensorType((*x.type.shape, *[ratio][: ratio > 1]), dtype))


# Shapes.


@sampler("broadcast")
def _(s: Scope, name: str) -> None:
    x = s.tensor(high=2)
    shape = list(s.shape(x.type.rank, 4))
    dims = sorted(s.draw(st.permutations(range(len(shape))))[: x.type.rank])
    for d, size in zip(dims, x.type.shape, strict=True):
        shape[d] = shape[d] if size == 1 else size
    s.emit(name, x, dims=tuple(dims), result=x.type.with_shape(shape))


@sampler("reshape")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    shape, left = [], x.type.size
    while left > 1:
        shape.append(s.choose(*[n for n in range(2, left + 1) if left % n == 0]))
        left //= shape[-1]
    if s.flag():
        shape.insert(s.integer(0, len(shape)), 1)
    s.emit(name, x, result=x.type.with_shape(shape))


@sampler("transpose")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    s.emit(name, x, perm=tuple(s.draw(st.permutations(range(x.type.rank)))))


@sampler("reverse")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    s.emit(name, x, dims=s.dims(x))


@sampler("slice")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    starts = tuple(s.integer(0, n - 1) for n in x.type.shape)
    strides = s.each(x, 1, 3)
    most = [
        -(-(n - start) // stride)
        for n, start, stride in zip(x.type.shape, starts, strides, strict=True)
    ]
    to = x.type.with_shape([s.integer(1, n) for n in most])
    s.emit(name, x, starts=starts, strides=strides, result=to)


@sampler("pad")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    low, high = s.each(x, 0, 2), s.each(x, 0, 2)
    if s.flag():  # cut instead, where that leaves something
        low = tuple(-min(n - 1, k) for n, k in zip(x.type.shape, low, strict=True))
    value = s.value(x.type.with_shape(()))
    s.emit(name, x, value, low=low, high=high, interior=s.each(x, 0, 2))


@sampler("concatenate")
def _(s: Scope, name: str) -> None:
    x = s.tensor(low=1)
    dim = s.dim(x)
    others = []
    for _ in range(s.integer(0, 2)):
        shape = list(x.type.shape)
        shape[dim] = s.choose(*SIZES)
        others.append(s.value(x.type.with_shape(shape)))
    s.emit(name, x, *others, dim=dim)


def _starts(s: Scope, x: Value) -> list[Value]:
    kind = TensorType((), s.choose(*INTEGERS))
    return [s.value(kind) for _ in x.type.shape]


@sampler("dynamic_slice")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    to = x.type.with_shape([s.integer(1, n) for n in x.type.shape])
    s.emit(name, x, *_starts(s, x), result=to)


@sampler("dynamic_update_slice")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    update = s.value(x.type.with_shape([s.integer(1, n) for n in x.type.shape]))
    s.emit(name, x, update, *_starts(s, x))


# What comes from nowhere.


@sampler("iota")
def _(s: Scope, name: str) -> None:
    to = s.type(NUMBERS, 1)
    s.emit(name, dim=s.integer(0, to.rank - 1), result=to)


@sampler("constant")
def _(s: Scope, name: str) -> None:
    to = s.type(ARITHMETIC)
    s.emit(name, value=s.draw(splats(to.dtype) if s.flag() else arrays(to)), result=to)


def splats(dtype: str) -> st.SearchStrategy[Any]:
    """A Python number for every element of a constant."""
    if dtype == "bool":
        return st.booleans()
    if dtype in INTEGERS:
        info = np.iinfo(TensorType((), dtype).numpy)
        return st.integers(int(info.min), int(info.max))
    width = {"f16": 16, "bf16": 16, "f32": 32, "c64": 32}.get(dtype, 64)
    floats = st.floats(width=width)  # type: ignore[arg-type]
    if dtype in COMPLEX:
        return st.builds(complex, floats, floats)
    return floats


def arrays(type: TensorType) -> st.SearchStrategy[Dense]:
    """An array of any content, to the bit (of bools: false and true)."""
    content = st.binary(min_size=type.nbytes, max_size=type.nbytes)
    if type.dtype == "bool":
        content = content.map(lambda data: bytes(byte & 1 for byte in data))
    listed = st.lists(splats(type.dtype), min_size=type.size, max_size=type.size)
    numbers = listed.map(lambda numbers: np.array(numbers, object).astype(type.numpy).tobytes())
    return st.one_of(numbers, content).map(
        lambda data: Dense(np.frombuffer(data, type.numpy).reshape(type.shape))
    )


# Reductions, running reductions, sorting.


_REDUCED = {"sum": NUMBERS, "prod": NUMBERS, "max": ORDERED, "min": ORDERED,
            "any": ("bool",), "all": ("bool",)}  # fmt: skip


@sampler(*_REDUCED)
def _(s: Scope, name: str) -> None:
    x = s.tensor(_REDUCED[name])
    s.emit(name, x, dims=s.dims(x))


@sampler("argmax", "argmin")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL, low=1)
    dim = s.dim(x)
    shape = x.type.shape[:dim] + x.type.shape[dim + 1 :]
    s.emit(name, x, dim=dim, result=TensorType(shape, s.choose("i32", "i64", "u8")))


_RUNNING = {"cumsum": NUMBERS, "cumprod": NUMBERS, "cummax": REAL, "cummin": REAL,
            "cumlogsumexp": FLOATS}  # fmt: skip


@sampler(*_RUNNING)
def _(s: Scope, name: str) -> None:
    x = s.tensor(_RUNNING[name], low=1)
    s.emit(name, x, dim=s.dim(x), reverse=s.flag())


@sampler("sort")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL, low=1)
    others = [s.value(x.type.with_dtype(s.choose(*REAL))) for _ in range(s.integer(0, 2))]
    given = {"keys": s.integer(1, 1 + len(others)), "stable": s.flag()} if s.flag() else {}
    s.emit(name, x, *others, dim=s.dim(x), **given)


@sampler("top_k")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL, low=1)
    values = x.type.with_shape((*x.type.shape[:-1], s.integer(1, x.type.shape[-1])))
    s.emit(name, x, result=(values, values.with_dtype("i32")))


@sampler("optimization_barrier")
def _(s: Scope, name: str) -> None:
    s.emit(name, *(s.tensor() for _ in range(s.integer(1, 3))))


# Contractions, windows, indexing.


@sampler("dot")
def _(s: Scope, name: str) -> None:
    x = s.tensor(NUMBERS)
    left = "abc"[: x.type.rank]
    kept = [d for d in s.dims(x)]
    right = [left[d] for d in kept]
    shape = [x.type.shape[d] for d in kept]
    for letter in "uv"[: s.integer(0, 2)]:
        at = s.integer(0, len(right))
        right.insert(at, letter)
        shape.insert(at, s.choose(*SIZES))
    letters = s.draw(st.permutations(sorted({*left, *right})))
    out = [c for c in letters if c in "uv" or left.find(c) not in kept or s.flag()]
    y = s.value(x.type.with_shape(shape))
    s.emit(name, x, y, dims=f"{left},{''.join(right)}->{''.join(out)}")


@sampler("convolution")
def _(s: Scope, name: str) -> None:
    spatial = s.integer(1, 2)
    groups, features, out = s.integer(1, 2), s.integer(1, 2), s.integer(1, 2)
    dtype = s.choose(*FLOATS, "i32")
    sizes = [s.integer(3, 6) for _ in range(spatial)]
    x = s.value(TensorType((s.integer(1, 2), *sizes, groups * features), dtype))
    window = [s.integer(1, 2) for _ in range(spatial)]
    w = s.value(TensorType((*window, features, groups * out), dtype))
    letters = "01"[:spatial]
    s.emit(
        name,
        x,
        w,
        strides=tuple(s.integer(1, 2) for _ in range(spatial)),
        padding=tuple((s.integer(0, 1), s.integer(0, 1)) for _ in range(spatial)),
        lhs_dilation=tuple(s.integer(1, 2) for _ in range(spatial)),
        rhs_dilation=tuple(s.integer(1, 2) for _ in range(spatial)),
        dims=f"b{letters}f,{letters}io->b{letters}f",
        **({"groups": groups} if groups > 1 else {}),
    )


def _window(s: Scope, x: Value) -> dict[str, Any]:
    return {
        "window": tuple(s.integer(1, min(2, n)) for n in x.type.shape),
        "strides": s.each(x, 1, 2),
        "padding": tuple((s.integer(0, 1), s.integer(0, 1)) for _ in x.type.shape),
        "base_dilation": s.each(x, 1, 1),
        "window_dilation": s.each(x, 1, 1),
    }


@sampler("reduce_window")
def _(s: Scope, name: str) -> None:
    x = s.tensor(REAL, low=1)
    s.emit(name, x, op=Symbol(s.choose("add", "max", "min", "mul")), **_window(s, x))


@sampler("select_and_scatter")
def _(s: Scope, name: str) -> None:
    x = s.tensor(FLOATS, low=1)
    attrs = {"op": Symbol(s.choose("max", "min")), **_window(s, x)}
    places = OPS["reduce_window"].type(x.type, result=None, **attrs)
    s.emit(name, x, s.value(places), **attrs)


@dataclass
class _Indexing:
    """How gather and scatter relate an operand, indices and slices."""

    indices: TensorType
    slices: TensorType
    window: tuple[int, ...]
    dropped: tuple[int, ...]
    map: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]


def _indexing(s: Scope, x: Value) -> _Indexing:
    """Batching, dropped and window dimensions of the operand; batch dimensions of the indices."""
    roles = [s.choose("window", "dropped", "batching") for _ in x.type.shape]
    batching = tuple(d for d, role in enumerate(roles) if role == "batching")[:1]
    dropped = tuple(d for d, role in enumerate(roles) if role == "dropped")
    windowed = [d for d in range(x.type.rank) if d not in (*batching, *dropped)]
    batch = [*(x.type.shape[d] for d in batching), *s.shape(0, 2)]
    chosen = [*dropped, *(d for d in windowed if s.flag())]
    map = tuple(s.draw(st.permutations(chosen)))
    extents = [
        s.integer(1, x.type.shape[d]) if d in chosen else x.type.shape[d] for d in windowed
    ]
    rank = len(batch) + len(extents)
    window = tuple(sorted(s.draw(st.permutations(range(rank)))[: len(extents)]))
    sizes, rest = iter(extents), iter(batch)
    shape = [next(sizes) if d in window else next(rest) for d in range(rank)]
    return _Indexing(
        TensorType((*batch, len(map)), s.choose("i32", "i64", "u8")),
        x.type.with_shape(shape),
        window,
        dropped,
        map,
        batching,
        tuple(range(len(batching))),
    )


def _batching(indexing: _Indexing) -> dict[str, Any]:
    if not indexing.batching:
        return {}
    return {
        "operand_batching_dims": indexing.batching,
        "indices_batching_dims": indexing.indices_batching,
    }


@sampler("gather")
def _(s: Scope, name: str) -> None:
    x = s.tensor()
    how = _indexing(s, x)
    s.emit(
        name,
        x,
        s.value(how.indices),
        offset_dims=how.window,
        collapsed_dims=how.dropped,
        start_index_map=how.map,
        result=how.slices,
        **_batching(how),
    )


@sampler("scatter")
def _(s: Scope, name: str) -> None:
    op = s.choose("add", "set", "mul", "min", "max")
    x = s.tensor(REAL)
    how = _indexing(s, x)
    s.emit(
        name,
        x,
        s.value(how.indices),
        s.value(how.slices),
        update_window_dims=how.window,
        inserted_window_dims=how.dropped,
        scatter_dims=how.map,
        op=Symbol(op),
        **_batching(how),
    )


# Random numbers.


def _scheme(s: Scope) -> dict[str, Any]:
    return {"scheme": Symbol(s.choose("partitionable", "original"))} if s.flag() else {}


@sampler("random_bits", "random_bits_at")
def _(s: Scope, name: str) -> None:
    to = s.type(UNSIGNED)
    _random(s, name, to)


@sampler("random_split", "random_split_at")
def _(s: Scope, name: str) -> None:
    _random(s, name, s.type(("key",)))


def _random(s: Scope, name: str, to: TensorType) -> None:
    starts, whole = [], {}
    key = s.value(TensorType((), "key"))
    if name.endswith("_at"):
        starts = [s.value(INDEX) for _ in to.shape]
        whole = {"shape": tuple(n * s.integer(1, 2) for n in to.shape)}
    s.emit(name, key, *starts, result=to, **whole, **_scheme(s))


@sampler("random_fold_in")
def _(s: Scope, name: str) -> None:
    key = s.tensor(("key",))
    s.emit(name, key, s.value(key.type.with_dtype("u32")))


# Control flow.


@sampler("while")
def _(s: Scope, name: str) -> None:
    carried = [s.tensor() for _ in range(s.integer(0, 2))]
    types = [INDEX, *(x.type for x in carried)]

    def condition(inner: Scope, values: list[Value]) -> list[Value]:
        limit = inner.b.full(inner.integer(0, 3), INDEX)
        return [inner.b.lt(values[0], limit)]

    def body(inner: Scope, values: list[Value]) -> list[Value]:
        inner.some()
        step = inner.b.add(values[0], inner.b.full(1, INDEX))
        return [step, *(inner.value(x.type) for x in values[1:])]

    start = s.emit("constant", value=0, result=INDEX)
    blocks = (s.block(types, condition), s.block(types, body))
    s.emit(name, start, *carried, blocks=blocks)


@sampler("scan")
def _(s: Scope, name: str) -> None:
    length = s.choose(1, 2, 4)
    carried = [s.tensor() for _ in range(s.integer(0, 2))]
    stacked = [
        s.value(TensorType((length, *t.shape), t.dtype))
        for t in (s.type(DTYPES, high=2) for _ in range(s.integer(0, 2)))
    ]

    def body(inner: Scope, values: list[Value]) -> list[Value]:
        inner.some()
        outs = [inner.tensor(high=2) for _ in range(inner.integer(0, 2))]
        return [*(inner.value(x.type) for x in carried), *outs]

    types = [x.type for x in carried] + [x.type.with_shape(x.type.shape[1:]) for x in stacked]
    given = {"reverse": s.flag()} if s.flag() else {}
    block = s.block(types, body)
    s.emit(name, *carried, *stacked, blocks=(block,), carries=len(carried), length=length, **given)


@sampler("case")
def _(s: Scope, name: str) -> None:
    index = s.value(TensorType((), s.choose("bool", "i32")))
    number = 2 if index.type.dtype == "bool" else s.integer(1, 3)
    types = [s.type(DTYPES) for _ in range(s.integer(0, 2))]

    def branch(inner: Scope, values: list[Value]) -> list[Value]:
        inner.some()
        return [inner.value(type) for type in types]

    blocks = tuple(s.block([], branch) for _ in range(number))
    s.emit(name, index, blocks=blocks)


# Communication.


_COMBINED = {"add": NUMBERS, "mul": NUMBERS, "max": ORDERED, "min": ORDERED,
             "and": ("bool", *INTEGERS), "or": ("bool", *INTEGERS)}  # fmt: skip


def _pieces(axes: Axes) -> int:
    return prod(axis.size for axis in axes)


def _divided(s: Scope, dtypes: Sequence[str], pieces: int, rank: int = 1) -> tuple[Value, int]:
    """A value of at least this rank, and a dimension of it that divides into pieces."""
    type = s.type(dtypes, rank)
    dim = s.integer(0, type.rank - 1)
    shape = [n * pieces if d == dim else n for d, n in enumerate(type.shape)]
    return s.value(type.with_shape(shape)), dim


@sampler("all-reduce")
def _(s: Scope, name: str) -> None:
    op = s.choose(*_COMBINED)
    s.emit(name, s.tensor(_COMBINED[op]), axes=s.axes(), op=Symbol(op))


@sampler("all-gather")
def _(s: Scope, name: str) -> None:
    x = s.tensor(low=1, high=2)
    s.emit(name, x, dim=s.dim(x), axes=s.axes())


@sampler("all-slice")
def _(s: Scope, name: str) -> None:
    axes = s.axes()
    x, dim = _divided(s, DTYPES, _pieces(axes))
    s.emit(name, x, dim=dim, axes=axes)


@sampler("reduce-scatter")
def _(s: Scope, name: str) -> None:
    op, axes = s.choose(*_COMBINED), s.axes()
    x, dim = _divided(s, _COMBINED[op], _pieces(axes))
    s.emit(name, x, dim=dim, axes=axes, op=Symbol(op))


@sampler("all-to-all")
def _(s: Scope, name: str) -> None:
    axes = s.axes()
    x, split = _divided(s, DTYPES, _pieces(axes), 2)
    concat = s.choose(*(d for d in range(x.type.rank) if d != split))
    s.emit(name, x, split=split, concat=concat, axes=axes)


@sampler("collective-permute")
def _(s: Scope, name: str) -> None:
    axes = s.axes()
    if s.flag():
        s.emit(name, s.tensor(), source=axes, target=tuple(s.draw(st.permutations(axes))))
        return
    places = range(_pieces(axes))
    pairs = zip(s.draw(st.permutations(places)), s.draw(st.permutations(places)), strict=True)
    s.emit(name, s.tensor(), axes=axes, pairs=tuple(pairs)[: s.integer(0, len(places))])


@sampler("axis-index")
def _(s: Scope, name: str) -> None:
    s.emit(name, axes=s.axes())
