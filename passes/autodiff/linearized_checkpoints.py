"""Checkpoints of a linearized function: the forward computation saves what a policy selects.

before: `%y, %y.tangent = checkpoint(%x, %x.tangent) { ... }`, in the pushforward
after:  `%y.tangent = checkpoint(%x, %x.tangent, %saved) { ... }`; the forward computation runs the
operations that the policy selects, and the region takes their results.

The region recomputes all other values that its tangents need. The forward computation holds the
operations of the region directly, as it does in reverse mode. A `scan` or a `case` that computes
tangents is divided, too: the forward computation runs it without tangents, and stacks the saved
values of its iterations.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from shardir import ops as specs
from shardir.ir.builder import Builder, UniqueNames, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType
from shardir.passes.autodiff.checkpoint_policies import is_saved, saves_everything
from shardir.passes.autodiff.regions import inline_block
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
    divided_ops = []
    for op in pushforward.ops:
        original = originals.get(op.results[0]) if op.results else None
        if op.spec is specs.checkpoint and original is not None:
            op, ahead = _split_checkpoint(op, original, used - primal, names)
            inlined[original] = ahead
        divided_ops.append(op)
    return (
        tuple([new for op in forward for new in inlined.get(op, (op,))]),
        replace(pushforward, ops=tuple(divided_ops)),
    )


def _split_checkpoint(
    op: Op, original: Op, used: set[Value], names: UniqueNames
) -> tuple[Op, tuple[Op, ...]]:
    """Return a checkpoint that computes the `used` results of `op`, and the operations that replace
    `original`, which computes its primal results."""
    (body,) = op.blocks
    count = len(original.operands)
    pairs = zip(op.results, body.returns, strict=True)
    results, returns = zip(*[pair for pair in pairs if pair[0] in used], strict=True)
    primal = body.returns[: len(original.results)]
    divided = _divide(body.ops, body.params[count:], op.attrs.get("save", ()), names)
    ahead: tuple[Op, ...] = (original,)
    places: dict[Value, Value] = {}
    if divided.active.isdisjoint(primal):
        again, taken = divided.take_saved(body.params, returns)
    else:  # An operation that is not divided computes a result together with its tangent.
        again = Block(body.params, eliminate_dead_operations(body.ops, returns), returns)
        taken = []
    if taken:
        ops = eliminate_dead_operations(divided.ahead, [*primal, *taken])
        block = Block(body.params[:count], ops, primal)
        ahead, places = inline_block(block, original.operands, original.results, original)
    operands = (*op.operands, *(places.get(value, value) for value in taken))
    return replace(op, operands=operands, results=results, blocks=(again,)), ahead


@dataclass(frozen=True)
class _Division:
    """The operations of a block, divided between the forward computation and the pushforward.

    `ahead` computes the values that do not depend on tangents; `again` computes all values except
    those in `kept`, which are results of `ahead`. `active` are the values that depend on tangents.
    """

    ahead: Sequence[Op]
    again: Sequence[Op]
    kept: Collection[Value]
    active: set[Value]
    names: UniqueNames

    def take_saved(
        self, params: Sequence[Value], returns: Sequence[Value]
    ) -> tuple[Block, list[Value]]:
        """Return the block of `again` with further parameters, and the saved values for them."""
        block = Block((), eliminate_dead_operations(self.again, returns), tuple(returns))
        needed = set(block.captures())
        taken = [value for value in self.kept if value in needed]
        saved = {value: self._rename(value) for value in taken}
        block = substitute(block, saved)
        return replace(block, params=(*params, *saved.values())), taken

    def _rename(self, value: Value) -> Value:
        return replace(value, name=self.names.fresh(f"{value.name.removesuffix('.saved')}.saved"))


def _divide(
    ops: Sequence[Op], starts: Collection[Value], save: Sequence[str], names: UniqueNames
) -> _Division:
    """Divide operations of which those that use `starts`, which are tangents, run later."""
    everything = saves_everything(save)
    active, kept = set(starts), list[Value]()
    ahead, again = list[Op](), list[Op]()
    for op in ops:
        if active.isdisjoint(op.uses()):
            ahead.append(op)
            if op.spec.effect or everything or is_saved(save, op):
                kept += op.results
            else:
                again.append(op)
            continue
        handler = _REGIONS.get(op.name)
        divided = None if handler is None else handler(op, active, save, names)
        if divided is None:
            active.update(op.results)
            again.append(op)
        else:
            first, second = divided
            known = {value for value in first.results if value in op.results}
            active.update(value for value in op.results if value not in known)
            kept += [value for value in first.results if value not in known]
            ahead.append(first)
            again.append(second)
    return _Division(ahead, again, dict.fromkeys(kept), active, names)


def _divide_scan(
    op: Op, active: set[Value], save: Sequence[str], names: UniqueNames
) -> tuple[Op, Op]:
    """Return the loop without tangents, which stacks the saved values, and the loop that takes
    them."""
    (body,) = op.blocks
    count = op.attrs["carries"]
    active_operands = [value in active for value in op.operands]
    while True:
        starts = [param for param, flag in zip(body.params, active_operands, strict=True) if flag]
        inner = _divide(body.ops, {*active, *starts}, save, names)
        grown = [value in inner.active for value in body.returns[:count]]
        if not any(new and not old for new, old in zip(grown, active_operands, strict=False)):
            break
        active_operands[:count] = [a or b for a, b in zip(grown, active_operands, strict=False)]
    second, taken = inner.take_saved(body.params, body.returns)
    length = op.attrs["length"]
    stacked = [
        Value(TensorType((length, *value.type.shape), value.type.dtype), names.fresh(value.name))
        for value in taken
    ]
    inactive = [i for i, flag in enumerate(active_operands) if not flag]
    stays = [
        i
        for i, value in enumerate(body.returns)
        if (not active_operands[i] if i < count else value not in inner.active)
    ]
    first = Block(
        tuple(body.params[i] for i in inactive),
        tuple(inner.ahead),
        (*(body.returns[i] for i in stays), *taken),
    )
    ahead = replace(
        op,
        operands=tuple(op.operands[i] for i in inactive),
        results=(*(op.results[i] for i in stays), *stacked),
        attrs={**op.attrs, "carries": sum(i < count for i in inactive)},
        blocks=(first,),
    )
    return ahead, replace(op, operands=(*op.operands, *stacked), blocks=(second,))


def _divide_case(
    op: Op, active: set[Value], save: Sequence[str], names: UniqueNames
) -> tuple[Op, Op] | None:
    """Return the branches without tangents, which return the saved values of all of them, and the
    branches that take them."""
    if not active.isdisjoint(op.operands):
        return None
    inner = [_divide(branch.ops, active, save, names) for branch in op.blocks]
    taken = [
        each.take_saved((), branch.returns) for each, branch in zip(inner, op.blocks, strict=True)
    ]
    stays = [
        i
        for i in range(len(op.results))
        if all(
            branch.returns[i] not in each.active
            for each, branch in zip(inner, op.blocks, strict=True)
        )
    ]
    handed = [replace(value, name=names.fresh(value.name)) for _, saved in taken for value in saved]
    firsts, seconds = [], []
    for each, branch, (second, own) in zip(inner, op.blocks, taken, strict=True):
        b = Builder(names)
        returns = [
            value if value in own else b.full(0, value.type)
            for _, saved in taken
            for value in saved
        ]
        returned = (*(branch.returns[i] for i in stays), *returns)
        firsts.append(Block((), (*each.ahead, *b.ops), returned))
        values = [value for _, saved in taken for value in saved]
        given = dict(zip(values, handed, strict=True))
        new = dict(zip(second.params, (given[value] for value in own), strict=True))
        seconds.append(substitute(replace(second, params=()), new))
    results = (*(op.results[i] for i in stays), *handed)
    ahead = replace(op, results=results, blocks=tuple(firsts))
    return ahead, replace(op, blocks=tuple(seconds))


_REGIONS = {"scan": _divide_scan, "case": _divide_case}
"""The operations with blocks that are divided, and how."""
