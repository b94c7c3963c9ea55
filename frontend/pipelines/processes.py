"""The processes that run the rows of a pipeline."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from shardir.backends.action_monitor import action_monitor
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.pipelines.placement import PipelinePlacement
from shardir.frontend.pipelines.transport import (
    LocalTransport,
    MessageTransport,
    Transport,
    describe,
)
from shardir.frontend.pipelines.wiring import Wiring
from shardir.ir.types import NumpyArray
from shardir.passes.pipeline_parallelism.actions import Action
from shardir.passes.pipeline_parallelism.progress import RECEIVE_OF

Totals = Mapping[tuple[int, str], NumpyArray]
"""The sums and the stacks of the values of all microbatches, by stage and name."""


StateAction = Callable[[int, Action], None]
"""States the action that a rank runs from now on."""


class PipelineProcesses:
    """The rows of this process, and its communication with the processes of other rows."""

    def __init__(
        self, wiring: Wiring, processes: Sequence[int], placement: PipelinePlacement
    ) -> None:
        group = process_group()
        self._wiring, self._placement = wiring, placement
        self._link, self._index = group.link, group.index
        self._all = sorted(set(processes))
        self.ranks = [rank for rank, process in enumerate(processes) if process == group.index]
        ranks = wiring.schedule.rank_of_stage
        self._process_of_stage = {stage: processes[rank] for stage, rank in ranks.items()}
        sends = [
            action
            for rank in range(len(processes))
            for action in wiring.schedule.actions(rank)
            if action.kind in RECEIVE_OF
        ]
        self._tags = {send: tag for tag, send in enumerate(sends)}
        self._types = {send: wiring.sent_types(send) for send in sends}

    @contextmanager
    def report_actions(self) -> Iterator[StateAction]:
        """Report the action in which this process is killed, if others would wait for it.

        Yield the function that states the action of a rank which runs from then on.
        """
        if len(self._all) == 1 or self._link is None:
            yield lambda rank, action: None
            return
        monitor, name = action_monitor(), self._link.process_name(self._index)

        def state_action(rank: int, action: Action) -> None:
            monitor.state(f"{name} was killed while rank {rank} ran {describe(action)}")

        try:
            yield state_action
        finally:
            monitor.state("")

    def transport(self) -> Transport:
        """Return the transport of one run."""
        if len(self._all) == 1 or self._link is None:
            return LocalTransport()
        return MessageTransport(
            self._link, self._index, self._process_of_stage, self._tags, self._types
        )

    def share(self, totals: Totals) -> Totals:
        """Return the totals of the stages of this process, and those of other processes that all
        processes need."""
        if len(self._all) == 1 or self._link is None:
            return totals
        own = _pack([totals[key] for key in self._keys(self._index)])
        others = [process for process in self._all if process != self._index]
        sizes = {process: self._packed_size(process) for process in others}
        rows = {process: own for process in others if own.nbytes}
        received = self._link.exchange(
            rows, {p: n for p, n in sizes.items() if n}, "the gradients of a pipeline"
        )
        shared = dict(totals)
        for process, row in received.items():
            start = 0
            for stage, name in self._keys(process):
                type = self._wiring.combined_types(stage)[name]
                part = row[start : start + type.nbytes]
                shared[stage, name] = part.view(type.numpy).reshape(type.shape)
                start += type.nbytes
        return shared

    def _keys(self, process: int) -> list[tuple[int, str]]:
        return [
            (stage, name)
            for stage, owner in sorted(self._process_of_stage.items())
            for name in sorted(self._wiring.combined_types(stage))
            if owner == process and not self._placement.is_in_blocks(name)
        ]

    def _packed_size(self, process: int) -> int:
        return sum(
            self._wiring.combined_types(stage)[name].nbytes for stage, name in self._keys(process)
        )


def _pack(arrays: Sequence[NumpyArray]) -> NumpyArray:
    rows = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    return np.concatenate(rows) if rows else np.empty(0, np.uint8)
