"""A connection to one process: messages with tags over a nonblocking stream socket.

A message is a header and its bytes. Sending is eager: the sender does not wait for the receiver,
and the receiver keeps a message that it has not requested yet.
"""

import select
import socket
import struct
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from shardir.backends.base import Array
from shardir.errors import DistributedError, count_noun

HEADER = struct.Struct("<IIQ")
"""The communicator, the tag and the number of bytes of a message."""
ABORT_CHANNEL = 0xFFFFFFFF
"""The communicator of the message that ends the job."""
BUFFER_BYTES = 4 << 20
"""Bytes that a Unix socket may hold, at most; the system may set a smaller limit."""
ABORT_SECONDS = 1.0
"""Time in which the message that ends the job must be sent."""

Key = tuple[int, int]
"""A communicator and a tag."""


class Transfer:
    """A message that is being sent or received: the parts that are left."""

    def __init__(self, buffers: Sequence[Array | bytes]) -> None:
        # Parts without bytes would look like the end of the stream.
        self.parts = deque(view for each in buffers if (view := _bytes_view(each)).nbytes)
        self.nbytes = sum(part.nbytes for part in self.parts)
        self.done = False

    def advance(self, nbytes: int) -> None:
        """Remove the next `nbytes`; they have been sent or received."""
        while nbytes:
            part = self.parts.popleft()
            if nbytes < part.nbytes:
                self.parts.appendleft(part[nbytes:])
                return
            nbytes -= part.nbytes


class Connection:
    """The connection to one process. The caller holds a lock around every call."""

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        if stream.family == getattr(socket, "AF_UNIX", None):
            # TCP chooses the size itself. Each time that a buffer is full costs two switches.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        else:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.stream = stream
        self.is_aborted = False
        """True if the other process has ended the job."""
        self.is_lost = False
        self._outgoing: deque[Transfer] = deque()
        self._posted: defaultdict[Key, deque[Transfer]] = defaultdict(deque)
        self._arrived: defaultdict[Key, deque[bytearray]] = defaultdict(deque)
        self._header = bytearray(HEADER.size)
        self._incoming = Transfer([self._header_array()])
        self._key: Key | None = None
        self._unexpected: bytearray | None = None

    def send(self, key: Key, buffers: Sequence[Array | bytes]) -> Transfer:
        """Start to send a message."""
        transfer = Transfer(buffers)
        transfer.parts.appendleft(memoryview(HEADER.pack(*key, transfer.nbytes)))
        self._outgoing.append(transfer)
        self.write()
        return transfer

    def receive(self, key: Key, buffers: Sequence[Array]) -> Transfer:
        """Start to receive a message, which may have arrived already."""
        transfer = Transfer(buffers)
        if arrived := self._arrived.get(key):
            _deliver(arrived.popleft(), transfer, key)
            if not arrived:
                del self._arrived[key]
        else:
            self._posted[key].append(transfer)
        return transfer

    def take(self, key: Key) -> bytes | None:
        """Return a message that has arrived without a request; None if there is none."""
        arrived = self._arrived.get(key)
        return bytes(arrived.popleft()) if arrived else None

    @property
    def has_outgoing(self) -> bool:
        return bool(self._outgoing)

    def write(self) -> None:
        """Send as much as the socket accepts."""
        try:
            while self._outgoing:
                transfer = self._outgoing[0]
                transfer.advance(self.stream.sendmsg(transfer.parts))
                if not transfer.parts:
                    transfer.done = True
                    self._outgoing.popleft()
        except BlockingIOError:
            return
        except OSError:
            # Messages of the other process may still be readable; `read` finds the end.
            self._outgoing.clear()

    def read(self) -> None:
        """Receive as much as has arrived."""
        try:
            while True:
                parts = self._incoming.parts
                count = self.stream.recvmsg_into(parts)[0]
                if not count:
                    self.is_lost = True
                    return
                self._incoming.advance(count)
                while not self._incoming.parts:  # A message may have no bytes.
                    self._finish_part()
        except BlockingIOError:
            return
        except OSError:
            self.is_lost = True

    def _finish_part(self) -> None:
        """Continue after a header or the bytes of a message."""
        if self._key is None:
            channel, tag, nbytes = HEADER.unpack(self._header)
            if channel == ABORT_CHANNEL:
                self.is_aborted = True
            self._key = (channel, tag)
            self._incoming = self._next_transfer(self._key, nbytes)
            return
        if self._unexpected is None:
            self._incoming.done = True
        elif self._posted.get(self._key):  # It was requested while it arrived.
            _deliver(self._unexpected, self._next_posted(self._key), self._key)
        else:
            self._arrived[self._key].append(self._unexpected)
        self._key, self._unexpected = None, None
        self._incoming = Transfer([self._header_array()])

    def _next_transfer(self, key: Key, nbytes: int) -> Transfer:
        """Return where the bytes of a message go."""
        if self._posted.get(key):
            transfer = self._next_posted(key)
            _check_size(nbytes, transfer, key)
            return transfer
        self._unexpected = bytearray(nbytes)
        return Transfer([np.frombuffer(self._unexpected, np.uint8)])

    def _next_posted(self, key: Key) -> Transfer:
        """Return and remove the oldest request for a message."""
        posted = self._posted[key]
        transfer = posted.popleft()
        if not posted:
            del self._posted[key]
        return transfer

    def _header_array(self) -> Array:
        return np.frombuffer(self._header, np.uint8)

    def abort(self) -> None:
        """Send the message that ends the job, after the message that is partly sent."""
        end = time.monotonic() + ABORT_SECONDS
        kept = list(self._outgoing)[:1]
        self._outgoing = deque(kept)
        with suppress(OSError):
            self.send((ABORT_CHANNEL, 0), [])
            while self._outgoing and time.monotonic() < end:
                poll = select.poll()  # `select` accepts only small file descriptors.
                poll.register(self.stream, select.POLLOUT)
                poll.poll(1e3 * ABORT_SECONDS)
                self.write()


def _bytes_view(buffer: Array | bytes) -> memoryview:
    if isinstance(buffer, bytes):
        return memoryview(buffer)
    return buffer.reshape(-1).view(np.uint8).data


def _deliver(message: bytearray, transfer: Transfer, key: Key) -> None:
    """Copy a message that has arrived into the buffers of a request."""
    _check_size(len(message), transfer, key)
    start = 0
    for part in transfer.parts:
        part[:] = message[start : start + part.nbytes]
        start += part.nbytes
    transfer.done = True


def _check_size(nbytes: int, transfer: Transfer, key: Key) -> None:
    if nbytes != transfer.nbytes:
        raise DistributedError(
            f"a message with tag {key[1]} has {count_noun(nbytes, 'byte')}, and the receiver "
            f"expects {transfer.nbytes}; all processes must run the same programs in the same order"
        )
