"""Large reductions: reduce-scatter between processes, then all-gather for an all-reduce.

The devices of one process combine their arrays in its memory, in order of their positions. The
processes of a group then split the result: each combines one part of all, in order of the
processes, and for an all-reduce sends it back. This sends the minimum number of bytes for any
number of processes, and the order of the sum does not depend on the order of arrival.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import prod

import numpy as np

from shardir import ops
from shardir.backends.base import Array
from shardir.backends.distributed.collective_routes import (
    CollectiveCall,
    FinishCollective,
    GroupMembers,
    GroupRoute,
)
from shardir.backends.distributed.device_ownership import DeviceClasses
from shardir.backends.distributed.input_check import Links
from shardir.backends.distributed.messages import PostedMessages
from shardir.ir.module import Op
from shardir.ir.types import NumpyDType
from shardir.ops.communication.async_collectives import synchronous_spec
from shardir.ops.communication.collectives import REDUCTIONS, reduce_arrays, split_array
from shardir.ops.elementwise.numerics import is_narrow_float


@dataclass(frozen=True)
class ReductionTeam:
    """The processes whose devices form a group, their positions in it, and their classes there."""

    processes: tuple[int, ...]
    positions: dict[int, tuple[int, ...]]
    numbers: tuple[int, ...]

    def classes_of(self, process: int) -> list[int]:
        """Return the classes that the devices of one process contribute."""
        return [self.numbers[at] for at in self.positions[process]]


class LargeReductionRoute(GroupRoute):
    """all-reduce and reduce-scatter that combine in each process before sending."""

    def __init__(self, op: Op, classes: DeviceClasses) -> None:
        super().__init__(op, classes)
        self.scatters = synchronous_spec(op) is ops.reduce_scatter
        self.function = REDUCTIONS[op.attrs["op"]][0]
        self.result = op.results[0].type
        # Groups with equal data on the same processes are one team.
        self.team: dict[tuple[int, ...], int] = {}
        self.teams: list[ReductionTeam] = []
        known: dict[object, int] = {}
        for group in self.groups:
            owners = tuple(self.places.owners[device] for device in group)
            key = owners, self.class_numbers(group)
            if key not in known:
                known[key] = len(self.teams)
                self.teams.append(_team(owners, key[1]))
            self.team[group] = known[key]

    @property
    def links(self) -> Links:
        return frozenset(pair for team in self.teams for pair in permutations(team.processes, 2))

    @cached_property
    def accumulation_dtype(self) -> NumpyDType:
        """The element type of partial sums: f32 for half precision."""
        dtype = self.type.numpy
        return np.dtype(np.float32) if is_narrow_float(dtype) else dtype

    def start(
        self, arrays: Sequence[Array], call: CollectiveCall, out: Array | None = None
    ) -> FinishCollective:
        held = self.classes.arrays_by_class(arrays)
        here = self.places.this_process
        jobs = {
            i: PendingReduction(
                self, team, [held[number] for number in team.classes_of(here)], call, i, out
            )
            for i, team in enumerate(self.teams)
            if here in team.processes
        }

        def finish() -> list[Array]:
            for job in jobs.values():
                job.combine()
            for job in jobs.values():
                job.wait()
            results = []
            for device in self.places.local_devices:
                group, at = self.place[device]
                results.append(jobs[self.team[group]].result(at))
            return results

        return finish


class PendingReduction:
    """The reduction of one team in flight, in one of its processes."""

    def __init__(
        self,
        route: LargeReductionRoute,
        team: ReductionTeam,
        arrays: list[Array],
        call: CollectiveCall,
        number: int,
        out: Array | None,
    ) -> None:
        self.route, self.team, self.call, self.number = route, team, call, number
        self.out = out if out is not None and out.flags.c_contiguous else None
        self.here = route.places.this_process
        self.posted: PostedMessages | None = None
        self.partial = self._combine_local(arrays)
        if len(team.processes) == 1:
            self.whole = self.partial.astype(route.type.numpy, copy=False)
            return
        self.places = {
            process: np.empty(self._share_shape(self.here), self._sent_dtype(process))
            for process in team.processes
            if process != self.here
        }
        rows = {process: self._part_for(process) for process in self.places}
        self.mine = self._part_for(self.here)
        self.posted = call.post(rows, self.places, number)

    def _combine_local(self, arrays: list[Array]) -> Array:
        """Combine the arrays of the devices of this process, without rounding."""
        if len(arrays) == 1:
            return arrays[0]
        wide = [array.astype(self.route.accumulation_dtype, copy=False) for array in arrays]
        return reduce_arrays(wide, self.route.op.attrs["op"])

    def _sent_dtype(self, process: int) -> NumpyDType:
        """Return the element type in which a process sends its partial result."""
        alone = len(self.team.positions[process]) == 1
        return self.route.type.numpy if alone else self.route.accumulation_dtype

    def _bounds(self, process: int) -> slice:
        """Return the part of an all-reduce that one process combines."""
        size, count = prod(self.route.type.shape), len(self.team.processes)
        at = self.team.processes.index(process)
        return slice(size * at // count, size * (at + 1) // count)

    def _share_shape(self, process: int) -> tuple[int, ...]:
        """Return the shape of the part that one process combines."""
        if self.route.scatters:
            return len(self.team.positions[process]), *self.route.result.shape
        bounds = self._bounds(process)
        return (bounds.stop - bounds.start,)

    def _part_for(self, process: int) -> Array:
        """Return the part of this process's array that another process combines."""
        if self.route.scatters:
            dim, count = self.route.op.attrs["dim"], len(self.team.numbers)
            chunks = split_array(self.partial, dim, count)
            return np.stack([chunks[at] for at in self.team.positions[process]])
        return np.ascontiguousarray(self.partial).reshape(-1)[self._bounds(process)]

    def combine(self) -> None:
        """Wait for the parts of the others and combine them; for an all-reduce, send the result
        back."""
        if self.posted is None:
            return
        self.call.messages.wait(self.posted)
        self.posted = None
        parts = [
            self.mine if process == self.here else self.places[process]
            for process in self.team.processes
        ]
        wide = [part.astype(self.route.accumulation_dtype, copy=False) for part in parts]
        if self.route.scatters:
            self.whole = self._total(wide, None).astype(self.route.type.numpy, copy=False)
            return
        type = self.route.type
        self.whole = np.empty(type.shape, type.numpy) if self.out is None else self.out
        flat = self.whole.reshape(-1)
        mine = flat[self._bounds(self.here)]
        total = self._total(wide, mine if mine.dtype == self.route.accumulation_dtype else None)
        if total is not mine:
            mine[...] = total
        others = [process for process in self.team.processes if process != self.here]
        rows = dict.fromkeys(others, flat[self._bounds(self.here)])
        places = {process: flat[self._bounds(process)] for process in others}
        self.posted = self.call.post(rows, places, self.number, "back")

    def _total(self, parts: list[Array], into: Array | None) -> Array:
        """Combine the parts, in `into` if it is given and the function can write to it."""
        function = self.route.function
        with np.errstate(all="ignore"):
            if into is not None and isinstance(function, np.ufunc):
                function(parts[0], parts[1], out=into)
                for part in parts[2:]:
                    function(into, part, out=into)
                return into
            total = np.asarray(function(parts[0], parts[1]))
            for part in parts[2:]:
                total = np.asarray(function(total, part))
        return total

    def wait(self) -> None:
        """Wait for the parts that other processes have combined."""
        if self.posted is not None:
            self.call.messages.wait(self.posted)

    def result(self, position: int) -> Array:
        """Return the result of the device of this process at a position of the group."""
        if not self.route.scatters:
            return self.whole
        mine = self.team.positions[self.here]
        if len(self.team.processes) == 1:
            count = len(self.team.numbers)
            return split_array(self.whole, self.route.op.attrs["dim"], count)[position]
        return np.asarray(self.whole[mine.index(position)])


def _team(owners: tuple[int, ...], numbers: tuple[int, ...]) -> ReductionTeam:
    positions: dict[int, tuple[int, ...]] = {}
    for at, owner in enumerate(owners):
        positions[owner] = (*positions.get(owner, ()), at)
    return ReductionTeam(tuple(positions), positions, numbers)


def is_large(op: Op, classes: DeviceClasses, limit: int) -> bool:
    """Return whether a process would receive more than `limit` bytes by gathering all parts."""
    members = GroupMembers(op, classes)
    most = 0
    for process in classes.places.processes:
        missing_parts = {
            number
            for device, owner in enumerate(classes.places.owners)
            if owner == process
            for number in members.class_numbers(members.place[device][0])
            if process not in classes.holders[number]
        }
        most = max(most, len(missing_parts))
    return most * op.operands[0].type.nbytes > limit
