"""Rules of functions with derivatives of their own.

What such a function computes is read as it is. How its results move, JAX is asked when somebody
takes the derivative: it traces the rule, and that program is read in its place. So rules with
symbolic zeros, with residuals of any kind and inside of each other are as JAX has them.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
from jax.extend import core

from shardir.frontend.custom_jvp import custom_jvp
from shardir.frontend.custom_vjp import custom_vjp
from shardir.frontend.interop.rules import Equation, rule
from shardir.frontend.interop.tracing import program_of, struct_of
from shardir.frontend.tracer import Tracer
from shardir.types import INEXACT


class Alone:
    """One equation as a function of the variables that it is applied to, each once.

    `args` are their values, `moving` the numbers of those that have derivatives.
    """

    def __init__(self, equation: Equation) -> None:
        source = equation.source
        self.equation = equation
        self.variables = list(
            dict.fromkeys(atom for atom in source.invars if not isinstance(atom, core.Literal))
        )
        self.args = [equation.tracers[source.invars.index(v)] for v in self.variables]
        self.moving = [i for i, x in enumerate(self.args) if x.value.type.dtype in INEXACT]
        self.inexact = [
            bool(jax.dtypes.issubdtype(aval.dtype, jax.numpy.inexact)) for aval in equation.results
        ]

    def operands(self, args: Sequence[Any]) -> list[Any]:
        """The operands of the equation for other values of its variables."""
        known = dict(zip(self.variables, args, strict=True))
        return [
            operand if isinstance(atom, core.Literal) else known[atom]
            for atom, operand in zip(
                self.equation.source.invars, self.equation.operands, strict=True
            )
        ]

    @cached_property
    def by_jax(self) -> Callable[..., Any]:
        """The function for values of JAX's."""
        source = self.equation.source
        outs = [core.Var(variable.aval) for variable in source.outvars]
        about = core.DebugInfo("from_jax", self.equation.name, None, None)
        body = source.replace(outvars=outs)
        program = core.Jaxpr((), self.variables, outs, [body], debug_info=about)
        function: Callable[..., Any] = core.jaxpr_as_fun(core.ClosedJaxpr(program, ()))
        return function

    def of_moving(self, args: Sequence[Any], some: Sequence[Any]) -> list[Any]:
        """All results, for other arguments in the places of those that have derivatives."""
        whole = list(args)
        for i, x in zip(self.moving, some, strict=True):
            whole[i] = x
        return list(self.by_jax(*whole))

    def parted(self, made: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Results that move, and the others."""
        pairs = list(zip(made, self.inexact, strict=True))
        return [y for y, moves in pairs if moves], [y for y, moves in pairs if not moves]

    def joined(self, moving: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        """The results in order."""
        first, second = iter(moving), iter(others)
        return [next(first) if moves else next(second) for moves in self.inexact]


def forward_by_jax(alone: Alone, primal: Callable[..., Any]) -> Any:
    """`primal`, whose tangents are those that JAX gives the equation."""
    reader = alone.equation.reader

    def jvp(primals: Sequence[Tracer], tangents: Sequence[Tracer]) -> Any:
        moved = [tangents[i] for i in alone.moving]

        def function(xs: Sequence[Any], slopes: Sequence[Any]) -> Any:
            some = [xs[i] for i in alone.moving]
            made, out = jax.jvp(lambda *some: alone.of_moving(xs, some), some, slopes)
            return made, alone.parted(out)[0]

        structs = [[struct_of(x) for x in primals], [struct_of(t) for t in moved]]
        program, _ = program_of(function, structs)
        found = reader.read(program, [*primals, *moved])
        made, slopes = found[: len(alone.inexact)], found[len(alone.inexact) :]
        none = [None] * (len(made) - len(slopes))
        return tuple(made), tuple(alone.joined(slopes, none))

    function = custom_jvp(primal)
    function.defjvp(jvp)
    return function(*alone.args)


def backward_by_jax(alone: Alone, primal: Callable[..., Any]) -> Any:
    """`primal`, whose gradient is the one that JAX gives the equation."""
    reader = alone.equation.reader
    kept: list[Any] = []

    def ahead(*args: Tracer) -> Any:
        def function(*xs: Any) -> Any:
            some = [xs[i] for i in alone.moving]
            moving, back, others = jax.vjp(
                lambda *some: alone.parted(alone.of_moving(xs, some)), *some, has_aux=True
            )
            residuals, structure = jax.tree_util.tree_flatten(back)
            kept.append(structure)
            return alone.joined(moving, others), residuals

        program, _ = program_of(function, [struct_of(x) for x in args])
        found = reader.read(program, list(args))
        count = len(alone.inexact)
        return tuple(found[:count]), tuple(found[count:])

    def back(residuals: Sequence[Tracer], cotangents: Sequence[Any]) -> Any:
        given = alone.parted(cotangents)[0]

        def function(saved: Sequence[Any], cts: Sequence[Any]) -> Any:
            return kept[-1].unflatten(saved)(list(cts))

        structs = [[struct_of(x) for x in residuals], [struct_of(x) for x in given]]
        program, _ = program_of(function, structs)
        found = iter(reader.read(program, [*residuals, *given]))
        return tuple(next(found) if i in alone.moving else None for i in range(len(alone.args)))

    function = custom_vjp(primal)
    function.defvjp(ahead, back)
    return function(*alone.args)


@rule("custom_jvp_call")
def _with_tangents(equation: Equation) -> Any:
    alone, program = Alone(equation), equation.params["call_jaxpr"]

    def primal(*args: Tracer) -> Any:
        return tuple(equation.reader.read(program, alone.operands(args)))

    return forward_by_jax(alone, primal)


@rule("custom_vjp_call")
def _with_gradient(equation: Equation) -> Any:
    alone, params = Alone(equation), equation.params
    program = params["call_jaxpr"] if "call_jaxpr" in params else params["fun_jaxpr"]

    def primal(*args: Tracer) -> Any:
        return tuple(equation.reader.read(program, alone.operands(args)))

    return backward_by_jax(alone, primal)


@rule("custom_linear_solve")
def _solved(equation: Equation) -> Any:
    """By its own solver; its gradient, a solve of the transposed system, is JAX's."""
    alone, lengths = Alone(equation), equation.params["const_lengths"]
    solve = equation.params["jaxprs"].solve
    before = lengths.matvec + lengths.vecmat

    def primal(*args: Tracer) -> Any:
        given = alone.operands(args)
        consts = given[before : before + lengths.solve]
        return tuple(equation.reader.read(solve, [*consts, *given[sum(lengths) :]]))

    return backward_by_jax(alone, primal)
