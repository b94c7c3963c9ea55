"""The block under construction, and how operations are appended to it.

One `Trace`, the block under construction, is current while a function is traced
(`function_tracing`). `emit` appends one operation to it. Blocks of control flow are nested traces.
They may use values of the enclosing traces and share one `TracedProgram`, which records the names
of values and the arrays that the function captures.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from shardir._imports.lazy_import import lazy_import
from shardir.errors import OperationTypeError
from shardir.frontend import source_locations
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.errors import OutsideTraceError
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import user_position, with_location
from shardir.frontend.tracing.concrete_values import ManualBlock
from shardir.frontend.tracing.named_axes import checked_axes
from shardir.frontend.tracing.traced_program import ProgramTypes, TracedProgram
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.builder import infer_types
from shardir.ir.module import Block, Op, Value
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
def enter_trace(trace: Trace) -> Iterator[None]:
    """Make `trace` current inside the block; it ends with the block."""
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


def wrap_value(value: Value, weak: bool = False) -> Tracer:
    """Return a tracer of the current trace for a value that `append_block` inserted into it."""
    return Tracer(require_trace("a value is wrapped"), value, weak, None)
