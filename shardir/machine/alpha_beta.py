"""Fits of measured collectives: seconds = latency + traffic / bandwidth.

The fit minimizes the squares of relative errors, so that small and large sizes count alike.
"""

from dataclasses import dataclass

import numpy as np

from shardir.errors import MachineError, count_noun
from shardir.machine.collective_table import CollectiveTable
from shardir.machine.collective_time import traffic
from shardir.machine.description import collective_kind_fault

FOLD_COUNT = 5
"""The number of parts of a cross-validation."""


@dataclass(frozen=True, slots=True)
class AlphaBetaFit:
    """A fit with its errors, as fractions of the measured times."""

    kind: str
    group: int
    size_count: int
    latency: float
    bandwidth: float
    mean_error: float
    """The mean of the absolute errors at the sizes of the fit (MAPE)."""
    worst_error: float
    validated_error: float
    """The mean of the absolute errors at sizes that the fit did not use: the sizes are divided into
    five parts, and each is predicted from the four others."""


def fit_alpha_beta(table: CollectiveTable, kind: str, group: int) -> AlphaBetaFit:
    """Fit latency and bandwidth of a collective over groups of one size."""
    if fault := collective_kind_fault(kind):
        raise MachineError(fault)
    if group < 2:
        raise MachineError(
            f"the group has {count_noun(group, 'device')}; a collective has at least 2"
        )
    count = len(table.nbytes)
    if count < 2:
        raise MachineError(f"a fit needs at least 2 sizes, got {count}")
    amounts = np.array([traffic(kind, group, nbytes) for nbytes in table.nbytes])
    seconds = np.array(table.seconds)
    latency, slope = _fit(amounts, seconds)
    errors = np.abs((latency + slope * amounts) / seconds - 1)
    folds = np.arange(count) % FOLD_COUNT
    validated = []
    for fold in range(FOLD_COUNT):
        inside, outside = folds != fold, folds == fold
        if inside.sum() < 2:
            continue
        fold_latency, fold_slope = _fit(amounts[inside], seconds[inside])
        predicted = fold_latency + fold_slope * amounts[outside]
        validated.extend(np.abs(predicted / seconds[outside] - 1))
    return AlphaBetaFit(
        kind=kind,
        group=group,
        size_count=count,
        latency=latency,
        bandwidth=1 / slope,
        mean_error=float(errors.mean()),
        worst_error=float(errors.max()),
        validated_error=float(np.mean(validated)) if validated else float("nan"),
    )


def _fit(
    amounts: np.ndarray[tuple[int], np.dtype[np.float64]],
    seconds: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> tuple[float, float]:
    """Return the latency and the seconds per byte, neither of them negative."""
    scale = float(amounts.max())
    columns = np.stack([1 / seconds, amounts / scale / seconds], axis=1)
    ones = np.ones(len(seconds))
    (latency, slope), *_ = np.linalg.lstsq(columns, ones, rcond=None)
    if latency < 0:
        latency = 0.0
        slope = columns[:, 1].sum() / (columns[:, 1] ** 2).sum()
    if slope <= 0:
        raise MachineError("the times do not grow with the bytes; measure larger sizes")
    return float(latency), float(slope / scale)


def group_of_bus_bandwidth(table: CollectiveTable) -> int | None:
    """Return the group size of an all-reduce from its column of bus bandwidths, as NCCL's tests
    print it: bytes / seconds * 2(g-1)/g. Returns None without such a column.
    """
    if not table.bus_bandwidths:
        return None
    factors = np.array(table.bus_bandwidths) * table.seconds / table.nbytes
    factor = float(np.median(factors))
    return round(2 / (2 - factor)) if 0.9 < factor < 2 else None
