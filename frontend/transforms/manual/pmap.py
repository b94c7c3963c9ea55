"""`pmap`: map a function over slices of its arguments, each on a separate device.

It is a manual computation over a mesh with one axis, in which the slices are shards of size one.
"""

from collections.abc import Sequence
from typing import Any, final

from shardir.frontend.config import resolve_pipeline, resolve_uneven_mode
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.mesh import as_device_array
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.parameters import ArgNums, Parameters
from shardir.frontend.transforms.manual.pmap_call import PmapCall, PmapLevel, PmapParameters
from shardir.frontend.transforms.vmap import check_mapped_axes
from shardir.frontend.wrappers import wraps


@traceback_boundary
def pmap(
    fun: UserFunction | None = None,
    axis_name: str | None = None,
    *,
    in_axes: object = 0,
    out_axes: object = 0,
    static_broadcasted_argnums: ArgNums | None = None,
    devices: Sequence[Device] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: ArgNums | None = None,
    uneven: str | None = None,
    passes: str | None = None,
) -> Any:
    """Return a function that computes `fun` for every slice of its arguments, each on its own
    device.

    `in_axes` is the mapped axis of each positional argument, as for `vmap`: an integer for all, or
    a tuple with an entry for each argument; `None` marks an argument that all devices share.
    Keyword arguments are mapped along axis 0. `out_axes` is the position of the mapped axis in each
    result, `None` for a result that is equal on all devices. The number of devices equals the
    number of slices: the first of `devices`, or of all devices.

    `axis_name` is the name of the mapped axis for collectives such as `lax.psum` inside `fun`.
    `fun` receives the arguments in `static_broadcasted_argnums` unchanged; those in
    `donate_argnums` must not be used after the call. With `backend="gpu"` the devices are GPUs,
    with `backend="pjrt"` those of JAX; other backends have no effect. `uneven` is the option of
    `jit`: the mapped axis always divides, so it applies to further shardings inside `fun`. `passes`
    is the pipeline, as for `jit`.

    The function is compiled for each signature of its arguments. Its results are sharded over the
    devices along the mapped axis. Raises `BatchError` for sizes that do not match, and when there
    are too few devices.
    """

    def decorate(fun: UserFunction) -> JitFunction:
        if not callable(fun):
            raise ArgumentError(with_location(f"pmap takes a function, got {brief(fun)}"))
        parameters = Parameters.of(
            fun, static_broadcasted_argnums, None, donate_argnums, word="static_broadcasted"
        )
        name = parameters.name
        what, unmapped = f"pmap of {name}", "an argument that all devices share"
        size = check_mapped_axes(what, in_axes, out_axes, axis_name, axis_size, unmapped)
        if backend is not None and not isinstance(backend, str):
            raise ArgumentError(
                with_location(f"backend of {what} is {brief(backend)}, which is not a string")
            )
        ins = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        chosen = None if devices is None else _listed_devices(devices, what)
        # Programs may name the platform they were written for; CPU devices are used instead.
        kind = backend if backend in ("gpu", "cuda", "pjrt") else None
        mapping = PmapParameters(
            name, fun, parameters, axis_name, ins, out_axes, chosen, size, kind
        )
        mode = resolve_uneven_mode(uneven, what) if uneven is not None else None
        resolve_pipeline(passes, what)

        @wraps(fun)
        def call_mapped(*args: PyTree, **options: PyTree) -> Any:
            return PmapCall(mapping, args, options).trace()

        mapped = JitFunction(
            call_mapped,
            Parameters.of(call_mapped, static_broadcasted_argnums, None, donate_argnums),
            None,
            None,
            mode,
            passes=passes,
            placement=_SlicePlacement(mapping),
            transform="pmap",
        )
        mapped.__wrapped__ = fun
        return mapped

    return decorate if fun is None else decorate(fun)


def _listed_devices(devices: Sequence[Device], what: str) -> tuple[Device, ...]:
    """Return the option `devices` as a tuple; `what` is the call in errors."""
    if not hasattr(devices, "__iter__"):
        raise ArgumentError(
            with_location(f"devices of {what} is {brief(devices)}; it is a list of devices")
        )
    listed: list[Device] = as_device_array(list(devices), what).tolist()
    return tuple(listed)


@final
class _SlicePlacement:
    """The placement of each slice of the arguments on its device."""

    def __init__(self, mapping: PmapParameters) -> None:
        self._mapping = mapping

    @property
    def version(self) -> tuple[PmapLevel, ...]:
        """The nested pmaps that the last trace found; they need more devices."""
        return tuple(self._mapping.inner)

    def place(
        self, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> tuple[Sequence[PyTree], dict[str, PyTree]]:
        """Return the arguments of a call on the devices that need them."""
        return PmapCall(self._mapping, args, options).place_arguments()
