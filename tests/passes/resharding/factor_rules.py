"""Factor rules and shardings as short texts, for tests of alignments."""

import re
from collections.abc import Sequence

from shardir.ir.sharding import Axes, Axis, DimSharding, Sharding
from shardir.op_rules.factors import Factor, FactorKind, FactorRule, TensorFactors

AXIS_SIZES = {"x": 2, "y": 4, "z": 3, "w": 3, "u": 6}
"""The axes of the mesh, whose names have one letter."""


def factor_rule(
    tensors: str, *, replicate: str = "", permute: str = "", reduce: str = "", **sizes: int
) -> FactorRule:
    """Return the rule of an operation such as `i k, k j -> i j`, with the size of each factor.

    A dimension `ij` maps to two factors.
    """
    kinds = {
        **dict.fromkeys(replicate, FactorKind.REPLICATE),
        **dict.fromkeys(permute, FactorKind.PERMUTE),
        **dict.fromkeys(reduce, FactorKind.REDUCE),
    }
    factors = tuple(Factor(size, kinds.get(name, FactorKind.PASS)) for name, size in sizes.items())
    numbers = {name: number for number, name in enumerate(sizes)}

    def mappings(side: str) -> tuple[TensorFactors, ...]:
        return tuple(
            tuple(tuple(numbers[name] for name in dim) for dim in tensor.split())
            for tensor in side.split(",")
        )

    operands, _, results = tensors.partition("->")
    return FactorRule(mappings(operands), mappings(results), factors)


def shardings(texts: Sequence[str]) -> tuple[Sharding, ...]:
    """Return shardings such as `xy -`, a text for each dimension, without open dimensions."""
    return tuple(
        Sharding("m", tuple(DimSharding(_axes(dim), open=False) for dim in text.split()))
        for text in texts
    )


def _axes(text: str) -> Axes:
    """Return axes such as `x`, or `y:(1)2`, a part of an axis."""
    found = re.findall(r"([a-z])(?::\((\d+)\)(\d+))?", text)
    return tuple(
        Axis(name, int(pre or 1), int(size or AXIS_SIZES[name])) for name, pre, size in found
    )


def format_axes(axes: Sequence[Axes]) -> str:
    """Return the axes of factors or dimensions as `shardings` takes them."""
    return " ".join("".join(map(_format_axis, each)) or "-" for each in axes)


def _format_axis(axis: Axis) -> str:
    return axis.name if axis.size == AXIS_SIZES[axis.name] else str(axis)
