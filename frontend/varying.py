"""Inference of varying manual axes for the values of the traces under construction.

Derivatives inside of a manual computation and the checks of `shard_map` results depend on it. See
`shardir.vma`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType

from shardir.build import substitute
from shardir.frontend.errors import ShardingError
from shardir.frontend.locations import point
from shardir.frontend.named_axes import checked_axes, known_axes, manual_axes_here
from shardir.frontend.trace import Origin, Trace, current, emit, require
from shardir.frontend.tracer import Tracer
from shardir.ir import Block, Function, Op, Value
from shardir.passes.make_varying import explicit as made_explicit
from shardir.passes.varying import infer, varying
from shardir.placement import Axes, Axis
from shardir.vma import NONE, Varying

_sharded: ContextVar[Mapping[Value, Varying]] = ContextVar(
    "shardir_sharded", default=MappingProxyType({})
)
"""The axes along which the parameters of the enclosing manual computations are sharded."""


@contextmanager
def sharded(values: Mapping[Value, Varying]) -> Iterator[None]:
    """Declare inside the block that parameters of a manual computation vary along these axes
    too."""
    token = _sharded.set({**_sharded.get(), **values})
    try:
        yield
    finally:
        _sharded.reset(token)


class Watch:
    """A record of whether varying axes were queried."""

    asked = False


_watches: ContextVar[tuple[Watch, ...]] = ContextVar("shardir_watches", default=())


@contextmanager
def watched() -> Iterator[Watch]:
    """Record whether varying axes are queried inside the block."""
    watch = Watch()
    token = _watches.set((*_watches.get(), watch))
    try:
        yield watch
    finally:
        _watches.reset(token)


def _infer_here() -> Varying:
    """Infer the varying axes of all values traced so far; return those that the predicates vary
    along.

    A parameter without information counts as varying along all checked axes. Each device then has a
    separate derivative, which is correct for any value.
    """
    for watch in _watches.get():
        watch.asked = True
    axes, shards = manual_axes_here(), _sharded.get()
    chain: list[Trace] = []
    trace = current()
    while trace is not None:
        chain.append(trace)
        trace = trace.parent
    program = require("what varies").program
    found, within = program.vma, NONE
    for each in reversed(chain):
        if each.decision is not None:
            within |= _meant(each.decision, each)
        for param in each.params:
            if param not in found:
                known = _meant(each.origins.get(param, each.checked), each)
                found[param] = known | shards.get(param, NONE) | within
        # A value may have two identities until its name is final.
        new = Block((), tuple(each.ops[each.inferred :]), ())
        infer(substitute(new, program.before_naming).ops, found, axes, within)
        each.inferred = len(each.ops)
    return within


def _meant(origin: Origin, trace: Trace) -> Varying:
    if not isinstance(origin, Value):
        return origin
    program = trace.program
    return program.vma.get(program.before_naming.get(origin, origin), trace.checked)


def _known(value: Value) -> Varying:
    """Return the varying axes of a value, after `_infer_traces`."""
    program = require("what varies").program
    return program.vma.get(program.before_naming.get(value, value), NONE)


def vma_of(tracers: Sequence[Tracer | Varying]) -> list[Varying]:
    """Return the axes along which tracers of the traces under construction may vary.

    Sets of axes among `tracers` are returned unchanged.
    """
    if not checked_axes():
        return [NONE] * len(tracers)
    _infer_here()
    return [_known(x.value) if isinstance(x, Tracer) else x for x in tracers]


def vma_of_returns(block: Block, params: Sequence[Varying]) -> list[Varying]:
    """Return the axes along which the results of a block of the current trace may vary."""
    if not checked_axes():
        return [NONE] * len(block.returns)
    within = _infer_here()
    program = require("what varies").program
    renamed = substitute(block, program.before_naming)
    known = {**program.vma, **dict(zip(renamed.params, params, strict=True))}
    found = varying(renamed, known, manual_axes_here(), within)
    return [found.get(value, NONE) for value in renamed.returns]


@dataclass(frozen=True)
class Explicit:
    """A function with explicit `vary` operations, and the varying axes of its results."""

    function: Function
    results: tuple[Varying, ...]


def explicit(
    function: Function, origins: Sequence[Tracer | Varying], own: Varying = NONE
) -> Explicit:
    """Return a function, about to be differentiated, with explicit operations that make values
    vary.

    `origins` are the arguments that its parameters represent, or the axes along which these vary.
    Along `own` each device counts as having a separate argument. The function is unchanged if no
    enclosing axis has `check_vma`.
    """
    body, axes = function.body, checked_axes()
    if not axes:
        return Explicit(function, (NONE,) * len(body.returns))
    within = _infer_here()
    known = {value: _known(value) for value in body.captures()}
    starts = vma_of(origins)
    for param, start in zip(body.params, starts, strict=True):
        known[param] = within | start | own
    program = require("a function is made explicit").program
    made = made_explicit(body, known, axes, program.names, within=within, outside=_outside)
    found = varying(made, known, axes, within)
    function = Function(function.name, made, function.results, function.spmd)
    return Explicit(function, tuple(found.get(value, NONE) for value in made.returns))


def check_cotangents(
    name: str, given: Sequence[Tracer], results: Sequence[Varying], whose: str = "result"
) -> None:
    """Raise `ShardingError` where devices share a result and its cotangent may vary.

    `name` describes the consumer of the cotangents; `results` are the varying axes of each result.
    """
    names = {axis: named.name for named in known_axes().values() for axis in named.axes}
    for i, (varies, wanted) in enumerate(zip(vma_of(given), results, strict=False)):
        more = [names[axis] for axis in checked_axes() if axis in varies - wanted]
        if more:
            described = f"the {whose}" if len(results) == 1 else f"{whose} {i}"
            along = " and ".join(map(repr, more))
            raise ShardingError(
                point(
                    f"the cotangent of {described} for {name} may vary along {along}, while the "
                    f"{whose} does not; sum it (lax.psum), or make the value that the "
                    'function returns vary (lax.pcast(..., to="varying"))'
                )
            )


def position(axis: Axis) -> Tracer:
    """Return the position of a device along a manual axis."""
    index: Tracer = emit("axis-index", axes=(axis,))
    return index


def is_exchange(op: Op, axes: Axes) -> bool:
    """Return whether an operation, or one of its blocks, communicates along any of the axes."""
    ops = [op, *(inner for block in op.blocks for inner in block.walk())]
    return any(
        each.spec.collective and any(a.overlaps(b) for a in axes for b in each.attrs["axes"])
        for each in ops
    )


def _outside(value: Value) -> Varying:
    """Return the varying axes of a captured value that a derivative rule uses."""
    _infer_here()
    return _known(value)
