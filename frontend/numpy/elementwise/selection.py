"""Elementwise selection between values: maximum, minimum, where, clip, select, piecewise."""

from collections.abc import Sequence

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import (
    apply_elementwise,
    as_bool,
    as_operands,
    common_kind,
    emit_elementwise,
    emit_isnan,
    emit_select,
    require_real,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.traced_constraints import check_cases
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import (
    align,
    as_tracer,
    broadcast,
    broadcast_shapes,
    promote_to,
)
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.weak_types import strip_weak_types
from shardir.ir.types import INEXACT


@public()
def maximum(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return the larger element, elementwise; NaN if either is NaN."""
    return apply_elementwise("maximum", x, y)


@public()
def minimum(x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return the smaller element, elementwise; NaN if either is NaN."""
    return apply_elementwise("minimum", x, y)


@public()
def fmax(x1: ArrayLike, x2: ArrayLike) -> Tracer:
    """Return the larger element, elementwise; if one is NaN, the other one."""
    return _prefer_number("maximum", *align(x1, x2))


@public()
def fmin(x1: ArrayLike, x2: ArrayLike) -> Tracer:
    """Return the smaller element, elementwise; if one is NaN, the other one."""
    return _prefer_number("minimum", *align(x1, x2))


def _prefer_number(op: str, x: Tracer, y: Tracer) -> Tracer:
    extreme = emit_elementwise(op, x, y)
    if x.value.type.dtype not in INEXACT:
        return extreme
    return emit_elementwise(
        "select", emit_isnan(x), y, emit_elementwise("select", emit_isnan(y), x, extreme)
    )


@public()
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike, /) -> Tracer:
    """Return `x` where the condition is true (not zero) and `y` elsewhere; all three broadcast.

    The result has the promoted type of `x` and `y`. In programs on meshes of Explicit axes,
    operands of one shape must have the same sharding, as in JAX.
    """
    selected = as_bool(condition)
    x, y = as_operands(x, y)
    cases = [case for case in (x, y) if isinstance(case, Tracer)]
    shapes = {case.shape for case in (selected, *cases)}
    if len(cases) == 2 and len(shapes - {()}) < 2:
        check_cases(selected, *cases)
    return emit_select(selected, x, y)


@public()
def clip(arr: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tracer:
    """Clamp `arr` to the range from `min` to `max`, elementwise; each bound is optional.

    If min > max, the result is max. Raise `OperationTypeError` for complex numbers.
    """
    require_real("clip", *(x for x in (arr, min, max) if x is not None))
    if min is None and max is None:
        return as_tracer(arr)
    if max is None:
        return apply_elementwise("maximum", arr, min)
    if min is None:
        return apply_elementwise("minimum", arr, max)
    return apply_elementwise("minimum", apply_elementwise("maximum", arr, min), max)


@public()
def select(
    condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0
) -> Tracer:
    """Return the choice of the first true condition, elementwise, else `default`."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ArgumentError(
            with_location(
                f"select takes one choice for each condition, got {len(condlist)} conditions and "
                f"{len(choicelist)} choices"
            )
        )
    conditions = [as_tracer(c) for c in condlist]
    choices = as_operands(*choicelist, default)
    kind = common_kind(*choices)
    result: Tracer = choices[-1]
    for condition, choice in zip(conditions[::-1], choices[-2::-1], strict=True):
        picked, other = promote_to(kind, choice, result)
        result = emit_select(as_bool(condition), picked, other)
    return result


@public(static=("funclist", "kw"), cached=False, name="piecewise")
@strip_weak_types
def _piecewise(
    x: ArrayLike,
    condlist: Sequence[ArrayLike],
    funclist: Sequence[object],
    args: PyTree,
    kw: dict[str, object],
) -> Tracer:
    return _emit_piecewise(x, condlist, funclist, args, kw)


@public(name="piecewise")
@strip_weak_types
def _piecewise_of_constants(
    x: ArrayLike, condlist: Sequence[ArrayLike], numbers: Sequence[object]
) -> Tracer:
    return _emit_piecewise(x, condlist, numbers, (), {})


def _emit_piecewise(
    x: ArrayLike,
    condlist: Sequence[ArrayLike],
    funclist: Sequence[object],
    args: PyTree,
    kw: dict[str, object],
) -> Tracer:
    x = as_tracer(x)
    conditions = [as_bool(c) for c in condlist]
    if len(funclist) not in (len(conditions), len(conditions) + 1):
        raise ArgumentError(
            with_location(
                f"piecewise takes a function for each of {len(conditions)} conditions, and maybe "
                f"one more for the rest; got {len(funclist)}"
            )
        )

    def value(function: object) -> Tracer:
        evaluated = function(x, *args, **kw) if callable(function) else function
        return promote_to((x.value.type.dtype, x.weak_type), evaluated)[0]

    rest = funclist[-1] if len(funclist) > len(conditions) else 0
    result = value(rest)
    for condition, function in zip(conditions, funclist, strict=False):
        result = emit_select(condition, value(function), result)
    return broadcast(result, broadcast_shapes(x.shape, result.shape))


@with_argument_errors
def piecewise(
    x: ArrayLike,
    condlist: ArrayLike,
    funclist: Sequence[UserFunction | object],
    *args: PyTree,
    **kw: object,
) -> Tracer:
    """Apply the function (or constant) of the last true condition to `x`, elementwise.

    With one function more than conditions, the last one applies where no condition is true;
    otherwise the result is 0 there.
    """
    if not isinstance(funclist, (list, tuple)):
        raise ArgumentError(
            with_location(f"piecewise takes a list of functions and numbers, got {brief(funclist)}")
        )
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    if not any(map(callable, funclist)):
        return _piecewise_of_constants(x, conditions, tuple(funclist))
    return _piecewise(x, conditions, tuple(funclist), args, kw)
