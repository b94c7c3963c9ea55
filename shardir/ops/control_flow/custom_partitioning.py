"""Calls of functions for which the user states the program that each device runs.

Such a call has a factor rule, with which shardings propagate, and two host functions:
`function` returns the block that computes the results from whole operands, and `partition` traces
the program of one device, when the shardings are known. Neither has a text, so a program that was
parsed from text can be propagated and cannot run.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from shardir.errors import PartitionError
from shardir.ir.arithmetic import FIXED_DTYPES
from shardir.ir.attributes import Attributes
from shardir.ir.host_function import absent_function_message, host_function_of
from shardir.ir.module import Block, Op
from shardir.ir.operation import Partitioning, Result, define_op
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.factor_rule_text import parse_rule
from shardir.op_rules.factors import FactorRule
from shardir.op_rules.partitioning import factors_without_replicated


@dataclass(frozen=True)
class DeviceProgram:
    """The program that each device runs for a call.

    `block` computes the shards of the results from those of the operands; both have the given
    shardings, whose shards have equal sizes.
    """

    block: Block
    operands: tuple[Sharding, ...]
    results: tuple[Sharding, ...]


@dataclass(frozen=True, slots=True)
class CustomPartitioningAttributes(Attributes):
    """The names of the host functions of a call, and the text of its factor rule."""

    function: str
    partition: str
    factor_rule: str


def _type(*xs: TensorType, result: Result, attributes: CustomPartitioningAttributes) -> object:
    if attributes.factor_rule:
        parse_rule(attributes.factor_rule)
    if result is None:
        raise TypeError("its result types are not determined; state them with result=")
    return result


@lru_cache(maxsize=1 << 10)
def _complete_rule(rule: str) -> FactorRule:
    """Return the rule of complete results: the program of a device adds partial sums itself."""
    return replace(parse_rule(rule), reduction=None)


def _factors(
    *_: TensorType, result: Result, attributes: CustomPartitioningAttributes
) -> FactorRule | None:
    return _complete_rule(attributes.factor_rule) if attributes.factor_rule else None


def _no_uneven_factors(*_: object, **__: object) -> Iterable[int]:
    return ()


custom_partitioning = define_op(
    "custom-partitioning",
    attributes=CustomPartitioningAttributes,
    type=_type,
    factors=_factors,
    partition=Partitioning(shardable=factors_without_replicated, uneven=_no_uneven_factors),
    arithmetic=FIXED_DTYPES,
)
"""Compute `function` of the operands; on a mesh, each device runs the program that `partition`
returns. `factor_rule` is the text of the factor rule; it is empty until the mesh is known if it
depends on the mesh."""


def body_of(op: Op) -> Block:
    """Return the block that computes the results of a call from whole operands."""
    block: Block = _host_function(op, "function")()
    return block


def device_program_of(op: Op) -> DeviceProgram:
    """Return the program that each device runs, for the shardings of the tensors of a call."""
    program: DeviceProgram = _host_function(op, "partition")(
        [value.sharding for value in op.operands], [value.sharding for value in op.results]
    )
    return program


def _host_function(op: Op, attribute: str) -> Callable[..., Any]:
    function = host_function_of(op.attrs[attribute])
    if function is None:
        raise PartitionError(absent_function_message(op.attrs[attribute]))
    return function
