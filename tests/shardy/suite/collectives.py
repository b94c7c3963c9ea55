"""The collectives of the greedy planner in Shardy's notation, and their comparison with its
tests.
"""

import re
from collections.abc import Sequence

from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Module, Value
from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.passes.resharding.greedy import GreedyCollective, greedy_collectives
from tests.shardy.suite.check_files import Case

_WANTED = re.compile(
    r"sdy\.(\w+)( \[.*?\]| \{.*?\})? %\S+ out_sharding=<@\w+, (\[.*?\](?:, unreduced=\{.*?\})?)"
    r"(?:>|$)"
)
COLLECTIVES = ("all_gather", "all_slice", "all_to_all", "collective_permute", "all_reduce",
               "reduce_scatter")  # fmt: skip


def compare_collectives(case: Case, module: Module) -> list[str]:
    """Return the differences from the CHECK lines of the one function of a case."""
    function = next(f for f in module.functions if f.name == case.name)
    sources = _sources(function.body)
    made: list[str] = []
    for op in function.body.walk():
        if op.name == "reshard":
            source, target = sources.get(op.operands[0]), op.result.sharding
            assert target is not None
            if source is None:
                source = Sharding.fully_replicated(target.mesh, op.result.type.rank)
            made += reshard_collectives(module, source, target, op.result.type.shape)
    expected = [
        f"{line[1]}{line[2] or ''} out_sharding=<@mesh, {line[3]}>"
        for check in case.checks
        if (line := _WANTED.search(check.text)) and line[1] in COLLECTIVES
    ]
    return [] if made == expected else [f"makes {made}", f"wanted {expected}"]


def _sources(body: Block) -> dict[Value, Sharding | None]:
    """Return the shardings of values; values that enter blocks or barriers have that of their
    source.
    """
    known: dict[Value, Sharding | None] = {}

    def walk(block: Block, given: Sequence[Value]) -> None:
        known.update((value, value.sharding) for value in block.values())
        known.update((p, known[v]) for p, v in zip(block.params, given, strict=False))
        for op in block.ops:
            if op.name == "propagation_barrier":
                known[op.result] = known[op.operands[0]]
            for inner in op.blocks:
                walk(inner, op.results if op.name == "while" else ())

    walk(body, ())
    return known


def reshard_collectives(
    module: Module, source: Sharding, target: Sharding, shape: tuple[int, ...]
) -> list[str]:
    """Return the collectives of one reshard; another device order adds a permutation."""
    mesh, before = module.mesh(target.mesh), module.mesh(source.mesh)
    source, target = source.close(), target.close()
    if before.axes != mesh.axes:
        if any(source.axes) and any(target.axes):
            return []  # no entry means the same devices
        mesh = before if any(source.axes) else mesh
    reordered = before.device_ids != mesh.device_ids and any((*source.axes, *target.axes))
    made = greedy_collectives(source, target, shape, reordered=reordered)
    return [written(each, mesh) for each in made]


def written(made: GreedyCollective, mesh: Mesh) -> str:
    out = f"out_sharding={print_sharding(made.sharding, mesh)}"
    name = made.kind.replace("-", "_")
    if name == "collective_permute":
        return f"{name} {out}"
    if name == "all_reduce":
        return f"{name} {print_axes(made.axes[0], mesh)} {out}"
    if name == "all_to_all":
        ((dim, axes),) = ((dim, axes) for dim, axes in enumerate(made.axes) if axes)
        return f"{name} [{print_axes(axes, mesh)}: {dim}->{made.target}] {out}"
    return f"{name} [{', '.join(print_axes(axes, mesh) for axes in made.axes)}] {out}"


def print_sharding(sharding: Sharding, mesh: Mesh) -> str:
    pending = f", unreduced={print_axes(sharding.unreduced, mesh)}" if sharding.unreduced else ""
    return f"<@mesh, [{', '.join(print_axes(axes, mesh) for axes in sharding.axes)}]{pending}>"


def print_axes(axes: Axes, mesh: Mesh) -> str:
    return f"{{{', '.join(print_axis(axis, mesh) for axis in axes)}}}"


def print_axis(axis: Axis, mesh: Mesh) -> str:
    part = "" if axis.is_full(mesh) else f":({axis.pre}){axis.size}"
    return f'"{axis.name}"{part}'
