"""Samples of operations that create, arrange, slice and annotate data."""

import numpy as np

from shardir import ops
from shardir.ir.dtypes import KEY_WORDS, KEYS
from shardir.ir.operation import Dense, Symbol
from tests.op_sample import Sample, any_values, between, exactly, t

CREATE = [
    Sample(ops.constant, (), {"value": 2.5}, t("f32", 4, 6)),
    Sample(ops.constant, (), {"value": True}, t("bool", 4)),
    Sample(ops.constant, (), {"value": 1 + 2j}, t("c64")),
    Sample(ops.constant, (), {"value": float("-inf")}, t("bf16", 2)),
    Sample(ops.constant, (), {"value": Dense(np.arange(6, dtype="i4"))}, t("i32", 6)),
    Sample(ops.constant, (), {"value": Dense(np.arange(2, dtype="u8"))}, t("key", 2)),
    Sample(ops.iota, (), {"dim": 1}, t("i32", 4, 6)),
    Sample(ops.iota, (), {"dim": 0}, t("f32", 4, 6)),
    Sample(ops.iota, (), {"dim": 0}, t("c64", 3)),
]

SHAPE = [
    Sample(ops.broadcast, (t("f32", 6),), {"dims": (1,)}, t("f32", 4, 6)),
    Sample(ops.broadcast, (t("f32"),), {"dims": ()}, t("f32", 4, 6)),
    Sample(ops.broadcast, (t("f32", 4, 1, 6),), {"dims": (0, 1, 3)}, t("f32", 4, 2, 3, 6)),
    Sample(ops.broadcast, (t("f32", 1),), {"dims": (0,)}, t("f32", 1, 8)),
    *(Sample(ops.broadcast, (t(key, 4),), {"dims": (0,)}, t(key, 4, 2)) for key in KEYS),
    Sample(ops.reshape, (t("f32", 4, 6),), result=t("f32", 24)),
    Sample(ops.reshape, (t("f32", 8, 4),), result=t("f32", 2, 16)),
    Sample(ops.reshape, (t("f32", 8, 1, 3),), result=t("f32", 1, 4, 2, 3, 1)),
    Sample(ops.reshape, (t("f32", 4, 27),), result=t("f32", 6, 3, 2, 3)),
    Sample(ops.reshape, (t("f32"),), result=t("f32", 1, 1)),
    Sample(ops.reshape, (t("f32", 0, 3),), result=t("f32", 3, 0)),
    *(Sample(ops.reshape, (t(key, 4),), result=t(key, 2, 2)) for key in KEYS),
    Sample(ops.transpose, (t("f32", 2, 4, 6),), {"perm": (2, 0, 1)}),
    Sample(ops.transpose, (t("key_rbg", 2, 4),), {"perm": (1, 0)}),
    Sample(ops.transpose, (t("f32"),), {"perm": ()}),
    Sample(ops.reverse, (t("f32", 4, 6),), {"dims": (1,)}),
    Sample(ops.reverse, (t("i32", 4, 6),), {"dims": (1, 0)}),
    Sample(ops.roll, (t("f32", 4, 6),), {"dim": 1, "shift": 4}),
    Sample(ops.roll, (t("i32", 4),), {"dim": 0, "shift": 0}),
    Sample(ops.concatenate, (t("f32", 4, 2), t("f32", 4, 3), t("f32", 4, 1)), {"dim": 1}),
    Sample(ops.concatenate, (t("f32", 4, 2),), {"dim": 0}),
    *(Sample(ops.concatenate, (t(key, 4, 2), t(key, 4, 3)), {"dim": 1}) for key in KEYS),
    *(Sample(ops.reverse, (t(key, 4, 6),), {"dims": (1,)}) for key in KEYS),
    *(Sample(ops.roll, (t(key, 4, 6),), {"dim": 1, "shift": 4}) for key in KEYS),
    Sample(ops.bitcast, (t("f32", 4, 6),), result=t("u32", 4, 6), smooth=False),
    Sample(ops.bitcast, (t("f32"),), result=t("u32"), smooth=False),
    Sample(ops.bitcast, (t("u16", 4, 6),), result=t("bf16", 4, 6), smooth=False),
    Sample(ops.bitcast, (t("u32", 4, 6),), result=t("u8", 4, 6, 4), smooth=False),
    Sample(ops.bitcast, (t("u8", 4, 4),), result=t("f32", 4), smooth=False),
    *(
        Sample(ops.bitcast, (t(x, *shape),), result=t(to, *to_shape), smooth=False)
        for key, count in KEY_WORDS.items()
        for x, shape, to, to_shape in (
            (key, (4,), "u32", (4, count)),
            ("u32", (4, count), key, (4,)),
        )
    ),
]

SLICING = [
    Sample(ops.slice_, (t("f32", 4, 6),), {"starts": (0, 1), "strides": (1, 2)}, t("f32", 4, 3)),
    Sample(ops.slice_, (t("f32", 8),), {"starts": (2,), "strides": (1,)}, t("f32", 4)),
    *(
        Sample(ops.slice_, (t(key, 4, 6),), {"starts": (0, 1), "strides": (1, 2)}, t(key, 4, 3))
        for key in KEYS
    ),
    *(
        Sample(ops.pad, (t(key, 4), t(key)), {"low": (1,), "high": (-1,), "interior": (2,)})
        for key in KEYS
    ),
    *(
        Sample(
            ops.dynamic_slice,
            (t(key, 4, 6), t("i32"), t("i32")),
            result=t(key, 4, 2),
            sources=(any_values, between(0, 3)),
        )
        for key in KEYS
    ),
    *(
        Sample(
            ops.dynamic_update_slice,
            (t(key, 4, 6), t(key, 4, 2), t("i32"), t("i32")),
            sources=(any_values, any_values, between(0, 3)),
        )
        for key in KEYS
    ),
    Sample(ops.slice_, (t("f32", 8),), {"starts": (8,), "strides": (3,)}, t("f32", 0)),
    Sample(
        ops.pad,
        (t("f32", 4, 6), t("f32")),
        {"low": (0, 1), "high": (0, 2), "interior": (0, 1)},
    ),
    Sample(
        ops.pad,
        (t("f32", 5, 6), t("f32")),
        {"low": (-1, 3), "high": (2, -2), "interior": (2, 1)},
    ),
    Sample(ops.pad, (t("i32", 3), t("i32")), {"low": (-4,), "high": (2,), "interior": (0,)}),
    Sample(
        ops.dynamic_slice,
        (t("f32", 4, 6), t("i32"), t("i32")),
        result=t("f32", 4, 2),
        sources=(between(-2, 2), between(0, 3)),
    ),
    Sample(
        ops.dynamic_slice,
        (t("f32", 4, 6), t("i64"), t("i64")),
        result=t("f32", 2, 6),
        sources=(between(-2, 2), exactly(3), exactly(-5)),
    ),
    Sample(
        ops.dynamic_update_slice,
        (t("f32", 4, 6), t("f32", 4, 2), t("i32"), t("i32")),
        sources=(between(-2, 2), between(-2, 2), between(0, 3)),
    ),
    Sample(
        ops.dynamic_update_slice,
        (t("i32", 5), t("i32", 2), t("u8")),
        sources=(between(0, 9), between(0, 9), exactly(200)),
    ),
]

ANNOTATE = [
    Sample(ops.sharding_constraint, (t("f32", 4, 6),)),
    Sample(ops.propagation_barrier, (t("f32", 4, 6),), {"direction": Symbol("forward")}),
    Sample(ops.reshard, (t("f32", 4, 6),)),
    Sample(ops.optimization_barrier, (t("f32", 4, 6), t("i32", 2))),
    Sample(ops.optimization_barrier, (t("f32", 4),)),
]

SAMPLES = [*CREATE, *SHAPE, *SLICING, *ANNOTATE]
