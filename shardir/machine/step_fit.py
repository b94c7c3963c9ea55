"""Fits of the constants of a description to measured steps.

A constant is scaled by a factor: `matmul`, `pointwise` and `memory` scale the achieved fractions,
`launch` the time of a launch, `launch.interval` the time between launches, `operations` the
measured times of operations, `call` that of calls, `links.NAME` the bandwidth of a link, and
`links.NAME.latency` its latencies. The caller predicts the time of a step
with a changed description, for example by simulation. The fit minimizes the squares of the errors
of the logarithms (Gauss and Newton's method), and keeps factors near 1 that the steps do not
determine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log

import numpy as np

from shardir.errors import MachineError, count_noun
from shardir.ir.dtypes import NumpyArray
from shardir.machine.collective_table import CollectiveTable
from shardir.machine.description import (
    AlphaBeta,
    CallTime,
    Link,
    MachineDescription,
    OperationTime,
    Rate,
)

Predict = Callable[[MachineDescription, int], float]
"""Returns the seconds of the step with an index on a described machine."""

FOLD_COUNT = 5
"""The number of parts of a cross-validation."""
MAX_ITERATIONS = 8
MAX_LOG_STEP = 0.7
"""The largest change of the logarithm of a factor in one iteration."""
LOG_DIFFERENCE = 0.02
"""The change of the logarithm of a factor that measures its effect."""
STIFFNESS = 1e-3
"""The weight of a factor's distance from 1, relative to the error of one step."""
MIN_GAIN = 1e-4
"""The relative decrease of the squares of errors below which a fit ends."""


@dataclass(frozen=True, slots=True)
class StepFit:
    """Fitted factors and their errors, as fractions of the measured times."""

    description: MachineDescription
    """The description with the fitted constants."""
    factors: Mapping[str, float]
    mean_error: float
    """The mean of the absolute errors of the steps of the fit (MAPE)."""
    worst_error: float
    validated_error: float
    """The mean of the absolute errors of steps that the fit did not use: the steps are divided into
    five parts, and each is predicted from the four others. NaN for fewer steps than five."""


def list_constants(description: MachineDescription) -> tuple[str, ...]:
    """Return the names of the constants that can be fitted."""
    links = [
        key for name in description.links for key in (f"links.{name}", f"links.{name}.latency")
    ]
    optional = {
        "launch.interval": description.launch_interval,
        "operations": description.operations,
        "call": description.call,
    }
    stated = [name for name, value in optional.items() if value]
    return ("matmul", "pointwise", "memory", "launch", *stated, *links)


def fit_steps(
    description: MachineDescription,
    constants: Sequence[str],
    measured: Sequence[float],
    predict: Predict,
) -> StepFit:
    """Fit constants of a description to the measured seconds of steps."""
    known = list_constants(description)
    for name in constants:
        if name not in known:
            raise MachineError(
                f"machine {description.name!r} has no constant {name!r}; constants are "
                f"{', '.join(known)}"
            )
    if len(measured) < len(constants) or not constants:
        raise MachineError(
            f"{count_noun(len(measured), 'step')} cannot determine "
            f"{count_noun(len(constants), 'constant')}; measure at least "
            "one step for each constant, and fit at least one constant"
        )
    if not all(0 < seconds < inf for seconds in measured):
        raise MachineError("the measured times of steps must be positive numbers of seconds")
    problem = _Problem(description, tuple(constants), tuple(measured), predict)
    everything = list(range(len(measured)))
    factors = problem.fit(everything, np.zeros(len(constants)))
    errors = problem.errors(factors, everything)
    validated: list[float] = []
    if len(measured) >= max(FOLD_COUNT, len(constants) + 1):
        for fold in range(FOLD_COUNT):
            outside = everything[fold::FOLD_COUNT]
            inside = [index for index in everything if index not in outside]
            fold_factors = problem.fit(inside, factors)
            validated.extend(np.abs(np.expm1(problem.errors(fold_factors, outside))))
    absolute = np.abs(np.expm1(errors))
    return StepFit(
        description=problem.describe(factors),
        factors={name: exp(value) for name, value in zip(constants, factors, strict=True)},
        mean_error=float(absolute.mean()),
        worst_error=float(absolute.max()),
        validated_error=float(np.mean(validated)) if validated else float("nan"),
    )


@dataclass(frozen=True)
class _Problem:
    """A fit; factors are logarithms, in the order of the constants."""

    description: MachineDescription
    constants: tuple[str, ...]
    measured: tuple[float, ...]
    predict: Predict

    def describe(self, factors: NumpyArray) -> MachineDescription:
        scales = {name: exp(value) for name, value in zip(self.constants, factors, strict=True)}
        return scale_constants(self.description, scales)

    def errors(self, factors: NumpyArray, steps: Sequence[int]) -> NumpyArray:
        """Return the logarithms of predicted over measured times."""
        description = self.describe(factors)
        return np.array(
            [log(self.predict(description, step) / self.measured[step]) for step in steps]
        )

    def fit(self, steps: Sequence[int], start: NumpyArray) -> NumpyArray:
        """Return the factors that minimize the errors of some steps."""
        limits = np.array([log(_largest_factor(self.description, c)) for c in self.constants])
        factors: NumpyArray = np.minimum(start, limits)
        errors = self.errors(factors, steps)
        for _ in range(MAX_ITERATIONS):
            slopes = np.empty((len(steps), len(factors)))
            for column in range(len(factors)):
                # Downwards, because fractions of a peak cannot exceed 1.
                moved = factors.copy()
                moved[column] -= LOG_DIFFERENCE
                slopes[:, column] = (errors - self.errors(moved, steps)) / LOG_DIFFERENCE
            stiffness = STIFFNESS * np.eye(len(factors))
            normal = slopes.T @ slopes + stiffness
            step = np.linalg.solve(normal, -slopes.T @ errors - STIFFNESS * factors)
            step = np.clip(step, -MAX_LOG_STEP, MAX_LOG_STEP)
            before = self._loss(errors, factors)
            for _ in range(4):
                trial = np.minimum(factors + step, limits)
                trial_errors = self.errors(trial, steps)
                if self._loss(trial_errors, trial) < before:
                    break
                step = step / 4
            else:
                return factors
            factors, errors = trial, trial_errors
            if before - self._loss(errors, factors) < MIN_GAIN * before:
                break
        return factors

    @staticmethod
    def _loss(errors: NumpyArray, factors: NumpyArray) -> float:
        return float(errors @ errors + STIFFNESS * factors @ factors)


def scale_constants(
    description: MachineDescription, factors: Mapping[str, float]
) -> MachineDescription:
    """Return a description with constants multiplied by factors."""
    links = dict(description.links)
    for name, link in links.items():
        speed, delay = factors.get(f"links.{name}", 1.0), factors.get(f"links.{name}.latency", 1.0)
        links[name] = _scale_link(link, speed, delay)
    memory, launch, call = description.memory, description.launch_seconds, description.call
    read, bandwidth = description.read, factors.get("memory", 1.0)
    return replace(
        description,
        matmul=_scale_rates(description.matmul, factors.get("matmul", 1.0)),
        pointwise=_scale_rates(description.pointwise, factors.get("pointwise", 1.0)),
        memory=None if memory is None else _scale_rate(memory, bandwidth),
        read=None if read is None else _scale_rate(read, bandwidth),
        launch_seconds=None if launch is None else launch * factors.get("launch", 1.0),
        launch_interval=description.launch_interval * factors.get("launch.interval", 1.0),
        operations={
            name: {
                dtype: _scale_operation(each, factors.get("operations", 1.0))
                for dtype, each in times.items()
            }
            for name, times in description.operations.items()
        },
        call=None if call is None else _scale_call(call, factors.get("call", 1.0)),
        links=links,
    )


def _scale_operation(time: OperationTime, factor: float) -> OperationTime:
    return replace(time, points=tuple((size, seconds * factor) for size, seconds in time.points))


def _scale_call(call: CallTime, factor: float) -> CallTime:
    return replace(call, seconds=call.seconds * factor, array_seconds=call.array_seconds * factor)


def _scale_rates(rates: Mapping[str, Rate], factor: float) -> dict[str, Rate]:
    return {dtype: _scale_rate(rate, factor) for dtype, rate in rates.items()}


def _scale_rate(rate: Rate, factor: float) -> Rate:
    efficiency = tuple((size, min(1.0, fraction * factor)) for size, fraction in rate.efficiency)
    return replace(rate, efficiency=efficiency)


def _scale_link(link: Link, speed: float, delay: float) -> Link:
    if speed == delay == 1.0:
        return link
    fits: dict[tuple[str, int], AlphaBeta | CollectiveTable] = {}
    for key, fit in link.fits.items():
        if isinstance(fit, AlphaBeta):
            scaled = replace(fit, latency=fit.latency * delay, bandwidth=fit.bandwidth * speed)
            fits[key] = scaled
        else:
            # The smallest size of a table takes little more than the latency.
            least = fit.seconds[0]
            seconds = tuple(least * delay + (time - least) / speed for time in fit.seconds)
            fits[key] = replace(fit, seconds=seconds)
    return replace(
        link,
        bandwidth=_scale_rate(link.bandwidth, speed),
        latency=link.latency * delay,
        hop_latency=link.hop_latency * delay,
        fits=fits,
    )


def _largest_factor(description: MachineDescription, constant: str) -> float:
    """Return the factor with which the largest fraction becomes 1."""
    rates: dict[str, list[Rate]] = {
        "matmul": list(description.matmul.values()),
        "pointwise": list(description.pointwise.values()),
        "memory": [rate for rate in (description.memory, description.read) if rate is not None],
        **{f"links.{name}": [link.bandwidth] for name, link in description.links.items()},
    }
    fractions = [f for rate in rates.get(constant, ()) for _, f in rate.efficiency]
    return 1 / max(fractions) if fractions else inf


def describe_fit(fit: StepFit, base: str, step_count: int) -> dict[str, object]:
    """Return the content of a file that changes constants of a description to the fitted ones."""
    errors = f"mean error {fit.mean_error:.1%}, cross-validated {fit.validated_error:.1%}"
    notes = {
        name: f"times {factor:.4g}, fitted to {step_count} measured steps"
        for name, factor in fit.factors.items()
    }
    content = describe_constants(fit.description, base, notes)
    steps = count_noun(step_count, "step")
    text = f"{fit.description.text} (constants fitted to {steps}: {errors})"
    return {"base": base, "description": text} | content


def describe_constants(
    found: MachineDescription, base: str, notes: Mapping[str, str]
) -> dict[str, object]:
    """Return the content of a file that changes the constants in `notes` to those of a description.

    `notes` has what the sources of changed numbers add to those of the base.
    """
    changed = set(notes)

    def note(constant: str, source: str) -> str:
        return f"{source}; {notes[constant]}"

    def rate(constant: str, each: Rate) -> dict[str, object]:
        pairs = [list(pair) for pair in each.efficiency]
        return {"efficiency": pairs, "source": note(constant, each.source)}

    content: dict[str, object] = {"base": base}
    if "memory" in changed and found.memory is not None:
        read = {} if found.read is None else {"read": rate("memory", found.read)}
        content["memory"] = rate("memory", found.memory) | read
    if "operations" in changed:
        content["operations"] = {
            name: {
                dtype: {
                    "seconds_per_element": [list(point) for point in each.points],
                    "source": note("operations", each.source),
                }
                for dtype, each in times.items()
            }
            for name, times in found.operations.items()
        }
    if "call" in changed and found.call is not None:
        content["call"] = {
            "seconds": found.call.seconds,
            "array_seconds": found.call.array_seconds,
            "source": note("call", found.call.source),
        }
    launches = [constant for constant in ("launch", "launch.interval") if constant in changed]
    if launches and found.launch_seconds is not None:
        content["launch"] = {
            "seconds": found.launch_seconds,
            "interval": found.launch_interval,
            "source": note(launches[-1], found.launch_source),
        }
    for section, rates in (("matmul", found.matmul), ("pointwise", found.pointwise)):
        if section in changed:
            content[section] = {dtype: rate(section, each) for dtype, each in rates.items()}
    links = {}
    for name, link in found.links.items():
        keys = [key for key in (f"links.{name}", f"links.{name}.latency") if key in changed]
        if keys:
            links[name] = {
                "efficiency": [list(pair) for pair in link.bandwidth.efficiency],
                "latency": link.latency,
                "hop_latency": link.hop_latency,
                "source": note(keys[0], link.source),
                "collectives": [
                    _describe_collective(kind, group, each, note(keys[0], each.source))
                    for (kind, group), each in link.fits.items()
                ],
            }
    if links:
        content["links"] = links
    return content


def _describe_collective(
    kind: str, group: int, fit: AlphaBeta | CollectiveTable, source: str
) -> dict[str, object]:
    entry: dict[str, object] = {"kind": kind, "group": group}
    if isinstance(fit, AlphaBeta):
        entry |= {"latency": fit.latency, "bandwidth": fit.bandwidth}
    else:
        entry["table"] = [list(pair) for pair in zip(fit.nbytes, fit.seconds, strict=True)]
    return entry | {"source": source}
