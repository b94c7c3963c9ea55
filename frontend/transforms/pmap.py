"""`pmap`: map a function over slices of its arguments, each on a separate device.

It is a manual computation over a mesh with one axis, in which the slices are shards of size one.
"""

from collections.abc import Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any, final

from shardir.frontend.argument_checks import check_integer
from shardir.frontend.config import resolve_pipeline, resolve_uneven_mode
from shardir.frontend.dispatch.cache_info import CacheInfo
from shardir.frontend.dispatch.jit import JitFunction, jit
from shardir.frontend.dispatch.stages import Lowered
from shardir.frontend.errors import (
    ArgumentError,
    IncompatibleDevicesError,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.mesh import as_device_array
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import hide_own_frames, traceback_boundary
from shardir.frontend.tracing.parameters import ArgNums, Parameters
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.transforms.pmap_call import PmapCall, PmapParameters
from shardir.frontend.transforms.vmap import check_axis_entries, is_axis_number


@traceback_boundary
def pmap(
    fun: UserFunction | None = None,
    axis_name: str | None = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
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
    `donate_argnums` must not be used after the call. With `backend="gpu"` the devices are GPUs;
    other backends have no effect. `uneven` is the option of `jit`: the mapped axis always divides,
    so it applies to further shardings inside `fun`. `passes` is the pipeline, as for `jit`.

    The function is compiled for each signature of its arguments. Its results are sharded over the
    devices along the mapped axis. Raises `BatchError` for sizes that do not match, and when there
    are too few devices.
    """

    def decorate(fun: UserFunction) -> PmapFunction:
        if not callable(fun):
            raise ArgumentError(with_location(f"pmap takes a function, got {brief(fun)}"))
        parameters = Parameters.of(
            fun, static_broadcasted_argnums, None, donate_argnums, word="static_broadcasted"
        )
        name = parameters.name
        if axis_name is not None and not isinstance(axis_name, str):
            raise ArgumentError(
                with_location(
                    f"axis_name of pmap of {name} is {axis_name!r}, which is not a string"
                )
            )
        size = (
            None
            if axis_size is None
            else check_integer(f"axis_size of pmap of {name}", axis_size, least=0)
        )
        if backend is not None and not isinstance(backend, str):
            raise ArgumentError(
                with_location(f"backend of pmap of {name} is {brief(backend)}, no string")
            )
        for word, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
            check_axis_entries(
                axes, f"{word} of pmap of {name}", "an argument that all devices share"
            )
        if not (in_axes is None or is_axis_number(in_axes) or isinstance(in_axes, (tuple, list))):
            raise ArgumentError(
                with_location(
                    f"in_axes of pmap of {name} is {in_axes!r}; it is a number, None, or a tuple "
                    "with an entry for each positional argument"
                )
            )
        ins = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        chosen = None
        if devices is not None:
            if not hasattr(devices, "__iter__"):
                raise ArgumentError(
                    with_location(
                        f"devices of pmap of {name} is {brief(devices)}; it is a list of devices"
                    )
                )
            listed: list[Device] = as_device_array(list(devices), f"pmap of {name}").tolist()
            chosen = tuple(listed)
        # Programs may name the platform they were written for; CPU devices are used instead.
        kind = backend if backend in ("gpu", "cuda") else None
        mapping = PmapParameters(
            name, fun, parameters, axis_name, ins, out_axes, chosen, size, kind
        )
        mode = resolve_uneven_mode(uneven, f"pmap of {name}") if uneven is not None else None
        resolve_pipeline(passes, f"pmap of {name}")
        return PmapFunction(mapping, static_broadcasted_argnums, donate_argnums, mode, passes)

    return decorate if fun is None else decorate(fun)


@final
class PmapFunction:
    """The result of `pmap`. Call it, or `lower` it for arguments without running it."""

    __name__: str
    __wrapped__: UserFunction

    def __init__(
        self,
        mapping: "PmapParameters",
        static: ArgNums | None,
        donated: ArgNums | None,
        uneven: str | None,
        passes: str | None,
    ) -> None:
        update_wrapper(self, mapping.fun)
        self._mapping = mapping

        def call_mapped(*args: PyTree, **options: PyTree) -> Any:
            return PmapCall(mapping, args, options).trace()

        update_wrapper(call_mapped, mapping.fun)
        self._mapped = call_mapped
        self._jit: JitFunction = jit(
            call_mapped, static_argnums=static, donate_argnums=donated, uneven=uneven, passes=passes
        )

    def __call__(self, *args: PyTree, **options: PyTree) -> Any:
        """Return the results of all positions, stacked along the mapped axis."""
        try:
            if current_trace() is not None:
                return self._mapped(*args, **options)
            known = list(self._mapping.inner)
            placed, named = PmapCall(self._mapping, args, options).place_arguments()
            try:
                return self._jit(*placed, **named)
            except IncompatibleDevicesError:
                if known == self._mapping.inner:
                    raise
            # Tracing has found a nested pmap, which needs more devices.
            placed, named = PmapCall(self._mapping, args, options).place_arguments()
            return self._jit(*placed, **named)
        except Exception as error:
            hide_own_frames(error)
            raise

    def lower(self, *args: PyTree, **options: PyTree) -> Lowered:
        """Trace for these arguments, arrays or `ShapeDtypeStruct`s, without running the program."""
        return self._jit.lower(*args, **options)

    def eval_shape(self, *args: PyTree, **options: PyTree) -> Any:
        """Return the pytree of results with a `ShapeDtypeStruct` for each array."""
        return self._jit.eval_shape(*args, **options)

    def cache_info(self) -> CacheInfo:
        """Return the compilations of this function with the reason for each of them."""
        return self._jit.cache_info()

    def clear_cache(self) -> None:
        """Remove all compiled programs from the cache."""
        self._jit.clear_cache()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<pmap of {self._mapping.name}>"
