"""Rendezvous: the processes of a job exchange their addresses and connect.

Process 0 listens at the address of the coordinator, which all processes receive. Every process
opens a listener of its own, reports it to process 0, and receives the listeners of all. Then each
process connects to those of lower rank. A token, which the launcher gives to every process, keeps
other programs out.
"""

import contextlib
import hmac
import json
import os
import selectors
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from ipaddress import ip_address
from pathlib import Path

from shardir.backends.distributed.sockets.connection import Connection
from shardir.backends.distributed.sockets.socket_communicator import Network, SocketCommunicator
from shardir.errors import DistributedError, os_error_reason

RETRY_SECONDS = 0.05
"""Interval between attempts to connect to process 0, which may start later."""
HELLO_SECONDS = 5.0
"""Time in which a new connection must send its token."""
REFUSAL_SECONDS = 2.0
"""Time in which process 0 refuses the processes that report after it has found a contradiction."""
MAX_LINE_BYTES = 1 << 12
"""Limit of a line of JSON, against programs that are no part of the job."""


@dataclass(frozen=True)
class JobAddress:
    """The rendezvous of the processes of a job: the address of the coordinator, which is process 0,
    the secret that they share, their number, and the rank of this process."""

    host: str
    port: int
    token: str
    size: int
    rank: int


@dataclass(frozen=True)
class ListenerAddress:
    """The address at which a process accepts connections: the path of a Unix socket, which other
    hosts do not see, and a TCP port."""

    rank: int
    host: str
    port: int
    path: str
    host_id: str


def join(
    address: JobAddress, seconds: float, publish: Callable[[int], None] | None = None
) -> SocketCommunicator:
    """Connect this process to all others of a job; return when all have joined.

    Process 0 calls `publish` with its port once it listens there; a port of 0 is any free port.
    Raises `DistributedError` after `seconds`, or if a rank is used twice.
    """
    end = time.monotonic() + seconds
    try:
        with _Listener(address.host) as listener:
            own = listener.address(address.rank)
            if address.rank == 0:
                addresses = _collect_addresses(address, own, end, publish)
            else:
                addresses = _report_address(address, own, end)
            streams = dict(_connect_to_lower_ranks(address, addresses, end))
            streams |= listener.accept(address, end)
    except OSError as error:
        raise DistributedError(
            f"process {address.rank} cannot open its sockets: {os_error_reason(error)}"
        ) from error
    network = Network({rank: Connection(streams[rank]) for rank in sorted(streams)})
    return SocketCommunicator(network, address.rank)


class _Listener:
    """The sockets at which this process accepts connections of others."""

    def __init__(self, coordinator: str) -> None:
        self._tcp = _listen(coordinator, 0)
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(self._tcp)
        self._sockets = [self._tcp]
        self._path = ""
        if hasattr(socket, "AF_UNIX"):
            with suppress(OSError):  # The folder may not admit sockets; TCP serves too.
                self._listen_on_host()

    def _listen_on_host(self) -> None:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="shardir-"))
        path = str(Path(folder) / "socket")
        unix = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        unix.bind(path)
        unix.listen(socket.SOMAXCONN)
        self._sockets.append(unix)
        self._path = path

    def __enter__(self) -> "_Listener":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def address(self, rank: int) -> ListenerAddress:
        return ListenerAddress(rank, "", self._tcp.getsockname()[1], self._path, _host_id())

    def accept(self, address: JobAddress, end: float) -> dict[int, socket.socket]:
        """Accept the connections of all higher ranks."""
        expected = set(range(address.rank + 1, address.size))
        streams: dict[int, socket.socket] = {}
        with _Reception(self._sockets, address.token) as reception:
            while missing := expected - streams.keys():
                if (received := reception.next_hello(end)) is None:
                    raise _timeout_error(missing)
                stream, hello = received
                rank = hello.get("rank")
                if isinstance(rank, int) and rank in missing:
                    streams[rank] = stream
                else:
                    stream.close()
        return streams


def _collect_addresses(
    address: JobAddress,
    own: ListenerAddress,
    end: float,
    publish: Callable[[int], None] | None,
) -> dict[int, ListenerAddress]:
    """Return the listeners of all processes, after sending them to all; for process 0."""
    addresses = {0: own}
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(_listen(address.host, address.port))
        except OSError as error:
            raise DistributedError(
                f"process 0 cannot listen at {address.host}:{address.port}: {error.strerror}; "
                "choose another port of this host as the coordinator address"
            ) from error
        if publish is not None:
            publish(server.getsockname()[1])
        reception = stack.enter_context(_Reception([server], address.token))
        streams: list[socket.socket] = []
        while missing := set(range(address.size)) - addresses.keys():
            if (received := reception.next_hello(end)) is None:
                raise _timeout_error(missing)
            stream, hello = received
            streams.append(stack.enter_context(stream))
            if error_text := _rank_error(hello, address, addresses):
                _refuse_processes(reception, streams, address.size - 1, error_text, end)
                raise DistributedError(error_text)
            try:
                addresses[int(str(hello["rank"]))] = ListenerAddress(
                    int(str(hello["rank"])), str(stream.getpeername()[0]),
                    int(str(hello["port"])), str(hello["path"]), str(hello["host_id"]),
                )  # fmt: skip
            except (KeyError, ValueError, OSError):  # It is another program, or has ended.
                streams.remove(stream)
                stream.close()
        table = {"listeners": [asdict(each) for each in addresses.values()]}
        for stream in streams:
            _send_line(stream, table)
    return addresses


def _refuse_processes(
    reception: "_Reception",
    streams: Sequence[socket.socket],
    count: int,
    error_text: str,
    end: float,
) -> None:
    """Send an error to the processes that have reported, and to those that report soon, up to
    `count`.

    A process that finds no listener at the address of the coordinator retries until its time limit,
    since process 0 may start later.
    """
    for stream in streams:
        _send_line(stream, {"error": error_text})
    end = min(end, time.monotonic() + REFUSAL_SECONDS)
    for _ in range(count - len(streams)):
        if (received := reception.next_hello(end)) is None:
            return
        with received[0] as stream:
            _send_line(stream, {"error": error_text})


def _timeout_error(missing: set[int]) -> DistributedError:
    names = ", ".join(map(str, sorted(missing)[:8])) + (", ..." if len(missing) > 8 else "")
    word = "process" if len(missing) == 1 else "processes"
    return DistributedError(
        f"distributed.initialize() timed out, waiting for {word} {names}; every process of "
        "the job must call it; if they need longer until then, set SHARDIR_COMM_TIMEOUT to "
        "more seconds"
    )


def _rank_error(
    hello: Mapping[str, object], address: JobAddress, known: Mapping[int, object]
) -> str:
    """Return why a process cannot join; empty if it can."""
    rank, size = hello.get("rank"), hello.get("size")
    if size != address.size:
        return (
            f"process 0 has num_processes={address.size}, and process {rank} has "
            f"num_processes={size}; all processes must have the same number"
        )
    if not isinstance(rank, int) or not 0 <= rank < address.size:
        return f"process_id is {rank!r}; it must be from 0 to {address.size - 1}"
    if rank in known:
        return f"two processes have process_id={rank}; each process must have its own"
    return ""


def _report_address(
    address: JobAddress, own: ListenerAddress, end: float
) -> dict[int, ListenerAddress]:
    """Send the listener of this process to process 0, and return those of all processes."""
    with _connect_with_retry(address, end) as stream:
        _send_line(stream, {"token": address.token, "size": address.size, **asdict(own)})
        table = _read_line(stream, end)
    if table is None:
        raise DistributedError(
            f"process {address.rank} waits for process 0 at {address.host}:{address.port}, which "
            "ended or did not answer before all processes had joined; "
            "every process must call distributed.initialize()"
        )
    if "error" in table:
        raise DistributedError(str(table["error"]))
    listeners = table["listeners"]
    assert isinstance(listeners, list)
    addresses = {each["rank"]: ListenerAddress(**each) for each in listeners}
    # Process 0 has no information about the name under which others reach its host.
    return {
        rank: replace(each, host=address.host) if not rank or _is_loopback(each.host) else each
        for rank, each in addresses.items()
    }


def _connect_with_retry(address: JobAddress, end: float) -> socket.socket:
    while True:
        try:
            stream = socket.create_connection(
                (address.host, address.port), max(0.001, end - time.monotonic())
            )
            # While no process listens at a port of this host, TCP may connect it to itself.
            if stream.getsockname() != stream.getpeername():
                return stream
            stream.close()
        except (OSError, UnicodeError) as error:
            if time.monotonic() >= end:
                raise DistributedError(
                    f"process {address.rank} cannot reach process 0 at "
                    f"{address.host}:{address.port}: {os_error_reason(error)}; "
                    "check the coordinator address, and that process 0 has started"
                ) from error
            time.sleep(RETRY_SECONDS)


def _connect_to_lower_ranks(
    address: JobAddress, addresses: Mapping[int, ListenerAddress], end: float
) -> Iterator[tuple[int, socket.socket]]:
    mine = addresses[address.rank].host_id
    for rank in range(address.rank):
        stream = _connect(addresses[rank], addresses[rank].host_id == mine, end)
        _send_line(stream, {"token": address.token, "rank": address.rank})
        yield rank, stream


def _connect(listener: ListenerAddress, is_same_host: bool, end: float) -> socket.socket:
    """Connect to a process: by a Unix socket on the same host, otherwise by TCP."""
    if is_same_host and listener.path:
        unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            unix.connect(listener.path)
        except OSError:
            unix.close()  # Containers of one host may not share folders.
        else:
            return unix
    try:
        return socket.create_connection(
            (listener.host, listener.port), max(0.001, end - time.monotonic())
        )
    except OSError as error:
        raise DistributedError(
            f"process {listener.rank} cannot be reached at {listener.host}:{listener.port}: "
            f"{os_error_reason(error)}; the hosts must accept connections at any port"
        ) from error


def _listen(coordinator: str, port: int) -> socket.socket:
    """Return a socket that listens on this host: at the loopback address of the coordinator, or
    else at all addresses.

    A host may resolve its own name to a loopback address, which others cannot use.
    """
    if _is_loopback(coordinator):
        found = socket.getaddrinfo(coordinator, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(found[4][:2], family=found[0])
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    return socket.create_server(("", port), family=family, dualstack_ipv6=is_dual)


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost"
    # A socket for both versions of IP shows addresses of version 4 as mapped ones.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


class _Reception:
    """Accepts connections, and reads the first line of each; other programs do not delay them."""

    def __init__(self, servers: Sequence[socket.socket], token: str) -> None:
        self._token = token
        self._stack = contextlib.ExitStack()
        self._selector = self._stack.enter_context(selectors.DefaultSelector())
        self._lines: dict[socket.socket, bytearray] = {}
        self._ends: dict[socket.socket, float] = {}
        for server in servers:
            server.setblocking(False)
            self._selector.register(server, selectors.EVENT_READ)

    def __enter__(self) -> "_Reception":
        return self

    def __exit__(self, *error: object) -> None:
        for stream in list(self._lines):
            self._remove(stream).close()
        self._stack.close()

    def next_hello(self, end: float) -> tuple[socket.socket, dict[str, object]] | None:
        """Return the next connection of the job and its line; None after the time limit."""
        while (now := time.monotonic()) < end:
            for stream in [each for each, limit in self._ends.items() if limit < now]:
                self._remove(stream).close()
            for key, _ in self._selector.select(min([end, *self._ends.values()]) - now):
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source not in self._lines:
                    self._accept(source)
                elif (hello := self._read(source)) is not None:
                    return source, hello
        return None

    def _accept(self, server: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionError):  # The other program may have ended.
            stream = server.accept()[0]
            stream.setblocking(False)
            self._lines[stream] = bytearray()
            self._ends[stream] = time.monotonic() + HELLO_SECONDS
            self._selector.register(stream, selectors.EVENT_READ)

    def _read(self, stream: socket.socket) -> dict[str, object] | None:
        """Read what has arrived; return the line if it is complete and has the token."""
        line = self._lines[stream]
        try:
            while not line.endswith(b"\n"):
                part = stream.recv(1)  # Messages follow the line.
                if not part or len(line) == MAX_LINE_BYTES:
                    self._remove(stream).close()
                    return None
                line += part
        except BlockingIOError:
            return None
        except OSError:
            self._remove(stream).close()
            return None
        self._remove(stream)
        hello = _parse_line(line) or {}
        token = str(hello.pop("token", None))
        if hmac.compare_digest(token.encode(), self._token.encode()):
            return hello
        stream.close()
        return None

    def _remove(self, stream: socket.socket) -> socket.socket:
        self._selector.unregister(stream)
        del self._lines[stream], self._ends[stream]
        return stream


def _send_line(stream: socket.socket, value: Mapping[str, object]) -> None:
    with suppress(OSError):
        stream.settimeout(HELLO_SECONDS)
        stream.sendall(json.dumps(value).encode() + b"\n")


def _read_line(stream: socket.socket, end: float) -> dict[str, object] | None:
    """Return a line of JSON; None if the connection ends, the time is over, or it is no JSON."""
    line = bytearray()
    try:
        while not line.endswith(b"\n"):
            stream.settimeout(max(0.001, end - time.monotonic()))
            if not (part := stream.recv(MAX_LINE_BYTES)):
                return None
            line += part
    except OSError:
        return None
    return _parse_line(line)


def _parse_line(line: bytearray) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _host_id() -> str:
    """Return an identifier of this host and of the user; only this user can open the Unix
    socket."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
        return f"{boot} {os.getuid()}"
    return f"{socket.gethostname()} {os.getuid() if hasattr(os, 'getuid') else 0}"
