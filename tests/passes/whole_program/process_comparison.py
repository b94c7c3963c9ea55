"""Comparison of per-device programs with their programs of processes."""

import numpy as np

from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module, spmd_mesh_of
from shardir.ir.process_levels import ProcessLevels
from tests.passes.processes import on_devices, on_processes, places, run_verified_passes


def programs_of_processes(program: Module, across: str) -> list[list[Module]]:
    """Return one program for all processes, and one for each of them."""
    levels = ProcessLevels.parse(spmd_mesh_of(program), across)
    split = f"hierarchical-collectives{{across={across}}},merge-devices{{across={across}"
    placed = [run_verified_passes(f"{split},at={at}}}", program) for at in places(levels)]
    return [[run_verified_passes(f"{split}}}", program)], placed]


def check_processes(program: Module, across: str) -> Module:
    """Check the results of all devices, and return the program of all processes."""
    arguments = random_arguments(program, whole=True)
    want = on_devices(program, arguments)
    grouped = programs_of_processes(program, across)
    for each in grouped:
        got = on_processes(program, each, across, arguments)
        for expected, made in zip(want, got, strict=True):
            for a, b in zip(expected, made, strict=True):
                np.testing.assert_array_equal(a, b)
    return grouped[0][0]
