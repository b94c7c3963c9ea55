"""Runs programs on XLA's CPU devices for `tests.xla.execution`, with pickles over pipes.

A job is (text, sharded, count, arguments): `text` is StableHLO with shardings if `sharded`, else
the text of a per-device program, which the backend `pjrt` runs. `arguments` has for each parameter
the array of each device. The answer has for each result the array of each device, or is the error
text of XLA.
"""

import pickle
import sys
from typing import Any

import jax
import numpy as np
from jax._src import array, core
from jax._src.lib import xla_client
from jaxlib import _jax

from shardir.backends.pjrt.backend import BACKEND
from shardir.passes.pipeline import Pipeline
from shardir.text.parser import parse

Parts = list[list[Any]]


def run_replicas(text: str, arguments: Parts) -> Parts:
    """Return the results of a per-device program."""
    module = Pipeline.parse(BACKEND.pipeline)(parse(text))
    return [list(parts) for parts in BACKEND.compile(module)(arguments)]


def run_sharded(text: str, count: int, arguments: Parts) -> Parts:
    """Return the results of a program with shardings on `count` devices."""
    devices = jax.devices()[:count]
    options = _jax.CompileOptions()
    options.num_replicas, options.num_partitions = 1, count
    grid = np.arange(count).reshape(options.num_replicas, options.num_partitions)
    options.device_assignment = xla_client.DeviceAssignment.create(grid)
    building = options.executable_build_options
    building.use_spmd_partitioning = building.use_shardy_partitioner = True
    backend: Any = devices[0].client
    program = backend.compile_and_load(text, _jax.DeviceList(tuple(devices)), options)
    mesh = jax.sharding.Mesh(np.array(devices), ("devices",))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    inputs = []
    for parts in arguments:
        held = [jax.device_put(part, device) for part, device in zip(parts, devices, strict=True)]
        kind = core.ShapedArray(parts[0].shape, parts[0].dtype)
        inputs.append(array.ArrayImpl(kind, whole, held, committed=True, _skip_checks=True))
    made = program.execute_sharded(inputs)
    found = made.disassemble_into_single_device_arrays()
    return [[np.asarray(part) for part in parts] for parts in found]


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_disable_most_optimizations", True)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            text, sharded, count, arguments = pickle.load(source)
        except EOFError:
            return
        try:
            answer: Any = (
                run_sharded(text, count, arguments) if sharded else run_replicas(text, arguments)
            )
        except Exception as error:  # The test decides about errors of XLA.
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, sink)
        sink.flush()


if __name__ == "__main__":
    main()
