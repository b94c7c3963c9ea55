"""The command: run test files of a JAX checkout, and print how many counted tests pass.

    python -m tests.jax_suite CHECKOUT [FILE ...] [--only PATTERN] [--counts COUNTS.json]

`CHECKOUT` is a folder with `tests/` of JAX, FILE is `batching` for `batching_test.py`, and
`nested_pmap` is the part of `pmap_test.py` that JAX had up to version 0.7.2. `pjit_explicit` is the
part of `pjit_test.py` about shardings in types. `counted/` lists tests; of these, the command
counts those that pass on public JAX, or all with `--all`. The tests that pass on public JAX never
change, so `--counts` stores them in COUNTS.json. `reasons/` states why a test does not pass; the
command prints tests without a reason, and tests that pass although they have one. Every file runs
in separate processes.
"""

import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tests.jax_suite.file_runner import PASSED, make_public_name_filter, run_file
from tests.jax_suite.jax_test_util import redirect_to
from tests.jax_suite.name_lists import counted, outdated, reasons, unexplained
from tests.jax_suite.public_jax import public_jax

FILES = (
    *("pmap", "shard_map", "array", "pjit", "pjit_explicit", "batching", "lax_vmap", "random"),
    *("tree_util", "nn", "api"),
)

WITHIN = {"nested_pmap": "pmap", "pjit_explicit": "pjit"}
"""The file that a list of tests is of, where it is not called as the list is."""

ALL = ("nested_pmap",)
"""Lists that count whole: the JAX that lends its machinery does not pass any of them."""

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "PYTHONWARNINGS": "ignore",
    "SHARDIR_CPU_DEVICES": "8",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
}


def main(arguments: list[str]) -> int:
    """Run the command, print a line per file, and return 0 if all counted tests pass."""
    options = _options(arguments)
    if options.library:
        (file,) = options.files
        print(json.dumps(_run_here(options, file)))
        return 0
    failed = 0
    known = json.loads(options.counts.read_text("utf-8")) if _has(options.counts) else {}
    for file in options.files or FILES:
        whole = options.all or file in ALL
        if file not in known and not whole:
            passing = _run_apart(options, file, "stand_in")
            known[file] = [name for name, how in passing.items() if how == PASSED]
            if options.counts:
                options.counts.write_text(json.dumps(known, indent=1), "utf-8")
        found = _run_apart(options, file, "shardir")
        chosen = _chosen(options, file)
        count = [name for name in (found if whole else known[file]) if chosen(name)]
        lost = {name: found.get(name, "absent") for name in count}
        lost = {name: how for name, how in lost.items() if how != PASSED}
        print(f"{file}: {len(count) - len(lost)} of {len(count)}", flush=True)
        told = reasons(file)
        for name in unexplained(lost, told) if told else ():
            print(f"  no reason is listed for {name}: {lost[name]}", flush=True)
        if not options.only:
            for name in outdated([name for name in count if name not in lost], lost, told):
                print(
                    f"  a reason is listed for {name}, which passes or does not exist", flush=True
                )
        kinds = {name: _kind(how) for name, how in lost.items()}
        shown = options.kinds if not told else 0
        for kind, times in Counter(kinds.values()).most_common(shown):
            example = next(name for name, each in kinds.items() if each == kind)
            print(f"  {times:4d}  {example}: {lost[example]}", flush=True)
        failed += len(lost)
    return int(failed > 0)


def _kind(how: str) -> str:
    """Return the error of a failure without locations, numbers and names, to group failures."""
    return re.sub(r"'[^']*'|\d+", "_", how.partition(" --> ")[0])


def _options(arguments: list[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m tests.jax_suite", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a folder with tests/ of JAX")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(FILES)}, ...")
    parser.add_argument("--only", default="", help="a pattern that names of tests must hold")
    parser.add_argument("--counts", type=Path, help="where the tests that count are kept")
    parser.add_argument("--all", action="store_true", help="count what fails on JAX too")
    parser.add_argument("--cases", type=int, default=10, help="how many cases a test generates")
    parser.add_argument("--limit", type=int, default=120, help="the seconds that a test may take")
    parser.add_argument("--numpy", action="store_true", help="run programs by NumPy, not compiled")
    parser.add_argument("--kinds", type=int, default=40, help="how many kinds of failures to print")
    parser.add_argument("--wording", action="store_true", help="errors must read as JAX's do")
    parser.add_argument("--library", default="", help="print as JSON how tests end on this one")
    return parser.parse_args(arguments)


def _has(path: Path | None) -> bool:
    return path is not None and path.exists()


def _path(options: Namespace, file: str) -> Path:
    return Path(options.checkout, "tests", f"{WITHIN.get(file, file)}_test.py")


def _chosen(options: Namespace, file: str) -> Callable[[str], bool]:
    """Return whether the instance `Class.test` counts, and has a requested name."""
    path = _path(options, file)
    counts = counted(file, path) or make_public_name_filter(path)
    return lambda name: re.search(options.only, name) is not None and counts(name)


def _run_apart(options: Namespace, file: str, library: str) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.jax_suite", str(options.checkout), file]
    command += ["--library", library]
    if library == "shardir":
        command += ["--only", options.only, "--limit", str(options.limit)]
        command += [f"--{name}" for name in ("wording", "numpy") if getattr(options, name)]
    around = {**os.environ, **ENVIRONMENT, "JAX_NUM_GENERATED_CASES": str(options.cases)}
    ran = subprocess.run(
        command,
        env=around,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _run_here(options: Namespace, file: str) -> dict[str, str]:
    path, chosen = _path(options, file), _chosen(options, file)
    if options.library == "stand_in":
        return run_file(path, public_jax(), {}, chosen)
    library = import_module(options.library)
    stubs = redirect_to(library, wording=options.wording, compiled=not options.numpy)
    return run_file(path, library, stubs, chosen, options.limit)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
