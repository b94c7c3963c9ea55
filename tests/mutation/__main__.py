"""The command line of the mutation tests."""

import argparse
import re
from pathlib import Path

import pytest

from tests.mutation.guards import find_guards
from tests.mutation.runner import Limits, MutationPlugin, Outcome, mirrored_tests

ROOT = Path(__file__).resolve().parents[2]
EXPLANATIONS = Path(__file__).with_name("explained.txt")

DISABLED_PLUGINS = ("cacheprovider", "faulthandler", "xdist")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description="Remove each guard of source files, one at a time, run the tests that cover "
        "it, and list the guards without which all tests pass.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a source file or folder")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one mutant")
    parser.add_argument(
        "--budget",
        type=float,
        default=30.0,
        help="seconds that the tests of one mutant took without the mutation (default: 30)",
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        help="test files or folders (default: those that mirror the packages, and the stories)",
    )
    parser.add_argument("-k", default="", help="only tests that this expression of pytest selects")
    parser.add_argument("--match", default="", help="only guards whose line has this text")
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="only the guards that this output of a former run lists as not killed",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="read from this file in which tests guards decide, if the sources are unchanged; "
        "otherwise run the tests, and write the file",
    )
    options = parser.parse_args()
    files = [
        file
        for path in (Path(each).resolve() for each in options.paths)
        for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
    outcomes: list[Outcome] = []

    def report(outcome: Outcome) -> None:
        outcomes.append(outcome)
        print(outcome, flush=True)

    explained = read_explanations(EXPLANATIONS.read_text("utf-8"))
    all_guards = [guard for file in files for guard in find_guards(file)]
    matching = [guard for guard in all_guards if options.match in str(guard)]
    found = [guard for guard in matching if guard.key not in explained]
    print(f"{len(matching)} guards, of which {len(matching) - len(found)} are explained")
    if options.again:
        survivors = read_survivors(options.again.read_text("utf-8"))
        found = [guard for guard in found if guard.key in survivors]
    limits = Limits(options.jobs, options.limit, options.budget)
    plugin = MutationPlugin(found, limits, options.record, report)
    tests = options.tests or mirrored_tests(files, ROOT)
    # Nothing prints the tracebacks of tests, and those with source text take long to format.
    settings = ["-q", "-s", "--tb=native", "-k", options.k]
    settings += [word for name in DISABLED_PLUGINS for word in ("-p", f"no:{name}")]
    settings += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    status = pytest.main([*settings, *tests], [plugin])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    left = [outcome for outcome in outcomes if outcome.state != "killed"]
    print(f"\n{len(left)} of {len(outcomes)} mutants are not killed")
    for outcome in left:
        print(outcome)
    return 1 if left else 0


def read_explanations(text: str) -> dict[str, str]:
    """Return the reasons for which guards need no test, by their `key`."""
    lines = (line.partition("  # ") for line in text.splitlines() if not line.startswith("#"))
    return {key: reason for key, _, reason in lines if key}


def read_survivors(output: str) -> set[str]:
    """Return the `key` of the guards that an output of this command lists as not killed."""
    lines = (line.rsplit("  ", 1) for line in output.splitlines())
    listed = {rest[0] for state, *rest in lines if rest and not state.startswith("killed")}
    return {re.sub(r":\d+: ", ": ", guard, count=1) for guard in listed}


if __name__ == "__main__":
    raise SystemExit(main())
