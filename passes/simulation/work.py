"""The work of one operation: its kind, the streams that it occupies, and its duration.

A stream runs one operation at a time: there is one for computation, and one for each mesh axis.
Durations are whole picoseconds, so that sums do not depend on the order of the operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from shardir import ops
from shardir.cost.mesh_axes import crossed_axes, name_axes
from shardir.cost.op_cost import cost_of_block, flops_of, memory_of
from shardir.errors import MachineError
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Op, Value
from shardir.ops.communication.annotations import (
    checkpoint_name,
    optimization_barrier,
    propagation_barrier,
    reshard,
    sharding_constraint,
    sharding_group,
)
from shardir.ops.communication.async_collectives import done, is_started, kind_of
from shardir.ops.control_flow.fused import REDUCTIONS, fused
from shardir.ops.elementwise.bitcast import bitcast
from shardir.passes.fusion.groups import is_free
from shardir.passes.simulation.host_transfers import direction_of, transferred_bytes
from shardir.passes.simulation.kernel_counts import (
    READ_PARTLY,
    WRITE_PARTLY,
    count_kernel,
    sized_operation,
)
from shardir.passes.simulation.machine_model import HostTransfers, MachineModel, OperationTimes
from shardir.passes.simulation.utilization import flops_of_block

COMPUTE_STREAM = "compute"
PICOSECONDS = 1e12
"""Picoseconds per second."""

VIEWS = frozenset(
    {
        ops.reshape,
        ops.stop_gradient,
        bitcast,
        checkpoint_name,
        done,
        optimization_barrier,
        propagation_barrier,
        reshard,
        sharding_constraint,
        ops.vary,
    }
)
"""Operations whose results are their operands in the same memory; they run no kernel."""
_PRODUCTS = (ops.dot, ops.convolution, ops.fused_products)
_WITHOUT_KERNEL = VIEWS | {ops.axis_index, ops.constant, sharding_group}
_DATA_MOVEMENT = frozenset(
    {
        ops.broadcast,
        ops.concatenate,
        ops.dynamic_slice,
        ops.dynamic_update_slice,
        ops.gather,
        ops.iota,
        ops.pad,
        ops.reverse,
        ops.roll,
        ops.scatter,
        ops.slice_,
        ops.transpose,
        ops.all_slice,
    }
)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one execution of an operation.

    `kind` is a kind of computation, or the name of a collective. `axes` are the mesh axes of a
    collective as text, or the direction of a transfer between device and host; `streams` are empty
    for an operation that takes no time.
    """

    kind: str
    streams: tuple[str, ...]
    duration: int
    axes: str = ""

    @property
    def is_transfer(self) -> bool:
        """True if the operation sends data instead of computing."""
        return bool(self.axes)


class WorkModel:
    """The work of operations without blocks (other than loop nests) on one machine."""

    def __init__(self, machine: MachineModel, meshes: Sequence[Mesh]) -> None:
        self.machine, self.meshes = machine, meshes

    def work_of(self, op: Op) -> Work:
        """Return the work of an operation."""
        if op.spec.collective:
            return self._collective(op)
        if op.spec in _WITHOUT_KERNEL:
            return Work("", (), 0)
        if (direction := direction_of(op)) is not None:
            return self._host_transfer(op, direction)
        if isinstance(self.machine, OperationTimes) and self.machine.has_operation_times:
            seconds = _measured_seconds(op, self.machine)
        elif op.spec in _PRODUCTS:
            dtype = op.operands[0].type.dtype
            seconds = self.machine.matmul_seconds(
                _flops_inside(op) + self._slower_flops(op, dtype), memory_of(op), dtype
            )
        else:
            seconds = self.machine.pointwise_seconds(
                _flops_inside(op), _bytes_moved(op), _dtype_of(op), _count_operations(op)
            )
        return Work(computation_kind(op), (COMPUTE_STREAM,), _round(seconds))

    def _slower_flops(self, op: Op, dtype: str) -> float:
        """Return the flops of `dtype` that take as much time as the difference between the time of
        the products in a kernel, which may have other dtypes, and their time in `dtype`."""
        if not op.spec.is_loop_nest:
            return 0.0
        peak = self.machine.peak_flops(dtype)
        return sum(
            count * (peak / self.machine.peak_flops(other) - 1)
            for other, count in flops_of_block(op.blocks[0], recomputed=True).items()
            if other != dtype
        )

    def _host_transfer(self, op: Op, direction: str) -> Work:
        """Return the work of a transfer between a device and its host; each direction has a
        stream."""
        if not isinstance(self.machine, HostTransfers):
            raise MachineError(
                f"machine {self.machine.name!r} has no method host_seconds, the time of a transfer "
                "between a device and its host"
            )
        seconds = self.machine.host_seconds(transferred_bytes(op))
        return Work(op.name, (direction,), _round(seconds), direction)

    def _collective(self, op: Op) -> Work:
        """Return the work of a collective. One that is not started before occupies the computation
        too."""
        axes = crossed_axes(op.attrs)
        names = name_axes(self.meshes, axes)
        moved = [axis for axis in axes if axis.size > 1]
        if not moved or (op.attrs.get("source") and op.attrs["source"] == op.attrs["target"]):
            return Work(kind_of(op), (), 0, ", ".join(names))
        nbytes = max(value.type.nbytes for value in op.tensors)
        seconds = self.machine.collective_seconds(kind_of(op), nbytes, names)
        streams = tuple(dict.fromkeys(axis.name for axis in moved))
        return Work(
            kind_of(op),
            streams if is_started(op) else (COMPUTE_STREAM, *streams),
            _round(seconds),
            ", ".join(names),
        )


def _measured_seconds(op: Op, machine: OperationTimes) -> float:
    """Return the time of a kernel on a machine with measured operations."""
    sized = sized_operation(op, machine.has_operation)
    if sized is not None:
        return machine.operation_seconds(sized)
    return machine.kernel_seconds(count_kernel(op, machine.has_operation, machine.masked_edge))


def find_views(block: Block, machine: MachineModel) -> frozenset[Op]:
    """Return the operations of a block whose results are views of their operands on a machine,
    in addition to `VIEWS`. Results of the block have memory of their own. A transpose whose result
    products do not read takes the time of a copy: its readers would access memory in its order.
    """
    if not isinstance(machine, OperationTimes) or not machine.views:
        return frozenset()
    readers: dict[Value, set[Op]] = {}
    for op in block.ops:
        for operand in op.operands:
            readers.setdefault(operand, set()).add(op)
    return frozenset(
        op
        for op in block.ops
        if op.name in machine.views and not any(value in block.returns for value in op.results)
        if op.spec is not ops.transpose
        or all(reader.spec in _PRODUCTS for reader in readers.get(op.result, ()))
    )


def computation_kind(op: Op) -> str:
    """Return the kind of a computation, for the table of times."""
    if op.spec in (ops.dot, ops.fused_products):
        return "matrix products"
    if op.spec is ops.convolution:
        return "convolutions"
    if op.spec is fused:
        is_reduction = any(inner.spec in REDUCTIONS for inner in op.blocks[0].ops)
        return "reductions" if is_reduction else "elementwise"
    if op.spec in REDUCTIONS:
        return "reductions"
    if op.spec.elementwise:
        return "elementwise"
    return "data movement" if op.spec in _DATA_MOVEMENT else op.name


def _flops_inside(op: Op) -> int:
    return cost_of_block(op.blocks[0]).flops if op.spec.is_loop_nest else flops_of(op)


def _count_operations(op: Op) -> int:
    """Return the number of operations in a kernel that compute something."""
    if not op.spec.is_loop_nest:
        return 1
    return max(1, sum(not is_free(inner) for inner in op.blocks[0].ops))


def _bytes_moved(op: Op) -> int:
    """Return the bytes that a kernel reads and writes."""
    if op.spec in READ_PARTLY:
        indices = sum(_nbytes(value) for value in op.operands[1:])
        return 2 * op.result.type.nbytes + indices
    if op.spec in WRITE_PARTLY:
        return 2 * sum(_nbytes(value) for value in op.operands[1:])
    return memory_of(op)


def _nbytes(value: Value) -> int:
    return value.type.nbytes


def _dtype_of(op: Op) -> str:
    """Return the dtype of the largest tensor of an operation."""
    tensors = tuple(op.tensors)
    return max(tensors, key=_nbytes).type.dtype if tensors else "f32"


def _round(seconds: float) -> int:
    return round(seconds * PICOSECONDS)
