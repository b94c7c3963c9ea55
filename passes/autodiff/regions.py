"""Inline regions and the blocks of their derivative rules.

A value has one definition in a function, so a block that is used once moves to the position of its
operation without a copy. The blocks of a rule are copied, because the rule may be used again.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.errors import DifferentiateError
from shardir.ir.builder import Builder, UniqueNames, copy_op, substitute
from shardir.ir.host_function import host_function_of
from shardir.ir.module import Block, Op, Value
from shardir.ops.shape.rearrangements import reshape
from shardir.passes.autodiff.pullback import error


def inline_region(op: Op) -> tuple[Op, ...]:
    """Return the operations of the first block of a region, to take the place of the region."""
    ops, _ = inline_block(op.blocks[0], op.operands, op.results, op)
    return ops


def inline_block(
    block: Block, args: Sequence[Value], results: Sequence[Value], op: Op
) -> tuple[tuple[Op, ...], dict[Value, Value]]:
    """Inline a block that has no other use at the position of a region.

    Returns operations that compute `results`, the first values that the block returns, from `args`;
    and a mapping from values of the block to their replacements.
    """
    new = dict(zip(block.params, args, strict=True))
    free = {v for inner in block.ops for v in inner.results if v.sharding is None}
    same: list[tuple[Value, Value]] = []
    for value, result in zip(block.returns, results, strict=False):
        if value in free:
            free.remove(value)
            new[value] = result
        else:
            same.append((value, result))
    ops = substitute(Block((), block.ops, ()), new).ops
    more = [
        Op(reshape, (new.get(value, value),), (result,), {}, (), op.loc, "a result of its own")
        for value, result in same
    ]
    return (*ops, *more), new


def split_by_dependence(ops: Sequence[Op], starts: Sequence[Value]) -> tuple[list[Op], list[Op]]:
    """Split operations into those that do not depend on `starts` and those that do."""
    dependent, independent_ops, dependent_ops = set(starts), list[Op](), list[Op]()
    for op in ops:
        if any(value in dependent for value in op.uses()):
            dependent_ops.append(op)
            dependent.update(op.results)
        else:
            independent_ops.append(op)
    return independent_ops, dependent_ops


def copy_block(block: Block, names: UniqueNames) -> Block:
    """Return a copy of the block that defines new values."""
    new = {param: replace(param, name=names.fresh(param.name)) for param in block.params}
    ops = tuple(copy_op(op, new, names) for op in block.ops)
    params = tuple(new[param] for param in block.params)
    return Block(params, ops, tuple(new.get(v, v) for v in block.returns))


def instantiate_rule(op: Op, b: Builder, active: Sequence[bool]) -> tuple[Block, ...]:
    """Return copies of the blocks of a region's rule, which is traced first if necessary.

    `active` states for each operand whether its derivative is needed: a rule need not compute the
    others, and a rule without a derivative by an operand is valid where that derivative is not
    needed. The blocks take a tangent, or return a cotangent, for each operand that can have one.

    Raises `DifferentiateError` if the region has only the name of its rule.
    """
    blocks = op.blocks[1:]
    if not blocks:
        trace = host_function_of(op.attrs["rule"])
        if trace is None:
            raise error(
                f"%{op.results[0].name} = {op.name} has the derivative {op.attrs['rule']!r}, but "
                "the text holds only its name; add the blocks of the rule",
                op,
            )
        blocks = trace(tuple(active))
    return tuple(copy_block(block, b.names) for block in blocks)


def check_closed(op: Op, active: Sequence[bool]) -> None:
    """Raise `DifferentiateError` if a derivative by a value is needed that the region closes
    over."""
    count = len(op.operands) - op.attrs.get("closed", 0)
    for value, is_active in list(zip(op.operands, active, strict=True))[count:]:
        if is_active:
            raise closed_over_error(op, value)


def closed_over_error(op: Op, value: Value) -> DifferentiateError:
    """Return the error for a derivative by a value that a custom rule closes over."""
    return error(
        f"{op.attrs['rule']} has a custom derivative and closes over %{value.name}: {value.type}, "
        "whose derivative is needed too; pass it as an argument",
        op,
    )
