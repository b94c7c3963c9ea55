"""Rules of functions with custom derivatives.

The primal computation is read into the current trace. When a derivative is taken, JAX traces the
custom rule, and that jaxpr is read instead. Therefore rules with symbolic zeros, with residuals of
any kind and nested rules behave as in JAX.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import TypeAlias, TypeVar

import jax
import numpy as np
from jax.extend import core

from shardir.frontend.interop.jax_tracing import jax_struct_of, trace_to_jaxpr
from shardir.frontend.interop.primitive_rules.registry import (
    FLOAT0,
    Equation,
    ImportedProgramError,
    Operand,
    register_rule,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.frontend.transforms.custom_rules import SymbolicZero
from shardir.frontend.transforms.custom_vjp import CustomVJPPrimal, with_derived_vjp
from shardir.ir.types import INEXACT

Moved: TypeAlias = tuple[tuple[Tracer, ...], tuple[Tracer | None, ...]]
"""Results with their tangents; `None` where there is none."""
Value = TypeVar("Value")
"""A value of a variable: a tracer of shardir, or a value of JAX."""


def _read_rule(
    alone: "IsolatedEquation", rule: UserFunction, *groups: Sequence[Tracer]
) -> list[Tracer]:
    """Return the results of a derivative rule, which JAX traces without manual axes.

    Raises `ImportedProgramError` for values of other traces, and for collectives: the derivative of
    one depends on the types that only the trace of the whole program has.
    """
    try:
        program, _ = trace_to_jaxpr(rule, [[jax_struct_of(x) for x in group] for group in groups])
        return alone.equation.reader.read(program, list(chain.from_iterable(groups)))
    except (jax.errors.UnexpectedTracerError, jax.errors.TracerArrayConversionError):
        problem = "uses a value of an enclosing function whose JAX trace has ended"
        remedy = "pass the value as an argument, or "
    except NameError as error:
        if "unbound axis name" not in str(error):
            raise
        problem, remedy = "communicates between the devices of a shard_map of JAX", ""
    raise ImportedProgramError(
        with_location(
            f"the derivative of {alone.name} {problem}; {remedy}take the gradient by jax.grad "
            "inside of from_jax"
        )
    )


def _variables(atoms: Sequence[core.Var | core.Literal]) -> list[core.Var]:
    """Return the distinct variables among the atoms; tangents of integers have no values."""
    return list(
        dict.fromkeys(
            atom
            for atom in atoms
            if not isinstance(atom, core.Literal) and atom.aval.dtype != FLOAT0
        )
    )


class IsolatedEquation:
    """One equation as a function of the distinct variables among its operands.

    `args` are their values, `moving` the indices of those that have derivatives. Those in `closed`
    have none: arrays that the function closes over, for which its rule has no derivative.
    """

    def __init__(self, equation: Equation) -> None:
        source, count = equation.source, equation.params.get("num_consts", 0)
        given = _variables(source.invars[count:])
        referred = [each for each in _variables(source.invars[:count]) if each not in given]
        self.equation = equation
        self.variables = given + referred
        args = [equation.tracers[source.invars.index(v)] for v in self.variables]
        self.args, self.closed = args[: len(given)], args[len(given) :]
        self.differentiable = [i for i, x in enumerate(self.args) if x.value.type.dtype in INEXACT]
        self.inexact = [
            bool(jax.dtypes.issubdtype(aval.dtype, jax.numpy.inexact)) for aval in equation.results
        ]

    def operands(self, args: Sequence[Tracer]) -> list[Operand]:
        """Return the operands of the equation for other values of its variables."""
        known = dict(zip(self.variables, args, strict=True))
        return [
            operand if isinstance(atom, core.Literal) else known.get(atom, operand)
            for atom, operand in zip(
                self.equation.source.invars, self.equation.operands, strict=True
            )
        ]

    @property
    def name(self) -> str:
        """Return the name of the function, if JAX recorded it."""
        params = self.equation.params
        program = params.get("call_jaxpr") or params.get("fun_jaxpr")
        about = getattr(getattr(program, "jaxpr", None), "debug_info", None)
        return getattr(about, "func_name", self.equation.name)

    def all_values(self, args: Sequence[Tracer]) -> list[Tracer]:
        """Return the values of all variables for these arguments."""
        return [*args, *self.closed]

    @cached_property
    def as_jax_function(self) -> Callable[..., Sequence[jax.Array]]:
        """Return the equation as a function of JAX values."""
        source = self.equation.source
        outs = [core.Var(variable.aval) for variable in source.outvars]
        about = core.DebugInfo("from_jax", self.equation.name, None, None)
        body = source.replace(outvars=outs)
        given = dict.fromkeys(x for x in source.invars if not isinstance(x, core.Literal))
        empty = [variable for variable in given if variable not in self.variables]
        program = core.Jaxpr(empty, self.variables, outs, [body], debug_info=about)
        empty_values = [np.zeros(atom.aval.shape, FLOAT0) for atom in empty]
        function: Callable[..., Sequence[jax.Array]] = core.jaxpr_as_fun(
            core.ClosedJaxpr(program, empty_values)
        )
        return function

    def call_implementation(self, *args: jax.Array) -> Sequence[jax.Array]:
        """Return the results of the Python function that implements the primitive in JAX."""
        source = self.equation.source
        known = dict(zip(self.variables, args, strict=True))
        operands = [
            atom.val
            if isinstance(atom, core.Literal)
            else known[atom]
            if atom in known
            else np.zeros(atom.aval.shape, FLOAT0)
            for atom in source.invars
        ]
        results: Sequence[jax.Array] = source.primitive.impl(*operands, **source.params)
        return results

    def call_with_replaced(
        self, args: Sequence[jax.Array], indices: Sequence[int], values: Sequence[jax.Array]
    ) -> list[jax.Array]:
        """Return all results, with the arguments at the indices `indices` replaced."""
        all_args = list(args)
        for i, x in zip(indices, values, strict=True):
            all_args[i] = x
        return list(self.as_jax_function(*all_args))

    def split_results(self, results: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Split results into those with derivatives and the others."""
        pairs = list(zip(results, self.inexact, strict=True))
        with_derivatives = [y for y, is_inexact in pairs if is_inexact]
        return with_derivatives, [y for y, is_inexact in pairs if not is_inexact]

    def join_results(self, inexact: Sequence[Value], others: Sequence[Value]) -> list[Value]:
        """Undo `split_results`: return the results in order."""
        first, second = iter(inexact), iter(others)
        return [next(first) if is_inexact else next(second) for is_inexact in self.inexact]


def apply_with_jax_jvp(
    alone: IsolatedEquation, primal: Callable[..., tuple[Tracer, ...]]
) -> PyTree:
    """Return the results of `primal` with JAX's JVP of the equation as derivative."""

    def jvp(primals: Sequence[Tracer], tangents: Sequence[Tracer | SymbolicZero]) -> Moved:
        nonzero = {
            i: tangent
            for i in alone.differentiable
            if not isinstance(tangent := tangents[i], SymbolicZero)
        }
        indices, nonzero_tangents = list(nonzero), list(nonzero.values())

        def function(
            xs: Sequence[jax.Array], tangents_out: Sequence[jax.Array]
        ) -> tuple[list[jax.Array], list[jax.Array]]:
            some = [xs[i] for i in indices]
            results, out = jax.jvp(
                lambda *some: alone.call_with_replaced(xs, indices, some), some, tangents_out
            )
            return results, alone.split_results(out)[0]

        values = alone.all_values(primals)
        if not indices:
            return tuple(primal(*primals)), (None,) * len(alone.inexact)
        found = _read_rule(alone, function, values, nonzero_tangents)
        results, tangents_out = found[: len(alone.inexact)], found[len(alone.inexact) :]
        none = [None] * (len(results) - len(tangents_out))
        return tuple(results), tuple(alone.join_results(tangents_out, none))

    primal.__name__ = alone.name
    function = custom_jvp(primal)
    function.defjvp(jvp, symbolic_zeros=True)
    return function(*alone.args)


def apply_with_jax_vjp(
    alone: IsolatedEquation, primal: Callable[..., tuple[Tracer, ...]]
) -> PyTree:
    """Return the results of `primal` with JAX's VJP of the equation as derivative."""
    saved_structures: list[tuple[jax.tree_util.PyTreeDef, list[int]]] = []

    def forward(*args: CustomVJPPrimal) -> tuple[tuple[Tracer, ...], tuple[Tracer, ...]]:
        indices = [i for i in alone.differentiable if args[i].perturbed]

        def function(xs: Sequence[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
            some = [xs[i] for i in indices]
            moving, backward, others = jax.vjp(
                lambda *some: alone.split_results(alone.call_with_replaced(xs, indices, some)),
                *some,
                has_aux=True,
            )
            residuals, structure = jax.tree_util.tree_flatten(backward)
            saved_structures.append((structure, indices))
            return alone.join_results(moving, others), residuals

        known = alone.all_values([x.value for x in args])
        if not indices:
            saved_structures.append((None, indices))
            return tuple(primal(*(x.value for x in args))), ()
        result = _read_rule(alone, function, known)
        count = len(alone.inexact)
        return tuple(result[:count]), tuple(result[count:])

    def backward(
        residuals: Sequence[Tracer], cotangents: Sequence[Tracer]
    ) -> tuple[Tracer | None, ...]:
        given = alone.split_results(cotangents)[0]
        structure, indices = saved_structures[-1]
        if not indices:
            return (None,) * len(alone.args)

        def function(saved: Sequence[jax.Array], cts: Sequence[jax.Array]) -> PyTree:
            return structure.unflatten(saved)(list(cts))

        result = iter(_read_rule(alone, function, residuals, given))
        return tuple(next(result) if i in indices else None for i in range(len(alone.args)))

    primal.__name__ = alone.name
    return with_derived_vjp(primal, forward, backward, symbolic_zeros=True)(*alone.args)


@register_rule("custom_jvp_call")
def _apply_custom_jvp(equation: Equation) -> PyTree:
    alone, program = IsolatedEquation(equation), equation.params["call_jaxpr"]

    def primal(*args: Tracer) -> tuple[Tracer, ...]:
        return tuple(equation.reader.read(program, alone.operands(alone.all_values(args))))

    return apply_with_jax_jvp(alone, primal)


@register_rule("custom_vjp_call")
def _apply_custom_vjp(equation: Equation) -> PyTree:
    alone, params = IsolatedEquation(equation), equation.params
    program = params["call_jaxpr"] if "call_jaxpr" in params else params["fun_jaxpr"]

    def primal(*args: Tracer) -> tuple[Tracer, ...]:
        return tuple(equation.reader.read(program, alone.operands(alone.all_values(args))))

    return apply_with_jax_vjp(alone, primal)


@register_rule("custom_linear_solve")
def _apply_custom_linear_solve(equation: Equation) -> PyTree:
    """Solve by the equation's own solver; the gradient, a transposed solve, is JAX's."""
    alone, lengths = IsolatedEquation(equation), equation.params["const_lengths"]
    solve = equation.params["jaxprs"].solve
    before = lengths.matvec + lengths.vecmat

    def primal(*args: Tracer) -> tuple[Tracer, ...]:
        given = alone.operands(alone.all_values(args))
        consts = given[before : before + lengths.solve]
        return tuple(equation.reader.read(solve, [*consts, *given[sum(lengths) :]]))

    return apply_with_jax_vjp(alone, primal)
