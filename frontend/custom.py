"""Shared parts of functions with custom derivative rules.

Inside of a trace, a call of such a function is one operation that holds the function as a block.
Its rule is traced when a derivative needs it, in the trace context of the call. A rule of a rule is
therefore traced only when it is needed, and a rule may call the function itself.
"""

import inspect
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, replace
from typing import Any

from shardir.build import substitute
from shardir.errors import DifferentiateError
from shardir.frontend import tree
from shardir.frontend.calling import is_array_like, returned
from shardir.frontend.errors import ArgumentError, LeakedTracerError, NotAnArrayError
from shardir.frontend.lax.blocks import several, with_kinds
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer, convert, splat
from shardir.frontend.parameters import Parameters, labels_of
from shardir.frontend.promotion import Abstract
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.trace import (
    Trace,
    emit,
    require,
    resumed,
    trace_block,
    trace_function,
    wrap,
)
from shardir.frontend.tracer import Tracer
from shardir.frontend.varying import vma_of, vma_of_returns
from shardir.frontend.wrt import NO_GRADIENT
from shardir.hosted import Hosted
from shardir.ir import Block, Value
from shardir.types import INEXACT
from shardir.vma import Varying


def positional(fun: Callable[..., Any], name: str, args: Any, options: dict[str, Any]) -> list[Any]:
    """Return all arguments of a call by position, including defaults; raises `ArgumentError`."""
    if not options:
        try:
            inspect.signature(fun)
        except (TypeError, ValueError):
            return list(args)
    try:
        bound = inspect.signature(fun).bind(*args, **options)
    except TypeError as error:
        raise ArgumentError(point(f"{name}: {error}")) from None
    bound.apply_defaults()
    if bound.kwargs:
        raise ArgumentError(
            point(
                f"{name} has a custom derivative rule, so all its arguments must be positional, "
                f"and {', '.join(bound.kwargs)} can only be given by name"
            )
        )
    return list(bound.args)


def numbers(fun: Callable[..., Any], word: str, argnums: Any, argnames: Any) -> frozenset[int]:
    """Return the positions of arguments that have no derivative."""
    known = Parameters.of(fun, argnums, None, word=word.removesuffix("_argnames"))
    found = set(known.static)
    several = isinstance(argnames, (list, tuple, set, frozenset))
    for name in argnames if several else () if argnames is None else (argnames,):
        if not isinstance(name, str) or name not in known.names:
            raise ArgumentError(
                point(
                    f"{word} of {known.name} has {brief(name)}, but its parameters are "
                    f"{', '.join(known.names) or 'none'}"
                )
            )
        found.add(known.names.index(name))
    return frozenset(found)


Moves = Sequence[bool]
"""For each operand, whether it is differentiated."""


@dataclass(frozen=True)
class Call:
    """A call inside of a trace: `tracers` are the leaves of the arguments that may be
    differentiated."""

    name: str
    args: list[Any]
    fixed: frozenset[int]
    tracers: list[Tracer]
    structure: tree.PyTreeDef
    names: list[str]
    trace: Trace
    context: Context

    @classmethod
    def of(cls, fun: Callable[..., Any], args: list[Any], fixed: frozenset[int]) -> "Call":
        known = Parameters.of(fun)
        moving = tuple(arg for i, arg in enumerate(args) if i not in fixed)
        labels = [
            label
            for i, arg in enumerate(args)
            if i not in fixed
            for label in labels_of(known.label(i), arg)
        ]
        leaves, structure = tree.flatten(moving)
        for leaf, label in zip(leaves, labels, strict=True):
            if not is_array_like(leaf):
                raise NotAnArrayError(
                    point(
                        f"argument {label} of {known.name} is "
                        f"{brief_with_type(leaf)} and no array; list it in nondiff_argnums"
                    )
                )
        tracers = [as_tracer(leaf) for leaf in leaves]
        trace = require(known.name)
        return cls(known.name, args, fixed, tracers, structure, labels, trace, copy_context())

    @property
    def abstracts(self) -> list[Abstract]:
        return [tracer.abstract for tracer in self.tracers]

    @property
    def rest(self) -> list[Any]:
        """The arguments that have no derivative."""
        return [self.args[i] for i in sorted(self.fixed) if i < len(self.args)]

    def varies(self, block: Block) -> list[Varying]:
        """Return the varying axes of the results of a block that takes the arguments."""
        now = require(self.name)
        where = self.trace if self.trace.program is now.program else now

        def infer() -> list[Varying]:
            with resumed(where):
                return vma_of_returns(block, vma_of(self.tracers))

        return self.context.copy().run(infer)

    def moving_tracers(self) -> list[Tracer]:
        """Return the leaves that have tangents."""
        return [x for x in self.tracers if x.value.type.dtype in INEXACT]

    def moving(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Return the differentiable arguments with other leaves."""
        filled: tuple[Any, ...] = tree.unflatten(self.structure, leaves)
        return filled

    def filled(self, leaves: Sequence[Any]) -> list[Any]:
        """Return all arguments, with other leaves in the differentiable ones."""
        given = iter(self.moving(leaves))
        return [arg if i in self.fixed else next(given) for i, arg in enumerate(self.args)]

    def primal(self, fun: Callable[..., Any]) -> "Primal":
        """Trace the function as a block."""
        found: list[tree.PyTreeDef] = []

        def flat(*leaves: Tracer) -> list[Tracer]:
            out, structure = tree.flatten(fun(*self.filled(leaves)))
            found.append(structure)
            return [returned(x, i, structure, self.name) for i, x in enumerate(out)]

        block, results = trace_block(flat, self.abstracts, self.name, self.names, self.tracers)
        return Primal(block, results, found[-1], block.captures())

    def trace_rule(
        self,
        fun: Callable[..., Sequence[Tracer]],
        params: Sequence[Abstract],
        name: str,
        names: Sequence[str] = (),
        origins: Sequence[Tracer | Varying | None] = (),
    ) -> tuple[Block, tuple[Abstract, ...]]:
        """Trace a rule in the trace and the context of the call.

        `origins` are the values that parameters represent, or the manual axes along which they
        vary.
        """
        now = require(name)
        where = self.trace if self.trace.program is now.program else now

        def trace() -> tuple[Block, tuple[Abstract, ...]]:
            with resumed(where):
                function, results = trace_function(fun, params, name, names, origins)
            return function.body, results

        return self.context.copy().run(trace)

    def emit(
        self,
        spec: str,
        primal: "Primal",
        rule: Callable[[Moves], tuple[Block, ...]],
        name: str = "",
    ) -> Any:
        """Emit the operation of the call, with the derivative `rule`; return its results as a
        pytree.

        `rule` receives a flag for each operand, `tracers` first, that states whether it is
        differentiated.
        """
        attrs = {"closed": len(primal.closed)} if primal.closed else {}
        return self.applied(spec, primal, rule=Hosted(name or self.name, rule), **attrs)

    def applied(self, spec: str, primal: "Primal", **attrs: Any) -> Any:
        """Emit the function as an operation on the arguments and its captured values."""
        closed = primal.closed
        params = [replace(value) for value in closed]
        block = substitute(primal.block, dict(zip(closed, params, strict=True)))
        block = replace(block, params=(*primal.block.params, *params))
        made = emit(spec, *self.tracers, *map(wrap, closed), blocks=(block,), **attrs)
        weak = [abstract.weak for abstract in primal.results]
        return tree.unflatten(primal.structure, with_kinds(several(made), weak))


@dataclass(frozen=True)
class Primal:
    """A function as a block; `captures` are its captured values."""

    block: Block
    results: tuple[Abstract, ...]
    structure: tree.PyTreeDef
    closed: tuple[Value, ...]

    def cotangents(self, call: Call) -> list[Varying]:
        """Return the varying axes of the cotangents of the results, which are those of the
        results."""
        each = zip(call.varies(self.block), self.results, strict=True)
        return [varies for varies, result in each if result.type.dtype in INEXACT]

    def given(self, block: Block, call: Call, what: str) -> tuple[Block, tuple[Value, ...]]:
        """Return a block of a rule with parameters for the captures of the function, and the
        parameters.

        Raises `LeakedTracerError` if the rule uses another value of a trace that has ended.
        """
        program = call.trace.program
        params = tuple(Value(v.type, program.names.fresh(v.name)) for v in self.closed)
        named = {program.named(v): p for v, p in zip(self.closed, params, strict=True)}
        whole = substitute(block, named)
        left = set(whole.captures())
        trace: Trace | None = call.trace if left else None
        while trace is not None:
            if trace.ended:
                values = [*trace.params, *(v for op in trace.ops for v in op.results)]
                for value in map(program.named, values):
                    if value in left:
                        raise LeakedTracerError(
                            point(
                                f"{what} of {call.name} uses a traced {value.type} of "
                                f"{trace.what}, whose trace has ended; pass it to {call.name} as "
                                "an argument"
                            )
                        )
            trace = trace.parent
        return whole, params


def fitted(x: Any, wanted: Abstract, what: str) -> Tracer:
    """Return a leaf that a rule returned as a tracer of the type `wanted`; `None` and `float0` give
    zeros."""
    if x is None or getattr(x, "dtype", None) == NO_GRADIENT:
        return splat(0, wanted.type)
    if not is_array_like(x):
        raise DifferentiateError(point(f"{what} is {brief_with_type(x)}, which is no array"))
    tracer = as_tracer(x)
    if tracer.value.type != wanted.type:
        same = tracer.shape == wanted.type.shape
        if not same or not (tracer.weak_type or wanted.weak):
            raise DifferentiateError(
                point(f"{what} is {tracer.value.type}, and it must be {wanted.type}")
            )
    return convert(tracer, wanted.type.dtype)


def moving(abstracts: Sequence[Abstract]) -> list[Abstract]:
    """Return the abstract values that have derivatives."""
    return [abstract for abstract in abstracts if abstract.type.dtype in INEXACT]
