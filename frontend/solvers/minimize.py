"""Minimization of functions: `shardir.scipy.optimize.minimize` by the method BFGS.

Source: J. Nocedal and S. J. Wright, "Numerical optimization" (2006): algorithm 6.1 (BFGS), 3.5 and
3.6 (line search for the strong Wolfe conditions). The line search interpolates as those of SciPy
and JAX, so that it evaluates the same points. All loops are loops of the program, so that `jit` and
`vmap` apply.
"""

from collections.abc import Mapping
from types import NoneType
from typing import NamedTuple

from shardir.frontend.argument_checks import check_integer, check_real
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function, with_constructor_errors
from shardir.frontend.dispatch.eager import public
from shardir.frontend.errors import ArgumentError, ShapeError
from shardir.frontend.lax.control_flow.loops import while_loop
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.linear_algebra.contraction import exact_matmul
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing import promotion
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.grad import value_and_grad
from shardir.ir.types import FLOATS

DECREASE_FRACTION, CURVATURE_FRACTION = 1e-4, 0.9
"""The constants c1 and c2 of the Wolfe conditions."""

DEFAULT_GRADIENT_LIMIT = 1e-5
"""The limit of the norm of the gradient without `gtol` and `tol`."""

MAX_ZOOM_STEPS = 30
"""The maximum number of evaluations in an interval that contains an acceptable step."""

MIN_CUBIC_PART, MIN_QUADRATIC_PART = 0.2, 0.1
"""A step that a cubic or a quadratic polynomial determines is at least this part of the interval
away from its ends."""

CONVERGED, ITERATION_LIMIT, SEARCH_FAILED, SEARCH_LIMIT = 0, 1, 3, 5
"""The values of `status`."""


@with_constructor_errors
class OptimizeResults(NamedTuple):
    """The result of a minimization."""

    x: Tracer
    """The last point."""
    success: Tracer
    """True if the norm of the gradient is below its limit."""
    status: Tracer
    """0 if it is, 1 after the maximum number of iterations, 3 and 5 if no step along the line
    satisfies the Wolfe conditions (5 after the maximum number of extensions)."""
    fun: Tracer
    """The value of the function."""
    jac: Tracer
    """The gradient."""
    hess_inv: Tracer
    """The estimate of the inverse of the Hessian matrix."""
    nfev: Tracer
    """The number of evaluations of the function."""
    njev: Tracer
    """The number of evaluations of the gradient."""
    nit: Tracer
    """The number of iterations."""


class _Point(NamedTuple):
    """A step along a line, with the value of the function and its slope along the line."""

    step: Tracer
    value: Tracer
    slope: Tracer


class _Search(NamedTuple):
    """The state of a line search: the current trial, and the interval or the last trial."""

    trial: Tracer
    low: _Point
    high: _Point
    outside: _Point
    """The last end that was removed from the interval."""
    is_zooming: Tracer
    is_done: Tracer
    extensions: Tracer
    zoom_steps: Tracer
    best: _Point
    gradient: Tracer


class _State(NamedTuple):
    """The state of BFGS."""

    x: Tracer
    value: Tracer
    gradient: Tracer
    inverse: Tracer
    previous_value: Tracer
    iterations: Tracer
    evaluations: Tracer
    status: Tracer


RUNNING = -1
"""The status while the iteration continues."""

OPTIONS = ("gtol", "line_search_maxiter", "maxiter", "norm")


@traceback_boundary
def minimize(
    fun: UserFunction, x0: ArrayLike, args: tuple[PyTree, ...] = (), *, method: str,
    tol: float | None = None, options: Mapping[str, object] | None = None,
) -> OptimizeResults:  # fmt: skip
    """Return a local minimum of `fun(x, *args)`, which returns a number, near the vector `x0`.

    The only `method` is "BFGS". Its options are `gtol`, the limit of the norm of the gradient
    (1e-5), `norm`, its order (infinity), `maxiter`, the maximum number of iterations (200 for each
    element), and `line_search_maxiter`, that of extensions of a step (10). `tol` is the default of
    `gtol`, as in SciPy; JAX ignores it. The result has no reverse-mode derivative. Raise
    `ArgumentError` for another method, unknown options, and `args` that are not a tuple, and
    `ShapeError` unless `x0` is a vector of real numbers and `fun` returns a number.
    """
    check_function("minimize", fun)
    if not isinstance(args, tuple):
        raise ArgumentError(with_location(f"args of minimize is a tuple, got {brief(args)}"))
    if not isinstance(method, str) or method.lower() != "bfgs":
        raise ArgumentError(with_location(f"minimize has the method 'BFGS', not {brief(method)}"))
    if not isinstance(options, (Mapping, NoneType)):
        raise ArgumentError(
            with_location(f"options of minimize is a dictionary, got {brief(options)}")
        )
    given = dict(options or {})
    if unknown := [name for name in given if name not in OPTIONS]:
        raise ArgumentError(
            with_location(f"minimize has no option {unknown[0]!r}; BFGS has "
                          f"{', '.join(OPTIONS)}")
        )  # fmt: skip
    kind = abstract_of(x0, "x0 of minimize").type
    if kind.rank != 1 or promotion.inexact_dtype(kind.dtype) not in FLOATS or not kind.shape[0]:
        raise ShapeError(
            with_location(f"x0 of minimize is a vector of at least one real number, got {kind}")
        )
    default = DEFAULT_GRADIENT_LIMIT if tol is None else check_real("tol of minimize", tol)
    gtol = check_real("gtol of minimize", given.get("gtol", default))
    norm = check_real("norm of minimize", given.get("norm", float("inf")))
    count = given.get("maxiter")
    max_iterations = (
        200 * kind.shape[0] if count is None else check_integer("maxiter of minimize", count, 0)
    )
    extensions = check_integer(
        "line_search_maxiter of minimize", given.get("line_search_maxiter", 10), 1
    )
    return OptimizeResults(*_minimize(fun, x0, args, gtol, norm, max_iterations, extensions))


@public(
    static=("fun", "gtol", "norm", "max_iterations", "extensions"), cached=False, name="minimize"
)
def _minimize(
    fun: UserFunction, x0: ArrayLike, args: tuple[PyTree, ...], gtol: float, norm: float,
    max_iterations: int, extensions: int,
) -> tuple[Tracer, ...]:  # fmt: skip
    start = convert(as_tracer(x0), *inexact_kind(x0))

    def call(x: Tracer) -> Tracer:
        value = as_tracer(call_user_function(fun, "the function of minimize", (x, *args)))
        if value.ndim or value.value.type.dtype not in FLOATS:
            raise ShapeError(
                with_location(f"the function of minimize returns {value.value.type}; it must "
                              "return one real number")
            )  # fmt: skip
        return convert(value, start.value.type.dtype)

    evaluate = value_and_grad(call)

    def status_of(gradient: Tracer, iterations: Tracer) -> Tracer:
        is_flat = snp.linalg.norm(gradient, norm) < gtol
        limited = snp.where(iterations >= max_iterations, ITERATION_LIMIT, RUNNING)
        return as_tracer(snp.where(is_flat, CONVERGED, limited).astype("int32"))

    def step(state: _State) -> _State:
        direction = -exact_matmul(state.inverse, state.gradient)
        slope = snp.sum(direction * state.gradient)
        found, count = _search_line(evaluate, state, direction, slope, extensions)
        accepted = found.is_done
        x = state.x + found.best.step * direction
        # Without an acceptable step, the best one is taken if it decreases the value.
        is_better = accepted | (found.best.value < state.value)
        moved = snp.where(is_better, x, state.x)
        value = snp.where(is_better, found.best.value, state.value)
        gradient = snp.where(is_better, found.gradient, state.gradient)
        iterations = state.iterations + 1
        failure = snp.where(found.is_zooming, SEARCH_FAILED, SEARCH_LIMIT)
        status = status_of(gradient, iterations)
        status = snp.where(accepted | (status == CONVERGED), status, failure).astype("int32")
        return _State(
            moved, value, gradient,
            _update_inverse(state.inverse, moved - state.x, gradient - state.gradient),
            state.value, iterations, state.evaluations + count, status,
        )  # fmt: skip

    value, gradient = evaluate(start)
    zero = snp.zeros((), "int32")
    first = _State(
        start, value, gradient, snp.eye(start.shape[0], dtype=start.dtype),
        value + snp.linalg.norm(gradient) / 2, zero, zero + 1, status_of(gradient, zero),
    )  # fmt: skip
    last = while_loop(lambda state: state.status == RUNNING, step, first)
    return (
        last.x, last.status == CONVERGED, last.status, last.value, last.gradient, last.inverse,
        last.evaluations, last.evaluations, last.iterations,
    )  # fmt: skip


def _update_inverse(inverse: Tracer, step: Tracer, change: Tracer) -> Tracer:
    """Return the estimate of the inverse Hessian after a step; unchanged for no curvature."""
    product = snp.sum(step * change)
    has_curvature = product > 0
    rho = snp.where(has_curvature, 1 / snp.where(has_curvature, product, 1), 0)
    left = snp.eye(step.shape[0], dtype=step.dtype) - rho * step[:, None] * change[None]
    updated = exact_matmul(exact_matmul(left, inverse), left.T) + rho * step[:, None] * step[None]
    return as_tracer(snp.where(has_curvature, updated, inverse))


def _search_line(
    evaluate: UserFunction, state: _State, direction: Tracer, slope: Tracer, extensions: int
) -> tuple[_Search, Tracer]:
    """Return the end of a line search, and the number of evaluations.

    The first part doubles the trial step until an interval contains an acceptable step, the second
    part divides the interval.
    """
    zero = slope * 0
    start = _Point(zero, state.value, slope)
    estimate = 2.02 * (state.value - state.previous_value) / snp.where(slope == 0, -1, slope)
    trial = snp.where((estimate > 0) & (estimate < 1), estimate, 1)
    false = snp.zeros((), "bool")
    count = snp.zeros((), "int32")
    first = _Search(trial, start, start, start, false, false, count, count, start, state.gradient)

    def is_running(search: _Search) -> Tracer:
        limited = (search.extensions >= extensions) | (search.zoom_steps >= MAX_ZOOM_STEPS)
        return ~search.is_done & ~limited

    def advance(search: _Search) -> _Search:
        value, gradient = evaluate(state.x + search.trial * direction)
        here = _Point(search.trial, value, snp.sum(gradient * direction))
        return _advance_search(search, start, here, gradient)

    last = while_loop(is_running, advance, first)
    return last, last.extensions + last.zoom_steps


def _advance_search(search: _Search, start: _Point, here: _Point, gradient: Tracer) -> _Search:
    """Return the state after the evaluation of the trial step `here`."""
    limit = start.value + DECREASE_FRACTION * here.step * start.slope
    is_high = ~(here.value <= limit) | (here.value >= search.low.value) & (search.low.step > 0)
    is_flat = snp.abs(here.slope) <= -CURVATURE_FRACTION * start.slope
    is_done = ~is_high & is_flat
    # The end `low` of the interval is the best step so far; `high` is on the side of the minimum.
    width = search.high.step - search.low.step
    turns = snp.where(search.is_zooming, here.slope * width >= 0, here.slope >= 0)
    low = _choose(is_high, search.low, here)
    high = _choose(is_high, here, _choose(turns, search.low, search.high))
    outside = _choose(is_high | turns, search.high, search.low)
    is_zooming = search.is_zooming | is_high | turns
    trial = snp.where(
        is_zooming, _interpolate(low, high, outside, search.is_zooming), here.step * 2
    )
    is_best = ~is_high | (here.value < search.best.value)
    one = snp.ones((), "int32")
    return _Search(
        trial, low, high, outside, is_zooming, is_done,
        search.extensions + snp.where(search.is_zooming, 0, one),
        search.zoom_steps + snp.where(search.is_zooming, one, 0),
        _choose(is_best, here, search.best), snp.where(is_best, gradient, search.gradient),
    )  # fmt: skip


def _choose(condition: Tracer, x: _Point, y: _Point) -> _Point:
    return _Point(*(snp.where(condition, a, b) for a, b in zip(x, y, strict=True)))


def _interpolate(low: _Point, high: _Point, outside: _Point, has_outside: Tracer) -> Tracer:
    """Return a step between the ends of an interval, near a minimum of the function.

    It is the minimum of the cubic polynomial through the ends and the point `outside`, with the
    slope of `low`. Without such a point, or if the minimum is too close to an end, it is that of
    the quadratic polynomial through the ends, and otherwise the middle.
    """
    width, distance = high.step - low.step, outside.step - low.step
    rise, other_rise = _rise(low, high), _rise(low, outside)
    divisor = (width * distance) ** 2 * (width - distance)
    third = _divide(distance**2 * rise - width**2 * other_rise, divisor)
    second = _divide(width**3 * other_rise - distance**3 * rise, divisor)
    square = second**2 - 3 * third * low.slope
    cubic = _divide(snp.sqrt(snp.maximum(square, 0)) - second, 3 * third * width)
    has_cubic = has_outside & (square >= 0) & _is_inside(cubic, MIN_CUBIC_PART)
    quadratic = _divide(-low.slope * width, 2 * rise)
    has_quadratic = _is_inside(quadratic, MIN_QUADRATIC_PART)
    part = snp.where(has_cubic, cubic, snp.where(has_quadratic, quadratic, 0.5))
    return as_tracer(low.step + part * width)


def _rise(low: _Point, x: _Point) -> Tracer:
    """Return the value of `x` above the line through `low` with its slope."""
    return x.value - low.value - low.slope * (x.step - low.step)


def _divide(x: Tracer, y: Tracer) -> Tracer:
    """Return the quotient, and 0 if the divisor is 0."""
    return as_tracer(snp.where(y == 0, 0, x / snp.where(y == 0, 1, y)))


def _is_inside(part: Tracer, minimum: float) -> Tracer:
    """Return whether a part of the interval is at least the minimum away from both ends."""
    return (part > minimum) & (part < 1 - minimum)
