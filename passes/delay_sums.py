"""Let sums that are cut over devices wait until completing them costs least.

before: `%a = reshard(%a.part)`, `%b = reshard(%b.part)`, `%c = add(%a, %b)`, where the parts are
        `unreduced(model)`
after:  `%c.part = add(%a.part, %b.part) : ... unreduced(model)`, `%c = reshard(%c.part)`

Runs after `reshard`. Which values are left pending is a minimum cut (`shardir.passes.sum_region`),
found for one set of axes after the other, so that the program never gets dearer: parts of sums
are added before they are reduced, a sum goes through what makes it smaller, out of a loop that
adds it up, and no further than linear operations. Every `reshard` that completes a sum says
which sums these are.
"""

from dataclasses import dataclass, replace

from shardir.ir import Function, Module, Op, Value
from shardir.passes.pipeline import Pass
from shardir.passes.prices import LATENCY
from shardir.passes.program import mesh_of
from shardir.passes.sum_region import Region
from shardir.passes.sum_rewrite import Rewriter
from shardir.passes.uses import Uses, uses_of
from shardir.placement import Axes, Sharding


@dataclass(frozen=True)
class DelaySums(Pass, name="delay-sums"):
    """Complete pending sums where that sends least."""

    latency: int = LATENCY
    """As how many bytes a collective counts, where that does not make a program send more."""

    def __call__(self, module: Module) -> Module:
        functions = tuple(
            function if function.spmd else _function(function, module, self.latency)
            for function in module.functions
        )
        same = all(a is b for a, b in zip(functions, module.functions, strict=True))
        return module if same else replace(module, functions=functions)


def _function(function: Function, module: Module, latency: int) -> Function:
    mesh = mesh_of(function, module)
    if mesh is None:
        return function
    done: dict[Axes, None] = {}
    while True:
        uses = uses_of(function)
        sources = _sources(uses)
        axes = next((axes for axes in sources if axes not in done), None)
        if axes is None:
            return function
        done[axes] = None
        region = Region(uses, mesh, axes, sources[axes])
        pending = region.decide(latency)
        if pending is not None:
            function = Rewriter(function, region, pending).function()


def _sources(uses: Uses) -> dict[Axes, list[Value]]:
    """The values that are sums over some axes by their own making."""
    found: dict[Axes, list[Value]] = {}
    for value in uses.times:
        sharding = value.sharding
        if sharding is None or not sharding.unreduced or sharding.reduction != "add":
            continue
        maker = uses.maker.get(value)
        if value in uses.owner or (maker and (maker.name == "reshard" or _passes(maker, sharding))):
            continue
        found.setdefault(sharding.unreduced, []).append(value)
    return found


def _passes(op: Op, sharding: Sharding) -> bool:
    """Whether an operation was given a part of what is pending in its result."""
    return any(
        v.sharding and any(a in sharding.unreduced for a in v.sharding.unreduced)
        for v in op.operands
    )
