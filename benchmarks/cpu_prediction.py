"""Predicted and measured times of the workloads of `cpu.py` on the machine that runs them.

The machine is calibrated (as `shardir calibrate --local` does), then each workload is simulated on
it and run. Both use one thread and its CPU time, so that other programs on the machine have little
effect; `--wall` uses all threads and the time of a clock instead. A measured time is the median
over rounds of the fastest run. Workloads that do not call one compiled program are left out.

    python benchmarks/cpu_prediction.py [--wall] [part of a name ...]
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

WALL = "--wall" in sys.argv
if not WALL:
    os.environ["SHARDIR_CPU_THREADS"] = "1"

import cpu_library  # noqa: E402
from cpu_workloads import workloads  # noqa: E402

import shardir as sd  # noqa: E402
from shardir.frontend.profiling.machine_calibration import measure_local_machine  # noqa: E402
from shardir.machine.measurements import describe_measurements  # noqa: E402
from shardir.machine.toml_text import format_toml  # noqa: E402

ROUND_COUNT = 3
ROUND_SECONDS = 0.1
MAX_MEDIAN_ERROR = 0.15


class RecordedCalls:
    """shardir, whose `jit` and `pmap` record the last call."""

    def __init__(self) -> None:
        self.last: tuple[Any, tuple[Any, ...]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(sd, name)

    def jit(self, function: Callable[..., Any]) -> Any:
        return self._record(sd.jit(function))

    def pmap(self, function: Callable[..., Any], **options: Any) -> Any:
        return self._record(sd.pmap(function, **options))

    def _record(self, compiled: Any) -> Any:
        def call(*arguments: Any) -> Any:
            self.last = compiled, arguments
            return compiled(*arguments)

        return call


def measure(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Return the median over rounds of the fastest run."""
    fastest = []
    for _ in range(ROUND_COUNT):
        least, end = inf, clock() + ROUND_SECONDS
        while clock() < end:
            start = clock()
            run()
            least = min(least, clock() - start)
        fastest.append(least)
    return median(fastest)


def main(wanted: list[str]) -> int:
    clock = time.perf_counter if WALL else time.process_time
    errors: list[float] = []
    with TemporaryDirectory() as folder:
        machine = Path(folder) / "local.toml"
        machine.write_text(
            format_toml(describe_measurements(measure_local_machine(clock=clock))), "utf-8"
        )
        for workload in workloads():
            if wanted and not any(part in workload.name for part in wanted):
                continue
            calls = RecordedCalls()
            run = workload.make(replace(cpu_library.shardir(), top=calls))
            calls.last = None
            run()
            if calls.last is None:
                continue
            compiled, arguments = calls.last
            predicted = compiled.lower(*arguments).compile().simulate(machine).step_seconds
            measured = measure(run, clock)
            errors.append(abs(predicted / measured - 1))
            print(
                f"{workload.name:32} measured {measured * 1e3:9.3f} ms, predicted "
                f"{predicted * 1e3:9.3f} ms ({predicted / measured - 1:+.0%})",
                flush=True,
            )
    print(f"{len(errors)} workloads: median error {median(errors):.0%}")
    return int(median(errors) > MAX_MEDIAN_ERROR)


if __name__ == "__main__":
    sys.exit(main([each for each in sys.argv[1:] if each != "--wall"]))
