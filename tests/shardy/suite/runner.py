"""Runs Shardy's own tests with our reader and passes.

    python -m tests.shardy.suite.runner CHECKOUT [--suite NAME] [--only FUNCTION] [--verbose]

CHECKOUT is a directory with openxla/shardy, outside this repository, which contains nothing of it.
Prints for each file the number of functions whose results agree with their CHECK lines, and the
names of the others.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from shardir.errors import ShardirError
from tests.shardy.suite.axis_origins import OriginReport
from tests.shardy.suite.cases import SUITES, Suite
from tests.shardy.suite.check_files import Case
from tests.shardy.suite.check_patterns import CheckParser
from tests.shardy.suite.not_applicable import NOT_APPLICABLE, NOT_SUPPORTED
from tests.shardy.suite.op_listing import list_function, read_part, with_conservative_rule

TESTS = "shardy/dialect/sdy/**/test/**/*.mlir"
"""The test files of Shardy's dialect; those of `mpmd`, another dialect, do not concern shardings.
"""


@dataclass(frozen=True)
class Outcome:
    """The result of a case; `differences` is empty where our result agrees."""

    case: Case
    differences: tuple[str, ...]
    left_out: str = ""


def run_case(case: Case, suite: Suite) -> Outcome:
    """Read the module of the case, run the passes, and compare."""
    known = f"{case.name}:{case.checks[0].line}" if case.checks else case.name.partition("#")[0]
    if known in suite.left_out:
        return Outcome(case, (), suite.left_out[known])
    try:
        if suite.execute is not None:
            return Outcome(case, tuple(suite.execute(case, suite.passes)))
        module, reader = read_part(case.part, case.file, whole=suite.whole)
        if suite.alone:
            chosen = tuple(f for f in module.functions if f.name == case.name)
            module = replace(module, functions=chosen or module.functions)
        done = suite.passes(module)
        if suite.compare is not None:
            return Outcome(case, tuple(suite.compare(case, done)))
        listing = list_function(done, reader, case.name)
        if listing is None:
            return Outcome(case, (f"@{case.name} is no more",))
        if suite.conservative:
            listing.entries = [with_conservative_rule(entry) for entry in listing.entries]
        asked = suite.origins
        origin_report = (
            None if asked is None else OriginReport(module, asked, listing.function.name)
        )
        matcher = suite.matcher(
            done, listing, CheckParser(reader), suite.mode, origin_report=origin_report
        )
        return Outcome(case, tuple(matcher.match(case)))
    except ShardirError as error:
        return Outcome(case, (f"{type(error).__name__}: {error}".splitlines()[0],))


def run_file(text: str, file: str, suite: Suite, only: str = "") -> Iterator[Outcome]:
    for case in suite.divide(text, file):
        if only in case.name:
            yield run_case(case, suite)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.shardy.suite.runner", description=__doc__)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--suite", default="", help="only suites whose name holds this")
    parser.add_argument("--file", default="", help="only files whose name holds this")
    parser.add_argument("--only", default="", help="only functions whose name holds this")
    parser.add_argument("--verbose", action="store_true", help="say what is wrong")
    options = parser.parse_args(arguments)
    counts: dict[str, list[int]] = {}
    for suite in SUITES:
        for name in suite.files:
            if options.suite not in suite.name or options.file not in name:
                continue
            path = options.checkout / name
            outcomes = list(run_file(path.read_text("utf-8"), path.name, suite, options.only))
            judged = [outcome for outcome in outcomes if not outcome.left_out]
            right = sum(not outcome.differences for outcome in judged)
            report(suite, path.name, outcomes, right, len(judged), verbose=options.verbose)
            count = counts.setdefault(suite.part, [0, 0])
            count[:] = count[0] + right, count[1] + len(judged)
    for part, (agreed, total) in counts.items():
        rate = f", {agreed / total:.1%}" if total else ""
        print(f"{part or 'others'}: agreed {agreed} of {total}{rate}")
    if not (options.suite or options.file or options.only):
        report_other_files(options.checkout)
    return 0


def report_other_files(checkout: Path) -> None:
    """Print the test files in no suite: those without a counterpart with the reason, and others."""
    in_suites = {name for suite in SUITES for name in suite.files}
    files = sorted(path.relative_to(checkout).as_posix() for path in checkout.glob(TESTS))
    for file in files:
        if file in in_suites:
            continue
        if file in NOT_APPLICABLE:
            print(f"not applicable: {file}: {NOT_APPLICABLE[file]}")
        elif file in NOT_SUPPORTED:
            print(f"not supported: {file}: {NOT_SUPPORTED[file]}")
        else:
            print(f"in no suite: {file}")


def report(
    suite: Suite, file: str, outcomes: list[Outcome], right: int, total: int, *, verbose: bool
) -> None:
    left_out = len(outcomes) - total
    more = f", {left_out} left out" if left_out else ""
    print(f"{suite.name}: {file}: {right}/{total}{more}")
    for outcome in outcomes:
        if outcome.left_out:
            print(f"  left out @{outcome.case.name}: {outcome.left_out}")
        elif outcome.differences:
            print(f"  @{outcome.case.name}")
            for line in outcome.differences if verbose else ():
                print(f"    {line}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
