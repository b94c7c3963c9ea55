"""Writing of operations that have a region in StableHLO."""

from collections.abc import Sequence

from shardir import ops as ops  # declares the operations
from shardir.ir.dtypes import greatest_number, least_number
from shardir.ir.module import Op
from shardir.ir.operation import OPS, Attr
from shardir.ir.types import TensorType
from shardir.stablehlo.writing.attributes import (
    format_array,
    format_integer,
    format_matrix,
)
from shardir.stablehlo.writing.writer import (
    WRITERS,
    ExportError,
    MlirWriter,
    TypedName,
    WrittenRegion,
)

STABLEHLO_COMBINATIONS = {
    "add": "add",
    "mul": "multiply",
    "max": "maximum",
    "min": "minimum",
    "and": "and",
    "or": "or",
}
COMBINATION_OF_REDUCTION = {
    "sum": "add",
    "prod": "mul",
    "max": "max",
    "min": "min",
    "any": "or",
    "all": "and",
}
COMBINATION_OF_CUMULATIVE = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


def write_compare(w: MlirWriter, direction: str, a: TypedName, b: TypedName) -> TypedName:
    attrs = {"comparison_direction": f"#stablehlo<comparison_direction {direction}>"}
    return w.write_step("stablehlo.compare", [a, b], a[1].with_dtype("bool"), attrs)


def identity_literal(op: str, dtype: str) -> object:
    """Return the identity element of a combination."""
    if op in ("add", "mul"):
        return int(op == "mul")
    if dtype == "bool":
        return op in ("and", "min")
    return least_number(dtype) if op == "max" else greatest_number(dtype)


def combination_region(w: MlirWriter, op: str, dtype: str) -> WrittenRegion:
    """Return the region that combines two scalars."""
    scalar = TensorType((), dtype)
    return w.small_region(
        [scalar, scalar],
        lambda a, b: [w.write_step(f"stablehlo.{STABLEHLO_COMBINATIONS[op]}", [a, b], scalar)],
    )


def reduce_over(w: MlirWriter, x: TypedName, dims: Sequence[int], op: str) -> TypedName:
    """Write the reduction of an intermediate value."""
    _, type = x
    initial = w.constant(identity_literal(op, type.dtype), type.with_shape(()))
    result_type = type.with_shape([n for d, n in enumerate(type.shape) if d not in dims])
    attrs = {"dimensions": format_array(dims)}
    return w.write_step(
        "stablehlo.reduce",
        [x, initial],
        result_type,
        attrs,
        [combination_region(w, op, type.dtype)],
    )


def _register_reduction(name: str, combine: str) -> None:
    @WRITERS.rule(OPS[name])
    def _(w: MlirWriter, op: Op) -> None:
        (x,) = op.operands
        initial = w.constant(identity_literal(combine, x.type.dtype), x.type.with_shape(()))
        w.write_op(
            op,
            "stablehlo.reduce",
            {"dimensions": format_array(op.attrs["dims"])},
            operands=[(w.name(x), x.type), initial],
            regions=[combination_region(w, combine, x.type.dtype)],
        )


for _name, _combine in COMBINATION_OF_REDUCTION.items():
    _register_reduction(_name, _combine)


def _window_attrs(**attrs: Attr) -> dict[str, str]:
    return {
        "window_dimensions": format_array(attrs["window"]),
        "window_strides": format_array(attrs["strides"]),
        "padding": format_matrix(attrs["padding"]),
        "base_dilations": format_array(attrs["base_dilation"]),
        "window_dilations": format_array(attrs["window_dilation"]),
    }


@WRITERS.rule(OPS["reduce_window"])
def _reduce_window(w: MlirWriter, op: Op) -> None:
    (x,) = op.operands
    combine = str(op.attrs["op"])
    initial = w.constant(identity_literal(combine, x.type.dtype), x.type.with_shape(()))
    w.write_op(
        op,
        "stablehlo.reduce_window",
        _window_attrs(**op.attrs),
        operands=[(w.name(x), x.type), initial],
        regions=[combination_region(w, combine, x.type.dtype)],
    )


def _cumulative_window_attrs(x: TensorType, dim: int, reverse: bool) -> dict[str, str]:
    """Return attributes of windows from the start of a dimension (to its end if `reverse`)."""
    rest = x.shape[dim] - 1
    pair = [0, rest] if reverse else [rest, 0]
    ones = (1,) * x.rank
    return _window_attrs(
        window=[x.shape[dim] if d == dim else 1 for d in range(x.rank)],
        strides=ones,
        padding=[pair if d == dim else [0, 0] for d in range(x.rank)],
        base_dilation=ones,
        window_dilation=ones,
    )


def _register_cumulative(name: str, combine: str) -> None:
    @WRITERS.rule(OPS[name])
    def _(w: MlirWriter, op: Op) -> None:
        (x,) = op.operands
        if not x.type.size:
            w.alias(op.result, w.name(x))
            return
        initial = w.constant(identity_literal(combine, x.type.dtype), x.type.with_shape(()))
        w.write_op(
            op,
            "stablehlo.reduce_window",
            _cumulative_window_attrs(x.type, op.attrs["dim"], op.attrs["reverse"]),
            operands=[(w.name(x), x.type), initial],
            regions=[combination_region(w, combine, x.type.dtype)],
        )


for _name, _combine in COMBINATION_OF_CUMULATIVE.items():
    _register_cumulative(_name, _combine)


@WRITERS.rule(OPS["cumlogsumexp"])
def _cumlogsumexp(w: MlirWriter, op: Op) -> None:
    (x,) = op.operands
    if not x.type.size:
        w.alias(op.result, w.name(x))
        return
    scalar = x.type.with_shape(())

    def add_exponentials(a: TypedName, b: TypedName) -> list[TypedName]:
        high = w.write_step("stablehlo.maximum", [a, b], scalar)
        low = w.write_step("stablehlo.minimum", [a, b], scalar)
        same = write_compare(w, "EQ", high, low)
        gap = w.write_step("stablehlo.subtract", [low, high], scalar)
        gap = w.write_step("stablehlo.select", [same, w.constant(0, scalar), gap], scalar)
        grown = w.write_step(
            "stablehlo.log_plus_one", [w.write_step("stablehlo.exponential", [gap], scalar)], scalar
        )
        return [w.write_step("stablehlo.add", [high, grown], scalar)]

    w.write_op(
        op,
        "stablehlo.reduce_window",
        _cumulative_window_attrs(x.type, op.attrs["dim"], op.attrs["reverse"]),
        operands=[(w.name(x), x.type), w.constant(float("-inf"), scalar)],
        regions=[w.small_region([scalar, scalar], add_exponentials)],
    )


@WRITERS.rule(OPS["select_and_scatter"])
def _select_and_scatter(w: MlirWriter, op: Op) -> None:
    x, source = op.operands
    if any(step != 1 for name in ("base_dilation", "window_dilation") for step in op.attrs[name]):
        raise ExportError("select_and_scatter has no dilation in StableHLO")
    scalar = x.type.with_shape(())
    better = "GE" if op.attrs["op"] == "max" else "LE"
    attrs = {
        "window_dimensions": format_array(op.attrs["window"]),
        "window_strides": format_array(op.attrs["strides"]),
        "padding": format_matrix(op.attrs["padding"]),
    }
    w.write_op(
        op,
        "stablehlo.select_and_scatter",
        attrs,
        operands=[(w.name(v), v.type) for v in (x, source)] + [w.constant(0, scalar)],
        regions=[
            w.small_region([scalar, scalar], lambda a, b: [write_compare(w, better, a, b)]),
            combination_region(w, "add", scalar.dtype),
        ],
    )


@WRITERS.rule(OPS["convolution"])
def _convolution(w: MlirWriter, op: Op) -> None:
    attrs = op.attrs
    count = len(attrs["strides"])
    operands, output = attrs["dims"].split("->")
    lhs, rhs = operands.split(",")
    named = "x".join(f"[{', '.join(term)}]" for term in (lhs, rhs))
    w.write_op(
        op,
        "stablehlo.convolution",
        {
            "dimension_numbers": f"#stablehlo.conv<{named}->[{', '.join(output)}]>",
            "window_strides": format_array(attrs["strides"]),
            "padding": format_matrix(attrs["padding"]),
            "lhs_dilation": format_array(attrs["lhs_dilation"]),
            "rhs_dilation": format_array(attrs["rhs_dilation"]),
            "window_reversal": f"array<i1: {', '.join(['false'] * count)}>" if count else
            "array<i1>",
            "feature_group_count": format_integer(attrs.get("groups", 1)),
            "batch_group_count": format_integer(attrs.get("batch_groups", 1)),
            **w.full_precision(),
        },
    )  # fmt: skip
