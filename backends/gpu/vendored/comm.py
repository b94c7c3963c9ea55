"""Speaking to the other devices of the mesh.

`Comm` is what `main` gets. Its methods are named after the operations of the program, and take and
return tensors of what this device holds; axes are tuples of names (`("data",)`, or parts of axes,
`("data:(1)2",)`), major to minor. Every device of a group calls the same methods in the same order.

    comm.axis_index(axes=("i",))                         where this device stands: i32 of rank 0
    comm.all_reduce(x, "add", axes=("i",))               the parts of all, combined by
                                                         add, mul, max, min, and, or
    comm.reduce_scatter(x, "add", dim=0, axes=("i",))    this device's piece of that
    comm.all_gather(x, dim=0, axes=("i",))               the pieces of all, along a dimension
    comm.all_slice(x, dim=0, axes=("i",))                this device's piece of what all hold
    comm.all_to_all(x, split=0, concat=1, axes=("i",))   cut along 1 becomes cut along 0
    comm.collective_permute(x, axes=("i",), pairs=((0, 1),))
                                                         from position to position, zeros elsewhere
    comm.collective_permute(x, source=("i",), target=("j",))
                                                         cut along i becomes cut along j

Tensors are of the torch type that bears the name of the element type (`key` is `torch.uint64`), and
results are contiguous tensors that nobody else holds. `comm.device` is the torch device on which
`main` makes tensors, `comm.rank` the device's place in the mesh, `comm.mesh` the mesh.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch

from shardir.backends.gpu.vendored.combining import combined, words
from shardir.backends.gpu.vendored.layout import Axes, Mesh

Tensor = Any
Pairs = Sequence[tuple[int, int]]


class CommError(Exception):
    """Devices that do not find together, or that do not fit the program."""


class Comm(ABC):
    """The devices of a mesh, seen from one of them.

    All exchanges are written here by means of one, `meet`; they are what the others must equal.
    """

    def __init__(self, mesh: Mesh, rank: int, device: Any) -> None:
        self.mesh, self.rank, self.device = mesh, rank, torch.device(device)

    @abstractmethod
    def meet(
        self,
        x: Tensor,
        group: tuple[int, ...],
        what: str,
        use: Callable[[Sequence[Tensor]], Tensor],
    ) -> Tensor:
        """Show `x` to all of a group, and make something of what they show, in their order.

        What `use` returns is a tensor of its own. `what` names the exchange in errors.
        """

    def axis_index(self, axes: Axes) -> Tensor:
        """The device's position along `axes`."""
        place = self.mesh.position(self.rank, axes)
        return torch.full((), place, dtype=torch.int32, device=self.device)

    def all_slice(self, x: Tensor, dim: int, axes: Axes) -> Tensor:
        """This device's piece of what all hold."""
        size = x.shape[dim] // self.mesh.count(axes)
        start = self.mesh.position(self.rank, axes) * size
        return x.narrow(dim, start, size).clone(memory_format=torch.contiguous_format)

    def all_reduce(self, x: Tensor, op: str, axes: Axes) -> Tensor:
        """The tensors of all, combined by `op`."""
        return self.meet(
            x, self._group(axes), f"all_reduce {op}", lambda parts: combined(parts, op)
        )

    def reduce_scatter(self, x: Tensor, op: str, dim: int, axes: Axes) -> Tensor:
        """This device's piece, along `dim`, of the tensors of all combined by `op`."""
        size = x.shape[dim] // self.mesh.count(axes)
        start = self.mesh.position(self.rank, axes) * size

        def use(parts: Sequence[Tensor]) -> Tensor:
            pieces = [part.narrow(dim, start, size).contiguous() for part in parts]
            return combined(pieces, op).contiguous()

        return self.meet(x, self._group(axes), f"reduce_scatter {op}", use)

    def all_gather(self, x: Tensor, dim: int, axes: Axes) -> Tensor:
        """The pieces of all, put together along `dim`."""
        return self.meet(
            x, self._group(axes), f"all_gather dim={dim}", lambda parts: joined(parts, dim)
        )

    def all_to_all(self, x: Tensor, split: int, concat: int, axes: Axes) -> Tensor:
        """What was cut along `concat` becomes cut along `split`."""
        size = x.shape[split] // self.mesh.count(axes)
        start = self.mesh.position(self.rank, axes) * size

        def use(parts: Sequence[Tensor]) -> Tensor:
            return joined([part.narrow(split, start, size) for part in parts], concat)

        return self.meet(x, self._group(axes), f"all_to_all {split} {concat}", use)

    def collective_permute(
        self,
        x: Tensor,
        source: Axes = (),
        target: Axes = (),
        axes: Axes = (),
        pairs: Pairs = (),
    ) -> Tensor:
        """The tensor of another position.

        With `pairs` of (from, to) along `axes`, and zeros where nothing comes; or the piece at
        position c along `source` goes to position c along `target`.
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
        """Who takes part in a permute, from which device this one receives, to which it sends."""
        if axes:
            group = self._group(axes)
            place = group.index(self.rank)
            senders = [group[a] for a, b in pairs if b == place]
            receivers = [group[b] for a, b in pairs if a == place]
        else:
            group = self.mesh.together(self.rank, source, target)
            senders = [self.mesh.sender(self.rank, source, target)]
            receivers = [
                each for each in group if self.mesh.sender(each, source, target) == self.rank
            ]
        return group, senders[0] if senders else None, receivers[0] if receivers else None


def joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Tensors put together along a dimension."""
    return torch.cat([words(part) for part in parts], dim).view(parts[0].dtype)
