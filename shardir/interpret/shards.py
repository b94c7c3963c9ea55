"""Conversion between global arrays and the shards of devices."""

from collections.abc import Sequence

import numpy as np

from shardir.errors import InterpretError
from shardir.interpret.widened_arrays import widen_array
from shardir.ir.device_groups import device_positions
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.mesh import Mesh
from shardir.ir.operation import OPS
from shardir.ir.sharding import Sharding
from shardir.ir.types import INEXACT, NumpyArray, NumpyDType, TensorType, dtype_name
from shardir.op_rules.partitioning import identity_element
from shardir.op_rules.widening import widened_type
from shardir.ops.elementwise.numerics import convert

Array = NumpyArray


def shard_slices(
    sharding: Sharding, shape: tuple[int, ...], mesh: Mesh, device: int
) -> tuple[slice, ...]:
    """Return the slices of a global tensor of `shape` that a device holds.

    If a dimension is not divisible, the last shards are shorter or empty.
    """
    slices = []
    for dim, size in zip(sharding.dims, shape, strict=True):
        index = 0
        for axis in dim.axes:
            index = index * axis.size + device // axis.stride(mesh) % axis.size
        step = -(-size // dim.num_shards)
        slices.append(slice(min(index * step, size), min((index + 1) * step, size)))
    return tuple(slices)


def slice_shard(array: Array, sharding: Sharding, mesh: Mesh, device: int) -> Array:
    """Return a device's shard of a global array.

    All shards have the same shape: a shorter shard is padded at its end with values that make any
    accidental use visible (NaN, the largest integer, true). For an unreduced sharding, the first
    device along the unreduced axes holds the value and the others the identity of the reduction.
    """
    part = array[shard_slices(sharding, array.shape, mesh, device)]
    shape = sharding.local_shape(array.shape)
    if part.shape != shape:
        longer = np.full(shape, _padding_value(array.dtype), array.dtype)
        longer[tuple(map(slice, part.shape))] = part
        part = longer
    if sharding.unreduced and device_positions(mesh, sharding.unreduced)[device]:
        nothing = identity_element(sharding.reduction, dtype_name(array.dtype))
        return np.full(part.shape, nothing, part.dtype)
    return part


def _padding_value(dtype: NumpyDType) -> object:
    """Return a padding value that is visible in results: NaN, the largest integer, true, or a
    key whose bits are all set."""
    if dtype.kind == "b":
        return True
    if dtype.type is np.void:  # keys of four words
        return b"\xff" * dtype.itemsize
    name = dtype_name(dtype)
    return np.nan if name in INEXACT else DTYPE_INFO[name].max_integer


def assemble_shards(
    shards: Sequence[Array], type: TensorType, sharding: Sharding, mesh: Mesh
) -> Array:
    """Return the global array that consists of the devices' shards, without padding.

    Partial results along unreduced axes are combined. Raises `InterpretError` if two devices hold
    different values for the same shard.
    """
    if sharding.unreduced:
        spec = OPS["all-reduce"]
        assert spec.exchange is not None
        attrs = {"axes": sharding.unreduced, "op": sharding.reduction}
        arguments = spec.rule_arguments(attrs)
        wide, parts = widened_type(type), [(widen_array(shard),) for shard in shards]
        sums = spec.exchange(mesh, parts, result=wide, **arguments)
        shards = [convert(each, type) if wide != type else each for each in sums]
    result = np.empty(type.shape, type.numpy)
    written: dict[tuple[tuple[int, int], ...], int] = {}
    for device, shard in enumerate(shards):
        shard_index = shard_slices(sharding, type.shape, mesh, device)
        own = shard[tuple(slice(s.stop - s.start) for s in shard_index)]
        earlier = written.setdefault(tuple((s.start, s.stop) for s in shard_index), device)
        if earlier == device:
            result[shard_index] = own
        elif result[shard_index].tobytes() != np.ascontiguousarray(own).tobytes():
            raise InterpretError(
                f"devices {earlier} and {device} hold different values for the same shard of "
                f"a tensor {type}"
            )
    return result
