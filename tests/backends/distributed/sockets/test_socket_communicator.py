"""The end of a job that another process aborts, or whose connection is lost."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from shardir.backends.distributed import messages
from shardir.backends.distributed.deadlock_detector import ExecutionPoint
from shardir.backends.distributed.messages import MessageChannel
from shardir.backends.distributed.sockets import socket_communicator
from shardir.backends.distributed.sockets.connection import Connection
from shardir.backends.distributed.sockets.socket_communicator import Network, SocketCommunicator


class ExitError(Exception):
    """The end of a process; the last argument is its exit code."""


@pytest.fixture
def networks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Network]]:
    """Yield the networks of three processes, in which an exit is an exception."""

    def exit_process(code: int) -> None:
        raise ExitError(code)

    monkeypatch.setattr(socket_communicator, "_exit", exit_process)
    connections: list[dict[int, Connection]] = [{}, {}, {}]
    with ExitStack() as stack:
        for one, other in ((0, 1), (0, 2), (1, 2)):
            first, second = socket.socketpair()
            stack.enter_context(first)
            stack.enter_context(second)
            connections[one][other] = Connection(first)
            connections[other][one] = Connection(second)
        yield [Network(each) for each in connections]


def test_a_process_exits_when_another_one_aborts(networks: list[Network]) -> None:
    networks[0].abort()
    for other in networks[1:]:
        with pytest.raises(ExitError) as caught:
            other.make_progress()
        assert caught.value.args == (16,)


def test_a_process_that_has_left_the_job_continues(networks: list[Network]) -> None:
    left = SocketCommunicator(networks[1], 1)
    left.leave_job()
    networks[1].make_progress()
    assert not left.has_been_aborted()
    networks[0].abort()
    networks[1].make_progress()
    assert left.has_been_aborted()


@pytest.mark.parametrize("has_left", [False, True])
def test_an_aborted_process_forwards_the_message_before_its_end(
    networks: list[Network], has_left: bool
) -> None:
    """Otherwise the third process could report that it lost the connection to the second one."""
    if has_left:
        SocketCommunicator(networks[1], 1).leave_job()
    networks[0].connections[1].abort()  # The message to process 2 is late.
    if has_left:
        networks[1].make_progress()
    else:
        with pytest.raises(ExitError):
            networks[1].make_progress()
    networks[1].connections[2].stream.close()
    with pytest.raises(ExitError):
        networks[2].make_progress()
    assert not networks[2].lost


def test_a_wait_for_a_killed_process_ends_before_the_next_check_of_the_status(
    networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun ends the processes that wait within 0.1 s, so that a later message is lost."""

    def check_status(*_: object) -> str:
        raise AssertionError("the next check of the status")

    def end_job(_: object, message: str, code: int) -> None:
        raise ExitError(message, code)

    monkeypatch.setattr(MessageChannel, "_check_status", check_status)
    monkeypatch.setattr(messages, "end_job", end_job)
    channel = MessageChannel(SocketCommunicator(networks[0], 0), ["a", "b", "c"], 300, False)
    posted = channel.post(1, {}, {1: np.zeros(1)}, lambda: ExecutionPoint("all-reduce %y of f"))
    for each in networks[1].connections.values():
        each.stream.close()
    with pytest.raises(ExitError) as caught:
        channel.wait(posted)
    assert caught.value.args == (
        "shardir: process 0 (a): all-reduce %y of f cannot finish: process 1 (b) was killed, or "
        "the connection was lost",
        13,
    )
