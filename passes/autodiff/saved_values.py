"""Values that a checkpoint saves, in reverse mode: the forward computation hands them over.

before: the forward computation and the recomputation are copies of one block
after:  the recomputation uses the values of the forward computation that the policy selects

A loop of the forward computation stacks the saved values of its iterations, and the recomputed loop
takes their slices. A branch returns its saved values, and zeros for those of other branches. A
manual computation returns them as residuals. The results of a `while` loop are saved if they depend
on effects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from shardir import ops as specs
from shardir.ir.builder import Builder, UniqueNames, substitute
from shardir.ir.module import Block, Op, Value
from shardir.passes.autodiff.checkpoint_policies import is_saved
from shardir.passes.autodiff.manual_residuals import save_manual_residuals
from shardir.passes.autodiff.residuals import eliminate_dead_operations
from shardir.passes.rewriting import has_nested_effect

Values = Mapping[Value, Value]


@dataclass(frozen=True, slots=True)
class SavedValues:
    """The result of `reuse_saved_values`.

    `forward` are the operations of the forward computation, `again` those that are recomputed, and
    `reused` maps the recomputed values that are not needed to those of the forward computation.
    """

    forward: tuple[Op, ...]
    again: tuple[Op, ...]
    reused: dict[Value, Value]


def reuse_saved_values(
    forward: Sequence[Op],
    again: Sequence[Op],
    original: Values,
    save: Sequence[str],
    names: UniqueNames,
) -> SavedValues:
    """Replace recomputed values that the policy `save` selects by those of the forward computation.

    `original` maps recomputed values to those of the forward computation. Operations with effects
    run in the forward computation only.
    """
    regions = {op.results[0]: op for op in forward if op.name in _REGIONS and op.results}
    extended: dict[Op, Op] = {}
    reused: dict[Value, Value] = {}
    needed = list[Op]()
    for op in _remove_effects(again):
        source = regions.get(original.get(op.results[0], op.results[0]))
        if source is not None:
            divided = _REGIONS[op.name](source, op, original, save, names)
            extended[source], remaining = divided.forward[0], divided.again
            needed += remaining
            reused |= divided.reused
        elif has_nested_effect(op) or is_saved(save, op):
            known = {value: original[value] for value in op.results if value in original}
            reused |= known
            if len(known) < len(op.results):
                needed.append(op)
        else:
            needed.append(op)
    block = substitute(Block((), tuple(needed), ()), reused)
    return SavedValues(tuple([extended.get(op, op) for op in forward]), block.ops, reused)


def _remove_effects(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Return the operations without those that have no results, which run for their effects, such
    as callbacks and loops of callbacks; also inside of blocks."""
    kept = [op for op in ops if op.results]
    return tuple(
        replace(op, blocks=tuple(replace(b, ops=_remove_effects(b.ops)) for b in op.blocks))
        if op.blocks
        else op
        for op in kept
    )


def _reuse_in_block(
    forward: Block, again: Block, original: Values, save: Sequence[str], names: UniqueNames
) -> tuple[Block, Block, list[Value]]:
    """Return both blocks, and the values of the first that the second uses."""
    found = reuse_saved_values(forward.ops, again.ops, original, save, names)
    forward = replace(forward, ops=found.forward)
    returns = tuple([found.reused.get(value, value) for value in again.returns])
    again = replace(again, ops=eliminate_dead_operations(found.again, returns), returns=returns)
    defined = {*forward.params, *(value for op in forward.ops for value in op.results)}
    return forward, again, [value for value in again.captures() if value in defined]


def _reuse_in_scan(
    source: Op, op: Op, original: Values, save: Sequence[str], names: UniqueNames
) -> SavedValues:
    count, length = op.attrs["carries"], op.attrs["length"]
    forward, again, saved = _reuse_in_block(source.blocks[0], op.blocks[0], original, save, names)
    stacks = dict(zip(forward.returns[count:], source.results[count:], strict=True))
    extra = [value for value in saved if value not in stacks]
    for value in extra:
        type = value.type.with_shape((length, *value.type.shape))
        stacks[value] = Value(type, names.fresh(f"{value.name.removesuffix('.saved')}.saved"))
    forward = replace(forward, returns=(*forward.returns, *extra))
    results = (*source.results, *(stacks[value] for value in extra))
    slices = {value: replace(value, name=names.fresh(value.name)) for value in saved}
    again = substitute(again, slices)
    # Slices that the recomputed loop would only stack again are the stacks themselves.
    stack_of = {slice: stacks[value] for value, slice in slices.items()}
    pairs = list(zip(op.results, again.returns, strict=True))
    reused = {y: stack_of[value] for y, value in pairs[count:] if value in stack_of}
    kept = [(y, value) for y, value in pairs if y not in reused]
    again = Block((*again.params, *slices.values()), again.ops, tuple(value for _, value in kept))
    rerun = replace(
        op,
        operands=(*op.operands, *(stacks[value] for value in saved)),
        results=tuple(y for y, _ in kept),
        blocks=(again,),
    )
    return SavedValues((replace(source, results=results, blocks=(forward,)),), (rerun,), reused)


def _reuse_in_case(
    source: Op, op: Op, original: Values, save: Sequence[str], names: UniqueNames
) -> SavedValues:
    branches = [
        _reuse_in_block(forward, again, original, save, names)
        for forward, again in zip(source.blocks, op.blocks, strict=True)
    ]
    handed = {
        value: replace(value, name=names.fresh(f"{value.name.removesuffix('.saved')}.saved"))
        for _, _, saved in branches
        for value in saved
    }
    forwards, agains = [], []
    for forward, again, saved in branches:
        b = Builder(names)
        b.why = "a residual of another branch"
        more = [value if value in saved else b.full(0, value.type) for value in handed]
        returns = (*forward.returns, *more)
        forwards.append(replace(forward, ops=(*forward.ops, *b.ops), returns=returns))
        agains.append(substitute(again, handed))
    results = (*source.results, *handed.values())
    ahead = replace(source, results=results, blocks=tuple(forwards))
    return SavedValues((ahead,), (replace(op, blocks=tuple(agains)),), {})


def _reuse_in_manual(
    source: Op, op: Op, original: Values, save: Sequence[str], names: UniqueNames
) -> SavedValues:
    forward, again, saved = _reuse_in_block(source.blocks[0], op.blocks[0], original, save, names)
    residuals = save_manual_residuals(replace(source, blocks=(forward,)), saved, names)
    rerun = residuals.extend(replace(op, blocks=(substitute(again, residuals.new),)))
    return SavedValues((residuals.op,), (rerun,), {})


_REGIONS = {
    specs.scan.name: _reuse_in_scan,
    specs.case.name: _reuse_in_case,
    specs.manual_computation.name: _reuse_in_manual,
}
"""The operations with blocks whose values a policy can save, and how."""
