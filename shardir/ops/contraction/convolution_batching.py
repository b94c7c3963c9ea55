"""Batching of convolutions.

A convolution has no free dimension, so the batch dimension is merged into an existing one: into the
batch if only the operand is batched, into the output features if only the filter is, and into the
groups if both are.
"""

from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.op_rules.batching import BatchedOp
from shardir.ops.contraction.convolution_factors import ConvolutionAttributes, parse_dims


def convolution_batch(
    b: Builder,
    many: BatchedOp,
    x: Value,
    w: Value,
    *,
    attributes: ConvolutionAttributes,
) -> Value:
    if many.size == 0:
        (type,) = many.results
        return b.full(0, type)
    of, by, to = parse_dims(attributes.dims)
    groups, batch_groups = attributes.groups, attributes.batch_groups
    parts = groups * batch_groups
    dim, outer = to.features_or_outputs, 1
    if many.batched == (True, False):
        x = _merge_dim(b, x, of.batch_or_inputs, batch_groups)
        dim = to.batch_or_inputs
    elif many.batched == (False, True):
        w = _merge_dim(b, w, by.features_or_outputs, parts)
        outer = parts
    else:
        w = _merge_dim(b, w, by.features_or_outputs)
        if batch_groups == 1:
            x, groups = _merge_dim(b, x, of.features_or_outputs), groups * many.size
        else:
            x, batch_groups = _merge_dim(b, x, of.batch_or_inputs), batch_groups * many.size
    attrs = {"dims": attributes.dims, "groups": groups, "batch_groups": batch_groups}
    attrs |= {key: attr for key, attr in many.op.attrs.items() if key not in attrs}
    result: Value = b.convolution(x, w, result=many.emit_result, **attrs)
    return _unmerge_dim(b, result, dim, many.size, outer)


def _merge_dim(b: Builder, x: Value, dim: int, outer: int = 1) -> Value:
    """Return `x` with its first dimension merged into `dim`, within each of `outer` groups."""
    size, *shape = x.type.shape
    inner = shape[dim] // outer
    split_shape = (size, *shape[:dim], outer, inner, *shape[dim + 1 :])
    perm = (*range(1, dim + 2), 0, *range(dim + 2, len(split_shape)))
    moved = b.transpose(b.reshape(x, result=x.type.with_shape(split_shape)), perm=perm)
    merged_shape = (*shape[:dim], outer * size * inner, *shape[dim + 1 :])
    merged: Value = b.reshape(moved, result=x.type.with_shape(merged_shape))
    return merged


def _unmerge_dim(b: Builder, y: Value, dim: int, size: int, outer: int) -> Value:
    """Undo `_merge_dim`."""
    shape = y.type.shape
    inner = shape[dim] // (outer * size)
    split_shape = (*shape[:dim], outer, size, inner, *shape[dim + 1 :])
    perm = (dim + 1, *(d for d in range(len(split_shape)) if d != dim + 1))
    moved = b.transpose(b.reshape(y, result=y.type.with_shape(split_shape)), perm=perm)
    unmerged_shape = (size, *shape[:dim], outer * inner, *shape[dim + 1 :])
    taken: Value = b.reshape(moved, result=y.type.with_shape(unmerged_shape))
    return taken
