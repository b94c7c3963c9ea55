"""Transports of values between the rows of a pipeline."""

from collections.abc import Sequence
from typing import Protocol

from shardir.backends.base import Storage
from shardir.passes.pipeline_parallelism.actions import Action


class Transport(Protocol):
    """Sends are buffered: a send never waits for its receive."""

    def send(self, send: Action, values: Sequence[Storage]) -> None:
        """Send the values of a send."""

    def receive(self, send: Action) -> Sequence[Storage] | None:
        """Return the values of a send once; `None` if they have not arrived."""


class LocalTransport:
    """The transport between rows in one process; values are not copied."""

    def __init__(self) -> None:
        self._messages: dict[Action, Sequence[Storage]] = {}

    def send(self, send: Action, values: Sequence[Storage]) -> None:
        """Keep the values until they are received."""
        self._messages[send] = values

    def receive(self, send: Action) -> Sequence[Storage] | None:
        """Return the values of a send once; `None` if they have not been sent."""
        return self._messages.pop(send, None)
