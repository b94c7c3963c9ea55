"""Control flow: operations with blocks.

Blocks may use values of the enclosing blocks; such captured values are loop-invariant and not
operands. `shardir.interpret.interpreter` defines the semantics, and
`shardir.passes.autodiff.vjp` the gradients.

A data flow edge connects the values of one variable at different times, which should have one
sharding: values flow from `sources` to `targets`. In a scan, the slice of a stacked operand is a
parameter of the body, and a result of the body is a slice of a stacked result; a stacked value has
one additional leading dimension.
"""

from dataclasses import dataclass

from shardir.errors import count_noun
from shardir.ir.attributes import Attributes
from shardir.ir.module import Block, DataFlowEdge, Op
from shardir.ir.operation import define_op
from shardir.ir.types import TensorType
from shardir.ops.control_flow.block_types import Types, check_types, only_block, types_of


def _while_type(*inits: TensorType, result: object, blocks: tuple[Block, ...]) -> Types:
    if len(blocks) != 2:
        raise TypeError(f"has two blocks, a condition and a body, got {len(blocks)}")
    condition, body = blocks
    check_types("its condition takes", condition.params, inits)
    check_types("its condition returns", condition.returns, [TensorType((), "bool")])
    check_types("its body takes", body.params, inits)
    check_types("its body returns", body.returns, inits)
    return inits


def _while_edges(op: Op) -> tuple[DataFlowEdge, ...]:
    condition, body = op.blocks
    return tuple(
        DataFlowEdge(
            (op.operands[i], body.returns[i]), (result, condition.params[i], body.params[i])
        )
        for i, result in enumerate(op.results)
    )


while_ = define_op("while", type=_while_type, edges=_while_edges, blocks=2)
"""Apply the body to the carried values while the condition is true."""


@dataclass(frozen=True, slots=True)
class LoopAttributes(Attributes):
    """The attributes of a scan."""

    carries: int
    length: int
    reverse: bool = False


def _scan_type(
    *operands: TensorType, result: object, blocks: tuple[Block, ...], attributes: LoopAttributes
) -> Types:
    carries, length = attributes.carries, attributes.length
    body = only_block(blocks)
    if length < 0:
        raise TypeError(f"length={length} must be at least 0")
    if not 0 <= carries <= len(operands):
        raise TypeError(
            f"carries={carries} is not within its {count_noun(len(operands), 'operand')}"
        )
    inits, stacked = operands[:carries], operands[carries:]
    for x in stacked:
        if x.rank == 0 or x.shape[0] != length:
            raise TypeError(f"takes slices of {x}, whose first dimension is not length={length}")
    check_types(
        "its body takes", body.params, (*inits, *(x.with_shape(x.shape[1:]) for x in stacked))
    )
    check_types("its body carries on", body.returns[:carries], inits)
    outs = (value.type for value in body.returns[carries:])
    return (*inits, *(y.with_shape((length, *y.shape)) for y in outs))


def _scan_edges(op: Op) -> tuple[DataFlowEdge, ...]:
    """Return the edges of carried values, of stacked operands, and of stacked results.

    Body parameters own the edges of stacked operands; results own the other edges.
    """
    (body,) = op.blocks
    n = LoopAttributes.of(op).carries
    carried = [
        DataFlowEdge((op.operands[i], body.returns[i]), (op.results[i], body.params[i]))
        for i in range(n)
    ]
    taken = [
        DataFlowEdge((x,), (param,), stacked=(x,))
        for x, param in zip(op.operands[n:], body.params[n:], strict=True)
    ]
    results = [
        DataFlowEdge((value,), (result,), stacked=(result,))
        for value, result in zip(body.returns[n:], op.results[n:], strict=True)
    ]
    return (*carried, *taken, *results)


scan = define_op("scan", attributes=LoopAttributes, type=_scan_type, edges=_scan_edges, blocks=1)
"""Apply the body `length` times, from the last slice to the first if `reverse`.

The first `carries` operands are carried between iterations; the others are sliced along
their first dimension. The body returns the carried values, followed by slices of the stacked
results for the current position.
"""


def _case_type(index: TensorType, *rest: TensorType, result: object, blocks: tuple[Block, ...]
               ) -> Types:  # fmt: skip
    if rest:
        raise TypeError("takes only the index; its branches use other values directly")
    if index.rank or index.dtype not in ("bool", "i32"):
        raise TypeError(f"its index is i32[] or bool[], got {index}")
    if not blocks:
        raise TypeError("needs at least one branch")
    if index.dtype == "bool" and len(blocks) != 2:
        raise TypeError(f"a bool chooses between two branches, got {len(blocks)}")
    types = types_of(blocks[0].returns)
    for number, branch in enumerate(blocks):
        if branch.params:
            raise TypeError(f"its branches take no parameters, branch {number} takes some")
        if number:
            check_types(f"branch {number} returns", branch.returns, types)
    return types


def _case_edges(op: Op) -> tuple[DataFlowEdge, ...]:
    return tuple(
        DataFlowEdge(tuple(branch.returns[i] for branch in op.blocks), (result,))
        for i, result in enumerate(op.results)
    )


case = define_op("case", type=_case_type, edges=_case_edges, blocks=-1)
"""Execute the branch with the number `index` (0 and 1 for false and true), or the last one if
`index` is out of range.
"""
