"""Samples of control flow, whose blocks capture outer values, and of random bits."""

from collections.abc import Iterator, Sequence

from shardir import ops
from shardir.ir.builder import Builder
from shardir.ir.dtypes import RBG_KEYS
from shardir.ir.module import Block, Value
from tests.op_sample import Sample, any_values, exactly, t

LINE = t("f32", 4)


def _twice_until(b: Builder, operands: Sequence[Value]) -> tuple[Block, ...]:
    """Return a loop that doubles until the counter has a value, adding the captured operand."""
    test, step = b.inner(), b.inner()
    count, line = test.param(t("i32")), test.param(LINE)
    condition = test.block([count, line], [test.lt(count, test.full(3, t("i32")))])
    count, line = step.param(t("i32")), step.param(LINE)
    more = step.add(count, step.full(1, t("i32")))
    return condition, step.block([count, line], [more, step.add(line, line)])


def _running(b: Builder, operands: Sequence[Value]) -> tuple[Block, ...]:
    body = b.inner()
    total, line = body.param(LINE), body.param(LINE)
    grown = body.add(body.sin(total), line)
    return (body.block([total, line], [grown, body.mul(grown, operands[0])]),)


def _branches(b: Builder, operands: Sequence[Value]) -> tuple[Block, ...]:
    constant, other = b.inner(), b.inner()
    return (
        constant.block([], [constant.full(1, LINE)]),
        other.block([], [other.full(2, LINE)]),
    )


def _function(b: Builder, operands: Sequence[Value]) -> tuple[Block, ...]:
    body = b.inner()
    line = body.param(LINE)
    return (body.block([line], [body.sin(line), line]),)


def _control() -> Iterator[Sample]:
    # The function of a sample is called `f`.
    yield Sample(ops.call, (LINE,), {"callee": "g"}, blocks=_function, smooth=False)
    counted = (exactly(0), any_values)
    yield Sample(ops.while_, (t("i32"), LINE), sources=counted, blocks=_twice_until, smooth=False)
    for reverse in (False, True):
        yield Sample(
            ops.scan,
            (LINE, t("f32", 3, 4)),
            {"carries": 1, "length": 3, "reverse": reverse},
            blocks=_running,
            smooth=False,
        )
    for index, dtype in ((0, "i32"), (7, "i32"), (1, "bool")):
        yield Sample(
            ops.case, (t(dtype),), sources=(exactly(index),), blocks=_branches, smooth=False
        )


def _random() -> Iterator[Sample]:
    for scheme in ("partitionable", "original"):
        for made in (t("u32", 4, 6), t("u8", 8), t("u64", 3)):
            yield Sample(ops.random_bits, (t("key"),), {"scheme": scheme}, made)
        yield Sample(ops.random_bits, (t("key", 4),), {"scheme": scheme}, t("u16", 4, 3))
        yield Sample(ops.random_split, (t("key"),), {"scheme": scheme}, t("key", 4, 2))
        yield Sample(ops.random_split, (t("key", 2, 3),), {"scheme": scheme}, t("key", 2, 3, 4))
    for key in RBG_KEYS:
        for made in (t("u32", 4, 6), t("u8", 8), t("u64", 3)):
            yield Sample(ops.random_bits, (t(key),), result=made)
        yield Sample(ops.random_bits, (t(key, 4),), result=t("u16", 4, 3))
    yield Sample(ops.random_fold_in, (t("key", 4), t("u32", 4)))
    yield Sample(ops.random_hash, (t("key", 4), t("u32", 4), t("u32", 4)))


SAMPLES = [*_control(), *_random()]
