"""Forward-mode rules of control flow.

A loop carries the tangents of its carried values; the body is processed repeatedly until the set of
carried values with tangents is a fixed point. A case returns the tangents of its results, zeros
from a branch without a tangent. A `while` loop has a forward-mode derivative, because the iteration
count does not change, but no reverse-mode one.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.ir.module import Op, Value
from shardir.passes.autodiff.pushforward import Handler, Pushforward


def _select(values: Sequence[Value], flags: Sequence[bool]) -> list[Value]:
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def _has_tangent(pushforward: Pushforward, values: Sequence[Value]) -> list[bool]:
    return [pushforward.get(value) is not None for value in values]


def _tangent_params(
    pushforward: Pushforward, params: Sequence[Value], flags: Sequence[bool]
) -> list[Value]:
    """Return parameters for the tangents of those parameters that have one."""
    result = []
    for param, flag in zip(params, flags, strict=True):
        pushforward.set_tangent(param, pushforward.b.param(param.type) if flag else None)
        result += [tangent for tangent in [pushforward.get(param)] if tangent is not None]
    return result


def _tangent_results(
    pushforward: Pushforward, results: Sequence[Value], flags: Sequence[bool]
) -> list[Value]:
    """Return results for the tangents of those results that have one."""
    tangents = []
    for result, flag in zip(results, flags, strict=True):
        if flag:
            tangent = pushforward.b.param(result.type)
            pushforward.set_tangent(result, tangent)
            tangents.append(tangent)
    return tangents


def _push_scan(outer: Pushforward, op: Op) -> None:
    (body,) = op.blocks
    n = op.attrs["carries"]
    carried = _has_tangent(outer, op.operands[:n])
    sliced = _has_tangent(outer, op.operands[n:])
    while True:
        inner = outer.inner()
        tangents = _tangent_params(inner, body.params[:n], carried)
        slices = _tangent_params(inner, body.params[n:], sliced)
        inner.run(body.ops)
        grown = [
            a or b for a, b in zip(carried, _has_tangent(inner, body.returns[:n]), strict=True)
        ]
        if grown == carried:
            break
        carried = grown
    stacked = _has_tangent(inner, body.returns[n:])
    block = inner.block(
        (*body.params[:n], *tangents, *body.params[n:], *slices),
        (
            *body.returns[:n],
            *map(inner.get_or_zeros, _select(body.returns[:n], carried)),
            *body.returns[n:],
            *map(inner.get_or_zeros, _select(body.returns[n:], stacked)),
        ),
    )
    operands = (
        *op.operands[:n],
        *map(outer.get_or_zeros, _select(op.operands[:n], carried)),
        *op.operands[n:],
        *map(outer.get_or_zeros, _select(op.operands[n:], sliced)),
    )
    results = (
        *op.results[:n],
        *_tangent_results(outer, op.results[:n], carried),
        *op.results[n:],
        *_tangent_results(outer, op.results[n:], stacked),
    )
    attrs = {**op.attrs, "carries": n + sum(carried)}
    outer.append(replace(op, operands=operands, results=results, attrs=attrs, blocks=(block,)))


def _push_while(outer: Pushforward, op: Op) -> None:
    condition, body = op.blocks
    carried = _has_tangent(outer, op.operands)
    while True:
        inner = outer.inner()
        tangents = _tangent_params(inner, body.params, carried)
        inner.run(body.ops)
        grown = [a or b for a, b in zip(carried, _has_tangent(inner, body.returns), strict=True)]
        if grown == carried:
            break
        carried = grown
    unused = [outer.b.param(param.type) for param in tangents]
    test = replace(condition, params=(*condition.params, *unused))
    returns = (*body.returns, *map(inner.get_or_zeros, _select(body.returns, carried)))
    block = inner.block((*body.params, *tangents), returns)
    operands = (*op.operands, *map(outer.get_or_zeros, _select(op.operands, carried)))
    results = (*op.results, *_tangent_results(outer, op.results, carried))
    outer.append(replace(op, operands=operands, results=results, blocks=(test, block)))


def _push_case(outer: Pushforward, op: Op) -> None:
    branches = []
    for branch in op.blocks:
        inner = outer.inner()
        inner.run(branch.ops)
        branches.append((inner, branch))
    active = [
        any(inner.get(branch.returns[i]) is not None for inner, branch in branches)
        for i in range(len(op.results))
    ]
    blocks = tuple(
        inner.block(
            branch.params,
            (*branch.returns, *map(inner.get_or_zeros, _select(branch.returns, active))),
        )
        for inner, branch in branches
    )
    results = (*op.results, *_tangent_results(outer, op.results, active))
    outer.append(replace(op, results=results, blocks=blocks))


HANDLERS: dict[str, Handler] = {"while": _push_while, "scan": _push_scan, "case": _push_case}
