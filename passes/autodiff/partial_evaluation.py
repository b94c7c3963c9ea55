"""Partial evaluation: divide operations into those that depend on tangents and those that do not.

before: `%y, %y.tangent = scan(%x, %x.tangent) { ... }`, in a program that computes tangents
after:  `%y, %saved = scan(%x) { ... }` ahead, and `%y.tangent = scan(%x.tangent, %saved) { ... }`

The operations `ahead` compute all values that do not depend on tangents, and the operations `again`
the others, from saved values. A `scan` stacks the saved values of its iterations; a `case` returns
those of all its branches, and a manual computation stacks those of its devices. A `checkpoint`
saves what its policy selects, and `again` recomputes the rest. A `while` loop with tangents saves
nothing: `again` contains the whole loop.

Operations with effects that do not depend on tangents are only among `ahead`, also inside of
blocks. Their results are always saved.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardir import ops as specs
from shardir.ir.builder import Builder, UniqueNames, substitute
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import TensorType
from shardir.passes.autodiff.checkpoint_policies import is_saved, saves_everything
from shardir.passes.autodiff.manual_residuals import save_manual_residuals
from shardir.passes.autodiff.pullback import error
from shardir.passes.autodiff.regions import inline_block
from shardir.passes.autodiff.residuals import RECOMPUTED_OPERATIONS, eliminate_dead_operations
from shardir.passes.rewriting import has_nested_effect

EVERYTHING = ("everything",)
"""The policy that saves all values."""
NOTHING = ()
"""The policy that saves only the results of operations with effects."""


@dataclass(frozen=True)
class Division:
    """The operations of a block, divided by their dependence on tangents.

    `ahead` computes the values that do not depend on tangents; `again` computes the other values,
    and recomputes those values of `ahead` that are not in `kept`. `active` are the values that
    depend on tangents.
    """

    ahead: Sequence[Op]
    again: Sequence[Op]
    kept: Collection[Value]
    active: set[Value]
    names: UniqueNames

    def take_saved(self, returns: Sequence[Value]) -> tuple[Block, list[Value]]:
        """Return the operations of `again` that compute `returns`, as a block with the saved values
        as its parameters, and these values."""
        block = Block((), eliminate_dead_operations(self.again, returns), tuple(returns))
        needed = set(block.captures())
        taken = [value for value in self.kept if value in needed]
        saved = {value: self._rename(value) for value in taken}
        return replace(substitute(block, saved), params=tuple(saved.values())), taken

    def recompute(self, op: Op, returns: Sequence[Value]) -> Block:
        """Return the operations of `again` that compute `returns`, in a block of the loop `op`,
        which saves nothing; raise `DifferentiateError` if they need the result of an operation with
        effects."""
        block, taken = self.take_saved(returns)
        if taken:
            raise error(
                f"the tangents of a while loop need %{taken[0].name}, the result of an operation "
                "with effects, and linearize saves no values of such a loop; use scan or "
                "fori_loop with a constant number of iterations, or take jvp",
                op,
            )
        return block

    def _rename(self, value: Value) -> Value:
        return replace(value, name=self.names.fresh(f"{value.name.removesuffix('.saved')}.saved"))


@dataclass(frozen=True)
class _DividedOp:
    """The operations that replace an operation with blocks: `ahead`, and `again`, which use the
    values `saved` of `ahead`."""

    ahead: Sequence[Op]
    again: Sequence[Op]
    saved: Sequence[Value] = ()


_Handler = Callable[[Op, set[Value], Sequence[str], UniqueNames], _DividedOp | None]
"""Divides an operation with blocks, given the active values and the policy; returns `None` if all
its operations depend on tangents."""


def divide(
    ops: Sequence[Op],
    starts: Collection[Value],
    save: Sequence[str],
    names: UniqueNames,
    carried: Sequence[Value] = (),
) -> Division:
    """Divide operations by their dependence on the tangents `starts`; `save` is the policy.

    `carried` are parameters that `again` does not have, so that they are saved too.
    """
    everything = saves_everything(save)
    active, kept = set(starts), dict.fromkeys(carried)
    ahead, again = list[Op](), list[Op]()
    for op in ops:
        handler = _HANDLERS.get(op.name)
        is_active = not active.isdisjoint(op.uses())
        if not is_active and (handler is None or everything or not has_nested_effect(op)):
            ahead.append(op)
            is_kept = op.spec not in RECOMPUTED_OPERATIONS if everything else is_saved(save, op)
            if op.spec.effect or is_kept:
                kept.update(dict.fromkeys(op.results))
            else:
                again.append(op)
            continue
        divided = None if handler is None else handler(op, active, save, names)
        if divided is None:
            active.update(op.results)
            again.append(op)
            continue
        known = {value for first in divided.ahead for value in first.results}
        active.update(value for value in op.results if value not in known)
        kept.update(dict.fromkeys(divided.saved))
        if everything:
            kept.update(dict.fromkeys(value for value in op.results if value in known))
        ahead += divided.ahead
        again += divided.again
    return Division(ahead, again, kept, active, names)


def _recomputed_indices(op: Op, is_active: Sequence[bool], save: Sequence[str]) -> list[int]:
    """Return the indices of the results that `again` computes: without those of `ahead`, if the
    policy saves everything."""
    return [i for i in range(len(op.results)) if is_active[i] or not saves_everything(save)]


def _divide_iteration(
    op: Op, active: set[Value], save: Sequence[str], names: UniqueNames
) -> tuple[Division, list[bool]]:
    """Return the division of the body of a loop, and which operands are active in some
    iteration."""
    (body,) = op.blocks
    count = op.attrs["carries"]
    is_active = [value in active for value in op.operands]
    while True:
        pairs = list(zip(body.params, is_active, strict=True))
        starts = [param for param, flag in pairs if flag]
        carried = [param for param, flag in pairs[:count] if saves_everything(save) and not flag]
        inner = divide(body.ops, {*active, *starts}, save, names, carried)
        grown = [value in inner.active for value in body.returns[:count]]
        if not any(new and not old for new, old in zip(grown, is_active, strict=False)):
            return inner, is_active
        is_active[:count] = [a or b for a, b in zip(grown, is_active, strict=False)]


def _divide_scan(
    op: Op, active: set[Value], save: Sequence[str], names: UniqueNames
) -> _DividedOp | None:
    """Return the loop without tangents, which stacks the saved values, and the loop that takes
    them."""
    (body,) = op.blocks
    count, length = op.attrs["carries"], op.attrs["length"]
    inner, active_operands = _divide_iteration(op, active, save, names)
    is_active = [
        active_operands[i] if i < count else value in inner.active
        for i, value in enumerate(body.returns)
    ]
    stays = [i for i, flag in enumerate(is_active) if not flag]
    recomputed = _recomputed_indices(op, is_active, save)
    second, taken = inner.take_saved([body.returns[i] for i in recomputed])

    stacks = {body.returns[i]: op.results[i] for i in reversed(stays) if i >= count}
    stacked = [value for value in taken if value not in stacks]
    for value in stacked:
        type = TensorType((length, *value.type.shape), value.type.dtype)
        stacks[value] = Value(type, names.fresh(value.name))
    returns = (*(body.returns[i] for i in stays), *stacked)
    inactive = [i for i, flag in enumerate(active_operands) if not flag]
    first = Block(
        tuple(body.params[i] for i in inactive),
        eliminate_dead_operations(inner.ahead, returns),
        returns,
    )
    ahead = replace(
        op,
        operands=tuple(op.operands[i] for i in inactive),
        results=(*(op.results[i] for i in stays), *(stacks[value] for value in stacked)),
        attrs={**op.attrs, "carries": sum(i < count for i in inactive)},
        blocks=(first,),
    )
    used = {*second.captures()}
    passed = [
        i
        for i in range(len(op.operands))
        if (i in recomputed if i < count else body.params[i] in used)
    ]
    saved = [stacks[value] for value in taken]
    again = replace(
        op,
        operands=(*(op.operands[i] for i in passed), *saved),
        results=tuple(op.results[i] for i in recomputed),
        attrs={**op.attrs, "carries": sum(i < count for i in passed)},
        blocks=(
            replace(second, params=(*(body.params[i] for i in passed), *second.params)),
        ),
    )  # fmt: skip
    return _DividedOp((ahead,), (again,), saved)


def _divide_case(
    op: Op, active: set[Value], save: Sequence[str], names: UniqueNames
) -> _DividedOp | None:
    """Return the branches without tangents, which return the saved values of all of them, and the
    branches that take them."""
    if not active.isdisjoint(op.operands):
        return None
    inner = [divide(branch.ops, active, save, names) for branch in op.blocks]
    is_active = [
        any(branch.returns[i] in each.active for each, branch in zip(inner, op.blocks, strict=True))
        for i in range(len(op.results))
    ]
    stays = [i for i, flag in enumerate(is_active) if not flag]
    recomputed = _recomputed_indices(op, is_active, save)
    taken = [
        each.take_saved([branch.returns[i] for i in recomputed])
        for each, branch in zip(inner, op.blocks, strict=True)
    ]
    values = [value for _, saved in taken for value in saved]
    renamed = [replace(value, name=names.fresh(value.name)) for value in values]
    given = dict(zip(values, renamed, strict=True))
    firsts, seconds = [], []
    for each, branch, (second, own) in zip(inner, op.blocks, taken, strict=True):
        b = Builder(names)
        b.why = "a residual of another branch"
        residuals = [value if value in own else b.full(0, value.type) for value in values]
        returns = (*(branch.returns[i] for i in stays), *residuals)
        firsts.append(Block((), eliminate_dead_operations([*each.ahead, *b.ops], returns), returns))
        new = dict(zip(second.params, (given[value] for value in own), strict=True))
        seconds.append(substitute(replace(second, params=()), new))
    results = (*(op.results[i] for i in stays), *renamed)
    ahead = replace(op, results=results, blocks=tuple(firsts))
    again = replace(op, results=tuple(op.results[i] for i in recomputed), blocks=tuple(seconds))
    return _DividedOp((ahead,), (again,), renamed)


class _DividedBody(NamedTuple):
    """The body of an operation that runs once, divided: the indices of the operands that `ahead`
    takes and of the results that it returns, those of the results of `again`, the bodies of both,
    and the values that the body of `again` takes from that of `ahead`."""

    inactive: list[int]
    stays: list[int]
    recomputed: list[int]
    ahead: Block
    again: Block
    taken: list[Value]


def _divide_body(
    op: Op, active: set[Value], policy: Sequence[str], save: Sequence[str], names: UniqueNames
) -> _DividedBody:
    """Divide the body of an operation by `policy`; `save` is the policy of the block around it."""
    (body,) = op.blocks
    inactive = [i for i, value in enumerate(op.operands) if value not in active]
    starts = {param for param, x in zip(body.params, op.operands, strict=True) if x in active}
    inner = divide(body.ops, {*active, *starts}, policy, names)
    is_active = [value in inner.active for value in body.returns]
    stays = [i for i, flag in enumerate(is_active) if not flag]
    recomputed = _recomputed_indices(op, is_active, save)
    again, taken = inner.take_saved([body.returns[i] for i in recomputed])
    returns = tuple(body.returns[i] for i in stays)
    ahead = Block(
        tuple(body.params[i] for i in inactive),
        eliminate_dead_operations(inner.ahead, [*returns, *taken]),
        returns,
    )
    return _DividedBody(inactive, stays, recomputed, ahead, again, taken)


def _divide_checkpoint(
    op: Op, active: set[Value], save: Sequence[str], names: UniqueNames
) -> _DividedOp | None:
    """Return the operations without tangents, and a checkpoint that takes those of their results
    that its policy selects. In a computation that runs again, no values can be saved."""
    (body,) = op.blocks
    policy = op.attrs.get("save", ()) if saves_everything(save) else NOTHING
    inactive, stays, recomputed, first, second, taken = _divide_body(
        op, active, policy, save, names
    )
    operands = tuple(op.operands[i] for i in inactive)
    results = tuple(op.results[i] for i in stays)
    ahead: tuple[Op, ...] = (replace(op, operands=operands, results=results, blocks=(first,)),)
    places: dict[Value, Value] = {}
    if taken:
        ahead, places = inline_block(first, operands, results, op)
    saved = [places.get(value, value) for value in taken]
    again = replace(
        op,
        operands=(*op.operands, *saved),
        results=tuple(op.results[i] for i in recomputed),
        blocks=(replace(second, params=(*body.params, *second.params)),),
    )
    return _DividedOp(ahead, (again,), saved)


def _divide_while(
    op: Op, active: set[Value], save: Sequence[str], names: UniqueNames
) -> _DividedOp | None:
    """Return the loop without tangents, and the whole loop without the effects of the first.

    If the loop has no tangents, its results are saved.
    """
    if active.isdisjoint(op.uses()):
        return _DividedOp((op,), (), op.results)
    condition, body = op.blocks
    flags = [value in active for value in op.operands]
    while True:
        starts = {param for param, flag in zip(body.params, flags, strict=True) if flag}
        inner = divide(body.ops, {*active, *starts}, NOTHING, names)
        grown = [a or b in inner.active for a, b in zip(flags, body.returns, strict=True)]
        if grown == flags:
            break
        flags = grown
    starts = {param for param, flag in zip(condition.params, flags, strict=True) if flag}
    test = divide(condition.ops, {*active, *starts}, NOTHING, names)
    if not test.active.isdisjoint(condition.returns):
        return None
    stays = [i for i, flag in enumerate(flags) if not flag]
    blocks = []
    for block, part, returns in (
        (condition, test, condition.returns),
        (body, inner, tuple(body.returns[i] for i in stays)),
    ):
        params = tuple(block.params[i] for i in stays)
        blocks.append(Block(params, eliminate_dead_operations(part.ahead, returns), returns))
    ahead = replace(
        op,
        operands=tuple(op.operands[i] for i in stays),
        results=tuple(op.results[i] for i in stays),
        blocks=tuple(blocks),
    )
    rerun = (
        replace(test.recompute(op, condition.returns), params=condition.params),
        replace(inner.recompute(op, body.returns), params=body.params),
    )
    return _DividedOp((ahead,), (replace(op, blocks=rerun),))


def _divide_manual(
    op: Op, active: set[Value], save: Sequence[str], names: UniqueNames
) -> _DividedOp | None:
    """Return the computation without tangents, which returns the saved values of each device, and
    the one that takes them."""
    (body,) = op.blocks
    inactive, stays, recomputed, first, second, taken = _divide_body(op, active, save, save, names)
    in_axes, out_axes = op.attrs["in_axes"], op.attrs["out_axes"]
    ahead = replace(
        op,
        operands=tuple(op.operands[i] for i in inactive),
        results=tuple(op.results[i] for i in stays),
        attrs={
            **op.attrs,
            "in_axes": tuple(in_axes[i] for i in inactive),
            "out_axes": tuple(out_axes[i] for i in stays),
        },
        blocks=(first,),
    )
    residuals = save_manual_residuals(ahead, taken, names)
    copies = {p: residuals.new[value] for p, value in zip(second.params, taken, strict=True)}
    second = substitute(replace(second, params=()), copies)
    used = {*second.captures()}
    passed = [i for i, param in enumerate(body.params) if param in used]
    again = replace(
        op,
        operands=tuple(op.operands[i] for i in passed),
        results=tuple(op.results[i] for i in recomputed),
        attrs={
            **op.attrs,
            "in_axes": tuple(in_axes[i] for i in passed),
            "out_axes": tuple(out_axes[i] for i in recomputed),
        },
        blocks=(replace(second, params=tuple(body.params[i] for i in passed)),),
    )
    return _DividedOp((residuals.op,), (residuals.extend(again),), residuals.operands)


_HANDLERS: dict[str, _Handler] = {
    specs.scan.name: _divide_scan,
    specs.case.name: _divide_case,
    specs.checkpoint.name: _divide_checkpoint,
    specs.while_.name: _divide_while,
    specs.manual_computation.name: _divide_manual,
}
"""The operations with blocks that are divided, and how."""
