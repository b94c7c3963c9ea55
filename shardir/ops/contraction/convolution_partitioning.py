"""Partitioning of convolutions.

Along a spatial dimension, a device holds some of the window positions, or a part of the inside of
all windows, or one position and a part of its inside. In each case its windows cover one contiguous
range of the operand, which is fetched. If a device holds a part of the inside, its results are
partial sums.
"""

from collections.abc import Iterator

from shardir.ir.builder import Builder
from shardir.ir.operation import Value
from shardir.op_rules.partitioning import LocalOp
from shardir.ops.contraction.convolution_factors import ConvolutionAttributes, parse_dims
from shardir.ops.reductions.window_geometry import dilated_size
from shardir.ops.reductions.window_partitioning import WindowCoverage, fetch_coverage


def partition_convolution(
    b: Builder,
    local: LocalOp,
    x: Value,
    w: Value,
    *,
    attributes: ConvolutionAttributes,
) -> Value:
    """Run the local convolution; a device that holds some of the groups counts only those."""
    of, by, to = parse_dims(attributes.dims)
    groups, batch_groups = attributes.groups, attributes.batch_groups
    strides, rhs_dilation = attributes.strides, attributes.rhs_dilation
    if groups > 1:
        groups = x.type.shape[of.features_or_outputs] // w.type.shape[by.batch_or_inputs]
    if batch_groups > 1:
        batch_groups = x.type.shape[of.batch_or_inputs] // local.result.shape[to.batch_or_inputs]
    padded, lhs_dilation = list(attributes.padding), list(attributes.lhs_dilation)
    value, filters = local.op.operands
    for i, (d, k, p) in enumerate(zip(of.spatial, by.spatial, to.spatial, strict=True)):
        if not local.sharding_axes(value, d):
            continue
        places, window = local.op.result.type.shape[p], filters.type.shape[k]
        # A single window position or a window of size one has no factor in the operand.
        ways = (
            local.num_shards(local.op.result, p) if places > 1 else 1,
            local.num_shards(filters, k) if window > 1 else 1,
        )
        if ways == (1, 1):
            continue
        block, inner = local.result.shape[p], w.type.shape[k]
        extent = dilated_size(inner, rhs_dilation[i])
        begins, needed = [], []
        for at, within in _shard_indices(*ways, places_first=places >= window):
            start = at * block
            begins.append(start * strides[i] + within * inner * rhs_dilation[i] - padded[i][0])
            count = min(max(places - start, 0), block)
            needed.append((count - 1) * strides[i] + extent if count else 0)
        size = (block - 1) * strides[i] + extent
        reach = WindowCoverage(tuple(begins), tuple(needed), size, lhs_dilation[i])
        x, padded[i], lhs_dilation[i] = fetch_coverage(b, local, x, value, d, reach, 0)
    return b.convolution(
        x,
        w,
        result=local.result,
        strides=strides,
        padding=tuple(padded),
        lhs_dilation=tuple(lhs_dilation),
        rhs_dilation=rhs_dilation,
        dims=attributes.dims,
        groups=groups,
        batch_groups=batch_groups,
    )


def _shard_indices(places: int, parts: int, *, places_first: bool) -> Iterator[tuple[int, int]]:
    """Yield the indices of each device's window positions and inside positions."""
    for position in range(places * parts):
        if places_first:
            yield divmod(position, parts)
        else:
            part, index = divmod(position, places)
            yield index, part
