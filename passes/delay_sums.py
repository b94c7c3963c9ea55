"""Let sums that are cut over devices wait until completing them costs least.

before: `%a = reshard(%a.part)`, `%b = reshard(%b.part)`, `%c = add(%a, %b)`, where the parts are
        `unreduced(model)`
after:  `%c.part = add(%a.part, %b.part) : ... unreduced(model)`, `%c = reshard(%c.part)`

Runs after `reshard`. Which values are left pending is a minimum cut (`shardir.passes.sum_region`),
found for one set of axes after the other, so that the program never gets dearer: parts of sums
are added before they are reduced, a sum goes through what makes it smaller, out of a loop that
adds it up, and no further than linear operations. Every `reshard` that completes a sum says
which sums these are. A sum that is completed on its way to a third place goes there at once, for
places that no sum can wait in would end its way.
"""

from dataclasses import dataclass, replace

from shardir.ir import Block, Function, Module, Op, Value
from shardir.mesh import Mesh
from shardir.passes.pipeline import Pass
from shardir.passes.prices import place_of, price
from shardir.passes.program import rebuild_global_programs, use_counts
from shardir.passes.sum_region import Region
from shardir.passes.sum_rewrite import Rewriter
from shardir.passes.uses import Uses, uses_of
from shardir.placement import Axes, Sharding


@dataclass(frozen=True)
class DelaySums(Pass, name="sink-reductions"):
    """Complete pending sums where that sends least."""

    def __call__(self, module: Module) -> Module:
        return rebuild_global_programs(module, _function)


def _function(function: Function, mesh: Mesh) -> Function:
    function = _direct(function, mesh.name)
    done: dict[tuple[str, Axes], None] = {}
    while True:
        uses = uses_of(function)
        sources = _sources(uses)
        kind = next((kind for kind in sources if kind not in done), None)
        if kind is None:
            return function
        done[kind] = None
        reduction, axes = kind
        region = Region(uses, mesh, axes, sources[kind], reduction)
        pending = region.decide()
        if pending is not None:
            function = Rewriter(function, region, pending).function()


def _direct(function: Function, mesh: str) -> Function:
    """The function with a pending sum moved once where it is moved on and not used in between."""
    counts = use_counts(function.body)

    def block(old: Block) -> Block:
        first: dict[Value, Op] = {}
        made: dict[Op, Op] = {}
        for op in old.ops:
            if op.blocks:
                inner = tuple(map(block, op.blocks))
                if any(a is not b for a, b in zip(inner, op.blocks, strict=True)):
                    made[op] = replace(op, blocks=inner)
            if op.name != "reshard":
                continue
            then = first.get(op.operands[0])
            if then is not None and counts[then.result] == 1 and _no_dearer(then, op, mesh):
                why = then.why if not op.why else f"{then.why}; {op.why}"
                made[op] = replace(op, operands=then.operands, why=why)
                made.pop(then, None)
                gone.add(then)
            if place_of(op.operands[0], mesh).unreduced:
                first[op.result] = op
        if not made:
            return old
        return replace(old, ops=tuple(made.get(op, op) for op in old.ops if op not in gone))

    gone: set[Op] = set()
    body = block(function.body)
    return function if body is function.body else replace(function, body=body)


def _no_dearer(first: Op, then: Op, mesh: str) -> bool:
    """Whether it sends no more to go from where the first begins to where the other ends."""
    places = [place_of(value, mesh) for value in (first.operands[0], first.result, then.result)]
    start, middle, end = places
    type = then.result.type
    apart = price(start, middle, type)[0] + price(middle, end, type)[0]
    return price(start, end, type)[0] <= apart


def _sources(uses: Uses) -> dict[tuple[str, Axes], list[Value]]:
    """The values that are to be reduced, how and over which axes, by their own making."""
    found: dict[tuple[str, Axes], list[Value]] = {}
    for value in uses.times:
        sharding = value.sharding
        if sharding is None or not sharding.unreduced:
            continue
        maker = uses.maker.get(value)
        if value in uses.owner or (maker and (maker.name == "reshard" or _passes(maker, sharding))):
            continue
        found.setdefault((sharding.reduction, sharding.unreduced), []).append(value)
    return found


def _passes(op: Op, sharding: Sharding) -> bool:
    """Whether an operation was given a part of what is pending in its result."""
    return any(
        v.sharding and any(a in sharding.unreduced for a in v.sharding.unreduced)
        for v in op.operands
    )
