"""Samples of indexing operations and window operations."""

from collections.abc import Iterator
from typing import Any

from shardir import ops
from shardir.ir.dtypes import KEYS
from tests.op_evaluation import infer_types
from tests.op_sample import Sample, Source, any_values, between, t

INSIDE: Source = between(0, 3)
"""Indices that may repeat."""
BEYOND: Source = between(-2, 9)
"""Indices of which some are out of range."""

ROWS = {"offset_dims": (1,), "collapsed_dims": (0,), "start_index_map": (0,)}
LINES = {
    "offset_dims": (),
    "collapsed_dims": (1,),
    "start_index_map": (1,),
    "operand_batching_dims": (0,),
    "indices_batching_dims": (0,),
}


def _gather() -> Iterator[Sample]:
    for indices in (INSIDE, BEYOND):
        yield Sample(
            ops.gather,
            (t("f32", 8, 6), t("i32", 4, 1)),
            ROWS,
            t("f32", 4, 6),
            sources=(any_values, indices),
            # A window out of bounds is clamped, and has no derivative.
            smooth=indices is INSIDE,
        )
    yield Sample(
        ops.gather,
        (t("i32", 8, 6), t("i64", 4, 2, 2)),
        {"offset_dims": (1, 3), "collapsed_dims": (), "start_index_map": (1, 0)},
        t("i32", 4, 3, 2, 6),
        sources=(any_values, BEYOND),
    )
    for key in KEYS:
        yield Sample(
            ops.gather,
            (t(key, 4, 6), t("i32", 4, 2, 1)),
            LINES,
            t(key, 4, 2),
            sources=(any_values, INSIDE),
        )
    yield Sample(
        ops.gather,
        (t("f32", 4, 6), t("i32", 4, 2, 1)),
        LINES,
        t("f32", 4, 2),
        sources=(any_values, INSIDE),
    )
    yield Sample(  # windows with indices along one dimension, and a fixed start along another
        ops.gather,
        (t("f32", 6, 4, 8), t("i8", 2, 4, 1)),
        {
            "offset_dims": (0, 3),
            "collapsed_dims": (),
            "start_index_map": (2,),
            "operand_batching_dims": (1,),
            "indices_batching_dims": (1,),
        },
        t("f32", 2, 2, 4, 3),
        sources=(any_values, BEYOND),
        smooth=False,
    )


def _scatter() -> Iterator[Sample]:
    for op in ("add", "set", "mul", "min", "max"):
        for dtype in ("f32", "i32", *(KEYS if op == "set" else ())):
            yield Sample(
                ops.scatter,
                (t(dtype, 8, 6), t("i32", 4, 1), t(dtype, 4, 6)),
                {
                    "update_window_dims": (1,),
                    "inserted_window_dims": (0,),
                    "scatter_dims": (0,),
                    "op": op,
                },
                sources=(any_values, BEYOND, any_values if dtype in KEYS else between(0.5, 2)),
            )
    yield Sample(
        ops.scatter,
        (t("f32", 4, 6), t("i32", 4, 2, 1), t("f32", 4, 2)),
        {
            "update_window_dims": (),
            "inserted_window_dims": (1,),
            "scatter_dims": (1,),
            "operand_batching_dims": (0,),
            "indices_batching_dims": (0,),
            "op": "add",
        },
        sources=(any_values, INSIDE, any_values),
    )
    for op in ("add", "set", "mul", "max"):
        yield Sample(  # windows out of bounds, or overlapping windows
            ops.scatter,
            (t("f32", 6, 4, 8), t("u8", 2, 4, 1), t("f32", 2, 2, 4, 3)),
            {
                "update_window_dims": (0, 3),
                "inserted_window_dims": (),
                "scatter_dims": (2,),
                "operand_batching_dims": (1,),
                "indices_batching_dims": (1,),
                "op": op,
            },
            sources=(any_values, between(0, 8), between(0.5, 2)),
        )
    yield Sample(  # a window that begins before a shard of `x`
        ops.scatter,
        (t("f32", 6), t("u32", 1), t("f32", 4)),
        {"update_window_dims": (0,), "inserted_window_dims": (), "scatter_dims": (0,), "op": "set"},
        sources=(any_values, between(0, 8), between(0.5, 2)),
    )


def _convolution() -> Iterator[Sample]:
    def over(x: Any, w: Any, dims: str, *, stride: int = 1, pad: int = 0, left: int = 1,
             right: int = 1, result: Any = None, **more: Any) -> Sample:  # fmt: skip
        rank = dims.split(",")[0].count("0") + dims.split(",")[0].count("1")
        attrs = {
            "strides": (stride,) * rank,
            "padding": ((pad, pad),) * rank,
            "lhs_dilation": (left,) * rank,
            "rhs_dilation": (right,) * rank,
            "dims": dims,
            **more,
        }
        return Sample(ops.convolution, (x, w), attrs, result)

    plain = "b01f,01io->b01f"
    yield over(t("f32", 2, 8, 6, 4), t("f32", 3, 3, 4, 2), plain)
    yield over(t("f32", 2, 8, 6, 4), t("f32", 3, 3, 4, 2), plain, stride=2, pad=1)
    yield over(t("f32", 4, 3, 8), t("f32", 5, 3, 2), "bf0,oi0->bf0", left=2, right=2, pad=1)
    yield over(t("f32", 2, 8, 4), t("f32", 3, 2, 4), "b0f,0io->b0f", groups=2)
    yield over(t("f32", 4, 8, 3), t("f32", 3, 3, 4), "b0f,0io->b0f", batch_groups=2)
    yield over(t("bf16", 2, 8, 4), t("bf16", 3, 4, 2), "b0f,0io->b0f")
    # disjoint windows: patches, single elements, one window of all elements
    yield over(t("f32", 2, 8, 8, 4), t("f32", 2, 2, 4, 6), plain, stride=2)
    yield over(t("f32", 2, 8, 4, 4), t("f32", 1, 1, 4, 6), plain)
    yield over(t("f32", 2, 8, 4, 4), t("f32", 8, 4, 4, 6), plain)
    yield over(t("c64", 2, 8, 2), t("c64", 3, 2, 4), "b0f,0io->b0f")
    yield over(t("i32", 2, 8, 2), t("i32", 3, 2, 4), "b0f,0io->b0f", result=t("i64", 2, 6, 4))
    yield over(t("f16", 4, 2), t("f16", 2, 6), "bf,io->bf", result=t("f32", 4, 6))


def _windows() -> Iterator[Sample]:
    pools: tuple[dict[str, Any], ...] = (
        {
            "window": (1, 2, 2),
            "strides": (1, 2, 2),
            "padding": ((0, 0), (0, 0), (0, 0)),
            "base_dilation": (1, 1, 1),
            "window_dilation": (1, 1, 1),
        },
        {
            "window": (1, 3, 2),
            "strides": (1, 2, 1),
            "padding": ((0, 0), (1, 1), (0, 1)),
            "base_dilation": (1, 1, 1),
            "window_dilation": (1, 1, 2),
        },
        {
            "window": (2, 2, 1),
            "strides": (1, 3, 1),
            "padding": ((1, 0), (-1, 2), (0, 0)),
            "base_dilation": (2, 2, 1),
            "window_dilation": (1, 1, 1),
        },
    )
    x = t("f32", 2, 8, 6)
    for attrs in pools:
        for op in ("add", "max", "min", "mul"):
            yield Sample(ops.reduce_window, (x,), {"op": op, **attrs})
        places = infer_types(ops.reduce_window, x, op="max", **attrs)
        for op in ("max", "min"):
            yield Sample(ops.select_and_scatter, (x, places), {"op": op, **attrs})
    yield Sample(ops.reduce_window, (t("i32", 2, 8, 6),), {"op": "add", **pools[0]})


SAMPLES = [*_gather(), *_scatter(), *_convolution(), *_windows()]
