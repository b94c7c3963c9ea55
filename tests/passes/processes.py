"""Comparison of per-device programs with the per-process programs that passes derive."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from shardir.interpret.interpreter import execute_collective, resume, run_block, run_devices
from shardir.interpret.shards import slice_shard
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Module, Op, spmd_mesh_of
from shardir.ir.process_levels import ProcessLevels
from shardir.ir.sharding import Sharding
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE
from shardir.verify.verifier import verify
from tests.programs.shardings import shardings
from tests.programs.strategies import modules

Array = npt.NDArray[Any]


def run_verified_passes(pipeline: str, program: Module) -> Module:
    """Return the program after the passes, and verify it after each."""
    return Pipeline.parse(pipeline)(program, lambda step, before, after, _: verify(after))


def on_devices(program: Module, arguments: Sequence[Array]) -> list[list[Array]]:
    """Return the results of each device."""
    mesh, spmd = spmd_mesh_of(program), program.main.spmd
    assert spmd is not None
    shards = [
        [
            slice_shard(x, outer.sharding, mesh, d)
            for x, outer in zip(arguments, spmd.params, strict=True)
        ]
        for d in range(mesh.size)
    ]
    return run_devices(program.main, mesh, shards)


def on_processes(
    program: Module, grouped: Sequence[Module], across: str, arguments: Sequence[Array]
) -> list[list[Array]]:
    """Return the results of each device, where each process runs one of `grouped`.

    If there is only one program, all processes run it.
    """
    mesh, spmd = spmd_mesh_of(program), program.main.spmd
    assert spmd is not None
    levels = ProcessLevels.parse(mesh, across)
    process = process_of(levels)
    given: list[list[Array]] = [[] for _ in range(levels.processes.size)]
    for x, outer, param in zip(arguments, spmd.params, grouped[0].main.body.params, strict=True):
        shards = [slice_shard(x, outer.sharding, mesh, d) for d in range(mesh.size)]
        for column, whole in zip(
            given, _stack_per_process(levels, outer.sharding, shards), strict=True
        ):
            assert whole.shape == param.type.shape
            column.append(whole)
    made = _run_in_lock_step(grouped if len(grouped) > 1 else list(grouped) * len(given), given)
    found: list[list[Array]] = [[] for _ in range(mesh.size)]
    for i, outer in enumerate(spmd.results):
        pieces = levels.local_shard_indices(outer.sharding)
        shape = program.main.body.returns[i].type.shape
        for d in range(mesh.size):
            corner = zip(pieces[d], shape, strict=True)
            window: list[Any] = [slice(at * n, at * n + n) for at, n in corner]
            found[d].append(made[process[d]][i][(..., *window)])
    return found


def _run_in_lock_step(programs: Sequence[Module], given: Sequence[Sequence[Array]]) -> list[Any]:
    """Run programs that differ in their process, step by step."""
    mesh = spmd_mesh_of(programs[0])
    bodies = [program.main.body for program in programs]
    envs = [dict(zip(b.params, args, strict=True)) for b, args in zip(bodies, given, strict=True)]
    devices = [run_block(body, env) for body, env in zip(bodies, envs, strict=True)]
    answers: list[Any] = [None] * len(devices)
    while True:
        meetings = [resume(d, answer) for d, answer in zip(devices, answers, strict=True)]
        if all(meeting is None for meeting in meetings):
            return [
                [env[value] for value in body.returns]
                for body, env in zip(bodies, envs, strict=True)
            ]
        first = meetings[0]
        assert first is not None
        assert all(each and _kind(each.op) == _kind(first.op) for each in meetings)
        parts = [each.parts[0] for each in meetings if each]
        answers = [[answer] for answer in execute_collective(first.op, parts, mesh)]


def _kind(op: Op) -> tuple[object, ...]:
    return op.spec, op.attrs, tuple(value.type for value in op.tensors)


def process_of(levels: ProcessLevels) -> list[int]:
    """Return the process of each device, in the order of the blocks."""
    found = []
    for coordinates in levels.mesh.coordinates():
        at = 0
        for name, count in levels.processes.axes:
            at = at * count + coordinates[name] * count // levels.mesh.sizes[name]
        found.append(at)
    return found


def _stack_per_process(
    levels: ProcessLevels, sharding: Sharding, shards: Sequence[Array]
) -> list[Array]:
    """Return for each process the values of its devices, stacked."""
    pieces, process = levels.local_shard_indices(sharding), process_of(levels)
    counts = [max(column) + 1 for column in zip(*pieces, strict=True)]
    shape = [n * count for n, count in zip(shards[0].shape, counts, strict=True)]
    made = [np.empty(shape, shards[0].dtype) for _ in range(levels.processes.size)]
    for d, shard in enumerate(shards):
        corner = zip(pieces[d], shard.shape, strict=True)
        window: list[Any] = [slice(at * n, at * n + n) for at, n in corner]
        made[process[d]][(..., *window)] = shard
    return made


def block_shapes(mesh: Mesh) -> list[str]:
    """Return all ways to divide a mesh into several blocks."""
    counts = [[k for k in range(1, size + 1) if size % k == 0] for _, size in mesh.axes]
    return [
        "/".join(f"{name}:{k}" for (name, _), k in zip(mesh.axes, cut, strict=True) if k > 1)
        for cut in product(*counts)
        if any(k > 1 for k in cut)
    ]


def places(levels: ProcessLevels) -> list[str]:
    """Return the coordinates of each process, in order."""
    return [
        "/".join(f"{name}:{i}" for name, i in coordinates.items())
        for coordinates in levels.processes.coordinates()
    ]


@st.composite
def partition_some(draw: st.DrawFn) -> Module:
    """Return the per-device program; some collectives are split into start and end."""
    module = draw(modules())
    (mesh,) = module.meshes
    body = module.main.body
    cuts = {p: replace(p, sharding=draw(shardings(mesh, p.type.shape))) for p in body.params}
    function = replace(module.main, body=substitute(body, cuts))
    passes = DEFAULT_PIPELINE + draw(st.sampled_from(["", ",combine-collectives", ",overlap"]))
    return Pipeline.parse(passes)(replace(module, functions=(function,)))
