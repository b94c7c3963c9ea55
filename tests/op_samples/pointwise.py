"""Samples of elementwise operations on the dtypes that they support."""

from collections.abc import Iterator
from dataclasses import replace

from shardir import ops
from shardir.ir.dtypes import KEYS
from shardir.ir.operation import OpSpec
from tests.op_sample import Sample, Source, between, exactly, t

SHAPE = (4, 6)
FLOATING = ("f32", "bf16", "f16", "f64")
INEXACT = (*FLOATING, "c64", "c128")
INTEGER = ("i32", "u8", "i64")
NUMBER = ("i32", "u8", *INEXACT)


def over(spec: OpSpec, arity: int, dtypes: tuple[str, ...], *sources: Source) -> Iterator[Sample]:
    for dtype in dtypes:
        yield Sample(spec, (t(dtype, *SHAPE),) * arity, sources=sources or Sample.sources)


def _unary() -> Iterator[Sample]:
    for spec in (ops.neg, ops.abs_, ops.sign):
        yield from over(spec, 1, NUMBER)
    for spec in (ops.floor, ops.ceil, ops.round_, ops.cbrt, ops.erf, ops.erfc):
        yield from over(spec, 1, FLOATING)
    for spec in (ops.exp, ops.exp2, ops.expm1, ops.sin, ops.cos, ops.sinh, ops.cosh, ops.tanh):
        yield from over(spec, 1, INEXACT)
    for spec in (ops.asinh, ops.logistic):
        yield from over(spec, 1, INEXACT)
    for spec in (ops.log, ops.log2, ops.log1p, ops.sqrt, ops.rsqrt):
        yield from over(spec, 1, INEXACT, between(0.1, 3.0))
    for spec in (ops.tan, ops.asin, ops.acos, ops.atan, ops.atanh):
        yield from over(spec, 1, INEXACT, between(-0.6, 0.6))
    yield from over(ops.acosh, 1, INEXACT, between(1.2, 3.0))
    yield from over(ops.erf_inv, 1, FLOATING, between(-0.95, 0.95))
    yield from over(ops.lgamma, 1, FLOATING, between(0.2, 12.0))
    yield from over(ops.digamma, 1, FLOATING, between(0.2, 12.0))
    yield from over(ops.lgamma, 1, ("f64",), between(-2.9, -2.1))
    yield from over(ops.digamma, 1, ("f64",), between(-2.9, -2.1))
    yield from over(ops.is_finite, 1, INEXACT)
    yield from over(ops.not_, 1, ("bool", *INTEGER))
    for spec in (ops.popcnt, ops.clz):
        yield from over(spec, 1, INTEGER)
    for spec in (ops.real, ops.imag, ops.conj):
        yield from over(spec, 1, ("c64", "c128"))


def _binary() -> Iterator[Sample]:
    for spec in (ops.add, ops.mul):
        yield from over(spec, 2, ("bool", *NUMBER))
    yield from over(ops.sub, 2, NUMBER)
    yield from over(ops.div, 2, NUMBER, between(-9, 9), between(1, 4))
    yield from over(ops.rem, 2, ("i32", "u8", *FLOATING), between(5, 9), between(1, 4))
    yield from over(ops.pow_, 2, NUMBER, between(1, 3), between(0, 2))
    yield from over(ops.atan2, 2, FLOATING)
    for spec in (ops.maximum, ops.minimum):
        yield from over(spec, 2, ("bool", "i32", "u8", *FLOATING))
    for spec in (ops.and_, ops.or_, ops.xor):
        yield from over(spec, 2, ("bool", *INTEGER))
    for spec in (ops.shift_left, ops.shift_right_logical, ops.shift_right_arithmetic):
        yield from over(spec, 2, INTEGER, between(0, 99), between(0, 9))
    for sample in over(ops.nextafter, 2, FLOATING):
        yield replace(sample, smooth=False)
    yield from over(ops.complex_, 2, ("f32", "f64"))
    for spec in (ops.eq, ops.ne):
        yield from over(spec, 2, ("bool", *KEYS, *NUMBER), between(0, 3))
    for spec in (ops.lt, ops.le, ops.gt, ops.ge):
        yield from over(spec, 2, ("bool", "i32", "u8", *FLOATING), between(0, 3))


def _mixed() -> Iterator[Sample]:
    for dtype in ("f32", "i32", "c64", "bool", *KEYS):
        data = t(dtype, *SHAPE)
        yield Sample(ops.select, (t("bool", *SHAPE), data, data))
        yield Sample(ops.select, (t("bool"), data, data))
    for dtype in ("f32", "i32", "bf16"):
        data, scalar = t(dtype, *SHAPE), t(dtype)
        wide = (between(-1, 0), between(-3, 3), between(1, 2))
        yield Sample(ops.clamp, (data, data, data), sources=wide)
        yield Sample(ops.clamp, (scalar, data, scalar), sources=wide)
    for source, to in (
        ("f32", "bf16"), ("bf16", "f32"), ("f32", "i32"), ("i32", "f32"), ("f32", "bool"),
        ("bool", "f32"), ("f64", "f16"), ("c64", "f32"), ("f32", "c64"), ("i64", "u8"),
        ("u32", "i8"), ("c64", "c128"), ("f32", "f32"),
    ):  # fmt: skip
        yield Sample(ops.convert, (t(source, *SHAPE),), result=t(to, *SHAPE))
    yield Sample(ops.stop_gradient, (t("f32", *SHAPE),), smooth=False)
    yield Sample(ops.stop_gradient, (t("i32", *SHAPE),))
    yield Sample(ops.add, (t("f32"), t("f32")))
    for spec in (ops.erf, ops.erfc, ops.erf_inv, ops.lgamma, ops.digamma):
        yield Sample(spec, (t("f32"),), sources=(between(0.1, 0.9),))
    yield Sample(ops.add, (t("f32", 0, 3), t("f32", 0, 3)), sources=(exactly([]),))


SAMPLES = [*_unary(), *_binary(), *_mixed()]
