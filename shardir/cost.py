"""What operations cost: bytes moved, floating-point operations, bytes sent between devices.

Counts, not times: a model of a machine turns them into seconds. In a program over global tensors
they are those of one device that does everything; in a per-device program, those of every device.
"""

from dataclasses import dataclass
from math import prod

from shardir.ir import Block, Op
from shardir.ops.overlap import kind_of
from shardir.opset import OpSpec
from shardir.placement import Axes, size_of
from shardir.types import COMPLEX

_REDUCTIONS = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin")
_MOVES = (
    "convert",
    "data_flow_edge",
    "propagation_barrier",
    "reshard",
    "select",
    "sharding_constraint",
    "stop_gradient",
)
"""Elementwise operations that compute nothing."""


@dataclass(frozen=True, slots=True)
class Cost:
    """`memory`: bytes read and written; `flops`: arithmetic on elements; `sent`: bytes that a
    device sends to others."""

    memory: int = 0
    flops: int = 0
    sent: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.memory + other.memory, self.flops + other.flops, self.sent + other.sent)

    def __mul__(self, times: int) -> "Cost":
        return Cost(self.memory * times, self.flops * times, self.sent * times)


def cost_of_block(block: Block) -> Cost:
    """All operations of a block together."""
    return sum(map(cost_of, block.ops), Cost())


def cost_of(op: Op) -> Cost:
    """One operation with its blocks.

    A scan costs its body as often as it runs; a `while` once, since nobody knows how often it
    does; a case its most expensive branch (by flops, then bytes).
    """
    if op.blocks:
        blocks = [cost_of_block(block) for block in op.blocks]
        if op.name == "case":
            return max(blocks, key=lambda cost: (cost.flops, cost.sent, cost.memory))
        times: int = op.attrs.get("length", 1)
        return sum(blocks, Cost()) * times
    return Cost(memory_of(op), flops_of(op), sent_by(op))


def memory_of(op: Op) -> int:
    """Bytes of its operands and results, each read or written once."""
    return sum(value.type.nbytes for value in op.tensors)


def flops_of(op: Op) -> int:
    """Arithmetic on elements: a multiplication and an addition count two.

    Contractions and convolutions count what their loops do (complex ones four times that),
    pointwise operations and reductions one an element; moving data is free.
    """
    if op.name in ("dot", "convolution"):
        twice = 8 if op.operands[0].type.dtype in COMPLEX else 2
        return twice * op.result.type.size * _contracted(op)
    if op.name == "reduce_window":
        window: tuple[int, ...] = op.attrs["window"]
        return op.result.type.size * prod(window)
    if op.name in _REDUCTIONS or op.name.startswith("cum"):
        return op.operands[0].type.size
    return op.results[0].type.size if _computes(op.spec) else 0


def sent_by(op: Op) -> int:
    """Bytes that each device sends in a collective, by the algorithms that send the least.

    In a group of n devices these are (n - 1) / n of the tensor for each of: spreading the pieces
    of it, combining the pieces, exchanging them; and so twice that for an all-reduce.
    """
    if not op.spec.collective:
        return 0
    axes: Axes = op.attrs.get("axes") or op.attrs.get("source") or ()
    devices = size_of(axes)
    match kind_of(op):
        case "all-reduce":
            return _ceil(2 * op.operands[0].type.nbytes * (devices - 1), devices)
        case "all-gather":
            return op.operands[0].type.nbytes * (devices - 1)
        case "collective-permute":
            stays = not op.attrs.get("axes") and op.attrs["source"] == op.attrs["target"]
            return 0 if stays else op.operands[0].type.nbytes
        case _:
            return _ceil(op.operands[0].type.nbytes * (devices - 1), devices)


def _contracted(op: Op) -> int:
    """How many products are added up for one element of the result."""
    x, w = (operand.type for operand in op.operands)
    dims: str = op.attrs["dims"]
    inputs, output = dims.split("->")
    left, right = inputs.split(",")
    if op.name == "convolution":
        return w.size // max(w.shape[right.index("o")], 1)
    sizes = dict(zip(left + right, x.shape + w.shape, strict=True))
    return prod(size for letter, size in sizes.items() if letter not in output)


def _computes(spec: OpSpec) -> bool:
    return spec.elementwise and spec.name not in _MOVES


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
