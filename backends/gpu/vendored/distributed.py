"""Devices in separate processes, which communicate with `torch.distributed`.

NCCL transfers and reduces tensors on GPUs, gloo on CPUs; on GPUs with gloo, tensors are staged
through the host. Pure data movement transfers bytes, so that every element type is supported. The
libraries reduce where their semantics match: sums and products of types of at least 32 bits, maxima
and minima of integers, logical operations. All other reductions exchange shards, reduce them here
in order of position, and gather the results: for example 16-bit floats, which the libraries round
at every step. That transfers as many bytes.
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

# Newer versions of torch rename these functions and warn about the old names.
_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

SMALL = 1 << 15
"""Maximum bytes of a tensor that is all-gathered instead of exchanged in shards."""
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
    """A device that is one process of a `torch.distributed` group."""

    def __init__(self, mesh: Mesh, rank: int, device: Any, groups: Sequence[Axes] = ()) -> None:
        """Create the process groups along each of `groups`; all processes do so in the
        same order.
        """
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
            operator, view = native
            sent = self._sent(x.clone(memory_format=torch.contiguous_format))
            with self._at("all_reduce", x, group):
                dist.all_reduce(view(sent), operator, group=self._of(group))
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
        operator, view = native
        sent = self._sent(self._rows(rows, group))
        made = torch.empty_like(sent[0])
        with self._at("reduce_scatter", x, group):
            _scatter(view(made), view(sent), operator, group=self._of(group))
        return self._received(made)

    def all_gather(self, x: Tensor, dim: int, axes: Axes) -> Tensor:
        group = self._group(axes)
        if dim or len(group) == 1 or not x.numel():
            return super().all_gather(x, dim, axes)
        # The gathered rows are already contiguous in group order.
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
        """Convert errors of a library call into a `CommError` that names device and collective."""
        try:
            yield
        except RuntimeError as error:
            raise CommError(
                f"device {self.rank} failed at {what} of {x.dtype}{list(x.shape)} with devices "
                f"{list(group)}; one of them may have ended or timed out: "
                f"{str(error).strip().splitlines()[0]}"
            ) from None

    def _of(self, group: tuple[int, ...]) -> Any:
        try:
            return self._groups[tuple(sorted(group))]
        except KeyError:
            raise CommError(
                f"devices {list(group)} are no group of this program; add its axes to `groups`"
            ) from None

    def _sent(self, x: Tensor) -> Tensor:
        """Return the tensor on the device where the library reads it."""
        return x.cpu() if self.staged else x

    def _received(self, x: Tensor) -> Tensor:
        return x.to(self.device) if self.staged else x

    def _rows(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """Permute rows from group order to the library's rank order."""
        order = sorted(group)
        if tuple(order) == group:
            return rows
        found = [words(rows)[group.index(member)] for member in order]
        return torch.stack(found).view(rows.dtype)

    def _gathered(self, x: Tensor, group: tuple[int, ...]) -> Tensor:
        """Return the tensors of a group, stacked in group order."""
        sent = self._sent(x).contiguous()
        rows = torch.empty((len(group), *x.shape), dtype=x.dtype, device=sent.device)
        with self._at("gathering", x, group):
            _gather(_bytes(rows), _bytes(sent), group=self._of(group))
        return self._placed(self._received(rows), group)

    def _exchanged(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """Send row i to position i; row i of the result is from position i."""
        sent = self._sent(self._rows(rows, group)).contiguous()
        made = torch.empty_like(sent)
        with self._at("exchanging pieces", rows, group):
            dist.all_to_all_single(_bytes(made), _bytes(sent), group=self._of(group))
        return self._placed(self._received(made), group)

    def _placed(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """Permute rows from the library's rank order to group order."""
        order = sorted(group)
        if tuple(order) == group:
            return rows
        found = [words(rows)[order.index(member)] for member in group]
        return torch.stack(found).view(rows.dtype)


def _native(x: Tensor, op: str) -> tuple[Any, Callable[[Tensor], Tensor]] | None:
    """Return the libraries' reduction operator for `op`, and a view of tensors to reduce.

    Returns `None` if the libraries lack it or differ: for example, maxima of floats may drop NaN.
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
    """Return a contiguous tensor as bytes."""
    # A contiguous tensor may have any stride in dimensions of size 1.
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)


def _stacked(x: Tensor, dim: int, count: int) -> Tensor:
    """Return the shards of `x` along a dimension, stacked."""
    shape = (*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :])
    return x.reshape(shape).movedim(dim, 0).contiguous()
