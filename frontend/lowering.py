"""Lowering of a traced function and the shardings of its arguments to a module on one mesh.

All shardings of a program (of arguments, of results, and of constraints) must use the same ordered
list of devices. They are expressed in the axes of one mesh (the user's, if there is a
NamedSharding), so the module does not refer to public classes. A program without any sharding, or
on one device, has no mesh.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shardir.frontend.annotations import resolve, resolved
from shardir.frontend.common_mesh import (
    MeshAxes,
    check_same_devices,
    common_axes,
    express_sharding,
    from_axes,
    grounded,
)
from shardir.frontend.config import config
from shardir.frontend.devices import Device
from shardir.frontend.errors import IndivisibleError, ShardingError
from shardir.frontend.locations import pointed
from shardir.frontend.partition_spec import UNCONSTRAINED
from shardir.frontend.running import uncommitted_device
from shardir.frontend.shardings import Sharding as UserSharding, SingleDeviceSharding
from shardir.frontend.trace import Traced
from shardir.ir import Function, Module, Value
from shardir.mesh import Mesh
from shardir.passes.inline import inlined
from shardir.placement import OPEN, Dim, Sharding
from shardir.types import TensorType

MESH = "mesh"


@dataclass(frozen=True)
class Plan:
    """A lowered module, and the meaning of its mesh axes in public shardings.

    `user_shardings` are the public shardings in order of appearance; if there are none, the program
    runs on the default device and its results are not committed. `params` and `results` have the
    requested shardings. `uneven` is the treatment of dimensions that do not divide.
    `has_uneven_arguments` states whether an argument has such a dimension, `shardy_exact` whether
    values are resharded exactly as Shardy does. `on_fallback` is the treatment of sharded
    operations without a factor rule.
    """

    module: Module
    devices: tuple[Device, ...]
    axes: MeshAxes
    seen: tuple[UserSharding, ...]
    params: tuple[UserSharding | None, ...]
    results: tuple[UserSharding | None, ...]
    uneven: str | None = None
    odd: bool = False
    exact: bool = False
    on_fallback: str = "replicate"

    @property
    def committed(self) -> bool:
        return bool(self.seen)

    def sharding_of(self, sharding: Sharding | None, rank: int) -> UserSharding:
        """Return the public form of a sharding of the compiled module: the user's own object if
        equal."""
        if not self.seen:
            return SingleDeviceSharding(self.devices[0])
        dims = sharding.axes if sharding is not None else ((),) * rank
        found = from_axes(dims, self.axes, self.devices, self.seen)
        return next((own for own in self.seen if _same(own, found, rank)), found)


def _same(own: UserSharding, found: UserSharding, rank: int) -> bool:
    try:
        return type(own) is type(found) and own.is_equivalent_to(found, rank)
    except ShardingError:
        # A sharding for values of another rank.
        return False


def lower(
    traced: Traced,
    params: Sequence[UserSharding | None],
    results: Sequence[UserSharding | None],
    words: Sequence[str],
    uneven: str | None = None,
    place: Device | None = None,
) -> Plan:
    """Return the lowered module of a traced function.

    `params` and `results` are the shardings of arguments and results, `None` if unspecified.
    `words` describe the argument of each parameter (`argument x of f`). Raises
    `IncompatibleDevicesError` when the devices of two shardings differ, and `IndivisibleError` when
    a result does not divide and `uneven` is not `"pad"`. `place` is the device of a program without
    shardings; all shardings must use its backend.
    """
    # Differentiation is complete, so custom derivative rules are no longer needed.
    traced = replace(traced, function=inlined(traced.function))
    name = traced.function.name
    hidden = [array.signature.sharding for array in traced.captured]
    given = (*params, *hidden)
    words = (*words, *(f"an array that {name} refers to" for _ in hidden))
    met: list[tuple[str, UserSharding]] = []
    for word, sharding, abstract in zip(words, given, traced.params, strict=True):
        if sharding is not None:
            sharding.digits(abstract.type.rank)
            met.append((word, sharding))
    traced = replace(traced, asked=grounded(traced.asked, [sharding for _, sharding in met]))
    met.extend((f"a sharding constraint in {name}", sharding) for sharding, _ in traced.asked)
    for i, (sharding, abstract) in enumerate(zip(results, traced.results, strict=True)):
        if sharding is not None:
            word = f"result {i} of {name}" if len(results) > 1 else f"the result of {name}"
            check_divides(word, sharding, abstract.type, uneven)
            met.append((word, sharding))
    if place is not None:
        _check_backend(name, place, met)
        met = met or [("the backend", SingleDeviceSharding(place))]
    seen = tuple(dict.fromkeys(sharding for _, sharding in met))
    devices = check_same_devices(met) if met else (uncommitted_device(),)
    if len(devices) == 1:
        function = _without_mesh(traced)
        return Plan(Module((), (function,)), devices, (), seen, given, tuple(results))
    ranks = [abstract.type.rank for abstract in (*traced.params, *traced.results)]
    placed = zip((*given, *results), ranks, strict=True)
    used = [(sharding, rank) for sharding, rank in placed if sharding is not None]
    axes = whole_axes(common_axes(seen), [*used, *traced.asked])
    ids = tuple(device.id for device in devices)
    mesh = Mesh(MESH, axes, None if ids == tuple(range(len(ids))) else ids)
    function = _on_mesh(traced, given, results, axes)
    odd = any(
        sharding is not None and not sharding.divides(abstract.type.shape)
        for sharding, abstract in zip(given, traced.params, strict=True)
    )
    module = Module((mesh,), (function,))
    modes = uneven, odd, config.shardy_exact, config.on_fallback
    return Plan(module, devices, axes, seen, given, tuple(results), *modes)


def _check_backend(name: str, place: Device, met: Sequence[tuple[str, UserSharding]]) -> None:
    for word, sharding in met:
        for device in sharding.device_assignment:
            if device.backend != place.backend:
                raise ShardingError(
                    f"{name} must run on backend {place.backend!r}, and {word} is on {device!r}; "
                    f"place it on devices({place.backend!r})"
                )


def whole_axes(axes: MeshAxes, used: Sequence[tuple[UserSharding, int]]) -> MeshAxes:
    """Return `axes` split so that all of `used`, shardings for values of some rank, use unsplit
    axes.

    Propagation assigns only unsplit axes to results, which must not reduce the sharding of arrays.
    """
    ends = {name: {1, size} for name, size in axes}
    for sharding, rank in used:
        for cut in express_sharding(sharding, rank, axes):
            for part in () if cut is UNCONSTRAINED else cut:
                ends[part.name] |= {part.pre, part.next}
    split: list[tuple[str, int]] = []
    for name, size in axes:
        steps = list(pairwise(sorted(ends[name])))
        if len(steps) < 2 or any(after % before for before, after in steps):
            split.append((name, size))
        else:
            stem = name
            while any(other.startswith(f"{stem}_") for other in ends if other != name):
                stem += "_"
            split.extend((f"{stem}_{i}", after // pre) for i, (pre, after) in enumerate(steps))
    return tuple(split)


@pointed
def check_divides(word: str, sharding: UserSharding, type: TensorType, uneven: str | None) -> None:
    """Raise `IndivisibleError` when an argument or result does not divide and must not be
    padded."""
    if uneven == "pad" or any(cut is UNCONSTRAINED for cut in sharding.digits(type.rank)):
        return
    try:
        sharding.check_divides(type.shape, 'replicate it, or pass uneven="pad"')
    except IndivisibleError as error:
        raise IndivisibleError(f"{word}: {error}") from None


def _without_mesh(traced: Traced) -> Function:
    function = traced.function
    if not traced.asked:
        return function
    return Function(function.name, resolve(function.body, lambda _: None), function.results)


def _on_mesh(
    traced: Traced,
    params: Sequence[UserSharding | None],
    results: Sequence[UserSharding | None],
    axes: MeshAxes,
) -> Function:
    function = traced.function
    given: dict[Value, Sharding] = {}
    for value, sharding in zip(function.body.params, params, strict=True):
        if sharding is not None:
            given[value] = _on_axes(sharding, value.type.rank, axes)
    requested = [express_sharding(sharding, rank, axes) for sharding, rank in traced.asked]

    def sharding_of(value: Value) -> Sharding | None:
        if value.sharding is not None:
            return resolved(value.sharding, MESH, requested)
        return given.get(value)

    body = resolve(function.body, sharding_of, requested)
    wanted = tuple(
        None if sharding is None else _on_axes(sharding, len(abstract.type.shape), axes)
        for sharding, abstract in zip(results, traced.results, strict=True)
    )
    return Function(function.name, body, wanted)


def _on_axes(sharding: UserSharding, rank: int, axes: MeshAxes) -> Sharding:
    return Sharding(
        MESH,
        tuple(
            OPEN if cut is UNCONSTRAINED else Dim(cut, open=False)
            for cut in express_sharding(sharding, rank, axes)
        ),
    )
