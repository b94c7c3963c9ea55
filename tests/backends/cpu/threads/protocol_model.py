"""The protocol of callers and workers as a small machine, for walking through all it can do.

Every step reads or writes shared memory once, as `phases.py` does; between two steps of a thread
any other may take any number of its own. Looking again without result is a step to the same
state. `broken` names a fault to build in, to see that the walk finds it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple


class Shared(NamedTuple):
    """The control memory, and which tasks of each phase have run (a bit each)."""

    epoch: int
    left: int
    done: int
    waiting: bool
    sleepers: int
    job: int
    stop: bool
    ran: tuple[int, ...]


class Thread(NamedTuple):
    """Where a thread is, and what it remembers."""

    at: str
    epoch: int = 0
    left: int = 0
    ended: int = 0
    job: int = 0
    phase: int = 0


class State(NamedTuple):
    shared: Shared
    threads: tuple[Thread, ...]


class Fault(Exception):
    """Something that must never happen."""


@dataclass(frozen=True)
class Protocol:
    """Thread 0 calls with `tasks` per phase, the others are workers."""

    workers: int
    tasks: tuple[int, ...]
    broken: str = ""

    def start(self) -> State:
        shared = Shared(0, 0, 0, False, 0, -1, False, (0,) * len(self.tasks))
        return State(shared, (Thread("open"), *[Thread("idle")] * self.workers))

    def steps(self, state: State) -> Iterator[State]:
        """All states one step away."""
        for who, thread in enumerate(state.threads):
            step: Callable[[State, int], Iterator[State]] | None
            step = getattr(self, f"_{thread.at}", None)
            if step is not None:
                yield from step(state, who)

    def ended(self, state: State) -> bool:
        return all(thread.at == "ended" for thread in state.threads)

    # What the caller does.

    def _open(self, state: State, who: int) -> Iterator[State]:
        thread = state.threads[who]
        if thread.phase == len(self.tasks):
            yield go(state, who, "stop")
        elif self.broken == "describes after opening":
            yield go(state, who, "reset")
        else:
            yield go(write(state, job=thread.phase), who, "reset")

    def _reset(self, state: State, who: int) -> Iterator[State]:
        changed = state if self.broken == "keeps the count" else write(state, done=0)
        yield go(changed, who, "publish")

    def _publish(self, state: State, who: int) -> Iterator[State]:
        thread = state.threads[who]
        epoch = state.shared.epoch + 1
        changed = write(state, epoch=epoch, left=self.tasks[thread.phase])
        late = self.broken == "describes after opening"
        yield go(changed, who, "describe" if late else "wake", epoch=epoch)

    def _describe(self, state: State, who: int) -> Iterator[State]:
        yield go(write(state, job=state.threads[who].phase), who, "wake")

    def _wake(self, state: State, who: int) -> Iterator[State]:
        here = go(state, who, "look")
        if state.shared.sleepers == 0:
            yield here
            return
        asleep = [i for i, t in enumerate(state.threads) if i and t.at == "asleep"]
        most = min(len(asleep), self.tasks[state.threads[who].phase] - 1)
        for chosen in combinations(asleep, most):
            woken = here
            for i in chosen:
                woken = go(woken, i, "rise")
            yield woken

    def _wait(self, state: State, who: int) -> Iterator[State]:
        thread = state.threads[who]
        if state.shared.done == self.tasks[thread.phase]:
            yield go(state, who, "open", phase=thread.phase + 1, ended=0, left=0, job=0)
        else:
            # It may go on looking, which changes nothing, or lose patience.
            late = self.broken == "warns after looking"
            yield go(state, who, "recheck" if late else "warn")

    def _warn(self, state: State, who: int) -> Iterator[State]:
        late = self.broken == "warns after looking"
        yield go(write(state, waiting=True), who, "park" if late else "recheck")

    def _recheck(self, state: State, who: int) -> Iterator[State]:
        done = state.shared.done
        if done == self.tasks[state.threads[who].phase]:
            yield go(state, who, "clear")
        else:
            late = self.broken == "warns after looking"
            yield go(state, who, "warn" if late else "park", left=done)

    def _park(self, state: State, who: int) -> Iterator[State]:
        same = state.shared.done == state.threads[who].left
        if self.broken in ("sleeps regardless", "warns after looking"):
            same = True
        yield go(state, who, "asleep" if same else "clear")

    def _clear(self, state: State, who: int) -> Iterator[State]:
        yield go(write(state, waiting=False), who, "wait")

    def _stop(self, state: State, who: int) -> Iterator[State]:
        for phase, count in enumerate(self.tasks):
            if state.shared.ran[phase] != (1 << count) - 1:
                raise Fault(f"phase {phase} ended before all its tasks")
        yield go(write(state, stop=True), who, "rouse")

    def _rouse(self, state: State, who: int) -> Iterator[State]:
        woken = state
        for i, thread in enumerate(state.threads):
            if i and thread.at == "asleep":
                woken = go(woken, i, "rise")
        others = state.threads[1:]
        yield go(woken, who, "ended") if all(t.at == "ended" for t in others) else woken

    # What everybody does to get tasks.

    def _look(self, state: State, who: int) -> Iterator[State]:
        thread, shared = state.threads[who], state.shared
        if shared.epoch == thread.epoch and shared.left:
            early = self.broken == "reads before claiming"
            yield go(state, who, "fetch" if early else "swap", left=shared.left)
        elif thread.ended:
            yield go(state, who, "add")
        else:
            yield go(state, who, "wait" if who == 0 else "idle", left=0, job=0)

    def _swap(self, state: State, who: int) -> Iterator[State]:
        thread, shared = state.threads[who], state.shared
        same = shared.left == thread.left and (
            shared.epoch == thread.epoch or self.broken == "reads before claiming"
        )
        if self.broken == "claims without comparing":
            same = shared.left > 0
        early = self.broken == "reads before claiming"
        if same:
            changed = write(state, left=shared.left - 1)
            yield go(changed, who, "task" if early else "fetch")
        else:
            yield go(state, who, "look")

    def _fetch(self, state: State, who: int) -> Iterator[State]:
        early = self.broken == "reads before claiming"
        yield go(state, who, "swap" if early else "task", job=state.shared.job)

    def _task(self, state: State, who: int) -> Iterator[State]:
        job = state.threads[who].job
        for phase in range(job):
            if state.shared.ran[phase] != (1 << self.tasks[phase]) - 1:
                raise Fault(f"phase {job} began before phase {phase} had ended")
        if self.broken == "counts before running":
            yield go(write(state, done=state.shared.done + 1), who, "end")
        else:
            yield go(state, who, "end")

    def _end(self, state: State, who: int) -> Iterator[State]:
        thread, shared = state.threads[who], state.shared
        task = self.tasks[thread.job] - thread.left
        bit = 1 << task
        if task < 0 or shared.ran[thread.job] & bit:
            raise Fault(f"task {task} of phase {thread.job} ran twice")
        for phase in range(thread.job + 1, len(self.tasks)):
            if shared.ran[phase]:
                raise Fault(f"phase {phase} began before phase {thread.job} had ended")
        ran = list(shared.ran)
        ran[thread.job] |= bit
        ended = thread.ended + (self.broken != "counts before running")
        yield go(write(state, ran=tuple(ran)), who, "look", ended=ended, job=0, left=0)

    def _add(self, state: State, who: int) -> Iterator[State]:
        count = state.threads[who].ended
        silent = self.broken == "does not tell"
        after = ("wait" if who == 0 else "idle") if silent else "notify"
        yield go(write(state, done=state.shared.done + count), who, after, ended=0)

    def _notify(self, state: State, who: int) -> Iterator[State]:
        after = go(state, who, "wait" if who == 0 else "idle")
        if state.shared.waiting and state.threads[0].at == "asleep":
            after = go(after, 0, "clear")
        yield after

    # What a worker does without tasks.

    def _idle(self, state: State, who: int) -> Iterator[State]:
        yield go(state, who, "ended" if state.shared.stop else "poll", epoch=0)

    def _poll(self, state: State, who: int) -> Iterator[State]:
        if state.shared.left:
            yield go(state, who, "look", epoch=state.shared.epoch)
        else:
            yield go(state, who, "idle")
            yield go(state, who, "doze")

    def _doze(self, state: State, who: int) -> Iterator[State]:
        yield go(write(state, sleepers=state.shared.sleepers + 1), who, "see")

    def _see(self, state: State, who: int) -> Iterator[State]:
        idle = state.shared.left == 0
        yield go(state, who, "ask" if idle else "rise", epoch=state.shared.epoch)

    def _ask(self, state: State, who: int) -> Iterator[State]:
        yield go(state, who, "rise" if state.shared.stop else "sleep")

    def _sleep(self, state: State, who: int) -> Iterator[State]:
        same = state.shared.epoch == state.threads[who].epoch
        if self.broken == "sleeps through an opening":
            same = True
        if same and state.shared.left:
            raise Fault("a worker went to sleep beside open tasks")
        yield go(state, who, "asleep" if same else "rise")

    def _rise(self, state: State, who: int) -> Iterator[State]:
        yield go(write(state, sleepers=state.shared.sleepers - 1), who, "idle", epoch=0)


def go(state: State, who: int, at: str, **changes: int) -> State:
    """A thread goes on."""
    threads = list(state.threads)
    threads[who] = threads[who]._replace(at=at, **changes)
    return State(state.shared, tuple(threads))


def write(state: State, **changes: Any) -> State:
    """Shared memory changes."""
    return State(state.shared._replace(**changes), state.threads)


def walk(protocol: Protocol) -> int:
    """Visit every state that can be reached; how many there are.

    Raises `Fault` for a state that must not be, and for one from which no end can be reached: a
    deadlock, or a thread that sleeps for ever while others look on.
    """
    start = protocol.start()
    before: dict[State, list[State]] = {start: []}
    left = [start]
    ends = []
    while left:
        state = left.pop()
        if protocol.ended(state):
            ends.append(state)
        for after in protocol.steps(state):
            if after not in before:
                before[after] = []
                left.append(after)
            before[after].append(state)
    good = set(ends)
    left = list(ends)
    while left:
        for state in before[left.pop()]:
            if state not in good:
                good.add(state)
                left.append(state)
    stuck = len(before) - len(good)
    if stuck:
        raise Fault(f"from {stuck} of {len(before)} states no end can be reached")
    return len(before)
