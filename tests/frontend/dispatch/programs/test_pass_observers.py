"""Observers of the passes of a program that settings request."""

from pathlib import Path

import pytest

import shardir as sd
from shardir.frontend.dispatch.programs import pass_observers


@pytest.mark.parametrize("process", [0, 1])
def test_only_the_first_process_writes_a_dump(
    process: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pass_observers, "process_index", lambda: process)
    with sd.config(dump_dir=str(tmp_path)):
        observer = pass_observers.settings_observer("f")
    assert (observer is not None) == (process == 0)
