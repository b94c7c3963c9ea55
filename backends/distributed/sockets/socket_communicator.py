"""Messages through sockets: one connection to each other process."""

import os
import pickle
import select
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from threading import RLock
from typing import NoReturn

from shardir.backends.base import Array
from shardir.backends.distributed.communicator import (
    ABORTED_EXIT_CODE,
    Communicator,
    Request,
)
from shardir.backends.distributed.sockets.connection import Connection, Transfer
from shardir.errors import DistributedError

MAX_TAG = 1 << 31
ALLGATHER_TAG = 3
"""The tag of `allgather`; only its calls use it while no other message is sent."""
JOIN_POLL_SECONDS = 1e-3


class SocketRequest(Request):
    """A message in flight."""

    def __init__(self, network: "Network", transfer: Transfer) -> None:
        self.network, self.transfer = network, transfer

    def has_completed(self) -> bool:
        if not self.transfer.done:
            self.network.make_progress()
        return self.transfer.done


class Network:
    """The connections of this process to all others, which several communicators share."""

    def __init__(self, connections: Mapping[int, Connection]) -> None:
        self.connections = dict(connections)
        self.lost: set[int] = set()
        self.has_left_job = False
        """True if this process goes on when another one ends the job."""
        self.is_aborted = False
        """True if another process has ended the job."""
        self.lock = RLock()
        self.channels = count()
        self._events = {process: select.POLLIN for process in self.connections}
        self._poll = select.poll()
        self._by_descriptor = {}
        for process, each in self.connections.items():
            self._by_descriptor[each.stream.fileno()] = process
            self._poll.register(each.stream, select.POLLIN)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._close)

    def make_progress(self) -> None:
        """Send and receive what is possible without waiting; exit if another process has ended
        the job, unless this process has left it."""
        with self.lock:
            for descriptor, event in self._poll.poll(0):
                process = self._by_descriptor[descriptor]
                connection = self.connections[process]
                if event & select.POLLOUT:
                    connection.write()
                if event & ~select.POLLOUT:
                    connection.read()
                if connection.is_aborted and not self.is_aborted:
                    self.is_aborted = True
                    # A third process may detect the end of this one before the message of the
                    # other arrives there, and would report a lost connection.
                    self.abort()
                    if not self.has_left_job:
                        _exit(ABORTED_EXIT_CODE)
                if connection.is_lost:
                    self.lost.add(process)
                    self._poll.unregister(connection.stream)
                else:
                    self.select_events(process)

    def select_events(self, process: int) -> None:
        """Wait for the socket of a process to accept bytes only while there are bytes to send."""
        connection = self.connections[process]
        events = select.POLLIN | (select.POLLOUT if connection.has_outgoing else 0)
        if events != self._events[process] and process not in self.lost:
            self._events[process] = events
            self._poll.modify(connection.stream, events)

    def wait(self, seconds: float) -> None:
        """Return when a socket is ready, or after `seconds`."""
        with self.lock:
            open_processes = self.connections.keys() - self.lost
            events = {self.connections[p].stream: self._events[p] for p in open_processes}
        if not events:
            time.sleep(seconds)
            return
        # Several threads may wait, and a poll object serves one thread at a time.
        poll = select.poll()
        for stream, event in events.items():
            poll.register(stream, event)
        poll.poll(max(1, round(1e3 * seconds)))

    def abort(self) -> None:
        """Send all other processes the message that ends the job."""
        # Another thread that holds the lock may never release it.
        acquired = self.lock.acquire(timeout=1)
        for process, each in self.connections.items():
            if process not in self.lost:
                each.abort()
        if acquired:
            self.lock.release()

    def _close(self) -> None:
        """Close the sockets in a forked child, so that the end of this process is visible."""
        for each in self.connections.values():
            with suppress(OSError):
                each.stream.close()


class SocketCommunicator(Communicator):
    """The processes of a job, connected by sockets."""

    max_tag = MAX_TAG
    is_thread_safe = True
    heartbeat_seconds = 1.0

    def __init__(self, network: Network, rank: int) -> None:
        self.rank, self.size = rank, len(network.connections) + 1
        self._network, self._channel = network, next(network.channels)

    def duplicate(self) -> "SocketCommunicator":
        return SocketCommunicator(self._network, self.rank)

    def send(self, buffers: Sequence[Array], target: int, tag: int) -> SocketRequest:
        return self._send(buffers, target, tag)

    def _send(self, buffers: Sequence[Array | bytes], target: int, tag: int) -> SocketRequest:
        network = self._network
        with network.lock:
            transfer = network.connections[target].send((self._channel, tag), buffers)
            network.select_events(target)
        return SocketRequest(network, transfer)

    def receive(self, buffers: Sequence[Array], source: int, tag: int) -> SocketRequest:
        network = self._network
        with network.lock:
            transfer = network.connections[source].receive((self._channel, tag), buffers)
        return SocketRequest(network, transfer)

    def have_completed(self, requests: Sequence[Request]) -> bool:
        mine = [each for each in requests if isinstance(each, SocketRequest)]
        if all(each.transfer.done for each in mine):
            return True
        self._network.make_progress()
        return all(each.transfer.done for each in mine)

    def send_object(self, value: object, target: int, tag: int) -> SocketRequest:
        return self._send([pickle.dumps(value)], target, tag)

    def receive_object(self, tag: int) -> object | None:
        network = self._network
        network.make_progress()
        with network.lock:
            for each in network.connections.values():
                if (message := each.take((self._channel, tag))) is not None:
                    value: object = pickle.loads(message)
                    return value
        return None

    def allgather(self, value: object) -> list[object]:
        others = [process for process in range(self.size) if process != self.rank]
        values = {self.rank: value}
        for process in others:
            self.send_object(value, process, ALLGATHER_TAG)
        while len(values) < self.size:
            self._network.make_progress()
            with self._network.lock:
                for process in others:
                    if process not in values:
                        message = self._network.connections[process].take(
                            (self._channel, ALLGATHER_TAG)
                        )
                        if message is not None:
                            values[process] = pickle.loads(message)
            if lost := sorted(self._network.lost - values.keys()):
                raise DistributedError(f"process {lost[0]} ended before all processes had joined")
            self.pause(JOIN_POLL_SECONDS)
        return [values[process] for process in range(self.size)]

    def lost_processes(self) -> frozenset[int]:
        return frozenset(self._network.lost)

    def pause(self, seconds: float) -> None:
        self._network.wait(seconds)

    def leave_job(self) -> None:
        self._network.has_left_job = True

    def has_been_aborted(self) -> bool:
        return self._network.is_aborted

    def abort(self, code: int) -> NoReturn:
        self._network.abort()
        os._exit(code)


def _exit(code: int) -> NoReturn:
    """End this process because another one has printed an error and ends the job."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
