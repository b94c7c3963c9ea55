"""Brings the shardings of one program onto one mesh, and results back to what the user wrote.

A program runs on one ordered list of devices, though its shardings may come from many meshes over
that list. Their digits (digits.py) become parts of the axes of one common mesh: the mesh of the
first NamedSharding, whose names the user knows, or else axes d0, d1, ... made by cutting wherever
a sharding cuts. An axis of size n counts as [pre, size, n / (pre * size)], and the part in the
middle is what `Axis(name, pre, size)` means; the whole axis is `Axis(name, 1, n)`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from shardir.frontend.abstract_mesh import AbstractMesh
from shardir.frontend.devices import Device
from shardir.frontend.digits import Digit, Digits, row_major
from shardir.frontend.errors import IncompatibleDevicesError, ShardingError
from shardir.frontend.locations import pointed
from shardir.frontend.mesh import Mesh
from shardir.frontend.partition_spec import UNCONSTRAINED, PartitionSpec, Unconstrained
from shardir.frontend.positional_sharding import PositionalSharding
from shardir.frontend.shardings import NamedSharding, Sharding, SingleDeviceSharding
from shardir.placement import Axes, Axis

MeshAxes = tuple[tuple[str, int], ...]


def grounded(
    asked: Iterable[tuple[Sharding, int]], met: Iterable[Sharding]
) -> tuple[tuple[Sharding, int], ...]:
    """Shardings with the rank of their values; those on a mesh without devices get devices.

    They are those of the first mesh with the same axes that a sharding in `met` is on.
    """
    meshes: dict[Mesh, Mesh] = {}
    for sharding in met:
        if isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, AbstractMesh):
            meshes.setdefault(sharding.mesh.abstract_mesh, sharding.mesh)
    return tuple((_on_devices(sharding, meshes), rank) for sharding, rank in asked)


def _on_devices(sharding: Sharding, meshes: Mapping[Mesh, Mesh]) -> Sharding:
    if not isinstance(sharding, NamedSharding) or sharding.mesh not in meshes:
        return sharding
    return NamedSharding(meshes[sharding.mesh], sharding.spec)


@pointed
def check_same_devices(placed: Sequence[tuple[str, Sharding]]) -> tuple[Device, ...]:
    """The one ordered device list of everything in `placed`, pairs of a name and a sharding.

    Names are words such as `argument x of f`. Raises `IncompatibleDevicesError`, naming the first
    two that disagree and their devices.
    """
    (first, reference), *others = placed
    for name, sharding in others:
        if sharding.device_assignment != reference.device_assignment:
            same = sharding.device_set == reference.device_set
            raise IncompatibleDevicesError(
                f"devices of all arrays of a computation should be the same"
                f"{', in the same order' if same else ''}: {first} has "
                f"{describe_devices(reference)}, and {name} has {describe_devices(sharding)}; "
                "move one to the devices of the other with device_put"
            )
    return reference.device_assignment


def describe_devices(sharding: Sharding) -> str:
    """The ids of the devices in order, and their platform."""
    devices = sharding.device_assignment
    return f"device ids {[d.id for d in devices]} on platform {devices[0].platform.upper()}"


def common_axes(shardings: Sequence[Sharding]) -> MeshAxes:
    """Axes, major first, of parts of which every cut of `shardings` can be said.

    All of them have the same devices (`check_same_devices`). Raises `ShardingError` when there is
    no such mesh; a NamedSharding's own mesh is not questioned here but by `express`.
    """
    for sharding in shardings:
        if isinstance(sharding, NamedSharding):
            return tuple(sharding.mesh.shape.items())
    devices = shardings[0].num_devices
    cuts = {1, devices}
    for sharding in shardings:
        for digits in sharding.cuts(sharding.natural_rank):
            for digit in digits:
                cuts |= {digit.stride, digit.span}
    groups = sorted(cuts, reverse=True)
    for major, minor in pairwise(groups):
        if major % minor:
            raise ShardingError(
                f"the shardings of one program cut its {devices} devices into groups of {major} "
                f"and of {minor}, which do not nest: "
                f"{', '.join(map(str, dict.fromkeys(shardings)))}; "
                "use shapes whose sizes divide each other"
            )
    return tuple((f"d{i}", major // minor) for i, (major, minor) in enumerate(pairwise(groups)))


def express(digit: Digit, axes: MeshAxes) -> Axes:
    """`digit` as parts of `axes`, major first. Raises `ShardingError` when it does not nest."""
    parts = []
    names = [name for name, _ in axes]
    for name, whole in zip(names, row_major([size for _, size in axes]), strict=True):
        low, high = max(digit.stride, whole.stride), min(digit.span, whole.span)
        if low >= high:
            continue
        if whole.span % high or high % low or low % whole.stride:
            text = ", ".join(f"{each}={size}" for each, size in axes)
            raise ShardingError(
                f"cutting groups of {digit.span} devices into {digit.size} does not nest in the "
                f"mesh [{text}]; use sizes that divide those of the mesh, or one mesh throughout"
            )
        parts.append(Axis(name, whole.span // high, high // low))
    return tuple(parts)


def express_cut(digits: Digits, axes: MeshAxes) -> Axes:
    """The digits of a dimension as parts of `axes`, adjacent parts of one axis joined."""
    joined: list[Axis] = []
    for digit in digits:
        for part in express(digit, axes):
            if joined and joined[-1].name == part.name and joined[-1].next == part.pre:
                part = Axis(part.name, joined[-1].pre, joined.pop().size * part.size)
            joined.append(part)
    return tuple(joined)


def express_sharding(
    sharding: Sharding, rank: int, axes: MeshAxes
) -> tuple[Axes | Unconstrained, ...]:
    """Each dimension of `sharding`, given to a value of `rank`, as parts of `axes`."""
    return tuple(
        cut if cut is UNCONSTRAINED else express_cut(cut, axes) for cut in sharding.digits(rank)
    )


def find_digit(part: Axis, axes: MeshAxes) -> Digit:
    """The digit that `part` is: the inverse of `express`."""
    sizes = [size for _, size in axes]
    whole = row_major(sizes)[[name for name, _ in axes].index(part.name)]
    return Digit(whole.span // part.next, part.size)


def from_axes(
    dims: Sequence[Axes], axes: MeshAxes, devices: tuple[Device, ...], seen: Sequence[Sharding]
) -> Sharding:
    """The sharding to show a user for a value whose dimensions are cut by `dims`, parts of `axes`.

    `seen` are the shardings that the user wrote in the program. The answer is a NamedSharding on
    the first of their meshes of which it needs whole axes only; a PositionalSharding (or, on one
    device, a SingleDeviceSharding) when the user named no mesh; and otherwise a NamedSharding
    whose mesh is the user's first with axes split where the value is cut.
    """
    cuts = [tuple(find_digit(part, axes) for part in parts) for parts in dims]
    meshes = [
        sharding.mesh
        for sharding in dict.fromkeys(seen)
        if isinstance(sharding, NamedSharding) and sharding.device_assignment == devices
    ]
    for mesh in dict.fromkeys(meshes):
        if (spec := _whole_axes(cuts, mesh)) is not None:
            return NamedSharding(mesh, spec)
    if meshes:
        return _split_mesh(cuts, meshes[0])
    if len(devices) == 1 and not any(isinstance(each, PositionalSharding) for each in seen):
        return SingleDeviceSharding(devices[0])
    return PositionalSharding.from_digits(devices, cuts)


def _whole_axes(cuts: Sequence[Digits], mesh: Mesh) -> PartitionSpec | None:
    """`cuts` in the axes of `mesh`, or `None` if they cut within an axis."""
    axes = tuple(mesh.shape.items())
    entries: list[tuple[str, ...]] = []
    for digits in cuts:
        try:
            parts = express_cut(digits, axes)
        except ShardingError:
            return None
        if any(part.size != mesh.shape[part.name] for part in parts):
            return None
        entries.append(tuple(part.name for part in parts))
    return _spec(entries)


def _split_mesh(cuts: Sequence[Digits], mesh: Mesh) -> NamedSharding:
    """A NamedSharding on `mesh` with the axis x split into x.0, x.1, ... where `cuts` do."""
    axes = tuple(mesh.shape.items())
    wanted = [express_cut(digits, axes) for digits in cuts]
    names: list[str] = []
    sizes: list[int] = []
    pieces: dict[str, list[tuple[int, str]]] = {}
    for name, size in axes:
        ends = {1, size}
        for part in (part for parts in wanted for part in parts if part.name == name):
            ends |= {part.pre, part.next}
        bounds = list(pairwise(sorted(ends))) or [(1, 1)]
        pieces[name] = []
        for i, (pre, after) in enumerate(bounds):
            if after % pre:
                raise ShardingError(
                    f"one value is cut over the axis {name!r} of size {size} in groups of {pre} "
                    f"and of {after}, which do not nest; cut it over one of them"
                )
            piece = name if len(bounds) == 1 else f"{name}.{i}"
            names.append(piece)
            sizes.append(after // pre)
            pieces[name].append((pre, piece))
    spec = _spec(
        tuple(
            piece
            for part in parts
            for pre, piece in pieces[part.name]
            if part.pre <= pre < part.next
        )
        for parts in wanted
    )
    return NamedSharding(Mesh(mesh.devices.reshape(sizes), names), spec)


def _spec(entries: Iterable[tuple[str, ...]]) -> PartitionSpec:
    """A spec without the trailing entries that say nothing."""
    kept = list(entries)
    while kept and not kept[-1]:
        kept.pop()
    return PartitionSpec(*kept)
