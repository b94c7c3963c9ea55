"""Regions taken apart: their blocks in their places, and the blocks of their rules.

Values of a block have one definition in the function, so a block that is used once goes where its
operation was without any copy. What a rule says is copied, because it may be used again.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir.build import Builder, Names, copied, substitute
from shardir.errors import DifferentiateError
from shardir.hosted import function_of
from shardir.ir import Block, Op, Value
from shardir.ops.shape import reshape
from shardir.passes.pullback import error


def opened(op: Op) -> tuple[Op, ...]:
    """The first block of a region, in the place of the region."""
    ops, _ = landed(op.blocks[0], op.operands, op.results, op)
    return ops


def landed(
    block: Block, args: Sequence[Value], results: Sequence[Value], op: Op
) -> tuple[tuple[Op, ...], dict[Value, Value]]:
    """A block that is used here and nowhere else, in the place of a region.

    Returns operations that make `results`, the first values that it returns, of `args`; and what
    stands for values of the block, where that is another.
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


def parted(ops: Sequence[Op], starts: Sequence[Value]) -> tuple[list[Op], list[Op]]:
    """The operations that do not depend on `starts`, and those that do."""
    moving, still, moved = set(starts), list[Op](), list[Op]()
    for op in ops:
        if any(value in moving for value in op.uses()):
            moved.append(op)
            moving.update(op.results)
        else:
            still.append(op)
    return still, moved


def copy_of(block: Block, names: Names) -> Block:
    """The block with values of its own."""
    new = {param: replace(param, name=names.fresh(param.name)) for param in block.params}
    ops = tuple(copied(op, new, names) for op in block.ops)
    params = tuple(new[param] for param in block.params)
    return Block(params, ops, tuple(new.get(v, v) for v in block.returns))


def rule_of(op: Op, b: Builder, moves: Sequence[bool]) -> tuple[Block, ...]:
    """Copies of the blocks of a region's rule, which is traced if it has not been.

    `moves` says for each operand whether a derivative by it is asked: a rule need not compute the
    others, and one that cannot is right where nobody asks. Whatever it says, the blocks take a
    tangent, or give a gradient, for every operand that can have one.

    Raises `DifferentiateError` where there is only its name.
    """
    blocks = op.blocks[1:]
    if not blocks:
        trace = function_of(op.attrs["rule"])
        if trace is None:
            raise error(
                f"%{op.results[0].name} = {op.name} has the derivative {op.attrs['rule']!r}, of "
                "which a text has only the name; give it the blocks of its rule",
                op,
            )
        blocks = trace(tuple(moves))
    return tuple(copy_of(block, b.names) for block in blocks)


def check_closed(op: Op, moves: Sequence[bool]) -> None:
    """Raise `DifferentiateError` if a value moves that a region closes over."""
    count = len(op.operands) - op.attrs.get("closed", 0)
    for value, moving in list(zip(op.operands, moves, strict=True))[count:]:
        if moving:
            raise closed_over(op, value)


def closed_over(op: Op, value: Value) -> DifferentiateError:
    return error(
        f"{op.attrs['rule']} has a derivative of its own, and it uses %{value.name}: {value.type} "
        "from outside, which the derivative is asked of too; pass it as an argument",
        op,
    )
