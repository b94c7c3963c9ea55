"""Communication with the other devices of the mesh.

`main` receives a `Comm`. Its methods are named after the operations of the program, and take and
return this device's tensors; axes are tuples of names (`("data",)`, or sub-axes, `("data:(1)2",)`),
major to minor. Every device of a group calls the same methods in the same order.

    comm.axis_index(axes=("i",))                         this device's position: i32 of rank 0
    comm.all_reduce(x, "add", axes=("i",))               the tensors of all devices reduced by
                                                         add, mul, max, min, and, or
    comm.reduce_scatter(x, "add", dim=0, axes=("i",))    this device's shard of that
    comm.all_gather(x, dim=0, axes=("i",))               the shards of all, concatenated
    comm.all_slice(x, dim=0, axes=("i",))                this device's shard of a replicated x
    comm.all_to_all(x, split=0, concat=1, axes=("i",))   sharded along 1 becomes sharded along 0
    comm.collective_permute(x, axes=("i",), pairs=((0, 1),))
                                                         from position to position; others zeros
    comm.collective_permute(x, source=("i",), target=("j",))
                                                         sharding over i becomes one over j
    comm.broadcast(x, source=0, axes=("i",))             the tensor of the device at a position
    comm.start_transfers(what, sends, receives)          tensors to and from single devices

Tensors have the torch dtype with the name of the element type (`key` is `torch.uint64`), and
results are contiguous tensors that share no memory. `comm.device` is the torch device on which
`main` creates tensors, `comm.rank` the device's index in the mesh, `comm.mesh` the mesh.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shardir.backends.gpu.vendored.device_mesh import Axes, Mesh
from shardir.backends.gpu.vendored.reduction import reduce_tensors, view_as_words

Pairs = Sequence[tuple[int, int]]


class CommError(Exception):
    """Raised if devices cannot connect, or do not match the program."""


class Transfers(ABC):
    """Transfers between single devices that have started together."""

    @abstractmethod
    def has_finished(self) -> bool:
        """Return whether the tensors are known to have been sent and received."""

    @abstractmethod
    def wait(self) -> Sequence[Tensor]:
        """Wait for the transfers, and return the received tensors."""


class Comm(ABC):
    """One device's communication with the others of its mesh.

    This class implements all collectives with one primitive, `meet`; subclasses must give equal
    results. `start_transfers` is the primitive of transfers between single devices.
    """

    def __init__(self, mesh: Mesh, rank: int, device: torch.device | str) -> None:
        self.mesh, self.rank, self.device = mesh, rank, torch.device(device)

    @abstractmethod
    def meet(
        self,
        x: Tensor,
        group: tuple[int, ...],
        what: str,
        use: Callable[[Sequence[Tensor]], Tensor],
    ) -> Tensor:
        """Share `x` with all devices of a group, and return `use` of their tensors in group order.

        The result of `use` shares no memory with its arguments. `what` names the collective in
        errors.
        """

    @abstractmethod
    def start_transfers(
        self,
        what: str,
        sends: Sequence[tuple[Tensor, int]],
        receives: Sequence[tuple[tuple[int, ...], torch.dtype, int]],
    ) -> Transfers:
        """Start to send tensors to devices, and to receive tensors (shape, dtype, device).

        The tensors from one device to another are received in the order in which they are sent.
        `what` names the transfers in errors.
        """

    def broadcast(self, x: Tensor, source: int, axes: Axes) -> Tensor:
        """Return the tensor of the device at the position `source` along `axes`; those of other
        devices only have its shape.
        """
        return self.meet(
            x,
            self._group(axes),
            f"broadcast from {source}",
            lambda parts: parts[source].clone(memory_format=torch.contiguous_format),
        )

    def axis_index(self, axes: Axes) -> Tensor:
        """Return the device's position along `axes`."""
        place = self.mesh.position(self.rank, axes)
        return torch.full((), place, dtype=torch.int32, device=self.device)

    def all_slice(self, x: Tensor, dim: int, axes: Axes) -> Tensor:
        """Return this device's shard of a replicated tensor."""
        size = x.shape[dim] // self.mesh.count(axes)
        start = self.mesh.position(self.rank, axes) * size
        return x.narrow(dim, start, size).clone(memory_format=torch.contiguous_format)

    def all_reduce(self, x: Tensor, op: str, axes: Axes) -> Tensor:
        """Return the tensors of all devices, reduced by `op`."""
        return self.meet(
            x, self._group(axes), f"all_reduce {op}", lambda parts: reduce_tensors(parts, op)
        )

    def reduce_scatter(self, x: Tensor, op: str, dim: int, axes: Axes) -> Tensor:
        """Return this device's shard, along `dim`, of the tensors of all devices
        reduced by `op`.
        """
        size = x.shape[dim] // self.mesh.count(axes)
        start = self.mesh.position(self.rank, axes) * size

        def use(parts: Sequence[Tensor]) -> Tensor:
            pieces = [part.narrow(dim, start, size).contiguous() for part in parts]
            return reduce_tensors(pieces, op).contiguous()

        return self.meet(x, self._group(axes), f"reduce_scatter {op}", use)

    def all_gather(self, x: Tensor, dim: int, axes: Axes) -> Tensor:
        """Return the shards of all devices, concatenated along `dim`."""
        return self.meet(
            x, self._group(axes), f"all_gather dim={dim}", lambda parts: concatenate(parts, dim)
        )

    def all_to_all(self, x: Tensor, split: int, concat: int, axes: Axes) -> Tensor:
        """Reshard a tensor from dimension `concat` to dimension `split`."""
        size = x.shape[split] // self.mesh.count(axes)
        start = self.mesh.position(self.rank, axes) * size

        def use(parts: Sequence[Tensor]) -> Tensor:
            return concatenate([part.narrow(split, start, size) for part in parts], concat)

        return self.meet(x, self._group(axes), f"all_to_all {split} {concat}", use)

    def collective_permute(
        self,
        x: Tensor,
        source: Axes = (),
        target: Axes = (),
        axes: Axes = (),
        pairs: Pairs = (),
    ) -> Tensor:
        """Return the tensor of another position.

        Either `pairs` are (from, to) positions along `axes`, and devices that receive nothing get
        zeros; or the shard at position c along `source` moves to position c along `target`.
        """
        group, sender, _ = self._route(source, target, axes, pairs)

        def use(parts: Sequence[Tensor]) -> Tensor:
            if sender is None:
                return torch.zeros_like(x, memory_format=torch.contiguous_format)
            return parts[group.index(sender)].clone(memory_format=torch.contiguous_format)

        return self.meet(x, group, f"collective_permute {source or axes} {target}", use)

    def _group(self, axes: Axes) -> tuple[int, ...]:
        return self.mesh.group(self.rank, axes)

    def _route(
        self, source: Axes, target: Axes, axes: Axes, pairs: Pairs
    ) -> tuple[tuple[int, ...], int | None, int | None]:
        """Return the group of a permute, the device to receive from, and the device to send to."""
        if axes:
            group = self._group(axes)
            place = group.index(self.rank)
            senders = [group[a] for a, b in pairs if b == place]
            receivers = [group[b] for a, b in pairs if a == place]
        else:
            group = self.mesh.combined_group(self.rank, source, target)
            senders = [self.mesh.sender(self.rank, source, target)]
            receivers = [
                each for each in group if self.mesh.sender(each, source, target) == self.rank
            ]
        return group, senders[0] if senders else None, receivers[0] if receivers else None


def concatenate(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Concatenate tensors along a dimension."""
    return torch.cat([view_as_words(part) for part in parts], dim).view(parts[0].dtype)
