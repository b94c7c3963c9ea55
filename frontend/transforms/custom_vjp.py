"""`custom_vjp` and `custom_gradient`: functions with a custom VJP rule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from shardir.errors import DifferentiateError, count_noun
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.numpy_conversion import is_number
from shardir.frontend.call_signatures import (
    call_user_function,
    with_constructor_errors,
    with_method_errors,
)
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.operands import as_tracer, convert, operand_dtype
from shardir.frontend.tracing.parameters import function_name
from shardir.frontend.tracing.trace import current_trace, require_trace, wrap_value
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_function import CustomFunction
from shardir.frontend.transforms.custom_rules import (
    CustomCall,
    DifferentiatedFlags,
    Primal,
    bind_positional,
    check_rule_leaf,
    check_rule_structure,
    inexact_abstracts,
    nondiff_positions,
)
from shardir.frontend.transforms.differentiated_arguments import FLOAT0
from shardir.frontend.wrappers import wraps
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Value
from shardir.ir.types import FLOATS, INEXACT


@with_constructor_errors
@dataclass(frozen=True)
class CustomVJPPrimal:
    """An argument of a forward rule with `symbolic_zeros`; `perturbed` states if it is
    differentiated."""

    value: PyTree
    """The argument."""
    perturbed: bool = True
    """True if the argument is differentiated."""


@with_method_errors
@final
class custom_vjp(CustomFunction[PyTree]):
    """A function with a custom VJP rule.

    `f = custom_vjp(fun)`, then `f.defvjp(fwd, bwd)`: `fwd` takes the arguments and returns
    `(results, residuals)`, `bwd(residuals, cotangents)` returns a tuple with the gradient of each
    argument, `None` for zero. Arguments in `nondiff_argnums` (or `nondiff_argnames`) have no
    gradient, need not be arrays, and come first in a call of `bwd`. There is no forward-mode
    derivative.

    The rule applies wherever a caller of `f` is differentiated, including inside `vmap`, `jit` and
    loops. Raises `DifferentiateError` for a missing rule or an invalid result of the rule.
    """

    @with_argument_errors
    def __init__(
        self, fun: UserFunction, nondiff_argnums: object = (), nondiff_argnames: object = ()
    ) -> None:
        super().__init__(
            fun, nondiff_positions(fun, "nondiff_argnames", nondiff_argnums, nondiff_argnames)
        )
        self._rules: tuple[UserFunction, UserFunction, bool] | None = None
        self._sums_gradients = False

    @property
    def nondiff_argnums(self) -> tuple[int, ...]:
        """The positions of the arguments that have no gradient."""
        return tuple(sorted(self._fixed))

    @property
    def fwd(self) -> UserFunction | None:
        """The function that returns the results and the residuals, or `None` if it is not set."""
        return None if self._rules is None else self._rules[0]

    @property
    def bwd(self) -> UserFunction | None:
        """The function that returns the gradients, or `None` if it is not set."""
        return None if self._rules is None else self._rules[1]

    @property
    def symbolic_zeros(self) -> bool:
        """True if `fwd` states which arguments are differentiated."""
        return self._rules is not None and self._rules[2]

    optimize_remat: Final = False
    """False: the option of `defvjp` has no effect."""

    def defvjp(
        self,
        fwd: UserFunction,
        bwd: UserFunction,
        symbolic_zeros: bool = False,
        optimize_remat: bool = False,
    ) -> None:
        """Set the rule.

        With `symbolic_zeros`, `fwd` gets its arguments as objects with a `value` and the flag
        `perturbed`, which states whether the argument is differentiated. `optimize_remat` has no
        effect.
        """
        for rule in (fwd, bwd):
            if not callable(rule):
                raise ArgumentError(
                    with_location(f"defvjp of {self._name} takes functions, got {rule!r}")
                )
        self._rules = fwd, bwd, symbolic_zeros

    def _check_rule(self) -> None:
        if self._rules is None:
            raise DifferentiateError(
                with_location(f"custom_vjp {self._name} has no rule; give it one with defvjp")
            )

    def _emit(self, call: CustomCall, primal: Primal) -> PyTree:
        assert self._rules is not None
        fwd, bwd, symbolic = self._rules

        def rule(differentiated: DifferentiatedFlags) -> tuple[Block, ...]:
            return _trace_rules(fwd, bwd, differentiated if symbolic else None, call, primal)

        return call.emit_with_rule("custom-vjp", primal, rule, sums_gradients=self._sums_gradients)


def with_derived_vjp(
    fun: UserFunction, fwd: UserFunction, bwd: UserFunction, symbolic_zeros: bool = False
) -> custom_vjp:
    """Return a `custom_vjp` whose rule was derived from `fun` alone, without collectives.

    Inside of a manual computation its gradients are contributions of the devices, and are summed
    where an argument is shared.
    """
    function = custom_vjp(fun)
    function.defvjp(fwd, bwd, symbolic_zeros)
    function._sums_gradients = True
    return function


def _trace_rules(
    fwd: UserFunction,
    bwd: UserFunction,
    differentiated: DifferentiatedFlags | None,
    call: CustomCall,
    primal: Primal,
) -> tuple[Block, ...]:
    """Return the rules as blocks: (operands..., closed...) -> (results..., residuals...), and back.

    `differentiated` gives the flag `perturbed` of each argument of `fwd`, if it is not `None`.
    """
    kept: list[tuple[tree.PyTreeDef, list[object]]] = []
    forth, back = f"the forward rule of {call.name}", f"the backward rule of {call.name}"

    def ahead(*leaves: Tracer) -> list[Tracer]:
        given: Sequence[PyTree] = leaves
        if differentiated is not None:
            given = [
                CustomVJPPrimal(x, is_differentiated)
                for x, is_differentiated in zip(leaves, differentiated, strict=False)
            ]
        result = call_user_function(fwd, forth, call.all_arguments(given))
        if not (isinstance(result, (tuple, list)) and len(result) == 2):
            raise DifferentiateError(
                with_location(f"{forth} must return (results, residuals); it returned {result!r}")
            )
        results = _check_results(result[0], primal, forth)
        residuals, structure = tree.flatten(result[1])
        # As in JAX, the backward rule gets Python numbers as they are, and may branch on them.
        kept.append((structure, [x if is_number(x) else None for x in residuals]))
        return results + [
            result_tracer(x, i, structure, f"{forth}, as residuals,")
            for i, x in enumerate(residuals)
            if not is_number(x)
        ]

    first, results = call.trace_rule(ahead, call.abstracts, forth, call.names, call.tracers)
    residuals = results[len(primal.results) :]

    def backward(*leaves: Tracer) -> list[Tracer]:
        structure, numbers = kept[-1]
        arrays = iter(leaves)
        saved = tree.unflatten(structure, [next(arrays) if x is None else x for x in numbers])
        cotangents = _unflatten_cotangents(primal, leaves[len(residuals) :])
        return _check_gradients(
            call_user_function(bwd, back, (*call.nondiff_arguments, saved, cotangents)), call, back
        )

    params = [*residuals, *inexact_abstracts(primal.results)]
    varies = [*call.varying_axes(first)[len(primal.results) :], *primal.cotangent_axes(call)]
    last, _ = call.trace_rule(backward, params, back, (), varies)
    return _add_capture_parameters(first, last, call, primal)


def _add_capture_parameters(
    first: Block, last: Block, call: CustomCall, primal: Primal
) -> tuple[Block, ...]:
    ahead, closed = primal.parametrize_captures(first, call, "the forward rule")
    back, again = primal.parametrize_captures(last, call, "the backward rule")
    return (
        replace(ahead, params=(*ahead.params, *closed)),
        replace(back, params=(*back.params, *again)),
    )


def _check_results(out: object, primal: Primal, what: str) -> list[Tracer]:
    leaves, structure = tree.flatten(out)
    check_rule_structure(
        DifferentiateError, what, "results", structure, "the function's results", primal.structure
    )
    return [
        check_rule_leaf(x, a, f"a result of {what}")
        for x, a in zip(leaves, primal.results, strict=True)
    ]


def _unflatten_cotangents(primal: Primal, leaves: Sequence[Tracer]) -> PyTree:
    """Return cotangents in the structure of the results."""
    given = iter(leaves)
    return tree.unflatten(
        primal.structure,
        [
            next(given) if a.type.dtype in INEXACT else np.zeros(a.type.shape, FLOAT0)
            for a in primal.results
        ],
    )


def _check_gradients(made: object, call: CustomCall, what: str) -> list[Tracer]:
    """Return the result of a backward rule, one leaf for each argument leaf that has a gradient."""
    args = call.diff_arguments(call.tracers)
    if not isinstance(made, (tuple, list)) or len(made) != len(args):
        returned_text = f"{len(made)}" if isinstance(made, (tuple, list)) else repr(made)
        raise DifferentiateError(
            with_location(
                f"{what} must return a tuple with a gradient for each of "
                f"{count_noun(len(args), 'argument')}; it returned {returned_text}"
            )
        )
    leaves: list[Tracer] = []
    for arg, gradient in zip(args, made, strict=True):
        primals, structure = tree.flatten(arg)
        given = (
            [None] * len(primals)
            if gradient is None
            else _gradient_leaves(gradient, structure, what)
        )
        leaves += [
            check_rule_leaf(_round_gradient(x, like), like.abstract, f"a gradient of {what}")
            for x, like in zip(given, primals, strict=True)
            if like.value.type.dtype in INEXACT
        ]
    return leaves


def _round_gradient(gradient: Tracer | None, like: Tracer) -> Tracer | None:
    """Return a floating-point gradient in the element type of its argument; others are unchanged.

    Many gradients are computed in a wider type. An invalid gradient is refused later.
    """
    dtype = like.value.type.dtype
    if (
        not is_array_like(gradient)
        or operand_dtype(gradient)[0] not in FLOATS
        or dtype not in FLOATS
    ):
        return gradient
    return convert(as_tracer(gradient), dtype)


def _gradient_leaves(gradient: object, structure: tree.PyTreeDef, what: str) -> list[Tracer]:
    leaves, found = tree.flatten(gradient)
    if found == structure:
        return leaves
    leaves, found = tree.flatten(gradient, is_leaf=lambda x: x is None)
    check_rule_structure(DifferentiateError, what, "a gradient", found, "its argument", structure)
    return leaves


@with_argument_errors
def custom_gradient(fun: UserFunction) -> UserFunction:
    """Return a differentiable function from one that returns `(results, rule)`.

    `rule(cotangents)` returns the gradient of the argument, or a tuple of those of several, and may
    use values that `fun` has computed. See `custom_vjp`.
    """
    check_function("custom_gradient", fun)
    name = function_name(fun)

    @traceback_boundary
    @wraps(fun)
    def wrapper(*args: PyTree, **options: PyTree) -> PyTree:
        given = bind_positional(fun, name, args, options)

        def plain(*args: PyTree) -> PyTree:
            return _results_and_rule(fun, args, name)[0]

        if current_trace() is None:
            return plain(*given)
        plain.__name__ = name
        call = CustomCall.of(plain, given, frozenset())
        primal = call.trace_primal(plain)
        return call.emit_with_rule(
            "custom-vjp", primal, lambda _: _trace_custom_gradient(fun, call, primal), name
        )

    return wrapper


def _results_and_rule(
    fun: UserFunction, args: Sequence[PyTree], name: str
) -> tuple[PyTree, PyTree]:
    """Return the results and the rule that a function with a custom gradient returns."""
    result = fun(*args)
    if not (isinstance(result, (tuple, list)) and len(result) == 2 and callable(result[1])):
        raise DifferentiateError(
            with_location(
                f"custom_gradient of {name} must return (results, rule); it returned {result!r}"
            )
        )
    return result[0], result[1]


def _trace_custom_gradient(
    fun: UserFunction, call: CustomCall, primal: Primal
) -> tuple[Block, ...]:
    """Return the rules of a custom gradient: the backward rule may use values of the forward
    rule."""
    what, count = f"the gradient of {call.name}", len(primal.results)
    found: list[Block] = []

    def ahead(*leaves: Tracer) -> list[Tracer]:
        out, rule = _results_and_rule(fun, call.all_arguments(leaves), call.name)
        results = _check_results(out, primal, what)

        def backward(*cotangents: Tracer) -> list[Tracer]:
            result = call_user_function(
                rule, f"the rule of {call.name}", (_unflatten_cotangents(primal, cotangents),)
            )
            alone = len(call.args) == 1 and not (isinstance(result, tuple) and len(result) == 1)
            return _check_gradients((result,) if alone else result, call, what)

        cotangents = primal.cotangent_axes(call)
        block, _ = trace_block(backward, inexact_abstracts(primal.results), what, (), cotangents)
        found.append(block)
        return [*results, *map(wrap_value, block.captures())]

    first, _ = call.trace_rule(ahead, call.abstracts, what, call.names, call.tracers)
    program = require_trace(what).program
    last = program.rename_block(found[-1])
    saved = first.returns[count:]
    params = [Value(value.type, program.names.fresh(value.name)) for value in saved]
    last = substitute(last, dict(zip(saved, params, strict=True)))
    return _add_capture_parameters(
        first, replace(last, params=(*params, *last.params)), call, primal
    )
