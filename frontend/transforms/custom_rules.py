"""Shared parts of functions with custom derivative rules.

Inside of a trace, a call of such a function is one operation that holds the function as a block.
Its rule is traced when a derivative needs it, in the trace context of the call. A rule of a rule is
therefore traced only when it is needed, and a rule may call the function itself.
"""

import inspect
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, replace

from shardir.errors import DifferentiateError, ShardirError
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.call_signatures import with_constructor_errors
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError, LeakedTracerError, NotAnArrayError
from shardir.frontend.lax.control_flow.body_tracing import set_weak_types
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_structure import format_structure
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.function_tracing import trace_block, trace_function
from shardir.frontend.tracing.named_axes import bound_axes
from shardir.frontend.tracing.operands import as_tracer, convert, splat
from shardir.frontend.tracing.parameters import Parameters, leaf_labels
from shardir.frontend.tracing.promotion import DType, user_dtype
from shardir.frontend.tracing.trace import Trace, emit_results, require_trace, use_trace, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import ShapedArray
from shardir.frontend.tracing.varying_axes import varying_axes_of, varying_axes_of_returns
from shardir.frontend.transforms.differentiated_arguments import FLOAT0
from shardir.ir.builder import substitute
from shardir.ir.host_function import HostFunction
from shardir.ir.module import Block, Value
from shardir.ir.operation import Attr, Varying
from shardir.ir.types import INEXACT
from shardir.ops.control_flow.derivative_regions import DerivativeRule


def bind_positional(
    fun: UserFunction, name: str, args: PyTree, options: dict[str, PyTree]
) -> list[PyTree]:
    """Return all arguments of a call by position, including defaults; raises `ArgumentError`."""
    if not options:
        try:
            inspect.signature(fun)
        except (TypeError, ValueError):
            return list(args)
    try:
        bound = inspect.signature(fun).bind(*args, **options)
    except TypeError as error:
        raise ArgumentError(with_location(f"{name}: {error}")) from None
    bound.apply_defaults()
    if bound.kwargs:
        raise ArgumentError(
            with_location(
                f"{name} has a custom derivative rule, so all its arguments must be positional, "
                f"and {', '.join(bound.kwargs)} can only be given by name"
            )
        )
    return list(bound.args)


def nondiff_positions(
    fun: UserFunction, word: str, argnums: PyTree, argnames: PyTree
) -> frozenset[int]:
    """Return the positions of arguments that have no derivative."""
    known = Parameters.of(fun, argnums, None, word=word.removesuffix("_argnames"))
    result = set(known.static)
    several = isinstance(argnames, (list, tuple, set, frozenset))
    for name in argnames if several else () if argnames is None else (argnames,):
        if not isinstance(name, str) or name not in known.names:
            raise ArgumentError(
                with_location(
                    f"{word} of {known.name} has {brief(name)}, but its parameters are "
                    f"{', '.join(known.names) or 'none'}"
                )
            )
        result.add(known.names.index(name))
    return frozenset(result)


DifferentiatedFlags = Sequence[bool]
"""For each operand, whether it is differentiated."""


@dataclass(frozen=True)
class CustomCall:
    """A call inside of a trace: `tracers` are the leaves of the arguments that may be
    differentiated, and `args` has `None` in place of these arguments."""

    name: str
    args: list[PyTree]
    nondiff_positions: frozenset[int]
    tracers: list[Tracer]
    structure: tree.PyTreeDef
    names: list[str]
    trace: Trace
    context: Context

    @classmethod
    def of(cls, fun: UserFunction, args: list[PyTree], fixed: frozenset[int]) -> "CustomCall":
        known = Parameters.of(fun)
        moving = tuple(arg for i, arg in enumerate(args) if i not in fixed)
        labels = [
            label
            for i, arg in enumerate(args)
            if i not in fixed
            for label in leaf_labels(known.label(i), arg)
        ]
        leaves, structure = tree.flatten(moving)
        for leaf, label in zip(leaves, labels, strict=True):
            if not is_array_like(leaf):
                raise NotAnArrayError(
                    with_location(
                        f"argument {label} of {known.name} is "
                        f"{brief_with_type(leaf)} and not an array; list it in nondiff_argnums"
                    )
                )
        trace = require_trace(known.name)
        tracers = [x.alias() for x in map(as_tracer, leaves)]
        kept = [arg if i in fixed else None for i, arg in enumerate(args)]
        trace.program.internal_tracers += tracers
        trace.program.internal_tracers += [x for x in tree.leaves(kept) if isinstance(x, Tracer)]
        return cls(known.name, kept, fixed, tracers, structure, labels, trace, copy_context())

    @property
    def abstracts(self) -> list[AbstractValue]:
        return [tracer.abstract for tracer in self.tracers]

    @property
    def nondiff_arguments(self) -> list[PyTree]:
        """The arguments that have no derivative."""
        return [self.args[i] for i in sorted(self.nondiff_positions) if i < len(self.args)]

    def varying_axes(self, block: Block) -> list[Varying]:
        """Return the varying axes of the results of a block that takes the arguments."""
        now = require_trace(self.name)
        where = self.trace if self.trace.program is now.program else now

        def infer() -> list[Varying]:
            with use_trace(where):
                return varying_axes_of_returns(block, varying_axes_of(self.tracers))

        return self.context.copy().run(infer)

    def inexact_tracers(self) -> list[Tracer]:
        """Return the leaves that have tangents."""
        return [x for x in self.tracers if x.value.type.dtype in INEXACT]

    def diff_arguments(self, leaves: Sequence[object]) -> tuple[PyTree, ...]:
        """Return the differentiable arguments with other leaves."""
        filled: tuple[object, ...] = tree.unflatten(self.structure, leaves)
        return filled

    def all_arguments(self, leaves: Sequence[object]) -> list[Tracer]:
        """Return all arguments, with other leaves in the differentiable ones."""
        given = iter(self.diff_arguments(leaves))
        return [
            arg if i in self.nondiff_positions else next(given) for i, arg in enumerate(self.args)
        ]

    def trace_primal(self, fun: UserFunction) -> "Primal":
        """Trace the function as a block."""
        found: list[tree.PyTreeDef] = []

        def flat(*leaves: Tracer) -> list[Tracer]:
            out, structure = tree.flatten(fun(*self.all_arguments(leaves)))
            found.append(structure)
            return [result_tracer(x, i, structure, self.name) for i, x in enumerate(out)]

        block, results = trace_block(
            flat, self.abstracts, self.name, self.names, self.tracers, inputs=self.tracers
        )
        # A transformation inside of the function refers to values by their final names, which are
        # other values than the parameters.
        block = substitute(block, require_trace(self.name).program.unnamed_values)
        return Primal(block, results, found[-1], block.captures())

    def trace_rule(
        self,
        fun: Callable[..., Sequence[Tracer]],
        params: Sequence[AbstractValue],
        name: str,
        names: Sequence[str] = (),
        origins: Sequence[Tracer | Varying | None] = (),
    ) -> tuple[Block, tuple[AbstractValue, ...]]:
        """Trace a rule in the trace and the context of the call.

        `origins` are the values that parameters represent, or the manual axes along which they
        vary.
        """
        now = require_trace(name)
        where = self.trace if self.trace.program is now.program else now
        arguments = origins[: len(self.tracers)]
        inputs = [origin for origin in arguments if isinstance(origin, Tracer)]

        def trace() -> tuple[Block, tuple[AbstractValue, ...]]:
            with use_trace(where):
                function, results = trace_function(fun, params, name, names, origins, inputs)
            return function.body, results

        return self.context.copy().run(trace)

    def emit_with_rule(
        self,
        spec: str,
        primal: "Primal",
        rule: Callable[[DifferentiatedFlags], tuple[Block, ...]],
        name: str = "",
        sums_gradients: bool = False,
    ) -> PyTree:
        """Emit the operation of the call, with the derivative `rule`; return its results as a
        pytree.

        `rule` receives a flag for each operand, traced operands first, that states whether it is
        differentiated.
        """
        attrs = {"closed": len(primal.captures)} if primal.captures else {}
        axis_names = {axis: each.name for each in bound_axes().values() for axis in each.axes}
        axes = tuple(varying_axes_of(self.tracers))
        named = DerivativeRule(rule, tuple(self.names), axis_names, sums_gradients, axes)
        return self.emit_operation(
            spec, primal, rule=HostFunction(name or self.name, named), **attrs
        )

    def emit_operation(self, spec: str, primal: "Primal", **attrs: Attr) -> PyTree:
        """Emit the function as an operation on the arguments and its captured values."""
        closed = primal.captures
        params = [replace(value) for value in closed]
        block = substitute(primal.block, dict(zip(closed, params, strict=True)))
        block = replace(block, params=(*primal.block.params, *params))
        results = emit_results(
            spec, *self.tracers, *map(wrap_value, closed), blocks=(block,), **attrs
        )
        weak = [abstract.weak for abstract in primal.results]
        return tree.unflatten(primal.structure, set_weak_types(results, weak))


@dataclass(frozen=True)
class Primal:
    """A function as a block; `captures` are its captured values."""

    block: Block
    results: tuple[AbstractValue, ...]
    structure: tree.PyTreeDef
    captures: tuple[Value, ...]

    def cotangent_axes(self, call: CustomCall) -> list[Varying]:
        """Return the varying axes of the cotangents of the results, which are those of the
        results."""
        each = zip(call.varying_axes(self.block), self.results, strict=True)
        return [varies for varies, result in each if result.type.dtype in INEXACT]

    def parametrize_captures(
        self, block: Block, call: CustomCall, what: str
    ) -> tuple[Block, tuple[Value, ...]]:
        """Return a block of a rule with parameters for the captures of the function, and the
        parameters.

        Raises `LeakedTracerError` if the rule uses another value of a trace that has ended.
        """
        program = call.trace.program
        params = tuple(Value(v.type, program.names.fresh(v.name)) for v in self.captures)
        named = {program.named_value(v): p for v, p in zip(self.captures, params, strict=True)}
        whole = substitute(block, named)
        left = set(whole.captures())
        trace: Trace | None = call.trace if left else None
        while trace is not None:
            if trace.has_ended:
                values = [*trace.params, *(v for op in trace.ops for v in op.results)]
                for value in map(program.named_value, values):
                    if value in left:
                        raise LeakedTracerError(
                            with_location(
                                f"{what} of {call.name} uses a traced {value.type} of "
                                f"{trace.what}, whose trace has ended; pass it to {call.name} as "
                                "an argument"
                            )
                        )
            trace = trace.parent
        return whole, params


@with_constructor_errors
@dataclass(frozen=True)
class SymbolicZero:
    """A zero of a type that is never computed.

    A rule of `custom_jvp` with `symbolic_zeros` gets one for each argument that is not
    differentiated, and may return one.
    """

    aval: ShapedArray
    """The type of the zero, such as `typeof(x).to_tangent_aval()`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the zero."""
        return self.aval.shape

    @property
    def dtype(self) -> DType:
        """The element type of the zero."""
        return self.aval.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions of the zero."""
        return self.aval.ndim


def symbolic_zero(a: AbstractValue) -> SymbolicZero:
    """Return the zero tangent of a value; that of an integer has the empty type `float0`."""
    return SymbolicZero(ShapedArray(a.type.shape, user_dtype(a.type.dtype)).to_tangent_aval())


def check_rule_leaf(x: object, expected: AbstractValue, what: str) -> Tracer:
    """Return a leaf that a rule returned as a tracer of the type `expected`; `None`, `float0` and
    a `SymbolicZero` give zeros."""
    if x is None or isinstance(x, SymbolicZero) or getattr(x, "dtype", None) == FLOAT0:
        return splat(0, expected.type)
    if not is_array_like(x):
        raise DifferentiateError(
            with_location(f"{what} is {brief_with_type(x)}, which is not an array")
        )
    tracer = as_tracer(x)
    if tracer.value.type != expected.type:
        same = tracer.shape == expected.type.shape
        if not same or not (tracer.weak_type or expected.weak):
            raise DifferentiateError(
                with_location(f"{what} is {tracer.value.type}, and it must be {expected.type}")
            )
    return convert(tracer, expected.type.dtype)


def check_rule_structure(
    error: type[ShardirError],
    what: str,
    part: str,
    found: tree.PyTreeDef,
    model: str,
    expected: tree.PyTreeDef,
) -> None:
    """Raise `error` unless `part` of the result of a rule is in the containers of `model`.

    `what` names the rule, as in "the rule of f".
    """
    if found != expected:
        raise error(
            with_location(
                f"{what} returned {part} in the containers {format_structure(found)}; return "
                f"{part} in those of {model}, {format_structure(expected)}"
            )
        )


def inexact_abstracts(abstracts: Sequence[AbstractValue]) -> list[AbstractValue]:
    """Return the abstract values that have derivatives."""
    return [abstract for abstract in abstracts if abstract.type.dtype in INEXACT]
