"""Arrays of a shape that are filled with one value: `zeros`, `ones`, `empty`, `full`.

An array that is made like another one (`zeros_like`, `full_like`) gets the sharding of that one.
"""

from math import prod
from typing import TypeGuard

from shardir.frontend.argument_checks import canonicalize_shape
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike, DTypeLike, ShapeLike
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.arrays.zero_pages import MIN_ZERO_PAGE_ELEMENTS, allocate_zeros
from shardir.frontend.dispatch.composed import composed_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.numpy.creation.array_conversion import asarray
from shardir.frontend.numpy.creation.placement import choose_placement, put_on_device
from shardir.frontend.shardings.devices import is_abstract_assignment
from shardir.frontend.shardings.explicit_specs import complete_spec
from shardir.frontend.shardings.mesh import current_mesh
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.shardings.sharding import NamedSharding, Sharding
from shardir.frontend.tracing.operands import (
    as_tracer,
    broadcast,
    check_not_complex,
    convert,
    operand_dtype,
    splat,
)
from shardir.frontend.tracing.promotion import dtype_of, user_dtype
from shardir.frontend.tracing.trace import current_trace, emit
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.varying_axes import vary_like
from shardir.frontend.tracing.weak_types import strip_weak_type
from shardir.ir.dtypes import KEY_WORDS, KEYS
from shardir.ir.types import INTEGERS, NUMPY_DTYPES, TensorType


@composed_function()
def zeros(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingRequest = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with zeros, of the default floating type unless `dtype` is
    given.
    """
    return put_on_device(choose_placement(device, out_sharding), _zeros(shape, dtype))


@composed_function()
def ones(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingRequest = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with ones, of the default floating type unless `dtype` is
    given.
    """
    return put_on_device(choose_placement(device, out_sharding), _splat(shape, 1, dtype))


@composed_function()
def empty(
    shape: ShapeLike,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingRequest = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with zeros; uninitialized arrays do not exist.

    The element type is the default floating type unless `dtype` is given.
    """
    return put_on_device(choose_placement(device, out_sharding), _zeros(shape, dtype))


def _zeros(shape: ShapeLike, dtype: DTypeLike | None) -> Tracer | Array:
    """Return zeros; large arrays use zero-initialized memory pages of the system, if available."""
    size = shape if type(shape) is int else prod(shape) if _is_concrete_shape(shape) else 0
    if size >= MIN_ZERO_PAGE_ELEMENTS and current_trace() is None:
        zeros = allocate_zeros(
            canonicalize_shape(shape), dtype_of(float if dtype is None else dtype)
        )
        if zeros is not None:
            return zeros
    return _splat(shape, 0, dtype)


def _is_concrete_shape(shape: ShapeLike) -> TypeGuard[tuple[int, ...]]:
    return type(shape) is tuple and all(type(extent) is int for extent in shape)


@public(static=("shape", "number", "dtype"))
def _splat(shape: ShapeLike, number: int, dtype: DTypeLike | None) -> Tracer:
    return splat(
        number, TensorType(canonicalize_shape(shape), dtype_of(float if dtype is None else dtype))
    )


@composed_function()
def full(
    shape: ShapeLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    device: ShardingRequest = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return an array of `shape` filled with `fill_value`, which is broadcast to `shape`.

    The element type is that of `fill_value` unless `dtype` is given.
    """
    device = choose_placement(device, out_sharding)
    integer = _as_small_integer(fill_value)
    if dtype is not None and integer is not None:
        return put_on_device(device, _splat(shape, integer, dtype))
    if dtype is not None:
        check_not_complex(fill_value, dtype_of(dtype))
    return put_on_device(device, _full(shape, fill_value, dtype))


def _as_small_integer(number: ArrayLike) -> int | None:
    """Return a small Python scalar as an integer if it is one, except a floating zero, which has a
    sign.

    A cache lookup by integers takes half the time of a call.
    """
    if type(number) is float and number and abs(number) < 1 << 24 and number.is_integer():
        return int(number)
    return number if type(number) is int else None


@public(static=("shape", "dtype"))
def _full(shape: ShapeLike, fill_value: ArrayLike, dtype: DTypeLike | None) -> Tracer:
    sizes = canonicalize_shape(shape)
    value = fill_value if is_number(fill_value) else as_tracer(fill_value)
    name, weak = operand_dtype(value) if dtype is None else (dtype_of(dtype), False)
    return _fill(value, AbstractValue(TensorType(sizes, name), weak))


def _fill(value: ArrayLike, abstract: AbstractValue) -> Tracer:
    if is_number(value):
        return splat(value, abstract.type, abstract.weak)
    tracer, kind = as_tracer(value), abstract.type
    if kind.dtype in KEYS and tracer.value.type.dtype in INTEGERS:
        words = broadcast(convert(tracer, "u32")[..., None], (*kind.shape, KEY_WORDS[kind.dtype]))
        keys: Tracer = emit("bitcast", words, result=kind)
        return keys
    return broadcast(convert(tracer, kind.dtype, abstract.weak), kind.shape)


@composed_function(unused=True)
def zeros_like(
    a: ArrayLike | ShapeDtypeStruct,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: ShardingRequest = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return zeros with the shape and element type of `a`, unless `shape` or `dtype` is given."""
    return full_like(a, 0, dtype, shape, device=choose_placement(device, out_sharding))


@composed_function(unused=True)
def ones_like(
    a: ArrayLike | ShapeDtypeStruct,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: ShardingRequest = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return ones with the shape and element type of `a`, unless `shape` or `dtype` is given."""
    return full_like(a, 1, dtype, shape, device=choose_placement(device, out_sharding))


@composed_function(unused=True)
def empty_like(
    prototype: ArrayLike | ShapeDtypeStruct,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: ShardingRequest = None,
) -> Tracer:
    """Return zeros with the shape and element type of `prototype`, unless others are given."""
    return full_like(prototype, 0, dtype, shape, device=device)


@composed_function(unused=True)
def full_like(
    a: ArrayLike | ShapeDtypeStruct,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: ShapeLike | None = None,
    *,
    device: ShardingRequest = None,
    out_sharding: ShardingRequest = None,
) -> Tracer:
    """Return `fill_value`, broadcast, with the shape and element type of `a`, unless others are
    given.
    """
    device = choose_placement(device, out_sharding)
    abstract = abstract_of(asarray(a) if isinstance(a, (list, tuple)) else a)
    sizes = abstract.type.shape if shape is None else canonicalize_shape(shape)
    name, weak = (abstract.type.dtype, abstract.weak) if dtype is None else (dtype_of(dtype), False)
    integer = None if weak else _as_small_integer(fill_value)
    if integer is not None and name in KEYS:
        result: Tracer | Array = _splat(sizes, integer, user_dtype(name))
    elif integer is not None:
        kind = NUMPY_DTYPES[name].type
        result = _splat(sizes, integer, kind) if integer else _zeros(sizes, kind)
    else:
        check_not_complex(fill_value, name)
        result = _full_like(fill_value, TensorType(sizes, name), weak)
    if isinstance(result, Tracer):
        result = vary_like(result, a)
    if device is None and sizes == abstract.type.shape:
        # The operand already has this sharding, or will get it, so that its dimensions need not be
        # divisible.
        return put_on_device(_committed_sharding(a), result, "pad")
    return put_on_device(device, result)


def _committed_sharding(a: object) -> Sharding | None:
    """Return the sharding of a committed array or of an abstract one with a sharding, else
    `None`.

    A sharding on an `AbstractMesh` has the devices of the entered mesh with the same axes.
    """
    if isinstance(a, Array):
        return complete_spec(a.sharding, a.ndim) if a.committed else None
    if isinstance(a, Tracer):
        return a.abstract.sharding if isinstance(a.abstract.sharding, Sharding) else None
    sharding = a.sharding if isinstance(a, ShapeDtypeStruct) else None
    mesh = current_mesh()
    if isinstance(sharding, NamedSharding) and mesh and mesh.abstract_mesh == sharding.mesh:
        return NamedSharding(mesh, sharding.spec)
    if isinstance(sharding, Sharding) and not is_abstract_assignment(sharding.device_assignment):
        return sharding
    return None


@public(static=("type", "weak"))
def _full_like(fill_value: ArrayLike, type: TensorType, weak: bool) -> Tracer:
    result = _fill(fill_value, AbstractValue(type, weak))
    # JAX broadcasts fill values that are not scalars to an array that is not weakly typed.
    return (
        result
        if is_number(fill_value) or not as_tracer(fill_value).ndim
        else strip_weak_type(result)
    )
