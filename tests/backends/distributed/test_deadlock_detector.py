"""The status messages of processes that wait: which of them show a deadlock."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from shardir.backends.distributed.deadlock_detector import DeadlockDetector, ExecutionPoint
from shardir.backends.distributed.program_agreement import ProgramIdentity

SUM_TAG, MAX_TAG = 100, 200
REASON = "process 1 is at the maximum; all processes must run the same programs in the same order"


class QueueCommunicator:
    """A communicator of processes of one thread: messages are in queues, in order."""

    def __init__(self, rank: int, queues: list[deque[Any]]) -> None:
        self.rank, self.size, self.queues = rank, len(queues), queues

    def send_object(self, note: Any, target: int, tag: int) -> None:
        self.queues[target].append(note)

    def have_completed(self, requests: list[None]) -> bool:
        return True

    def receive_object(self, tag: int) -> Any:
        return self.queues[self.rank].popleft() if self.queues[self.rank] else None


def two_detectors() -> tuple[DeadlockDetector, DeadlockDetector]:
    queues: list[deque[Any]] = [deque(), deque()]
    first, second = (
        DeadlockDetector(QueueCommunicator(rank, queues), "process {}".format)  # type: ignore[arg-type]
        for rank in range(2)
    )
    return first, second


def check(
    detector: DeadlockDetector,
    lacking: Callable[[], tuple[int, ...]],
    tag: int,
    sending: tuple[tuple[int, int], ...] = (),
) -> str:
    where = ExecutionPoint("the sum" if tag == SUM_TAG else "the maximum")
    return detector.find_deadlock(lacking, lambda: sending, tag, where)


def test_processes_that_wait_for_each_other_in_different_operations_are_in_a_deadlock() -> None:
    first, second = two_detectors()
    check(second, lambda: (0,), MAX_TAG)
    assert check(first, lambda: (1,), SUM_TAG) == ""
    check(second, lambda: (0,), MAX_TAG)
    assert check(first, lambda: (1,), SUM_TAG) == REASON


@pytest.mark.parametrize("with_program", [0, 1])
def test_programs_are_compared_if_both_processes_execute_one(with_program: int) -> None:
    first, second = two_detectors()
    points = [ExecutionPoint("the sum"), ExecutionPoint("the maximum")]
    points[with_program] = replace(points[with_program], program=ProgramIdentity("step", ()))
    found = ""
    for _ in range(2):
        second.find_deadlock(lambda: (0,), tuple, MAX_TAG, points[1])
        found = first.find_deadlock(lambda: (1,), tuple, SUM_TAG, points[0])
    assert found == REASON


def test_a_process_that_has_ended_sends_nothing() -> None:
    first, second = two_detectors()
    second.announce_end()
    assert check(first, lambda: (1,), SUM_TAG) == "process 1 has ended its program"


def test_an_answer_does_not_state_messages_as_missing_that_arrived_before_the_request() -> None:
    first, second = two_detectors()
    check(second, lambda: (0,), MAX_TAG)
    check(first, lambda: (1,), SUM_TAG)
    requests = second.comm.queues[1]  # type: ignore[attr-defined]
    assert requests
    # The message of process 0 arrives while the request waits to be read.
    check(second, lambda: (0,) if requests else (), MAX_TAG)
    assert check(first, lambda: (1,), SUM_TAG) == ""


def test_a_message_in_flight_is_not_a_deadlock() -> None:
    first, second = two_detectors()
    in_flight = ((1, MAX_TAG),)
    for _ in range(4):
        assert check(second, lambda: (0,), MAX_TAG) == ""
        assert check(first, lambda: (1,), SUM_TAG, sending=in_flight) == ""


def test_a_message_of_another_operation_in_flight_does_not_hide_a_deadlock() -> None:
    first, second = two_detectors()
    in_flight = ((1, SUM_TAG + 1),)
    found = ""
    for _ in range(3):
        check(second, lambda: (0,), MAX_TAG)
        found = check(first, lambda: (1,), SUM_TAG, sending=in_flight)
    assert found == REASON
