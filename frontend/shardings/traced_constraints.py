"""Sharding constraints on traced values, and manual regions, inside of which the manual axes may
not be used in a constraint.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from shardir import ops as ops_
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.errors import ShardingError
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.frontend.shardings.sharding_tokens import sharding_token
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.trace import emit, require_sharding_types, require_trace
from shardir.frontend.tracing.tracer import Tracer


def constrain(tracer: Tracer, sharding: UserSharding) -> Tracer:
    """Return the traced value with the constraint that it has `sharding`.

    Raises `ShardingError` when a value of this rank cannot have it. Dimensions need not divide.
    """
    program = require_trace("with_sharding_constraint").program
    _check_no_manual_axes(sharding, tracer.ndim)
    if sharding.has_explicit_axes:
        require_sharding_types(program, sharding).is_stated = True
    constrained: Tracer = emit(
        ops_.sharding_constraint,
        tracer,
        sharding=sharding_token(program, sharding, tracer.ndim),
        weak=tracer.weak_type,
    )
    return constrained


def match_sharding_types(values: Sequence[Tracer], models: Sequence[Tracer]) -> list[Tracer]:
    """Return `values`, cotangents or the results of a body, with the sharding types of `models`.

    Nothing changes without a mesh with Explicit axes.
    """
    types = require_trace("types are matched").program.sharding_types
    if types is None:
        return list(values)
    matched = []
    for value, model in zip(values, models, strict=True):
        wanted, has = types.sharding_of(model.value), types.sharding_of(value.value)
        differs = wanted != has or types.is_free(value.value)
        if wanted is not None and differs and value.shape == model.shape:
            value = constrain(value, wanted)
        matched.append(value)
    return matched


def slice_abstract(x: Tracer) -> AbstractValue:
    """Return the abstract value of a slice of `x` along its first dimension."""
    type = x.value.type.with_shape(x.shape[1:])
    types = require_trace("a slice is described").program.sharding_types
    sharding = None if types is None else types.sharding_of(x.value)
    if sharding is None:
        return AbstractValue(type, x.weak_type)
    spec = PartitionSpec(*sharding.spec[1:], unreduced=sharding.spec.unreduced)
    is_replicated = not any(spec) and not spec.unreduced
    return AbstractValue(
        type, x.weak_type, None if is_replicated else NamedSharding(sharding.mesh, spec)
    )


_manual_axes: ContextVar[tuple[tuple[Mesh, str], ...]] = ContextVar("shardir_manual", default=())


@contextmanager
def manual_axes(mesh: Mesh, names: Sequence[str]) -> Iterator[None]:
    """Mark axes of a mesh as manual inside the block: each device runs its own code along them."""
    token = _manual_axes.set((*_manual_axes.get(), *((mesh, name) for name in names)))
    try:
        yield
    finally:
        _manual_axes.reset(token)


def manual_axis_names(mesh: Mesh) -> tuple[str, ...]:
    """Return the axes of a mesh that are manual at the current line."""
    return tuple(
        name
        for other, name in _manual_axes.get()
        if name in mesh.axis_names and other.device_assignment == mesh.device_assignment
    )


def is_in_manual_region() -> bool:
    """Return whether the current line is inside a manual region."""
    return bool(_manual_axes.get())


def _check_no_manual_axes(sharding: UserSharding, rank: int) -> None:
    """Raise `ShardingError` if a sharding uses an axis that is manual at the current line."""
    for mesh, name in _manual_axes.get():
        if mesh.device_assignment != sharding.device_assignment:
            continue
        stride, size = mesh.strides[name], mesh.shape[name]
        for cut in sharding.sub_axes(rank):
            for digit in () if cut is UNCONSTRAINED else cut:
                if digit.stride < stride * size and stride < digit.span:
                    raise ShardingError(
                        with_location(
                            f"{sharding} is requested for a value that varies along {name!r}, "
                            f"which is a manual axis at this line; omit {name!r} from the sharding"
                        )
                    )
