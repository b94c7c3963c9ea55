"""Learning rate schedules.

A schedule is a function from the step number, concrete or traced, to a number.
"""

from collections.abc import Callable, Mapping, Sequence
from math import pi
from typing import TypeAlias

import numpy as np

from shardir.frontend.argument_checks import check_real
from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.operators import Operators
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.creation import array_conversion
from shardir.frontend.numpy.elementwise import arithmetic, math_functions, rounding, selection
from shardir.frontend.optim.argument_checks import check_numbers, require_list
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.tracer import Tracer

Scalar: TypeAlias = float | np.number | Operators
"""A Python number, or an array or a tracer of rank 0."""

Schedule: TypeAlias = Callable[[Scalar], Scalar]
"""A function from the step number to a number."""

LearningRate: TypeAlias = Scalar | Schedule
"""A number, or a schedule."""


@with_argument_errors
def constant_schedule(value: Scalar) -> Schedule:
    """Return the schedule that is always `value`."""
    return lambda count: value


@with_argument_errors
def polynomial_schedule(
    init_value: float,
    end_value: float,
    power: float,
    transition_steps: int,
    transition_begin: int = 0,
) -> Schedule:
    """Return a schedule from `init_value` to `end_value` by a power of the remaining fraction.

    The transition takes `transition_steps` steps and begins at `transition_begin`.
    """
    _check_positive_steps("transition_steps", transition_steps)
    _check_schedule_numbers(
        init_value=init_value,
        end_value=end_value,
        power=power,
        transition_begin=transition_begin,
    )

    def schedule(count: Scalar) -> Tracer:
        done = selection.clip(
            array_conversion.asarray(count) - transition_begin, 0, transition_steps
        )
        remaining = 1 - done / transition_steps
        return (init_value - end_value) * remaining**power + end_value

    return schedule


@with_argument_errors
def linear_schedule(
    init_value: float, end_value: float, transition_steps: int, transition_begin: int = 0
) -> Schedule:
    """Return a linear schedule from `init_value` to `end_value`."""
    return polynomial_schedule(init_value, end_value, 1, transition_steps, transition_begin)


@with_argument_errors
def exponential_decay(
    init_value: float,
    transition_steps: int,
    decay_rate: float,
    transition_begin: int = 0,
    staircase: bool = False,
    end_value: float | None = None,
) -> Schedule:
    """Return `init_value` times `decay_rate` per `transition_steps`; in steps if `staircase`.

    The value does not pass `end_value`.
    """
    _check_positive_steps("transition_steps", transition_steps)
    _check_schedule_numbers(
        init_value=init_value,
        decay_rate=decay_rate,
        transition_begin=transition_begin,
        end_value=0.0 if end_value is None else end_value,
    )

    def schedule(count: Scalar) -> Tracer:
        done = array_conversion.asarray(count) - transition_begin
        times = done / transition_steps
        times = rounding.floor(times) if staircase else times
        value = selection.where(
            done <= 0, init_value, init_value * arithmetic.power(decay_rate, times)
        )
        if end_value is None:
            return value
        return (selection.maximum if decay_rate < 1 else selection.minimum)(value, end_value)

    return schedule


@with_argument_errors
def cosine_decay_schedule(
    init_value: float, decay_steps: int, alpha: float = 0.0, exponent: float = 1.0
) -> Schedule:
    """Return a schedule from `init_value` to `alpha` times it along half a cosine.

    Loshchilov, Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017.
    """
    _check_positive_steps("decay_steps", decay_steps)
    _check_schedule_numbers(init_value=init_value, alpha=alpha, exponent=exponent)

    def schedule(count: Scalar) -> Tracer:
        done = selection.minimum(array_conversion.asarray(count), decay_steps) / decay_steps
        wave = 0.5 * (1 + math_functions.cos(pi * done))
        return init_value * ((1 - alpha) * wave**exponent + alpha)

    return schedule


@with_argument_errors
def piecewise_constant_schedule(
    init_value: float, boundaries_and_scales: Mapping[int, float] | None = None
) -> Schedule:
    """Return `init_value`, multiplied by a scale from each boundary on."""
    _check_schedule_numbers(init_value=init_value)
    given = {} if boundaries_and_scales is None else boundaries_and_scales
    if not isinstance(given, Mapping):
        raise ArgumentError(
            with_location(
                "piecewise_constant_schedule takes a dictionary from boundaries to scales, got "
                f"{brief(given)}"
            )
        )
    for boundary, scale in given.items():
        _check_schedule_numbers(**{"a boundary": boundary, "a scale": scale})
    scales = sorted(given.items())

    def schedule(count: Scalar) -> Tracer:
        value = array_conversion.asarray(init_value)
        for boundary, scale in scales:
            value = value * selection.where(array_conversion.asarray(count) >= boundary, scale, 1.0)
        return value

    return schedule


@with_argument_errors
def join_schedules(schedules: Sequence[Schedule], boundaries: Sequence[int]) -> Schedule:
    """Return a schedule that applies schedules in sequence, each counting from its boundary."""
    for each in require_list("schedules of join_schedules", schedules):
        check_function("join_schedules", each)
    for boundary in require_list("boundaries of join_schedules", boundaries):
        _check_schedule_numbers(**{"a boundary": boundary})
    if len(boundaries) != len(schedules) - 1:
        raise ArgumentError(
            with_location(
                f"join_schedules got {len(schedules)} schedules and {len(boundaries)} boundaries; "
                "give one boundary between each two schedules"
            )
        )

    def schedule(count: Scalar) -> Scalar:
        value = schedules[0](count)
        for boundary, next_schedule in zip(boundaries, schedules[1:], strict=True):
            step = array_conversion.asarray(count)
            value = selection.where(step < boundary, value, next_schedule(step - boundary))
        return value

    return schedule


@with_argument_errors
def warmup_cosine_decay_schedule(
    init_value: float,
    peak_value: float,
    warmup_steps: int,
    decay_steps: int,
    end_value: float = 0.0,
    exponent: float = 1.0,
) -> Schedule:
    """Return a linear schedule to `peak_value`, then half a cosine to `end_value`.

    `decay_steps` is the number of all steps, including those of the linear part.
    """
    _check_schedule_numbers(init_value=init_value, end_value=end_value, decay_steps=decay_steps)
    peak, warmup = check_real("peak_value", peak_value), check_real("warmup_steps", warmup_steps)
    alpha = 0.0 if peak == 0 else end_value / peak_value
    decay = cosine_decay_schedule(peak_value, decay_steps - warmup_steps, alpha, exponent)
    if warmup == 0:
        return decay
    warmup_part = linear_schedule(init_value, peak_value, warmup_steps)
    return join_schedules([warmup_part, decay], [warmup_steps])


def _check_schedule_numbers(**values: float | int | str) -> None:
    check_numbers("a schedule", **values)


def _check_positive_steps(word: str, steps: int) -> None:
    if check_real(f"{word} of a schedule", steps) <= 0:
        raise ArgumentError(
            with_location(f"{word} of a schedule is {steps}; it must be at least 1")
        )
