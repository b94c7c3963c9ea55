"""Operations that move rows along a sharded dimension, for any window, mesh and shardings.

The global program and the per-device program must compute the same results, also where shards
differ in size, where a result has another sharding than its operand, and with sub-axes.
"""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shardir.ir.builder import Builder, substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Value
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.ops.reductions.window_geometry import dilated_size
from shardir.ops.type_checks import Ints
from tests.passes.sharded_evaluation import check_agreement
from tests.programs.shardings import shardings

MESHES = (
    Mesh("m", (("x", 2),)),
    Mesh("m", (("x", 3),)),
    Mesh("m", (("x", 4),)),
    Mesh("m", (("x", 2), ("y", 3))),
    Mesh("m", (("x", 4), ("y", 2))),
    Mesh("m", (("x", 8),)),
)

EXAMPLES = max(settings().max_examples // 3, 25)
"""How many ways each operation is cut."""

Draw = Callable[[st.SearchStrategy[Any]], Any]
CASES: dict[str, Callable[[Draw, Builder, Value], Value]] = {}


def case(made: Callable[[Draw, Builder, Value], Value]) -> Callable[[Draw, Builder, Value], Value]:
    return CASES.setdefault(made.__name__, made)


def numbers(draw: Draw, rank: int, low: int, high: int) -> Ints:
    return tuple(draw(st.integers(low, high)) for _ in range(rank))


@case
def slices(draw: Draw, b: Builder, x: Value) -> Value:
    strides = numbers(draw, 2, 1, 3)
    starts = tuple(draw(st.integers(0, n - 1)) for n in x.type.shape)
    shape = [
        draw(st.integers(1, -(-(n - at) // stride)))
        for n, at, stride in zip(x.type.shape, starts, strides, strict=True)
    ]
    made: Value = b.slice(x, starts=starts, strides=strides, result=x.type.with_shape(shape))
    return made


@case
def pads(draw: Draw, b: Builder, x: Value) -> Value:
    interior = numbers(draw, 2, 0, 2)
    low, high = [], []
    for n, between in zip(x.type.shape, interior, strict=True):
        spread = (n - 1) * (between + 1) + 1
        before = draw(st.integers(-min(spread - 1, 5), 6))
        low.append(before)
        high.append(draw(st.integers(max(1 - spread - before, -5), 6)))
    filler = b.full(7, x.type.with_shape(()))
    made: Value = b.pad(x, filler, low=tuple(low), high=tuple(high), interior=interior)
    return made


@case
def reverses(draw: Draw, b: Builder, x: Value) -> Value:
    made: Value = b.reverse(x, dims=draw(st.sampled_from([(0,), (1,), (0, 1)])))
    return made


@case
def concatenations(draw: Draw, b: Builder, x: Value) -> Value:
    rows = draw(st.integers(1, x.type.shape[0]))
    first = x.type.with_shape((rows, x.type.shape[1]))
    other = b.slice(x, starts=(0, 0), strides=(1, 1), result=first)
    parts = draw(st.permutations([x, x, other]))[: draw(st.integers(1, 3))]
    made: Value = b.concatenate(*parts, dim=0)
    return made


def running(name: str) -> None:
    def run(draw: Draw, b: Builder, x: Value) -> Value:
        dim, reverse = draw(st.integers(0, 1)), draw(st.booleans())
        made: Value = getattr(b, name)(x, dim=dim, reverse=reverse)
        return made

    CASES[name] = run


for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
    running(name)


@case
def windows(draw: Draw, b: Builder, x: Value) -> Value:
    window, strides = numbers(draw, 2, 1, 4), numbers(draw, 2, 1, 3)
    dilations, inner = numbers(draw, 2, 1, 3), numbers(draw, 2, 1, 2)
    made: Value = b.reduce_window(
        x,
        op=draw(st.sampled_from(["add", "max", "min"])),
        window=window,
        strides=strides,
        padding=padding(draw, x.type.shape, window, dilations, inner),
        base_dilation=dilations,
        window_dilation=inner,
    )
    return made


@case
def choices(draw: Draw, b: Builder, x: Value) -> Value:
    strides, inner = numbers(draw, 2, 1, 3), numbers(draw, 2, 1, 2)
    window = tuple(
        draw(st.integers(1, min((n - 1) // step + 1, 4)))
        for n, step in zip(x.type.shape, inner, strict=True)
    )
    attrs = {
        "window": window,
        "strides": strides,
        "padding": padding(draw, x.type.shape, window, (1, 1), inner),
        "base_dilation": (1, 1),
        "window_dilation": inner,
    }
    best = b.reduce_window(x, op="max", **attrs)
    made: Value = b.select_and_scatter(x, best, op=draw(st.sampled_from(["max", "min"])), **attrs)
    return made


def padding(
    draw: Draw, shape: Ints, window: Ints, dilations: Ints, inner: Ints
) -> tuple[tuple[int, int], ...]:
    """Draw random padding such that there is room for a window."""
    pairs = []
    for n, size, step, between in zip(shape, window, dilations, inner, strict=True):
        low = draw(st.integers(-1, 4))
        least = dilated_size(size, between) - dilated_size(n, step) - low
        pairs.append((low, draw(st.integers(max(least, -1), max(least, 4)))))
    return tuple(pairs)


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_per_device_programs_compute_the_global_result(name: str, data: st.DataObject) -> None:
    mesh = data.draw(st.sampled_from(MESHES))
    shape = (data.draw(st.integers(1, 20)), data.draw(st.integers(1, 6)))
    b = Builder()
    x = b.param(TensorType(shape, "f32"), "x", data.draw(shardings(mesh, shape)))
    y = CASES[name](data.draw, b, x)
    body = shard_like_x(Block((x,), tuple(b.ops), (y,)), x)
    module = Module((mesh,), (Function("f", body, (None,)),))
    numbers = LOWEST if name == "choices" else WHOLE
    arguments = [np.resize(np.array(numbers, np.float32), shape)]
    check_agreement(module, "partition,dce", arguments)


WHOLE = (-2, -1, 0, 1, 2)
LOWEST = (-np.inf, -np.inf, -np.inf, 1, 2, -np.inf, -np.inf, np.inf, np.nan)


def shard_like_x(block: Block, x: Value) -> Block:
    """Shard all values as `x`, except dimensions that become single rows."""
    assert x.sharding
    values = [x, *(v for op in block.ops for v in op.results if v.type.rank)]
    single = {d for v in values for d, size in enumerate(v.type.shape) if size == 1}
    axes = [() if d in single else cut for d, cut in enumerate(x.sharding.axes)]
    new = {value: replace(value, sharding=Sharding.of("m", axes)) for value in values}
    ops = tuple(replace(op, results=tuple(new.get(v, v) for v in op.results)) for op in block.ops)
    made = substitute(replace(block, ops=ops), new)
    return replace(made, params=(new[x],))


@given(data=st.data())
def test_sharded_convolutions(data: st.DataObject) -> None:
    """Batch, features and space of images and filters are sharded in any way, including groups."""
    draw = data.draw
    mesh = draw(st.sampled_from(MESHES))
    groups, batch_groups = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2)]))
    size, window = draw(st.integers(1, 16)), draw(st.integers(1, 9))
    images = (2 * draw(st.integers(1, 2)), size, groups * draw(st.integers(1, 2)))
    outputs = groups * batch_groups * draw(st.integers(1, 2))
    filters = (window, images[2] // groups, outputs)
    dilations, inner = (draw(st.integers(1, 3)),), (draw(st.integers(1, 2)),)
    b = Builder()
    x, w = (
        b.param(TensorType(shape, "f32"), name, draw(shardings(mesh, shape)))
        for shape, name in ((images, "x"), (filters, "w"))
    )
    y = b.convolution(
        x,
        w,
        dims="b0f,0io->b0f",
        strides=(draw(st.integers(1, 3)),),
        padding=padding(draw, (size,), (window,), dilations, inner),
        lhs_dilation=dilations,
        rhs_dilation=inner,
        groups=groups,
        batch_groups=batch_groups,
    )
    cut = draw(shardings(mesh, y.type.shape))
    body = Block((x, w), tuple(b.ops), (y,))
    module = Module((mesh,), (Function("f", body, (cut,)),))
    check_agreement(module, draw(st.sampled_from(PIPELINES)))


PIPELINES = ("reshard,partition,dce", "propagate,reshard,partition,cse,dce")


def searched(draw: Draw, b: Builder, x: Value) -> tuple[Value, ...]:
    """Draw results of operations that search along a dimension."""
    dim = draw(st.integers(0, 1))
    line = x.type.with_shape((x.type.shape[1 - dim],)).with_dtype(draw(st.sampled_from(POSITIONS)))
    count = draw(st.integers(1, x.type.shape[1]))
    few = x.type.with_shape((x.type.shape[0], count))
    start = b.param(TensorType((), "i32"), "start")
    read = x.type.with_shape([draw(st.integers(1, n)) for n in x.type.shape])
    return (
        b.argmax(x, dim=dim, result=line),
        b.argmin(x, dim=dim, result=line),
        *b.emit(OPS["top_k"], x, result=(few, few.with_dtype("i32"))),
        b.dynamic_slice(x, start, start, result=read),
    )


POSITIONS = ("i8", "u32", "i64")


@given(data=st.data())
def test_sharded_searches(data: st.DataObject) -> None:
    """The operations are extremes, top-k and slices of values with ties, NaN and infinities."""
    draw = data.draw
    mesh = draw(st.sampled_from(MESHES))
    shape = (draw(st.integers(1, 12)), draw(st.integers(1, 12)))
    b = Builder()
    x = b.param(TensorType(shape, "f32"), "x", draw(shardings(mesh, shape)))
    results = searched(draw, b, x)
    start = b.ops[-1].operands[1]
    body = Block((x, start), tuple(b.ops), results)
    cuts = tuple(draw(shardings(mesh, value.type.shape)) for value in results)
    module = Module((mesh,), (Function("f", body, cuts),))
    numbers = st.sampled_from([0.0, -0.0, 1.0, 2.0, np.inf, -np.inf, np.nan])
    values = draw(st.lists(numbers, min_size=prod(shape), max_size=prod(shape)))
    arguments = [
        np.array(values, np.float32).reshape(shape),
        np.array(draw(st.integers(-3, 12)), np.int32),
    ]
    check_agreement(module, draw(st.sampled_from(PIPELINES)), arguments)
