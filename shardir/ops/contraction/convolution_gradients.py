"""Cotangents of convolution: two convolutions with exchanged roles of the factors.

With a reversed filter, strides and operand dilation exchange roles; summing over the batch instead
of the features turns the operand into a filter and the cotangent into an operand. Only the groups
of the filter are copied, since `dims` can assign any role to a dimension.
"""

from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.ir.operation import Cotangents
from shardir.ir.types import TensorType
from shardir.ops.contraction.convolution_factors import ConvolutionAttributes
from shardir.ops.reductions.window_geometry import dilated_size
from shardir.ops.type_checks import Ints


def convolution_vjp(
    b: Builder, g: Value, x: Value, w: Value, y: Value, *, attributes: ConvolutionAttributes
) -> Cotangents:
    """Return the cotangents of operand and filter, accumulated in the result's element type."""
    if 0 in (x.type.size, w.type.size, y.type.size):
        return b.full(0, x.type), b.full(0, w.type)
    left, right = _convert_to(b, x, g.type.dtype), _convert_to(b, w, g.type.dtype)
    return (
        _convert_to(b, _operand_cotangent(b, g, left.type, right, attributes), x.type.dtype),
        _convert_to(b, _filter_cotangent(b, g, left, right.type, attributes), w.type.dtype),
    )


def _convert_to(b: Builder, x: Value, dtype: str) -> Value:
    if x.type.dtype == dtype:
        return x
    converted: Value = b.convert(x, result=x.type.with_dtype(dtype))
    return converted


def _operand_cotangent(
    b: Builder,
    g: Value,
    x: TensorType,
    w: Value,
    attributes: ConvolutionAttributes,
) -> Value:
    """Return the operand's cotangent: the transposed convolution of `g` with the filter."""
    of, by, to = _split_dims(attributes.dims)
    groups, batch_groups = attributes.groups, attributes.batch_groups
    parts = groups * batch_groups
    spatial = _spatial_positions(by)
    low, high = [], []
    for i, k in enumerate(spatial):
        window = dilated_size(w.type.shape[k], attributes.rhs_dilation[i])
        reach = dilated_size(g.type.shape[to.index(str(i))], attributes.strides[i])
        low.append(window - 1 - attributes.padding[i][0])
        size = dilated_size(x.shape[of.index(str(i))], attributes.lhs_dilation[i])
        high.append(size + window - 1 - reach - low[-1])
    turned = b.reverse(w, dims=tuple(sorted(spatial)))
    if parts > 1:
        turned = _regroup(b, turned, by.index("i"), by.index("o"), parts)
    swapped = by.translate(str.maketrans("io", "oi"))
    back: Value = b.convolution(
        g,
        turned,
        strides=attributes.lhs_dilation,
        padding=tuple(zip(low, high, strict=True)),
        lhs_dilation=attributes.strides,
        rhs_dilation=attributes.rhs_dilation,
        dims=f"{to},{swapped}->{of}",
        groups=parts,
    )
    if batch_groups > 1:
        back = _regroup(b, back, of.index("b"), of.index("f"), batch_groups)
    return back


def _filter_cotangent(
    b: Builder,
    g: Value,
    x: Value,
    w: TensorType,
    attributes: ConvolutionAttributes,
) -> Value:
    """Return the filter's cotangent: a convolution of the operand with `g`."""
    of, by, to = _split_dims(attributes.dims)
    pads = []
    for i, (lo, _) in enumerate(attributes.padding):
        size = dilated_size(x.type.shape[of.index(str(i))], attributes.lhs_dilation[i])
        window = dilated_size(g.type.shape[to.index(str(i))], attributes.strides[i])
        reach = dilated_size(w.shape[by.index(str(i))], attributes.rhs_dilation[i])
        pads.append((lo, reach + window - 1 - size - lo))
    operand = of.translate(str.maketrans("bf", "fb"))
    kernel = to.translate(str.maketrans("bf", "io"))
    result = by.translate(str.maketrans("io", "bf"))
    cotangent: Value = b.convolution(
        x,
        g,
        strides=attributes.rhs_dilation,
        padding=tuple(pads),
        lhs_dilation=attributes.lhs_dilation,
        rhs_dilation=attributes.strides,
        dims=f"{operand},{kernel}->{result}",
        groups=attributes.batch_groups,
        batch_groups=attributes.groups,
    )
    return cotangent


def _split_dims(dims: str) -> tuple[str, str, str]:
    operands, _, output = dims.partition("->")
    first, second = operands.split(",")
    return first, second, output


def _spatial_positions(term: str) -> Ints:
    """Return the positions of the spatial dimensions in a term, in their order."""
    return tuple(term.index(str(i)) for i in range(len(term) - 2))


def _regroup(b: Builder, x: Value, to: int, of: int, parts: int) -> Value:
    """Move groups between dimensions: from t, (group, f) to (group, t), f.

    `to` and `of` are the two dimensions.
    """
    shape = x.type.shape
    split = (*shape[:of], parts, shape[of] // parts, *shape[of + 1 :])
    order = [d for d in range(len(split)) if d != of]
    order.insert(order.index(to + (to > of)), of)
    x = b.transpose(b.reshape(x, result=x.type.with_shape(split)), perm=tuple(order))
    merged = list(shape)
    merged[of] //= parts
    merged[to] *= parts
    joined: Value = b.reshape(x, result=x.type.with_shape(merged))
    return joined
