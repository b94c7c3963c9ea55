"""Processes find each other: here threads of one process that join through the loopback address."""

import os
import resource
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from shardir.backends.distributed.sockets.rendezvous import JobAddress, _is_loopback, join
from shardir.backends.distributed.sockets.socket_communicator import SocketCommunicator
from shardir.errors import DistributedError
from shardir.frontend.cli.process_launcher import find_free_port

RENDEZVOUS = "shardir.backends.distributed.sockets.rendezvous"
HOST = "127.0.0.1"
PATIENCE_SECONDS = 60
IMPATIENCE_SECONDS = 1
MANY_FILES = 1100
"""More files than `select` admits."""


def join_all(addresses: list[JobAddress], seconds: float) -> list[SocketCommunicator | str]:
    """Join in one thread for each address; return the communicators or the texts of errors."""

    def attempt(address: JobAddress) -> SocketCommunicator | str:
        try:
            return join(address, seconds)
        except DistributedError as error:
            return str(error)

    with ThreadPoolExecutor(len(addresses)) as threads:
        return list(threads.map(attempt, addresses))


def run_all(joined: list[SocketCommunicator | str], call: Callable[..., object]) -> list[object]:
    with ThreadPoolExecutor(len(joined)) as threads:
        return list(threads.map(call, joined))


def test_processes_join_and_gather() -> None:
    port = find_free_port()
    joined = join_all([JobAddress(HOST, port, "t", 3, rank) for rank in range(3)], PATIENCE_SECONDS)
    values = run_all(joined, lambda comm: comm.allgather({"rank": comm.rank}))
    assert values == [[{"rank": rank} for rank in range(3)]] * 3


def test_a_lost_process_is_reported() -> None:
    port = find_free_port()
    joined = join_all([JobAddress(HOST, port, "t", 2, rank) for rank in range(2)], PATIENCE_SECONDS)
    first, second = joined
    assert isinstance(first, SocketCommunicator)
    assert isinstance(second, SocketCommunicator)
    assert first.lost_processes() == frozenset()
    second._network._close()
    end = time.monotonic() + PATIENCE_SECONDS
    while not first.lost_processes() and time.monotonic() < end:
        first.receive_object(1)
    assert first.lost_processes() == {1}
    with pytest.raises(DistributedError) as caught:
        first.allgather(0)
    assert str(caught.value) == "process 1 ended before all processes had joined"


def test_a_process_with_another_token_does_not_join() -> None:
    port = find_free_port()
    addresses = [JobAddress(HOST, port, "t", 2, 0), JobAddress(HOST, port, "other", 2, 1)]
    first, second = join_all(addresses, IMPATIENCE_SECONDS)
    assert first == (
        "distributed.initialize() timed out, waiting for process 1; every process of the job must "
        "call it; if they need longer until then, set SHARDIR_COMM_TIMEOUT to more seconds"
    )
    assert second == (
        f"process 1 waits for process 0 at {HOST}:{port}, which ended or did not answer before all "
        "processes had joined; every process must call distributed.initialize()"
    )


def test_other_programs_do_not_delay_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{RENDEZVOUS}.HELLO_SECONDS", 3600)
    port = find_free_port()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(join, JobAddress(HOST, port, "t", 2, 0), PATIENCE_SECONDS)
        with ExitStack() as others:
            for text in (
                b"",
                b"{",
                b"GET / HTTP/1.1\r\n\r\n",
                b"[" * 4000 + b"\n",
                b'{"rank": 1}\n',
            ):
                others.enter_context(connect_when_possible(port)).sendall(text)
            second = join(JobAddress(HOST, port, "t", 2, 1), PATIENCE_SECONDS)
            assert (first.result().size, second.size) == (2, 2)


def connect_when_possible(port: int) -> socket.socket:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return socket.create_connection((HOST, port))
        except ConnectionRefusedError:
            assert time.monotonic() < end
            time.sleep(0.01)


def test_processes_with_many_open_files_join() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit < MANY_FILES + 100:
        pytest.skip("the limit of open files is low")
    with ExitStack() as files:
        for _ in range(MANY_FILES):
            files.enter_context(open(os.devnull, "rb"))
        test_processes_join_and_gather()


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("localhost", True),
        ("127.0.1.1", True),
        ("::ffff:127.0.0.1", True),
        ("::1", True),
        ("10.0.0.1", False),
        ("host0", False),
    ],
)
def test_loopback_addresses(host: str, is_loopback: bool) -> None:
    assert _is_loopback(host) is is_loopback


@pytest.mark.parametrize(
    ("size", "rank", "message"),
    [
        (3, 1, "two processes have process_id=1; each process must have its own"),
        (
            2, 2,
            "process 0 has num_processes=3, and process 2 has num_processes=2; all processes must "
            "have the same number",
        ),
        (3, 7, "process_id is 7; it must be from 0 to 2"),
    ],
)  # fmt: skip
def test_processes_that_contradict_each_other_do_not_join(
    size: int, rank: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{RENDEZVOUS}.REFUSAL_SECONDS", PATIENCE_SECONDS)
    port = find_free_port()
    addresses = [JobAddress(HOST, port, "t", 3, each) for each in range(2)]
    addresses.append(JobAddress(HOST, port, "t", size, rank))
    assert join_all(addresses, PATIENCE_SECONDS) == [message] * 3


CONTRADICTION = "process_id is 7; it must be from 0 to 2"


def test_a_process_that_reports_after_a_contradiction_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{RENDEZVOUS}.REFUSAL_SECONDS", PATIENCE_SECONDS)
    port = find_free_port()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(join_all, [JobAddress(HOST, port, "t", 3, 0)], PATIENCE_SECONDS)
        for rank in (7, 1):
            texts = join_all([JobAddress(HOST, port, "t", 3, rank)], PATIENCE_SECONDS)
            assert texts == [CONTRADICTION]
        assert first.result() == [CONTRADICTION]


def test_a_contradiction_ends_the_wait_for_processes_that_do_not_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{RENDEZVOUS}.REFUSAL_SECONDS", 0.1)
    port = find_free_port()
    addresses = [JobAddress(HOST, port, "t", 3, rank) for rank in (0, 7)]
    assert join_all(addresses, PATIENCE_SECONDS) == [CONTRADICTION] * 2


def test_a_port_in_use_is_an_error() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        (text,) = join_all([JobAddress(HOST, port, "t", 2, 0)], IMPATIENCE_SECONDS)
    assert isinstance(text, str)
    assert text.startswith(f"process 0 cannot listen at {HOST}:{port}: ")
    assert text.endswith("; choose another port of this host as the coordinator address")


def test_an_unreachable_coordinator_is_an_error() -> None:
    port = find_free_port()
    (text,) = join_all([JobAddress(HOST, port, "t", 2, 1)], IMPATIENCE_SECONDS)
    assert isinstance(text, str)
    assert text.startswith(f"process 1 cannot reach process 0 at {HOST}:{port}: ")
    assert text.endswith("; check the coordinator address, and that process 0 has started")
