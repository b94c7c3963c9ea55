"""The command: run test files of a checkout of JAX, and tell what passes of what counts.

    python -m tests.jax_suite CHECKOUT [FILE ...] [--only PATTERN] [--counts COUNTS.json]

`CHECKOUT` is a folder with `tests/` of JAX, FILE is `batching` for `batching_test.py`. What counts
is what passes on the stand-in; it is kept in COUNTS.json when that is named, since it never
changes. Every file runs in processes of its own.
"""

import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from importlib import import_module
from pathlib import Path

from tests.jax_suite.lending import lend
from tests.jax_suite.running import PASSED, asks_internals, run_file
from tests.jax_suite.stand_in import stand_in

FILES = ("batching", "lax_vmap", "random", "nn", "tree_util")

ENVIRONMENT = {
    "JAX_NUM_GENERATED_CASES": "10",
    "JAX_PLATFORMS": "cpu",
    "PYTHONWARNINGS": "ignore",
    "SHARDIR_CPU_DEVICES": "8",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
}


def main(arguments: list[str]) -> int:
    """Run what `arguments` say and print a line per file; 0 when everything that counts passes."""
    options = _options(arguments)
    if options.library:
        (file,) = options.files
        print(json.dumps(_run_here(options, file)))
        return 0
    failed = 0
    known = json.loads(options.counts.read_text()) if _has(options.counts) else {}
    for file in options.files or FILES:
        if file not in known:
            passing = _run_apart(options, file, "stand_in")
            known[file] = [name for name, how in passing.items() if how == PASSED]
            if options.counts:
                options.counts.write_text(json.dumps(known, indent=1))
        asks = asks_internals(_path(options, file))
        count = [name for name in known[file] if re.search(options.only, name) and not asks(name)]
        found = _run_apart(options, file, "shardir")
        lost = {name: found.get(name, "absent") for name in count}
        lost = {name: how for name, how in lost.items() if how != PASSED}
        print(f"{file}: {len(count) - len(lost)} of {len(count)}", flush=True)
        kinds = {name: _kind(how) for name, how in lost.items()}
        for kind, times in Counter(kinds.values()).most_common(options.reasons):
            example = next(name for name, each in kinds.items() if each == kind)
            print(f"  {times:4d}  {example}: {lost[example]}", flush=True)
        failed += len(lost)
    return int(failed > 0)


def _kind(how: str) -> str:
    """What failures have in common: what was raised, but for places, numbers and names in it."""
    return re.sub(r"'[^']*'|\d+", "_", how.partition(" --> ")[0])


def _options(arguments: list[str]) -> Namespace:
    parser = ArgumentParser(prog="python -m tests.jax_suite", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a folder with tests/ of JAX")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(FILES)}, ...")
    parser.add_argument("--only", default="", help="a pattern that names of tests must hold")
    parser.add_argument("--counts", type=Path, help="where the tests that count are kept")
    parser.add_argument("--reasons", type=int, default=40, help="how many reasons to print")
    parser.add_argument("--wording", action="store_true", help="errors must read as JAX's do")
    parser.add_argument("--library", default="", help="print as JSON how tests end on this one")
    return parser.parse_args(arguments)


def _has(path: Path | None) -> bool:
    return path is not None and path.exists()


def _path(options: Namespace, file: str) -> Path:
    return Path(options.checkout, "tests", f"{file}_test.py")


def _run_apart(options: Namespace, file: str, library: str) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.jax_suite", str(options.checkout), file]
    command += ["--library", library]
    if library == "shardir":
        command += ["--only", options.only, *(["--wording"] if options.wording else [])]
    ran = subprocess.run(
        command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _run_here(options: Namespace, file: str) -> dict[str, str]:
    path = _path(options, file)
    if options.library == "stand_in":
        return run_file(path, stand_in(), {}, options.only)
    library = import_module(options.library)
    return run_file(path, library, lend(library, wording=options.wording), options.only)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
