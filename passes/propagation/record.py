"""Record of propagation: what happened, and why an axis did not propagate further.

A step is a visit of one operation that changed a sharding. It records which axes each tensor
gained, along which factor, from which tensor; and each axis that stopped, with one reason.
Recording is off unless a `PropagationRecord` is given: propagation memoizes steps, so the same
events serve all operations with equal rules and shardings.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from shardir.ir.module import DataFlowEdge, Function, Op, Value
from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.op_rules.factors import FactorRule

if TYPE_CHECKING:
    from shardir.passes.propagation.priorities import FactorDirections


class RefusalReason(Enum):
    """Why an axis does not shard a dimension.

    Every point at which the algorithm stops is one of these; the last five apply where propagation
    was never attempted.
    """

    NO_RULE = "the operation has no factor rule"
    MESHES = "the tensors are on different meshes"
    SINGLE_DEVICE = "the tensors are on a single device"
    BLOCKED = "the operation does not propagate axes along this factor"
    DIRECTION = "axes do not propagate in this direction in this round"
    PRIORITY = "the dimension has a later priority"
    DISAGREE = "the tensors are sharded differently along this factor"
    USED = "the axis already shards the tensor along another factor"
    LOST = "another factor took the axis in the same step"
    REPLICATED = "the tensor is explicitly replicated over the axis"
    UNREDUCED = "the tensor is unreduced over the axis"
    CLOSED = "the dimension is closed"
    OVERFLOW = "an axis before it shards the dimension unevenly"
    SPILL = "the axis shards a dimension across the boundary of two factors"
    UNEVEN = "the axis does not divide the factor, which is not the last of its dimension"
    RESULT = "the result does not take the axis, and the operation is elementwise"
    STRIDED = "a factor before it in the dimension is not fully sharded"
    BEHIND = "an axis before it in the list was refused"
    INDIVISIBLE = "the axis does not divide a dimension of an argument or a result"
    SPLIT = "only a part of the axis can propagate, and propagation is conservative"
    PART = "open dimensions of arguments and results are sharded over complete axes only"
    MANUAL = "the axis is manual in the enclosing computation, where tensors are local along it"
    UNIT = "the axis has size 1 and shards nothing"
    SCALAR = "the tensor is a scalar"
    UNSTATED = "no annotation states the axis"
    UNCONNECTED = "no factor connects the value with a dimension that the axis shards"


@dataclass(frozen=True, slots=True)
class Gain:
    """`axes` are all that now shard tensor number `tensor` along `factor`.

    Tensors are numbered operands first, then results. `source` is the tensor that the axes came
    from.
    """

    factor: int
    tensor: int
    axes: Axes
    source: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """`axis` was not added along `factor` because of tensor number `tensor`."""

    factor: int
    tensor: int
    axis: Axis
    reason: RefusalReason


Refuse = Callable[[int, int, Axis, RefusalReason], None]
"""Called with a factor, a tensor, an axis and the reason why it stopped there."""


@dataclass(frozen=True, slots=True)
class PropagationStep:
    """One visit of an operation, or of one of its edges.

    `op` is `None` for the connection of a function result with the returned value. `before` and
    `after` correspond to `tensors`, and so do `cells`, which hold their shardings (those of
    function results are numbered from -1 downwards). `directions` are those of the factors of
    `rule`, to which `gains` and `refusals` refer.
    """

    op: Op | None
    edge: DataFlowEdge | None
    priority: int
    round: int
    rule: FactorRule
    directions: "FactorDirections"
    tensors: tuple[Value, ...]
    cells: tuple[int, ...]
    before: tuple[Sharding | None, ...]
    after: tuple[Sharding | None, ...]
    gains: tuple[Gain, ...]
    refusals: tuple[Refusal, ...]


@dataclass(frozen=True, slots=True)
class StatedSharding:
    """A sharding that the program states, as far as propagation considers it.

    `value` is the annotated value, `None` for a function result; `constraint` is the operation that
    states it if the value itself does not.
    """

    cell: int
    sharding: Sharding
    value: Value | None
    constraint: Op | None = None


@dataclass(slots=True)
class PropagationHistory:
    """The history of one propagation of one function.

    Its operations and values are those of the prepared function: with constants duplicated and
    constraints applied, before shardings are written.
    """

    function: Function
    """The original function."""
    cells: dict[Value, int] = field(default_factory=dict)
    """The cell of each value; values that an edge connects share a cell."""
    stated: list[StatedSharding] = field(default_factory=list)
    steps: list[PropagationStep] = field(default_factory=list)
    """The visits that changed a sharding, in order."""
    final_visits: list[PropagationStep] = field(default_factory=list)
    """A final visit of every operation, with the axes that it still refuses."""
    impassable: list[Op] = field(default_factory=list)
    """Operations through which axes cannot propagate."""
    final: dict[int, Sharding | None] = field(default_factory=dict)
    """The final sharding of each cell."""
    written: dict[Value, Value] = field(default_factory=dict)
    """The value of the propagated function for each value."""


@dataclass(slots=True)
class PropagationRecord:
    """The history of one propagation of a module, by function."""

    histories: dict[str, PropagationHistory] = field(default_factory=dict)
