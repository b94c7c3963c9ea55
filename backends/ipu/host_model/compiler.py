"""A C++ compiler of this machine: g++, clang++, or the one in the package ziglang; and the headers
of the model and of the runner."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from shardir.errors import ShardirError

LANGUAGE_STANDARD_FLAGS = ("-std=c++17",)


class HostModelError(ShardirError, RuntimeError):
    """Raised for calls that the host model refuses, and if a program cannot be built or called."""


@dataclass(frozen=True)
class Compiler:
    """A command with the arguments of g++, and its version text."""

    command: tuple[str, ...]
    version: str

    def run(self, arguments: Iterable[str | Path], what: str) -> None:
        """Compile; raise `HostModelError` with the compiler's messages about `what`."""
        command = [*self.command, *LANGUAGE_STANDARD_FLAGS, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            messages = "\n".join((done.stderr or done.stdout).strip().splitlines()[:20])
            raise HostModelError(f"{self.command[0]} cannot compile {what}:\n{messages}")


def list_compilers() -> list[tuple[str, ...]]:
    """Return the compilers to try, best first; only `CXX` if it is set."""
    given = os.environ.get("CXX")
    if given:
        return [tuple(shlex.split(given))]
    found: list[tuple[str, ...]] = [(name,) for name in ("g++", "clang++") if shutil.which(name)]
    if find_spec("ziglang") is not None:
        found.append(ZIG_COMMAND)
    return found


ZIG_COMMAND = (sys.executable, "-m", "ziglang", "c++", "-fno-sanitize=undefined")


def find_compiler() -> Compiler:
    """Return the best available compiler; raise `HostModelError` if there is none."""
    return _find(tuple(list_compilers()))


@cache
def _find(commands: tuple[tuple[str, ...], ...]) -> Compiler:
    for command in commands:
        try:
            completed = subprocess.run(
                [*command, "--version"], capture_output=True, text=True, check=False
            )
        except OSError:
            continue
        if completed.returncode == 0:
            return Compiler(command, completed.stdout)
    tried = ", ".join(shlex.join(command) for command in commands) or "g++, clang++ and ziglang"
    raise HostModelError(
        f"there is no C++ compiler (tried {tried}); install g++, or pip install 'shardir[ipu]'"
    )


_HERE = Path(__file__).resolve().parent


def include_folder() -> Path:
    """Return the folder of the model's headers, for the compiler option `-I`."""
    return _HERE / "include"


def runner_folder() -> Path:
    """Return the folder of the headers that belong beside every emitted program."""
    return _HERE / "runner"


def runner_files() -> dict[str, str]:
    """Return the texts of the headers that belong beside every emitted program, by name."""
    return {file.name: file.read_text("utf-8") for file in sorted(runner_folder().glob("*.hpp"))}


def all_headers() -> list[Path]:
    """Return all headers in a fixed order."""
    folders = (include_folder(), runner_folder())
    return [file for folder in folders for file in sorted(folder.rglob("*.hpp"))]
