"""Measure the speed of programs on this machine, compared with JAX, torch, NumPy and numba.

Each library runs in a separate process; the processes alternate after a few runs, so that other
load of the machine affects all of them. JAX has eight simulated devices, like shardir; torch has
one. Ratios are of medians: to JAX, and to the fastest other library; a workload above 1.05 of the
latter is a loss. `of limit` is the speed of the fastest run of a turn relative to the limit of the
machine in that turn, as the median of turns: the memory bandwidth can change by half between turns
if other programs use the memory. Needs the extras `jax` and `gpu` (for torch).

torch.compile is measured after its compilation, which takes 10 to 30 s in a new process.

    python benchmarks/cpu.py [--rounds N] [part of a name ...]
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

HERE = Path(__file__).parent
ROUND_SECONDS = 0.3
NAMES = ("shardir", "jax", "torch", "torch.compile", "numpy", "numba")
"""numba is optional: without it, its column is empty."""
LARGEST_RATIO = 1.05
"""Of the time of the fastest other library; a larger one is a loss."""
LARGEST_FIRST_CALL_RATIO = 0.7
BLAS_SETTINGS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Variables that let NumPy run kernels of older processors."""


class Process:
    """A library in a separate process, which answers requests."""

    def __init__(self, name: str, checkout: Path | None = None) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, str((checkout or HERE.parent) / "benchmarks/cpu_library.py"), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=checkout,
            env=environment(checkout),
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer, or the error of a process that has ended."""
        pipe_in, pipe_out = self.process.stdin, self.process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        try:
            pipe_in.write(json.dumps(request) + "\n")
            pipe_in.flush()
        except BrokenPipeError:
            return {"error": "the process ended"}
        for line in pipe_out:
            if line.startswith("="):
                answer: dict[str, Any] = json.loads(line[1:])
                return answer
        return {"error": "the process ended"}

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def environment(checkout: Path | None) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name not in BLAS_SETTINGS}
    if checkout is not None:
        found["PYTHONPATH"] = str(checkout)
    return found


@dataclass
class Result:
    """Seconds of the runs of one workload by one library, or why there are none.

    Of shardir also, for every turn, the seconds of the fastest run and the bytes and floating-point
    operations (f32) a second that the machine did at most.
    """

    seconds: list[float] = field(default_factory=list)
    error: str = ""
    turns: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.seconds) if self.seconds else float("nan")

    @property
    def least(self) -> float:
        return min(self.seconds, default=float("nan"))

    def share(self, moved: float, flops: float) -> float:
        """Return the least time in which the machine can do this, divided by the measured time."""
        shares = [max(moved / copied, flops / done) / least for least, copied, done in self.turns]
        return median(shares) if shares else float("nan")


def raced(name: str, processes: list[Process], rounds: int) -> dict[str, Result]:
    """Return the runs of a workload by all processes, which alternate."""
    results, counts = {each.name: Result() for each in processes}, {}
    for each in processes:
        answer = each.ask(do="prepare", name=name)
        if "second" in answer:
            counts[each.name] = max(2, min(2000, int(ROUND_SECONDS / max(answer["second"], 1e-6))))
        else:
            results[each.name].error = answer.get("error", "")
    for number in range(rounds):
        for each in processes if number % 2 else reversed(processes):
            if each.name in counts:
                answer = each.ask(do="time", number=counts[each.name])
                result = results[each.name]
                result.seconds += answer.get("seconds", [])
                if "bandwidth" in answer:
                    result.turns.append(
                        (min(answer["seconds"]), answer["bandwidth"], answer["flops"])
                    )
    for each in processes:
        each.ask(do="drop")
    return results


def shown(seconds: float) -> str:
    if seconds != seconds:
        return "-"
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def ratio(ours: float, theirs: float) -> str:
    return "-" if ours != ours or theirs != theirs else f"{ours / theirs:.2f}"


def fastest(results: dict[str, Result]) -> tuple[str, Result]:
    """Return the name and the runs of the fastest other library."""
    ran = [(name, each) for name, each in results.items() if name != "shardir" and each.seconds]
    return min(ran, key=lambda each: each[1].median, default=("-", Result()))


def main(wanted: list[str], rounds: int) -> int:
    from cpu_workloads import workloads

    console = Console(width=170)
    table = Table("workload", *NAMES, "/ JAX", "", "fastest", "/ fastest", "of limit")
    processes = [Process(name) for name in NAMES]
    losses, logarithms = 0, []
    for workload in workloads():
        if wanted and not any(word in workload.name for word in wanted):
            continue
        found = raced(workload.name, processes, rounds)
        ours, theirs = found["shardir"], found["jax"]
        name, best = fastest(found)
        is_loss = not ours.median / best.median <= LARGEST_RATIO
        losses += is_loss
        if best.seconds and ours.seconds:
            logarithms.append(math.log(ours.median / best.median))
        verdict = ours.error[:40] if ours.error else "loss" if is_loss else ""
        share = ours.share(workload.moved, workload.flops)
        table.add_row(
            workload.name, *(shown(found[each].median) for each in NAMES),
            ratio(ours.median, theirs.median), verdict, name,
            ratio(ours.median, best.median), f"{share:.0%}" if share > 0 else "",
        )  # fmt: skip
        print(
            f"{workload.name}: {shown(ours.median)}, {ratio(ours.median, theirs.median)} of jax, "
            f"{ratio(ours.median, best.median)} of {name} {verdict}",
            file=sys.stderr,
        )
    for process in processes:
        process.end()
    if not wanted or "first" in " ".join(wanted):
        losses += once(table, max(3, rounds // 2))
    console.print(table)
    if logarithms:
        print(f"geometric mean relative to the fastest other library: "
              f"{math.exp(fmean(logarithms)):.2f}")  # fmt: skip
    print(f"{losses} of {table.row_count} are losses")
    return 0


def once(table: Table, rounds: int) -> int:
    """Measure what a process does once: the first call of an MLP gradient, the memory of a step.

    Return the number of losses.
    """
    losses = 0
    with tempfile.TemporaryDirectory() as folder:
        warm = Path(folder) / "warm"
        # Also for their bytecode, which is there from the second process of an installation on.
        for library in ("shardir", "jax"):
            measured(library, "first", warm)
        kinds: dict[str, list[tuple[str, Path | None]]] = {
            "first call, cold": [("shardir", None), ("jax", None)],
            "first call, disk cache warm": [("shardir", warm), ("jax", None)],
        }
        for number, (name, pair) in enumerate(kinds.items()):
            rows: list[list[float]] = [[], []]
            for turn in range(rounds):
                for row, (library, cache) in zip(rows, pair, strict=True):
                    row.append(
                        measured(library, "first", cache or Path(folder) / f"{number}{turn}")
                    )
            losses += _add(table, name, rows, LARGEST_FIRST_CALL_RATIO, shown)
        rows = [[measured(library, "memory", warm)] for library in ("shardir", "jax")]
        losses += _add(table, "memory of an MLP step, donated", rows, LARGEST_RATIO,
                       lambda nbytes: f"{nbytes / 1e6:.1f} MB")  # fmt: skip
    return losses


def _add(table: Table, name: str, rows: list[list[float]], largest_ratio: float, show: Any) -> bool:
    ours, theirs = (Result(row) for row in rows)
    found = ratio(ours.median, theirs.median)
    is_loss = not ours.median / theirs.median <= largest_ratio
    table.add_row(
        name, show(ours.median), show(theirs.median), *["-"] * (len(NAMES) - 2), found,
        "loss" if is_loss else "", "jax", found, "",
    )  # fmt: skip
    return is_loss


def measured(library: str, what: str, cache: Path) -> float:
    """Return the output of `cpu_once.py` in a separate process with a separate cache folder.

    Bytecode is written beside these folders even if the environment disables it, because the
    installation of JAX contains bytecode.
    """
    found = subprocess.run(
        [sys.executable, str(HERE / "cpu_once.py"), library, what],
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(cache),
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(cache.parent / "bytecode"),
        },
        capture_output=True, text=True,
    )  # fmt: skip
    try:
        return float(found.stdout.split()[-1])
    except (IndexError, ValueError):
        return float("nan")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wanted", nargs="*", help="parts of names of workloads; all without")
    parser.add_argument("--rounds", type=int, default=7, help="turns that each library has")
    arguments = parser.parse_intermixed_args()
    sys.exit(main(arguments.wanted, arguments.rounds))
