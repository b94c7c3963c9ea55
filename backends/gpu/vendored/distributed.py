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

import torch
import torch.distributed as dist
from torch import Tensor

from shardir.backends.gpu.vendored.comm import Comm, CommError, Pairs, Transfers, concatenate
from shardir.backends.gpu.vendored.device_mesh import Axes, Mesh
from shardir.backends.gpu.vendored.reduction import reduce_tensors, view_as_words

# Newer versions of torch rename these functions and warn about the old names.
_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

MAX_GATHERED_BYTES = 1 << 15
"""Maximum bytes of a tensor that is all-gathered instead of exchanged in shards."""
_NATIVE_SUM_DTYPES = (
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
    torch.int8,
    torch.uint8,
)
_NATIVE_EXTREME_DTYPES = (torch.int32, torch.int64, torch.int8, torch.uint8)
_SUMMED_AS = {
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}
_REDUCE_OPERATORS = {
    "add": dist.ReduceOp.SUM,
    "mul": dist.ReduceOp.PRODUCT,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "or": dist.ReduceOp.MAX,
    "and": dist.ReduceOp.MIN,
}


class DistComm(Comm):
    """A device that is one process of a `torch.distributed` group."""

    def __init__(
        self, mesh: Mesh, rank: int, device: torch.device | str, groups: Sequence[Axes] = ()
    ) -> None:
        """Create the process groups along each of `groups`; all processes do so in the
        same order.
        """
        super().__init__(mesh, rank, device)
        self.staged = self.device.type == "cuda" and dist.get_backend() != "nccl"
        self._groups: dict[tuple[int, ...], dist.ProcessGroup] = {
            tuple(range(mesh.size)): dist.group.WORLD
        }
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
        return use(self._gather_rows(x, group).unbind(0))

    def start_transfers(
        self,
        what: str,
        sends: Sequence[tuple[Tensor, int]],
        receives: Sequence[tuple[tuple[int, ...], torch.dtype, int]],
    ) -> Transfers:
        place = torch.device("cpu") if self.staged else self.device
        made = [torch.empty(shape, dtype=dtype, device=place) for shape, dtype, _ in receives]
        sent = [self._to_library(x).contiguous() for x, _ in sends]
        steps = [
            dist.P2POp(function, _view_as_bytes(x), device)
            for function, tensors, devices in (
                (dist.isend, sent, [device for _, device in sends]),
                (dist.irecv, made, [device for *_, device in receives]),
            )
            for x, device in zip(tensors, devices, strict=True)
            if x.numel()
        ]
        started = _StartedTransfers(self, what, steps, (sent, made))
        with started.report_errors():
            started.requests = list(dist.batch_isend_irecv(steps)) if steps else []
        return started

    def broadcast(self, x: Tensor, source: int, axes: Axes) -> Tensor:
        group = self._group(axes)
        if len(group) == 1 or not x.numel():
            return x
        sent = self._to_library(x).contiguous()
        with self._report_errors("broadcast", x, group):
            dist.broadcast(_view_as_bytes(sent), group[source], group=self._process_group(group))
        return self._from_library(sent)

    def all_reduce(self, x: Tensor, op: str, axes: Axes) -> Tensor:
        group = self._group(axes)
        native = _native_reduction(x, op)
        if len(group) == 1 or not x.numel():
            return x.clone()
        if native is not None:
            operator, view = native
            sent = self._to_library(x.clone(memory_format=torch.contiguous_format))
            with self._report_errors("all_reduce", x, group):
                dist.all_reduce(view(sent), operator, group=self._process_group(group))
            return self._from_library(sent)
        if x.numel() * x.element_size() <= MAX_GATHERED_BYTES:
            return super().all_reduce(x, op, axes)
        count, size = len(group), x.numel()
        flat = torch.nn.functional.pad(view_as_words(x).reshape(-1), (0, -size % count))
        pieces = self._exchange_rows(flat.reshape(count, -1), group).view(x.dtype)
        whole = self._gather_rows(reduce_tensors(pieces.unbind(0), op), group)
        return whole.reshape(-1)[:size].reshape(x.shape)

    def reduce_scatter(self, x: Tensor, op: str, dim: int, axes: Axes) -> Tensor:
        group = self._group(axes)
        native = _native_reduction(x, op)
        if len(group) == 1 or not x.numel():
            return super().reduce_scatter(x, op, dim, axes)
        rows = _stack_shards(x, dim, len(group))
        if native is None:
            return reduce_tensors(self._exchange_rows(rows, group).unbind(0), op)
        operator, view = native
        sent = self._to_library(self._to_rank_order(rows, group))
        made = torch.empty_like(sent[0])
        with self._report_errors("reduce_scatter", x, group):
            _scatter(view(made), view(sent), operator, group=self._process_group(group))
        return self._from_library(made)

    def all_gather(self, x: Tensor, dim: int, axes: Axes) -> Tensor:
        group = self._group(axes)
        if dim or len(group) == 1 or not x.numel():
            return super().all_gather(x, dim, axes)
        # The gathered rows are already contiguous in group order.
        return self._gather_rows(x, group).flatten(0, 1)

    def all_to_all(self, x: Tensor, split: int, concat: int, axes: Axes) -> Tensor:
        group = self._group(axes)
        if len(group) == 1 or not x.numel():
            return super().all_to_all(x, split, concat, axes)
        return concatenate(
            self._exchange_rows(_stack_shards(x, split, len(group)), group).unbind(0), concat
        )

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
        made = torch.zeros_like(self._to_library(x), memory_format=torch.contiguous_format)
        if not x.numel():
            return self._from_library(made)
        steps = []
        if sender is not None:
            steps.append(dist.P2POp(dist.irecv, _view_as_bytes(made), sender))
        if receiver is not None:
            steps.append(
                dist.P2POp(dist.isend, _view_as_bytes(self._to_library(x).contiguous()), receiver)
            )
        with self._report_errors("collective_permute", x, (self.rank,)):
            for request in dist.batch_isend_irecv(steps) if steps else ():
                request.wait()
        return self._from_library(made)

    @contextmanager
    def _report_errors(self, what: str, x: Tensor, group: tuple[int, ...]) -> Iterator[None]:
        """Convert errors of a library call into a `CommError` that names device and collective."""
        try:
            yield
        except RuntimeError as error:
            raise CommError(
                f"device {self.rank} failed at {what} of {x.dtype}{list(x.shape)} with devices "
                f"{list(group)}; one of them may have ended or timed out: "
                f"{str(error).strip().splitlines()[0]}"
            ) from None

    def _process_group(self, group: tuple[int, ...]) -> dist.ProcessGroup:
        try:
            return self._groups[tuple(sorted(group))]
        except KeyError:
            raise CommError(
                f"devices {list(group)} are not a group of this program; add its axes to `groups`"
            ) from None

    def _to_library(self, x: Tensor) -> Tensor:
        """Return the tensor on the device where the library reads it."""
        return x.cpu() if self.staged else x

    def _from_library(self, x: Tensor) -> Tensor:
        return x.to(self.device) if self.staged else x

    def _to_rank_order(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """Permute rows from group order to the library's rank order."""
        order = sorted(group)
        if tuple(order) == group:
            return rows
        found = [view_as_words(rows)[group.index(member)] for member in order]
        return torch.stack(found).view(rows.dtype)

    def _gather_rows(self, x: Tensor, group: tuple[int, ...]) -> Tensor:
        """Return the tensors of a group, stacked in group order."""
        sent = self._to_library(x).contiguous()
        rows = torch.empty((len(group), *x.shape), dtype=x.dtype, device=sent.device)
        with self._report_errors("gathering", x, group):
            _gather(_view_as_bytes(rows), _view_as_bytes(sent), group=self._process_group(group))
        return self._to_group_order(self._from_library(rows), group)

    def _exchange_rows(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """Send row i to position i; row i of the result is from position i."""
        sent = self._to_library(self._to_rank_order(rows, group)).contiguous()
        made = torch.empty_like(sent)
        with self._report_errors("exchanging pieces", rows, group):
            dist.all_to_all_single(
                _view_as_bytes(made), _view_as_bytes(sent), group=self._process_group(group)
            )
        return self._to_group_order(self._from_library(made), group)

    def _to_group_order(self, rows: Tensor, group: tuple[int, ...]) -> Tensor:
        """Permute rows from the library's rank order to group order."""
        order = sorted(group)
        if tuple(order) == group:
            return rows
        found = [view_as_words(rows)[order.index(member)] for member in group]
        return torch.stack(found).view(rows.dtype)


class _StartedTransfers(Transfers):
    """Transfers of processes; sent tensors are kept until the library has read them."""

    def __init__(
        self,
        comm: DistComm,
        what: str,
        steps: Sequence[dist.P2POp],
        tensors: tuple[Sequence[Tensor], Sequence[Tensor]],
    ) -> None:
        self._comm, self._what = comm, what
        self._devices = sorted({step.peer for step in steps})
        self._sent, self._received = tensors
        self.requests: list[dist.Work] = []

    def has_finished(self) -> bool:
        # The requests of gloo are not known to have finished before `wait`.
        return all(request.is_completed() for request in self.requests)

    def wait(self) -> Sequence[Tensor]:
        if self.requests:
            with self.report_errors():
                for request in self.requests:
                    request.wait()
            self.requests, self._sent = [], ()
            self._received = [self._comm._from_library(x) for x in self._received]
        return self._received

    @contextmanager
    def report_errors(self) -> Iterator[None]:
        """Convert errors of the library into a `CommError` that names the transfers."""
        try:
            yield
        except RuntimeError as error:
            raise CommError(
                f"device {self._comm.rank} failed at {self._what} with devices {self._devices}; "
                "one of them may have ended or timed out: "
                f"{str(error).strip().splitlines()[0]}"
            ) from None


def _native_reduction(
    x: Tensor, op: str
) -> tuple[dist.ReduceOp, Callable[[Tensor], Tensor]] | None:
    """Return the libraries' reduction operator for `op`, and a view of tensors to reduce.

    Returns `None` if the libraries lack it or differ: for example, maxima of floats may drop NaN.
    """
    dtype, seen = x.dtype, x.dtype
    word = _REDUCE_OPERATORS.get(op)
    if op in ("add", "mul") and dtype in _NATIVE_SUM_DTYPES:
        pass
    elif op == "add" and dtype in _SUMMED_AS:
        seen = _SUMMED_AS[dtype]
    elif op in ("max", "min") and dtype in _NATIVE_EXTREME_DTYPES:
        pass
    elif dtype == torch.bool and op in ("or", "max", "and", "min"):
        seen = torch.uint8
    else:
        return None
    return word, lambda y: y.reshape(-1).view(seen)


def _view_as_bytes(x: Tensor) -> Tensor:
    """Return a contiguous tensor as bytes."""
    # A contiguous tensor may have any stride in dimensions of size 1.
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)


def _stack_shards(x: Tensor, dim: int, count: int) -> Tensor:
    """Return the shards of `x` along a dimension, stacked."""
    shape = (*x.shape[:dim], count, x.shape[dim] // count, *x.shape[dim + 1 :])
    return x.reshape(shape).movedim(dim, 0).contiguous()
