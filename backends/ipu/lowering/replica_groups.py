"""Groups of replicas that communicate, and how: GCL or rings.

The replicas that differ along some mesh axes form groups. GCL communicates within groups of
consecutive replicas; for others its behaviour depends on the links between IPUs, so those use rings
of `CrossReplicaCopy`, unless `strided=gcl` is set. Several axes that do not form one such group
take one collective each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardir.backends.ipu.codegen.emitter import ProgramEmitter
from shardir.backends.ipu.codegen.line_wrapping import wrap_statement
from shardir.ir.sharding import Axes, Axis

Groups = tuple[tuple[int, ...], ...]


def common_stride(groups: Groups) -> int | None:
    """Return the common distance between successive members of all groups; `None` if it differs or
    is negative.
    """
    first = groups[0]
    stride = first[1] - first[0] if len(first) > 1 else 1
    for group in groups:
        if any(after - before != stride for before, after in pairwise(group)):
            return None
    return stride if stride > 0 else None


def is_supported_by_gcl(e: ProgramEmitter, axes: Axes) -> bool:
    """Return whether GCL supports these groups, in their order."""
    stride = common_stride(e.groups(axes))
    return stride == 1 or (stride is not None and e.strided == "gcl")


def split_into_collectives(e: ProgramEmitter, axes: Axes, *, ordered: bool) -> list[Axes]:
    """Return the axes of each collective that one along all these axes takes, major first.

    If the order of positions does not matter, axes may be taken in mesh order.
    """
    some = tuple(axis for axis in axes if axis.size > 1)
    if not some:
        return []
    sorted_axes = tuple(sorted(some, key=lambda axis: -axis.stride(e.mesh)))
    for choice in (some,) if ordered else (some, sorted_axes):
        if is_supported_by_gcl(e, choice):
            return [choice]
    return [(axis,) for axis in some]


def axes_identifier(e: ProgramEmitter, axes: Axes) -> str:
    """Return an identifier for the axes: `data_model`."""
    return "_".join(
        axis.name if axis.is_full(e.mesh) else f"{axis.name}_{axis.pre}_{axis.size}"
        for axis in axes
    )


def comm_group(e: ProgramEmitter, axes: Axes) -> str:
    """Return the name of the constant with GCL's description of the groups."""
    groups = e.groups(axes)
    stride, size = common_stride(groups), len(groups[0])
    kind = "gcl::CommGroupType::CONSECUTIVE"
    if size == e.mesh.size:
        arguments = "gcl::CommGroupType::ALL, 0"
    elif stride == 1:
        arguments = f"{kind}, {size}"
    else:
        arguments = f"{kind}, {size}, {stride}"
    definition = f"const gcl::CommGroup {{name}}({arguments});"
    return define_constant(e, definition, f"along_{axes_identifier(e, axes)}")


def ring_groups(e: ProgramEmitter, axes: Axes) -> str:
    """Return the name of the constant that lists the groups."""
    rows = ", ".join("{" + ", ".join(map(str, group)) + "}" for group in e.groups(axes))
    e.use_helper("Groups")
    return define_constant(
        e, "const Groups {name} = {" + rows + "};", f"around_{axes_identifier(e, axes)}"
    )


def define_constant(e: ProgramEmitter, definition: str, name: str) -> str:
    """Return the name of a constant defined before the function that builds the graph."""
    if definition not in e.globals:
        made = e.unused_identifier(name)
        e.globals[definition] = made
    return e.globals[definition]


def constant_definitions(e: ProgramEmitter) -> list[str]:
    """Return the constants defined before the function that builds the graph."""
    lines = []
    for definition, name in e.globals.items():
        lines.extend(wrap_statement(definition.replace("{name}", name), ""))
    return lines


def replica_index_name(e: ProgramEmitter) -> str:
    """Return the name of the tensor with the replica's index."""
    return e.define_once("replica", "replica", f"{e.use_helper('replica_index')}(graph)")


def position_name(e: ProgramEmitter, axes: Axes) -> str:
    """Return the name of the tensor (u32) with the replica's position along the axes."""
    if common_stride(e.groups(axes)) == 1 and len(e.groups(axes)) == 1:
        return replica_index_name(e)
    text = ""
    for axis in axes:
        part = _along(axis, e)
        text = f"({text}) * pe::Const({axis.size}u) + {part}" if text else part
    key = f"position {axes}"
    if key in e.preamble_names:
        return e.preamble_names[key]
    name = f"place_along_{axes_identifier(e, axes)}"
    return e.define_once(
        key, name, f'popops::map(graph, {text}, {{{replica_index_name(e)}}}, step, "{name}")'
    )


def _along(axis: Axis, e: ProgramEmitter) -> str:
    stride = axis.stride(e.mesh)
    text = "pe::_1" if stride == 1 else f"pe::_1 / pe::Const({stride}u)"
    return text if stride * axis.size == e.mesh.size else f"{text} % pe::Const({axis.size}u)"


@dataclass(frozen=True)
class ReplicaCopy:
    """One `CrossReplicaCopy`: the target of each replica, and the replicas that keep what they
    receive.
    """

    partner: Mapping[int, int]
    keep: frozenset[int]


def plan_copies(moves: Mapping[int, int], count: int) -> list[ReplicaCopy]:
    """Return copies in which every replica sends once and receives once, never to itself.

    `moves` maps some replicas to their targets. The others send and receive data that is discarded.
    One copy suffices unless a single replica remains, which could only send to itself: then one
    move is done in a second copy.
    """
    if not moves:
        return []
    idle = [r for r in range(count) if r not in moves]
    unmet = [r for r in range(count) if r not in moves.values()]
    filled = _match_targets(idle, unmet)
    if filled is not None:
        partner = {**moves, **filled}
        return [ReplicaCopy(dict(sorted(partner.items())), frozenset(moves.values()))]
    later = min(moves)
    rest = {source: target for source, target in moves.items() if source != later}
    return [*plan_copies(rest, count), *plan_copies({later: moves[later]}, count)]


def _match_targets(sources: Sequence[int], targets: Sequence[int]) -> dict[int, int] | None:
    """Match each source with a target other than itself; return `None` if impossible."""
    for turn in range(len(targets)):
        turned = [*targets[turn:], *targets[:turn]]
        if all(a != b for a, b in zip(sources, turned, strict=True)):
            return dict(zip(sources, turned, strict=True))
    if len(sources) < 2:
        return None if sources else {}
    for i, target in enumerate(targets):
        if target != sources[0]:
            left = [*targets[:i], *targets[i + 1 :]]
            rest = _match_targets(sources[1:], left)
            if rest is not None:
                return {sources[0]: target, **rest}
    return None
