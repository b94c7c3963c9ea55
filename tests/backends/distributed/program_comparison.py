"""Run in several processes: programs from a file, with several assignments of devices to processes.

The results of the devices of a process are compared with a run of all devices in one process: NumPy
must give equal bits, and native code close results.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from shardir.backends.distributed import route_selection
from shardir.backends.distributed.job import Job
from shardir.backends.numpy import BACKEND
from shardir.frontend.distributed.connect import connect_processes
from shardir.frontend.distributed.launcher_environment import LauncherInfo, find_launcher
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.interpret.shards import slice_shard
from shardir.ir.module import Module, spmd_mesh_of
from shardir.passes import Pipeline
from shardir.text.parser import parse
from tests.programs.nan_sign_programs import ranks_signs

SEPARATOR = "\n# ----\n"


def assign_devices(size: int, processes: int, assignment: str) -> tuple[int, ...]:
    """Return the process of each device."""
    if assignment == "in order":
        return tuple(device * processes // size for device in range(size))
    if assignment == "in turn":
        return tuple(device % processes for device in range(size))
    random_owners = np.random.default_rng(size).integers(0, processes, size)
    return tuple(map(int, random_owners))


def shards_of(module: Module, arguments: list[Any]) -> list[list[Any]]:
    """Return the shards of each argument."""
    spmd, mesh = module.main.spmd, spmd_mesh_of(module)
    assert spmd is not None
    return [
        [slice_shard(argument, outer.sharding, mesh, device) for device in range(mesh.size)]
        for argument, outer in zip(arguments, spmd.params, strict=True)
    ]


def compile_for(world: Job, module: Module, owner: tuple[int, ...], native: bool) -> Any:
    """Compile the program of this process, natively if requested and possible."""
    lower = (lambda passes: Pipeline.parse(passes)(module)) if native else None
    return world.compile(module, owner, lower)


class Sample:
    """A program with arguments and the results of one process that runs all devices."""

    def __init__(self, text: str) -> None:
        self.module = parse(text)
        self.size = spmd_mesh_of(self.module).size
        self.shards = shards_of(self.module, random_arguments(self.module, whole=True))
        self.want = BACKEND.compile(self.module)(self.shards)

    def check(self, world: Job, native: bool, exactly: bool) -> None:
        for assignment in ("in order", "in turn", "at random"):
            owner = assign_devices(self.size, world.size, assignment)
            local = [device for device in range(self.size) if owner[device] == world.index]
            compiled = compile_for(world, self.module, owner, native)
            for _ in range(2):
                got = compiled([[column[device] for device in local] for column in self.shards])
                for columns, expected in zip(got, self.want, strict=True):
                    assert len(columns) == len(local)
                    for device, array in zip(local, columns, strict=True):
                        where = f"{assignment}, device {device}"
                        self.compare(array, expected[device], where, exactly)

    def compare(self, found: Any, expected: Any, where: str, exactly: bool) -> None:
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        if exactly:
            same = found.tobytes() == expected.tobytes()
        else:
            same = are_close([expected], [found], tolerance_of(self.module))
        assert same, f"{where}: {found} instead of {expected}\n{self.module}"


def main(path: str, *backends: str) -> None:
    launcher = find_launcher() or LauncherInfo("mpiexec", 1, 0)
    world = connect_processes(launcher, None, 60, 60)
    assert isinstance(world, Job)
    samples = [Sample(text) for text in Path(path).read_text(encoding="utf-8").split(SEPARATOR)]
    for limit in (route_selection.MAX_GATHERED_REDUCTION_BYTES, -1):
        route_selection.MAX_GATHERED_REDUCTION_BYTES = limit
        for sample, backend in product(samples, backends):
            native = backend == "native"
            if not (native and ranks_signs(sample.module)):
                sample.check(world, native, exactly=limit > 0 and not native)
    if world.index == 0:
        print(len(samples))


if __name__ == "__main__":
    main(*sys.argv[1:])
