"""Forward-mode rules of control flow.

A loop carries the tangents of its carried values; the body is processed repeatedly until the set of
carried values with tangents is a fixed point. A case returns the tangents of its results, zeros
from a branch without a tangent. A `while` loop has a forward-mode derivative, because the iteration
count does not change, but no reverse-mode one.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.ir import Op, Value
from shardir.passes.pushforward import Handler, Pushforward
from shardir.types import INEXACT


def _chosen(values: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def _moving(way: Pushforward, values: Sequence[Value]) -> list[bool]:
    return [way.get(value) is not None for value in values]


def _params(way: Pushforward, params: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
    """Return parameters for the tangents of those parameters that have one."""
    made = []
    for param, flag in zip(params, flags, strict=True):
        way.give(param, way.b.param(param.type) if flag else None)
        made += [tangent for tangent in [way.get(param)] if tangent is not None]
    return made


def _results(way: Pushforward, results: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
    """Return results for the tangents of those results that have one."""
    made = []
    for result, flag in zip(results, flags, strict=True):
        if flag:
            tangent = way.b.param(result.type)
            way.give(result, tangent)
            made.append(tangent)
    return made


def _scan(outer: Pushforward, op: Op) -> None:
    (body,) = op.blocks
    n = op.attrs["carries"]
    carried = _moving(outer, op.operands[:n])
    sliced = _moving(outer, op.operands[n:])
    while True:
        inner = outer.inner()
        tangents = _params(inner, body.params[:n], carried)
        slices = _params(inner, body.params[n:], sliced)
        inner.run(body.ops)
        grown = [a or b for a, b in zip(carried, _moving(inner, body.returns[:n]), strict=True)]
        if grown == carried:
            break
        carried = grown
    stacked = _moving(inner, body.returns[n:])
    block = inner.block(
        (*body.params[:n], *tangents, *body.params[n:], *slices),
        (
            *body.returns[:n],
            *map(inner.whole, _chosen(body.returns[:n], carried)),
            *body.returns[n:],
            *map(inner.whole, _chosen(body.returns[n:], stacked)),
        ),
    )
    operands = (
        *op.operands[:n],
        *map(outer.whole, _chosen(op.operands[:n], carried)),
        *op.operands[n:],
        *map(outer.whole, _chosen(op.operands[n:], sliced)),
    )
    results = (
        *op.results[:n],
        *_results(outer, op.results[:n], carried),
        *op.results[n:],
        *_results(outer, op.results[n:], stacked),
    )
    attrs = {**op.attrs, "carries": n + sum(carried)}
    outer.keep(replace(op, operands=operands, results=results, attrs=attrs, blocks=(block,)))


def _while(outer: Pushforward, op: Op) -> None:
    condition, body = op.blocks
    carried = _moving(outer, op.operands)
    while True:
        inner = outer.inner()
        tangents = _params(inner, body.params, carried)
        inner.run(body.ops)
        grown = [a or b for a, b in zip(carried, _moving(inner, body.returns), strict=True)]
        if grown == carried:
            break
        carried = grown
    unused = [outer.b.param(param.type) for param in tangents]
    test = replace(condition, params=(*condition.params, *unused))
    returns = (*body.returns, *map(inner.whole, _chosen(body.returns, carried)))
    block = inner.block((*body.params, *tangents), returns)
    operands = (*op.operands, *map(outer.whole, _chosen(op.operands, carried)))
    results = (*op.results, *_results(outer, op.results, carried))
    outer.keep(replace(op, operands=operands, results=results, blocks=(test, block)))


def _case(outer: Pushforward, op: Op) -> None:
    ways = []
    for branch in op.blocks:
        inner = outer.inner()
        inner.run(branch.ops)
        ways.append((inner, branch))
    moving = [
        result.type.dtype in INEXACT
        and any(inner.get(branch.returns[i]) is not None for inner, branch in ways)
        for i, result in enumerate(op.results)
    ]
    blocks = tuple(
        inner.block(
            branch.params,
            (*branch.returns, *map(inner.whole, _chosen(branch.returns, moving))),
        )
        for inner, branch in ways
    )
    results = (*op.results, *_results(outer, op.results, moving))
    outer.keep(replace(op, results=results, blocks=blocks))


HANDLERS: dict[str, Handler] = {"while": _while, "scan": _scan, "case": _case}
