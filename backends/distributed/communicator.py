"""The interface through which processes of a job exchange messages.

It has the point-to-point operations of MPI that the runtime uses. Messages between two processes
with the same tag arrive in the order in which they were sent.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NoReturn

from shardir.backends.base import Array

ABORTED_EXIT_CODE = 16
"""The exit code of a process that another one has ended, as far as its communicator sets it."""
LOST_PROCESS_EXIT_CODE = 13
"""The exit code of a process that ends the job because it waits for another one in vain."""


class Request(ABC):
    """A message that is being sent or received."""

    @abstractmethod
    def has_completed(self) -> bool:
        """Return whether the message has been sent or received, after making progress."""


class Communicator(ABC):
    """The processes of a job; `rank` is this one."""

    rank: int
    size: int
    max_tag: int
    """Tags are smaller than this number."""
    is_thread_safe: bool
    """True if several threads may call the methods at the same time."""
    heartbeat_seconds: float
    """Interval at which a thread makes progress, at most, in a process that computes for long."""

    @abstractmethod
    def duplicate(self) -> "Communicator":
        """Return a communicator of the same processes with messages of its own.

        All processes call it in the same order.
        """

    @abstractmethod
    def send(self, buffers: Sequence[Array], target: int, tag: int) -> Request:
        """Start to send contiguous arrays as one message; they must not change until it is sent."""

    @abstractmethod
    def receive(self, buffers: Sequence[Array], source: int, tag: int) -> Request:
        """Start to receive one message into contiguous arrays, which have its size together."""

    @abstractmethod
    def have_completed(self, requests: Sequence[Request]) -> bool:
        """Return whether all messages have been sent or received, after making progress."""

    @abstractmethod
    def send_object(self, value: object, target: int, tag: int) -> Request:
        """Start to send an object that can be pickled."""

    @abstractmethod
    def receive_object(self, tag: int) -> object | None:
        """Return an object that has arrived from any process; None if none has arrived."""

    @abstractmethod
    def allgather(self, value: object) -> list[object]:
        """Return the object of each process; every process calls it."""

    @abstractmethod
    def lost_processes(self) -> frozenset[int]:
        """Return the processes whose connections have ended; empty where they are not visible."""

    @abstractmethod
    def pause(self, seconds: float) -> None:
        """Sleep for at most `seconds`, or until messages can make progress."""

    @abstractmethod
    def leave_job(self) -> None:
        """Let this process keep its own exit code if another one ends the job from now on."""

    @abstractmethod
    def has_been_aborted(self) -> bool:
        """Return whether another process has ended the job since `leave_job`."""

    @abstractmethod
    def abort(self, code: int) -> NoReturn:
        """End all processes of the job with an exit code."""
