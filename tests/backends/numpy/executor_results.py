"""Results of the NumPy executor."""

from typing import Any

import numpy.typing as npt

from shardir.backends.numpy import BACKEND
from shardir.interpret.shards import assemble_shards, slice_shard
from shardir.ir.module import Module, spmd_mesh_of

Array = npt.NDArray[Any]


def executor_results(module: Module, arguments: list[Array]) -> list[Array]:
    """Return the global results of a partitioned module or of a module for one device."""
    program = BACKEND.compile(module)
    spmd = module.main.spmd
    if spmd is None:
        return [shards[0] for shards in program([[argument] for argument in arguments])]
    mesh = spmd_mesh_of(module)
    shards = [
        [slice_shard(argument, outer.sharding, mesh, device) for device in range(mesh.size)]
        for argument, outer in zip(arguments, spmd.params, strict=True)
    ]
    results = program(shards)
    return [
        assemble_shards(parts, outer.type, outer.sharding, mesh)
        for parts, outer in zip(results, spmd.results, strict=True)
    ]
