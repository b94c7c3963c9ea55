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
from shardir.ir import Edge, Function, Op, Value
from shardir.passes.propagation.directions import Directions
from shardir.placement import Axes, Axis, Sharding


class Reason(Enum):
    """Why an axis is not where it could be.

    Every place where the algorithm gives up is one of these; the last five are what is left when
    it never came to trying.
    """

    NO_RULE = "the operation has no factor rule"
    MESHES = "the tensors are on different meshes"
    SINGLE_DEVICE = "the tensors are on a single device"
    BLOCKED = "the operation does not let cuts through along this factor"
    DIRECTION = "cuts may not move this way in this round"
    PRIORITY = "the dimension that is to have it has a later priority"
    DISAGREE = "the tensors are cut differently along this factor"
    USED = "the axis already cuts the tensor along another factor"
    LOST = "another factor took the axis in the same step"
    REPLICATED = "the tensor is explicitly replicated over the axis"
    UNREDUCED = "the tensor is a pending sum over the axis"
    CLOSED = "the dimension is closed"
    OVERFLOW = "the dimension is cut unevenly by an axis before it"
    SPILL = "it cuts a dimension across the border of two factors, and so along neither"
    UNEVEN = "the axis does not divide the factor, which is not the last of its dimension"
    RESULT = "the result does not take the axis, and the operation is elementwise"
    STRIDED = "a factor before it in the dimension is not cut all the way"
    BEHIND = "an axis that comes before it in the list was refused"
    INDIVISIBLE = "the axis does not divide a dimension of an argument or a result"
    PART = "arguments and results that are free are cut along whole axes only"
    MANUAL = "it is a manual axis of the computation around, where tensors are pieces along it"
    UNIT = "the axis has one position, and so cuts nothing"
    SCALAR = "the tensor has no dimension to cut"
    UNASKED = "no annotation asks for it"
    APART = "no loop leads here from where it is"


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
    `after` are in step with `tensors`, and so are `cells`, where their shardings are kept (those
    of results of the function are counted down from -1). `directions` are those of the factors
    of `rule`, which `gains` and `refusals` are about.
    """

    op: Op | None
    edge: Edge | None
    priority: int
    round: int
    rule: FactorRule
    directions: Directions
    tensors: tuple[Value, ...]
    cells: tuple[int, ...]
    before: tuple[Sharding | None, ...]
    after: tuple[Sharding | None, ...]
    gains: tuple[Gain, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """A sharding that the program states, as far as propagation goes by it.

    `value` is what it is said of, `None` for a result of the function; `constraint` the operation
    that said it where it was not the value itself.
    """

    cell: int
    sharding: Sharding
    value: Value | None
    constraint: Op | None = None


@dataclass(slots=True)
class Story:
    """Everything that one run of propagation did to one function.

    The operations and values in it are those of the function as it was propagated through: with
    constants split and constraints applied, before shardings were written on the values.
    """

    function: Function
    """The function as it came."""
    cells: dict[Value, int] = field(default_factory=dict)
    """Where the sharding of each value is kept; values that an edge connects share a cell."""
    said: list[Said] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    """What changed something, in order."""
    standing: list[Step] = field(default_factory=list)
    """Every operation as it is in the end, with the axes that it still refuses."""
    mute: list[Op] = field(default_factory=list)
    """Operations that cuts cannot pass at all."""
    final: dict[int, Sharding | None] = field(default_factory=dict)
    """The sharding of each cell in the end."""
    written: dict[Value, Value] = field(default_factory=dict)
    """What each value became in the propagated function."""


@dataclass(slots=True)
class Record:
    """What one run of propagation did, by function."""

    stories: dict[str, Story] = field(default_factory=dict)
