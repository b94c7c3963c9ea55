"""`custom_vjp` and `custom_gradient`: functions with a custom VJP rule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, final

import numpy as np

from shardir.build import substitute
from shardir.errors import DifferentiateError
from shardir.frontend import tree
from shardir.frontend.calling import is_array_like, returned
from shardir.frontend.custom import Call, Moves, Primal, fitted, moving, numbers, positional
from shardir.frontend.custom_function import CustomFunction
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.operands import as_tracer, convert, kind_of
from shardir.frontend.parameters import called, name_of
from shardir.frontend.trace import current, require, trace_block, wrap
from shardir.frontend.tracer import Tracer
from shardir.frontend.tree_checks import check_function, shown
from shardir.frontend.wrt import NO_GRADIENT
from shardir.ir import Block, Value
from shardir.types import FLOATS, INEXACT


@dataclass(frozen=True)
class CustomVJPPrimal:
    """An argument of a forward rule with `symbolic_zeros`; `perturbed` states if it is
    differentiated."""

    value: Any
    perturbed: bool = True


@final
class custom_vjp(CustomFunction):
    """A function with a custom VJP rule.

    `f = custom_vjp(fun)`, then `f.defvjp(fwd, bwd)`: `fwd` takes the arguments and returns
    `(results, residuals)`, `bwd(residuals, cotangents)` returns a tuple with the gradient of each
    argument, `None` for zero. Arguments in `nondiff_argnums` (or `nondiff_argnames`) have no
    gradient, need not be arrays, and come first in a call of `bwd`. There is no forward-mode
    derivative.

    The rule applies wherever a caller of `f` is differentiated, including inside `vmap`, `jit` and
    loops. Raises `DifferentiateError` for a missing rule or an invalid result of the rule.
    """

    def __init__(
        self, fun: Callable[..., Any], nondiff_argnums: Any = (), nondiff_argnames: Any = ()
    ) -> None:
        super().__init__(fun, numbers(fun, "nondiff_argnames", nondiff_argnums, nondiff_argnames))
        self._rules: tuple[Callable[..., Any], Callable[..., Any], bool] | None = None

    def defvjp(
        self,
        fwd: Callable[..., Any],
        bwd: Callable[..., Any],
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
                raise ArgumentError(point(f"defvjp of {self._name} takes functions, got {rule!r}"))
        self._rules = fwd, bwd, symbolic_zeros

    def _check_rule(self) -> None:
        if self._rules is None:
            raise DifferentiateError(
                point(f"custom_vjp {self._name} has no rule; give it one with defvjp")
            )

    def _emit(self, call: Call, primal: Primal) -> Any:
        assert self._rules is not None
        fwd, bwd, symbolic = self._rules

        def rule(moves: Moves) -> tuple[Block, ...]:
            return _traced(fwd, bwd, moves if symbolic else None, call, primal)

        return call.emit("custom-vjp", primal, rule)


def _traced(
    fwd: Callable[..., Any],
    bwd: Callable[..., Any],
    moves: Moves | None,
    call: Call,
    primal: Primal,
) -> tuple[Block, ...]:
    """Return the rules as blocks: (operands..., closed...) -> (results..., residuals...), and back.

    `moves` gives the flag `perturbed` of each argument of `fwd`, if it is not `None`.
    """
    kept: list[tree.PyTreeDef] = []
    forth, back = f"the forward rule of {call.name}", f"the backward rule of {call.name}"

    def ahead(*leaves: Tracer) -> list[Tracer]:
        given: Sequence[Any] = leaves
        if moves is not None:
            given = [CustomVJPPrimal(x, moved) for x, moved in zip(leaves, moves, strict=False)]
        made = called(fwd, forth, call.filled(given))
        if not (isinstance(made, (tuple, list)) and len(made) == 2):
            raise DifferentiateError(
                point(f"{forth} must return (results, residuals); it returned {made!r}")
            )
        results = _results(made[0], primal, forth)
        residuals, structure = tree.flatten(made[1])
        kept.append(structure)
        return results + [
            returned(x, i, structure, f"{forth}, as residuals,") for i, x in enumerate(residuals)
        ]

    first, results = call.trace_rule(ahead, call.abstracts, forth, call.names, call.tracers)
    residuals = results[len(primal.results) :]

    def backward(*leaves: Tracer) -> list[Tracer]:
        saved = tree.unflatten(kept[-1], leaves[: len(residuals)])
        cotangents = _cotangents(primal, leaves[len(residuals) :])
        return _gradients(called(bwd, back, (*call.rest, saved, cotangents)), call, back)

    params = [*residuals, *moving(primal.results)]
    varies = [*call.varies(first)[len(primal.results) :], *primal.cotangents(call)]
    last, _ = call.trace_rule(backward, params, back, (), varies)
    return _with_closed(first, last, call, primal)


def _with_closed(first: Block, last: Block, call: Call, primal: Primal) -> tuple[Block, ...]:
    ahead, closed = primal.given(first, call, "the forward rule")
    back, again = primal.given(last, call, "the backward rule")
    return (
        replace(ahead, params=(*ahead.params, *closed)),
        replace(back, params=(*back.params, *again)),
    )


def _results(out: Any, primal: Primal, what: str) -> list[Tracer]:
    leaves, structure = tree.flatten(out)
    if structure != primal.structure:
        raise DifferentiateError(
            point(
                f"{what} gives results in {shown(structure)}, and they are in "
                f"{shown(primal.structure)}"
            )
        )
    return [
        fitted(x, a, f"a result of {what}") for x, a in zip(leaves, primal.results, strict=True)
    ]


def _cotangents(primal: Primal, leaves: Sequence[Tracer]) -> Any:
    """Return cotangents in the structure of the results."""
    given = iter(leaves)
    return tree.unflatten(
        primal.structure,
        [
            next(given) if a.type.dtype in INEXACT else np.zeros(a.type.shape, NO_GRADIENT)
            for a in primal.results
        ],
    )


def _gradients(made: Any, call: Call, what: str) -> list[Tracer]:
    """Return the result of a backward rule, one leaf for each argument leaf that has a gradient."""
    args = call.moving(call.tracers)
    if not isinstance(made, (tuple, list)) or len(made) != len(args):
        returned_text = f"{len(made)}" if isinstance(made, (tuple, list)) else repr(made)
        raise DifferentiateError(
            point(
                f"{what} must return a tuple with a gradient for each of {len(args)} arguments; "
                f"it returned {returned_text}"
            )
        )
    leaves: list[Tracer] = []
    for arg, gradient in zip(args, made, strict=True):
        wanted, structure = tree.flatten(arg)
        given = [None] * len(wanted) if gradient is None else _leaves(gradient, structure, what)
        leaves += [
            fitted(_rounded(x, like), like.abstract, f"a gradient of {what}")
            for x, like in zip(given, wanted, strict=True)
            if like.value.type.dtype in INEXACT
        ]
    return leaves


def _rounded(gradient: Any, like: Tracer) -> Any:
    """Return a floating-point gradient in the element type of its argument; others are unchanged.

    Many gradients are computed in a wider type. An invalid gradient is refused later.
    """
    dtype = like.value.type.dtype
    if not is_array_like(gradient) or kind_of(gradient)[0] not in FLOATS or dtype not in FLOATS:
        return gradient
    return convert(as_tracer(gradient), dtype)


def _leaves(gradient: Any, structure: tree.PyTreeDef, what: str) -> list[Any]:
    leaves, found = tree.flatten(gradient)
    if found == structure:
        return leaves
    leaves, found = tree.flatten(gradient, is_leaf=lambda x: x is None)
    if found != structure:
        raise DifferentiateError(
            point(
                f"{what} gives a gradient in {shown(found)}, and its argument is in "
                f"{shown(structure)}"
            )
        )
    return leaves


def custom_gradient(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return a differentiable function from one that returns `(results, rule)`.

    `rule(cotangents)` returns the gradient of the argument, or a tuple of those of several, and may
    use values that `fun` has computed. See `custom_vjp`.
    """
    check_function("custom_gradient", fun)
    name = name_of(fun)

    @wraps(fun)
    def wrapper(*args: Any, **options: Any) -> Any:
        given = positional(fun, name, args, options)

        def plain(*args: Any) -> Any:
            return _pair(fun, args, name)[0]

        if current() is None:
            return plain(*given)
        plain.__name__ = name
        call = Call.of(plain, given, frozenset())
        primal = call.primal(plain)
        return call.emit("custom-vjp", primal, lambda _: _traced_together(fun, call, primal), name)

    return wrapper


def _pair(fun: Callable[..., Any], args: Sequence[Any], name: str) -> tuple[Any, Any]:
    """Return the results and the rule that a function with a custom gradient returns."""
    made = fun(*args)
    if not (isinstance(made, (tuple, list)) and len(made) == 2 and callable(made[1])):
        raise DifferentiateError(
            point(f"custom_gradient of {name} must return (results, rule); it returned {made!r}")
        )
    return made[0], made[1]


def _traced_together(fun: Callable[..., Any], call: Call, primal: Primal) -> tuple[Block, ...]:
    """Return the rules of a custom gradient: the backward rule may use values of the forward
    rule."""
    what, count = f"the gradient of {call.name}", len(primal.results)
    found: list[Block] = []

    def ahead(*leaves: Tracer) -> list[Tracer]:
        out, rule = _pair(fun, call.filled(leaves), call.name)
        results = _results(out, primal, what)

        def backward(*cotangents: Tracer) -> list[Tracer]:
            made = called(rule, f"the rule of {call.name}", (_cotangents(primal, cotangents),))
            alone = len(call.args) == 1 and not (isinstance(made, tuple) and len(made) == 1)
            return _gradients((made,) if alone else made, call, what)

        cotangents = primal.cotangents(call)
        block, _ = trace_block(backward, moving(primal.results), what, (), cotangents)
        found.append(block)
        return [*results, *map(wrap, block.captures())]

    first, _ = call.trace_rule(ahead, call.abstracts, what, call.names, call.tracers)
    program = require(what).program
    last = program.renamed(found[-1])
    saved = first.returns[count:]
    params = [Value(value.type, program.names.fresh(value.name)) for value in saved]
    last = substitute(last, dict(zip(saved, params, strict=True)))
    return _with_closed(first, replace(last, params=(*params, *last.params)), call, primal)
