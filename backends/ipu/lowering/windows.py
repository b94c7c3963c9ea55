"""Lowering rules of windows: convolutions as one matrix product, window reductions and scatters.

All windows of a tensor are a view of it, with the elements of each window along additional last
dimensions.
"""

from collections.abc import Sequence
from math import prod

from shardir.backends.ipu.codegen.device_types import NARROW_INTEGERS, element_of, initializer_text
from shardir.backends.ipu.codegen.emitter import ProgramEmitter, reshape_view, shuffle_view
from shardir.backends.ipu.lowering.lowering_table import lowers
from shardir.backends.ipu.lowering.reductions import reduce_text
from shardir.ir.dtypes import DTYPE_INFO, UNSIGNED
from shardir.ir.module import Op
from shardir.ir.types import FLOATS, TensorType
from shardir.ops.contraction.convolution_factors import parse_dims
from shardir.ops.reductions.window_geometry import count_windows, dilated_size

Pairs = Sequence[tuple[int, int]]
OPERATIONS = {"add": "ADD", "mul": "MUL", "max": "MAX", "min": "MIN"}


def dilate_and_pad(
    e: ProgramEmitter,
    text: str,
    shape: Sequence[int],
    padding: Pairs,
    dilation: Sequence[int],
    fill: str,
) -> tuple[str, list[int]]:
    """Return a tensor dilated and padded, and its shape."""
    sizes = []
    for dim, (n, (low, high), step) in enumerate(zip(shape, padding, dilation, strict=True)):
        if (low, high) != (0, 0) or (step > 1 and n > 1):
            text = f"{e.use_helper('padded')}({text}, {fill}, {dim}, {low}, {high}, {step - 1})"
        sizes.append(dilated_size(n, step) + low + high)
    return text, sizes


def window_view(
    e: ProgramEmitter,
    text: str,
    shape: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
) -> tuple[str, list[int], list[int]]:
    """Return a view of all windows, their number along each dimension, and the windowed dimensions.

    Each dimension with windows of more than one element or a stride gets one additional last
    dimension, in order.
    """
    places, walked = [], []
    for dim, (n, size, stride, step) in enumerate(
        zip(shape, window, strides, dilation, strict=True)
    ):
        found = count_windows(n, dilated_size(size, step), stride)
        places.append(found)
        if size > 1 or stride > 1:
            walked.append(dim)
            arguments = f"{text}, {dim}, {found}, {size}, {stride}, {step}"
            text = f"{e.use_helper('windows')}({arguments})"
    return text, places, walked


@lowers("convolution")
def _convolution(e: ProgramEmitter, op: Op) -> None:
    """Lower `convolution`: windows as rows of a matrix, times the filter as a matrix, for each
    group.
    """
    e.comment(op)
    x, w = op.operands
    y, attrs, label = op.result, op.attrs, e.label(op.result)
    of, by, to = parse_dims(attrs["dims"])
    rank = len(of.spatial)
    groups, batch_groups = attrs.get("groups", 1), attrs.get("batch_groups", 1)
    parts = groups * batch_groups
    order = (of.batch_or_inputs, *of.spatial, of.features_or_outputs)
    shape = [x.type.shape[d] for d in order]
    none, one = ((0, 0),), (1,)
    fill = e.constant(0, x.type.dtype)
    text, sizes = dilate_and_pad(
        e, shuffle_view(e.text(x), order), shape,
        (*none, *attrs["padding"], *none), (*one, *attrs["lhs_dilation"], *one), fill,
    )  # fmt: skip
    text = e.temporary(f"{y.name}_padded", text)
    kernel = [w.type.shape[d] for d in by.spatial]
    text, places, walked = window_view(
        e, text, sizes, (1, *kernel, 1), (1, *attrs["strides"], 1), (1, *attrs["rhs_dilation"], 1)
    )
    text = e.temporary(f"{y.name}_windows", text)
    inputs, outputs = w.type.shape[by.batch_or_inputs], w.type.shape[by.features_or_outputs]
    batch = places[0] // batch_groups
    # batch groups, batch, places..., groups, inputs, kernel... -> parts, rows, kernel and inputs
    split = [batch_groups, batch, *places[1:-1], groups, inputs]
    split += [kernel[d - 1] for d in walked]
    within = len(split) - len(walked)
    shuffle = [0, rank + 2, 1, *range(2, rank + 2), *range(within, len(split)), rank + 3]
    rows, columns = batch * prod(places[1:-1]), prod(kernel) * inputs
    view = shuffle_view(f"{text}.reshape({initializer_text(split)})", shuffle)
    filters = shuffle_view(e.text(w), (*by.spatial, by.batch_or_inputs, by.features_or_outputs))
    each = outputs // parts
    made = _filter_product(e, op, view, filters, (parts, rows, columns, each), label)
    back = [parts, batch, *places[1:-1], each]
    natural = [1, *range(2, rank + 2), 0, rank + 2]
    image = shuffle_view(reshape_view(made, (), back), natural)
    image = f"{image}.reshape({initializer_text([batch, *places[1:-1], outputs])})"
    final = (to.batch_or_inputs, *to.spatial, to.features_or_outputs)
    e.define(y, shuffle_view(image, [final.index(d) for d in range(rank + 2)]))


def _filter_product(
    e: ProgramEmitter, op: Op, rows: str, filters: str, sizes: tuple[int, int, int, int], label: str
) -> str:
    """Return the product of rows and filters, group by group."""
    parts, height, depth, width = sizes
    dtype, to = op.operands[0].type.dtype, op.result.type
    if dtype not in FLOATS:
        raise e.refusal_error(
            op, f"convolves {dtype}, which IPUs multiply element by element only",
            "convert both operands to f32 or f16",
        )  # fmt: skip
    out = f", {element_of(to).poplar}"
    if parts == 1:
        left, right = (
            f"{rows}.reshape({{{height}, {depth}}})",
            f"{filters}.reshape({{{depth}, {width}}})",
        )
        return f"poplin::matMul(graph, {left}, {right}, {e.sequence}{out}, {label})"
    left = f"{rows}.reshape({{{parts}, {height}, {depth}}})"
    right = f"{filters}.reshape({{{depth}, {parts}, {width}}}).dimShuffle({{1, 0, 2}})"
    return f"poplin::matMulGrouped(graph, {left}, {right}, {e.sequence}{out}, {label})"


def identity_element(op: str, type: TensorType) -> object:
    """Return the identity element of a reduction."""
    if op in ("add", "mul"):
        return int(op == "mul")
    if type.dtype == "bool":
        return op == "min"
    if type.dtype in FLOATS:
        return float("-inf" if op == "max" else "inf")
    bits = DTYPE_INFO[type.dtype].bits
    if type.dtype in UNSIGNED:
        return 0 if op == "max" else 2**bits - 1
    return -(2 ** (bits - 1)) if op == "max" else 2 ** (bits - 1) - 1


@lowers("reduce_window")
def _reduce_window(e: ProgramEmitter, op: Op) -> None:
    e.comment(op)
    x, y, attrs = op.operands[0], op.result, op.attrs
    how = attrs["op"]
    fill = e.constant(identity_element(how, x.type), x.type.dtype)
    text, sizes = dilate_and_pad(
        e, e.text(x), x.type.shape, attrs["padding"], attrs["base_dilation"], fill
    )
    text, _, walked = window_view(
        e, text, sizes, attrs["window"], attrs["strides"], attrs["window_dilation"]
    )
    text = e.temporary(f"{y.name}_windows", text)
    rank = x.type.rank
    shape = TensorType((*y.type.shape, *(attrs["window"][d] for d in walked)), x.type.dtype)
    dims = tuple(range(rank, rank + len(walked)))
    e.define(
        y, reduce_text(e, text, shape, dims, OPERATIONS[how], e.label(y)), None if walked else x
    )


@lowers("select_and_scatter")
def _select_and_scatter(e: ProgramEmitter, op: Op) -> None:
    """Add for each offset in a window the elements of `source` that the windows select there."""
    x, source = op.operands
    y, attrs, label = op.result, op.attrs, e.label(op.result)
    if x.type.dtype in NARROW_INTEGERS:
        raise e.refusal_error(op, f"compares {x.type.dtype} in windows", "convert to i32 first")
    e.comment(op)
    how, dtype = attrs["op"], x.type.dtype
    fill = e.constant(identity_element(how, x.type), dtype)
    zero = e.constant(0, dtype)
    text, _ = dilate_and_pad(
        e, e.text(x), x.type.shape, attrs["padding"], attrs["base_dilation"], fill
    )
    better = "pe::_1 > pe::_2" if how == "max" else "pe::_1 < pe::_2"
    if e.keeps_nan and dtype in FLOATS:
        better += " || (pe::IsNaN(pe::_1) && !pe::IsNaN(pe::_2))"
    arguments = ", ".join(
        [
            f"graph, {text}, {e.text(source)}, {zero}",
            *(initializer_text(attrs[name]) for name in ("window", "strides", "window_dilation")),
            better,
            e.sequence,
            label,
        ]
    )
    made = f"{e.use_helper('selected')}({arguments})"
    walked = zip(attrs["padding"], attrs["base_dilation"], x.type.shape, strict=True)
    for dim, ((low, high), step, n) in enumerate(walked):
        if (low, high) != (0, 0):
            made = f"{e.use_helper('padded')}({made}, {zero}, {dim}, {-low}, {-high}, 0)"
        if step > 1 and n > 1:
            made += f".subSample({step}, {dim})"
    e.define(y, made)
