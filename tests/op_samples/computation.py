"""Samples of contractions, reductions, cumulative operations and sorts."""

from collections.abc import Iterator

from shardir import ops
from shardir.ir.dtypes import KEYS
from tests.op_sample import Sample, Source, between, exactly, t


def _dot() -> Iterator[Sample]:
    for dtype in ("f32", "bf16", "i32", "c64"):
        yield Sample(ops.dot, (t(dtype, 4, 6), t(dtype, 6, 8)), {"dims": "bi,ih->bh"})
    for left, right, dims in (
        ((2, 4, 6), (2, 6, 8), "bij,bjk->bik"),
        ((2, 4, 6), (6, 2, 8), "bij,jbk->kib"),
        ((4,), (4,), "i,i->"),
        ((4,), (6,), "i,j->ji"),
        ((4, 6), (4, 6), "ij,ij->ij"),
        ((4, 6), (8,), "ij,k->ik"),
        ((), (4,), ",i->i"),
        ((4, 0), (0, 2), "ij,jk->ik"),
    ):
        yield Sample(ops.dot, (t("f32", *left), t("f32", *right)), {"dims": dims})
    yield Sample(ops.dot, (t("bf16", 4, 6), t("bf16", 6, 8)), {"dims": "bi,ih->bh"}, t("f32", 4, 8))
    yield Sample(ops.dot, (t("u8", 4, 6), t("u8", 6, 8)), {"dims": "bi,ih->bh"}, t("i32", 4, 8))


def _reduce() -> Iterator[Sample]:
    for dims in ((0,), (1,), (0, 1), ()):
        for spec in (ops.sum_, ops.prod, ops.max_, ops.min_):
            yield Sample(spec, (t("f32", 4, 6),), {"dims": dims})
    for dtype in ("i32", "u8", "bf16", "f16"):
        for spec in (ops.sum_, ops.prod, ops.max_, ops.min_):
            yield Sample(spec, (t(dtype, 4, 6),), {"dims": (1,)}, sources=(between(0, 3),))
    for spec in (ops.sum_, ops.prod):
        yield Sample(spec, (t("c64", 2, 4, 3),), {"dims": (0, 2)})
    for spec in (ops.any_, ops.all_):
        yield Sample(spec, (t("bool", 4, 6),), {"dims": (0,)})
    for spec in (ops.sum_, ops.max_):
        yield Sample(spec, (t("f32", 0, 3),), {"dims": (0,)}, smooth=spec is ops.sum_)
    for spec in (ops.argmax, ops.argmin):
        yield Sample(spec, (t("f32", 4, 6),), {"dim": 1}, t("i32", 4))
        yield Sample(spec, (t("bf16", 4, 6),), {"dim": 0}, t("i64", 6))
        yield Sample(spec, (t("i32", 8),), {"dim": 0}, t("u8"))


def _cumulative() -> Iterator[Sample]:
    every = (ops.cumsum, ops.cumprod, ops.cummax, ops.cummin, ops.cumlogsumexp)
    for spec in every:
        for dim, reverse in ((0, False), (1, True)):
            yield Sample(spec, (t("f32", 4, 6),), {"dim": dim, "reverse": reverse})
        yield Sample(spec, (t("bf16", 1, 5),), {"dim": 1, "reverse": False})
    for spec in every[:-1]:
        yield Sample(spec, (t("i32", 7),), {"dim": 0, "reverse": False})
    for spec in every[:2]:
        yield Sample(spec, (t("c64", 3, 4),), {"dim": 0, "reverse": True})


def _sort() -> Iterator[Sample]:
    plain = {"dim": 1, "keys": 1, "stable": True}
    yield Sample(ops.sort, (t("f32", 4, 6),), plain)
    yield Sample(ops.sort, (t("bf16", 4, 6),), {"dim": 0})
    yield Sample(ops.sort, (t("f32", 6, 1),), {"dim": 0})
    for key in KEYS:
        yield Sample(ops.sort, (t("f32", 4, 6), t("f32", 4, 6), t(key, 4, 6)), plain)
    few: Source = between(0, 1)
    yield Sample(
        ops.sort,
        (t("i32", 8), t("f32", 8), t("i32", 8)),
        {"dim": 0, "keys": 2, "stable": True},
        sources=(few, between(-2, 2), exactly(range(8))),
    )
    yield Sample(ops.sort, (t("c64", 8),), {"dim": 0})
    yield Sample(ops.top_k, (t("f32", 4, 6),), result=(t("f32", 4, 2), t("i32", 4, 2)))
    yield Sample(ops.top_k, (t("i32", 8),), result=(t("i32", 8), t("i32", 8)))
    yield Sample(ops.top_k, (t("bf16", 2, 3, 5),), result=(t("bf16", 2, 3, 1), t("i32", 2, 3, 1)))


SAMPLES = [*_dot(), *_reduce(), *_cumulative(), *_sort()]
