"""Description of a machine from measured times of products, copies and collectives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from statistics import mean, median

from shardir.machine.collective_table import CollectiveTable

Points = Sequence[tuple[float, float]]
"""Pairs of a size (flops or bytes) and the seconds of one call, sorted by size."""

OperationPoints = Mapping[str, Mapping[str, Points]]
"""Pairs of a size and the seconds for each element, by operation and dtype."""

VIEWS = ("broadcast", "reverse", "slice", "transpose")
"""The operations whose results are views in the CPU backend."""

MIN_MEASURED_SECONDS = 1e-9
"""The minimum of a measured time in seconds, after subtraction of the launch time."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measured times of a machine whose devices share one processor.

    `matmul` and `pointwise` have flops and seconds by dtype, `copies` bytes and seconds of
    elementwise operations, `reads` those of kernels that write little, and `collectives` bytes and
    seconds by kind and group size. Times of computations include `launch_seconds`. `call` has the
    seconds of the call of a program and of each of its arrays, `masked_edge` the columns that
    attention computes in each row in addition to the visible ones.
    """

    memory_capacity: int
    launch_seconds: float
    matmul: Mapping[str, Points]
    pointwise: Mapping[str, Points]
    copies: Points
    collectives: Mapping[tuple[str, int], Points]
    processor: str
    """The name of the processor, and the number of threads."""
    reads: Points = ()
    operations: OperationPoints = field(default_factory=dict)
    call: tuple[float, float] | None = None
    masked_edge: float | None = None


def describe_measurements(measurements: Measurements) -> dict[str, object]:
    """Return the content of a description file."""
    by = f"measured by shardir calibrate --local on {measurements.processor}"

    def rate(points: Points, name: str) -> dict[str, object]:
        return _describe_rate(points, name, measurements.launch_seconds, by)

    memory = {
        "capacity": measurements.memory_capacity,
        **rate(measurements.copies, "bandwidth"),
    }
    if measurements.reads:
        memory["read"] = rate(measurements.reads, "bandwidth")
    launch = {"seconds": measurements.launch_seconds, "source": f"{by}: chains of small products"}
    found: dict[str, object] = {
        "description": f"this machine: {measurements.processor}; its devices share the processor",
        "devices_share_processor": True,
        "memory": memory,
        "launch": launch,
        "matmul": {d: rate(p, "flops_per_second") for d, p in measurements.matmul.items()},
        "pointwise": {d: rate(p, "flops_per_second") for d, p in measurements.pointwise.items()},
        "links": _describe_links(measurements.collectives, by),
        "operations": {
            name: {dtype: _describe_operation(points, by) for dtype, points in by_dtype.items()}
            for name, by_dtype in measurements.operations.items()
        },
    }
    if measurements.call is not None:
        seconds, array_seconds = measurements.call
        found["call"] = {
            "seconds": seconds,
            "array_seconds": array_seconds,
            "source": f"{by}: calls with few and with many arrays",
        }
    if measurements.operations:
        found["backend"] = _describe_backend(measurements.masked_edge, by)
    return found


def _describe_rate(points: Points, name: str, launch: float, by: str) -> dict[str, object]:
    """Return the peak of a rate and its efficiency by size, without the seconds of a launch."""
    work = [(size, max(seconds - launch, MIN_MEASURED_SECONDS)) for size, seconds in points]
    peak, efficiency = peak_and_efficiency(work)
    return {
        name: peak,
        "efficiency": [list(pair) for pair in efficiency],
        "source": f"{by}; {describe_errors(leave_one_out_errors(work))}",
    }


def _describe_links(collectives: Mapping[tuple[str, int], Points], by: str) -> dict[str, object]:
    """Return the links between devices that share memory, if collectives were measured."""
    permutes = [points for (kind, _), points in collectives.items() if kind == "collective-permute"]
    if not permutes:
        return {}
    latency = max(points[0][1] for points in permutes)
    link = {
        "topology": "switch",
        "group_size": inf,
        # The slowest time per byte of a permute limits groups that were not measured.
        "bandwidth": min(points[-1][0] / points[-1][1] for points in permutes),
        "efficiency": 1.0,
        "latency": latency,
        "hop_latency": latency,
        "source": f"{by}: collective-permutes",
        "collectives": [
            {
                "kind": kind,
                "group": group,
                "table": [list(point) for point in increasing(points)],
                "source": f"{by}; {describe_errors(leave_one_out_errors_of_table(points))}",
            }
            for (kind, group), points in collectives.items()
        ],
    }
    return {"memory": link}


def _describe_operation(points: Points, by: str) -> dict[str, object]:
    alone = len(points) == 1
    return {
        "seconds_per_element": points[0][1] if alone else [list(point) for point in points],
        "source": f"{by}; {describe_errors(leave_one_out_errors(points))}",
    }


def _describe_backend(masked_edge: float | None, by: str) -> dict[str, object]:
    """Return the table of the CPU backend."""
    traits: dict[str, object] = {"name": "cpu", "views": list(VIEWS)}
    if masked_edge is not None:
        traits["masked_edge"] = masked_edge
    return traits | {"source": f"{by}: attention with and without a causal mask"}


def list_validated_errors(measurements: Measurements) -> dict[str, list[float]]:
    """Return the cross-validated errors of products, elementwise operations and collectives."""
    collectives: dict[str, list[float]] = {}
    for (kind, _), points in measurements.collectives.items():
        collectives.setdefault(kind, []).extend(leave_one_out_errors_of_table(points))
    pointwise = [*measurements.pointwise.values(), measurements.copies, measurements.reads]
    operations = {
        name: [e for points in by_dtype.values() for e in leave_one_out_errors(points)]
        for name, by_dtype in measurements.operations.items()
    }
    return {
        "products": [e for p in measurements.matmul.values() for e in leave_one_out_errors(p)],
        "elementwise": [e for p in pointwise for e in leave_one_out_errors(p)],
        **{name: errors for name, errors in operations.items() if errors},
        **collectives,
    }


def peak_and_efficiency(points: Points) -> tuple[float, list[tuple[float, float]]]:
    """Return the highest rate of the points, and the fraction of it at each size."""
    rates = [(size, size / seconds) for size, seconds in increasing(points)]
    peak = max(rate for _, rate in rates)
    return peak, [(size, rate / peak) for size, rate in rates]


def increasing(points: Points) -> list[tuple[float, float]]:
    """Return the points such that no time is shorter than that of a smaller size.

    Adjacent times in the wrong order are replaced by their geometric mean.
    """
    blocks: list[tuple[float, int]] = []
    for _, seconds in points:
        blocks.append((log(seconds), 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (low, low_count), (high, high_count) = blocks[-2:]
            count = low_count + high_count
            blocks[-2:] = [((low * low_count + high * high_count) / count, count)]
    times = [exp(value) for value, count in blocks for _ in range(count)]
    return [(size, seconds) for (size, _), seconds in zip(points, times, strict=True)]


def leave_one_out_errors(points: Points) -> list[float]:
    """Return the relative error of each inner point when the others predict it by interpolation."""
    errors = []
    for (low, before), (size, seconds), (high, after) in zip(
        points, points[1:], points[2:], strict=False
    ):
        position = log(size / low) / log(high / low)
        predicted = before * (after / before) ** position
        errors.append(abs(predicted / seconds - 1))
    return errors


def leave_one_out_errors_of_table(points: Points) -> list[float]:
    """Return the same errors for the linear interpolation of the table of a collective."""
    errors = []
    for position in range(1, len(points) - 1):
        size, seconds = points[position]
        others = [*points[:position], *points[position + 1 :]]
        table = CollectiveTable(tuple(n for n, _ in others), tuple(t for _, t in others))
        errors.append(abs(table.interpolate(size) / seconds - 1))
    return errors


def describe_errors(errors: Sequence[float]) -> str:
    """Return the text of cross-validated errors."""
    if not errors:
        return "too few sizes for a cross-validation"
    return (
        f"cross-validated error (each inner size from the others): median {median(errors):.1%}, "
        f"mean {mean(errors):.1%}"
    )
