"""What happened during propagation, and why something did not.

A step is one operation that was looked at and changed something. It keeps what each tensor
gained, along which factor, from which tensor; and each axis that stopped somewhere, with the one
reason. Recording is off unless a `Record` is given: propagation memoises whole steps, so the
same events serve every operation of one shape.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from shardir.factors import FactorRule
from shardir.ir import Edge, Op, Value
from shardir.placement import Axes, Axis, Sharding


class Reason(Enum):
    """Why an axis was not propagated. Every place where the algorithm gives up is one of these."""

    NO_RULE = "the operation has no factor rule"
    MESHES = "the tensors are on different meshes"
    SINGLE_DEVICE = "the tensors are on a single device"
    BLOCKED = "the operation does not let cuts through along this factor"
    DIRECTION = "cuts may not move this way at this priority"
    DISAGREE = "the tensors are already cut differently along this factor"
    USED = "the axis already cuts the tensor along another factor"
    LOST = "another factor took the axis in the same step"
    REPLICATED = "the tensor is explicitly replicated over the axis"
    UNREDUCED = "the tensor is a pending sum over the axis"
    CLOSED = "the dimension is closed"
    OVERFLOW = "the dimension is cut unevenly by an axis before it"
    UNEVEN = "the axis does not divide the factor, which is not the last of its dimension"
    RESULT = "the result does not take the axis, and the operation is elementwise"
    STRIDED = "a factor before it in the dimension is not cut all the way"


@dataclass(frozen=True, slots=True)
class Gain:
    """`axes` are all that now cut tensor number `tensor` along `factor`.

    Tensors are counted operands first, then results. `source` is the tensor they came from.
    """

    factor: int
    tensor: int
    axes: Axes
    source: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """`axis` could not be had along `factor` because of tensor number `tensor`."""

    factor: int
    tensor: int
    axis: Axis
    reason: Reason


Refuse = Callable[[int, int, Axis, Reason], None]
"""Called with a factor, a tensor, an axis and why it stopped there."""


@dataclass(frozen=True, slots=True)
class Step:
    """One look at an operation, or at one edge of it.

    `op` is `None` where a result of the function and the value it returns meet. `before` and
    `after` are in step with `tensors`; `gains` and `refusals` are about the factors of `rule`.
    """

    function: str
    op: Op | None
    edge: Edge | None
    priority: int
    round: int
    rule: FactorRule
    tensors: tuple[Value, ...]
    before: tuple[Sharding | None, ...]
    after: tuple[Sharding | None, ...]
    gains: tuple[Gain, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """An operation that cuts cannot pass at all."""

    function: str
    op: Op
    reason: Reason


@dataclass(slots=True)
class Record:
    """Everything that one run of propagation did.

    The operations and values in it are those of the functions as they were propagated through:
    with constants split and constraints applied, before shardings were written on the values.
    """

    steps: list[Step] = field(default_factory=list)
    """What changed something, in order."""
    standing: list[Step] = field(default_factory=list)
    """Every operation at the end that still refuses an axis."""
    stops: list[Stop] = field(default_factory=list)
    written: dict[Value, Value] = field(default_factory=dict)
    """What each value became in the propagated module."""
