"""Parts of a program that say how they are differentiated.

Each is its first block, applied to the operands. What it says more is for derivatives only, so a
program that will not be differentiated any more has no use for them (`shardir.passes.inline`).

A rule is a function of the user's, which is traced when a derivative asks for it; `rule` has its
name. Once traced it is in blocks of the operation, and so it can be in a text from the start.
The last `closed` operands are values that the first block used from outside: they do not move.
"""

from shardir.ir import Block, Edge, Op
from shardir.opset import define
from shardir.types import INEXACT, TensorType

Types = tuple[TensorType, ...]


def _listed(types: Types) -> str:
    return ", ".join(map(str, types))


def _primal(operands: Types, blocks: tuple[Block, ...]) -> Types:
    """The types of the results, by the first block."""
    takes = tuple(value.type for value in blocks[0].params)
    if takes != operands:
        raise TypeError(f"its block takes ({_listed(takes)}), wanted ({_listed(operands)})")
    return tuple(value.type for value in blocks[0].returns)


def _check(what: str, values: tuple[TensorType, ...], wanted: Types) -> None:
    if values != wanted:
        raise TypeError(f"{what} ({_listed(values)}), wanted ({_listed(wanted)})")


def _checkpoint_type(
    *operands: TensorType,
    result: object,
    blocks: tuple[Block, ...],
    save: tuple[str, ...] = (),
    barrier: bool = True,
    batching: str = "",
) -> Types:
    if len(blocks) != 1:
        raise TypeError(f"has one block, got {len(blocks)}")
    return _primal(operands, blocks)


def block_edges(op: Op) -> tuple[Edge, ...]:
    """How values flow through the first block of an operation that runs it once."""
    block = op.blocks[0]
    given = [Edge((x,), (param,)) for x, param in zip(op.operands, block.params, strict=True)]
    made = [Edge((y,), (result,)) for y, result in zip(block.returns, op.results, strict=True)]
    return (*given, *made)


checkpoint = define("checkpoint", type=_checkpoint_type, edges=block_edges, blocks=1)
"""The block; its gradient computes again what it needs of it, but for what `save` names.

`save` has `everything`, `dots`, `dots-without-batch`, `name=...` for what `checkpoint-name` named
so, `unnamed`, or the name of a policy of the user's. Without `barrier` the compiler may find that
it computes things twice, and do so once. `batching` names a function of the user's that says how
the block is mapped; where there is none, or only its name, that follows from the block.
"""


def _moving(types: Types) -> Types:
    return tuple(type for type in types if type.dtype in INEXACT)


def _custom_jvp_type(
    *operands: TensorType, result: object, blocks: tuple[Block, ...], rule: str, closed: int = 0
) -> Types:
    if len(blocks) > 2:
        raise TypeError(f"has one block and one for its rule, got {len(blocks)}")
    results = _primal(operands, blocks)
    if len(blocks) == 2:
        takes = tuple(value.type for value in blocks[1].params)
        gives = tuple(value.type for value in blocks[1].returns)
        moving = _moving(operands[: len(operands) - closed])
        _check("its rule takes", takes, (*operands, *moving))
        _check("its rule gives", gives, (*results, *_moving(results)))
    return results


custom_jvp = define("custom-jvp", type=_custom_jvp_type, edges=block_edges, blocks=-1)
"""The first block; the second is (operands..., tangents...) -> (results..., tangents...).

What is no floating or complex number, or closed over, has no tangent.
"""


def _custom_vjp_type(
    *operands: TensorType, result: object, blocks: tuple[Block, ...], rule: str, closed: int = 0
) -> Types:
    if len(blocks) not in (1, 3):
        raise TypeError(f"has one block and two for its rule, got {len(blocks)}")
    results = _primal(operands, blocks)
    if len(blocks) == 3:
        ahead, back = blocks[1:]
        count = len(operands) - closed
        takes = tuple(value.type for value in ahead.params)
        gives = tuple(value.type for value in ahead.returns)
        _check("its way forward takes", takes, operands)
        _check("its way forward gives", gives[: len(results)], results)
        wanted = (*gives[len(results) :], *_moving(results), *operands[count:])
        _check("its way back takes", tuple(value.type for value in back.params), wanted)
        gradients = tuple(value.type for value in back.returns)
        _check("its way back gives", gradients, _moving(operands[:count]))
    return results


custom_vjp = define("custom-vjp", type=_custom_vjp_type, edges=block_edges, blocks=-1)
"""The first block; the second is (operands...) -> (results..., residuals...), and the third
(residuals..., cotangents..., closed...) -> (gradients...).

What is no floating or complex number has no cotangent and no gradient.
"""

REGIONS = (checkpoint, custom_jvp, custom_vjp)
