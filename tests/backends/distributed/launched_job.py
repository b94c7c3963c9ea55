"""Run a program in several processes, with a time limit.

mpiexec starts them, or the launcher that the environment variable SHARDIR_TEST_LAUNCHER names:
`launch` (shardir launch) or `torchrun`.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.optional_dependencies import require

ROOT = Path(__file__).parents[3]
MPIEXEC = Path(sys.executable).parent / "mpiexec"
LAUNCHER = os.environ.get("SHARDIR_TEST_LAUNCHER", "mpiexec")
LAUNCHER_NAME = {"launch": "shardir launch"}.get(LAUNCHER, LAUNCHER)
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


def launch_job(
    count: int,
    *command: str | Path,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
    launcher: str = LAUNCHER,
) -> CompletedJob:
    """Run a Python program in `count` processes; `folder` receives their output files."""
    for path in folder.glob("*.[0-9]*"):
        path.unlink()
    done = subprocess.run(
        _launcher_command(launcher, count, folder, [sys.executable, *map(str, command)], options),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    out, err = (
        [_read_if_present(folder / f"{name}.{rank}") for rank in range(count)]
        for name in ("out", "err")
    )
    return CompletedJob(done.returncode, out, [*err, done.stdout, done.stderr])


def _launcher_command(
    launcher: str, count: int, folder: Path, command: Sequence[str], options: Sequence[str]
) -> list[str]:
    """Return the command that runs a command in several processes, with one file for the output of
    each.
    """
    if launcher == "mpiexec":
        require("mpi4py")
        files = [f"-{name}file-pattern={folder / name}.%r" for name in ("out", "err")]
        written = [part for pattern in files for part in pattern.split("=", 1)]
        return [str(MPIEXEC), "-n", str(count), *options, *written, *command]
    assert not options
    rank = {"launch": "SHARDIR_PROCESS_ID", "torchrun": "RANK"}[launcher]
    redirect = f'exec "$@" > "{folder}/out.${rank}" 2> "{folder}/err.${rank}"'
    redirected = ["sh", "-c", redirect, "sh", *command]
    if launcher == "launch":
        return [sys.executable, "-m", "shardir", "launch", "-n", str(count), *redirected]
    require("torch")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
    return [*torchrun, "--nproc-per-node", str(count), *redirected]


def _read_if_present(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
