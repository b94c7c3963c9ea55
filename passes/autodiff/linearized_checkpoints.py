"""Checkpoints of a linearized function: the forward computation saves what a policy selects.

before: `%y, %y.tangent = checkpoint(%x, %x.tangent) { ... }`, in the pushforward
after:  `%y.tangent = checkpoint(%x, %x.tangent, %saved) { ... }`; the forward computation runs the
operations that the policy selects, and the region takes their results.

The region recomputes all other values that its tangents need. The forward computation holds the
operations of the region directly, as it does in reverse mode. Values inside of loops and branches
are recomputed.
"""

from collections.abc import Sequence
from dataclasses import replace

from shardir import ops as specs
from shardir.ir.builder import UniqueNames, substitute
from shardir.ir.module import Block, Op, Value
from shardir.passes.autodiff.checkpoint_policies import is_saved, saves_everything
from shardir.passes.autodiff.regions import inline_block, split_by_dependence
from shardir.passes.autodiff.residuals import eliminate_dead_operations


def split_checkpoints(
    forward: Sequence[Op], pushforward: Block, names: UniqueNames
) -> tuple[tuple[Op, ...], Block]:
    """Return the operations of the forward computation, and the pushforward, with each checkpoint
    divided between them."""
    originals = {op.results[0]: op for op in forward if op.spec is specs.checkpoint and op.results}
    primal = {value for op in originals.values() for value in op.results}
    used = {value for op in pushforward.ops for value in op.uses()}.union(pushforward.returns)
    inlined: dict[Op, tuple[Op, ...]] = {}
    moved = []
    for op in pushforward.ops:
        original = originals.get(op.results[0]) if op.results else None
        if op.spec is specs.checkpoint and original is not None:
            op, ahead = _split_checkpoint(op, original, used - primal, names)
            inlined[original] = ahead
        moved.append(op)
    return (
        tuple([new for op in forward for new in inlined.get(op, (op,))]),
        replace(pushforward, ops=tuple(moved)),
    )


def _split_checkpoint(
    op: Op, original: Op, used: set[Value], names: UniqueNames
) -> tuple[Op, tuple[Op, ...]]:
    """Return a checkpoint that computes the `used` results of `op`, and the operations that replace
    `original`, which computes its primal results."""
    (body,) = op.blocks
    count, save = len(original.operands), op.attrs.get("save", ())
    still, moved = split_by_dependence(body.ops, body.params[count:])
    everything = saves_everything(save)
    kept = {i for i in still if everything or i.spec.effect or is_saved(save, i)}
    saved = {
        value: replace(value, name=names.fresh(f"{value.name.removesuffix('.saved')}.saved"))
        for inner in still
        if inner in kept
        for value in inner.results
    }
    pairs = zip(op.results, body.returns, strict=True)
    results, returns = zip(*[pair for pair in pairs if pair[0] in used], strict=True)
    again = Block(body.params, tuple(i for i in still if i not in kept) + tuple(moved), returns)
    again = substitute(again, saved)
    again = replace(again, ops=eliminate_dead_operations(again.ops, again.returns))
    needed = set(again.captures())
    taken = {value: param for value, param in saved.items() if param in needed}
    again = replace(again, params=(*again.params, *taken.values()))
    ahead: tuple[Op, ...] = (original,)
    places: dict[Value, Value] = {}
    if taken:
        primal = body.returns[: len(original.results)]
        ops = eliminate_dead_operations(still, [*primal, *taken])
        block = Block(body.params[:count], ops, primal)
        ahead, places = inline_block(block, original.operands, original.results, original)
    operands = (*op.operands, *(places.get(value, value) for value in taken))
    return replace(op, operands=operands, results=results, blocks=(again,)), ahead
