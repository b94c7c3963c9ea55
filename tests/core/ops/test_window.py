"""Pooling has StableHLO's semantics, and cotangents reach the elements in the windows."""

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings, strategies

from shardir import ops, parse
from shardir.ir.builder import Builder
from shardir.ir.module import Function
from shardir.ir.operation import Symbol
from shardir.ir.types import TensorType
from shardir.passes import Pipeline
from tests.derivatives import check_gradients
from tests.op_evaluation import Array, apply_op, infer_types
from tests.op_sample import t

COMBINE: dict[str, tuple[float, Callable[[Any, Any], Any]]] = {
    "add": (0.0, lambda a, b: a + b),
    "mul": (1.0, lambda a, b: a * b),
    "max": (-np.inf, max),
    "min": (np.inf, min),
}
each_op = pytest.mark.parametrize("op", [*COMBINE])
seeds = given(strategies.integers(0, 2**32 - 1))
some = settings(max_examples=max(settings().max_examples // 4, 25))


class Setting:
    """A random tensor with random windows."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        rank = int(rng.integers(1, 4))
        self.x = t("f64", *(int(n) for n in rng.integers(1, 7, rank)))
        names = ("window", "strides", "base_dilation", "window_dilation")
        self.attrs: dict[str, Any] = {
            name: tuple(int(n) for n in rng.integers(1, 4, rank)) for name in names
        }
        pads = rng.integers(-1, 3, (rank, 2))
        self.attrs["padding"] = tuple((int(low), int(high)) for low, high in pads)

    def array(self) -> Array:
        return self.rng.normal(size=self.x.shape)

    def seen(self, place: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return the elements of one window in order."""
        elements = []
        for inner in product(*map(range, self.attrs["window"])):
            spot = []
            for d, n in enumerate(self.x.shape):
                start = place[d] * self.attrs["strides"][d] - self.attrs["padding"][d][0]
                here = start + inner[d] * self.attrs["window_dilation"][d]
                index, between = divmod(here, self.attrs["base_dilation"][d])
                if not between and 0 <= index < n:
                    spot.append(index)
            if len(spot) == self.x.rank:
                elements.append(tuple(spot))
        return elements

    def pooled(self, op: str) -> TensorType:
        made: TensorType = infer_types(ops.reduce_window, self.x, op=Symbol(op), **self.attrs)
        return made


@each_op
@some
@seeds
def test_every_element_in_a_window_is_reduced_once(op: str, seed: int) -> None:
    s = Setting(seed)
    x, (start, combine) = s.array(), COMBINE[op]
    expected = np.full(s.pooled(op).shape, start)
    for place in np.ndindex(*expected.shape):
        for spot in s.seen(place):
            expected[place] = combine(expected[place], x[spot])

    got = apply_op(ops.reduce_window, x, op=Symbol(op), **s.attrs)

    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("op", ["max", "min"])
@some
@seeds
def test_each_window_selects_its_best_element(op: str, seed: int) -> None:
    """Equal elements select the first, and empty windows select none."""
    s = Setting(seed)
    x = np.round(s.array())
    source = s.rng.normal(size=s.pooled(op).shape)
    expected = np.zeros(s.x.shape)
    for place in np.ndindex(*source.shape):
        if spots := s.seen(place):
            best = max(spots, key=lambda spot: x[spot] if op == "max" else -x[spot])
            expected[best] += source[place]

    got = apply_op(ops.select_and_scatter, x, source, op=Symbol(op), **s.attrs)

    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=1e-14)


@each_op
@some
@seeds
def test_cotangents_of_pooling_agree_with_differences(op: str, seed: int) -> None:
    """Cotangents of second order are tested too. Empty windows are excluded, because their
    results are infinite.
    """
    s = Setting(seed)
    b = Builder()
    x = b.param(s.x, "x")
    made = b.reduce_window(x, op=Symbol(op), **s.attrs)
    finite = b.is_finite(made)
    kept = b.select(finite, made, b.full(0, made.type))

    check_gradients(Function("f", b.block([x], [kept]), (None,)), [s.array()], order=2)


LINE = {
    "window": (3,),
    "strides": (1,),
    "padding": ((0, 0),),
    "base_dilation": (1,),
    "window_dilation": (1,),
}


def test_nan_propagates_to_every_window_that_contains_it() -> None:
    x = np.array([1.0, 2, np.nan, 0, 5, 4, 3])

    for op in ("max", "min", "add"):
        got = apply_op(ops.reduce_window, x, op=Symbol(op), **LINE)
        assert np.isnan(got).tolist() == [True, True, True, False, False]

    chosen = apply_op(ops.select_and_scatter, x, np.ones(5), op=Symbol("max"), **LINE)
    assert chosen.tolist() == [0, 0, 3, 0, 2, 0, 0]


def test_padding_is_below_the_lowest_number() -> None:
    low = np.full(4, -np.inf)
    attrs = {**LINE, "padding": ((1, 1),), "base_dilation": (2,)}

    sent = apply_op(ops.select_and_scatter, low, np.ones(7), op=Symbol("max"), **attrs)

    assert sent.sum() == 7


@pytest.mark.parametrize(("op", "edge"), [("max", -128), ("min", 127), ("add", 0), ("mul", 1)])
def test_padding_has_the_identity_of_the_reduction(op: str, edge: int) -> None:
    attrs = {**LINE, "window": (1,), "padding": ((1, 0),)}

    got = apply_op(ops.reduce_window, np.array([7], np.int8), op=Symbol(op), **attrs)

    assert got.tolist() == [edge, 7]


def test_16_bit_floats_are_added_in_f32() -> None:
    ones = np.ones(1000, ml_dtypes.bfloat16)

    got = apply_op(ops.reduce_window, ones, op=Symbol("add"), **{**LINE, "window": (1000,)})

    assert got.astype(float).tolist() == [1000.0]


def rules(x: TensorType, **attrs: Any) -> tuple[str, str]:
    attrs = {"op": Symbol("max"), **attrs}
    places = infer_types(ops.reduce_window, x, **attrs)
    pool, back = ops.reduce_window.factors, ops.select_and_scatter.factors
    assert pool is not None
    assert back is not None
    given = ops.reduce_window.rule_arguments(attrs)
    return str(pool(x, result=places, **given)), str(back(x, places, result=x, **given))


def test_factors_agree_with_shardy() -> None:
    """The expected rules are printed by `sdy-populate-op-sharding-rules` of jaxlib 0.10.2."""
    ones, none = (1, 1, 1), ((0, 0),) * 3
    found = rules(
        t("f32", 2, 8, 6),
        window=(1, 2, 3),
        strides=(1, 2, 1),
        padding=none,
        base_dilation=ones,
        window_dilation=ones,
    )

    assert found == (
        "([i, j, k]) -> ([i, j, k]) {i=2, j=4, k=4} permutation={j, k}",
        "([i, k, m], [i, j, l]) -> ([i, k, m]) {i=2, j=4, k=8, l=4, m=6} "
        "need-replication={j, l} permutation={k, m}",
    )


def devices(window: int, stride: int) -> list[str]:
    places = (16 - window) // stride + 1
    text = (
        "mesh @m = [x=2]\n\n"
        f"func @f(%x: f32[16@x]) -> (f32[{places}]) {{\n"
        f"  %y = reduce_window(%x, op=max, window=[{window}], strides=[{stride}], "
        f"padding=[[0, 0]], base_dilation=[1], window_dilation=[1]) : f32[{places}]\n"
        "  return %y\n}\n"
    )
    module = Pipeline.parse("propagate,reshard,partition,dce")(parse(text))
    return [op.name for op in module.main.body.ops if op.spec.collective]


def test_disjoint_windows_need_no_communication() -> None:
    assert devices(window=2, stride=2) == []
    assert devices(window=1, stride=4) == []


def test_overlapping_windows_exchange_a_row() -> None:
    assert devices(window=3, stride=1) == ["collective-permute"]
    # Seven positions are not divisible, and results must be sharded evenly.
    assert devices(window=3, stride=2) == ["collective-permute", "all-gather"]


x = t("f32", 8)
MISFITS: list[tuple[str, tuple[TensorType, ...], dict[str, Any], str]] = [
    ("reduce_window", (x,), {"op": Symbol("or")}, "op=or is not one of add, mul, max, min"),
    ("reduce_window", (t("c64", 8),), {},
     "takes bool, integer or floating-point operands, got c64[8]"),
    ("reduce_window", (x,), {"window": (2, 2)}, 
     "window=[2, 2] must have one number a dimension (1)"),
    ("reduce_window", (x,), {"window": 2}, "window=2 must be a sequence of integers"),
    ("reduce_window", (x,), {"window": (0,)}, "window=[0] must be at least 1 everywhere"),
    ("reduce_window", (x,), {"padding": ((1, 2, 3),)},
     "padding=[[1, 2, 3]] must have one pair [low, high] a dimension (1)"),
    ("reduce_window", (x,), {"padding": (1,)},
     "a pair of padding=1 must be a sequence of integers"),
    ("reduce_window", (x,), {"dilation": (1,)}, "has no attribute 'dilation'"),
    ("select_and_scatter", (x, x), {}, "needs one element for each window (f32[6]), got f32[8]"),
    ("select_and_scatter", (x, t("f64", 6)), {},
     "operands must have one element type, got f32[8] and f64[6]; convert them first"),
    ("select_and_scatter", (x, t("f32", 6)), {"op": Symbol("add")},
     "op=add is not one of max, min"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "operands", "attrs", "message"), MISFITS)
def test_invalid_windows_are_errors(
    name: str, operands: tuple[TensorType, ...], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        infer_types(getattr(ops, name), *operands, **{"op": Symbol("max"), **LINE, **attrs})

    assert str(caught.value).startswith(f"{name}: {message}")
