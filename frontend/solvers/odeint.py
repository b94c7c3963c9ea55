"""Integration of ordinary differential equations: `shardir.experimental.ode.odeint`.

Steps are those of the method of Dormand and Prince of order 5 with an error estimate of order 4.
Sources: E. Hairer, S. P. Norsett and G. Wanner, "Solving ordinary differential equations I" (1993),
II.4 (first step and step sizes) and II.5 (the coefficients); L. F. Shampine, "Some practical
Runge-Kutta formulas" (1986), for the value in the middle of a step; R. T. Q. Chen et al., "Neural
ordinary differential equations" (2018), for the gradient.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from shardir.frontend.argument_checks import check_real
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.eager import public
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ArgumentError, NotAnArrayError, ShapeError
from shardir.frontend.lax.control_flow.loops import scan, while_loop
from shardir.frontend.lax.reductions import cummax
from shardir.frontend.numpy import api as snp
from shardir.frontend.numpy.tracer_helpers.elementwise_emission import inexact_kind
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.operands import as_tracer, convert
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_vjp import with_derived_vjp
from shardir.frontend.transforms.jvp_vjp import vjp
from shardir.frontend.transforms.linear_transpose import closure_convert
from shardir.ir.types import FLOATS, INEXACT

State: TypeAlias = list[Tracer]
"""The leaves of the state of an equation."""

STAGE_WEIGHTS = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
"""The weights of the derivatives in the argument of each further stage; the last is the result."""

STAGE_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
"""The time of each further stage, relative to the step."""

ERROR_WEIGHTS = (
    35 / 384 - 5179 / 57600, 0.0, 500 / 1113 - 7571 / 16695, 125 / 192 - 393 / 640,
    -2187 / 6784 + 92097 / 339200, 11 / 84 - 187 / 2100, -1 / 40,
)  # fmt: skip
"""The differences between the weights of the results of order 5 and 4."""

MIDDLE_WEIGHTS = (
    6025192743 / 30085553152 / 2, 0.0, 51252292925 / 65400821598 / 2,
    -2691868925 / 45128329728 / 2, 187940372067 / 1594534317056 / 2, -1776094331 / 19743644256 / 2,
    11237099 / 235043384 / 2,
)  # fmt: skip
"""The weights of the derivatives in the value in the middle of a step."""

SAFETY_FACTOR, MIN_STEP_RATIO, MAX_STEP_RATIO = 0.9, 0.2, 10.0
"""A next step is the estimated best one times the first, and in this range relative to the last."""


@traceback_boundary
def odeint(
    func: UserFunction, y0: PyTree, t: ArrayLike, *args: PyTree, rtol: float = 1.4e-8,
    atol: float = 1.4e-8, mxstep: float = inf, hmax: float = inf,
) -> PyTree:  # fmt: skip
    """Return the solution of dy/dt = func(y, t, *args) at the times `t`, with `y0` at the first.

    `y0` is a pytree of arrays, and `func` returns one of the same shapes; each leaf of the result
    has a first dimension for the times, which ascend. The estimated error of a step is at most
    `atol + rtol * abs(y)` in the root mean square; there are at most `mxstep` steps between two
    times, of at most `hmax`. The result is NaN at a time before an earlier one, and at a time that
    these steps do not reach, for example because `func` returns NaN. Reverse mode integrates the
    adjoint equation backwards, with the same tolerances; there is no forward mode. Raise
    `ArgumentError` for times that are not a vector of floats, for negative limits, for a derivative
    of other shapes, and for arguments that are not arrays.
    """
    check_function("odeint", func)
    for leaf in tree.leaves((y0, args)):
        if not is_array_like(leaf):
            raise NotAnArrayError(
                with_location(f"odeint takes arrays, got {brief_with_type(leaf)}; let the function "
                              "capture it, for example in a lambda")
            )  # fmt: skip
    times = abstract_of(t, "t of odeint").type
    if times.dtype not in FLOATS or times.rank != 1 or not times.shape[0]:
        raise ArgumentError(
            with_location(f"t of odeint is a vector of floats with at least one element, got "
                          f"{times}")
        )  # fmt: skip
    limits = [
        _check_limit(word, given)
        for word, given in (("rtol", rtol), ("atol", atol), ("mxstep", mxstep), ("hmax", hmax))
    ]
    return _odeint(func, tuple(limits), y0, t, args)


def _check_limit(word: str, given: float) -> float:
    limit = check_real(f"{word} of odeint", given)
    if not limit >= 0:
        raise ArgumentError(with_location(f"{word} of odeint is at least 0, got {given}"))
    return limit


@public(static=("func", "limits"), cached=False, name="odeint")
def _odeint(
    func: UserFunction, limits: tuple[float, ...], y0: PyTree, t: ArrayLike, args: Sequence[PyTree]
) -> PyTree:
    leaves, structure = tree.flatten(y0)
    if not leaves:
        return y0
    kind = inexact_kind(*leaves)
    state = [convert(as_tracer(leaf), kind[0]) for leaf in leaves]
    start = tree.unflatten(structure, state)
    times = as_tracer(t)
    function, captured = closure_convert(func, start, times[0], *args)
    rest, rest_structure = tree.flatten((args, captured))

    def derivative(state: State, time: Tracer, params: Sequence[Tracer]) -> State:
        given, closed = tree.unflatten(rest_structure, params)
        y = tree.unflatten(structure, state)
        return _check_derivative(
            call_user_function(function, "the function of odeint", (y, time, *given, *closed)),
            state, structure,
        )  # fmt: skip

    result = _Equation(derivative, *limits).solve(state, times, [as_tracer(x) for x in rest])
    return tree.unflatten(structure, result)


def _check_derivative(made: PyTree, state: State, structure: tree.PyTreeDef) -> State:
    leaves, found = tree.flatten(made)
    if found != structure:
        raise ArgumentError(
            with_location("the function of odeint returns other containers than those of y0")
        )
    tracers = [as_tracer(leaf) for leaf in leaves]
    for x, like in zip(tracers, state, strict=True):
        if x.shape != like.shape:
            raise ShapeError(
                with_location(f"the function of odeint returns shape {x.shape} for a state of "
                              f"shape {like.shape}")
            )  # fmt: skip
    return [convert(x, like.value.type.dtype) for x, like in zip(tracers, state, strict=True)]


@dataclass(frozen=True)
class _Equation:
    """An equation `derivative(state, time, params)`, and the limits of its integration."""

    derivative: Callable[[State, Tracer, Sequence[Tracer]], State]
    rtol: float
    atol: float
    max_steps: float
    max_step: float

    def solve(self, state: State, times: Tracer, params: Sequence[Tracer]) -> State:
        """Return the states at all times, with a reverse-mode derivative."""

        def integrate(state: State, times: Tracer, params: Sequence[Tracer]) -> State:
            return self._integrate(state, times, params)

        def ahead(state: State, times: Tracer, params: Sequence[Tracer]) -> PyTree:
            states = self.solve(state, times, params)
            return states, (states, times, params)

        def backward(kept: PyTree, cotangents: State) -> PyTree:
            states, times, params = kept
            return self._integrate_adjoint(states, times, params, cotangents)

        result: State = with_derived_vjp(integrate, ahead, backward)(state, times, list(params))
        return result

    def _integrate(self, state: State, times: Tracer, params: Sequence[Tracer]) -> State:
        def slope(state: State, time: Tracer) -> State:
            return self.derivative(state, time, params)

        first = slope(state, times[0])
        step = self._first_step(slope, state, times[0], first)
        cell = [[y, y * 0, y * 0, y * 0, y * 0] for y in state]

        def advance(carry: PyTree, interval: tuple[Tracer, Tracer]) -> PyTree:
            latest, target = interval

            def is_before(carry: PyTree) -> object:
                count, _, _, time, step, _, _ = carry
                condition = as_tracer((time < target) & (step > 0))
                return condition if self.max_steps == inf else condition & (count < self.max_steps)

            def body(carry: PyTree) -> PyTree:
                return self._take_step(slope, carry)

            _, *rest = while_loop(is_before, body, (snp.zeros((), "int32"), *carry))
            _, _, time, _, begin, cell = rest
            width = time - begin
            position = snp.where(width > 0, (target - begin) / snp.where(width > 0, width, 1), 0)
            has_solution = (time >= target) & (target >= latest)
            position = snp.where(has_solution, position, snp.nan)
            values = [_evaluate_polynomial(each, position) for each in cell]
            return tuple(rest), values

        start = (state, first, times[0], step, times[0], cell)
        _, rest = scan(advance, start, (cummax(times)[:-1], times[1:]))
        return [
            as_tracer(snp.concatenate([y[None], ys])) for y, ys in zip(state, rest, strict=True)
        ]

    def _take_step(self, slope: Callable[[State, Tracer], State], carry: PyTree) -> PyTree:
        """Return the carry after a step, which is unchanged except the step size if it fails."""
        count, state, first, time, step, begin, cell = carry
        step = snp.minimum(step, self.max_step)
        slopes = [first]
        for at, weights in zip(STAGE_TIMES, STAGE_WEIGHTS, strict=True):
            new = _combine(state, step, slopes, weights)
            slopes.append(slope(new, time + step * at))
        zeros = [y * 0 for y in state]
        ratio = self._relative_error(_combine(zeros, step, slopes, ERROR_WEIGHTS), state, new)
        middle = _combine(state, step, slopes, MIDDLE_WEIGHTS)
        polynomials = [
            _fit_polynomial(*values, _convert_step(step, values[0]))
            for values in zip(state, middle, new, slopes[0], slopes[-1], strict=True)
        ]
        accepted = ratio <= 1
        after = (new, slopes[-1], time + step, time, polynomials)
        before = (state, first, time, begin, cell)
        state, first, time, begin, cell = tree.map(
            lambda x, y: snp.where(accepted, x, y), after, before
        )
        return count + 1, state, first, time, _next_step(step, ratio), begin, cell

    def _first_step(
        self, slope: Callable[[State, Tracer], State], state: State, time: Tracer, first: State
    ) -> Tracer:
        """Return the first step, by the estimate of Hairer, Norsett and Wanner, II.4."""
        scales = [self.atol + snp.abs(y) * self.rtol for y in state]
        size, speed = (_norm(each, scales) for each in (state, first))
        small = (size < 1e-5) | (speed < 1e-5)
        trial = snp.where(small, 1e-6, 0.01 * size / snp.where(small, 1, speed))
        trial = convert(as_tracer(trial), time.value.type.dtype)
        moved = [y + _convert_step(trial, y) * f for y, f in zip(state, first, strict=True)]
        second = slope(moved, time + trial)
        change = [b - a for a, b in zip(first, second, strict=True)]
        curvature = _norm(change, scales) / trial
        largest = snp.maximum(speed, curvature)
        flat = largest <= 1e-15
        step = snp.where(
            flat, snp.maximum(1e-6, trial * 1e-3), (0.01 / snp.where(flat, 1, largest)) ** 0.2
        )
        return convert(as_tracer(snp.minimum(100 * trial, step)), time.value.type.dtype)

    def _relative_error(self, errors: State, before: State, after: State) -> Tracer:
        scales = [
            self.atol + self.rtol * snp.maximum(snp.abs(x), snp.abs(y))
            for x, y in zip(before, after, strict=True)
        ]
        return _norm(errors, scales)

    def _integrate_adjoint(
        self, states: State, times: Tracer, params: Sequence[Tracer], cotangents: State
    ) -> PyTree:
        """Return the cotangents of the first state, the times and the parameters."""
        moving = [i for i, x in enumerate(params) if x.value.type.dtype in INEXACT]

        def fill(values: Sequence[Tracer]) -> list[Tracer]:
            filled = list(params)
            for i, value in zip(moving, values, strict=True):
                filled[i] = value
            return filled

        size = len(states)

        def adjoint(augmented: State, time: Tracer, params: Sequence[Tracer]) -> State:
            state, of_state = augmented[:size], augmented[size : 2 * size]
            values = [params[i] for i in moving]
            slope, pull = vjp(
                lambda y, t, each: self.derivative(y, t, fill(each)), list(state), -time, values
            )
            by_state, by_time, by_values = pull(list(of_state))
            return [*(-f for f in slope), *by_state, by_time, *by_values]

        backward = _Equation(adjoint, self.rtol, self.atol, self.max_steps, self.max_step)

        def retreat(carry: PyTree, row: PyTree) -> PyTree:
            of_state, of_time, of_values = carry
            state, time, earlier, cotangent, next_cotangent = row
            slope = self.derivative(list(state), time, params)
            by_time = sum(
                (snp.sum(f * g) for f, g in zip(slope, cotangent, strict=True)), snp.zeros(())
            )
            by_time = convert(as_tracer(snp.real(by_time)), time.value.type.dtype)
            augmented = [*state, *of_state, of_time - by_time, *of_values]
            ends = backward.solve(augmented, snp.stack([-time, -earlier]), params)
            last = [each[-1] for each in ends]
            of_state = [x + g for x, g in zip(last[size : 2 * size], next_cotangent, strict=True)]
            return (of_state, last[2 * size], last[2 * size + 1 :]), by_time

        start = (
            [g[-1] for g in cotangents],
            snp.zeros((), times.dtype),
            [params[i] * 0 for i in moving],
        )
        rows = (
            [y[1:] for y in states], times[1:], times[:-1],
            [g[1:] for g in cotangents], [g[:-1] for g in cotangents],
        )  # fmt: skip
        (of_state, of_first, of_values), of_times = scan(retreat, start, rows, reverse=True)
        of_params = [x * 0 for x in params]
        for i, value in zip(moving, of_values, strict=True):
            of_params[i] = value
        return of_state, snp.concatenate([of_first[None], of_times]), of_params


def _convert_step(step: Tracer, like: Tracer) -> Tracer:
    """Return a step in the element type of a state."""
    return convert(step, like.value.type.dtype)


def _combine(
    state: State, step: Tracer, slopes: Sequence[State], weights: Sequence[float]
) -> State:
    """Return the state plus the step times a weighted sum of slopes."""
    result = []
    for i, y in enumerate(state):
        terms = [slope[i] * weight for slope, weight in zip(slopes, weights, strict=True) if weight]
        result.append(y + _convert_step(step, y) * sum(terms[1:], terms[0]))
    return result


def _norm(values: State, scales: Sequence[Tracer]) -> Tracer:
    """Return the root mean square of the relative sizes of all elements."""
    count = sum(x.size for x in values)
    squares = [snp.sum(snp.abs(x / s) ** 2) for x, s in zip(values, scales, strict=True)]
    return snp.sqrt(sum(squares[1:], squares[0]) / max(count, 1))


def _next_step(step: Tracer, ratio: Tracer) -> Tracer:
    least = snp.where(ratio < 1, 1.0, MIN_STEP_RATIO)
    best = SAFETY_FACTOR * snp.where(ratio == 0, 1, ratio) ** -0.2
    factor = snp.where(
        ratio == 0, MAX_STEP_RATIO, snp.minimum(MAX_STEP_RATIO, snp.maximum(best, least))
    )
    return convert(as_tracer(step * factor), step.value.type.dtype)


def _fit_polynomial(
    first: Tracer, middle: Tracer, last: Tracer, first_slope: Tracer, last_slope: Tracer,
    step: Tracer,
) -> list[Tracer]:  # fmt: skip
    """Return the coefficients of degree 0 to 4, in the position in the step, of the polynomial with
    these three values and two slopes.
    """
    v0, v1 = first_slope * step, last_slope * step
    rise, half = last - first, middle - first
    # With p(s) = first + v0 s + c2 s^2 + c3 s^3 + c4 s^4, the conditions p(1/2), p(1) and p'(1) are
    # three linear equations for c2, c3 and c4.
    return [
        first,
        v0,
        16 * half - 5 * rise + v1 - 4 * v0,
        14 * rise - 32 * half + 5 * v0 - 3 * v1,
        16 * half - 8 * rise - 2 * v0 + 2 * v1,
    ]


def _evaluate_polynomial(coefficients: Sequence[Tracer], position: Tracer) -> Tracer:
    result = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        result = result * _convert_step(position, result) + coefficient
    return result
