"""Copies of operations that compute their results again."""

from collections.abc import Mapping
from dataclasses import replace

from shardir.ir.builder import UniqueNames, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ops.communication.annotations import optimization_barrier
from shardir.ops.communication.async_collectives import done, is_started
from shardir.ops.control_flow.host_callbacks import pure_callback
from shardir.ops.control_flow.pipelines import pipeline_call
from shardir.passes.autodiff.phases import RECOMPUTED_WHY, is_in_gradient


def is_recomputable(op: Op) -> bool:
    """Return whether an operation may be executed again.

    Loops and branches are not, because they may contain the largest part of a program; nor are
    operations whose cost is unknown (`pure-callback`, `pipeline-call`) or that have effects. An
    operation without operands cannot be distinguished from its copy, which `cse` would merge.
    """
    if op.spec.effect or op.spec in (pure_callback, pipeline_call, done) or is_started(op):
        return False
    return bool(op.operands) and (op.spec.is_loop_nest or not op.blocks)


def copy_operation(
    op: Op, operands: Mapping[Value, Value], user: Op, names: UniqueNames
) -> tuple[Op, ...]:
    """Return operations that compute the results of `op` again for `user`.

    `operands` maps operands to values that were computed again. A barrier distinguishes the others
    from the operands of `op`, so that `cse` merges nothing with the first computation.
    """
    why = explain_copy(op, user)
    new_ops: list[Op] = []
    new = {value: operands[value] for value in op.operands if value in operands}
    same = tuple(value for value in dict.fromkeys(op.operands) if value not in operands)
    if same:
        results = tuple(_rename(value, names) for value in same)
        new_ops.append(Op(optimization_barrier, same, results, {}, (), op.loc, why))
        new |= zip(same, results, strict=True)
    new |= {value: _rename(value, names) for value in op.results}
    for block in op.blocks:
        inner = (*block.params, *(value for each in block.ops for value in each.results))
        new |= {value: _rename(value, names) for value in inner}
    (copy,) = substitute(Block((), (op,), ()), new).ops
    blocks = tuple(
        replace(block, ops=tuple(replace(each, why=why) for each in block.ops))
        for block in copy.blocks
    )
    return *new_ops, replace(copy, blocks=blocks, why=why)


def explain_copy(op: Op, user: Op) -> str:
    """Return why `op` is computed again; the reason of a collective follows."""
    is_for_gradient = any(map(is_in_gradient, (user, *(x for b in user.blocks for x in b.ops))))
    name = op.results[0].name
    why = f"{RECOMPUTED_WHY} %{name}" if is_for_gradient else f"%{name} is recomputed"
    why += ", which was freed to save memory"
    return f"{why}; {op.why}" if op.spec.collective and op.why else why


def _rename(value: Value, names: UniqueNames) -> Value:
    return replace(value, name=names.fresh(value.name))
