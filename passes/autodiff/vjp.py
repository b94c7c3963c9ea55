"""Reverse-mode differentiation: transform a function to one that computes gradients.

before: `func @f(%x, %w) -> (y)`
after:  `func @f.vjp(%x, %w, %y.grad) -> (y, w.grad)`, for the gradient with respect to `w`

The program runs forward unchanged, then backward through the operations on a path from the chosen
parameters to the chosen results. The work is linear in the size of the program. Every backward
operation has the source line of its forward operation, and its `why` names the value whose gradient
it is for; the cotangent of `%h` is called `%h.grad`. Captured values are constants. The result is
an ordinary function, which can be differentiated again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardir.errors import DifferentiateError, count_noun
from shardir.ir.builder import Builder, UniqueNames, substitute
from shardir.ir.module import Block, Function, Op, Value
from shardir.ir.types import INEXACT
from shardir.passes.autodiff.activity import active_values
from shardir.passes.autodiff.pullback import Pullback, error
from shardir.passes.autodiff.residuals import eliminate_dead_operations, find_residuals
from shardir.passes.autodiff.reverse_control import HANDLERS
from shardir.passes.rewriting import all_values, used_names


@dataclass(frozen=True, slots=True)
class Linearized:
    """A function split into its forward and its backward computation.

    `forward` has the function's parameters and returns its results and then `residuals` more
    values. `pullback` takes those and the cotangents, and returns the gradients; it may be called
    many times.
    """

    forward: Function
    pullback: Function
    residuals: int


def vjp(function: Function, wrt: Sequence[int], of: Sequence[int] | None = None) -> Function:
    """Return the function with gradients: (arguments..., cotangents...) -> (results...,
    gradients...).

    `wrt` are the indices of the parameters to differentiate with respect to, in the order of the
    gradients; `of` those of the results with cotangents, in the order of these (`None`: all
    floating-point and complex results). A cotangent has the type of its result, a gradient that of
    its parameter. Complex values follow JAX: cotangents pair with values without conjugation.

    Raises `DifferentiateError` for parameters and results of other types, and for operations
    without a derivative, such as `while` loops.
    """
    derivative = _differentiate_in_reverse(function, wrt, of)
    body = Block(
        (*function.body.params, *derivative.cotangents),
        (*derivative.forward, *derivative.back),
        (*function.body.returns, *derivative.gradients),
    )
    results = (*function.result_shardings, *(None for _ in derivative.gradients))
    return Function(f"{function.name}.vjp", body, results)


def linearize(
    function: Function, wrt: Sequence[int], of: Sequence[int] | None = None
) -> Linearized:
    """Return `vjp` as two functions connected by residuals.

    Raises `DifferentiateError` as `vjp` does.
    """
    derivative = _differentiate_in_reverse(function, wrt, of)
    forward = Block(function.body.params, derivative.forward, function.body.returns)
    handover = find_residuals(
        forward,
        Block(derivative.cotangents, derivative.back, derivative.gradients),
        derivative.names,
    )
    params = {value: replace(value) for value in handover.saved}
    back = Block(
        (*params.values(), *derivative.cotangents),
        (*handover.recompute, *derivative.back),
        derivative.gradients,
    )
    count = len(params)
    return Linearized(
        Function(
            f"{function.name}.forward",
            replace(forward, returns=(*forward.returns, *handover.saved)),
            (*function.result_shardings, *(None for _ in range(count))),
        ),
        Function(
            f"{function.name}.pullback",
            substitute(back, handover.new | params),
            (None,) * len(derivative.gradients),
        ),
        count,
    )


@dataclass(frozen=True, slots=True)
class _ReverseMode:
    """Forward and backward operations, and the inputs and outputs of the backward computation."""

    forward: tuple[Op, ...]
    back: tuple[Op, ...]
    cotangents: tuple[Value, ...]
    gradients: tuple[Value, ...]
    names: UniqueNames


def _differentiate_in_reverse(
    function: Function, wrt: Sequence[int], of: Sequence[int] | None
) -> _ReverseMode:
    body = function.body
    if function.spmd is not None:
        raise DifferentiateError(
            f"@{function.name} is a per-device program; differentiate before 'partition'"
        )
    if of is None:
        of = [i for i, value in enumerate(body.returns) if value.type.dtype in INEXACT]
    chosen = [check_differentiable(function, "parameter", body.params, i) for i in wrt]
    results = [check_differentiable(function, "result", body.returns, i) for i in of]

    pullback = Pullback(Builder(used_names(function)), active_values(body, chosen), HANDLERS)
    b = pullback.b
    cotangents = tuple(b.param(value.type, f"{value.name}.grad") for value in results)
    for value, cotangent in zip(results, cotangents, strict=True):
        pullback.accumulate(value, cotangent)
    forward = pullback.run(body.ops)
    cotangent_of = {value: pullback.pop_cotangent(value) for value in dict.fromkeys(chosen)}
    gradients = []
    for value in chosen:
        gradient = cotangent_of[value]
        b.why = f"gradient of %{value.name}, on which no result depends"
        gradients.append(b.full(0, value.type) if gradient is None else gradient)
    back = Block(cotangents, eliminate_dead_operations(b.ops, gradients), tuple(gradients))
    new, names = _name_cotangents(
        function, Block((), forward, ()), back, pullback.primal_of_cotangent
    )
    forward, back = substitute(Block((), forward, ()), new).ops, substitute(back, new)
    return _ReverseMode(forward, back.ops, back.params, back.returns, names)


def check_differentiable(
    function: Function, what: str, values: Sequence[Value], index: int
) -> Value:
    """Return the parameter or result at `index`; raise `DifferentiateError` if it has no
    derivative."""
    if not 0 <= index < len(values):
        raise DifferentiateError(
            f"@{function.name} has no {what} {index}; it has {count_noun(len(values), what)}"
        )
    value = values[index]
    if value.type.dtype not in INEXACT:
        message = (
            f"{what} {index} of @{function.name}, %{value.name}: {value.type}, has no derivative; "
            f"only floating-point and complex {what}s do"
        )
        makers = (op for op in function.body.ops if value in op.results)
        raise error(message, next(makers, None))
    return value


def _name_cotangents(
    function: Function, forward: Block, back: Block, primal_of: dict[Value, Value]
) -> tuple[dict[Value, Value], UniqueNames]:
    """Return names for new values, in reading order: a cotangent is named after its value."""
    old = set(all_values(function.body))
    new_values = [v for block in (forward, back) for v in all_values(block) if v not in old]
    names = UniqueNames([value.name for value in all_values(function.body)])
    new: dict[Value, Value] = {}
    for value in (*back.params, *new_values):
        if value in new:
            continue
        name_hint = f"{primal_of[value].name}.grad" if value in primal_of else value.name
        name = names.fresh("" if name_hint.isdigit() else name_hint)
        new[value] = Value(value.type, name, value.sharding)
    return new, names
