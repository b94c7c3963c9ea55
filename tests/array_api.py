"""Run the Array API standard's own tests on `shardir.numpy`: `python -m tests.array_api CHECKOUT`.

CHECKOUT is a clone of github.com/data-apis/array-api-tests with its submodule, outside of this
repository, and its requirements are installed. What follows it goes to pytest. docs/array_api.md
says what fails and why; anything else that fails, and anything listed there that passes, is
reported and makes the exit status 1.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSION = "2024.12"
MODULE = (
    'exec(\'import shardir; shardir.config.update("enable_x64", True); '
    "import shardir.numpy as xp')"
)
KNOWN = ROOT / "docs" / "array_api.md"


def known_failures(text: str) -> list[str]:
    """Return the tests that the page lists as known failures, one per line of a text block."""
    return re.findall(r"^(array_api_tests/\S+::.+)$", text, re.MULTILINE)


def failures(report: str) -> list[str]:
    """Return the tests that pytest reports as failed or as errors."""
    return re.findall(
        r"^(?:FAILED|ERROR) (array_api_tests/\S+?::.+?)(?: - .*)?$", report, re.MULTILINE
    )


def main(arguments: Sequence[str]) -> int:
    if not arguments or not Path(arguments[0], "array_api_tests").is_dir():
        print(__doc__)
        return 2
    checkout, *rest = arguments
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider"),
        *("-W", "ignore", "--hypothesis-disable-deadline", "--hypothesis-derandomize"),
        *(rest or ["array_api_tests"]),
    ]
    environment = {
        **os.environ,
        "ARRAY_API_TESTS_MODULE": MODULE,
        "ARRAY_API_TESTS_VERSION": VERSION,
        "COLUMNS": "1000",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    found, known = failures(done.stdout), known_failures(KNOWN.read_text("utf-8"))
    new = [test for test in found if test not in known]
    if new:
        print(done.stdout)
    elif not rest:
        for test in known:
            if test not in found:
                print(f"passes now, take it off docs/array_api.md: {test}")
                new.append(test)
    print(done.stdout.rstrip().rpartition("\n")[2])
    print(f"{len(found)} fail, {len(known)} are known to; not as listed: {len(new)}")
    return int(bool(new) or done.returncode not in (0, 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
