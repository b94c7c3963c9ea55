"""Run a program on several processes with mpiexec and a time limit."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.optional_dependencies import require

ROOT = Path(__file__).parents[3]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
LIMIT_SECONDS = 400


@dataclass(frozen=True)
class CompletedJob:
    """The exit code of a job, and the output of each process."""

    code: int
    out: list[str]
    err: list[str]

    @property
    def errors(self) -> str:
        return "".join(self.err)

    def check(self) -> "CompletedJob":
        """Assert that the job succeeded, and return it."""
        assert self.code == 0, "\n".join(text[-3000:] for text in (*self.out, *self.err))
        return self


def mpiexec(
    count: int,
    *command: str | Path,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> CompletedJob:
    """Run a Python program on `count` processes; `folder` receives their output files."""
    require("mpi4py")
    names = [folder / kind for kind in ("out", "err")]
    patterns = [f"-{kind.name}file-pattern={kind}.%r" for kind in names]
    written = [part for pattern in patterns for part in pattern.split("=", 1)]
    for path in folder.glob("*.[0-9]*"):
        path.unlink()
    done = subprocess.run(
        [str(MPIEXEC), "-n", str(count), *options, *written, sys.executable, *map(str, command)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    out, err = (
        [_read_if_present(folder / f"{name.name}.{rank}") for rank in range(count)]
        for name in names
    )
    return CompletedJob(done.returncode, out, [*err, done.stdout, done.stderr])


def _read_if_present(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
