"""The end of a job that another process aborts."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from shardir.backends.distributed.sockets import socket_communicator
from shardir.backends.distributed.sockets.connection import Connection
from shardir.backends.distributed.sockets.socket_communicator import Network, SocketCommunicator


class ExitError(Exception):
    """The end of a process; the argument is its exit code."""


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
