"""Sharding constraints on traced values, and the sharding types of traced values."""

from collections.abc import Callable, Sequence

from shardir import ops as ops_
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.shardings.explicit_specs import open_auto_axes
from shardir.frontend.shardings.manual_axes import check_no_manual_axes
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.frontend.shardings.sharding_tokens import sharding_token
from shardir.frontend.tracing.trace import emit, require_sharding_types, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import abstract_text
from shardir.ops.type_checks import join_with_and


def constrain(tracer: Tracer, sharding: UserSharding) -> Tracer:
    """Return the traced value with the constraint that it has `sharding`.

    Raises `ShardingError` when a value of this rank cannot have it. Dimensions need not divide.
    """
    program = require_trace("with_sharding_constraint").program
    check_no_manual_axes(sharding, tracer.ndim)
    if sharding.has_explicit_axes:
        require_sharding_types(program, sharding).is_stated = True
    constrained: Tracer = emit(
        ops_.sharding_constraint,
        tracer,
        sharding=sharding_token(program, sharding, tracer.ndim),
        weak=tracer.weak_type,
    )
    return constrained


def match_cotangent_types(cotangents: Sequence[Tracer], primals: Sequence[Tracer]) -> list[Tracer]:
    """Return cotangents with the sharding types of their primal values.

    A cotangent is unreduced along the reduced axes of its primal value, and reduced along the
    unreduced ones.
    """
    return match_sharding_types(cotangents, primals, cotangent_sharding)


def cotangent_sharding(sharding: NamedSharding) -> NamedSharding:
    """Return the sharding of the cotangent of a value with a sharding."""
    given = sharding.spec
    if not given.reduced and not given.unreduced:
        return sharding
    spec = PartitionSpec(*given, unreduced=given.reduced, reduced=given.unreduced)
    return NamedSharding(sharding.mesh, spec)


def match_sharding_types(
    values: Sequence[Tracer],
    models: Sequence[Tracer],
    request: Callable[[NamedSharding], NamedSharding] = lambda sharding: sharding,
) -> list[Tracer]:
    """Return `values` with the sharding types that `request` derives from those of `models`.

    Nothing changes without a mesh with Explicit axes.
    """
    types = require_trace("types are matched").program.sharding_types
    if types is None:
        return list(values)
    matched = []
    for value, model in zip(values, models, strict=True):
        requested, has = types.sharding_of(model.value), types.sharding_of(value.value)
        requested = None if requested is None else request(requested)
        differs = requested != has or types.is_free(value.value)
        if requested is not None and differs and value.shape == model.shape:
            value = constrain(value, requested)
        matched.append(value)
    return matched


def check_cases(condition: Tracer, *cases: Tracer) -> None:
    """Raise `ShardingTypeError` if a condition and cases have different shardings in their types.

    A scalar condition has none.
    """
    types = require_trace("select").program.sharding_types
    if types is not None:
        types.check_cases([condition.value, *(case.value for case in cases)])


def match_broadcast_types(arrays: Sequence[Tracer], results: Sequence[Tracer]) -> list[Tracer]:
    """Return `results`, which are `arrays` broadcast to one shape, with one sharding in their
    types.

    Raises `ShardingTypeError` if arrays have different axes along a dimension, or one axis along
    two. Nothing changes without a mesh with Explicit axes.
    """
    types = require_trace("arrays are broadcast").program.sharding_types
    shardings = [types.sharding_of(x.value) if types else None for x in results]
    if types is None or None in shardings:
        return list(results)
    specs = [sharding.spec for sharding in shardings if sharding is not None]
    dims: list[tuple[str, ...]] = []
    for dim in range(results[0].ndim):
        found = {axes: i for i, spec in enumerate(specs) if (axes := _axes_of(spec, dim))}
        repeated = [axis for axes in found for other in dims for axis in axes if axis in other]
        if len(found) > 1 or repeated:
            listed = join_with_and([abstract_text(x.abstract) for x in arrays])
            problem = (
                f"are sharded over {repeated[0]!r} along two dimensions of their common shape"
                if repeated
                else f"have different shardings along dimension {dim} of their common shape"
            )
            types.refuse(
                f"the arrays of broadcast_arrays, {listed}, {problem}; reshard one of them "
                "(sharding.reshard)"
            )
            return list(results)
        dims.append(next(iter(found), ()))
    if not any(dims):
        return list(results)
    matched = []
    for x, sharding in zip(results, shardings, strict=True):
        assert sharding is not None
        spec = sharding.spec.with_entries(*dims)
        same = spec == sharding.spec and not types.is_untyped(x.value)
        requested = open_auto_axes(NamedSharding(sharding.mesh, spec))
        matched.append(x if same else constrain(x, requested))
    return matched


def _axes_of(spec: PartitionSpec, dim: int) -> tuple[str, ...]:
    axes = spec.axes(dim)
    return () if axes is UNCONSTRAINED else tuple(axes)


def slice_abstract(x: Tracer) -> AbstractValue:
    """Return the abstract value of a slice of `x` along its first dimension."""
    type = x.value.type.with_shape(x.shape[1:])
    types = require_trace("a slice is described").program.sharding_types
    sharding = None if types is None else types.sharding_of(x.value)
    if types is None or sharding is None:
        return AbstractValue(type, x.weak_type)
    spec = sharding.spec.with_entries(*sharding.spec[1:])
    is_replicated = not any(spec) and not spec.unreduced and not spec.reduced
    # The mesh of a value is a part of its type where it is not that of the line.
    is_replicated = is_replicated and sharding.mesh.shape_tuple == types.mesh.shape_tuple
    return AbstractValue(
        type, x.weak_type, None if is_replicated else NamedSharding(sharding.mesh, spec)
    )
