"""Edges between a manual computation and its body, where the types of the tensors differ.

A parameter or returned value of the body has the type of the local shard along the manual axes; its
sharding does not have these axes. For the comparison with the operand or the result, both have the
type and the sharding of the tensor outside of the body.
"""

from typing import NamedTuple

from shardir.ir.types import TensorType
from shardir.ops.control_flow.manual_computation import ManualDimAxes, manual_computation
from shardir.passes.propagation.record import PropagationStep


class ManualEdge(NamedTuple):
    """The number of the tensor outside of the body, and the manual axes that shard its
    dimensions."""

    outer: int
    dim_axes: ManualDimAxes


def manual_edge(step: PropagationStep) -> ManualEdge | None:
    """Return the edge of a manual computation; `None` for other steps."""
    op = step.op
    if op is None or op.spec is not manual_computation:
        return None
    assert step.edge is not None  # A manual computation has no factors of its own.
    owner, params = step.edge.targets[0], op.blocks[0].params
    if owner in params:
        return ManualEdge(0, op.attrs["in_axes"][params.index(owner)])
    return ManualEdge(1, op.attrs["out_axes"][op.results.index(owner)])


def tensor_types(step: PropagationStep) -> tuple[TensorType, ...]:
    """Return the types of the tensors of a step, all of them outside of a manual computation."""
    types = tuple([value.type for value in step.tensors])
    edge = manual_edge(step)
    return types if edge is None else (types[edge.outer],) * len(types)
