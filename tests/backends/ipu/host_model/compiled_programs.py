"""The C++ programs of these tests, compiled once into one library."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.ipu.host_model import HostProgram, build

PROGRAMS = Path(__file__).parent / "programs"
STANDALONE_PROGRAMS = {"engine", "errors", "more_errors"}
"""Programs with their own `main`, which the runner cannot load."""

Array = npt.NDArray[Any]


@cache
def programs() -> dict[str, HostProgram]:
    return build(
        {
            file.stem: file.read_text("utf-8")
            for file in sorted(PROGRAMS.glob("*.cpp"))
            if file.stem not in STANDALONE_PROGRAMS
        }
    )


def run_program(
    name: str, arguments: Mapping[str, Array], *, sharded: bool = False
) -> dict[str, Array]:
    """Run a program and return its results by name."""
    program = programs()[name]
    results = program(*(arguments[port.name] for port in program.arguments), sharded=sharded)
    return {port.name: result for port, result in zip(program.results, results, strict=True)}


def rng() -> np.random.Generator:
    return np.random.default_rng(7)
