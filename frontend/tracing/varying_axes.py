"""Inference of varying manual axes for the values of the traces under construction.

Derivatives inside of a manual computation and the checks of `shard_map` results depend on it. See
`shardir.op_rules.vma`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType

from shardir.frontend.errors import ShardingError
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.named_axes import bound_axes, bound_manual_axes, checked_axes
from shardir.frontend.tracing.trace import Origin, Trace, current_trace, emit, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.operation import NOT_VARYING, Varying
from shardir.ir.sharding import Axes, Axis
from shardir.passes.autodiff.make_varying import make_varying_explicit as made_explicit
from shardir.passes.autodiff.varying import extend_varying_axes, infer_varying_axes

_sharded_parameters: ContextVar[Mapping[Value, Varying]] = ContextVar(
    "shardir_sharded", default=MappingProxyType({})
)
"""The axes along which the parameters of the enclosing manual computations are sharded."""


@contextmanager
def declare_sharded(values: Mapping[Value, Varying]) -> Iterator[None]:
    """Declare inside the block that parameters of a manual computation vary along these axes
    too."""
    token = _sharded_parameters.set({**_sharded_parameters.get(), **values})
    try:
        yield
    finally:
        _sharded_parameters.reset(token)


class QueryRecord:
    """A record of whether varying axes were queried."""

    was_queried = False


_query_records: ContextVar[tuple[QueryRecord, ...]] = ContextVar("shardir_watches", default=())


@contextmanager
def record_queries() -> Iterator[QueryRecord]:
    """Record whether varying axes are queried inside the block."""
    watch = QueryRecord()
    token = _query_records.set((*_query_records.get(), watch))
    try:
        yield watch
    finally:
        _query_records.reset(token)


def _infer_traces() -> Varying:
    """Infer the varying axes of all values traced so far; return those that the predicates vary
    along.

    A parameter without information counts as varying along all checked axes. Each device then has a
    separate derivative, which is correct for any value.
    """
    for watch in _query_records.get():
        watch.was_queried = True
    axes, shards = bound_manual_axes(), _sharded_parameters.get()
    chain: list[Trace] = []
    trace = current_trace()
    while trace is not None:
        chain.append(trace)
        trace = trace.parent
    program = require_trace("what varies").program
    found, within = program.varying_axes, NOT_VARYING
    for each in reversed(chain):
        if each.predicate is not None:
            within |= _origin_axes(each.predicate, each)
        for param in each.params:
            if param not in found:
                known = _origin_axes(each.origins.get(param, each.checked_axes), each)
                found[param] = known | shards.get(param, NOT_VARYING) | within
        # A value may have two identities until its name is final.
        new = Block((), tuple(each.ops[each.num_inferred :]), ())
        extend_varying_axes(substitute(new, program.unnamed_values).ops, found, axes, within)
        each.num_inferred = len(each.ops)
    return within


def _origin_axes(origin: Origin, trace: Trace) -> Varying:
    if not isinstance(origin, Value):
        return origin
    program = trace.program
    return program.varying_axes.get(program.unnamed_values.get(origin, origin), trace.checked_axes)


def _inferred_axes(value: Value) -> Varying:
    """Return the varying axes of a value, after `_infer_traces`."""
    program = require_trace("what varies").program
    return program.varying_axes.get(program.unnamed_values.get(value, value), NOT_VARYING)


def varying_axes_of(tracers: Sequence[Tracer | Varying]) -> list[Varying]:
    """Return the axes along which tracers of the traces under construction may vary.

    Sets of axes among `tracers` are returned unchanged.
    """
    if not checked_axes():
        return [NOT_VARYING] * len(tracers)
    _infer_traces()
    return [_inferred_axes(x.value) if isinstance(x, Tracer) else x for x in tracers]


def vary_like(x: Tracer, like: object) -> Tracer:
    """Return `x` as a value that also varies along the axes along which `like` does."""
    if not checked_axes() or not isinstance(like, Tracer):
        return x
    (wanted,) = varying_axes_of([like])
    return vary_along(x, wanted)


def vary_along(x: Tracer, wanted: Varying) -> Tracer:
    """Return `x` as a value that also varies along those of the axes that enclosing regions
    check."""
    (own,) = varying_axes_of([x])
    missing = tuple(axis for axis in checked_axes() if axis in wanted - own)
    if not missing:
        return x
    varying: Tracer = emit("vary", x, axes=missing, weak=x.weak_type)
    return varying


def varying_axis_names(x: Tracer) -> frozenset[str]:
    """Return the names of the manual axes along which a tracer may vary."""
    (varies,) = varying_axes_of([x])
    return frozenset(
        named.name for named in bound_axes().values() if not varies.isdisjoint(named.axes)
    )


def varying_axes_of_returns(block: Block, params: Sequence[Varying]) -> list[Varying]:
    """Return the axes along which the results of a block of the current trace may vary."""
    if not checked_axes():
        return [NOT_VARYING] * len(block.returns)
    within = _infer_traces()
    program = require_trace("what varies").program
    renamed = substitute(block, program.unnamed_values)
    known = {**program.varying_axes, **dict(zip(renamed.params, params, strict=True))}
    found = infer_varying_axes(renamed, known, bound_manual_axes(), within)
    return [found.get(value, NOT_VARYING) for value in renamed.returns]


@dataclass(frozen=True)
class ExplicitVarying:
    """A function with explicit `vary` operations, and the varying axes of its results."""

    function: Function
    results: tuple[Varying, ...]


def make_varying_explicit(
    function: Function, origins: Sequence[Tracer | Varying], own: Varying = NOT_VARYING
) -> ExplicitVarying:
    """Return a function, about to be differentiated, with explicit operations that make values
    vary.

    `origins` are the arguments that its parameters represent, or the axes along which these vary.
    Along `own` each device counts as having a separate argument. The function is unchanged if no
    enclosing axis has `check_vma`.
    """
    body, axes = function.body, checked_axes()
    if not axes:
        return ExplicitVarying(function, (NOT_VARYING,) * len(body.returns))
    within = _infer_traces()
    known = {value: _inferred_axes(value) for value in body.captures()}
    starts = varying_axes_of(origins)
    for param, start in zip(body.params, starts, strict=True):
        known[param] = within | start | own
    program = require_trace("a function is made explicit").program
    new_body = made_explicit(
        body, known, axes, program.names, within=within, outside=_captured_axes
    )
    found = infer_varying_axes(new_body, known, axes, within)
    function = Function(function.name, new_body, function.result_shardings, function.spmd)
    return ExplicitVarying(
        function, tuple(found.get(value, NOT_VARYING) for value in new_body.returns)
    )


def check_cotangents(
    name: str, given: Sequence[Tracer], results: Sequence[Varying], whose: str = "result"
) -> None:
    """Raise `ShardingError` where devices share a result and its cotangent may vary.

    `name` describes the consumer of the cotangents; `results` are the varying axes of each result.
    """
    names = {axis: named.name for named in bound_axes().values() for axis in named.axes}
    for i, (varies, allowed) in enumerate(zip(varying_axes_of(given), results, strict=False)):
        more = [names[axis] for axis in checked_axes() if axis in varies - allowed]
        if more:
            described = f"the {whose}" if len(results) == 1 else f"{whose} {i}"
            along = " and ".join(map(repr, more))
            raise ShardingError(
                with_location(
                    f"the cotangent of {described} for {name} may vary along {along}, while the "
                    f"{whose} does not; sum it (lax.psum), or make the value that the "
                    'function returns vary (lax.pcast(..., to="varying"))'
                )
            )


def axis_position(axis: Axis) -> Tracer:
    """Return the position of a device along a manual axis."""
    index: Tracer = emit("axis-index", axes=(axis,))
    return index


def communicates_along(op: Op, axes: Axes) -> bool:
    """Return whether an operation, or one of its blocks, communicates along any of the axes."""
    ops = [op, *(inner for block in op.blocks for inner in block.walk())]
    return any(
        each.spec.collective and any(a.overlaps(b) for a in axes for b in each.attrs["axes"])
        for each in ops
    )


def _captured_axes(value: Value) -> Varying:
    """Return the varying axes of a captured value that a derivative rule uses."""
    _infer_traces()
    return _inferred_axes(value)
