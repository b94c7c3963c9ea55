"""Convolution over any number of spatial dimensions.

`dims` names the dimensions of both operands and of the result: `b01f,01io->b01f` convolves a batch
of images with features last and filters from `i` input to `o` output features. Digits are spatial
dimensions. The filter is not reversed (cross-correlation).
"""

from math import prod

import numpy as np

from shardir.ir.arithmetic import Arithmetic
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.operation import Partitioning, define_op
from shardir.ir.types import TensorType
from shardir.op_rules.tangents import multilinear_tangent
from shardir.ops.contraction.convolution_batching import convolution_batch
from shardir.ops.contraction.convolution_factors import (
    ConvolutionAttributes,
    ConvolutionDims,
    convolution_factors,
    convolution_shardable,
    convolution_uneven,
    parse_dims,
)
from shardir.ops.contraction.convolution_gradients import convolution_vjp
from shardir.ops.contraction.convolution_partitioning import partition_convolution
from shardir.ops.reductions.window_geometry import (
    Array,
    check_padding,
    check_positive,
    count_windows,
    dilate_and_pad,
    dilated_size,
    window_views,
)
from shardir.ops.type_checks import NUMERIC, check_accumulator, common_dtype

_MAX_WINDOW_BYTES = 1 << 25
"""The maximum size in bytes of the windows that one matrix product uses."""


def _type(
    x: TensorType,
    w: TensorType,
    *,
    result: TensorType | None,
    attributes: ConvolutionAttributes,
) -> TensorType:
    NUMERIC.check(x, w)
    dtype = common_dtype(x, w)
    dims, strides, padding = attributes.dims, attributes.strides, attributes.padding
    of, by, to = parse_dims(dims)
    rank = len(of.spatial)
    for type in (x, w):
        if type.rank != rank + 2:
            raise TypeError(f"dims={dims!r} gives {rank + 2} dimensions to {type}")
    check_positive(
        rank,
        "spatial dimension",
        strides=strides,
        lhs_dilation=attributes.lhs_dilation,
        rhs_dilation=attributes.rhs_dilation,
    )
    check_padding(rank, "spatial dimension", padding)
    _check_groups(x, w, of, by, attributes)
    shape = [0] * (rank + 2)
    shape[to.batch_or_inputs] = x.shape[of.batch_or_inputs] // attributes.batch_groups
    shape[to.features_or_outputs] = w.shape[by.features_or_outputs]
    for i in range(rank):
        lo, hi = padding[i]
        reach = dilated_size(x.shape[of.spatial[i]], attributes.lhs_dilation[i]) + lo + hi
        window = dilated_size(w.shape[by.spatial[i]], attributes.rhs_dilation[i])
        shape[to.spatial[i]] = count_windows(reach, window, strides[i])
    result_type = TensorType(tuple(shape), dtype)
    if result is None or result.dtype == dtype:
        return result_type
    wide = result_type.with_dtype(result.dtype)
    check_accumulator(dtype, result.dtype)
    return wide


def _check_groups(
    x: TensorType,
    w: TensorType,
    of: ConvolutionDims,
    by: ConvolutionDims,
    attributes: ConvolutionAttributes,
) -> None:
    groups, batch_groups = attributes.groups, attributes.batch_groups
    if groups < 1 or batch_groups < 1 or (groups > 1 and batch_groups > 1):
        raise TypeError(
            f"groups={groups} and batch_groups={batch_groups} must be at least 1, and one of them 1"
        )
    features, batch = x.shape[of.features_or_outputs], x.shape[of.batch_or_inputs]
    inputs, outputs = w.shape[by.batch_or_inputs], w.shape[by.features_or_outputs]
    if inputs * groups != features:
        raise TypeError(
            f"a filter for {inputs} input features in groups={groups} needs {inputs * groups} "
            f"features, got {features} in {x}"
        )
    if outputs % (groups * batch_groups):
        parts = f"groups={groups}" if groups > 1 else f"batch_groups={batch_groups}"
        raise TypeError(f"{outputs} output features do not divide into {parts} of {w}")
    if batch % batch_groups:
        raise TypeError(f"a batch of {batch} does not divide into batch_groups={batch_groups}")


def _reference(
    x: Array,
    w: Array,
    *,
    result: TensorType,
    attributes: ConvolutionAttributes,
) -> Array:
    """Compute im2col windows times the filter matrix, group by group."""
    of, by, to = parse_dims(attributes.dims)
    groups, batch_groups = attributes.groups, attributes.batch_groups
    rank = len(of.spatial)
    wide = np.dtype(np.float32) if result.dtype in NARROW_FLOATS else result.numpy
    x = x.transpose(of.batch_or_inputs, *of.spatial, of.features_or_outputs).astype(
        wide, copy=False
    )
    w = w.transpose(*by.spatial, by.batch_or_inputs, by.features_or_outputs).astype(
        wide, copy=False
    )
    x = dilate_and_pad(
        x, 0, ((0, 0), *attributes.padding, (0, 0)), (1, *attributes.lhs_dilation, 1)
    )
    kernel, inputs, outputs = w.shape[:-2], w.shape[-2], w.shape[-1]
    parts = groups * batch_groups

    strides, dilation = (1, *attributes.strides, 1), (1, *attributes.rhs_dilation, 1)
    views = window_views(x, (1, *kernel, 1), strides, dilation)
    batch, places = views.shape[0] // batch_groups, views.shape[1 : rank + 1]
    if not (views.size and w.size):
        return np.zeros(result.shape, result.numpy)
    # The dimensions change from (batch, places, features, 1, kernel, 1) to (group, batch, places,
    # kernel, inputs of the group).
    views = views.reshape(batch_groups, batch, *places, groups, inputs, *kernel)
    views = np.moveaxis(views, (0, rank + 2), (0, 1))
    views = np.moveaxis(views, rank + 3, -1).reshape(parts, batch, *places, *kernel, inputs)
    filters = w.reshape(-1, parts, outputs // parts).transpose(1, 0, 2)

    out = np.empty((batch, prod(places), parts, outputs // parts), wide)
    row = prod((parts, *places, *kernel, inputs)) * wide.itemsize
    step = max(1, _MAX_WINDOW_BYTES // row)
    for start in range(0, batch, step):
        rows = views[:, start : start + step]
        product = rows.reshape(parts, -1, prod(kernel) * inputs) @ filters
        out[start : start + step] = np.moveaxis(
            product.reshape(parts, -1, prod(places), outputs // parts), 0, 2
        )
    output = out.reshape(batch, *places, outputs).astype(result.numpy, copy=False)
    return output.transpose(np.argsort((to.batch_or_inputs, *to.spatial, to.features_or_outputs)))


convolution = define_op(
    "convolution",
    attributes=ConvolutionAttributes,
    type=_type,
    factors=convolution_factors,
    reference=_reference,
    batch=convolution_batch,
    vjp=convolution_vjp,
    jvp=multilinear_tangent,
    partition=Partitioning(
        partition_convolution, convolution_shardable, lambda **_: "add", convolution_uneven
    ),
    arithmetic=Arithmetic(sums_products=True),
)
"""Sums of products of filter and window; see `parse_dims` for `dims`.

`groups` splits the features of `x` and the output features of the filter into independent groups;
`batch_groups` splits the batch and the output features. The stated result type may have a wider
element type than the operands; sums are accumulated in it.
"""
