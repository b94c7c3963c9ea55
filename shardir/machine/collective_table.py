"""Tables of measured collectives: sizes in bytes and times in seconds.

Three forms of files are read: CSV with the columns `bytes,seconds`; the tables of vTrain
(`size(B),count,type,time(ns),busbw(GB/s),...`); and any CSV with a header whose columns `bytes` or
`size(B)`, and `seconds`, `time(us)` or `time(ns)` are in any order.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shardir.errors import MachineError, count_noun, os_error_reason

_BYTES_COLUMNS = ("bytes", "size(B)")
_BUS_COLUMN = "busbw(GB/s)"
_SECONDS_PER_UNIT = {"seconds": 1.0, "time(ms)": 1e-3, "time(us)": 1e-6, "time(ns)": 1e-9}


@dataclass(frozen=True)
class CollectiveTable:
    """Measured times of one collective over groups of one size, sorted by bytes."""

    nbytes: tuple[float, ...]
    seconds: tuple[float, ...]
    source: str = ""
    bus_bandwidths: tuple[float, ...] = ()
    """Bytes per second as the tests of NCCL print them, of the last measurement of each size; empty
    without the column `busbw(GB/s)`."""

    def interpolate(self, nbytes: float) -> float:
        """Return the time of a size, interpolated linearly: the time of one algorithm is a latency
        plus a time per byte.

        Below the smallest size its time holds; above the largest, the time grows with the bytes.
        """
        if nbytes >= self.nbytes[-1]:
            return self.seconds[-1] * nbytes / self.nbytes[-1]
        return float(np.interp(nbytes, self.nbytes, self.seconds))


def read_table(path: Path) -> CollectiveTable:
    """Read a table file; repeated sizes get their mean time."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if row and not row[0].startswith("#")]
    except (OSError, UnicodeDecodeError) as error:
        reason = os_error_reason(error)
        raise MachineError(f"cannot read the table {str(path)!r}: {reason}") from None
    header = [name.strip() for name in rows[0]] if rows else []
    size = next((header.index(name) for name in _BYTES_COLUMNS if name in header), None)
    unit = next((name for name in _SECONDS_PER_UNIT if name in header), None)
    if size is None or unit is None:
        raise MachineError(
            f"{path} has the columns {', '.join(header) or '(none)'}; a table of a collective has "
            f"a column {' or '.join(_BYTES_COLUMNS)}, and a column {' or '.join(_SECONDS_PER_UNIT)}"
        )
    time = header.index(unit)
    bus = header.index(_BUS_COLUMN) if _BUS_COLUMN in header else None
    times: dict[float, list[float]] = {}
    bus_bandwidths: dict[float, float] = {}
    for number, row in enumerate(rows[1:], 2):
        try:
            nbytes, seconds = float(row[size]), float(row[time]) * _SECONDS_PER_UNIT[unit]
            bandwidth = float(row[bus]) * 1e9 if bus is not None else 0.0
        except (ValueError, IndexError):
            nbytes = seconds = bandwidth = 0.0
        if not 0 < nbytes < np.inf or not 0 < seconds < np.inf:
            raise MachineError(
                f"{path}: row {number} is {','.join(row)!r}; bytes and time are positive numbers"
            )
        times.setdefault(nbytes, []).append(seconds)
        bus_bandwidths[nbytes] = bandwidth
    if len(times) < 2:
        raise MachineError(f"{path} has {count_noun(len(times), 'size')}; a table has at least 2")
    sizes = sorted(times)
    return CollectiveTable(
        tuple(sizes),
        tuple(float(np.mean(times[n])) for n in sizes),
        bus_bandwidths=tuple(bus_bandwidths[n] for n in sizes) if bus is not None else (),
    )
