"""Lowering of a traced function and the shardings of its arguments to a module on one mesh.

All shardings of a program (of arguments, of results, and of constraints) must use the same ordered
list of devices. They are expressed in the axes of one mesh (the user's, if there is a
NamedSharding), so the module does not refer to public classes. A program without any sharding, or
on one device, has no mesh.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.config import config
from shardir.frontend.dispatch.execution_context import default_array_device
from shardir.frontend.errors import IndivisibleError, ShardingError
from shardir.frontend.shardings.common_mesh import (
    MESH_NAME,
    MeshAxes,
    check_same_devices,
    common_axes,
    express_on_axes,
    express_request,
    express_sharding,
    resolve_abstract_meshes,
    to_user_sharding,
)
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.explicit_specs import complete_spec
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED
from shardir.frontend.shardings.program_mesh import ProgramMesh
from shardir.frontend.shardings.sharding import Sharding as UserSharding, SingleDeviceSharding
from shardir.frontend.shardings.sharding_tokens import replace_shardings, resolve_token
from shardir.frontend.tracing.function_tracing import TracedFunction
from shardir.ir.host_function import HostFunction, host_function_of
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Op, Value
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.passes.partitioning.custom_partitioning import (
    has_custom_partitioning,
    inline_custom_partitionings,
    rewrite_custom_partitionings,
)
from shardir.passes.simplify.inline import inline_regions

DescribedSharding = tuple[str, UserSharding]
"""A sharding in the user's program, after words that name it in errors: `argument x of f`."""


@dataclass(frozen=True)
class LoweredProgram:
    """A lowered module, and the meaning of its mesh axes in public shardings.

    `user_shardings` are the public shardings in order of appearance; if there are none, the program
    runs on the default device and its results are not committed. `params` and `results` have the
    requested shardings. `uneven` is the treatment of dimensions that do not divide.
    `has_uneven_arguments` states whether an argument has such a dimension, `shardy_exact` whether
    values are resharded exactly as Shardy does. `on_fallback` is the treatment of sharded
    operations without a factor rule, `passes` the pipeline (see `Pipeline.parse`), and
    `grad_reduce_dtype` the dtype of sums over devices in gradients (see `Config`).
    """

    module: Module
    devices: tuple[Device, ...]
    axes: MeshAxes
    user_shardings: tuple[UserSharding, ...]
    params: tuple[UserSharding | None, ...]
    results: tuple[UserSharding | None, ...]
    uneven: str | None = None
    has_uneven_arguments: bool = False
    shardy_exact: bool = False
    on_fallback: str = "replicate"
    passes: str | None = None
    grad_reduce_dtype: str | None = None

    @property
    def has_user_shardings(self) -> bool:
        return bool(self.user_shardings)

    def to_user_sharding(self, sharding: Sharding | None, rank: int) -> UserSharding:
        """Return the public form of a sharding of the compiled module: the user's own object if
        equal."""
        dims = sharding.axes if sharding is not None else ((),) * rank
        found = to_user_sharding(dims, self.axes, self.devices, self.user_shardings)
        return next(
            (own for own in self.user_shardings if _is_same_sharding(own, found, rank)),
            complete_spec(found, rank),
        )


def _is_same_sharding(own: UserSharding, found: UserSharding, rank: int) -> bool:
    try:
        return type(own) is type(found) and own.is_equivalent_to(found, rank)
    except ShardingError:
        # A sharding for values of another rank.
        return False


def lower(
    traced: TracedFunction,
    params: Sequence[UserSharding | None],
    results: Sequence[UserSharding | None],
    words: Sequence[str],
    uneven: str | None = None,
    place: Device | None = None,
    passes: str | None = None,
) -> LoweredProgram:
    """Return the lowered module of a traced function.

    `params` and `results` are the shardings of arguments and results, `None` if unspecified.
    `words` describe the argument of each parameter (`argument x of f`). Raises
    `IncompatibleDevicesError` when the devices of two shardings differ, and `IndivisibleError` when
    a result does not divide and `uneven` is not `"pad"`. `place` is the device of a program without
    shardings; all shardings must use its backend. `passes` is the pipeline.
    """
    # Differentiation is complete, so custom derivative rules are no longer needed.
    traced = replace(traced, function=inline_regions(traced.function))
    if traced.typed_results is not None:
        results = [
            typed if requested_sharding is None else requested_sharding
            for requested_sharding, typed in zip(results, traced.typed_results, strict=True)
        ]
    name = traced.function.name
    hidden = [array.signature.sharding for array in traced.captured]
    given = (*params, *hidden)
    words = (*words, *(f"an array that {name} refers to" for _ in hidden))
    described = _describe_parameters(traced, given, words)
    traced = replace(
        traced,
        requested_shardings=resolve_abstract_meshes(
            traced.requested_shardings, [sharding for _, sharding in described]
        ),
    )
    described += (
        (f"a sharding constraint in {name}", sharding) for sharding, _ in traced.requested_shardings
    )
    described += _describe_results(traced, results, uneven)
    if place is not None:
        _check_backend(name, place, described)
        described = described or [("the backend", SingleDeviceSharding(place))]
    seen = tuple(dict.fromkeys(sharding for _, sharding in described))
    devices = check_same_devices(described) if described else (default_array_device(),)
    if len(devices) == 1:
        function = _lower_without_mesh(traced)
        module = Module((), (function,))
        modes = _pipeline_modes(uneven, passes, has_uneven_arguments=False)
        return LoweredProgram(module, devices, (), seen, given, tuple(results), *modes)
    ranks = [abstract.type.rank for abstract in (*traced.params, *traced.results)]
    placed = zip((*given, *results), ranks, strict=True)
    used = [(sharding, rank) for sharding, rank in placed if sharding is not None]
    axes = split_used_axes(common_axes(seen), [*used, *traced.requested_shardings])
    ids = tuple(device.id for device in devices)
    mesh = Mesh(MESH_NAME, axes, None if ids == tuple(range(len(ids))) else ids)
    function = _lower_on_mesh(traced, given, results, axes)
    if has_custom_partitioning(function):
        function = _bind_custom_partitionings(function, ProgramMesh.of(axes, devices, seen))
    odd = any(
        sharding is not None and not sharding.divides_evenly(abstract.type.shape)
        for sharding, abstract in zip(given, traced.params, strict=True)
    )
    module = Module((mesh,), (function,))
    modes = _pipeline_modes(uneven, passes, has_uneven_arguments=odd)
    return LoweredProgram(module, devices, axes, seen, given, tuple(results), *modes)


def _pipeline_modes(
    uneven: str | None, passes: str | None, *, has_uneven_arguments: bool
) -> tuple[str | None, bool, bool, str, str | None, str | None]:
    """Return the fields of a `LoweredProgram` that determine its passes. A program without
    shardings has them, too: plans compile it with shardings."""
    return (
        uneven,
        has_uneven_arguments,
        config.shardy_exact,
        config.on_fallback,
        passes,
        config.grad_reduce_dtype,
    )


def _describe_parameters(
    traced: TracedFunction, shardings: Sequence[UserSharding | None], words: Sequence[str]
) -> list[DescribedSharding]:
    """Return the shardings of parameters after checking that they fit the ranks."""
    described = []
    for word, sharding, abstract in zip(words, shardings, traced.params, strict=True):
        if sharding is not None:
            sharding.sub_axes(abstract.type.rank)
            described.append((word, sharding))
    return described


def _describe_results(
    traced: TracedFunction, shardings: Sequence[UserSharding | None], uneven: str | None
) -> list[DescribedSharding]:
    """Return the shardings of results after checking that they divide the sizes if they must."""
    name = traced.function.name
    described = []
    for i, (sharding, abstract) in enumerate(zip(shardings, traced.results, strict=True)):
        if sharding is not None:
            word = f"result {i} of {name}" if len(shardings) > 1 else f"the result of {name}"
            check_boundary_divides(word, sharding, abstract.type, uneven)
            described.append((word, sharding))
    return described


def _check_backend(name: str, place: Device, described: Sequence[DescribedSharding]) -> None:
    for word, sharding in described:
        for device in sharding.device_assignment:
            if device.backend != place.backend:
                raise ShardingError(
                    f"{name} must run on backend {place.backend!r}, and {word} is on {device!r}; "
                    f"place it on devices({place.backend!r})"
                )


def split_used_axes(axes: MeshAxes, used: Sequence[tuple[UserSharding, int]]) -> MeshAxes:
    """Return `axes` split so that all of `used`, shardings for values of some rank, use unsplit
    axes.

    Propagation assigns only unsplit axes to results, which must not reduce the sharding of arrays.
    """
    ends = {name: {1, size} for name, size in axes}
    for sharding, rank in used:
        for sub_axes in express_sharding(sharding, rank, axes):
            for part in () if sub_axes is UNCONSTRAINED else sub_axes:
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


@locate_errors
def check_boundary_divides(
    word: str, sharding: UserSharding, type: TensorType, uneven: str | None
) -> None:
    """Raise `IndivisibleError` when an argument or result does not divide and must not be
    padded."""
    if uneven == "pad":
        return
    try:
        sharding.check_divides(
            type.shape, 'replicate it, or pass uneven="pad"', may_be_unconstrained=True
        )
    except IndivisibleError as error:
        raise IndivisibleError(f"{word}: {error}") from None


def _lower_without_mesh(traced: TracedFunction) -> Function:
    function = inline_custom_partitionings(traced.function)
    if not traced.requested_shardings:
        return function
    return Function(
        function.name, replace_shardings(function.body, lambda _: None), function.result_shardings
    )


def _bind_custom_partitionings(function: Function, mesh: ProgramMesh) -> Function:
    """Return the function with the rules and the partition functions of its calls for a mesh."""

    def bind(op: Op) -> Op:
        name = op.attrs["partition"]
        made = host_function_of(name)
        if made is None:
            return op
        rule, partition = made(mesh)
        bound = {"partition": HostFunction(name, partition), "factor_rule": rule}
        return replace(op, attrs={**op.attrs, **bound})

    return rewrite_custom_partitionings(function, bind)


def _lower_on_mesh(
    traced: TracedFunction,
    params: Sequence[UserSharding | None],
    results: Sequence[UserSharding | None],
    axes: MeshAxes,
) -> Function:
    function = traced.function
    given: dict[Value, Sharding] = {}
    for value, sharding in zip(function.body.params, params, strict=True):
        if sharding is not None:
            given[value] = express_on_axes(sharding, value.type.rank, axes)
    requested = [
        express_request(sharding, rank, axes) for sharding, rank in traced.requested_shardings
    ]

    def sharding_of(value: Value) -> Sharding | None:
        if value.sharding is not None:
            return resolve_token(value.sharding, MESH_NAME, requested)
        return given.get(value)

    body = replace_shardings(function.body, sharding_of, requested)
    result_shardings = tuple(
        None if sharding is None else express_on_axes(sharding, len(abstract.type.shape), axes)
        for sharding, abstract in zip(results, traced.results, strict=True)
    )
    return Function(function.name, body, result_shardings)
