"""Simplifications of an all-gather of which each device uses its own shard only.

before: `%g = all-gather(%x, axes=[d], dim=0)`, `%y = all-slice(%g, axes=[d], dim=0)`
after:  `%x`

Programs with `shard_map` slice the gathered value at `axis-index(axes=[d]) * n`, which is the same
slice for shards of `n` rows. A slice along the first of several gathered axes leaves an all-gather
along the others.
"""

from dataclasses import replace

from shardir import ops
from shardir.ir.module import Op, Value
from shardir.passes.simplify.identities import ValueFacts, simplification_rule


@simplification_rule("all-slice")
def _all_slice_of_gather(op: Op, facts: ValueFacts) -> Value | Op | None:
    gather = facts.maker(op.operands[0], ops.all_gather)
    if gather is None or gather.attrs["dim"] != op.attrs["dim"]:
        return None
    gathered, sliced = tuple(gather.attrs["axes"]), tuple(op.attrs["axes"])
    if gathered == sliced:
        return gather.operands[0]
    # A second all-gather beside one that other operations use would send more.
    if gathered[: len(sliced)] != sliced or facts.uses.get(gather.result, 0) != 1:
        return None
    return replace(
        gather, results=op.results, attrs={**gather.attrs, "axes": gathered[len(sliced) :]}
    )


@simplification_rule("dynamic_slice")
def _dynamic_slice_of_gather(op: Op, facts: ValueFacts) -> Value | None:
    x, *starts = op.operands
    gather = facts.maker(x, ops.all_gather)
    if gather is None:
        return None
    dim, shard = gather.attrs["dim"], gather.operands[0]
    # The shard replaces slices of its own type only. Those have the full size along the other
    # dimensions, so their starts are 0.
    size = shard.type.shape[dim]
    start = _without_wrapping(starts[dim], facts)
    index = start if size == 1 else _factor_beside(start, size, facts)
    position = None if index is None else facts.maker(index, ops.axis_index)
    is_own = position is not None and tuple(position.attrs["axes"]) == tuple(gather.attrs["axes"])
    return shard if is_own else None


def _without_wrapping(index: Value, facts: ValueFacts) -> Value:
    """Return `i` of `select(i < 0, i + n, i)`, which equals `i` for the position of a device."""
    select = facts.maker(index, ops.select)
    if select is None:
        return index
    predicate, _, otherwise = select.operands
    less = facts.maker(predicate, ops.lt)
    if less is None or less.operands[0] is not otherwise or facts.splat(less.operands[1]) != 0:
        return index
    return otherwise


def _factor_beside(index: Value, number: int, facts: ValueFacts) -> Value | None:
    """Return the other factor of a product with a constant number."""
    product = facts.maker(index, ops.mul)
    if product is None:
        return None
    x, y = product.operands
    if facts.splat(y) == number:
        return x
    return y if facts.splat(x) == number else None
