"""Costs of operations: bytes moved, floating-point operations, bytes sent between devices.

Costs are counts, not times; a machine model converts them to seconds. For a program over global
tensors they are those of a single device; for a per-device program those of each device.
"""

from dataclasses import dataclass
from math import prod

from shardir import ops
from shardir.cost.collective_bytes import bytes_sent
from shardir.ir.module import Block, Op
from shardir.ir.operation import OpSpec
from shardir.ir.sharding import Axes, count_positions
from shardir.ir.types import COMPLEX
from shardir.ops.communication.async_collectives import kind_of

_REDUCTIONS = frozenset(
    {
        ops.sum_,
        ops.prod,
        ops.max_,
        ops.min_,
        ops.any_,
        ops.all_,
        ops.argmax,
        ops.argmin,
        ops.cumsum,
        ops.cumprod,
        ops.cummax,
        ops.cummin,
        ops.cumlogsumexp,
    }
)


@dataclass(frozen=True, slots=True)
class Cost:
    """A cost. `memory`: bytes read and written; `flops`: arithmetic operations; `sent`: bytes that
    a device sends to other devices; `transfers`: executed collectives.
    """

    memory: int = 0
    flops: int = 0
    sent: int = 0
    transfers: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.memory + other.memory,
            self.flops + other.flops,
            self.sent + other.sent,
            self.transfers + other.transfers,
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(
            self.memory * times, self.flops * times, self.sent * times, self.transfers * times
        )


def cost_of_block(block: Block) -> Cost:
    """Return the total cost of the operations of a block."""
    return sum(map(cost_of, block.ops), Cost())


def cost_of(op: Op) -> Cost:
    """Return the cost of one operation including its blocks.

    A scan costs its body times its length; a `while` costs its blocks once, because its trip count
    is unknown; a case costs its most expensive branch (by flops, then bytes).
    """
    if op.blocks:
        blocks = [cost_of_block(block) for block in op.blocks]
        if op.spec is ops.case:
            return max(blocks, key=lambda cost: (cost.flops, cost.sent, cost.memory))
        times: int = op.attrs.get("length", 1)
        return sum(blocks, Cost()) * times
    return Cost(memory_of(op), flops_of(op), sent_by(op), int(op.spec.collective))


def memory_of(op: Op) -> int:
    """Return the bytes of operands and results, each read or written once."""
    return sum(value.type.nbytes for value in op.tensors)


def flops_of(op: Op) -> int:
    """Return the number of floating-point operations; a multiply-add counts as two.

    Contractions and convolutions count their products and sums (four times as many for complex
    types), elementwise operations one per result element, and reductions one per operand element;
    data movement counts zero.
    """
    if op.spec in (ops.dot, ops.convolution):
        twice = 8 if op.operands[0].type.dtype in COMPLEX else 2
        return twice * op.result.type.size * _contraction_size(op)
    if op.spec is ops.reduce_window:
        window: tuple[int, ...] = op.attrs["window"]
        return op.result.type.size * prod(window)
    if op.spec in _REDUCTIONS:
        return op.operands[0].type.size
    return op.results[0].type.size if _has_arithmetic(op.spec) else 0


def sent_by(op: Op) -> int:
    """Return the bytes that each device sends in a collective, as `bytes_sent` counts them."""
    if not op.spec.collective:
        return 0
    axes = mesh_axes_of(op)
    kind = kind_of(op)
    is_shift = bool(op.attrs.get("axes"))
    if kind == "collective-permute" and not is_shift and op.attrs["source"] == op.attrs["target"]:
        return 0
    return bytes_sent(kind, op.operands[0].type.nbytes, count_positions(axes))


def mesh_axes_of(op: Op) -> Axes:
    """Return the mesh axes along which a collective communicates."""
    axes: Axes = op.attrs.get("axes") or op.attrs.get("source") or ()
    return axes


def _contraction_size(op: Op) -> int:
    """Return the number of products that are summed for one element of the result."""
    x, w = (operand.type for operand in op.operands)
    dims: str = op.attrs["dims"]
    inputs, output = dims.split("->")
    left, right = inputs.split(",")
    if op.spec is ops.convolution:
        return w.size // max(w.shape[right.index("o")], 1)
    sizes = dict(zip(left + right, x.shape + w.shape, strict=True))
    return prod(size for letter, size in sizes.items() if letter not in output)


def _has_arithmetic(spec: OpSpec) -> bool:
    return spec.elementwise and spec.arithmetic is not None
