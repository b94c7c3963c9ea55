"""Devices in processes of their own, which speak through `torch.distributed`.

NCCL moves and combines tensors on GPUs, gloo on CPUs; where GPUs have only gloo, tensors go through
the host. Whatever only moves, moves as bytes, so that no element type is foreign to a library.
Combined natively is what the libraries combine as the program means it: sums and products of wide
numbers, extremes of integers, bits of booleans. Everything else is exchanged piece by piece,
combined here in order of position, and gathered: 16-bit floats, for example, which the libraries
would round at every step. That moves as many bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from shardir.backends.gpu.vendored.combining import combined, words
from shardir.backends.gpu.vendored.comm import Comm, CommError, Pairs, joined
from shardir.backends.gpu.vendored.layout import Axes, Mesh

Tensor = Any

# Newer versions of torch call these otherwise, and warn about the older names.
_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

SMALL = 1 << 15
"""Bytes of a tensor that is rather gathered whole than exchanged in pieces."""
_WIDE = (torch.float32, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8)
_INTEGERS = (torch.int32, torch.int64, torch.int8, torch.uint8)
_ADDED = {
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
_WORDS = {
    "add": dist.ReduceOp.SUM,
    "mul": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "or": dist.ReduceOp.MAX,
    "and": dist.ReduceOp.MIN,
}


class DistComm(Comm):
    """One of the processes that `torch.distributed` has brought together."""

    def __init__(self, mesh: Mesh, rank: int, device: Any, groups: Sequence[Axes] = ()) -> None:
        """Make the groups along each of `groups`; every process does so in the same order."""
        super().__init__(mesh, rank, device)
        self.staged = self.device.type == "cuda" and dist.get_backend() != "nccl"
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(mesh.size)): dist.group.WORLD}
        for axes in groups:
            for group in mesh.groups(axes):
                if len(group) > 1 and tuple(sorted(group)) not in self._groups:
                    self._groups[tuple(sorted(group))] = dist.new_group(list(group))

    def meet(
        self,
        x: Tensor,
        group: tuple[int, ...],
        what: str,
        use: Callable[[Sequence[Tensor]], Tensor],
    ) -> Tensor:
        if len(group) == 1 or not x.numel():
            return use([x] * len(group))
        return use(self._gathered(x, group).unbind(0))

    def all_reduce(self, x: Tensor, op: str, axes: Axes) -> Tensor:
        group = self._group(axes)
        native = _native(x, op)
        if len(group) == 1 or not x.numel():
            return x.clone()
        if native is not None:
            told, view = native
            sent = self._sent(x.clone(memory_format=torch.contiguous_format))
            with self._at("all_reduce", x, group):
                dist.all_reduce(view(sent), told, group=self._of(group))
            return self._received(sent)
        if x.numel() * x.element_size() <= SMALL:
            return super().all_reduce(x, op, axes)
        count, size = len(group), x.numel()
        flat = torch.nn.functional.pad(words(x).reshape(-1), (0, -size % count))
        pieces = self._exchanged(flat.reshape(count, -1), group).view(x.dtype)
        whole = self._gathered(combined(pieces.unbind(0), op), group)
        return whole.reshape(-1)[:size].reshape(x.shape)

    def reduce_scatter(self, x: Tensor, op: str, dim: int, axes: Axes) -> Tensor:
        group = self._group(axes)
        native = _native(x, op)
        if len(group) == 1 or not x.numel():
            return super().reduce_scatter(x, op, dim, axes)
        rows = _stacked(x, dim, len(group))
        if native is None:
            return combined(self._exchanged(rows, group).unbind(0), op)
        told, view = native
        sent = self._sent(self._rows(rows, group))
        made = torch.empty_like(sent[0])
        with self._at("reduce_scatter", x, group):
            _scatter(view(made), view(sent), told, group=self._of(group))
        return self._received(made)

    def all_gather(self, x: Tensor, dim: int, axes: Axes) -> Tensor:
        group = self._group(axes)
        if dim or len(group) == 1 or not x.numel():
            return super().all_gather(x, dim, axes)
        # Rows of a group are one after the other already.
        return self._gathered(x, group).flatten(0, 1)

    def all_to_all(self, x: Tensor, split: int, concat: int, axes: Axes) -> Tensor:
        group = self._group(axes)
        if len(group) == 1 or not x.numel():
            return super().all_to_all(x, split, concat, axes)
        return joined(self._exchanged(_stacked(x, split, len(group)), group).unbind(0), concat)

    def collective_permute(
        self,
        x: Tensor,
        source: Axes = (),
        target: Axes = (),
        axes: Axes = (),
        pairs: Pairs = (),
    ) -> Tensor:
        _, sender, receiver = self._route(source, target, axes, pairs)
        if sender == self.rank:
            return x.clone(memory_format=torch.contiguous_format)
        made = torch.zeros_like(self._sent(x), memory_format=torch.contiguous_format)
        if not x.numel():
            return self._received(made)
        steps = []
        if sender is not None:
            steps.append(dist.P2POp(dist.irecv, _bytes(made), sender))
        if receiver is not None:
            steps.append(dist.P2POp(dist.isend, _bytes(self._sent(x).contiguous()), receiver))
        with self._at("collective_permute", x, (self.rank,)):
            for request in dist.batch_isend_irecv(steps) if steps else ():
                request.wait()
        return self._received(made)

    @contextmanager
    def _at(self, what: str, x: Tensor, group: tuple[int, ...]) -> Iterator[None]:
        """Around a call of the library: who failed at what, where it does."""
        try:
            yield
        except RuntimeError as error:
            raise CommError(
                f"device {self.rank} failed at {what} of {x.dtype}{list(x.shape)} with devices "
                f"{list(group)}, of which one may have ended, or not come in time: "
                f"{str(error).strip().splitlines()[0]}"
            ) from None

    def _of(self, group: tuple[int, ...]) -> Any:
        try:
            return self._groups[tuple(sorted(group))]
        except KeyError:
            raise CommError(
                f"devices {list(group)} are no group of this program; name its axes in `groups`"
            ) from None

    def _sent(self, x: Tensor) -> Tensor:
        """A tensor where the library takes it."""
        return x.cpu() if self.staged else x

    def _received(self, x: Tensor) -> Tensor:
        return x.to(self.device) if self.staged else x

    def _rows(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """A row for each member of a group, in order of positions, in order of the library's."""
        order = sorted(group)
        if tuple(order) == group:
            return rows
        found = [words(rows)[group.index(member)] for member in order]
        return torch.stack(found).view(rows.dtype)

    def _gathered(self, x: Tensor, group: tuple[int, ...]) -> Tensor:
        """The tensors of a group, in order of positions, stacked."""
        sent = self._sent(x).contiguous()
        rows = torch.empty((len(group), *x.shape), dtype=x.dtype, device=sent.device)
        with self._at("gathering", x, group):
            _gather(_bytes(rows), _bytes(sent), group=self._of(group))
        return self._placed(self._received(rows), group)

    def _exchanged(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """Row i goes to position i, and row i of the result comes from there."""
        sent = self._sent(self._rows(rows, group)).contiguous()
        made = torch.empty_like(sent)
        with self._at("exchanging pieces", rows, group):
            dist.all_to_all_single(_bytes(made), _bytes(sent), group=self._of(group))
        return self._placed(self._received(made), group)

    def _placed(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """A row for each member of a group, in order of the library's, in order of positions."""
        order = sorted(group)
        if tuple(order) == group:
            return rows
        found = [words(rows)[order.index(member)] for member in group]
        return torch.stack(found).view(rows.dtype)


def _native(x: Tensor, op: str) -> tuple[Any, Callable[[Tensor], Tensor]] | None:
    """The libraries' word for `op`, and as what they are to see the memory of tensors.

    `None` where none of them does it, or does it otherwise: the extremes of floats, for example,
    do not always see what is not a number.
    """
    dtype, seen = x.dtype, x.dtype
    word = _WORDS.get(op)
    if op in ("add", "mul") and dtype in _WIDE:
        pass
    elif op == "add" and dtype in _ADDED:
        seen = _ADDED[dtype]
    elif op in ("max", "min") and dtype in _INTEGERS:
        pass
    elif dtype == torch.bool and op in ("or", "max", "and", "min"):
        seen = torch.uint8
    else:
        return None
    return word, lambda y: y.reshape(-1).view(seen)


def _bytes(x: Tensor) -> Tensor:
    """The memory of a contiguous tensor."""
    # Of dimensions of size 1 a contiguous tensor may have any strides.
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)


def _stacked(x: Tensor, dim: int, count: int) -> Tensor:
    """The pieces of `x` along a dimension, one after the other."""
    shape = (*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :])
    return x.reshape(shape).movedim(dim, 0).contiguous()
