"""Runs modules on XLA's CPU devices: global programs with shardings, and per-device programs."""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shardir.interpret.shards import assemble_shards, slice_shard
from shardir.ir.module import Module, spmd_mesh_of
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.stablehlo.printer import show
from shardir.text.printer import print_module
from tests.optional_dependencies import require

ROOT = Path(__file__).parents[2]
COUNT = 8


class XLA:
    """XLA in a separate process, with eight devices."""

    def __init__(self) -> None:
        require("jax")
        flags = f"--xla_force_host_platform_device_count={COUNT}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.xla.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        )

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=30)

    def replicas(self, program: Module, args: Sequence[Any]) -> list[Any]:
        """Return the global results of a per-device program, run as replicas."""
        spmd = program.main.spmd
        assert spmd is not None
        outer = [(each.type, each.sharding) for each in (*spmd.params, *spmd.results)]
        return self._run(program, False, args, outer)

    def sharded(self, module: Module, args: Sequence[Any]) -> list[Any]:
        """Return the results of a global program, whose unsharded parameters and results are
        replicated.
        """
        main = module.main
        border = [(param.type, param.sharding) for param in main.body.params]
        border += [
            (value.type, sharding)
            for value, sharding in zip(main.body.returns, main.result_shardings, strict=True)
        ]
        name = module.meshes[0].name
        outer = [(type, said or Sharding.open(name, type.rank)) for type, said in border]
        return self._run(module, True, args, outer)

    def _run(
        self,
        module: Module,
        sharded: bool,
        args: Sequence[Any],
        outer: Sequence[tuple[TensorType, Sharding]],
    ) -> list[Any]:
        mesh = module.meshes[0] if sharded else spmd_mesh_of(module)
        # Partition i is the device with this id, and replica i the device at this position.
        order = mesh.device_ids if sharded and mesh.device_ids else range(mesh.size)
        position = sorted(range(mesh.size), key=list(order).__getitem__)
        text = print_module(module)
        if sharded:
            text = show(module, for_xla=True).replace(f"@{module.main.name}(", "@main(", 1)
        parts = [
            [slice_shard(arg, sharding, mesh, place) for place in position]
            for arg, (_, sharding) in zip(args, outer, strict=False)
        ]
        assert self._process.stdin
        assert self._process.stdout
        pickle.dump((text, sharded, mesh.size, parts), self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        if isinstance(answer, str):
            raise AssertionError(f"{answer}\n\n{text}")
        return [
            assemble_shards([made[i] for i in order], type, sharding, mesh)
            for made, (type, sharding) in zip(answer, outer[len(args) :], strict=True)
        ]
