"""Transports of values between the rows of a pipeline."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from shardir.backends.base import PendingMessage, ProcessLink, Storage
from shardir.ir.types import TensorType
from shardir.passes.pipeline_parallelism.actions import Action
from shardir.passes.pipeline_parallelism.progress import matching_transfer


class Transport(ABC):
    """Sends are buffered: a send never waits for its receive."""

    @abstractmethod
    def send(self, send: Action, values: Sequence[Storage]) -> None:
        """Send the values of a send."""

    @abstractmethod
    def receive(self, send: Action) -> Sequence[Storage] | None:
        """Return the values of a send once; `None` if they have not arrived."""

    def expect(self, send: Action) -> None:
        """Prepare to receive the values of a send, before they are needed."""
        return

    def wait(self) -> bool:
        """Wait until a requested value arrives; return False if none can arrive."""
        return False

    def finish(self) -> None:
        """Wait until all values have been sent."""
        return


class LocalTransport(Transport):
    """The transport between rows in one process; values are not copied."""

    def __init__(self) -> None:
        self._messages: dict[Action, Sequence[Storage]] = {}

    def send(self, send: Action, values: Sequence[Storage]) -> None:
        self._messages[send] = values

    def receive(self, send: Action) -> Sequence[Storage] | None:
        return self._messages.pop(send, None)


class MessageTransport(Transport):
    """The transport between rows of several processes.

    A send starts a message and returns, and a receive is started before it is needed, so that the
    message proceeds while both rows compute. Messages of one transfer have the tag `tags[send]`;
    MPI delivers those of several runs in order.
    """

    def __init__(
        self,
        link: ProcessLink,
        index: int,
        process_of_stage: Mapping[int, int],
        tags: Mapping[Action, int],
        types: Mapping[Action, Sequence[TensorType]],
    ) -> None:
        self._link, self._index, self._process_of_stage = link, index, process_of_stage
        self._tags, self._types = tags, types
        self._local = LocalTransport()
        self._sending: list[PendingMessage] = []
        self._receiving: dict[Action, list[PendingMessage]] = {}
        self._awaited: list[Action] = []
        """The receives at which rows wait since the last call of `wait`."""

    def send(self, send: Action, values: Sequence[Storage]) -> None:
        receiver = self._process_of_stage[matching_transfer(send).stage]
        if receiver == self._index:
            self._local.send(send, values)
            return
        self._sending = [message for message in self._sending if not message.has_finished()]
        for value in values:
            row = value.array.reshape(-1).view(np.uint8)
            message = self._link.start_send(row, receiver, self._tags[send], describe(send))
            self._sending.append(message)

    def receive(self, send: Action) -> Sequence[Storage] | None:
        if self._process_of_stage[send.stage] == self._index:
            return self._local.receive(send)
        self.expect(send)
        messages = self._receiving[send]
        if not all([message.has_finished() for message in messages]):
            self._awaited.append(send)
            return None
        del self._receiving[send]
        return [
            Storage.of(message.received.view(type.numpy).reshape(type.shape))
            for message, type in zip(messages, self._types[send], strict=True)
        ]

    def expect(self, send: Action) -> None:
        source = self._process_of_stage[send.stage]
        if source != self._index and send not in self._receiving:
            words = describe(matching_transfer(send))
            self._receiving[send] = [
                self._link.start_receive(type.nbytes, source, self._tags[send], words)
                for type in self._types[send]
            ]

    def wait(self) -> bool:
        if not self._awaited:
            return False
        pending = [
            message
            for send in self._awaited
            for message in self._receiving.get(send, ())
            if not message.has_finished()
        ]
        self._awaited.clear()
        if pending:
            self._link.wait_for_any(pending)
        return True

    def finish(self) -> None:
        for message in self._sending:
            if not message.has_finished():
                self._link.wait_for_any([message])
                message.has_finished()
        self._sending = []


def describe(action: Action) -> str:
    """Return an action of a pipeline in words, for errors."""
    return f"{action} of the pipeline (stage {action.stage}, microbatch {action.microbatch})"
