"""A model of the protocol between callers and workers, for exhaustive exploration of its states.

Every step reads or writes shared memory once, as in `phase_interpreter.py`; between two steps of a
thread, the other threads may take any number of steps. Unsuccessful polling is a step to the same
state. `fault` names a fault to insert, to verify that the exploration detects it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple


class Shared(NamedTuple):
    """The control memory, and for each phase the set of executed tasks as bits."""

    epoch: int
    left: int
    done: int
    waiting: bool
    sleepers: int
    job: int
    stop: bool
    ran: tuple[int, ...]


class Thread(NamedTuple):
    """The position and the local variables of a thread."""

    at: str
    epoch: int = 0
    left: int = 0
    ended: int = 0
    job: int = 0
    phase: int = 0


class State(NamedTuple):
    shared: Shared
    threads: tuple[Thread, ...]


class ProtocolViolation(Exception):
    """A violation of the protocol."""


@dataclass(frozen=True)
class Protocol:
    """Thread 0 calls a program with `tasks` per phase; the other threads are workers."""

    workers: int
    tasks: tuple[int, ...]
    fault: str = ""

    def start(self) -> State:
        shared = Shared(0, 0, 0, False, 0, -1, False, (0,) * len(self.tasks))
        return State(shared, (Thread("open"), *[Thread("idle")] * self.workers))

    def steps(self, state: State) -> Iterator[State]:
        """Yield all states that one step reaches."""
        for thread_index, thread in enumerate(state.threads):
            step: Callable[[State, int], Iterator[State]] | None
            step = getattr(self, f"_{thread.at}", None)
            if step is not None:
                yield from step(state, thread_index)

    def has_ended(self, state: State) -> bool:
        return all(thread.at == "ended" for thread in state.threads)

    # Steps of the caller.

    def _open(self, state: State, thread_index: int) -> Iterator[State]:
        thread = state.threads[thread_index]
        if thread.phase == len(self.tasks):
            yield advance_thread(state, thread_index, "stop")
        elif self.fault == "describes after opening":
            yield advance_thread(state, thread_index, "reset")
        else:
            yield advance_thread(update_shared(state, job=thread.phase), thread_index, "reset")

    def _reset(self, state: State, thread_index: int) -> Iterator[State]:
        changed = state if self.fault == "keeps the count" else update_shared(state, done=0)
        yield advance_thread(changed, thread_index, "publish")

    def _publish(self, state: State, thread_index: int) -> Iterator[State]:
        thread = state.threads[thread_index]
        epoch = state.shared.epoch + 1
        changed = update_shared(state, epoch=epoch, left=self.tasks[thread.phase])
        late = self.fault == "describes after opening"
        yield advance_thread(changed, thread_index, "describe" if late else "wake", epoch=epoch)

    def _describe(self, state: State, thread_index: int) -> Iterator[State]:
        yield advance_thread(
            update_shared(state, job=state.threads[thread_index].phase), thread_index, "wake"
        )

    def _wake(self, state: State, thread_index: int) -> Iterator[State]:
        here = advance_thread(state, thread_index, "look")
        if state.shared.sleepers == 0:
            yield here
            return
        asleep = [i for i, t in enumerate(state.threads) if i and t.at == "asleep"]
        woken_count = min(len(asleep), self.tasks[state.threads[thread_index].phase] - 1)
        for chosen in combinations(asleep, woken_count):
            woken = here
            for i in chosen:
                woken = advance_thread(woken, i, "rise")
            yield woken

    def _wait(self, state: State, thread_index: int) -> Iterator[State]:
        thread = state.threads[thread_index]
        if state.shared.done == self.tasks[thread.phase]:
            yield advance_thread(
                state, thread_index, "open", phase=thread.phase + 1, ended=0, left=0, job=0
            )
        else:
            # The caller may continue to poll, which does not change the state, or prepare to sleep.
            late = self.fault == "warns after looking"
            yield advance_thread(state, thread_index, "recheck" if late else "warn")

    def _warn(self, state: State, thread_index: int) -> Iterator[State]:
        late = self.fault == "warns after looking"
        yield advance_thread(
            update_shared(state, waiting=True), thread_index, "park" if late else "recheck"
        )

    def _recheck(self, state: State, thread_index: int) -> Iterator[State]:
        done = state.shared.done
        if done == self.tasks[state.threads[thread_index].phase]:
            yield advance_thread(state, thread_index, "clear")
        else:
            late = self.fault == "warns after looking"
            yield advance_thread(state, thread_index, "warn" if late else "park", left=done)

    def _park(self, state: State, thread_index: int) -> Iterator[State]:
        same = state.shared.done == state.threads[thread_index].left
        if self.fault in ("sleeps regardless", "warns after looking"):
            same = True
        yield advance_thread(state, thread_index, "asleep" if same else "clear")

    def _clear(self, state: State, thread_index: int) -> Iterator[State]:
        yield advance_thread(update_shared(state, waiting=False), thread_index, "wait")

    def _stop(self, state: State, thread_index: int) -> Iterator[State]:
        for phase, count in enumerate(self.tasks):
            if state.shared.ran[phase] != (1 << count) - 1:
                raise ProtocolViolation(f"phase {phase} ended before all its tasks")
        yield advance_thread(update_shared(state, stop=True), thread_index, "rouse")

    def _rouse(self, state: State, thread_index: int) -> Iterator[State]:
        woken = state
        for i, thread in enumerate(state.threads):
            if i and thread.at == "asleep":
                woken = advance_thread(woken, i, "rise")
        others = state.threads[1:]
        yield (
            advance_thread(woken, thread_index, "ended")
            if all(t.at == "ended" for t in others)
            else woken
        )

    # Steps of all threads to claim tasks.

    def _look(self, state: State, thread_index: int) -> Iterator[State]:
        thread, shared = state.threads[thread_index], state.shared
        if shared.epoch == thread.epoch and shared.left:
            early = self.fault == "reads before claiming"
            yield advance_thread(
                state, thread_index, "fetch" if early else "swap", left=shared.left
            )
        elif thread.ended:
            yield advance_thread(state, thread_index, "add")
        else:
            yield advance_thread(
                state, thread_index, "wait" if thread_index == 0 else "idle", left=0, job=0
            )

    def _swap(self, state: State, thread_index: int) -> Iterator[State]:
        thread, shared = state.threads[thread_index], state.shared
        same = shared.left == thread.left and (
            shared.epoch == thread.epoch or self.fault == "reads before claiming"
        )
        if self.fault == "claims without comparing":
            same = shared.left > 0
        early = self.fault == "reads before claiming"
        if same:
            changed = update_shared(state, left=shared.left - 1)
            yield advance_thread(changed, thread_index, "task" if early else "fetch")
        else:
            yield advance_thread(state, thread_index, "look")

    def _fetch(self, state: State, thread_index: int) -> Iterator[State]:
        early = self.fault == "reads before claiming"
        yield advance_thread(state, thread_index, "swap" if early else "task", job=state.shared.job)

    def _task(self, state: State, thread_index: int) -> Iterator[State]:
        job = state.threads[thread_index].job
        for phase in range(job):
            if state.shared.ran[phase] != (1 << self.tasks[phase]) - 1:
                raise ProtocolViolation(f"phase {job} began before phase {phase} had ended")
        if self.fault == "counts before running":
            yield advance_thread(
                update_shared(state, done=state.shared.done + 1), thread_index, "end"
            )
        else:
            yield advance_thread(state, thread_index, "end")

    def _end(self, state: State, thread_index: int) -> Iterator[State]:
        thread, shared = state.threads[thread_index], state.shared
        task = self.tasks[thread.job] - thread.left
        bit = 1 << task
        if task < 0 or shared.ran[thread.job] & bit:
            raise ProtocolViolation(f"task {task} of phase {thread.job} ran twice")
        for phase in range(thread.job + 1, len(self.tasks)):
            if shared.ran[phase]:
                raise ProtocolViolation(f"phase {phase} began before phase {thread.job} had ended")
        ran = list(shared.ran)
        ran[thread.job] |= bit
        ended = thread.ended + (self.fault != "counts before running")
        yield advance_thread(
            update_shared(state, ran=tuple(ran)), thread_index, "look", ended=ended, job=0, left=0
        )

    def _add(self, state: State, thread_index: int) -> Iterator[State]:
        count = state.threads[thread_index].ended
        silent = self.fault == "does not tell"
        after = ("wait" if thread_index == 0 else "idle") if silent else "notify"
        yield advance_thread(
            update_shared(state, done=state.shared.done + count), thread_index, after, ended=0
        )

    def _notify(self, state: State, thread_index: int) -> Iterator[State]:
        after = advance_thread(state, thread_index, "wait" if thread_index == 0 else "idle")
        if state.shared.waiting and state.threads[0].at == "asleep":
            after = advance_thread(after, 0, "clear")
        yield after

    # Steps of a worker without tasks.

    def _idle(self, state: State, thread_index: int) -> Iterator[State]:
        yield advance_thread(state, thread_index, "ended" if state.shared.stop else "poll", epoch=0)

    def _poll(self, state: State, thread_index: int) -> Iterator[State]:
        if state.shared.left:
            yield advance_thread(state, thread_index, "look", epoch=state.shared.epoch)
        else:
            yield advance_thread(state, thread_index, "idle")
            yield advance_thread(state, thread_index, "doze")

    def _doze(self, state: State, thread_index: int) -> Iterator[State]:
        yield advance_thread(
            update_shared(state, sleepers=state.shared.sleepers + 1), thread_index, "see"
        )

    def _see(self, state: State, thread_index: int) -> Iterator[State]:
        idle = state.shared.left == 0
        yield advance_thread(
            state, thread_index, "ask" if idle else "rise", epoch=state.shared.epoch
        )

    def _ask(self, state: State, thread_index: int) -> Iterator[State]:
        yield advance_thread(state, thread_index, "rise" if state.shared.stop else "sleep")

    def _sleep(self, state: State, thread_index: int) -> Iterator[State]:
        same = state.shared.epoch == state.threads[thread_index].epoch
        if self.fault == "sleeps through an opening":
            same = True
        if same and state.shared.left:
            raise ProtocolViolation("a worker went to sleep beside open tasks")
        yield advance_thread(state, thread_index, "asleep" if same else "rise")

    def _rise(self, state: State, thread_index: int) -> Iterator[State]:
        yield advance_thread(
            update_shared(state, sleepers=state.shared.sleepers - 1), thread_index, "idle", epoch=0
        )


def advance_thread(state: State, thread_index: int, at: str, **changes: int) -> State:
    """Move a thread to another position."""
    threads = list(state.threads)
    threads[thread_index] = threads[thread_index]._replace(at=at, **changes)
    return State(state.shared, tuple(threads))


def update_shared(state: State, **changes: Any) -> State:
    """Change shared memory."""
    return State(state.shared._replace(**changes), state.threads)


def explore(protocol: Protocol) -> int:
    """Visit every reachable state and return the number of states.

    Raise `ProtocolViolation` for an invalid state, and for a state from which no final state is
    reachable: a deadlock, or a thread that sleeps forever.
    """
    start = protocol.start()
    before: dict[State, list[State]] = {start: []}
    left = [start]
    ends = []
    while left:
        state = left.pop()
        if protocol.has_ended(state):
            ends.append(state)
        for after in protocol.steps(state):
            if after not in before:
                before[after] = []
                left.append(after)
            before[after].append(state)
    reaches_end = set(ends)
    left = list(ends)
    while left:
        for state in before[left.pop()]:
            if state not in reaches_end:
                reaches_end.add(state)
                left.append(state)
    stuck = len(before) - len(reaches_end)
    if stuck:
        raise ProtocolViolation(f"from {stuck} of {len(before)} states no end can be reached")
    return len(before)
