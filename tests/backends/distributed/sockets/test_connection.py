"""Messages over one connection: order, tags, sizes, and the end of the other process."""

import socket
from collections.abc import Iterator

import numpy as np
import pytest

from shardir.backends.distributed.sockets.connection import HEADER, Connection
from shardir.errors import DistributedError

LARGE = 1 << 20
"""Numbers of a message that no buffer of a socket holds."""


@pytest.fixture
def pair() -> Iterator[tuple[Connection, Connection]]:
    first, second = socket.socketpair()
    with first, second:
        yield Connection(first), Connection(second)


def test_messages_match_requests_by_tag(pair: tuple[Connection, Connection]) -> None:
    first, second = pair
    for tag in (1, 2, 1):
        first.send((0, tag), [np.full(3, 11 * tag, np.int32)])
    made = [np.zeros(3, np.int32) for _ in range(3)]
    later = second.receive((0, 2), [made[1]])  # It is requested before it has arrived.
    second.read()
    requests = [second.receive((0, 1), [made[0]]), second.receive((0, 1), [made[2]])]
    assert later.done
    assert all(each.done for each in requests)
    assert [list(each) for each in made] == [[11] * 3, [22] * 3, [11] * 3]


def test_equal_tags_of_two_communicators_are_two_messages(
    pair: tuple[Connection, Connection],
) -> None:
    first, second = pair
    first.send((0, 5), [b"zero"])
    first.send((1, 5), [b"one"])
    second.read()
    assert (second.take((1, 5)), second.take((0, 5)), second.take((0, 5))) == (
        b"one",
        b"zero",
        None,
    )


def test_two_arrays_travel_as_one_message(pair: tuple[Connection, Connection]) -> None:
    first, second = pair
    first.send((0, 1), [np.arange(2, dtype=np.uint8), np.arange(3, dtype=np.float64)])
    head, row = np.zeros(2, np.uint8), np.zeros(3)
    second.read()
    assert second.receive((0, 1), [head, row]).done
    assert (head.tolist(), row.tolist()) == ([0, 1], [0.0, 1.0, 2.0])


def test_a_message_may_have_no_bytes(pair: tuple[Connection, Connection]) -> None:
    first, second = pair
    assert first.send((0, 1), [np.zeros(0)]).done
    first.send((0, 2), [b"next"])
    second.read()
    assert second.receive((0, 1), [np.zeros(0)]).done
    assert second.take((0, 2)) == b"next"


@pytest.mark.parametrize("is_requested_first", [True, False])
def test_a_message_larger_than_the_buffers_of_the_socket_arrives(
    pair: tuple[Connection, Connection], is_requested_first: bool
) -> None:
    first, second = pair
    sent, made = np.arange(LARGE), np.zeros(LARGE, np.int64)
    if is_requested_first:
        received = second.receive((0, 1), [made])
    transfer = first.send((0, 1), [sent])
    assert not transfer.done
    second.read()
    if not is_requested_first:  # A part has arrived.
        received = second.receive((0, 1), [made])
    while not transfer.done or not received.done:
        first.write()
        second.read()
    assert np.array_equal(made, sent)


@pytest.mark.parametrize("is_requested_first", [True, False])
def test_a_message_of_another_size_is_an_error(
    pair: tuple[Connection, Connection], is_requested_first: bool
) -> None:
    first, second = pair
    first.send((0, 7), [np.zeros(4, np.uint8)])

    def receive() -> None:
        if is_requested_first:
            second.receive((0, 7), [np.zeros(3, np.uint8)])
        second.read()
        second.receive((0, 7), [np.zeros(3, np.uint8)])

    with pytest.raises(DistributedError) as caught:
        receive()
    assert str(caught.value) == (
        "a message with tag 7 has 4 bytes, and the receiver expects 3; all processes must run the "
        "same programs in the same order"
    )


def test_the_end_of_the_other_process_follows_its_messages(
    pair: tuple[Connection, Connection],
) -> None:
    first, second = pair
    first.send((0, 1), [b"last"])
    first.stream.close()
    second.read()
    assert second.is_lost
    assert second.take((0, 1)) == b"last"
    assert not second.send((0, 1), [b"too late"]).done


def test_an_abort_follows_the_message_that_is_partly_sent(
    pair: tuple[Connection, Connection],
) -> None:
    first, second = pair
    second.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    first.send((0, 1), [b"whole"])
    first.send((0, 2), [b"x" * HEADER.size])
    first.abort()
    second.read()
    assert second.is_aborted
    assert second.take((0, 1)) == b"whole"
