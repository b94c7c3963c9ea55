"""Sink reductions of unreduced values to where completing them costs least.

before: `%a = reshard(%a.part)`, `%b = reshard(%b.part)`, `%c = add(%a, %b)`, where the parts are
        `unreduced(model)`
after:  `%c.part = add(%a.part, %b.part) : ... unreduced(model)`, `%c = reshard(%c.part)`

Runs after `reshard`. A minimum cut (`shardir.passes.resharding.reduction_region`) decides which
values stay unreduced, for one set of axes after the other, so that the cost of the program never
grows: partial sums are added before they are reduced, a reduction sinks below operations that make
the value smaller and out of a loop that accumulates it, and no further than linear operations. Each
`reshard` that completes reductions names them. A reduction followed by a second reshard becomes one
reshard to the final sharding, because the intermediate sharding could prevent sinking.
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
    """Complete pending reductions where that sends least."""

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
    """Return the function with consecutive reshards of an unreduced value merged if the
    intermediate value has no other use."""
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
    """Return whether the direct reshard receives no more bytes than the two consecutive ones."""
    places = [place_of(value, mesh) for value in (first.operands[0], first.result, then.result)]
    start, middle, end = places
    type = then.result.type
    apart = price(start, middle, type)[0] + price(middle, end, type)[0]
    return price(start, end, type)[0] <= apart


def _sources(uses: Uses) -> dict[tuple[str, Axes], list[Value]]:
    """Return the values whose own operation leaves them unreduced, by reduction and axes."""
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
    """Return whether an operand is unreduced over axes over which the result is."""
    return any(
        v.sharding and any(a in sharding.unreduced for a in v.sharding.unreduced)
        for v in op.operands
    )
