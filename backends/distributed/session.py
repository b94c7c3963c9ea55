"""The state of one program in one of its processes, across runs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import RLock

import numpy as np

from shardir.backends.base import InputCheck
from shardir.backends.distributed.collective_routes import CollectiveCall
from shardir.backends.distributed.deadlock_detector import ExecutionPoint
from shardir.backends.distributed.device_ownership import DeviceOwnership
from shardir.backends.distributed.input_check import (
    DIGEST_BYTES,
    MISMATCH,
    Links,
    carriers_of,
    combine_states,
    dissemination_rounds,
)
from shardir.backends.distributed.program_agreement import identity_of
from shardir.backends.distributed.world import World
from shardir.cost.mesh_axes import crossed_axes
from shardir.ir.module import Block, Module, Op
from shardir.text.printer import format_axis


@dataclass
class ProgramRun:
    """One run of a program: its number, and how many collectives it has executed."""

    number: int
    steps: int = 0
    state: bytes | None = None
    """The state of the input check of this process; see `input_check`."""
    check: InputCheck | None = None


class ProgramSession:
    """A program on the devices of several processes.

    Its messages are tagged with the program, the run, and the collective that they belong to.
    """

    def __init__(
        self,
        module: Module,
        owners: Sequence[int],
        world: World,
        compiler: str,
        checks_inputs: bool,
    ) -> None:
        self._world, self._name = world, module.main.name
        self._identity = identity_of(module, tuple(owners), compiler, checks_inputs)
        self._digest = self._identity.digest
        self._processes = tuple(sorted(set(owners)))
        self._lock, self._now = RLock(), ProgramRun(0)
        self._carriers: tuple[Op, ...] = ()

    def select_carriers(self, body: Block, links: Mapping[Op, Links]) -> None:
        """Select the collectives of a program whose messages compare the inputs of a run."""
        self._carriers = carriers_of(body, links, self._processes)

    def begin(self) -> None:
        """Check that all processes have the same program."""
        self._world.agree(self._identity, self._processes)

    @contextmanager
    def run(self, check: InputCheck | None = None, *, first: bool = False) -> Iterator[None]:
        """Run the body as one run, after a check that all processes have the same program.

        With a `check`, the run ends with an error in all processes if the inputs differ: after its
        carriers have run, or with `first` before any operation.
        """
        with self._lock:
            self.begin()
            before, self._now = self._now, ProgramRun(self._world.count("run", self._digest))
            try:
                if check is not None:
                    self._check(check, first or not self._carriers)
                yield
            finally:
                self._now = before

    def _check(self, check: InputCheck, first: bool) -> None:
        now = self._now
        now.state, now.check = check.digest, check
        if not first:
            return
        place = ExecutionPoint(
            f"the start of {self._name} (run {now.number})", self._identity.brief
        )
        messages, mark = self._world.messages, (self._digest, now.number, "inputs")
        for i, (target, source) in enumerate(
            dissemination_rounds(self._processes, self._world.index)
        ):
            row, came = np.frombuffer(now.state, np.uint8), np.empty(DIGEST_BYTES, np.uint8)
            tag = messages.tag(*mark, i)
            messages.wait(messages.post(tag, {target: row}, {source: came}, lambda: place))
            now.state = combine_states(now.state, [came.tobytes()])
        self._finish_check()

    def finish(self, op: Op, call: CollectiveCall) -> None:
        """Combine the states that were received with a finished collective."""
        if call.state is None:
            return
        now = self._now
        assert now.state is not None
        now.state = combine_states(now.state, call.states)
        if op is self._carriers[-1]:
            self._finish_check()

    def _finish_check(self) -> None:
        """Finish the check, since every digest has reached this process."""
        now = self._now
        state, now.state = now.state, None
        if state == MISMATCH and now.check is not None:
            now.check.report_mismatch()

    def next_call(self, op: Op, places: DeviceOwnership) -> CollectiveCall:
        """Return the next collective call of this run."""
        self._now.steps += 1
        number, step = self._now.number, self._now.steps
        what = partial(self._describe_call, op, places, number, step)
        state = self._now.state if op in self._carriers else None
        return CollectiveCall(self._world.messages, (self._digest, number, step), what, state)

    def _describe_call(
        self, op: Op, places: DeviceOwnership, run: int, step: int
    ) -> ExecutionPoint:
        axes = ", ".join(format_axis(axis, places.mesh) for axis in crossed_axes(op.attrs))
        words = (
            f"{op.name} %{op.results[0].name} of {self._name} over {axes} "
            f"(collective {step} of run {run})"
        )
        return ExecutionPoint(words, self._identity.brief)
