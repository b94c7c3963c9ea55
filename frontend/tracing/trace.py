"""Tracing: run a Python function once on tracers to record its operations as a program.

One `Trace`, the block under construction, is current while a function is traced. `emit` appends one
operation to it. Blocks of control flow are nested traces (`trace_block`). They may use values of
the enclosing traces and share one `TracedProgram`, which records the names of values and the arrays
that the function captures.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.errors import OperationTypeError
from shardir.frontend import source_locations
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.config import config
from shardir.frontend.errors import OutsideTraceError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding, Sharding as UserSharding
from shardir.frontend.source_locations import trace_boundary, user_position, with_location
from shardir.frontend.tracing.concrete_values import ConcreteValues, ManualBlock
from shardir.frontend.tracing.named_axes import checked_axes
from shardir.frontend.tracing.traced_program import ProgramTypes, TracedProgram
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.builder import infer_types
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.operation import OPS, Attr, OpSpec, Result, Varying
from shardir.ir.sharding import Sharding
from shardir.ir.types import NumpyArray

if TYPE_CHECKING:
    from shardir.frontend.arrays.array import Array
    from shardir.frontend.tracing import leak_checker, sharding_types
else:
    leak_checker = lazy_import("shardir.frontend.tracing.leak_checker")
    sharding_types = lazy_import("shardir.frontend.tracing.sharding_types")

Origin = Value | Varying
"""A value that determines the varying manual axes of another, or these axes themselves."""

_current: ContextVar["Trace | None"] = ContextVar("shardir_trace", default=None)


class Trace:
    """A block under construction. `what` names it in errors (`mlp`, `the body of scan`)."""

    __slots__ = (
        "checked_axes",
        "has_captures",
        "has_ended",
        "inputs",
        "manual",
        "num_inferred",
        "ops",
        "origins",
        "params",
        "parent",
        "predicate",
        "program",
        "what",
    )  # fmt: skip

    def __init__(self, program: TracedProgram, parent: "Trace | None", what: str) -> None:
        self.program, self.parent, self.what = program, parent, what
        self.ops: list[Op] = []
        self.params: list[Value] = []
        self.origins: dict[Value, Origin] = {}
        """The value that each parameter represents, or its varying manual axes, where known."""
        self.predicate: Origin | None = None
        """The value that decides whether a device runs the block; `None` if all devices run it."""
        self.checked_axes: Varying = frozenset(checked_axes())
        """The enclosing manual axes with `check_vma`."""
        self.num_inferred = 0
        """The number of operations whose results have inferred varying manual axes."""
        self.has_ended = False
        self.has_captures = False
        """True if operations of the block, or of blocks in it, use values of enclosing traces."""
        self.inputs: Sequence[Value] | None = None
        """The values that the first parameters equal; `None` if the block may run later, or more
        than once."""
        self.manual: ManualBlock | None = None
        """The manual computation whose block this is, if its values may be known."""

    def find_elements(self, value: Value) -> NumpyArray | None:
        """Return the elements of a value of this trace, or `None` if they are not known."""
        values = self.program.concrete_values
        return None if values is None else values.find(self, value)

    def find_shards(self, value: Value) -> Sequence[tuple[str, NumpyArray]]:
        """Return the elements of a value on each device, where they are known for each device."""
        values = self.program.concrete_values
        return () if values is None else values.find_shards(self, value)

    def is_differentiated(self, value: Value) -> bool:
        """Return whether a value with known elements may have a derivative."""
        values = self.program.concrete_values
        return values is not None and values.is_differentiated(self, value)

    @property
    def is_staged(self) -> bool:
        """True if the block may run later than it is traced, with elements that are unknown."""
        if self.parent is None:
            return self.program.concrete_values is None
        return (self.inputs is None and self.manual is None) or self.parent.is_staged

    @property
    def is_evaluated(self) -> bool:
        """True outside of `jit`, where the elements of values are known."""
        values = self.program.concrete_values
        return values is not None and not values.num_staged and not self.is_staged

    @property
    def root(self) -> "Trace":
        return self if self.parent is None else self.parent.root

    def add_parameter(self, abstract: AbstractValue, name: str = "") -> Tracer:
        """Append a parameter and return its tracer."""
        value = Value(abstract.type)
        if name:
            self.program.name_hints[value] = name
        self.params.append(value)
        if abstract.sharding is not None:
            require_sharding_types(self.program, abstract.sharding).declare(
                value, abstract.sharding
            )
        return Tracer(self, value, abstract.weak, None)

    def assign_names(self) -> None:
        """Assign names to all values recorded so far in this trace and those that enclose it."""
        if self.parent is not None:
            self.parent.assign_names()
        for value in self.params:
            self.program.named_value(value)
        for op in self.ops:
            self.program.assign_operation_names(op)


def require_sharding_types(program: TracedProgram, sharding: object) -> ProgramTypes:
    """Return the sharding types of a program; `sharding` is on a mesh with Explicit axes."""
    if program.sharding_types is None:
        assert isinstance(sharding, NamedSharding)
        program.sharding_types = sharding_types.ShardingTypes(program, sharding.mesh)
    return program.sharding_types


def current_trace() -> Trace | None:
    """Return the block under construction, or `None`."""
    return _current.get()


def require_trace(what: str) -> Trace:
    """Return the block under construction; raises `OutsideTraceError` that names `what` if there is
    none.
    """
    trace = _current.get()
    if trace is None:
        raise OutsideTraceError(with_location(f"{what} outside of a trace; do it inside of jit"))
    return trace


def emit(
    spec: OpSpec | str,
    *operands: Tracer,
    result: Result | None = None,
    weak: bool | None = None,
    blocks: tuple[Block, ...] = (),
    sharding: Sharding | None = None,
    **attrs: Attr,
) -> Tracer:
    """Append one operation with one result to the current trace and return a tracer.

    `spec` may be the name of the operation. The operands must have the element types and shapes
    that the operation requires. `result` gives the result type where the operands do not determine
    it. `weak` marks the result as computed from Python numbers alone; without it, the result is
    weakly typed if all operands are. Bools are never weakly typed. Raises `OperationTypeError` with
    the user's line when the operation does not accept the operands, and `LeakedTracerError` when an
    operand belongs to a trace that has ended.
    """
    (tracer,) = _append_operation(spec, operands, result, weak, blocks, sharding, attrs)
    return tracer


def emit_results(
    spec: OpSpec | str,
    *operands: Tracer,
    result: Result | None = None,
    weak: bool | None = None,
    blocks: tuple[Block, ...] = (),
    sharding: Sharding | None = None,
    **attrs: Attr,
) -> tuple[Tracer, ...]:
    """Append one operation to the current trace as `emit` and return a tracer for each result.

    If the operation has several results, one for each operand, each has the weak type of its
    operand unless `weak` is stated.
    """
    return _append_operation(spec, operands, result, weak, blocks, sharding, attrs)


def _append_operation(
    spec: OpSpec | str,
    operands: tuple[Tracer, ...],
    result: Result | None,
    weak: bool | None,
    blocks: tuple[Block, ...],
    sharding: Sharding | None,
    attrs: dict[str, Attr],
) -> tuple[Tracer, ...]:
    if isinstance(spec, str):
        spec = OPS[spec]
    trace = require_trace(spec.name)
    for operand in operands:
        if operand._trace is not trace:
            operand.check(trace)
    values = tuple([operand.value for operand in operands])
    try:
        types = infer_types(spec, values, result, attrs, blocks)
    except OperationTypeError as error:
        raise OperationTypeError(with_location(str(error))) from None
    results = tuple([Value(t, "", sharding) for t in types])
    site, loc = None, None
    place = user_position()
    if place is not None:
        site = place.site
        loc = site.loc
        trace.program.add_name_hint(place.call, place.names(), results)
    op = Op(spec, values, results, attrs, blocks, loc)
    if trace.program.sharding_types is not None:
        trace.program.sharding_types.infer(op)
    trace.ops.append(op)
    flags = _weak_types(operands, len(results)) if weak is None else [weak] * len(results)
    return tuple(
        [
            Tracer(trace, value, flag and value.type.dtype != "bool", site)
            for value, flag in zip(results, flags, strict=True)
        ]
    )


def _weak_types(operands: tuple[Tracer, ...], count: int) -> list[bool]:
    """Return which of `count` results of an operation are weakly typed.

    An operation with several results, one for each operand, such as a sort, returns the elements of
    the operands, and so their weak types.
    """
    weak = [operand.weak_type for operand in operands]
    if 1 < count == len(weak):
        return weak
    return [bool(weak) and all(weak)] * count


def append_ops(trace: Trace, new_ops: Sequence[Op]) -> None:
    """Append operations that a transformation has made to a trace."""
    if trace.program.sharding_types is not None:
        trace.program.sharding_types.infer_block(new_ops)
    trace.ops.extend(new_ops)


def append_block(block: Block, args: Sequence[Tracer], origin: Block) -> tuple[Value, ...]:
    """Append the operations of `block` with `args` for its parameters and return its results.

    A transformation has made `block` from `origin`, which `trace_function` returned. Values of
    `origin`, and those that have their final names, keep them; all others get fresh names. Call
    this at most once per block.
    """
    trace = require_trace("a block is inlined")
    names = trace.program.names
    new = {p: a.value for p, a in zip(block.params, args, strict=True)}
    known = {value.name for value in _defined_values(origin)}

    def fresh(value: Value) -> Value:
        if value.name not in known:
            hint = "" if value.name.isdigit() else value.name
            new[value] = Value(value.type, names.fresh(hint), value.sharding)
        return new.get(value, value)

    def replace(op: Op) -> Op:
        operands = tuple([new.get(v, v) for v in op.operands])
        blocks = tuple(map(inner, op.blocks))
        results = tuple(map(fresh, op.results))
        return Op(op.spec, operands, results, op.attrs, blocks, op.loc, op.why)

    def inner(block: Block) -> Block:
        params = tuple(map(fresh, block.params))
        ops = tuple(map(replace, block.ops))
        return Block(params, ops, tuple([new.get(v, v) for v in block.returns]))

    appended = [*map(replace, block.ops)]
    append_ops(trace, appended)
    return tuple([new.get(v, v) for v in block.returns])


def _defined_values(block: Block) -> Iterator[Value]:
    """Yield every value that a block and its nested blocks define."""
    yield from block.params
    for op in block.ops:
        yield from op.results
        for inner in op.blocks:
            yield from _defined_values(inner)


def capture_array(array: "Array") -> Tracer:
    """Return the parameter of the outermost trace for a captured array, one per array."""
    trace = require_trace("an array is captured")
    program = trace.program
    if id(array) not in program.captured:
        root = trace.root
        tracer = root.add_parameter(
            array.abstract, source_locations.find_variable_name(array) or "captured"
        )
        sharding = array.signature.sharding
        if sharding is not None and sharding.has_explicit_axes:
            require_sharding_types(program, sharding)
        if program.sharding_types is not None:
            program.sharding_types.declare(tracer.value, sharding)
        program.captured[id(array)] = array, tracer
    return program.captured[id(array)][1]


@contextmanager
def stage_out() -> Iterator[None]:
    """Trace the code inside the block as `jit` does: no elements of values are known."""
    trace = current_trace()
    values = None if trace is None else trace.program.concrete_values
    if values is None:
        yield
        return
    values.num_staged += 1
    try:
        yield
    finally:
        values.num_staged -= 1


@contextmanager
def _enter_trace(trace: Trace) -> Iterator[None]:
    token = _current.set(trace)
    try:
        yield
    finally:
        trace.has_ended = True
        _current.reset(token)


@contextmanager
def use_trace(trace: Trace | None) -> Iterator[None]:
    """Make `trace` current inside the block, ended or not; `None` means that nothing is traced."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


_suspended: ContextVar[Trace | None] = ContextVar("shardir_suspended_trace", default=None)


@contextmanager
def suspend_trace() -> Iterator[None]:
    """Run the code inside the block outside of the current trace; see `suspended_trace_of`."""
    token = _suspended.set(_current.get() or _suspended.get())
    try:
        with use_trace(None):
            yield
    finally:
        _suspended.reset(token)


def suspended_trace_of(arguments: Iterable[object]) -> Trace | None:
    """Return the trace that `suspend_trace` suspended if an argument is one of its tracers.

    Raises `LeakedTracerError` if a tracer belongs neither to this trace nor to one that encloses
    it.
    """
    trace = _suspended.get()
    if trace is None or _current.get() is not None:
        return None
    tracers = [argument for argument in arguments if isinstance(argument, Tracer)]
    for tracer in tracers:
        tracer.check(trace)
    return trace if tracers else None


@dataclass(frozen=True, slots=True)
class TracedFunction:
    """A function that has been traced.

    The parameters of `function` are the declared ones, then one for each array in `captured`.
    `results` are the abstract results. `requested_shardings` are the shardings that the tokens in
    the function represent (see sharding_tokens.py).
    """

    function: Function
    params: tuple[AbstractValue, ...]
    results: tuple[AbstractValue, ...]
    captured: tuple["Array", ...]
    requested_shardings: tuple[tuple[UserSharding, int], ...]
    typed_results: tuple[NamedSharding | None, ...] | None = None
    """The shardings in the types of the results; `None` without Explicit axes."""


@trace_boundary
def trace_program(
    fun: Callable[[list[Tracer]], Sequence[Tracer]],
    params: Sequence[tuple[str, AbstractValue]],
    name: str,
    is_temporary: bool = False,
    mesh: Mesh | None = None,
    concrete_values: ConcreteValues | None = None,
) -> TracedFunction:
    """Trace `fun`, from a list of tracers to a sequence of tracers, as a separate program.

    `params` are the names and abstract values of the parameters. Enclosing traces are not visible.
    `is_temporary` marks a program that is traced again at every call. On `mesh`, which has Explicit
    axes, values have shardings in their types. `concrete_values` has the elements of the arguments.
    """
    source_locations.refresh_working_directory()
    program = TracedProgram(name, is_temporary)
    program.concrete_values = concrete_values
    trace = Trace(program, None, name)
    tracers = [trace.add_parameter(abstract, hint) for hint, abstract in params]
    if mesh is not None:
        require_sharding_types(program, NamedSharding(mesh, PartitionSpec())).is_stated = True
    if program.sharding_types is not None:
        for value, (_, abstract) in zip(trace.params, params, strict=True):
            program.sharding_types.declare(value, abstract.sharding)
    with _enter_trace(trace):
        results = list(fun(tracers))
        _check_results(trace, results)
    # Derivatives keep the program; the elements must not live as long as they do.
    program.concrete_values = None
    program.forget_frames()
    for value in trace.params:
        program.named_value(value)
    block = Block(tuple(trace.params), tuple(trace.ops), tuple(r.value for r in results))
    body = program.rename_block(block)
    types = program.sharding_types
    if types is not None:
        body = types.state(body)
    arrays = tuple(array for array, _ in program.captured.values())
    traced = TracedFunction(
        Function(name, body, (None,) * len(results)),
        (*(abstract for _, abstract in params), *(array.abstract for array in arrays)),
        tuple(AbstractValue(r.value.type, r.weak_type) for r in results),
        arrays,
        tuple(program.requested_shardings) if types is None else types.requested_shardings(),
        None if types is None else tuple(types.result_sharding(r.value) for r in results),
    )
    program.captured.clear()
    tracers.clear()
    results.clear()
    if config.check_tracer_leaks:
        leak_checker.check_leaks(trace)
    return traced


@trace_boundary
def trace_block(
    fun: Callable[..., Sequence[Tracer]],
    params: Sequence[AbstractValue],
    what: str,
    names: Sequence[str] = (),
    origins: Sequence[Tracer | Varying | None] = (),
    decision: Tracer | Varying | None = None,
    inputs: Sequence[Tracer] | None = None,
    manual: ManualBlock | None = None,
) -> tuple[Block, tuple[AbstractValue, ...]]:
    """Trace `fun`, called with one tracer for each of `params`, as a block inside the current one.

    `what` names the block in errors (`the body of while_loop`); `names` are preferred names of its
    parameters. `origins` are the tracers that the first parameters represent, or the manual axes
    along which they vary. `decision` is the value that decides whether the block runs, or the axes
    along which that value varies. `inputs` are the tracers that the first parameters equal, for a
    block that runs once and where it is traced; `manual` is the manual computation whose block it
    is, for one that runs there. Return the block and its abstract results. The block may use
    tracers of the enclosing traces directly. A block that is discarded leaves no operations behind.
    """
    outer = require_trace(what)
    trace = Trace(outer.program, outer, what)
    trace.inputs = None if inputs is None else [tracer.value for tracer in inputs]
    trace.manual = manual
    hints = (*names, *[""] * (len(params) - len(names)))
    tracers = [
        trace.add_parameter(abstract, hint) for abstract, hint in zip(params, hints, strict=True)
    ]
    for param, origin in zip(trace.params, origins, strict=False):
        if origin is not None:
            trace.origins[param] = _origin(origin)
    trace.predicate = None if decision is None else _origin(decision)
    with _enter_trace(trace):
        results = list(fun(*tracers))
        _check_results(trace, results)
    block = Block(tuple(trace.params), tuple(trace.ops), tuple(r.value for r in results))
    abstracts = tuple([r.abstract for r in results])
    tracers.clear()
    results.clear()
    if config.check_tracer_leaks:
        leak_checker.check_leaks(trace)
    return block, abstracts


def trace_inlined(fun: UserFunction, args: Sequence[Tracer], what: str) -> tuple[PyTree, bool]:
    """Return the result of `fun`, whose operations become a part of the current trace.

    Values of the enclosing traces may be used; those of `fun` leave it as its results only. Also
    return whether `fun` uses no values of the enclosing traces except `args`.
    """
    outer = require_trace(what)
    # The trace has not ended before the outer one: rules of `fun` may use its values until then.
    trace = Trace(outer.program, outer, what)
    with use_trace(trace):
        result = fun(*[Tracer(trace, x.value, x.weak_type, x.site) for x in args])
        leaves, structure = tree.flatten(result)
    outer.ops.extend(trace.ops)
    own = [isinstance(x, Tracer) and x.belongs_to(trace) for x in leaves]
    is_closed = not trace.has_captures and all(
        is_own or not isinstance(x, Tracer) for x, is_own in zip(leaves, own, strict=True)
    )
    wrapped = [
        Tracer(outer, x.value, x.weak_type, x.site) if is_own else x
        for x, is_own in zip(leaves, own, strict=True)
    ]
    leaves.clear()
    del result
    if config.check_tracer_leaks:
        leak_checker.check_leaks(trace)
    return tree.unflatten(structure, wrapped), is_closed


def _check_results(trace: Trace, results: Sequence[Tracer]) -> None:
    for result in results:
        result.check(trace)


def _origin(source: Tracer | Varying) -> Origin:
    return source.value if isinstance(source, Tracer) else source


def trace_function(
    fun: Callable[..., Sequence[Tracer]],
    params: Sequence[AbstractValue],
    name: str,
    names: Sequence[str] = (),
    origins: Sequence[Tracer | Varying | None] = (),
    inputs: Sequence[Tracer] | None = None,
) -> tuple[Function, tuple[AbstractValue, ...]]:
    """Trace a block as `trace_block` does, with final value names, for a transformation of the
    function.

    `append_block` inserts the transformed block into the current trace and substitutes arguments
    for its parameters. New values take names from `current_trace().program.names`.
    """
    outer = require_trace(name)
    outer.assign_names()

    def name_and_call(*tracers: Tracer) -> Sequence[Tracer]:
        # Parameters need names first: tracing inside may settle the names of its operations.
        for i, tracer in enumerate(tracers):
            outer.program.assign_name(tracer.value, names[i] if i < len(names) else f"arg{i}")
        return fun(*tracers)

    block, results = trace_block(name_and_call, params, name, origins=origins, inputs=inputs)
    return Function(name, outer.program.rename_block(block), (None,) * len(results)), results


def wrap_value(value: Value, weak: bool = False) -> Tracer:
    """Return a tracer of the current trace for a value that `append_block` inserted into it."""
    return Tracer(require_trace("a value is wrapped"), value, weak, None)
