"""Varying manual axes while a function is traced.

What is known of the values of the traces under construction, for what depends on it: derivatives
taken inside of a manual computation, and what `shard_map` says of its results. See `shardir.vma`.
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
"""Along which axes the parameters of the manual computations around are sharded."""


@contextmanager
def sharded(values: Mapping[Value, Varying]) -> Iterator[None]:
    """Inside, parameters of a manual computation vary along these axes too."""
    token = _sharded.set({**_sharded.get(), **values})
    try:
        yield
    finally:
        _sharded.reset(token)


class Watch:
    """Whether anything asked what varies."""

    asked = False


_watches: ContextVar[tuple[Watch, ...]] = ContextVar("shardir_watches", default=())


@contextmanager
def watched() -> Iterator[Watch]:
    """Notes whether anything inside asks what varies."""
    watch = Watch()
    token = _watches.set((*_watches.get(), watch))
    try:
        yield watch
    finally:
        _watches.reset(token)


def _infer_here() -> Varying:
    """Find what varies of all that is traced so far; along which axes only some devices run here.

    A parameter of which nothing is known counts as varying along all axes: then each device has
    its own derivative, which is right of any value.
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
        # A value may be known by two identities until it has its name.
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
    """Along which axes a value varies of which `_infer_here` has found out."""
    program = require("what varies").program
    return program.vma.get(program.before_naming.get(value, value), NONE)


def vma_of(tracers: Sequence[Tracer | Varying]) -> list[Varying]:
    """Along which axes tracers of the traces under construction may vary.

    What says so itself stays as it is.
    """
    if not checked_axes():
        return [NONE] * len(tracers)
    _infer_here()
    return [_known(x.value) if isinstance(x, Tracer) else x for x in tracers]


def vma_of_returns(block: Block, params: Sequence[Varying]) -> list[Varying]:
    """Along which axes the results of a block may vary that was traced in the current trace."""
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
    """A function that shows where values become varying, and what its results vary along."""

    function: Function
    results: tuple[Varying, ...]


def explicit(
    function: Function, origins: Sequence[Tracer | Varying], own: Varying = NONE
) -> Explicit:
    """A function about to be differentiated, in which it shows where values become varying.

    `origins` are the arguments that its parameters stand for, or say along which axes these vary;
    along `own` each device counts as having its own. Nothing changes where no axis around has
    `check_vma`.
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
    """Raise `ShardingError` where devices share a result and its cotangent may differ.

    `name` says what takes the cotangents, `results` along which axes each result varies.
    """
    names = {axis: named.name for named in known_axes().values() for axis in named.axes}
    for i, (varies, wanted) in enumerate(zip(vma_of(given), results, strict=False)):
        more = [names[axis] for axis in checked_axes() if axis in varies - wanted]
        if more:
            told = f"the {whose}" if len(results) == 1 else f"{whose} {i}"
            along = " and ".join(map(repr, more))
            raise ShardingError(
                point(
                    f"the cotangent of {told} for {name} may differ along {along} from device to "
                    f"device, where the {whose} is the same; sum it (lax.psum), or make what the "
                    'function returns vary (lax.pcast(..., to="varying"))'
                )
            )


def position(axis: Axis) -> Tracer:
    """The position of a device along a manual axis."""
    index: Tracer = emit("axis-index", axes=(axis,))
    return index


def is_exchange(op: Op, axes: Axes) -> bool:
    """Return whether an operation, or one of its blocks, sends anything along any of the axes."""
    ops = [op, *(inner for block in op.blocks for inner in block.walk())]
    return any(
        each.spec.collective and any(a.overlaps(b) for a in axes for b in each.attrs["axes"])
        for each in ops
    )


def _outside(value: Value) -> Varying:
    """Along which axes a value varies that the rule of a derivative uses from around it."""
    _infer_here()
    return _known(value)
