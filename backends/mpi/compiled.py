"""Compiles a per-device program to machine code for all devices of one process together.

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
from shardir.backends.cpu.native import BACKEND
from shardir.backends.cpu.native.pipeline import of_process
from shardir.backends.cpu.native.program import STORAGE_ALONE
from shardir.backends.cpu.native.runtime.memory import allocate
from shardir.backends.mpi import routing
from shardir.backends.mpi.blocks import Blocks
from shardir.backends.mpi.input_check import Links
from shardir.backends.mpi.places import Places
from shardir.backends.mpi.routes import Finish, Route
from shardir.backends.mpi.session import Session
from shardir.backends.storage import Storage
from shardir.backends.windows import Piece, Windows, fill, is_joined, joined
from shardir.interpret import mesh_of
from shardir.ir import Module, Op, Value
from shardir.levels import Levels
from shardir.memory import Memory
from shardir.ops.overlap import done, is_started
from shardir.placement import Axis

if TYPE_CHECKING:
    from shardir.backends.cpu.native.schedule.steps import Into
    from shardir.backends.mpi.world import World


class CompiledProgram(Executable):
    """A partitioned module on blocks of devices; `lower` lowers it to the program of this
    process."""

    def __init__(
        self,
        module: Module,
        lower: Lower,
        owners: Sequence[int],
        blocks: Blocks,
        world: "World",
        *,
        checks_inputs: bool,
    ) -> None:
        mesh, interface = mesh_of(module), module.main.spmd
        assert interface is not None
        self.passes = of_process(blocks.across, blocks.at, routing.SMALL_BYTES)
        lowered = lower(self.passes)
        self._session = Session(module, owners, world, "machine code", checks_inputs)
        self._places = Places(mesh_of(lowered), blocks.owners, world.index)
        # Each process has its own constants, so that no value is known to be replicated.
        everywhere = self._places.mesh
        self._axes = tuple(Axis.whole(name, everywhere) for name, _ in everywhere.axes)
        self._donated: Sequence[int] = ()
        self._on_the_way: dict[Value, Finish] = {}
        self._links: dict[Op, Links] = {}
        self._program = BACKEND.compile(lowered, self._outside)
        self._session.carry(lowered.main.body, self._links)
        levels = Levels.parse(mesh, blocks.across)
        local = [d for d, owner in enumerate(owners) if owner == world.index]

        def pieces(number: int, of: str) -> tuple[tuple[int, ...], ...]:
            found = levels.pieces(getattr(interface, of)[number].sharding)
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
                joined(shards, *place) for shards, place in zip(args, self._params, strict=True)
            ]
            made = self._program.run(given, self._free(args))
        return [
            Windows(storage, *place) for storage, place in zip(made, self._results, strict=True)
        ]

    def begin(self) -> None:
        self._session.begin()

    def arranged(self, number: int, shards: Shards) -> Shards:
        pieces, shape = self._params[number]
        if is_joined(shards, pieces, shape):
            return shards
        join = _own if number in self._donated else joined
        return Windows(join(shards, pieces, shape), shards[0].shape, pieces)

    def donate(self, donated: Sequence[int]) -> None:
        self._donated = donated

    def written_over(self, donated: Sequence[int]) -> Mapping[int, int]:
        return self._program.written_over(donated)

    def _free(self, args: Sequence[Shards]) -> list[int]:
        """Return the donated arguments that no other array holds.

        The program checks separately whether other references to their memory exist.
        """
        unshared = []
        for number in self._donated:
            shards = args[number]
            if isinstance(shards, Windows) and getrefcount(shards) <= STORAGE_ALONE:
                unshared.append(number)
        return unshared

    def memory(self) -> Memory:
        return self._program.memory()

    def describe(self) -> str:
        return self._program.describe()

    def _outside(self, op: Op) -> "Into | None":
        """Return the function that executes an operation between processes, or None."""
        if op.spec is done:
            return self._finish(op)
        if not op.spec.collective:
            return None
        route = routing.route_of(op, self._axes, self._places)
        self._links[op] = route.links
        return self._start(op, route)

    def _start(self, op: Op, route: Route) -> "Into":
        started = is_started(op)

        def exchange(operands: list[Array], results: list[Array]) -> None:
            call = self._session.call(op, self._places)
            # Memory of an operand in flight may be reused before it is sent.
            given = [operand.copy() for operand in operands] if started else operands
            (out,) = results
            if started:
                self._on_the_way[op.results[0]] = route.start(given, call)
                return
            (made,) = route.start(given, call, out)()
            self._session.finish(op, call)
            if made is not out:
                out[...] = made

        return exchange

    def _finish(self, op: Op) -> "Into":
        def finish(operands: list[Array], results: list[Array]) -> None:
            (results[0][...],) = self._on_the_way.pop(op.operands[0])()

        return finish


def _own(shards: Shards, pieces: Sequence[Piece], shape: tuple[int, ...]) -> Storage:
    """Copy the shards side by side into new memory that a result may overwrite."""
    dtype = shards[0].dtype
    nbytes = prod(shape) * dtype.itemsize
    block = allocate(nbytes)
    fill(np.asarray(block)[:nbytes].view(dtype).reshape(shape), shards, pieces)
    return Storage(block.address, block, shape, dtype)
