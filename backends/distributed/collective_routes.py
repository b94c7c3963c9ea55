"""Routes: the messages and local computation of each collective of a program in this process.

A route is computed once; each run starts it with the arrays of this process's devices, and finishes
it to get their results.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from shardir import ops
from shardir.backends.base import Array
from shardir.backends.distributed.deadlock_detector import ExecutionPoint
from shardir.backends.distributed.device_ownership import DeviceClasses
from shardir.backends.distributed.fetch import fetch_of
from shardir.backends.distributed.input_check import Links
from shardir.backends.distributed.messages import MessageChannel, MessageHeaders, PostedMessages
from shardir.ir.device_groups import device_groups, permute_senders
from shardir.ir.module import Op
from shardir.ops.communication.async_collectives import synchronous_spec
from shardir.ops.communication.collectives import reduce_arrays, split_array

FinishCollective = Callable[[], list[Array]]
"""Waits for a started collective and returns a result for each device of this process."""


@dataclass(frozen=True)
class CollectiveCall:
    """One execution of a collective: how its messages are sent, tagged and described in errors.

    A call with a `state` (see `input_check`) sends it as the header of the first row to each
    process, and has the states of the others in `states` when it is finished.
    """

    messages: MessageChannel
    mark: tuple[object, ...]
    what: Callable[[], ExecutionPoint]
    state: bytes | None = None
    _received: dict[int, Array] = field(default_factory=dict)
    _state_sent_to: set[int] = field(default_factory=set)

    def tag(self, *stage: object) -> int:
        """Return the tag of the messages of one stage."""
        return self.messages.tag(*self.mark, *stage)

    def post(
        self, rows: Mapping[int, Array], places: Mapping[int, Array], *stage: object
    ) -> PostedMessages:
        """Start to send and receive the messages of one stage."""
        tag = self.tag(*stage)
        if self.state is None:
            return self.messages.post(tag, rows, places, self.what)
        head = np.frombuffer(self.state, np.uint8)
        sent = {process: head for process in rows if process not in self._state_sent_to}
        received = {p: np.empty(len(head), np.uint8) for p in places if p not in self._received}
        self._state_sent_to.update(sent)
        self._received.update(received)
        return self.messages.post(tag, rows, places, self.what, MessageHeaders(sent, received))

    @property
    def states(self) -> list[bytes]:
        """The states that were received."""
        return [head.tobytes() for head in self._received.values()]


class CollectiveRoute(ABC):
    """The implementation of one collective on the devices of this process."""

    def __init__(self, op: Op, classes: DeviceClasses) -> None:
        self.op, self.classes, self.places = op, classes, classes.places
        self.type = op.operands[0].type

    @property
    @abstractmethod
    def links(self) -> Links:
        """The pairs of processes that communicate before this process combines anything."""

    @abstractmethod
    def start(
        self, arrays: Sequence[Array], call: CollectiveCall, out: Array | None = None
    ) -> FinishCollective:
        """Send the arrays that others need; `arrays` has one for each device of this process.

        If this process has one device, its result may be written to `out`.
        """


class GroupMembers:
    """The groups of devices of a collective, and the position of each device in its group."""

    def __init__(self, op: Op, classes: DeviceClasses) -> None:
        self.classes = classes
        self.groups = device_groups(classes.places.mesh, op.attrs["axes"])
        self.place = {d: (group, at) for group in self.groups for at, d in enumerate(group)}

    def class_numbers(self, group: Sequence[int]) -> tuple[int, ...]:
        """Return the classes of a group's devices."""
        return tuple(self.classes.class_of[device] for device in group)


class GroupRoute(CollectiveRoute, GroupMembers):
    """A route of a collective within groups of devices."""

    def __init__(self, op: Op, classes: DeviceClasses) -> None:
        CollectiveRoute.__init__(self, op, classes)
        GroupMembers.__init__(self, op, classes)

    def results_by_group(
        self, make_results: Callable[[tuple[int, ...]], Sequence[Array]]
    ) -> list[Array]:
        """Return the result of each device; `make_results` is called once for groups with equal
        data."""
        results: dict[tuple[int, ...], Sequence[Array]] = {}
        found = []
        for device in self.places.local_devices:
            group, at = self.place[device]
            numbers = self.class_numbers(group)
            if numbers not in results:
                results[numbers] = make_results(numbers)
            found.append(results[numbers][at])
        return found


class GatherAllRoute(GroupRoute):
    """Every device gets the arrays of its whole group and combines them, as within one process."""

    def __init__(self, op: Op, classes: DeviceClasses) -> None:
        super().__init__(op, classes)
        needs: dict[int, list[int]] = {}
        for device, owner in enumerate(self.places.owners):
            needs.setdefault(owner, []).extend(self.class_numbers(self.place[device][0]))
        self.fetch = fetch_of(needs, lambda number: number, classes, self.type)

    @property
    def links(self) -> Links:
        return self.fetch.links

    def start(
        self, arrays: Sequence[Array], call: CollectiveCall, out: Array | None = None
    ) -> FinishCollective:
        held = self.classes.arrays_by_class(arrays)
        into = self._places(out)
        fetching = self.fetch.start(held.__getitem__, call.post, call.messages, into)

        def finish() -> list[Array]:
            have = held | fetching.finish()
            if out is not None and into:
                for number, place in into.items():
                    if number in held:
                        place[...] = held[number]
                return [out]
            return self.results_by_group(
                lambda group: self._combine([have[number] for number in group])
            )

        return finish

    def _places(self, out: Array | None) -> dict[int, Array]:
        """Return the buffer in `out` of each gathered class, if these are contiguous."""
        is_gather = synchronous_spec(self.op) is ops.all_gather
        if out is None or not is_gather or not out.flags.c_contiguous:
            return {}
        dim: int = self.op.attrs["dim"]
        (device,) = self.places.local_devices
        numbers = self.class_numbers(self.place[device][0])
        if prod(out.shape[:dim]) != 1 or len(set(numbers)) < len(numbers):
            return {}
        return dict(zip(numbers, split_array(out, dim, len(numbers)), strict=True))

    def _combine(self, arrays: list[Array]) -> Sequence[Array]:
        spec, attrs = synchronous_spec(self.op), self.op.attrs
        if spec is ops.all_gather:
            return [np.concatenate(arrays, attrs["dim"])] * len(arrays)
        whole = reduce_arrays(arrays, attrs["op"])
        if spec is ops.reduce_scatter:
            return split_array(whole, attrs["dim"], len(arrays))
        return [whole] * len(arrays)


class AllToAllRoute(GroupRoute):
    """all-to-all: the device at position i gets piece i of each array."""

    def __init__(self, op: Op, classes: DeviceClasses) -> None:
        super().__init__(op, classes)
        needs: dict[int, list[tuple[int, int]]] = {}
        for device, owner in enumerate(self.places.owners):
            group, at = self.place[device]
            requests = [(number, at) for number in self.class_numbers(group)]
            needs.setdefault(owner, []).extend(requests)
        split, count = op.attrs["split"], len(self.groups[0])
        shape = list(self.type.shape)
        shape[split] //= count
        piece = self.type.with_shape(tuple(shape))
        self.fetch = fetch_of(needs, lambda piece: piece[0], classes, piece)

    @property
    def links(self) -> Links:
        return self.fetch.links

    def start(
        self, arrays: Sequence[Array], call: CollectiveCall, out: Array | None = None
    ) -> FinishCollective:
        split, concat, count = *self._dims(), len(self.groups[0])
        have = {
            (number, at): piece
            for number, array in self.classes.arrays_by_class(arrays).items()
            for at, piece in enumerate(split_array(array, split, count))
        }
        fetching = self.fetch.start(have.__getitem__, call.post, call.messages)

        def finish() -> list[Array]:
            have.update(fetching.finish())

            def concatenate(group: tuple[int, ...], at: int) -> Array:
                return np.concatenate([have[number, at] for number in group], concat)

            make_results: dict[tuple[tuple[int, ...], int], Array] = {}
            results = []
            for device in self.places.local_devices:
                group, at = self.place[device]
                key = self.class_numbers(group), at
                if key not in make_results:
                    make_results[key] = concatenate(*key)
                results.append(make_results[key])
            return results

        return finish

    def _dims(self) -> tuple[int, int]:
        return self.op.attrs["split"], self.op.attrs["concat"]


class PermuteRoute(CollectiveRoute):
    """collective-permute: every device gets the array of another device, or zeros."""

    def __init__(self, op: Op, classes: DeviceClasses) -> None:
        super().__init__(op, classes)
        self.senders = self._senders()
        needs: dict[int, list[int]] = {}
        for owner, sender in zip(self.places.owners, self.senders, strict=True):
            if sender is not None:
                needs.setdefault(owner, []).append(classes.class_of[sender])
        self.fetch = fetch_of(needs, lambda number: number, classes, self.type)

    @property
    def links(self) -> Links:
        return self.fetch.links

    def _senders(self) -> list[int | None]:
        mesh, attrs = self.places.mesh, self.op.attrs
        if not attrs.get("axes"):
            return list(permute_senders(mesh, attrs["source"], attrs["target"]).tolist())
        found: list[int | None] = [None] * mesh.size
        for group in device_groups(mesh, attrs["axes"]):
            for source, target in attrs.get("pairs", ()):
                found[group[target]] = group[source]
        return found

    def start(
        self, arrays: Sequence[Array], call: CollectiveCall, out: Array | None = None
    ) -> FinishCollective:
        held = self.classes.arrays_by_class(arrays)
        fetching = self.fetch.start(held.__getitem__, call.post, call.messages)

        def finish() -> list[Array]:
            have = held | fetching.finish()
            zeros = np.zeros(self.type.shape, self.type.numpy)
            found = (self.senders[device] for device in self.places.local_devices)
            return [zeros if d is None else have[self.classes.class_of[d]] for d in found]

        return finish
