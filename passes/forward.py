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

from shardir.build import Builder, Names, substitute
from shardir.errors import DifferentiateError
from shardir.ir import Block, Function, Value
from shardir.passes.differentiate import differentiable
from shardir.passes.forward_control import HANDLERS as CONTROL
from shardir.passes.forward_manual import HANDLERS as MANUAL
from shardir.passes.forward_regions import HANDLERS as REGIONS
from shardir.passes.program import names_of, values_of
from shardir.passes.pushforward import Pushforward
from shardir.passes.regions import parted
from shardir.passes.residuals import hand_over, live
from shardir.types import INEXACT

_HANDLERS = {**CONTROL, **MANUAL, **REGIONS}


def jvp(function: Function, wrt: Sequence[int]) -> Function:
    """Return the function with tangents: (arguments..., tangents...) -> (results..., tangents...).

    `wrt` are the indices of the parameters with tangents, in the order of the tangents. All
    floating-point and complex results have tangents, which are zero if they do not depend on these
    parameters. A tangent has the type of its value.

    Raises `DifferentiateError` for parameters of other types, and for operations without a
    derivative rule.
    """
    body = function.body
    if function.spmd is not None:
        raise DifferentiateError(
            f"@{function.name} is a per-device program; differentiate before 'partition'"
        )
    chosen = [differentiable(function, "parameter", body.params, i) for i in wrt]
    way = Pushforward(Builder(names_of(function)), _HANDLERS)
    params = [way.b.param(value.type) for value in chosen]
    for value, tangent in zip(chosen, params, strict=True):
        known = way.get(value)
        way.give(value, tangent if known is None else way.b.add(known, tangent))
    way.run(live(body.ops, body.returns))
    moving = [value for value in body.returns if value.type.dtype in INEXACT]
    tangents = []
    for value in moving:
        way.b.why = f"%{value.name} is independent of the inputs"
        tangents.append(way.whole(value))
    made = way.block((*body.params, *params), (*body.returns, *tangents))
    wishes = dict(zip(params, chosen, strict=True))
    for value, tangent in way.tangents.items():
        wishes.setdefault(tangent, value)
    results = (*function.results, *(None for _ in tangents))
    return Function(f"{function.name}.jvp", _named(function, made, wishes), results)


@dataclass(frozen=True, slots=True)
class Split:
    """A function and its derivative at the point of evaluation.

    `forward` has the function's parameters and returns its results and then `residuals` more
    values. `pushforward` takes those and tangents, and returns tangents; it may be called many
    times.
    """

    forward: Function
    pushforward: Function
    residuals: int


def split(function: Function, wrt: Sequence[int]) -> Split:
    """Return `jvp` as two functions connected by residuals.

    The first one computes the derivative's coefficients, except for loops that carry tangents,
    which run again in the second. Raises `DifferentiateError` as `jvp` does.
    """
    body, ahead = function.body, jvp(function, wrt)
    known, names = set(values_of(body)), names_of(ahead)
    count, tangents = len(body.params), ahead.body.returns[len(body.returns) :]
    more = [op for op in ahead.body.ops if not known.issuperset(op.results)]
    still, moved = parted(live(more, tangents), ahead.body.params[count:])
    moving = Block(ahead.body.params[count:], tuple(moved), tangents)
    body = replace(body, ops=(*body.ops, *still))
    handover = hand_over(body, moving, names)
    params = {value: replace(value) for value in handover.saved}
    whole = Block(
        (*params.values(), *moving.params), (*handover.again, *moving.ops), moving.returns
    )
    return Split(
        Function(
            f"{function.name}.forward",
            replace(body, returns=(*body.returns, *handover.saved)),
            (*function.results, *(None for _ in params)),
        ),
        Function(
            f"{function.name}.pushforward",
            substitute(whole, handover.new | params),
            (None,) * len(tangents),
        ),
        len(params),
    )


def _named(function: Function, made: Block, wishes: dict[Value, Value]) -> Block:
    """Return the block with names for new values: a tangent is named after its value."""
    known = list(values_of(function.body))
    old, names = set(known), Names([value.name for value in known])
    new: dict[Value, Value] = {}
    for value in dict.fromkeys(values_of(made)):
        if value not in old:
            wish = f"{wishes[value].name}.tangent" if value in wishes else value.name
            new[value] = replace(value, name=names.fresh("" if wish.isdigit() else wish))
    return substitute(made, new)
