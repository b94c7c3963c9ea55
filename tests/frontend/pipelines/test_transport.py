"""The transport between processes, with a link whose messages finish when a test says so."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from shardir.backends.base import PendingMessage, ProcessLink, Storage
from shardir.frontend.pipelines.transport import MessageTransport
from shardir.ir.types import TensorType
from shardir.passes.pipeline_parallelism.actions import parse_action


class Message(PendingMessage):
    """A message that finishes when it is told."""

    def __init__(self, tag: int, what: str, received: Any) -> None:
        self.tag, self.what, self.received, self.finished = tag, what, received, False

    def has_finished(self) -> bool:
        return self.finished


class Link:
    """Records messages; a wait finishes the first one."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def start_send(self, row: Any, target: int, tag: int, what: str) -> Message:
        self.messages.append(Message(tag, what, row))
        return self.messages[-1]

    def start_receive(self, size: int, source: int, tag: int, what: str) -> Message:
        self.messages.append(Message(tag, what, np.arange(size, dtype=np.uint8)))
        return self.messages[-1]

    def wait_for_any(self, messages: Sequence[Message]) -> None:
        messages[0].finished = True


SEND = parse_action("0SEND_F3")


def transport(index: int) -> tuple[MessageTransport, Link]:
    """Return the transport of a process; stage 0 belongs to process 0, stage 1 to process 1."""
    link, types = Link(), {SEND: [TensorType((2,), "f32"), TensorType((3,), "bool")]}
    made = MessageTransport(cast(ProcessLink, link), index, {0: 0, 1: 1}, {SEND: 5}, types)
    return made, link


def test_a_receive_is_started_once_and_returns_when_all_its_values_are_there() -> None:
    receiver, link = transport(1)
    receiver.expect(SEND)
    assert receiver.receive(SEND) is None
    assert [message.tag for message in link.messages] == [5, 5]
    assert link.messages[0].what == "1RECV_F3 of the pipeline (stage 1, microbatch 3)"
    assert receiver.wait()
    assert receiver.receive(SEND) is None
    # A message that finishes between the question and the wait is no reason to give up.
    link.messages[1].finished = True
    assert receiver.wait()
    first, second = receiver.receive(SEND) or ()
    assert first.array.tobytes() == bytes(range(8))
    assert (second.shape, second.dtype) == ((3,), np.dtype(bool))


def test_nothing_is_awaited() -> None:
    receiver, _ = transport(1)
    receiver.expect(SEND)
    assert not receiver.wait()


def test_sends_end_before_the_run() -> None:
    sender, link = transport(0)
    sender.send(SEND, [Storage.of(np.ones(2, np.float32)), Storage.of(np.ones(3, bool))])
    assert link.messages[1].what == "0SEND_F3 of the pipeline (stage 0, microbatch 3)"
    assert not any(message.finished for message in link.messages)
    sender.finish()
    assert all(message.finished for message in link.messages)
