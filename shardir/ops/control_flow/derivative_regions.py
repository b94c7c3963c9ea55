"""Regions with derivative rules: checkpoint, custom JVP and custom VJP.

Each operation applies its first block to the operands. The rest of it concerns derivatives only, so
it is removed from programs that will not be differentiated (`shardir.passes.simplify.inline`). A
rule is a function of the user, which is traced when a derivative needs it; `rule` is its name. A
traced rule is stored in blocks of the operation, which text can also contain.

The last `closed` operands are values that the first block captured; they have no tangents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shardir.ir.attributes import Attributes
from shardir.ir.host_function import host_function_of
from shardir.ir.module import Block, DataFlowEdge, Op
from shardir.ir.operation import NOT_VARYING, Varying, define_op
from shardir.ir.sharding import Axis
from shardir.ir.types import INEXACT, TensorType
from shardir.ops.control_flow.block_types import Types, check_types, only_block, types_of


def _primal_types(operands: Types, block: Block) -> Types:
    """Return the types of the results of the first block."""
    check_types("its block takes", block.params, operands)
    return types_of(block.returns)


@dataclass(frozen=True, slots=True)
class CheckpointAttributes(Attributes):
    """The attributes of a checkpoint."""

    save: tuple[str, ...] = ()
    barrier: bool = True
    batching: str = ""


@dataclass(frozen=True, slots=True)
class CustomDerivativeAttributes(Attributes):
    """The attributes of a custom JVP or VJP: the name of its rule, and its captured operands."""

    rule: str
    closed: int = 0


@dataclass(frozen=True)
class DerivativeRule:
    """A rule of the user that is not traced yet, and the names that errors use."""

    trace: Callable[[Sequence[bool]], tuple[Block, ...]]
    """Returns the blocks of the rule; the flags state which operands are differentiated."""
    argument_names: tuple[str, ...]
    axis_names: Mapping[Axis, str]
    sums_gradients: bool = False
    """True if a gradient that varies along more manual axes than its argument is a contribution of
    each device to a sum. It is false for rules of users, which may have computed the sum."""
    argument_axes: tuple[Varying, ...] = ()
    """The manual axes along which each argument of the call varies. The program no longer has the
    `vary` operations of the user when it is differentiated outside of the manual computation."""

    def __call__(self, differentiated: Sequence[bool]) -> tuple[Block, ...]:
        return self.trace(differentiated)


def derivative_rule_of(op: Op) -> DerivativeRule | None:
    """Return the rule of an operation; `None` if its blocks are present, or only its name is."""
    rule = host_function_of(op.attrs["rule"])
    return rule if isinstance(rule, DerivativeRule) else None


def argument_axes_of(op: Op) -> tuple[Varying, ...]:
    """Return the manual axes along which each operand varied in the call, if they are known."""
    rule = derivative_rule_of(op) if op.spec in (custom_jvp, custom_vjp) else None
    known = rule.argument_axes if rule is not None else ()
    return (*known, *(NOT_VARYING for _ in op.operands[len(known) :]))


def _checkpoint_type(
    *operands: TensorType,
    result: object,
    blocks: tuple[Block, ...],
    attributes: CheckpointAttributes,
) -> Types:
    return _primal_types(operands, only_block(blocks))


def block_edges(op: Op) -> tuple[DataFlowEdge, ...]:
    """Return the data flow edges of an operation that runs its first block once."""
    block = op.blocks[0]
    param_edges = [
        DataFlowEdge((x,), (param,)) for x, param in zip(op.operands, block.params, strict=True)
    ]
    results = [
        DataFlowEdge((y,), (result,)) for y, result in zip(block.returns, op.results, strict=True)
    ]
    return (*param_edges, *results)


checkpoint = define_op(
    "checkpoint",
    attributes=CheckpointAttributes,
    type=_checkpoint_type,
    edges=block_edges,
    blocks=1,
)
"""The block; its gradient recomputes its intermediate values except those that `save` names.

`save` contains `everything`, `dots`, `dots-without-batch`, `name=...` for a name of
`checkpoint-name`, `unnamed`, or the name of a user's policy. Without `barrier` the compiler may
merge the recomputation with the original computation. `batching` names a user's function that
defines how the block is batched; without it, or with only its name, batching follows from the
block.
"""


def _differentiable(types: Types) -> Types:
    return tuple(type for type in types if type.dtype in INEXACT)


def _custom_jvp_type(
    *operands: TensorType,
    result: object,
    blocks: tuple[Block, ...],
    attributes: CustomDerivativeAttributes,
) -> Types:
    if len(blocks) > 2:
        raise TypeError(f"has one block and one for its rule, got {len(blocks)}")
    results = _primal_types(operands, blocks[0])
    if len(blocks) == 2:
        moving = _differentiable(operands[: len(operands) - attributes.closed])
        check_types("its rule takes", blocks[1].params, (*operands, *moving))
        check_types("its rule gives", blocks[1].returns, (*results, *_differentiable(results)))
    return results


custom_jvp = define_op(
    "custom-jvp",
    attributes=CustomDerivativeAttributes,
    type=_custom_jvp_type,
    edges=block_edges,
    blocks=-1,
)
"""The first block; the second is (operands..., tangents...) -> (results..., tangents...).

Operands that are not floating-point or complex, or that are captured, have no tangent.
"""


def _custom_vjp_type(
    *operands: TensorType,
    result: object,
    blocks: tuple[Block, ...],
    attributes: CustomDerivativeAttributes,
) -> Types:
    if len(blocks) not in (1, 3):
        raise TypeError(f"has one block and two for its rule, got {len(blocks)}")
    results = _primal_types(operands, blocks[0])
    if len(blocks) == 3:
        ahead, back = blocks[1:]
        count = len(operands) - attributes.closed
        given, residuals = ahead.returns[: len(results)], ahead.returns[len(results) :]
        check_types("its forward rule takes", ahead.params, operands)
        check_types("its forward rule gives", given, results)
        expected = (*types_of(residuals), *_differentiable(results), *operands[count:])
        check_types("its backward rule takes", back.params, expected)
        check_types("its backward rule gives", back.returns, _differentiable(operands[:count]))
    return results


custom_vjp = define_op(
    "custom-vjp",
    attributes=CustomDerivativeAttributes,
    type=_custom_vjp_type,
    edges=block_edges,
    blocks=-1,
)
"""The first block; the second is (operands...) -> (results..., residuals...), and the third is
(residuals..., cotangents..., closed...) -> (gradients...).

Values that are not floating-point or complex have no cotangent and no gradient.
"""

REGIONS = (checkpoint, custom_jvp, custom_vjp)
