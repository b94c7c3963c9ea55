"""`jit`: functions that are traced once for each signature of the arguments, and run compiled;
`pjit`, their former name in JAX; `make_ir`: the programs of such functions."""

import gc
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack, overload

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.config import resolve_pipeline, resolve_uneven_mode
from shardir.frontend.dispatch.function_caches import clear_function_caches
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.dispatch.stages.stages import Compiled as Compiled, Lowered as Lowered
from shardir.frontend.dispatch.traced_calls import check_traceable
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree.tree_checks import check_function
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.devices import Device
from shardir.frontend.shardings.requested_sharding import (
    check_sharding_requests,
)
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.parameters import ArgNames, ArgNums, Parameters, function_name
from shardir.frontend.wrappers import wraps


class _JitOptions(TypedDict, total=False):
    """The keyword arguments of `jit`, for type checkers."""

    in_shardings: object
    out_shardings: object
    static_argnums: ArgNums | None
    static_argnames: ArgNames | None
    donate_argnums: ArgNums | None
    donate_argnames: ArgNames | None
    keep_unused: bool
    inline: bool
    uneven: str | None
    backend: str | None
    device: Device | None
    compiler_options: Mapping[str, object] | None
    passes: str | None


@overload
def jit(fun: UserFunction, /, **options: Unpack[_JitOptions]) -> JitFunction: ...


@overload
def jit(**options: Unpack[_JitOptions]) -> Callable[[UserFunction], JitFunction]: ...


@traceback_boundary
def jit(
    fun: UserFunction | None = None,
    /,
    *,
    in_shardings: object = None,
    out_shardings: object = None,
    static_argnums: ArgNums | None = None,
    static_argnames: ArgNames | None = None,
    donate_argnums: ArgNums | None = None,
    donate_argnames: ArgNames | None = None,
    keep_unused: bool = False,
    inline: bool = False,
    uneven: str | None = None,
    backend: str | None = None,
    device: Device | None = None,
    compiler_options: Mapping[str, object] | None = None,
    passes: str | None = None,
) -> Any:
    """Return a function that computes the same as `fun`, as one compiled program.

    `fun` takes and returns pytrees of arrays. It is traced once for each combination of pytree
    structure, shapes, element types, shardings, static arguments and settings; later calls do not
    run its Python code. All results of `jit` of the same function with equal options share the
    compiled programs, as in JAX; values that the function captures are those of its first trace.
    Functions made by `lambda`, `def` or `partial` in a loop are different ones, and each result of
    `jit` with `AUTO` has programs of its own.

    `static_argnums`, `static_argnames`: arguments that `fun` receives unchanged; they must be
    hashable. One of the two lists implies the other. If both are given, a parameter is static by
    position only if it is in the first one, and by keyword only if it is in the second one.
    Negative numbers count from the last parameter, or, for a function with `*args`, from the last
    positional argument of the call.

    `donate_argnums`, `donate_argnames`: arguments whose memory results may reuse, and that must not
    be used after the call. As in JAX, an argument is not donated if the program copies it (because
    `in_shardings` or the devices of other arguments move it), does not use it, or has no result of
    its shape and element type.

    `in_shardings`, `out_shardings`: the shardings of arguments and results, as pytree prefixes of
    shardings, specs on the mesh of the enclosing `with mesh:`, and `None` (unspecified). An entry
    applies to the whole subtree below it. `AUTO` in `in_shardings` plans the shardings of arguments
    when a program is first compiled; arguments with other entries, and arrays that are on the mesh,
    keep their shardings. Results that are the next value of an argument have its sharding.

    `uneven`: the treatment of a dimension that its sharding does not divide; by default the
    setting. Without either, an argument or a result is an error (`IndivisibleError`), and inside of
    the program the last shards are padded. `"pad"` pads everywhere: the last devices hold fewer
    elements than the others, or none. `"replicate"` shards inside of the program only as far as it
    divides; `"error"` raises a `PartitionError` there.

    `backend`: the platform on which to run, `"cpu"`, `"gpu"` or `"pjrt"` (the devices of JAX), by
    default that of the arrays.
    `device`: the device to which all arguments are moved and on which the program runs; not
    combined with shardings. `keep_unused`, `inline` and the `compiler_options` for optimization
    levels have no effect.

    `passes`: the pipeline, by default the setting. The step `default` stands
    for the default passes: `"default,overlap"`, `"default,after:partition,collective-matmul"`.
    `shardir passes` lists the passes. Raises `SettingError` for a pipeline that cannot be parsed.

    Use as `jit(f)`, `@jit` or `@jit(static_argnums=0)`. Raises `ArgumentError` for parameters that
    `fun` does not have.
    """

    def decorate(fun: UserFunction) -> JitFunction:
        check_traceable(fun, "jit")
        others = [in_shardings, out_shardings, backend]
        if device is not None and any(other is not None for other in others):
            raise ArgumentError(
                with_location(
                    f"jit of {function_name(fun)} has a device, and shardings or a backend; "
                    "choose one"
                )
            )
        for word, prefix in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
            check_sharding_requests(prefix, word)
        parameters = Parameters.of(
            fun, static_argnums, static_argnames, donate_argnums, donate_argnames
        )
        resolve_uneven_mode(uneven, "jit")
        resolve_pipeline(passes, "jit")
        return JitFunction(
            fun,
            parameters,
            in_shardings,
            out_shardings,
            uneven,
            backend,
            device,
            compiler_options,
            passes,
        )

    return decorate if fun is None else decorate(fun)


@traceback_boundary
def make_ir(
    fun: UserFunction,
    static_argnums: ArgNums | None = None,
    *,
    static_argnames: ArgNames | None = None,
    return_shape: bool = False,
) -> UserFunction:
    """Return a function that returns the program that `jit` of `fun` would make for its arguments.

    Arguments are arrays or `ShapeDtypeStruct`s. The program is a `Module`; `str` of it is its text,
    and `in_avals` and `out_avals` are the types of the arrays in the arguments and the result.
    With `return_shape` the result is `(module, shapes of the results)`.
    """
    check_function("make_ir", fun)
    compiled = jit(fun, static_argnums=static_argnums, static_argnames=static_argnames)

    @traceback_boundary
    @wraps(fun)
    def program(*args: PyTree, **options: PyTree) -> PyTree:
        lowered = compiled.lower(*args, **options)
        module = lowered.typed_module
        return (module, lowered.out_info) if return_shape else module

    return program


@with_argument_errors
def clear_caches() -> None:
    """Remove the compiled programs of all functions that `jit` and `pmap` returned.

    The next call of each function compiles it again. The function searches all objects that the
    garbage collector tracks. Objects that `gc.freeze` moved are not found.
    """
    clear_function_caches()
    for each in gc.get_objects():
        if type(each) is JitFunction:
            each.clear_cache()


@with_argument_errors
def pjit(
    fun: UserFunction,
    in_shardings: object = None,
    out_shardings: object = None,
    *,
    in_axis_resources: object = None,
    out_axis_resources: object = None,
    **options: PyTree,
) -> JitFunction:
    """Return `jit(fun)`, and accept its shardings as `in_axis_resources` and `out_axis_resources`
    too."""
    return jit(
        fun,
        in_shardings=_merge_keywords("in", in_shardings, in_axis_resources),
        out_shardings=_merge_keywords("out", out_shardings, out_axis_resources),
        **options,
    )


def _merge_keywords(side: str, shardings: object, resources: object) -> object:
    if shardings is not None and resources is not None:
        raise ArgumentError(
            with_location(
                f"{side}_shardings and {side}_axis_resources are the same option; pass one"
            )
        )
    return resources if shardings is None else shardings
