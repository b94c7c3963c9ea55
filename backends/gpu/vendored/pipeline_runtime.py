"""Pipelines: each row of devices runs its row of a schedule, with transfers between the rows.

`run_pipeline` is called by all devices. A row has the devices with one position along the axis of
the pipeline. It runs its actions in order: an action calls the function of a pass, or starts
transfers. Adjacent transfers start together (`batch_isend_irecv`), and a row waits for a received
value where it first uses it. A value lives until the last action of the row that needs it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from shardir.backends.action_monitor import action_monitor
from shardir.backends.gpu.vendored.arrays import DTYPES
from shardir.backends.gpu.vendored.comm import Comm, CommError, Transfers
from shardir.backends.gpu.vendored.device_mesh import Axes
from shardir.backends.gpu.vendored.distributed import DistComm
from shardir.backends.gpu.vendored.pipeline_schedule import PASSES, SENDS, Action, Place, read_rows


@dataclass(frozen=True)
class Pass:
    """A pass of a stage: its function, and the names of the values that it takes and gives."""

    function: Callable[..., tuple[Tensor, ...]]
    takes: tuple[str, ...]
    gives: tuple[str, ...]


@dataclass(frozen=True)
class Sent:
    """A value that a stage sends, its names there and in the next stage, and its shard's type."""

    given: str
    taken: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Combined:
    """A sum or a stack over all microbatches; devices of all rows receive a shared one."""

    stage: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    is_shared: bool = True


@dataclass(frozen=True)
class Gradient:
    """A sum of terms (stage, name, range of each first dimension), of which a device keeps its
    slices (dimension, axes).
    """

    dtype: str
    shape: tuple[int, ...]
    terms: tuple[tuple[int, str, tuple[tuple[int, int], ...]], ...]
    slices: tuple[tuple[int, Axes], ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """A pipeline along `axis`, and its schedule: the actions of each row, separated by commas.

    `batched` are the operands with a first dimension of microbatches. `forward` has the values that
    each stage but the last sends to the next one, `backward` those that each stage but the first
    sends to the one before it.
    """

    axis: str
    microbatches: int
    batched: tuple[int, ...]
    schedule: tuple[str, ...]
    passes: dict[str, Pass]
    forward: tuple[tuple[Sent, ...], ...]
    backward: tuple[tuple[Sent, ...], ...]
    combined: tuple[Combined, ...]
    gradients: tuple[Gradient, ...]
    loss_scale: float

    def sent(self, stage: int, kind: str) -> tuple[Sent, ...]:
        """Return the values of a send from a stage."""
        sides = self.forward if kind == "SEND_F" else self.backward
        number = stage if kind == "SEND_F" else stage - 1
        return sides[number] if 0 <= number < len(sides) else ()


def run_pipeline(comm: Comm, pipeline: Pipeline, *operands: Tensor) -> tuple[Tensor, ...]:
    """Return this device's loss, auxiliary results and gradients.

    Raises `CommError` if the schedule does not match the mesh or the passes.
    """
    rows = read_rows(tuple(pipeline.schedule), pipeline.microbatches)
    count = comm.mesh.count((pipeline.axis,))
    if len(rows) != count:
        raise CommError(
            f"the schedule has {len(rows)} rows, and the mesh has {count} rows of devices along "
            f"{pipeline.axis!r}; write one row for each"
        )
    return _RowRun(comm, pipeline, rows, operands).results()


class _Awaited:
    """A value that is received."""

    def __init__(self, transfers: Transfers, number: int) -> None:
        self._transfers, self._number = transfers, number

    def wait(self) -> Tensor:
        """Return the value, after it has arrived."""
        return self._transfers.wait()[self._number]


class _RowRun:
    """One run of the row of this device."""

    def __init__(
        self,
        comm: Comm,
        pipeline: Pipeline,
        rows: Sequence[Sequence[Action]],
        operands: Sequence[Tensor],
    ) -> None:
        self.comm, self.pipeline, self.operands = comm, pipeline, operands
        self.rank = comm.mesh.position(comm.rank, (pipeline.axis,))
        self.devices = comm.mesh.group(comm.rank, (pipeline.axis,))
        self.row = rows[self.rank]
        self.rank_of_stage = {
            action.stage: rank
            for rank, row in enumerate(rows)
            for action in row
            if action.kind in PASSES
        }
        self.ranks = {action: rank for rank, row in enumerate(rows) for action in row}
        self.values: dict[Place, dict[str, Tensor | _Awaited]] = {}
        self.sending: list[Transfers] = []
        self.terms: dict[tuple[int, str], _Terms] = {}

    def results(self) -> tuple[Tensor, ...]:
        """Run the row, and return the results of the pipeline."""
        drops = self._last_uses()
        steps = list(_group_transfers(self.row))
        with _state_actions(self.comm, self.rank) as state:
            done = 0
            for step in steps:
                state(step[0])
                with self._name_action(step[0]):
                    if step[0].is_transfer:
                        self._start_transfers(step)
                    elif step[0].kind in PASSES:
                        self._compute(step[0])
                for i in range(done, done + len(step)):
                    for place, name in drops[i]:
                        self.values.get(place, {}).pop(name, None)
                done += len(step)
            for transfers in self.sending:
                transfers.wait()
        return self._combine(self._share())

    def _last_uses(self) -> list[list[tuple[Place, str]]]:
        """Return the values that no later action needs, for each action."""
        needed: set[tuple[Place, str]] = set()
        drops = []
        for action in reversed(self.row):
            used = {(action.place, name) for name in self._needed_names(action)}
            drops.append(sorted(used - needed))
            needed |= used
        return drops[::-1]

    def _needed_names(self, action: Action) -> Iterator[str]:
        if action.kind in PASSES:
            yield from (name for name in self._pass(action).takes if not _is_operand(name))
            yield from (sent.given for sent in self._passed_on(action))
        elif action.kind in SENDS:
            yield from (sent.given for sent in self.pipeline.sent(action.stage, action.kind))

    def _pass(self, action: Action) -> Pass:
        found = self.pipeline.passes.get(f"{action.stage}{action.kind}")
        if found is None:
            raise CommError(f"rank {self.rank} has {action}, and the program has no such pass")
        return found

    def _value(self, place: Place, name: str) -> Tensor:
        value = self.values.get(place, {}).get(name)
        if value is None:
            raise CommError(f"it needs {name!r}, which no earlier action of rank {self.rank} gives")
        if isinstance(value, _Awaited):
            value = self.values[place][name] = value.wait()
        return value

    def _operand(self, name: str, microbatch: int) -> Tensor:
        number = int(name.partition(" ")[2])
        operand = self.operands[number]
        return operand[microbatch] if number in self.pipeline.batched else operand

    def _compute(self, action: Action) -> None:
        made = self._pass(action)
        args = [
            self._operand(name, action.microbatch)
            if _is_operand(name)
            else self._value(action.place, name)
            for name in made.takes
        ]
        own = self.values.setdefault(action.place, {})
        for name, value in zip(made.gives, made.function(self.comm, *args), strict=True):
            if name.split(" ")[0] in ("loss", "gradient", "auxiliary"):
                terms = self.terms.setdefault((action.stage, name), _Terms(name))
                terms.add(action.microbatch, value)
            else:
                own[name] = value
        self._pass_on(action)

    def _following_stage(self, action: Action) -> int:
        """Return the stage that takes the values that a pass of this one gives."""
        return action.stage + (1 if action.kind == "F" else -1)

    def _passed_on(self, action: Action) -> tuple[Sent, ...]:
        """Return the values that a pass gives to the following stage in the same row."""
        other_rank = self.rank_of_stage.get(self._following_stage(action))
        if action.kind == "W" or other_rank != self.rank:
            return ()
        return self.pipeline.sent(action.stage, "SEND_F" if action.kind == "F" else "SEND_B")

    def _pass_on(self, action: Action) -> None:
        """Give values to the following stage, if the row computes it too."""
        if passed := self._passed_on(action):
            following = self._following_stage(action), action.microbatch
            there = self.values.setdefault(following, {})
            for sent in passed:
                there[sent.taken] = self._value(action.place, sent.given)

    def _start_transfers(self, actions: Sequence[Action]) -> None:
        """Start adjacent sends and receives together."""
        sends, receives = [], []
        names: list[tuple[Place, str]] = []
        for action in actions:
            other = action.counterpart
            device = self.devices[self.ranks[other]]
            if action.kind in SENDS:
                for sent in self.pipeline.sent(action.stage, action.kind):
                    sends.append((self._value(action.place, sent.given), device))
                continue
            for sent in self.pipeline.sent(other.stage, other.kind):
                receives.append((sent.shape, DTYPES[sent.dtype], device))
                names.append((action.place, sent.taken))
        started = self.comm.start_transfers(", ".join(map(str, actions)), sends, receives)
        for number, (place, name) in enumerate(names):
            self.values.setdefault(place, {})[name] = _Awaited(started, number)
        self.sending = [each for each in self.sending if not each.has_finished()]
        if sends:
            self.sending.append(started)

    def _share(self) -> dict[tuple[int, str], Tensor]:
        """Return the combined values of this row, and those of other rows that all rows need."""
        totals = {}
        for each in self.pipeline.combined:
            key, owner = (each.stage, each.name), self.rank_of_stage[each.stage]
            if owner == self.rank:
                if key not in self.terms:
                    raise CommError(f"no action of rank {self.rank} gives {each.name!r}")
                totals[key] = self.terms[key].combine(self.pipeline.microbatches)
            elif each.is_shared:
                totals[key] = torch.empty(
                    each.shape, dtype=DTYPES[each.dtype], device=self.comm.device
                )
            if each.is_shared:
                totals[key] = self.comm.broadcast(totals[key], owner, (self.pipeline.axis,))
        return totals

    def _combine(self, totals: dict[tuple[int, str], Tensor]) -> tuple[Tensor, ...]:
        named = {name: total for (_, name), total in totals.items()}
        loss = named["loss"]
        outs = [loss * torch.full_like(loss, self.pipeline.loss_scale)]
        stacks = sum(name.startswith("auxiliary ") for name in named)
        outs += [named[f"auxiliary {number}"] for number in range(stacks)]
        for gradient in self.pipeline.gradients:
            terms = [
                (totals[stage, name], window)
                for stage, name, window in gradient.terms
                if (stage, name) in totals
            ]
            total = None
            if len(terms) == 1 and not terms[0][1]:
                total = terms[0][0]
            else:
                dtype = DTYPES[gradient.dtype]
                total = torch.zeros(gradient.shape, dtype=dtype, device=self.comm.device)
                for term, window in terms:
                    total[tuple(slice(*part) for part in window)] += term
            for dim, axes in gradient.slices:
                total = self.comm.all_slice(total, dim, axes)
            outs.append(total)
        return tuple(outs)

    @contextmanager
    def _name_action(self, action: Action) -> Iterator[None]:
        """Add the action to errors."""
        try:
            yield
        except CommError as error:
            raise CommError(f"{error}; while rank {self.rank} ran {action}") from None
        except Exception as error:
            error.add_note(f"while rank {self.rank} ran {action}")
            raise


class _Terms:
    """The terms of a sum, added in the order of the microbatches, or the rows of a stack.

    A term that comes before an earlier microbatch's is kept until then. Therefore all schedules
    give the same bits.
    """

    def __init__(self, name: str) -> None:
        self._name, self._is_stack = name, name.startswith("auxiliary ")
        self._sum: Tensor | None = None
        self._early: dict[int, Tensor] = {}
        self._microbatches: set[int] = set()
        self._added = 0

    def add(self, microbatch: int, term: Tensor) -> None:
        """Add the term of a microbatch; raise `CommError` if it was added before."""
        if microbatch in self._microbatches:
            raise CommError(
                f"the schedule gives {self._name!r} of microbatch {microbatch} more than once"
            )
        self._microbatches.add(microbatch)
        self._early[microbatch] = term
        while not self._is_stack and self._added in self._early:
            following = self._early.pop(self._added)
            if self._sum is None:
                self._sum = following
            elif self._added == 1:  # The first term may be shared with other values.
                self._sum = self._sum + following
            else:
                self._sum += following
            self._added += 1

    def combine(self, microbatches: int) -> Tensor:
        """Return the sum or the stack of the terms of all microbatches."""
        count = len(self._microbatches)
        if count != microbatches:
            raise CommError(
                f"the schedule gives {count} terms of {self._name!r}, and there are "
                f"{microbatches} microbatches"
            )
        if self._is_stack:
            return torch.stack([self._early[number] for number in range(microbatches)])
        assert self._sum is not None
        return self._sum


def _is_operand(name: str) -> bool:
    return name.startswith("argument ")


def _group_transfers(row: Sequence[Action]) -> Iterator[list[Action]]:
    """Yield the actions of a row, with adjacent transfers together."""
    steps: list[list[Action]] = []
    for action in row:
        if steps and action.is_transfer and steps[-1][-1].is_transfer:
            steps[-1].append(action)
        else:
            steps.append([action])
    yield from steps


@contextmanager
def _state_actions(comm: Comm, rank: int) -> Iterator[Callable[[Action], None]]:
    """Yield the function that states the action that runs, for the case that the process is
    killed.
    """
    if not isinstance(comm, DistComm):
        yield lambda action: None
        return
    monitor, name = action_monitor(), f"process {comm.rank} of {comm.mesh.size}"
    try:
        yield lambda action: monitor.state(f"{name} was killed while rank {rank} ran {action}")
    finally:
        monitor.state("")
