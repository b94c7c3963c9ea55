"""Evaluation of jaxprs, equation by equation, in the current trace.

The equations become operations of the current trace, so that all transformations of traced
functions (differentiation, batching, partitioning) apply to them.
"""

from collections.abc import Sequence
from typing import TypeAlias

import jax
import numpy as np
from jax.extend import core

from shardir.errors import count_noun
from shardir.frontend.arrays.array import Array, from_numpy
from shardir.frontend.interop.equation_locations import EquationLocations
from shardir.frontend.interop.jax_shardings import constrain_to_typed_sharding, convert_array
from shardir.frontend.interop.primitive_aliases import canonical_name
from shardir.frontend.interop.primitive_lowering import NotLoweredError, apply_lowered
from shardir.frontend.interop.primitive_rules.registry import (
    FLOAT0,
    RULES,
    Equation,
    ImportedProgramError,
    LiteralScalar,
    NestedJaxprReader,
    Operand,
    RuleResult,
    UnknownPrimitiveError,
    dtype_name_of,
)
from shardir.frontend.interop.refused_primitives import reason_for_refusal
from shardir.frontend.lax.control_flow.body_tracing import set_weak_types
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.source_locations import override_position, with_location
from shardir.frontend.tracing.operands import MAX_CONSTANT_BYTES, as_tracer
from shardir.frontend.tracing.trace import use_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import TensorType

Constants: TypeAlias = dict[int, tuple[jax.typing.ArrayLike, Array]]
"""Constants of jaxprs as arrays, by identity; the constant itself keeps its identity unique."""


class JaxprReader(NestedJaxprReader):
    """An evaluator of the jaxprs of one call."""

    def __init__(
        self, constants: dict[int, tuple[jax.typing.ArrayLike, Array]] | None = None
    ) -> None:
        self._places = EquationLocations()
        self._constants = {} if constants is None else constants

    def read(self, closed: core.ClosedJaxpr, args: Sequence[Operand]) -> list[Tracer]:
        return self.read_open(closed.jaxpr, closed.consts, args)

    def read_open(
        self,
        jaxpr: core.Jaxpr,
        consts: Sequence[jax.typing.ArrayLike],
        args: Sequence[Operand],
    ) -> list[Tracer]:
        values: dict[core.Var, Tracer | LiteralScalar] = {}
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            values[variable] = self.constant(const)
        values.update(zip(jaxpr.invars, args, strict=True))

        def value_of(atom: core.Var | core.Literal) -> Tracer | LiteralScalar:
            return self.literal(atom) if isinstance(atom, core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            with override_position(self._places.locate(equation)):
                results = self._apply(equation, [value_of(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        found = [value_of(atom) for atom in jaxpr.outvars]
        return [x.tracer() if isinstance(x, LiteralScalar) else x for x in found]

    def literal(self, literal: core.Literal) -> Tracer | LiteralScalar:
        """Return the value of a literal operand."""
        value, aval = literal.val, literal.aval
        if aval.shape or aval.dtype == FLOAT0:
            return self.constant(value)
        return LiteralScalar(
            np.asarray(value).item(), dtype_name_of(aval.dtype), bool(aval.weak_type)
        )

    def constant(self, value: jax.typing.ArrayLike) -> Tracer:
        """Return an array constant of a jaxpr as a tracer."""
        if isinstance(value, Tracer):
            return value
        if value.dtype == FLOAT0:
            return as_tracer(np.zeros(value.shape, bool))
        known = self._constants.get(id(value))
        if known is None:
            with use_trace(None):  # This is an array, not a value of the current program.
                array = convert_array(value)
            if not isinstance(array, Array):
                array = np.asarray(array)
                if array.nbytes <= MAX_CONSTANT_BYTES:
                    return as_tracer(array)
                array = from_numpy(array)
            known = self._constants[id(value)] = value, array
        return as_tracer(known[1])

    def _apply(self, equation: core.JaxprEqn, operands: list[Operand]) -> list[Tracer]:
        name = canonical_name(equation.primitive.name)
        avals = [variable.aval for variable in equation.outvars]
        params = {key: _to_python_integers(value) for key, value in equation.params.items()}
        found = _apply_rule(Equation(name, params, operands, avals, self, equation))
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        # Operations of JAX that accept `out_sharding` store it under this name.
        sharding = params.get("out_sharding")
        tracers = [constrain_to_typed_sharding(as_tracer(x), sharding) for x in results]
        if len(tracers) != len(avals):
            raise ImportedProgramError(
                with_location(
                    f"{name} of JAX has {count_noun(len(avals), 'result')}, but its rule has "
                    f"{len(tracers)}"
                )
            )
        for tracer, aval in zip(tracers, avals, strict=True):
            _check_result_type(name, tracer, aval)
        return set_weak_types(tracers, [bool(getattr(aval, "weak_type", False)) for aval in avals])


def _apply_rule(equation: Equation) -> RuleResult:
    """Return the result of the rule of an equation, or of the operations to which JAX lowers it.

    Raise `UnknownPrimitiveError` if it has neither.
    """
    name = equation.name
    rule = RULES.get(name)
    refusal = reason_for_refusal(name) if rule is None else None
    if refusal is None:
        try:
            return apply_lowered(equation) if rule is None else rule(equation)
        except NotLoweredError as error:
            refusal = (
                str(error),
                ("compute it by other functions of jax.lax, or by jax.pure_callback on the host"),
            )
    reason, alternative = refusal
    raise UnknownPrimitiveError(
        with_location(f"the primitive {name!r} of JAX has no rule: {reason}; {alternative}")
    )


def _to_python_integers(param: PyTree) -> PyTree:
    """Replace NumPy integers in a parameter by Python integers."""
    if type(param) in (tuple, list):
        return type(param)(map(_to_python_integers, param))
    return int(param) if isinstance(param, np.integer) else param


def _check_result_type(name: str, tracer: Tracer, aval: jax.core.ShapedArray) -> None:
    """Raise `ImportedProgramError` if a result has another type than in JAX."""
    expected = TensorType(tuple(aval.shape), dtype_name_of(aval.dtype))
    if tracer.value.type != expected:
        raise ImportedProgramError(
            with_location(
                f"{name} of JAX returns {expected}, but its rule returns {tracer.value.type}"
            )
        )
