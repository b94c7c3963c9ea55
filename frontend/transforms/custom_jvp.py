"""`custom_jvp`: functions with a custom JVP rule."""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from shardir.errors import DifferentiateError, count_noun
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import call_user_function, with_method_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_function import CustomFunction, Result
from shardir.frontend.transforms.custom_rules import (
    CustomCall,
    DifferentiatedFlags,
    Primal,
    SymbolicZero,
    check_rule_leaf,
    check_rule_structure,
    inexact_abstracts,
    nondiff_positions,
    symbolic_zero,
)
from shardir.frontend.transforms.differentiated_arguments import FLOAT0
from shardir.ir.module import Block
from shardir.ir.types import INEXACT

JvpRule = UserFunction


@with_method_errors
@final
class custom_jvp(CustomFunction[Result]):
    """A function with a custom JVP rule.

    `f = custom_jvp(fun)`, then `f.defjvp(rule)` with `rule(primals, tangents)` that returns
    `(results, tangents of results)`, or `f.defjvps(rule_0, rule_1, ...)` with a `rule_i(tangent,
    results, *primals)`, or `None`, for each argument. Arguments in `nondiff_argnums` (or
    `nondiff_argnames`) have no derivative, need not be arrays, and come first in a call of the
    rule. Reverse-mode derivatives transpose the rule, which must be linear in the tangents.

    The rule applies wherever a caller of `f` is differentiated, including inside `vmap`, `jit` and
    loops. Raises `DifferentiateError` for a missing rule or an invalid result of the rule.
    """

    @with_argument_errors
    def __init__(
        self,
        fun: Callable[..., Result],
        nondiff_argnums: tuple[int, ...] = (),
        nondiff_argnames: object = (),
    ) -> None:
        super().__init__(
            fun, nondiff_positions(fun, "nondiff_argnames", nondiff_argnums, nondiff_argnames)
        )
        self._rule: JvpRule | None = None
        self._symbolic = False

    @property
    def nondiff_argnums(self) -> tuple[int, ...]:
        """The positions of the arguments that have no derivative."""
        return tuple(sorted(self._fixed))

    @property
    def jvp(self) -> JvpRule | None:
        """The rule, or `None` if it is not set."""
        return self._rule

    @property
    def symbolic_zeros(self) -> bool:
        """True if the rule takes `SymbolicZero` objects."""
        return self._symbolic

    def defjvp(self, jvp: JvpRule, symbolic_zeros: bool = False) -> JvpRule:
        """Set the rule and return it; may be used as a decorator.

        With `symbolic_zeros`, the tangent of an argument that is not differentiated is a
        `SymbolicZero`, and tangents of results may be.
        """
        if not callable(jvp):
            raise ArgumentError(
                with_location(f"defjvp of {self._name} takes a function, got {jvp!r}")
            )
        self._rule, self._symbolic = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: JvpRule | None) -> None:
        """Set the rule by one rule per argument, which returns its contribution to the tangent."""
        if self._fixed:
            raise ArgumentError(
                with_location(
                    f"defjvps of {self._name} does not support nondiff_argnums; use defjvp"
                )
            )

        for i, rule in enumerate(jvps):
            if rule is not None and not callable(rule):
                raise ArgumentError(
                    with_location(
                        f"rule {i} of defjvps of {self._name} is {rule!r}, which is not a function"
                    )
                )

        def jvp(primals: Sequence[PyTree], tangents: Sequence[PyTree]) -> tuple[Result, PyTree]:
            if len(jvps) != len(primals):
                raise DifferentiateError(
                    with_location(
                        f"defjvps of {self._name} was given {count_noun(len(jvps), 'rule')} for "
                        f"{count_noun(len(primals), 'argument')}; give one for each, or None"
                    )
                )
            out = self(*primals)
            parts = [
                call_user_function(rule, f"rule {i} of {self._name}", (tangent, out, *primals))
                for i, (rule, tangent) in enumerate(zip(jvps, tangents, strict=True))
                if rule is not None
            ]
            if not parts:
                return out, tree.map(lambda y: y * 0, out)
            return out, tree.map(_sum_parts, *parts)

        self.defjvp(jvp)

    def _check_rule(self) -> None:
        if self._rule is None:
            raise DifferentiateError(
                with_location(f"custom_jvp {self._name} has no rule; give it one with defjvp")
            )

    def _emit(self, call: CustomCall, primal: Primal) -> PyTree:
        rule, symbolic = self._rule, self._symbolic
        assert rule is not None

        def blocks(differentiated: DifferentiatedFlags) -> tuple[Block, ...]:
            return (_trace_rule(rule, differentiated if symbolic else None, call, primal),)

        return call.emit_with_rule("custom-jvp", primal, blocks)


def _sum_parts(first: Tracer, *rest: object) -> Tracer:
    for part in rest:
        first = first + part
    return first


def _trace_rule(
    rule: JvpRule, differentiated: DifferentiatedFlags | None, call: CustomCall, primal: Primal
) -> Block:
    """Return the rule as a block (operands..., closed..., tangents...) -> (results...,
    tangents...).

    If `differentiated` is given, the rule receives symbolic zeros for arguments without a tangent.
    """
    abstracts, what = call.abstracts, f"the rule of {call.name}"
    count = len(abstracts)

    def flat(*leaves: Tracer) -> list[Tracer]:
        return _call_rule(rule, differentiated, call, primal, leaves[:count], leaves[count:])

    names = [
        *call.names,
        *(
            f"{n}.tangent"
            for n, a in zip(call.names, abstracts, strict=True)
            if a.type.dtype in INEXACT
        ),
    ]
    params = [*abstracts, *inexact_abstracts(abstracts)]
    origins = [*call.tracers, *call.inexact_tracers()]
    block, _ = call.trace_rule(flat, params, what, names, origins)
    whole, closed = primal.parametrize_captures(block, call, "the rule")
    given = (*whole.params[:count], *closed, *whole.params[count:])
    return Block(given, whole.ops, whole.returns)


def _call_rule(
    rule: JvpRule,
    differentiated: DifferentiatedFlags | None,
    call: CustomCall,
    primal: Primal,
    primals: Sequence[Tracer],
    inexact_tangents: Sequence[Tracer],
) -> list[Tracer]:
    """Return the results of the rule, and the tangents of the inexact ones, as flat lists."""
    abstracts, what, given = call.abstracts, f"the rule of {call.name}", iter(inexact_tangents)
    tangents: list[object] = [
        next(given) if a.type.dtype in INEXACT else np.zeros(a.type.shape, FLOAT0)
        for a in abstracts
    ]
    if differentiated is not None:
        tangents = [
            tangent if is_differentiated and a.type.dtype in INEXACT else symbolic_zero(a)
            for tangent, is_differentiated, a in zip(
                tangents, differentiated, abstracts, strict=False
            )
        ]
    args = (*call.nondiff_arguments, call.diff_arguments(primals), call.diff_arguments(tangents))
    result = call_user_function(rule, what, args)
    if not (isinstance(result, (tuple, list)) and len(result) == 2):
        raise DifferentiateError(
            with_location(f"{what} must return (results, tangents); it returned {result!r}")
        )
    outs, structure = tree.flatten(result[0])
    tangents_out, found = tree.flatten(result[1], is_leaf=lambda x: x is None)
    for part, made in (("results", structure), ("tangents", found)):
        check_rule_structure(
            DifferentiateError, what, part, made, "the function's results", primal.structure
        )
    tangents_out = [None if isinstance(x, SymbolicZero) else x for x in tangents_out]
    expected = primal.results
    results = [
        check_rule_leaf(x, a, f"a result of {what}") for x, a in zip(outs, expected, strict=True)
    ]
    return results + [
        check_rule_leaf(x, a, f"a tangent of {what}")
        for x, a in zip(tangents_out, expected, strict=True)
        if a.type.dtype in INEXACT
    ]
