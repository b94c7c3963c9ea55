"""Requested shardings of results: `reshard`, and `out_sharding=` of public functions.

They name mesh axes of type `AxisType.Explicit`, and determine the shardings in the types of the
results. The values do not change, and the compiler decides on the communication. If the setting
`explicit_sharding` is "lenient", they may name axes of type `AxisType.Auto` too, and constrain the
results along these.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import numpy as np

from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.config import config
from shardir.frontend.errors import ShardingError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.explicit_specs import complete_spec, open_auto_axes
from shardir.frontend.shardings.positional_sharding import PositionalSharding
from shardir.frontend.shardings.requested_sharding import (
    broadcast_sharding_requests,
    resolve_out_sharding,
)
from shardir.frontend.shardings.sharding import NamedSharding, Sharding
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_program
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.tracing.tracer import Tracer

Result = TypeVar("Result")


@traceback_boundary
def reshard(xs: PyTree, out_shardings: object) -> PyTree:
    """Return `xs`, a pytree of arrays, with the shardings `out_shardings`.

    `out_shardings` is a `NamedSharding`, a `PartitionSpec` on the entered mesh, or a pytree prefix
    of these: an entry applies to the whole subtree below it. Inside of a trace dimensions need not
    divide; outside `reshard` is `device_put`. Raises `ArgumentError` for an object that is not a
    sharding, `ShardingError` for a sharding that names axes which are not Explicit, and
    `NoMeshError` for a `PartitionSpec` where no mesh is entered.
    """
    return apply_shardings(xs, out_shardings, "out_shardings of reshard")


def apply_out_sharding(made: Result, out_sharding: object) -> Result:
    """Return the result of a function with the sharding `out_sharding`, if that is not `None`."""
    if out_sharding is None:
        return made
    resharded: Result = apply_shardings(made, out_sharding, "out_sharding")
    return resharded


def call_with_out_sharding(
    out_sharding: object, fun: Callable[..., Result], *args: object, **options: object
) -> Result:
    """Return the result of a call of `fun` with the sharding `out_sharding`, if that is not `None`.

    On a mesh with Explicit axes, the operations of `fun` may be ambiguous, because `out_sharding`
    states the sharding of the result.
    """
    if out_sharding is None:
        return fun(*args, **options)
    if current_trace() is None:
        _check_summed_axes(out_sharding, fun, args, options)
    with _permit_conflicts(out_sharding):
        made = fun(*args, **options)
    trace = current_trace()
    types = None if trace is None else trace.program.sharding_types
    if types is not None:
        requests = broadcast_sharding_requests(out_sharding, made, "out_sharding")
        for x, request in zip(tree.leaves(made), requests, strict=True):
            requested = resolve_out_sharding(request, "out_sharding")
            types.check_out_sharding(as_tracer(x).value, requested)
    return apply_out_sharding(made, out_sharding)


def _check_summed_axes(
    out_sharding: object,
    fun: Callable[..., object],
    args: tuple[object, ...],
    options: dict[str, object],
) -> None:
    """Refuse outside of a trace what `check_out_sharding` refuses inside: trace the call."""
    requests = broadcast_sharding_requests(out_sharding, 0, "out_sharding")
    requested = resolve_out_sharding(requests[0], "out_sharding")
    if not isinstance(requested, NamedSharding) or not requested.has_explicit_axes:
        return
    leaves = tree.leaves((args, options))
    given = [requested, *(x.sharding for x in leaves if isinstance(x, Array))]
    if any(_has_summed_axes(sharding) for sharding in given):

        def call(_: list[Tracer]) -> list[Tracer]:
            made = call_with_out_sharding(out_sharding, fun, *args, **options)
            return [as_tracer(leaf) for leaf in tree.leaves(made)]

        trace_program(call, (), "out_sharding", is_temporary=True, mesh=requested.mesh)


def _has_summed_axes(sharding: object) -> bool:
    """Return whether a sharding has unreduced or reduced axes."""
    spec = sharding.spec if isinstance(sharding, NamedSharding) else None
    return spec is not None and bool(spec.unreduced or spec.reduced)


def _permit_conflicts(out_sharding: object) -> AbstractContextManager[object]:
    trace = current_trace()
    if trace is not None:
        types = trace.program.sharding_types
        return nullcontext() if types is None else types.permit_conflicts()
    requested = broadcast_sharding_requests(out_sharding, 0, "out_sharding")
    sharding = resolve_out_sharding(requested[0], "out_sharding")
    if sharding is None or not sharding.has_explicit_axes:
        return nullcontext()
    return config(explicit_sharding="lenient")


def _check_has_names(requested: Sharding | None, word: str) -> None:
    """Refuse shardings over several devices without axis names, which no type can state."""
    if isinstance(requested, PositionalSharding):
        raise ShardingError(
            with_location(
                f"{word} has {brief(requested)}, which names no axis of the mesh; write "
                "NamedSharding(mesh, PartitionSpec(...))"
            )
        )


def apply_shardings(xs: object, shardings: object, word: str) -> PyTree:
    """Return the arrays `xs` with `shardings`, a pytree prefix; errors begin with `word`."""
    leaves, structure = tree.flatten(xs)
    requests = broadcast_sharding_requests(shardings, xs, word)
    requested = [
        complete_spec(resolve_out_sharding(request, word), np.ndim(x))
        for x, request in zip(leaves, requests, strict=True)
    ]
    trace = current_trace()
    if trace is None:
        return tree.unflatten(
            structure,
            [
                x if to is None else device_put(x, to)
                for x, to in zip(leaves, requested, strict=True)
            ],
        )
    types = trace.program.sharding_types
    if types is not None:
        for to in requested:
            _check_has_names(to, word)
            types.check_mesh(to)
    held = [
        as_tracer(x) if to is None else constrain(as_tracer(x), open_auto_axes(to))
        for x, to in zip(leaves, requested, strict=True)
    ]
    return tree.unflatten(structure, held)
