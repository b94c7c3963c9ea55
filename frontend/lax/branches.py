"""Branches on traced values: `cond` and `switch`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardir.frontend import promotion, tree
from shardir.frontend.devices import local_devices
from shardir.frontend.eager import public
from shardir.frontend.errors import ControlFlowError
from shardir.frontend.lax.blocks import Kind, kind, several, trace_body, with_kinds
from shardir.frontend.locations import point
from shardir.frontend.numpy.pointwise import truth
from shardir.frontend.operands import as_tracer, convert, splat
from shardir.frontend.parameters import called, check_call
from shardir.frontend.trace import emit
from shardir.frontend.tracer import Tracer
from shardir.frontend.tree_checks import shown
from shardir.types import INTEGERS

_NOTHING = object()


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _NOTHING,
) -> Any:
    """Return `true_fun(*operands)` if the scalar `pred` is true (or not zero), else
    `false_fun(*operands)`.

    Both functions must return the same containers, shapes and element types; otherwise raise
    `ControlFlowError`. `operand` is an alternative way to pass a single operand.
    """
    if operand is not _NOTHING:
        operands = (*operands, operand)
    return _cond(pred, true_fun, false_fun, *operands)


@public(static=("true_fun", "false_fun"), cached=False)
def _cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    which = as_tracer(pred)
    if which.ndim:
        raise ControlFlowError(
            point(
                f"cond takes a scalar as condition, got {which.value.type}; use snp.where for "
                "elements"
            )
        )
    return _case(truth(which), (false_fun, true_fun), operands, "a branch of cond")


@public(static=("branches",), cached=False)
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Return `branches[index](*operands)`; an index out of range is clamped.

    All branches must return the same containers, shapes and element types; otherwise raise
    `ControlFlowError`.
    """
    branches = tuple(branches)
    if not branches:
        raise ControlFlowError(point("switch needs at least one branch"))
    which = as_tracer(index)
    if which.ndim or which.value.type.dtype not in INTEGERS:
        raise ControlFlowError(
            point(f"switch takes an integer of rank 0 as index, got {which.value.type}")
        )
    if len(branches) == 1:
        return branches[0](*operands)
    return _case(_clamped(which, len(branches) - 1), branches, operands, "a branch of switch")


def _clamped(index: Tracer, last: int) -> Tracer:
    kind = index.value.type
    highest = splat(min(last, int(np.iinfo(kind.numpy).max)), kind)
    return convert(emit("clamp", splat(0, kind), index, highest), "i32")


def _case(
    which: Tracer, branches: Sequence[Callable[..., Any]], operands: Sequence[Any], what: str
) -> Any:
    for branch in branches:
        check_call(branch, what, operands)

    def trace_branches(kinds: Sequence[Kind] | None = None) -> Any:
        return [
            trace_body(lambda f=f: f(*operands), (), (), what, (), kinds, (), which)
            for f in branches
        ]

    bodies = trace_branches()
    first = bodies[0]
    for other in bodies[1:]:
        if other.structure != first.structure:
            raise ControlFlowError(
                point(
                    "branches must return the same containers, got "
                    f"{shown(first.structure)} and {shown(other.structure)}"
                )
            )
    kinds: list[Kind] = []
    for i, results in enumerate(zip(*(body.results for body in bodies), strict=True)):
        common = promotion.result_type(*map(kind, results))
        if any(
            r.type.shape != results[0].type.shape or (r.type.dtype != common[0] and not r.weak)
            for r in results
        ):
            types = " and ".join(dict.fromkeys(str(r.type) for r in results))
            raise ControlFlowError(
                point(
                    f"branches must return the same types: value {i} is {types}; make them one "
                    "type, for example with .astype"
                )
            )
        kinds.append(common)
    if any(kind(r) != k for body in bodies for r, k in zip(body.results, kinds, strict=True)):
        bodies = trace_branches(kinds)
    # Without results the operation may have effects; without effects it is dead code.
    emitted = several(emit("case", which, blocks=tuple(body.block for body in bodies)))
    return tree.unflatten(first.structure, with_kinds(emitted, [weak for _, weak in kinds]))


def platform_dependent(
    *args: Any, default: Callable[..., Any] | None = None, **per_platform: Callable[..., Any]
) -> Any:
    """Call the function for the platform of the local devices (`cpu=...`), or `default`.

    Raise `ControlFlowError` if there is neither.
    """
    platform = local_devices()[0].platform
    chosen = per_platform.get(platform, default)
    if chosen is None:
        known = ", ".join(sorted(per_platform)) or "none"
        raise ControlFlowError(
            point(
                f"platform_dependent has functions for {known} and is to run on {platform}; "
                "give it a default"
            )
        )
    return called(chosen, f"the function of platform_dependent for {platform}", args, {})
