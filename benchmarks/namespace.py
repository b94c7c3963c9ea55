"""Measure functions of `shardir.numpy` on one device, compared with NumPy.

Each function is called outside of a trace on arrays of 64 KB to 64 MB (with `--small`, of 64 bytes
to 16 KB, which measures the overhead of a call). The two libraries alternate in one process. A
figure is the ratio of the minimal times, which other programs on the machine affect least (with
`--medians`, of the medians); it is below 1 where shardir is faster. Results that are views in NumPy
are copied, and `argsort` of NumPy is the stable one. With `--foreign` both libraries receive arrays
of NumPy. `python benchmarks/namespace.py sort take` measures the functions whose names contain one
of these words, `--sizes "64 KB,8 MB"` only these sizes.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from operator import attrgetter
from statistics import median
from typing import Any

# Otherwise threads of NumPy's BLAS occupy a core for some time after each call.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

import numpy as np
from namespace_cases import cases
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import shardir as sd
import shardir.numpy as snp

SIZES = {"64 KB": 1 << 14, "1 MB": 1 << 18, "8 MB": 1 << 21, "64 MB": 1 << 24}
SMALL = {"64 B": 16, "1 KB": 1 << 8, "16 KB": 1 << 12}
ROUNDS = 7

VIEWS = """
    transpose ravel flip diagonal broadcast_to rot90 moveaxis real imag swapaxes permute_dims
    matrix_transpose fliplr flipud rollaxis hsplit dsplit diag linalg.diagonal broadcast_arrays
    linalg.matrix_transpose einsum
"""
"""Functions whose result in NumPy may be a view, which is copied to rows, as that of shardir."""
INDEXING = "take take_along_axis ix_ put"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--small", action="store_true", help="small arrays: microseconds more")
    options.add_argument("--over", type=float, default=1.0, help="show functions above this ratio")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    options.add_argument("--medians", action="store_true", help="medians instead of least times")
    options.add_argument("--foreign", action="store_true", help="give us NumPy's arrays, too")
    options.add_argument("--sizes", help="only these sizes, with commas between them")
    options.add_argument("names", nargs="*")
    chosen = options.parse_args()
    sizes = SMALL if chosen.small else SIZES
    if chosen.sizes:
        sizes = {title: sizes[title.strip()] for title in chosen.sizes.split(",")}
    middle = median if chosen.medians else min
    figures: dict[str, dict[str, tuple[float, float]]] = {}
    for title, size in sizes.items():
        for name, arguments, keywords in cases(size):
            if chosen.names and not any(part in name for part in chosen.names):
                continue
            figures.setdefault(_title(name, arguments, keywords), {})[title] = measured(
                name, arguments, keywords, chosen.rounds, middle, chosen.foreign
            )
    report(figures, list(sizes), chosen.small, chosen.over)


def _title(name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> str:
    """The call without the sizes."""
    kinds = []
    for each in arguments:
        if isinstance(each, np.ndarray):
            shape = each.shape
            ones = ["1" if extent == 1 else "n" for extent in shape]
            kinds.append(f"{each.dtype.name}[{','.join(ones)}]")
        elif isinstance(each, (tuple, list)) and each and isinstance(each[0], np.ndarray):
            kinds.append("...")
        elif isinstance(each, str):
            kinds.append(repr(each))
        elif isinstance(each, type):
            kinds.append(each.__name__)
    named = [f"{k}={v}" for k, v in keywords.items() if k == "axis"]
    return f"{name}({', '.join(kinds + named)})"


def measured(
    name: str,
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    rounds: int,
    middle: Callable[[Sequence[float]], float],
    foreign: bool = False,
) -> tuple[float, float]:
    """Return the seconds of shardir and of NumPy: the minimum of the rounds, or their median."""
    ours, theirs = (attrgetter(name)(library) for library in (snp, np))
    leaves = sd.tree_util.tree_leaves((arguments, keywords))
    wide = any(isinstance(x, np.ndarray) and x.dtype in (np.float64, np.int64) for x in leaves)
    arrays: dict[int, Any] = {}

    def placed(x: Any) -> Any:
        if isinstance(x, np.ndarray) and not foreign:
            return arrays.setdefault(id(x), snp.asarray(x))
        return getattr(snp, x) if isinstance(x, str) and hasattr(snp, x) else x

    def known(x: Any) -> Any:
        return getattr(np, x) if isinstance(x, str) and hasattr(snp, x) else x

    def run_ours() -> None:
        sd.block_until_ready(ours(*put, **own))

    def run_theirs() -> None:
        if "inplace" in keywords:
            theirs(given[0].copy(), *given[1:])
            return
        result = theirs(*given, **their_own)
        if name in VIEWS.split():
            for each in result if isinstance(result, (list, tuple)) else (result,):
                np.array(each, order="C")

    # Indices are 64 bits wide for NumPy, and 32 for shardir unless its numbers are, too.
    with sd.enable_x64() if wide and name not in INDEXING.split() else nullcontext():
        put, own = sd.tree_util.tree_map(placed, (arguments, keywords))
        given, their_own = sd.tree_util.tree_map(known, (arguments, keywords))
        if name == "bincount":
            their_own = {"minlength": 8}
        if name == "argsort":  # shardir keeps the order of equal elements
            their_own = {**keywords, "kind": "stable"}
        for run in (run_ours, run_ours, run_theirs):
            run()
        ours_of_rounds, theirs_of_rounds = alternated(run_ours, run_theirs, rounds)
    return middle(ours_of_rounds), middle(theirs_of_rounds)


def alternated(
    ours: Callable[[], None], theirs: Callable[[], None], rounds: int
) -> tuple[list[float], list[float]]:
    """Seconds of one call, round by round."""
    times: tuple[list[float], list[float]] = [], []
    repeats = [_repeats(ours), _repeats(theirs)]
    for _ in range(rounds):
        for which, run in enumerate((ours, theirs)):
            begin = time.perf_counter()
            for _ in range(repeats[which]):
                run()
            times[which].append((time.perf_counter() - begin) / repeats[which])
    return times


def _repeats(run: Callable[[], None]) -> int:
    begin = time.perf_counter()
    run()
    return max(1, min(200, int(2e-3 / max(time.perf_counter() - begin, 1e-7))))


def report(
    figures: dict[str, dict[str, tuple[float, float]]],
    sizes: list[str],
    small: bool,
    over: float,
) -> None:
    table = Table("function", *sizes)
    slow = 0
    for name, row in sorted(figures.items()):
        cells, worst = [], 0.0
        for size in sizes:
            if size not in row:
                cells.append("")
                continue
            ours, theirs = row[size]
            figure = (ours - theirs) * 1e6 / 15 if small else ours / theirs
            worst = max(worst, figure)
            cells.append(f"{(ours - theirs) * 1e6:+.1f} us" if small else f"{figure:.2f}")
        slow += worst > 1
        if worst > over:
            table.add_row(escape(name), *cells)
    console = Console(width=120)
    console.print(table)
    limit = "15 us above NumPy" if small else "NumPy's time"
    console.print(f"{len(figures) - slow} of {len(figures)} are at most at {limit} at all sizes")


if __name__ == "__main__":
    main()
