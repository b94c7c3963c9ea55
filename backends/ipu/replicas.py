"""Which replicas talk to each other, and how.

The replicas that differ along some mesh axes form groups. GCL exchanges within groups that follow
one another in the order of replicas; what it does with others depends on how IPUs are linked, so
those exchange around rings of `CrossReplicaCopy`, unless `strided=gcl` says otherwise. Several axes
that do not make one such group take one exchange each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardir.backends.ipu.emitter import Emitter
from shardir.backends.ipu.layout import wrapped
from shardir.ir.sharding import Axes, Axis

Groups = tuple[tuple[int, ...], ...]


def stride_of(groups: Groups) -> int | None:
    """How far apart neighbours in every group are; `None` if that differs, or falls."""
    first = groups[0]
    stride = first[1] - first[0] if len(first) > 1 else 1
    for group in groups:
        if any(after - before != stride for before, after in pairwise(group)):
            return None
    return stride if stride > 0 else None


def is_native(e: Emitter, axes: Axes) -> bool:
    """Whether GCL exchanges within these groups in their order."""
    stride = stride_of(e.groups(axes))
    return stride == 1 or (stride is not None and e.strided == "gcl")


def steps(e: Emitter, axes: Axes, *, ordered: bool) -> list[Axes]:
    """The exchanges that one along all of these axes takes, the most major first.

    Where the order of positions does not matter, axes may be taken in that of the mesh.
    """
    some = tuple(axis for axis in axes if axis.size > 1)
    if not some:
        return []
    sorted_axes = tuple(sorted(some, key=lambda axis: -axis.stride(e.mesh)))
    for choice in (some,) if ordered else (some, sorted_axes):
        if is_native(e, choice):
            return [choice]
    return [(axis,) for axis in some]


def name_of(e: Emitter, axes: Axes) -> str:
    """Words for the axes: `data_model`."""
    return "_".join(
        axis.name if axis.is_full(e.mesh) else f"{axis.name}_{axis.pre}_{axis.size}"
        for axis in axes
    )


def comm_group(e: Emitter, axes: Axes) -> str:
    """The name of the constant that GCL knows the groups by."""
    groups = e.groups(axes)
    stride, size = stride_of(groups), len(groups[0])
    kind = "gcl::CommGroupType::CONSECUTIVE"
    if size == e.mesh.size:
        arguments = "gcl::CommGroupType::ALL, 0"
    elif stride == 1:
        arguments = f"{kind}, {size}"
    else:
        arguments = f"{kind}, {size}, {stride}"
    definition = f"const gcl::CommGroup {{name}}({arguments});"
    return define(e, definition, f"along_{name_of(e, axes)}")


def ring(e: Emitter, axes: Axes) -> str:
    """The name of the constant that lists the groups."""
    rows = ", ".join("{" + ", ".join(map(str, group)) + "}" for group in e.groups(axes))
    e.use("Groups")
    return define(e, "const Groups {name} = {" + rows + "};", f"around_{name_of(e, axes)}")


def define(e: Emitter, definition: str, name: str) -> str:
    """The name of a constant in front of the function that builds the graph."""
    if definition not in e.globals:
        made = e.fresh(name)
        e.globals[definition] = made
    return e.globals[definition]


def definitions(e: Emitter) -> list[str]:
    """The constants in front of the function that builds the graph."""
    lines = []
    for definition, name in e.globals.items():
        lines.extend(wrapped(definition.replace("{name}", name), ""))
    return lines


def replica(e: Emitter) -> str:
    """The name of the tensor that holds which replica this is."""
    return e.once("replica", "replica", f"{e.use('replica_index')}(graph)")


def position(e: Emitter, axes: Axes) -> str:
    """The name of the tensor that holds where along the axes this replica is, as u32."""
    if stride_of(e.groups(axes)) == 1 and len(e.groups(axes)) == 1:
        return replica(e)
    text = ""
    for axis in axes:
        part = _along(axis, e)
        text = f"({text}) * pe::Const({axis.size}u) + {part}" if text else part
    key = f"position {axes}"
    if key in e.known:
        return e.known[key]
    name = f"place_along_{name_of(e, axes)}"
    return e.once(key, name, f'popops::map(graph, {text}, {{{replica(e)}}}, step, "{name}")')


def _along(axis: Axis, e: Emitter) -> str:
    stride = axis.stride(e.mesh)
    text = "pe::_1" if stride == 1 else f"pe::_1 / pe::Const({stride}u)"
    return text if stride * axis.size == e.mesh.size else f"{text} % pe::Const({axis.size}u)"


@dataclass(frozen=True)
class Round:
    """One `CrossReplicaCopy`: to whom each replica sends, and which replicas keep what arrives."""

    partner: Mapping[int, int]
    keep: frozenset[int]


def rounds(moves: Mapping[int, int], count: int) -> list[Round]:
    """Copies in which every replica sends once and receives once, none to itself.

    `moves` says for some replicas to which other one they send. Those that have nothing to send or
    to receive get something that is thrown away. One copy is enough unless a single replica is left
    over, which could only send to itself: then one of the moves waits for a second copy.
    """
    if not moves:
        return []
    idle = [r for r in range(count) if r not in moves]
    unmet = [r for r in range(count) if r not in moves.values()]
    filled = _matched(idle, unmet)
    if filled is not None:
        partner = {**moves, **filled}
        return [Round(dict(sorted(partner.items())), frozenset(moves.values()))]
    later = min(moves)
    rest = {source: target for source, target in moves.items() if source != later}
    return [*rounds(rest, count), *rounds({later: moves[later]}, count)]


def _matched(sources: Sequence[int], targets: Sequence[int]) -> dict[int, int] | None:
    """A partner for each source, other than itself; `None` if there is none."""
    for turn in range(len(targets)):
        turned = [*targets[turn:], *targets[:turn]]
        if all(a != b for a, b in zip(sources, turned, strict=True)):
            return dict(zip(sources, turned, strict=True))
    if len(sources) < 2:
        return None if sources else {}
    for i, target in enumerate(targets):
        if target != sources[0]:
            left = [*targets[:i], *targets[i + 1 :]]
            rest = _matched(sources[1:], left)
            if rest is not None:
                return {sources[0]: target, **rest}
    return None
