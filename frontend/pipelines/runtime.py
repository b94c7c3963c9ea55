"""The runtime of a pipeline: it runs the rows of a schedule.

Each row of devices runs its actions in order. An action calls a compiled fragment, sends values to
another row, or starts to receive values from one. The first action that needs received values waits
for them, as in `torch.distributed.pipelining`: actions between a receive and that action run while
the message is on its way. A value lives from the fragment that gives it to the last action of its
microbatch that needs it.
"""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import final

import numpy as np

from shardir.backends.base import Storage
from shardir.errors import ShardirError
from shardir.frontend.pipelines.accumulation import OrderedSum, Stack
from shardir.frontend.pipelines.fragments import CompiledFragment
from shardir.frontend.pipelines.inspection import InspectedPipeline, PipelineCall
from shardir.frontend.pipelines.processes import PipelineProcesses, StateAction, Totals
from shardir.frontend.pipelines.recording import PipelineEvent, record_event
from shardir.frontend.pipelines.row_actions import ScheduledAction, row_with_lifetimes
from shardir.frontend.pipelines.transport import Transport
from shardir.frontend.pipelines.wiring import is_auxiliary, is_summed
from shardir.ir.types import NumpyArray
from shardir.ops.control_flow.pipeline_slots import (
    LOSS,
    Window,
    auxiliary_slot,
    slot_number,
    slot_window,
)
from shardir.passes.pipeline_parallelism.actions import COMPUTATIONS, Action
from shardir.passes.pipeline_parallelism.program import FragmentKey
from shardir.passes.pipeline_parallelism.progress import RECEIVE_OF, SEND_OF, matching_transfer

Combined = dict[tuple[int, str], OrderedSum | Stack]
"""The sums of the losses and gradients of all microbatches, and the stacks of their auxiliary
results, by stage and name."""


class PipelineRunError(ShardirError, RuntimeError):
    """An action of a pipeline failed."""


@final
class PipelineRuntime(PipelineCall):
    """Runs a scheduled pipeline on arrays; it is the function of a callback.

    `processes` has the process of each row. Each process runs its own rows. All of them get the
    loss and the gradients of operands that all rows hold.
    """

    def __init__(
        self,
        inspected: InspectedPipeline,
        fragments: Mapping[FragmentKey, CompiledFragment],
        processes: Sequence[int],
    ) -> None:
        super().__init__(inspected)
        self.pipeline, self.fragments = inspected.staged, fragments
        self.wiring, self._placement = inspected.wiring, inspected.placement
        self.group = PipelineProcesses(self.wiring, processes, self._placement)
        self._rows = {rank: row_with_lifetimes(self.wiring, rank) for rank in self.group.ranks}

    def __call__(self, *arrays: NumpyArray) -> list[NumpyArray]:
        """Return the loss and the gradients of the pipeline for its operands."""
        with self.group.report_actions() as state_action:
            return self._run(arrays, state_action)

    def _run(self, arrays: Sequence[NumpyArray], state_action: StateAction) -> list[NumpyArray]:
        transport = self.group.transport()
        combined: Combined = {}
        runs = [_RowRun(self, rank, row, arrays, transport, combined, state_action)
                for rank, row in self._rows.items()]  # fmt: skip
        while not all(run.has_ended for run in runs):
            if not any([run.advance() for run in runs]) and not transport.wait():
                waiting = ", ".join(f"rank {r.rank} at {r.action}" for r in runs if not r.has_ended)
                raise PipelineRunError(f"no rank of the pipeline can continue: {waiting}")
        transport.finish()
        count = self.pipeline.microbatches
        totals = self.group.share({key: combined[key].total(count) for key in combined})
        return self._results(totals, arrays)

    def local_window(self, number: int, slot: str, stage: int, array: NumpyArray) -> Window:
        """Return the part of `array`, which holds blocks of an operand, that a slot names."""
        window = slot_window(slot)
        if not window:
            return window
        dim = self._placement.block_dims.get(number)
        size = 0 if dim is None else self._placement.block_type(number).shape[dim]
        if dim is None or array.shape[dim] == size * self._placement.row_count:
            return window
        rank = self.wiring.schedule.rank_of_stage[stage]
        start = window[dim].start + (self.group.ranks.index(rank) - rank) * size
        own = slice(start, start + window[dim].stop - window[dim].start)
        return (*window[:dim], own, *window[dim + 1 :])

    def _results(self, totals: Totals, arrays: Sequence[NumpyArray]) -> list[NumpyArray]:
        stages = range(self.pipeline.stage_count)
        loss = totals[self.pipeline.stage_count - 1, LOSS]
        outs: list[NumpyArray] = [
            np.asarray(loss * np.asarray(self.pipeline.loss_scale, loss.dtype))
        ]
        auxiliary = {slot: total for (_, slot), total in totals.items() if is_auxiliary(slot)}
        outs += [auxiliary[auxiliary_slot(number)] for number in range(len(auxiliary))]
        for number in self.pipeline.wrt:
            # A weight of several stages: its gradient is summed once, in the order of the stages.
            operand = arrays[number]
            terms = [
                (self.local_window(number, slot, stage, operand), totals[stage, slot])
                for stage in stages
                for owner, slot in sorted(totals)
                if owner == stage and slot_number(slot, "gradient") == number
            ]
            if len(terms) == 1 and not terms[0][0]:
                outs.append(terms[0][1])
                continue
            total = np.zeros(operand.shape, operand.dtype)
            for window, term in terms:
                total[window] += term
            outs.append(total)
        return outs


class _RowRun:
    """One run of the row of a rank."""

    def __init__(
        self,
        runtime: PipelineRuntime,
        rank: int,
        row: Sequence[ScheduledAction],
        arrays: Sequence[NumpyArray],
        transport: Transport,
        combined: Combined,
        state_action: StateAction,
    ) -> None:
        self.runtime, self.rank, self.row, self.arrays = runtime, rank, row, arrays
        self.transport, self.combined, self.state_action = transport, combined, state_action
        self.position = 0
        self.values: dict[tuple[int, int | None], dict[str, Storage]] = {}
        self.receives: list[Action] = []
        """The receives that have started and whose values no action has needed yet."""

    @property
    def has_ended(self) -> bool:
        """True if all actions of the row have run."""
        return self.position == len(self.row)

    @property
    def action(self) -> Action:
        """The next action."""
        return self.row[self.position].action

    def advance(self) -> bool:
        """Run actions until one waits; return whether any has run."""
        start = self.position
        while not self.has_ended:
            scheduled = self.row[self.position]
            for receive in scheduled.receives_ahead:
                self.transport.expect(matching_transfer(receive))
            self.state_action(self.rank, scheduled.action)
            try:
                if not self._take_received(scheduled.action):
                    break
                for part in scheduled.action.parts:
                    self._run(part)
            except Exception as error:
                error.add_note(f"while rank {self.rank} of the pipeline ran {scheduled.action}")
                raise
            for key, name in scheduled.last_uses:
                self.values[key].pop(name, None)
                if not self.values[key]:
                    del self.values[key]
            self.position += 1
        return self.position > start

    def _take_received(self, action: Action) -> bool:
        """Take the received values that an action needs; return False if one has not arrived."""
        for receive in [each for each in self.receives if self._needs(action, each)]:
            start = perf_counter()
            received = self.transport.receive(matching_transfer(receive))
            if received is None:
                return False
            self.receives.remove(receive)
            own = self.values.setdefault((receive.stage, receive.microbatch), {})
            names = self.runtime.wiring.find_received_names(receive)
            own.update(zip(names, received, strict=True))
            record_event(PipelineEvent(self.rank, receive, start, perf_counter()))
        return True

    def _needs(self, action: Action, receive: Action) -> bool:
        """Return whether an action needs values of a receive."""
        wiring, key = self.runtime.wiring, (receive.stage, receive.microbatch)
        names = wiring.find_received_names(receive)
        return any(
            (part.stage, part.microbatch) == key
            and not set(names).isdisjoint(wiring.find_needed_names(part))
            for part in action.parts
        )

    def _run(self, part: Action) -> None:
        """Run a single action whose received values have arrived."""
        if part.kind in SEND_OF:
            self.transport.expect(matching_transfer(part))
            self.receives.append(part)
            return
        start = perf_counter()
        size = 0
        own = self.values.setdefault((part.stage, part.microbatch), {})
        if part.kind in COMPUTATIONS:
            self._compute(part, own)
        elif part.kind in RECEIVE_OF:
            values = [own[name] for name in self.runtime.wiring.sent(part)]
            size = sum(value.array.nbytes for value in values)
            self.transport.send(part, values)
        record_event(PipelineEvent(self.rank, part, start, perf_counter(), size))

    def _compute(self, part: Action, own: dict[str, Storage]) -> None:
        pipeline = self.runtime.pipeline
        key = part.stage, part.kind
        fragment = pipeline.fragments[key]
        args = [
            own[name]
            if (number := slot_number(name, "argument")) is None
            else self._argument(number, name, part)
            for name in fragment.takes
        ]
        for name, value in zip(fragment.gives, self.runtime.fragments[key](args), strict=True):
            if is_summed(name) or is_auxiliary(name):
                empty = OrderedSum() if is_summed(name) else Stack()
                total = self.combined.setdefault((part.stage, name), empty)
                assert part.microbatch is not None
                total.add(part.microbatch, value.array)
            else:
                own[name] = value
        send = self.runtime.wiring.send_within_rank(part)
        if send is not None:
            receive = matching_transfer(send)
            there = self.values.setdefault((receive.stage, receive.microbatch), {})
            names = self.runtime.wiring.find_received_names(receive)
            there.update({
                name: own[sent]
                for name, sent in zip(names, self.runtime.wiring.sent(send), strict=True)
            })  # fmt: skip

    def _argument(self, number: int, slot: str, part: Action) -> Storage:
        array = self.arrays[number]
        if number in self.runtime.pipeline.batched_operands:
            return Storage.of(array[part.microbatch])
        return Storage.of(array[self.runtime.local_window(number, slot, part.stage, array)])
