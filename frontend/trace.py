"""Tracing: a Python function, run once on traced values, leaves a program behind.

While a function is traced, one `Trace` is current: the block under construction. `emit` appends
one operation to it. Blocks of control flow are traces inside it (`trace_block`); they may use
values of the traces around them, and share one `Program`, which knows what values are called
and which arrays from outside were met on the way.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardir.build import infer
from shardir.errors import OperationTypeError
from shardir.frontend import locations
from shardir.frontend.errors import OutsideError
from shardir.frontend.locations import boundary, here, point
from shardir.frontend.named_axes import checked_axes
from shardir.frontend.promotion import Abstract
from shardir.frontend.traced_program import Program
from shardir.frontend.tracer import Tracer
from shardir.ir import Block, Function, Op, Value
from shardir.opset import OPS, Attr, OpSpec, Result
from shardir.placement import Sharding
from shardir.vma import Varying

if TYPE_CHECKING:
    from shardir.frontend.array import Array
    from shardir.frontend.shardings import Sharding as UserSharding

Origin = Value | Varying
"""A value, of which something is to be said, or what is said: along which axes it varies."""

_current: ContextVar["Trace | None"] = ContextVar("shardir_trace", default=None)


class Trace:
    """A block under construction. `what` names it in errors (`mlp`, `the body of scan`)."""

    __slots__ = (
        "checked", "decision", "ended", "inferred", "ops", "origins", "params", "parent",
        "program", "what",
    )  # fmt: skip

    def __init__(self, program: Program, parent: "Trace | None", what: str) -> None:
        self.program, self.parent, self.what = program, parent, what
        self.ops: list[Op] = []
        self.params: list[Value] = []
        self.origins: dict[Value, Origin] = {}
        """What parameters stand for, or along which manual axes they vary, where that is known."""
        self.decision: Origin | None = None
        """What decides whether a device runs the block; `None`: all do."""
        self.checked: Varying = frozenset(checked_axes())
        """The manual axes around that have `check_vma`."""
        self.inferred = 0
        """Of how many operations it is known along which manual axes their results vary."""
        self.ended = False

    @property
    def root(self) -> "Trace":
        return self if self.parent is None else self.parent.root

    def param(self, abstract: Abstract, name: str = "") -> Tracer:
        """One more parameter."""
        value = Value(abstract.type)
        if name:
            self.program.hints[value] = name
        self.params.append(value)
        return Tracer(self, value, abstract.weak, None)


def current() -> Trace | None:
    """The block under construction, if any."""
    return _current.get()


def require(what: str) -> Trace:
    """The block under construction; an error that names `what` needs it."""
    trace = _current.get()
    if trace is None:
        raise OutsideError(point(f"{what} outside of a trace; do it inside of jit"))
    return trace


def emit(
    spec: OpSpec | str,
    *operands: Tracer,
    result: Result | None = None,
    weak: bool = False,
    blocks: tuple[Block, ...] = (),
    sharding: Sharding | None = None,
    **attrs: Attr,
) -> Any:
    """Append one operation to the current trace; returns a tracer, or a tuple of tracers.

    `spec` may be the operation's name. The operands are used as they are: of the element types
    and shapes that the operation demands. `result` states the result type where it is a choice,
    `weak` marks the results as made of Python numbers alone. Raises `OperationTypeError` with the
    user's line when the operation does not take the operands, `LeakedTracerError` when one belongs
    to a trace that has ended.
    """
    if isinstance(spec, str):
        spec = OPS[spec]
    trace = require(spec.name)
    for operand in operands:
        if operand._trace is not trace:
            operand.check(trace)
    values = tuple([operand.value for operand in operands])
    try:
        types = infer(spec, values, result, attrs, blocks)
    except OperationTypeError as error:
        raise OperationTypeError(point(str(error))) from None
    results = tuple([Value(t, "", sharding) for t in types])
    site, loc = None, None
    place = here()
    if place is not None:
        site = place.site
        loc = site.loc
        trace.program.hint(place.call, place.names(), results)
    trace.ops.append(Op(spec, values, results, attrs, blocks, loc))
    tracers = tuple([Tracer(trace, value, weak, site) for value in results])
    return tracers[0] if len(tracers) == 1 else tracers


def append_block(block: Block, args: Sequence[Tracer], origin: Block) -> tuple[Value, ...]:
    """Append the operations of `block` with `args` for its parameters; returns its results.

    `block` has been made from `origin`, which `trace_function` returned, by a transformation. The
    values of `origin`, and those that have their names now, keep them; all others get fresh ones.
    To be done once with a block.
    """
    trace = require("a block is inlined")
    names = trace.program.names
    new = {p: a.value for p, a in zip(block.params, args, strict=True)}
    known = {value.name for value in _defined(origin)}

    def fresh(value: Value) -> Value:
        if value.name not in known:
            wish = "" if value.name.isdigit() else value.name
            new[value] = Value(value.type, names.fresh(wish), value.sharding)
        return new.get(value, value)

    def replaced(op: Op) -> Op:
        operands = tuple([new.get(v, v) for v in op.operands])
        blocks = tuple(map(inner, op.blocks))
        results = tuple(map(fresh, op.results))
        return Op(op.spec, operands, results, op.attrs, blocks, op.loc, op.why)

    def inner(block: Block) -> Block:
        params = tuple(map(fresh, block.params))
        ops = tuple(map(replaced, block.ops))
        return Block(params, ops, tuple([new.get(v, v) for v in block.returns]))

    trace.ops.extend(map(replaced, block.ops))
    return tuple([new.get(v, v) for v in block.returns])


def _defined(block: Block) -> Iterator[Value]:
    """Every value that a block and the blocks inside it define."""
    yield from block.params
    for op in block.ops:
        yield from op.results
        for inner in op.blocks:
            yield from _defined(inner)


def captured(array: "Array") -> Tracer:
    """An array from outside as a parameter of the outermost trace, the same one each time."""
    trace = require("an array is captured")
    program = trace.program
    if id(array) not in program.captured:
        root = trace.root
        tracer = root.param(array.abstract, locations.variable_of(array) or "captured")
        program.captured[id(array)] = array, tracer
    return program.captured[id(array)][1]


@contextmanager
def _entered(trace: Trace) -> Iterator[None]:
    token = _current.set(trace)
    try:
        yield
    finally:
        trace.ended = True
        _current.reset(token)


@contextmanager
def resumed(trace: Trace | None) -> Iterator[None]:
    """Inside, `trace` is current, ended or not; `None`: nothing is being traced."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(frozen=True, slots=True)
class Traced:
    """A function that has been traced.

    The parameters of `function` are those asked for, then one for each array in `captured`.
    `results` has what is known of each result. `asked` are the shardings that tokens in the
    function stand for (see annotations.py).
    """

    function: Function
    params: tuple[Abstract, ...]
    results: tuple[Abstract, ...]
    captured: "tuple[Array, ...]"
    asked: "tuple[tuple[UserSharding, int], ...]"


@boundary
def trace_program(
    fun: Callable[[list[Tracer]], Sequence[Tracer]],
    params: Sequence[tuple[str, Abstract]],
    name: str,
    fleeting: bool = False,
) -> Traced:
    """Trace `fun`, from a list of tracers to a sequence of tracers, as a program of its own.

    `params` are names and types of the parameters. What is traced around it is not seen.
    `fleeting` is for a program that is traced at every call.
    """
    locations.refresh()
    program = Program(name, fleeting)
    trace = Trace(program, None, name)
    tracers = [trace.param(abstract, wish) for wish, abstract in params]
    with _entered(trace):
        results = list(fun(tracers))
        for result in results:
            result.check(trace)
    program.forget_frames()
    for value in trace.params:
        program.named(value)
    block = Block(tuple(trace.params), tuple(trace.ops), tuple(r.value for r in results))
    body = program.renamed(block)
    arrays = tuple(array for array, _ in program.captured.values())
    return Traced(
        Function(name, body, (None,) * len(results)),
        (*(abstract for _, abstract in params), *(array.abstract for array in arrays)),
        tuple(r.abstract for r in results),
        arrays,
        tuple(program.asked),
    )


@boundary
def trace_block(
    fun: Callable[..., Sequence[Tracer]],
    params: Sequence[Abstract],
    what: str,
    names: Sequence[str] = (),
    origins: Sequence[Tracer | Varying | None] = (),
    decision: Tracer | Varying | None = None,
) -> tuple[Block, tuple[Abstract, ...]]:
    """Trace `fun`, called with one tracer for each of `params`, as a block inside the current one.

    `what` names it in errors (`the body of while_loop`), `names` are wishes for its parameters.
    `origins` are tracers that the first of these stand for, or say along which manual axes they
    vary; `decision` is what decides whether the block runs, or along which axes that varies.
    Returns the block and what is known of its results. It may use tracers of the traces around
    it directly. A block that is thrown away leaves no operations behind.
    """
    outer = require(what)
    trace = Trace(outer.program, outer, what)
    wishes = (*names, *[""] * (len(params) - len(names)))
    tracers = [trace.param(abstract, wish) for abstract, wish in zip(params, wishes, strict=True)]
    for param, origin in zip(trace.params, origins, strict=False):
        if origin is not None:
            trace.origins[param] = _origin(origin)
    trace.decision = None if decision is None else _origin(decision)
    with _entered(trace):
        results = list(fun(*tracers))
        for result in results:
            result.check(trace)
    block = Block(tuple(trace.params), tuple(trace.ops), tuple(r.value for r in results))
    return block, tuple(r.abstract for r in results)


def _origin(said: Tracer | Varying) -> Origin:
    return said.value if isinstance(said, Tracer) else said


def trace_function(
    fun: Callable[..., Sequence[Tracer]],
    params: Sequence[Abstract],
    name: str,
    names: Sequence[str] = (),
    origins: Sequence[Tracer | Varying | None] = (),
) -> tuple[Function, tuple[Abstract, ...]]:
    """Like `trace_block`, but values have their final names, for a transformation of the function.

    The transformed block goes into the current trace with `append_block`, which puts arguments in
    the places of its parameters; new values take names from `current().program.names`.
    """
    outer = require(name)
    outer.program.settle(outer)

    def called(*tracers: Tracer) -> Sequence[Tracer]:
        # Before anything inside can refer to them, for what is traced there may be settled.
        for i, tracer in enumerate(tracers):
            outer.program.call(tracer.value, names[i] if i < len(names) else f"arg{i}")
        return fun(*tracers)

    block, results = trace_block(called, params, name, origins=origins)
    return Function(name, outer.program.renamed(block), (None,) * len(results)), results


def wrap(value: Value, weak: bool = False) -> Tracer:
    """A tracer of the current trace for a value that `append_block` put into it."""
    return Tracer(require("a value is wrapped"), value, weak, None)
