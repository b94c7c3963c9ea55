"""Forward-mode differentiation: transform a function to one that computes tangents too.

before: `func @f(%x, %w) -> (y)`
after:  `func @f.jvp(%x, %w, %w.tangent) -> (y, y.tangent)`, for a tangent of `w`

The program runs unchanged; each operation that depends on the chosen parameters is followed by the
operations that compute the tangents of its results. These have the source line of that operation,
and the tangent of `%h` is called `%h.tangent`. Captured values are constants. The result is an
ordinary function, which can be differentiated again in either mode.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shardir.errors import DifferentiateError
from shardir.ir.builder import Builder, UniqueNames, substitute
from shardir.ir.module import Block, Function, Value
from shardir.ir.types import INEXACT
from shardir.passes.autodiff.forward_control import HANDLERS as CONTROL
from shardir.passes.autodiff.forward_regions import HANDLERS as REGIONS
from shardir.passes.autodiff.partial_evaluation import EVERYTHING, divide
from shardir.passes.autodiff.pushforward import Pushforward
from shardir.passes.autodiff.residuals import eliminate_dead_operations, find_residuals
from shardir.passes.autodiff.vjp import check_differentiable
from shardir.passes.rewriting import all_values, used_names

_HANDLERS = {**CONTROL, **REGIONS}


def jvp(function: Function, wrt: Sequence[int]) -> Function:
    """Return the function with tangents: (arguments..., tangents...) -> (results..., tangents...).

    `wrt` are the indices of the parameters with tangents, in the order of the tangents. All
    floating-point and complex results have tangents, which are zero if they do not depend on these
    parameters. A tangent has the type of its value.

    Raises `DifferentiateError` for parameters of other types, and for operations without a
    derivative rule.
    """
    return _push_forward(function, wrt, range(len(function.body.returns)))


def _push_forward(function: Function, wrt: Sequence[int], of: Sequence[int]) -> Function:
    """Return `jvp` with tangents of those inexact results only that have an index in `of`.

    The other results may depend on operations without a derivative.
    """
    body = function.body
    if function.spmd is not None:
        raise DifferentiateError(
            f"@{function.name} is a per-device program; differentiate before 'partition'"
        )
    chosen = [check_differentiable(function, "parameter", body.params, i) for i in wrt]
    pushforward = Pushforward(Builder(used_names(function)), _HANDLERS)
    params = [pushforward.b.param(value.type) for value in chosen]
    for value, tangent in zip(chosen, params, strict=True):
        old_tangent = pushforward.get(value)
        pushforward.set_tangent(
            value, tangent if old_tangent is None else pushforward.b.add(old_tangent, tangent)
        )
    moving = [body.returns[i] for i in of]
    ops = eliminate_dead_operations(body.ops, moving)
    pushforward.run(ops)
    pushed = set(ops)
    for op in eliminate_dead_operations(body.ops, body.returns):
        if op not in pushed:
            pushforward.append(op)
    tangents = []
    for value in moving:
        if value.type.dtype in INEXACT:
            pushforward.b.why = f"%{value.name} is independent of the inputs"
            tangents.append(pushforward.get_or_zeros(value))
    new_body = pushforward.block((*body.params, *params), (*body.returns, *tangents))
    primal_of = dict(zip(params, chosen, strict=True))
    for value, tangent in pushforward.tangents.items():
        primal_of.setdefault(tangent, value)
    results = (*function.result_shardings, *(None for _ in tangents))
    return Function(f"{function.name}.jvp", _name_tangents(function, new_body, primal_of), results)


@dataclass(frozen=True, slots=True)
class LinearizedForward:
    """A function and its derivative at the point of evaluation.

    `forward` has the function's parameters and returns its results and then `residuals` more
    values. `pushforward` takes those and tangents, and returns tangents; it may be called many
    times.
    """

    forward: Function
    pushforward: Function
    residuals: int


def linearize_forward(
    function: Function, wrt: Sequence[int], of: Sequence[int] | None = None
) -> LinearizedForward:
    """Return `jvp` as two functions connected by residuals.

    `of` are the indices of the results with tangents (`None`: all floating-point and complex
    results). The first function computes all values that do not depend on tangents and runs all
    effects that do not. The second repeats only `while` loops and what checkpoints recompute,
    without these effects. Raises `DifferentiateError` as `jvp` does, and if a loop to repeat needs
    the result of an operation with effects.
    """
    count, outputs = len(function.body.params), len(function.body.returns)
    ahead = _push_forward(function, wrt, range(outputs) if of is None else of)
    names, params = used_names(ahead), ahead.body.params
    tangents = ahead.body.returns[outputs:]
    divided = divide(ahead.body.ops, params[count:], EVERYTHING, names)
    tangent_ops = eliminate_dead_operations(divided.again, tangents)
    tangent_block = Block(params[count:], tangent_ops, tangents)
    needed = [*ahead.body.returns[:outputs], *tangent_block.captures()]
    primal_ops = eliminate_dead_operations(divided.ahead, needed)
    body = Block(params[:count], primal_ops, ahead.body.returns[:outputs])
    handover = find_residuals(body, tangent_block, names)
    saved = {value: replace(value) for value in handover.saved}
    backward = Block(
        (*saved.values(), *tangent_block.params),
        (*handover.recompute, *tangent_block.ops),
        tangent_block.returns,
    )
    return LinearizedForward(
        Function(
            f"{function.name}.forward",
            replace(body, returns=(*body.returns, *handover.saved)),
            (*function.result_shardings, *(None for _ in saved)),
        ),
        Function(
            f"{function.name}.pushforward",
            substitute(backward, handover.new | saved),
            (None,) * len(tangents),
        ),
        len(saved),
    )


def _name_tangents(function: Function, block: Block, primal_of: dict[Value, Value]) -> Block:
    """Return the block with names for new values: a tangent is named after its value."""
    old_values = list(all_values(function.body))
    old, names = set(old_values), UniqueNames([value.name for value in old_values])
    new: dict[Value, Value] = {}
    for value in dict.fromkeys(all_values(block)):
        if value not in old:
            name_hint = f"{primal_of[value].name}.tangent" if value in primal_of else value.name
            name = names.fresh("" if name_hint.isdigit() else name_hint)
            new[value] = Value(value.type, name, value.sharding)
    return substitute(block, new)
