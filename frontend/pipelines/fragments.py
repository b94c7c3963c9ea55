"""Compiled fragments: one pass of one stage, as a program for the devices of its row."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from shardir.backends.base import Executable, Storage, UnshardedExecutable
from shardir.frontend.config import config
from shardir.frontend.dispatch.programs.compilation import compile_module
from shardir.frontend.setting_values import WIDE_FLOATS
from shardir.frontend.shardings.devices import Device
from shardir.interpret.shards import assemble_shards, slice_shard
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import DimSharding, Sharding
from shardir.ir.types import TensorType
from shardir.passes.collectives.widen_reductions import widen_gradient_sums
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.passes.pipeline_parallelism.program import Fragment
from shardir.passes.rewriting import all_values
from shardir.text.printer import print_module


@dataclass(frozen=True)
class PartitionedFragment:
    """A fragment as the program of each device of a row, with the shardings of its results."""

    module: Module
    """The partitioned module."""
    results: tuple[Sharding | None, ...]
    """The sharding of each result on the mesh of a row; `None` without a mesh."""


class CompiledFragment:
    """A program that takes and gives unsharded arrays."""

    def __init__(self, module: Module, devices: Sequence[Device]) -> None:
        self.module = module
        self._executable = compile_module(module, devices)

    def __call__(self, args: Sequence[Storage]) -> list[Storage]:
        """Run the pass of one microbatch."""
        if isinstance(self._executable, UnshardedExecutable):
            return self._executable.run(args)
        return _run_sharded(self._executable, self.module, args)


def row_mesh(mesh: Mesh, axis: str) -> Mesh | None:
    """Return the mesh of one row of devices: the axes without `axis`; `None` for one device."""
    axes = tuple((name, size) for name, size in mesh.axes if name != axis)
    return Mesh(mesh.name, axes) if any(size > 1 for _, size in axes) else None


def row_sharding(
    sharding: Sharding | None, type: TensorType, axis: str, mesh: Mesh | None
) -> Sharding | None:
    """Return the sharding of a tensor on the mesh of a row.

    A row has all parts along `axis`. An axis that does not divide its dimension is left out.
    """
    if sharding is None or mesh is None:
        return None
    dims = []
    for dim, size in zip(sharding.dims, type.shape, strict=True):
        axes = tuple(a for a in dim.axes if a.name != axis)
        kept = DimSharding(axes, dim.open)
        dims.append(kept if size % kept.num_shards == 0 else DimSharding((), dim.open))
    return Sharding(sharding.mesh, tuple(dims))


def partition_fragment(
    fragment: Fragment,
    shardings: Sequence[Sharding | None],
    results: Sequence[Sharding | None],
    mesh: Mesh | None,
) -> PartitionedFragment:
    """Return the program of each device of a row; `shardings` are those of the parameters, and
    `results` the requested ones of the results."""
    block = fragment.block
    # Fragments of equal stages have equal names, so that they are compiled once.
    new: dict[Value, Value] = {}
    for value in all_values(block):
        sharding = None if mesh is None else value.sharding
        new[value] = Value(value.type, f"v{len(new)}", sharding)
    for param, sharding in zip(block.params, shardings, strict=True):
        new[param] = replace(new[param], sharding=sharding)
    body = substitute(block, new)
    function = Function("fragment", body, tuple(results))
    steps = Pipeline.parse(DEFAULT_PIPELINE)
    if config.grad_reduce_dtype is not None:
        steps = widen_gradient_sums(steps, WIDE_FLOATS[config.grad_reduce_dtype])
    module = steps(Module(() if mesh is None else (mesh,), (function,)))
    spmd = module.main.spmd
    if spmd is None:
        return PartitionedFragment(module, (None,) * len(body.returns))
    return PartitionedFragment(module, tuple(result.sharding for result in spmd.results))


class FragmentCompiler:
    """Compiles each distinct fragment once."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = devices
        self._compiled: dict[str, CompiledFragment] = {}

    def __call__(self, fragment: PartitionedFragment) -> CompiledFragment:
        """Return the compiled program of a fragment."""
        key = print_module(fragment.module)
        if key not in self._compiled:
            self._compiled[key] = CompiledFragment(fragment.module, self._devices)
        return self._compiled[key]


def _run_sharded(executable: Executable, module: Module, args: Sequence[Storage]) -> list[Storage]:
    """Run a program that takes and returns the shards of devices."""
    spmd = module.main.spmd
    if spmd is None:
        return [Storage.of(np.asarray(r[0])) for r in executable([[a.array] for a in args])]
    (mesh,) = module.meshes
    shards = [
        [slice_shard(a.array, param.sharding, mesh, device) for device in range(mesh.size)]
        for a, param in zip(args, spmd.params, strict=True)
    ]
    return [
        Storage.of(assemble_shards(list(parts), result.type, result.sharding, mesh))
        for parts, result in zip(executable(shards), spmd.results, strict=True)
    ]
