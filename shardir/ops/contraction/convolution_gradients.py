"""Cotangents of convolution: two convolutions with exchanged roles of the factors.

With a reversed filter, strides and operand dilation exchange roles; summing over the batch instead
of the features turns the operand into a filter and the cotangent into an operand. Only the groups
of the filter are copied, since `dims` can assign any role to a dimension.
"""

from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.ir.operation import Attr, Cotangents
from shardir.ir.types import TensorType
from shardir.ops.reductions.window_geometry import Padding, dilated_size
from shardir.ops.type_checks import Ints


def convolution_vjp(
    b: Builder, g: Value, x: Value, w: Value, y: Value, **attrs: Attr
) -> Cotangents:
    """Return the cotangents of operand and filter, accumulated in the result's element type."""
    if 0 in (x.type.size, w.type.size, y.type.size):
        return b.full(0, x.type), b.full(0, w.type)
    left, right = _convert_to(b, x, g.type.dtype), _convert_to(b, w, g.type.dtype)
    return (
        _convert_to(b, _operand_cotangent(b, g, left.type, right, **attrs), x.type.dtype),
        _convert_to(b, _filter_cotangent(b, g, left, right.type, **attrs), w.type.dtype),
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
    *,
    strides: Ints,
    padding: Padding,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    dims: str,
    groups: int = 1,
    batch_groups: int = 1,
) -> Value:
    """Return the operand's cotangent: the transposed convolution of `g` with the filter."""
    of, by, to = _split_dims(dims)
    parts = groups * batch_groups
    spatial = _spatial_positions(by)
    low, high = [], []
    for i, k in enumerate(spatial):
        window = dilated_size(w.type.shape[k], rhs_dilation[i])
        reach = dilated_size(g.type.shape[to.index(str(i))], strides[i])
        low.append(window - 1 - padding[i][0])
        size = dilated_size(x.shape[of.index(str(i))], lhs_dilation[i])
        high.append(size + window - 1 - reach - low[-1])
    turned = b.reverse(w, dims=tuple(sorted(spatial)))
    if parts > 1:
        turned = _regroup(b, turned, by.index("i"), by.index("o"), parts)
    swapped = by.translate(str.maketrans("io", "oi"))
    back: Value = b.convolution(
        g,
        turned,
        strides=lhs_dilation,
        padding=tuple(zip(low, high, strict=True)),
        lhs_dilation=strides,
        rhs_dilation=rhs_dilation,
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
    *,
    strides: Ints,
    padding: Padding,
    lhs_dilation: Ints,
    rhs_dilation: Ints,
    dims: str,
    groups: int = 1,
    batch_groups: int = 1,
) -> Value:
    """Return the filter's cotangent: a convolution of the operand with `g`."""
    of, by, to = _split_dims(dims)
    pads = []
    for i, (lo, _) in enumerate(padding):
        size = dilated_size(x.type.shape[of.index(str(i))], lhs_dilation[i])
        window = dilated_size(g.type.shape[to.index(str(i))], strides[i])
        reach = dilated_size(w.shape[by.index(str(i))], rhs_dilation[i])
        pads.append((lo, reach + window - 1 - size - lo))
    operand = of.translate(str.maketrans("bf", "fb"))
    kernel = to.translate(str.maketrans("bf", "io"))
    result = by.translate(str.maketrans("io", "bf"))
    cotangent: Value = b.convolution(
        x,
        g,
        strides=rhs_dilation,
        padding=tuple(pads),
        lhs_dilation=lhs_dilation,
        rhs_dilation=strides,
        dims=f"{operand},{kernel}->{result}",
        groups=batch_groups,
        batch_groups=groups,
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
