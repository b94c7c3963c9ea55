"""Sharding constraints and composite functions."""

from functools import partial, wraps
from typing import Any

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShardingError, ShardingMismatchError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.axis_type import AxisType
from shardir.frontend.shardings.common_mesh import check_same_devices, resolve_abstract_meshes
from shardir.frontend.shardings.mesh import AbstractMesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec, SpecEntry
from shardir.frontend.shardings.requested_sharding import (
    broadcast_sharding_requests,
    check_axes_have_type,
    resolve_sharding,
)
from shardir.frontend.shardings.sharding import NamedSharding, Sharding
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.trace import current_trace, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import typeof


@traceback_boundary
def with_sharding_constraint(x: PyTree, shardings: object) -> PyTree:
    """Return the same values with the sharding that `shardings` states.

    `x` may be a container; `shardings` is one sharding for all leaves, or a prefix of the
    container: an entry applies to all leaves below it. `PartitionSpec.UNCONSTRAINED` lets the
    compiler choose the sharding of a dimension. A
    `PartitionSpec` refers to the mesh of the surrounding `with mesh:`. Inside of `jit`, dimensions
    need not be divisible; outside of `jit` this is `device_put` of arrays that are uncommitted or
    on the same devices. A sharding on an `AbstractMesh` is then resolved to the mesh of the arrays,
    which has the same axes. Raise `ArgumentError` for an object that is not a sharding, or
    containers that do not match, and `IncompatibleDevicesError` for arrays on other devices.
    """
    label = "with_sharding_constraint"
    leaves, structure = tree.flatten(x)
    try:
        requested = broadcast_sharding_requests(shardings, x, label)
    except ArgumentError as error:
        raise ArgumentError(with_location(str(error))) from None
    pairs = [
        (leaf, _resolve_stated(request, label))
        for leaf, request in zip(leaves, requested, strict=True)
    ]
    for _, to in pairs:
        # On a mesh of Explicit axes, the constraint is an assertion.
        if isinstance(to, NamedSharding) and not to.mesh.are_all_axes_explicit:
            check_axes_have_type(to, AxisType.Auto, label)
    is_traced = current_trace() is not None
    placed = [
        leaf
        if to is None
        else _constrain_tracer(as_tracer(leaf), to)
        if is_traced
        else _constrain_array(leaf, to)
        for leaf, to in pairs
    ]
    return tree.unflatten(structure, placed)


def _resolve_stated(request: object, label: str) -> Sharding | None:
    """Return the requested sharding, which must be stated: `None` for a mesh without axes."""
    sharding = resolve_sharding(request, label)
    if request is None:
        raise ArgumentError(
            with_location(
                f"{label} has the sharding None for an array; state a sharding, or "
                "PartitionSpec(PartitionSpec.UNCONSTRAINED) to let the compiler choose one"
            )
        )
    return sharding


def _constrain_array(leaf: Any, to: Sharding) -> Any:
    current_sharding = leaf.sharding if isinstance(leaf, Array) and leaf.committed else None
    if isinstance(to, NamedSharding) and isinstance(to.mesh, AbstractMesh):
        if not isinstance(current_sharding, NamedSharding):
            raise ArgumentError(
                with_location(
                    f"with_sharding_constraint has {to}, which has no devices; the array must "
                    "be on a mesh, by a NamedSharding, or the constraint inside of jit"
                )
            )
        ((to, _),) = resolve_abstract_meshes([(to, len(leaf.shape))], [current_sharding])
    if current_sharding is not None:
        check_same_devices([("the array", current_sharding), ("its sharding constraint", to)])
        if current_sharding.has_explicit_axes and to.has_explicit_axes:
            return _assert_array_sharding(leaf, to)
    return device_put(leaf, to)


def _constrain_tracer(value: Tracer, to: Sharding) -> Tracer:
    if to.has_explicit_axes and isinstance(to, NamedSharding):
        _assert_sharding(value, to)
        to = _add_explicit_axes(value, to)
    try:
        return constrain(value, to)
    except ShardingError as error:
        raise type(error)(with_location(str(error))) from None


def _assert_sharding(value: Tracer, to: NamedSharding) -> None:
    """Raise `ShardingMismatchError` unless `value` has the sharding `to`; the axes of its mesh are
    Explicit.
    """
    types = require_trace("with_sharding_constraint").program.sharding_types
    has = None if types is None else types.sharding_of(value.value)
    if types is None or has is None or to.mesh.auto_axes or len(to.spec) > value.ndim:
        return
    axes = [(has.spec.axes(i), to.spec.axes(i)) for i in range(value.ndim)]
    if any(mine != requested and requested is not UNCONSTRAINED for mine, requested in axes):
        types.refuse(
            f"with_sharding_constraint states {to.spec} for an array that is {typeof(value)}; on "
            "a mesh of Explicit axes it asserts the sharding; change it with sharding.reshard",
            ShardingMismatchError,
        )


def _add_explicit_axes(value: Tracer, to: NamedSharding) -> NamedSharding:
    """Return a constraint along Auto axes of a mesh with the Explicit axes in the type of
    `value`."""
    types = require_trace("with_sharding_constraint").program.sharding_types
    has = None if types is None else types.sharding_of(value.value)
    if has is None or not to.mesh.auto_axes or len(to.spec) > value.ndim:
        return to
    entries: list[SpecEntry] = []
    for dim in range(value.ndim):
        typed, requested = has.spec.axes(dim), to.spec.axes(dim)
        if typed is UNCONSTRAINED or requested is UNCONSTRAINED:
            entries.append(UNCONSTRAINED)
        else:
            entries.append((*typed, *(axis for axis in requested if axis not in typed)))
    while entries and not entries[-1]:
        entries.pop()
    return NamedSharding(to.mesh, PartitionSpec(*entries))


@public(static=("to",), name="with_sharding_constraint")
def _assert_array_sharding(x: Tracer, to: Sharding) -> Tracer:
    return _constrain_tracer(as_tracer(x), to)


@with_argument_errors
def composite(decomposition: UserFunction, name: str, version: int = 0) -> UserFunction:
    """Return `decomposition` as a function that JAX shows to compilers as a named composite.

    In shardir it is traced like every other function; attributes are passed by keyword.
    """
    if not callable(decomposition):
        raise ArgumentError(
            with_location(f"composite takes a function, got {brief(decomposition)}")
        )
    return wraps(decomposition)(partial(decomposition))
