"""Compare the speed of two checkouts, which run the workloads of `cpu.py` alternately.

    python benchmarks/compare_checkouts.py ../before [--rounds N] [part of a name ...]

The table compares this checkout with the other one by ratios of medians of paired rounds. It prints
`slower` if nine of ten rounds are slower by five percent or more. The other checkout needs
`cpu_library.py` and `cpu_workloads.py`. The Python that runs this file runs both.
"""

import argparse
import sys
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))

from cpu import HERE, ROUND_SECONDS, Process, shown

SLOWER = 1.05


def ratios(name: str, here: Process, there: Process, rounds: int) -> tuple[list[float], float]:
    """Return the ratio of the two checkouts in each round, and the median seconds of this one."""
    count = 1
    for each in (here, there):
        answer = each.ask(do="prepare", name=name)
        if "second" not in answer:
            return [], float("nan")
        count = max(count, min(2000, int(ROUND_SECONDS / max(answer["second"], 1e-6))))
    found, ours = [], []
    for number in range(rounds):
        turn = (here, there) if number % 2 else (there, here)
        seconds = {id(each): median(each.ask(do="time", number=count)["seconds"]) for each in turn}
        found.append(seconds[id(here)] / seconds[id(there)])
        ours.append(seconds[id(here)])
    return found, median(ours)


def main(other: Path, wanted: list[str], rounds: int) -> int:
    from cpu_workloads import workloads

    here, there = Process("shardir", HERE.parent), Process("shardir", other.resolve())
    table = Table("workload", "here", "ratio", "lowest", "highest", "")
    slower = 0
    for workload in workloads():
        if wanted and not any(word in workload.name for word in wanted):
            continue
        found, ours = ratios(workload.name, here, there, rounds)
        if not found:
            table.add_row(workload.name, "-", "-", "-", "-", "does not run in both")
            continue
        ordered = sorted(found)
        worse = ordered[len(ordered) // 10] >= SLOWER
        slower += worse
        numbers = (median(found), ordered[0], ordered[-1])
        table.add_row(workload.name, shown(ours), *(f"{each:.3f}" for each in numbers),
                      "slower" if worse else "")  # fmt: skip
    for process in (here, there):
        process.end()
    Console(width=120).print(table)
    return 1 if slower else 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(0)  # `make bench` runs every file; this one needs a second checkout
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("wanted", nargs="*", help="parts of names of workloads; all without")
    parser.add_argument("--rounds", type=int, default=11, help="turns that each checkout has")
    arguments = parser.parse_intermixed_args()
    sys.exit(main(arguments.other, arguments.wanted, arguments.rounds))
