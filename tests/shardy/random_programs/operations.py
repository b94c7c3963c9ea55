"""Operations of random programs, which select operands from the program builder."""

from typing import Any

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Value
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from tests.shardy.random_programs.program_builder import SIZES, ProgramBuilder

UNARY = ("neg", "exp", "tanh", "abs", "sqrt", "floor", "logistic", "cos", "log1p", "sign")


BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "rem")


def unary(m: ProgramBuilder) -> Any:
    return m.b.emit(OPS[m.random.choice(UNARY)], m.any())


def binary(m: ProgramBuilder) -> Any:
    x = m.any()
    pair = [x, m.like(x.type.shape)]
    m.random.shuffle(pair)
    return m.b.emit(OPS[m.random.choice(BINARY)], *pair)


def select(m: ProgramBuilder) -> Any:
    x = m.any()
    y = m.like(x.type.shape)
    pred = m.b.lt(x, y) if m.chance(0.7) else None
    if pred is None:
        pred = Value(TensorType((), "bool"), m.names.fresh("p"))
        m.params.append(pred)
    return m.b.select(pred, m.like(x.type.shape), y)


def clamp(m: ProgramBuilder) -> Any:
    x = m.any()
    if m.chance(0.5):
        low = m.b.constant(value=0.0, result=TensorType((), "f32"))
        return m.b.clamp(low, x, low)
    return m.b.clamp(m.like(x.type.shape), x, m.like(x.type.shape))


def convert(m: ProgramBuilder) -> Any:
    x = m.any()
    if m.chance(0.5):
        return m.b.convert(m.b.convert(x, result=x.type.with_dtype("i32")), result=x.type)
    bits = m.b.bitcast(x, result=x.type.with_dtype("i32"))
    return m.b.bitcast(bits, result=x.type)


def broadcast(m: ProgramBuilder) -> Any:
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


def reshape(m: ProgramBuilder) -> Any:
    x = m.any()
    left = x.type.size
    shape: list[int] = []
    while left > 1 and len(shape) < 3:
        size = m.random.choice([n for n in range(1, left + 1) if left % n == 0])
        shape.append(size)
        left //= size
    return m.b.reshape(x, result=x.type.with_shape([*shape, left] if left > 1 else shape or [1]))


def transpose(m: ProgramBuilder) -> Any:
    x = m.any()
    perm = list(range(x.type.rank))
    m.random.shuffle(perm)
    return m.b.transpose(x, perm=tuple(perm))


def reverse_(m: ProgramBuilder) -> Any:
    x = m.any()
    return m.b.reverse(x, dims=(m.random.randrange(x.type.rank),))


def slice_(m: ProgramBuilder) -> Any:
    x = m.any()
    shape, strides = [], []
    for size in x.type.shape:
        stride = 2 if size > 2 and m.chance(0.3) else 1
        most = (size - 1) // stride + 1
        shape.append(most if m.chance(0.5) else m.random.randint(1, most))
        strides.append(stride)
    starts = (0,) * x.type.rank
    return m.b.slice(x, starts=starts, strides=tuple(strides), result=x.type.with_shape(shape))


def pad(m: ProgramBuilder) -> Any:
    x = m.any()
    zero = m.b.constant(value=0.0, result=TensorType((), "f32"))
    low = tuple(m.random.choice((0, 0, 1, 2)) for _ in x.type.shape)
    high = tuple(m.random.choice((0, 0, 1, 4)) for _ in x.type.shape)
    interior = tuple(m.random.choice((0, 0, 0, 1)) for _ in x.type.shape)
    return m.b.pad(x, zero, low=low, high=high, interior=interior)


def concatenate(m: ProgramBuilder) -> Any:
    x = m.any()
    dim = m.random.randrange(x.type.rank)
    shape = list(x.type.shape)
    shape[dim] = m.random.choice(SIZES)
    parts = [x, m.like(tuple(shape)), *([m.like(x.type.shape)] if m.chance(0.3) else [])]
    m.random.shuffle(parts)
    return m.b.concatenate(*parts, dim=dim)


def dynamic_slice(m: ProgramBuilder) -> Any:
    x = m.any()
    shape = [n if m.chance(0.6) else m.random.randint(1, n) for n in x.type.shape]
    starts = [m.index() for _ in shape]
    return m.b.dynamic_slice(x, *starts, result=x.type.with_shape(shape))


def dynamic_update_slice(m: ProgramBuilder) -> Any:
    x = m.any()
    shape = tuple(n if m.chance(0.6) else m.random.randint(1, n) for n in x.type.shape)
    return m.b.dynamic_update_slice(x, m.like(shape), *[m.index() for _ in shape])


def dot(m: ProgramBuilder) -> Any:
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


def reduce(m: ProgramBuilder) -> Any:
    x = m.any()
    dims = [d for d in range(x.type.rank) if m.chance(0.4)] or [0]
    name = m.random.choice(("sum", "max", "min", "prod"))
    return m.b.emit(OPS[name], x, dims=tuple(dims))


def cumulative(m: ProgramBuilder) -> Any:
    x = m.any()
    name = m.random.choice(("cumsum", "cummax"))
    dim = m.random.randrange(x.type.rank)
    return m.b.emit(OPS[name], x, dim=dim, reverse=m.chance(0.3))


def sort_(m: ProgramBuilder) -> Any:
    x = m.any()
    xs = [x, m.like(x.type.shape)] if m.chance(0.5) else [x]
    return m.b.sort(*xs, dim=m.random.randrange(x.type.rank))


def top_k(m: ProgramBuilder) -> Any:
    x = m.any()
    if x.type.shape[-1] == 1:
        return None
    # Shardy treats top_k of all elements as a copy.
    count = m.random.randint(1, x.type.shape[-1] - 1)
    values = x.type.with_shape((*x.type.shape[:-1], count))
    return m.b.top_k(x, result=(values, values.with_dtype("i32")))


def _indices(m: ProgramBuilder, batch: tuple[int, ...], width: int) -> Value:
    type = TensorType((*batch, width), "i32")
    sharding = m.sharding(type.shape) if m.chance(0.4) else None
    param = Value(type, m.names.fresh("i"), sharding)
    m.params.append(param)
    return param


def _dims_to_look_up(m: ProgramBuilder, rank: int) -> tuple[tuple[int, ...], list[int]]:
    """Return batching dimensions of an operand, and the indexed dimensions."""
    batching = tuple(d for d in range(rank) if m.chance(0.2))
    others = [d for d in range(rank) if d not in batching]
    return batching, sorted(
        m.random.sample(others, m.random.randint(min(1, len(others)), len(others)))
    )


def _with_batching(
    m: ProgramBuilder, batch: tuple[int, ...], sizes: list[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return batch dimensions of indices that contain those of `sizes`, and their positions."""
    total = len(batch) + len(sizes)
    places = m.random.sample(range(total), len(sizes))
    by_place = dict(zip(places, sizes, strict=True))
    others = iter(batch)
    return tuple(by_place[d] if d in by_place else next(others) for d in range(total)), tuple(
        places
    )


def _batching(**dims: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return dims if any(dims.values()) else {}


def gather(m: ProgramBuilder) -> Any:
    x = m.any()
    batching, looked_up = _dims_to_look_up(m, x.type.rank)
    collapsed = tuple(d for d in looked_up if m.chance(0.6))
    batch = m.shape(m.random.choice((1, 1, 2)))
    batch, of_indices = _with_batching(m, batch, [x.type.shape[d] for d in batching])
    offsets = [d for d in range(x.type.rank) if d not in (*collapsed, *batching)]
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
        **_batching(operand_batching_dims=batching, indices_batching_dims=of_indices),
        result=x.type.with_shape(shape),
    )


def scatter(m: ProgramBuilder) -> Any:
    x = m.any()
    batching, looked_up = _dims_to_look_up(m, x.type.rank)
    inserted = tuple(d for d in looked_up if m.chance(0.6))
    batch, of_indices = _with_batching(m, m.shape(1), [x.type.shape[d] for d in batching])
    window = [d for d in range(x.type.rank) if d not in (*inserted, *batching)]
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
        **_batching(operand_batching_dims=batching, indices_batching_dims=of_indices),
        op=m.random.choice(("add", "set", "max")),
    )


def reduce_window(m: ProgramBuilder) -> Any:
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


def convolution(m: ProgramBuilder) -> Any:
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


def complex_(m: ProgramBuilder) -> Any:
    x = m.any()
    whole = m.b.complex(x, m.like(x.type.shape))
    return m.b.real(whole) if m.chance(0.5) else m.b.imag(whole)


def barrier(m: ProgramBuilder) -> Any:
    return m.b.optimization_barrier(*[m.any() for _ in range(m.random.randint(1, 2))])
