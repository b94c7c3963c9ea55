"""Compiles a per-device program for all devices of one process together.

If the devices of each process form a block of the mesh, each process runs one program on the data
of its devices, stored side by side (passes `hierarchical-collectives` and `merge-devices`),
compiled like that of a single process. Communication between processes happens between native
calls.
"""

from collections.abc import Mapping, Sequence
from math import prod
from sys import getrefcount
from typing import TYPE_CHECKING

import numpy as np

from shardir.backends.base import Array, Executable, InputCheck, Lower, Shards
from shardir.backends.cpu import BACKEND
from shardir.backends.cpu.executable import SOLE_STORAGE_REFERENCES
from shardir.backends.cpu.pipeline import process_pipeline
from shardir.backends.cpu.threads.memory import allocate
from shardir.backends.distributed import route_selection
from shardir.backends.distributed.collective_routes import CollectiveRoute, FinishCollective
from shardir.backends.distributed.device_ownership import DeviceOwnership
from shardir.backends.distributed.input_check import Links
from shardir.backends.distributed.process_blocks import ProcessBlocks
from shardir.backends.distributed.session import ProgramSession
from shardir.backends.distributed.world import World
from shardir.backends.shard_windows import (
    ShardIndex,
    ShardWindows,
    fill_windows,
    is_windows_of,
    join_shards,
)
from shardir.backends.storage import Storage
from shardir.cost.memory import MemoryEstimate
from shardir.ir.module import Module, Op, Value, spmd_mesh_of
from shardir.ir.process_levels import ProcessLevels
from shardir.ir.sharding import Axis
from shardir.ops.communication.async_collectives import done, is_started

if TYPE_CHECKING:
    from shardir.backends.cpu.schedule.python_steps import ExchangeInto


class CompiledProgram(Executable):
    """A partitioned module on blocks of devices; `lower` lowers it to the program of this
    process."""

    def __init__(
        self,
        module: Module,
        lower: Lower,
        owners: Sequence[int],
        blocks: ProcessBlocks,
        world: World,
        *,
        checks_inputs: bool,
    ) -> None:
        mesh, interface = spmd_mesh_of(module), module.main.spmd
        assert interface is not None
        self.passes = process_pipeline(
            blocks.across, blocks.at, route_selection.MAX_GATHERED_REDUCTION_BYTES
        )
        lowered = lower(self.passes)
        self._session = ProgramSession(module, owners, world, "machine code", checks_inputs)
        self._places = DeviceOwnership(spmd_mesh_of(lowered), blocks.owners, world.index)
        # Each process has its own constants, so that no value is known to be replicated.
        everywhere = self._places.mesh
        self._axes = tuple(Axis.full(name, everywhere) for name, _ in everywhere.axes)
        self._donated: Sequence[int] = ()
        self._in_flight: dict[Value, FinishCollective] = {}
        self._links: dict[Op, Links] = {}
        self._program = BACKEND.compile(lowered, self._lower_between_processes)
        self._session.select_carriers(lowered.main.body, self._links)
        levels = ProcessLevels.parse(mesh, blocks.across)
        local = [d for d, owner in enumerate(owners) if owner == world.index]

        def pieces(number: int, of: str) -> tuple[tuple[int, ...], ...]:
            found = levels.local_shard_indices(getattr(interface, of)[number].sharding)
            return tuple(found[d] for d in local)

        self._params = [
            (pieces(i, "params"), param.type.shape)
            for i, param in enumerate(lowered.main.body.params)
        ]
        self._results = [
            (value.type.shape, pieces(i, "results"))
            for i, value in enumerate(module.main.body.returns)
        ]

    def __call__(self, args: Sequence[Shards]) -> Sequence[Shards]:
        return self._checked_run(args, None)

    def run_checked(self, args: Sequence[Shards], check: InputCheck) -> Sequence[Shards]:
        return self._checked_run(args, check)

    def _checked_run(self, args: Sequence[Shards], check: InputCheck | None) -> Sequence[Shards]:
        # After a run has begun, results may be stored in donated memory. An error of the input
        # check must leave it unchanged.
        with self._session.run(check, first=bool(self._donated)):
            given = [
                join_shards(shards, *place)
                for shards, place in zip(args, self._params, strict=True)
            ]
            made = self._program.run(given, self._unshared_donations(args))
        return [
            ShardWindows(storage, *place)
            for storage, place in zip(made, self._results, strict=True)
        ]

    def begin(self) -> None:
        self._session.begin()

    def arrange_argument(self, number: int, shards: Shards) -> Shards:
        pieces, shape = self._params[number]
        if is_windows_of(shards, pieces, shape):
            return shards
        join = _copy_to_new_storage if number in self._donated else join_shards
        return ShardWindows(join(shards, pieces, shape), shards[0].shape, pieces)

    def donate(self, donated: Sequence[int]) -> None:
        self._donated = donated

    def overwritten_results(self, donated: Sequence[int]) -> Mapping[int, int]:
        return self._program.overwritten_results(donated)

    def _unshared_donations(self, args: Sequence[Shards]) -> list[int]:
        """Return the donated arguments that no other array holds.

        The program checks separately whether other references to their memory exist.
        """
        unshared = []
        for number in self._donated:
            shards = args[number]
            if isinstance(shards, ShardWindows) and getrefcount(shards) <= SOLE_STORAGE_REFERENCES:
                unshared.append(number)
        return unshared

    def memory(self) -> MemoryEstimate:
        return self._program.memory()

    def describe(self) -> str:
        return self._program.describe()

    def _lower_between_processes(self, op: Op) -> "ExchangeInto | None":
        """Return the function that executes an operation between processes, or None."""
        if op.spec is done:
            return self._finish(op)
        if not op.spec.collective:
            return None
        route = route_selection.select_route(op, self._axes, self._places)
        self._links[op] = route.links
        return self._start(op, route)

    def _start(self, op: Op, route: CollectiveRoute) -> "ExchangeInto":
        started = is_started(op)

        def exchange(operands: list[Array], results: list[Array]) -> None:
            call = self._session.next_call(op, self._places)
            # Memory of an operand in flight may be reused before it is sent.
            given = [operand.copy() for operand in operands] if started else operands
            (out,) = results
            if started:
                self._in_flight[op.results[0]] = route.start(given, call)
                return
            (made,) = route.start(given, call, out)()
            self._session.finish(op, call)
            if made is not out:
                out[...] = made

        return exchange

    def _finish(self, op: Op) -> "ExchangeInto":
        def finish(operands: list[Array], results: list[Array]) -> None:
            (results[0][...],) = self._in_flight.pop(op.operands[0])()

        return finish


def _copy_to_new_storage(
    shards: Shards, pieces: Sequence[ShardIndex], shape: tuple[int, ...]
) -> Storage:
    """Copy the shards side by side into new memory that a result may overwrite."""
    dtype = shards[0].dtype
    nbytes = prod(shape) * dtype.itemsize
    block = allocate(nbytes)
    fill_windows(np.asarray(block)[:nbytes].view(dtype).reshape(shape), shards, pieces)
    return Storage(block.address, block, shape, dtype)
