"""Execution of the command `shardir` in this process."""

import sys

from shardir.frontend.cli.main import main


def run(*words: str) -> int:
    """Return the exit status of `shardir words...`."""
    saved, sys.argv = sys.argv, ["shardir", *words]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        sys.argv = saved
    return 0
