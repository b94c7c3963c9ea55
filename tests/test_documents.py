"""The examples of README and the documentation have the stated output.

The Python blocks of a document run in order, as one program. A block whose first line is a comment
with the name of a file is that file, and is not run. A block of text right after one is
what it prints. A block of `console` shows commands behind `$` and what they print; its files are
those that the document's Python blocks wrote. The commands are `shardir`, `python` and `mpiexec`.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import shardir as sd
from tests.frontend.cli.command import run
from tests.optional_dependencies import require
from tests.registries import restored_registries

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(?:#|//) (\w+\.\w+)\n")
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "how_to").glob("*.md")),
]
PROGRAMS = {
    "python": sys.executable,
    "mpiexec": str(Path(sys.executable).parent / "mpiexec"),
}
"""The files of programs that commands of `console` blocks start in another process."""
ELSEWHERE = ("errors.md",)
"""Documents whose blocks are programs of their own, with tests of their own."""
SLOW_DOCUMENTS = ("xla_collectives.md",)
"""Documents whose programs XLA compiles many times; `make test-long` runs them."""


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.long] if path.name in SLOW_DOCUMENTS else [])
        for path in DOCUMENTS
        if path.name not in ELSEWHERE
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_examples_of_a_document_have_the_stated_output(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    imported = set(sys.modules)
    devices = sd.config.num_cpu_devices
    try:
        with restored_registries():
            _check_document(path)
    finally:
        sd.set_cpu_devices(devices)
    for name in set(sys.modules) - imported:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]  # Another document may contain a file of the same name.


def _check_document(path: Path) -> None:
    """Run the blocks of a document in the current folder."""
    text = path.read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "__document__"}
    printed: str | None = None
    end = 0
    for match in BLOCK.finditer(text):
        language, body = match[1], match[2]
        adjacent = not text[end : match.start()].strip()
        if named := FILE_NAME.match(body):
            Path(named[1]).write_text(body, encoding="utf-8")
        elif language == "python":
            printed = _run(body, f"{path.name}:{text[: match.start()].count(chr(10)) + 1}",
                           namespace)  # fmt: skip
        elif language == "console":
            _run_commands(body)
        elif language == "text" and adjacent and printed is not None:
            assert printed.rstrip("\n") == body.rstrip("\n")
            printed = None
        end = match.end()


def _run(body: str, name: str, namespace: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(body, name, "exec"), namespace)
    return out.getvalue()


def _run_commands(body: str) -> None:
    """Check that each `$ ...` line prints the lines that follow it."""
    parts = re.split(r"^\$ (.*)\n", body, flags=re.MULTILINE)
    for command, expected in zip(parts[1::2], parts[2::2], strict=True):
        words = shlex.split(command)
        if words[0] in ("shardir", *PROGRAMS):
            assert _printed_by(words) == expected


def _printed_by(words: list[str]) -> str:
    """Return the output of a command. Most commands of shardir run in this process, because the
    imports of another one take longer than they do."""
    if words[0] == "mpiexec":
        require("mpi4py")
    if words[0] in PROGRAMS:
        return _output_of_process(PROGRAMS.get(word, word) for word in words)
    if words[1] == "as-jax":
        return _output_of_process((sys.executable, "-X", "utf8", "-m", *words))
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        run(*words[1:])
    return out.getvalue() + errors.getvalue()


def _output_of_process(words: Iterable[str]) -> str:
    done = subprocess.run(
        list(words),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout + done.stderr


def test_the_makefile_has_the_targets_that_documents_name() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for path in DOCUMENTS:
        for target in re.findall(r"`make ([\w-]+)`", path.read_text(encoding="utf-8")):
            assert target in targets, f"{path.name} names `make {target}`"
