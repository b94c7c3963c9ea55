"""Convolution has StableHLO's semantics, and its cotangents are two more convolutions."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from shardir import ops, parse
from shardir.ir.builder import Builder
from shardir.ir.module import Function
from shardir.ir.types import TensorType
from shardir.passes import Pipeline
from tests.derivatives import check_gradients
from tests.op_evaluation import Array, apply_op, infer_types
from tests.op_sample import t

PLAIN = {
    "strides": (1, 1),
    "padding": ((0, 0), (0, 0)),
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
    "dims": "b01f,01io->b01f",
}


class Setting:
    """A random convolution with up to two spatial dimensions."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = np.random.default_rng(seed)
        rank = int(rng.integers(0, 3))
        digits = "01"[:rank]
        self.terms = ["".join(rng.permutation([*ends, *digits])) for ends in ("bf", "io", "bf")]
        parts = int(rng.integers(1, 4))
        groups, batch_groups = (parts, 1) if rng.random() < 0.6 else (1, parts)
        inputs, outputs, batch = (int(n) for n in rng.integers(1, 3, 3))
        sizes = {
            "b": batch * batch_groups,
            "f": inputs * groups,
            "i": inputs,
            "o": outputs * parts,
        }
        self.x = t("f64", *(sizes.get(c) or int(rng.integers(1, 7)) for c in self.terms[0]))
        self.w = t("f64", *(sizes.get(c) or int(rng.integers(1, 4)) for c in self.terms[1]))
        steps = [tuple(int(n) for n in rng.integers(1, 4, rank)) for _ in range(3)]
        self.attrs: dict[str, Any] = {
            "strides": steps[0],
            "padding": tuple((int(a), int(b)) for a, b in rng.integers(-1, 4, (rank, 2))),
            "lhs_dilation": steps[1],
            "rhs_dilation": steps[2],
            "dims": f"{self.terms[0]},{self.terms[1]}->{self.terms[2]}",
            "groups": groups,
            "batch_groups": batch_groups,
        }

    def arrays(self) -> list[Array]:
        return [self.rng.normal(size=self.x.shape), self.rng.normal(size=self.w.shape)]

    def expected(self, x: Array, w: Array) -> Array:
        """Return the sum of all products, at the positions that the specification states."""
        result = infer_types(ops.convolution, self.x, self.w, **self.attrs)
        of, by, to = self.terms
        digits = sorted(set(of) - set("bf"))
        out = np.zeros(result.shape)
        size = dict(zip(by, w.shape, strict=True))
        outputs = size["o"] // (self.attrs["groups"] * self.attrs["batch_groups"])
        batch = dict(zip(to, out.shape, strict=True))["b"]
        for place in product(*map(range, out.shape)):
            at = dict(zip(to, place, strict=True))
            group = at["f"] // outputs
            for inner in product(*map(range, w.shape)):
                tap = dict(zip(by, inner, strict=True))
                if tap["o"] != at["f"]:
                    continue
                source = {"b": at["b"], "f": tap["i"]}
                if self.attrs["groups"] > 1:
                    source["f"] += group * size["i"]
                if self.attrs["batch_groups"] > 1:
                    source["b"] += group * batch
                for n, digit in enumerate(digits):
                    low = self.attrs["padding"][n][0]
                    step = at[digit] * self.attrs["strides"][n]
                    here = step + tap[digit] * self.attrs["rhs_dilation"][n] - low
                    source[digit], between = divmod(here, self.attrs["lhs_dilation"][n])
                    if between:
                        break
                else:
                    spot = tuple(source[c] for c in of)
                    if all(0 <= i < n for i, n in zip(spot, x.shape, strict=True)):
                        out[place] += x[spot] * w[inner]
        return out


seeds = given(strategies.integers(0, 2**32 - 1))


@settings(max_examples=max(settings().max_examples // 4, 25))
@seeds
def test_results_agree_with_the_specification(seed: int) -> None:
    s = Setting(seed)
    x, w = s.arrays()

    got = apply_op(ops.convolution, x, w, **s.attrs)

    np.testing.assert_allclose(got, s.expected(x, w), rtol=1e-12, atol=1e-12)


@settings(max_examples=max(settings().max_examples // 4, 25))
@seeds
def test_cotangents_agree_with_differences(seed: int) -> None:
    s = Setting(seed)
    b = Builder()
    x, w = b.param(s.x, "x"), b.param(s.w, "w")
    made = b.convolution(x, w, **s.attrs)

    check_gradients(Function("f", b.block([x, w], [made]), (None,)), s.arrays(), order=2)


def test_cotangents_are_convolutions_without_copies() -> None:
    """The filter is reversed; no other operation moves data."""
    b = Builder()
    x, w = b.param(t("f32", 2, 8, 8, 4)), b.param(t("f32", 3, 3, 4, 6))
    y = b.convolution(x, w, **PLAIN)
    g = b.param(y.type)
    vjp = ops.convolution.vjp
    assert vjp is not None

    vjp(b, g, x, w, y, **ops.convolution.rule_arguments(PLAIN))

    made = [(op.name, op.attrs.get("dims")) for op in b.ops[1:]]
    assert made == [
        ("reverse", (0, 1)),
        ("convolution", "b01f,01oi->b01f"),
        ("convolution", "f01b,i01o->01bf"),
    ]


def test_integers_wrap_around_in_the_dtype_of_the_result() -> None:
    x, w = np.full((1, 3, 1), 100, np.int8), np.full((2, 1, 1), 2, np.int8)
    attrs = {**{k: v[:1] for k, v in PLAIN.items() if k != "dims"}, "dims": "b0f,0io->b0f"}

    narrow = apply_op(ops.convolution, x, w, **attrs)
    wide = apply_op(ops.convolution, x, w, result=t("i32", 1, 2, 1), **attrs)

    assert narrow[0, :, 0].tolist() == [-112, -112]
    assert wide[0, :, 0].tolist() == [400, 400]


def test_large_batches_are_computed_in_chunks() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(70, 40, 40, 8)), rng.normal(size=(3, 3, 8, 2))

    whole = apply_op(ops.convolution, x, w, **PLAIN)
    last = apply_op(ops.convolution, x[-1:], w, **PLAIN)

    np.testing.assert_allclose(whole[-1:], last, rtol=1e-12, atol=1e-12)


def rule(x: TensorType, w: TensorType, **attrs: Any) -> str:
    factors = ops.convolution.factors
    assert factors is not None
    attrs = {**PLAIN, **attrs}
    result = infer_types(ops.convolution, x, w, **attrs)
    return str(factors(x, w, result=result, **ops.convolution.rule_arguments(attrs)))


def test_factors_agree_with_shardy() -> None:
    """The expected rules are printed by `sdy-populate-op-sharding-rules` of jaxlib 0.10.2;
    additionally, a dimension without a factor may not be sharded.
    """
    image = t("f32", 2, 16, 12, 4)
    same = ((1, 1), (1, 1))

    assert rule(image, t("f32", 3, 3, 4, 6), padding=same) == (
        "([i, j, k, l], [n, o, l, m]) -> ([i, j, k, m]) "
        "{i=2, j=16, k=12, l=4, m=6, n=1, o=1} reduction={l} need-replication={n, o} "
        "permutation={j, k}"
    )
    assert rule(image, t("f32", 2, 2, 4, 6), strides=(2, 2)) == (
        "([i, jk, lm, n], [k, m, n, o]) -> ([i, j, l, o]) "
        "{i=2, j=8, k=2, l=6, m=2, n=4, o=6} reduction={k, m, n} permutation={j, l}"
    )
    assert rule(image, t("f32", 3, 3, 2, 6), padding=same, groups=2) == (
        "([i, j, k, lm], [o, p, m, ln]) -> ([i, j, k, ln]) "
        "{i=2, j=16, k=12, l=2, m=2, n=3, o=1, p=1} reduction={m} need-replication={o, p} "
        "permutation={j, k}"
    )
    assert rule(image, t("f32", 3, 3, 4, 6), padding=same, batch_groups=2) == (
        "([i, k, l, m], [o, p, m, in]) -> ([j, k, l, in]) "
        "{i=2, j=1, k=16, l=12, m=4, n=3, o=1, p=1} reduction={m} need-replication={o, p} "
        "permutation={k, l}"
    )


def devices(cut: str, window: int, stride: int) -> str:
    places = (16 - window) // stride + 1
    text = (
        "mesh @m = [x=2]\n\n"
        f"func @f(%x: f32[{cut}, 4], %w: f32[{window}, 4, 6]) -> (f32[2, {places}, 6]) {{\n"
        f"  %y = convolution(%x, %w, strides=[{stride}], padding=[[0, 0]], lhs_dilation=[1], "
        f'rhs_dilation=[1], dims="b0f,0io->b0f") : f32[2, {places}, 6]\n'
        "  return %y\n}\n"
    )
    module = Pipeline.parse("propagate,reshard,partition,dce")(parse(text))
    return " ".join(op.name for op in module.main.body.ops if "-" in op.name)


def test_patches_are_sharded_without_communication() -> None:
    assert devices("2, 16@x", window=4, stride=4) == ""
    assert devices("2, 16@x", window=1, stride=1) == ""
    assert devices("2, 16@x", window=5, stride=4) == "all-gather"
    assert devices("2, 16@x", window=16, stride=1) == "all-reduce"


x, w = t("f32", 2, 8, 8, 4), t("f32", 3, 3, 4, 6)
MISFITS: list[tuple[tuple[TensorType, TensorType], dict[str, Any], str]] = [
    ((x, t("f64", 3, 3, 4, 6)), {},
     "operands must have one element type, got f32[2, 8, 8, 4] and f64[3, 3, 4, 6]; "
     "convert them first"),
    ((x, t("f32", 3, 4, 6)), {},
     "dims='b01f,01io->b01f' gives 4 dimensions to f32[3, 4, 6]"),
    ((x, w), {"dims": "b01f,01io"},
     'dims=\'b01f,01io\' is not a convolution such as "b01f,01io->b01f"'),
    ((x, w), {"dims": 3}, 'dims=3 must be text such as "b01f,01io->b01f"'),
    ((x, w), {"strides": (1,)}, "strides=[1] must have one number a spatial dimension (2)"),
    ((x, w), {"strides": (0, 1)}, "strides=[0, 1] must be at least 1 everywhere"),
    ((x, w), {"rhs_dilation": 2}, "rhs_dilation=2 must be a sequence of integers"),
    ((x, w), {"padding": ((0, 0),)},
     "padding=[[0, 0]] must have one pair [low, high] a spatial dimension (2)"),
    ((x, w), {"padding": "same"}, "padding='same' must be a sequence of pairs [low, high]"),
    ((x, w), {"groups": 0}, "groups=0 and batch_groups=1 must be at least 1, and one of them 1"),
    ((x, w), {"groups": 2},
     "a filter for 4 input features in groups=2 needs 8 features, got 4 in f32[2, 8, 8, 4]"),
    ((x, w), {"batch_groups": 4},
     "6 output features do not divide into batch_groups=4 of f32[3, 3, 4, 6]"),
    ((x, w), {"batch_groups": 3}, "a batch of 2 does not divide into batch_groups=3"),
    ((x, w), {"result": t("f16", 2, 6, 6, 6)},
     "cannot accumulate f32 products in f16; convert the result instead"),
]  # fmt: skip


@pytest.mark.parametrize(("operands", "attrs", "message"), MISFITS)
def test_invalid_convolutions_are_errors(
    operands: tuple[TensorType, TensorType], attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        infer_types(ops.convolution, *operands, **{**PLAIN, **attrs})

    assert str(caught.value) == f"convolution: {message}"
