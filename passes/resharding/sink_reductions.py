"""Sink reductions of unreduced values to where completing them costs least.

before: `%a = reshard(%a.partial)`, `%b = reshard(%b.partial)`, `%c = add(%a, %b)`, where
        `%a.partial` and `%b.partial` are `unreduced(model)`
after:  `%c.partial = add(%a.partial, %b.partial) : ... unreduced(model)`,
        `%c = reshard(%c.partial)`

Runs after `reshard`. A minimum cut (`shardir.passes.resharding.reduction_region`) decides which
values stay unreduced, for one set of axes after the other, so that the cost of the program never
grows: partial sums are added before they are reduced, a reduction sinks below operations that make
the value smaller and out of a loop that accumulates it, and no further than linear operations. Each
`reshard` that completes reductions names them. A reduction followed by a second reshard becomes one
reshard to the final sharding, because the intermediate sharding could prevent sinking.
"""

from dataclasses import dataclass, replace

from shardir import ops
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module, Op, Value
from shardir.ir.sharding import Axes
from shardir.passes.def_use import DefUse, Use, analyze_def_use
from shardir.passes.global_programs import rebuild_global_programs
from shardir.passes.pipeline import Pass
from shardir.passes.resharding.cost import reshard_cost, sharding_or_unsharded
from shardir.passes.resharding.reduction_region import ReductionRegion
from shardir.passes.resharding.reduction_rewrite import ReductionRewriter
from shardir.passes.rewriting import use_counts


@dataclass(frozen=True)
class SinkReductions(Pass, name="sink-reductions"):
    """Complete pending reductions where that sends least."""

    def __call__(self, module: Module) -> Module:
        return rebuild_global_programs(module, _sink_reductions)


def _sink_reductions(function: Function, mesh: Mesh) -> Function:
    function = _merge_consecutive_reshards(function, mesh.name)
    done: dict[tuple[str, Axes], None] = {}
    uses = analyze_def_use(function)
    sources = _reduction_sources(uses)
    while (kind := next((kind for kind in sources if kind not in done), None)) is not None:
        done[kind] = None
        reduction, axes = kind
        region = ReductionRegion(uses, mesh, axes, sources[kind], reduction)
        pending = region.choose_unreduced_flows()
        if pending is not None:
            function = ReductionRewriter(function, region, pending).function()
            uses = analyze_def_use(function)
            sources = _reduction_sources(uses)
    return function


def _merge_consecutive_reshards(function: Function, mesh: str) -> Function:
    """Return the function with consecutive reshards of an unreduced value merged if the
    intermediate value has no other use."""
    counts = use_counts(function.body)

    def block(old: Block) -> Block:
        first: dict[Value, Op] = {}
        new_ops: dict[Op, Op] = {}
        for op in old.ops:
            if op.blocks:
                inner = tuple(map(block, op.blocks))
                if any(a is not b for a, b in zip(inner, op.blocks, strict=True)):
                    new_ops[op] = replace(op, blocks=inner)
            if op.spec is not ops.reshard:
                continue
            then = first.get(op.operands[0])
            if then is not None and counts[then.result] == 1 and _is_direct_cheaper(then, op, mesh):
                why = then.why if not op.why else f"{then.why}; {op.why}"
                new_ops[op] = replace(op, operands=then.operands, why=why)
                new_ops.pop(then, None)
                gone.add(then)
            if sharding_or_unsharded(op.operands[0], mesh).unreduced:
                first[op.result] = op
        if not new_ops:
            return old
        return replace(old, ops=tuple(new_ops.get(op, op) for op in old.ops if op not in gone))

    gone: set[Op] = set()
    body = block(function.body)
    return function if body is function.body else replace(function, body=body)


def _is_direct_cheaper(first: Op, then: Op, mesh: str) -> bool:
    """Return whether the direct reshard receives no more bytes than the two consecutive ones."""
    places = [
        sharding_or_unsharded(value, mesh)
        for value in (first.operands[0], first.result, then.result)
    ]
    start, middle, end = places
    type = then.result.type
    separate_bytes = reshard_cost(start, middle, type)[0] + reshard_cost(middle, end, type)[0]
    return reshard_cost(start, end, type)[0] <= separate_bytes


def _reduction_sources(uses: DefUse) -> dict[tuple[str, Axes], list[Value]]:
    """Return the values that operations leave unreduced, by reduction and axes.

    Values that the program keeps unreduced in another operation or in a loop remain as they are.
    """
    result: dict[tuple[str, Axes], list[Value]] = {}
    for value in uses.times:
        sharding = value.sharding
        if sharding is None or not sharding.unreduced:
            continue
        maker = uses.maker.get(value)
        if (
            value in uses.owner
            or (maker and maker.spec is ops.reshard)
            or not all(map(_completes_or_returns, uses.users[value]))
        ):
            continue
        result.setdefault((sharding.reduction, sharding.unreduced), []).append(value)
    return result


def _completes_or_returns(use: Use) -> bool:
    """Return whether a use of an unreduced value is a reshard or requires the value as it is; the
    results of all other uses are unreduced, too."""
    return use is None or (isinstance(use, Op) and use.spec is ops.reshard)
