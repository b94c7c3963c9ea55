"""Calls from running programs to functions of the user: `pure_callback`, `io_callback`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.arrays.numpy_conversion import abstract_of, narrow_array
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.config import config
from shardir.frontend.dispatch.temporary_programs import run_temporary
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ArgumentError, CallbackShardingError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.manual_axes import is_in_manual_region
from shardir.frontend.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, check_integer_range, operand_dtype
from shardir.frontend.tracing.parameters import function_name
from shardir.frontend.tracing.promotion import NARROW_DTYPES, dtype_of, result_type
from shardir.frontend.tracing.trace import current_trace, emit_results
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.host_function import HostFunction
from shardir.ir.operation import Attr
from shardir.ir.types import NUMPY_DTYPES, TensorType

_MISSING: object = object()


@dataclass(frozen=True)
class CallbackCaller:
    """Calls a function with arrays in a pytree; equal when all of its fields are.

    `static_leaves` are the leaves that are no arrays, by leaf index. `narrows` states that 64-bit
    types of NumPy are converted to 32-bit types, as they are unless `enable_x64` is set.
    """

    function: UserFunction
    structure: tree.PyTreeDef
    static_leaves: tuple[tuple[int, object], ...]
    types: tuple[TensorType, ...] = ()
    narrows: bool = True

    def __call__(self, *arrays: object) -> list[PyTree]:
        rest, fixed = iter(arrays), dict(self.static_leaves)
        leaves = [fixed[i] if i in fixed else next(rest) for i in range(self.structure.num_leaves)]
        args, options = tree.unflatten(self.structure, leaves)
        made = self.function(*args, **options)
        outs = tree.leaves(made)
        if len(outs) != len(self.types):
            return outs
        return [
            _convert_result(x, type, self.narrows, function_name(self.function))
            for x, type in zip(outs, self.types, strict=True)
        ]


def _convert_result(x: object, promised: TensorType, narrows: bool, name: str) -> object:
    """Convert a Python number, or a 64-bit array where NumPy widened it, to the declared type.

    Anything else is returned unchanged, and is refused when the result is checked.
    """
    dtype = promised.dtype
    if type(x) in (int, float, complex):
        check_integer_range(x, dtype)
        if result_type((dtype, False), operand_dtype(x))[0] == dtype:
            return np.asarray(x, promised.numpy)
    array = np.asarray(x)
    if narrows and dtype in _WIDE_NUMPY_DTYPES and array.dtype == _WIDE_NUMPY_DTYPES[dtype]:
        return narrow_array(array, promised.numpy, f"the result of {name}")
    return array


_WIDE_NUMPY_DTYPES = {narrow: NUMPY_DTYPES[wide] for wide, narrow in NARROW_DTYPES.items()}


def emit_callback(
    spec: str,
    function: UserFunction,
    result: Sequence[TensorType],
    args: tuple[PyTree, ...],
    options: dict[str, PyTree],
    name: str = "",
    **attrs: Attr,
) -> list[PyTree]:
    """Emit the operation that calls a function, in the current trace or in a temporary one."""
    name = name or function_name(function)
    check_call_signature(function, name, args, options)
    leaves, structure = tree.flatten((args, options))
    fixed = tuple((i, leaf) for i, leaf in enumerate(leaves) if not is_array_like(leaf))
    chosen = [leaf for leaf in leaves if is_array_like(leaf)]
    caller = CallbackCaller(function, structure, fixed, tuple(result), not config.enable_x64)
    hosted = HostFunction(name, caller)
    stated = result[0] if len(result) == 1 else tuple(result)

    def emit_call(*tracers: Tracer) -> list[Tracer]:
        return list(emit_results(spec, *tracers, function=hosted, result=stated, **attrs))

    if current_trace() is not None:
        return emit_call(*map(as_tracer, chosen))
    labels = [f"arg{i}" for i in range(len(chosen))]
    made: list[PyTree] = run_temporary(emit_call, name, chosen, labels)
    return made


@with_argument_errors
def pure_callback(
    callback: UserFunction,
    result_shape_dtypes: object = _MISSING,
    *args: PyTree,
    sharding: Sharding | None = None,
    vmap_method: str | None = None,
    **options: PyTree,
) -> PyTree:
    """Call `callback(*args, **options)` with NumPy arrays from a running program.

    `result_shape_dtypes` is the pytree of results with an object that has a `shape` and a `dtype`
    for each array. Python numbers, and 64-bit types of NumPy unless `enable_x64` is set, are
    converted to the declared type; a result of any other shape or type raises `InterpretError` when
    the function is called. The function must have no side effects; it may be called any number of
    times.

    `vmap_method` selects the arguments under `vmap`: `"sequential"` (one example per call;
    `"sequential_unrolled"` is the same), `"expand_dims"` (a leading batch dimension, of size 1 for
    unmapped arguments), `"broadcast_all"`, or `"legacy_vectorized"` (a leading batch dimension for
    mapped arguments only). Inside of `shard_map` and `pmap` each device calls the function with its
    shards, without any method. `sharding` may name the device that calls it, with a
    `SingleDeviceSharding`. The call has no derivative; define one with `custom_jvp`.
    """
    if not (vmap_method is None or isinstance(vmap_method, str)) or vmap_method not in _METHODS:
        raise ArgumentError(
            with_location(
                f"vmap_method of pure_callback is {vmap_method!r}; it is 'sequential', "
                "'sequential_unrolled', 'expand_dims', 'broadcast_all', 'legacy_vectorized' or "
                "None"
            )
        )
    _check_sharding("pure_callback", sharding)
    types, structure = _declared_results("pure_callback", callback, result_shape_dtypes)
    made = emit_callback(
        "pure-callback", callback, types, args, options, method=_METHODS[vmap_method]
    )
    return tree.unflatten(structure, made)


@with_argument_errors
def io_callback(
    callback: UserFunction,
    result_shape_dtypes: object = _MISSING,
    *args: PyTree,
    sharding: Sharding | None = None,
    ordered: bool = False,
    **options: PyTree,
) -> PyTree:
    """Call `callback(*args, **options)` with NumPy arrays exactly once, in order with other
    effects.

    `result_shape_dtypes` is the pytree of results, or `None`; see `pure_callback`. `ordered` has no
    effect: effects always run in program order. `sharding` is as for `pure_callback`. The call has
    no derivative.
    """
    _check_sharding("io_callback", sharding)
    types, structure = _declared_results("io_callback", callback, result_shape_dtypes)
    return tree.unflatten(structure, emit_callback("callback", callback, types, args, options))


_METHODS = {
    None: "none",
    "sequential": "sequential",
    "sequential_unrolled": "sequential",
    "expand_dims": "expand_dims",
    "broadcast_all": "broadcast_all",
    "legacy_vectorized": "legacy_vectorized",
}
"""The values of `vmap_method`, and the attribute of the operation for each."""


def _check_sharding(what: str, sharding: object) -> None:
    """Raise `CallbackShardingError` unless a callback may have this sharding.

    The host calls the function with the same elements for any device.
    """
    if sharding is None:
        return
    if is_in_manual_region():
        raise CallbackShardingError(
            with_location(
                f"{what} has a sharding inside of shard_map or pmap, where each device calls it "
                "separately; omit sharding="
            )
        )
    one = isinstance(sharding, NamedSharding) and not sharding.mesh.axis_names
    if not (isinstance(sharding, SingleDeviceSharding) or one):
        raise CallbackShardingError(
            with_location(
                f"the sharding of {what} is {brief_with_type(sharding)}; it names the one device "
                "that calls the function, so it is a SingleDeviceSharding"
            )
        )


def _declared_results(
    what: str, callback: object, shapes: object
) -> tuple[list[TensorType], tree.PyTreeDef]:
    if not callable(callback):
        raise ArgumentError(with_location(f"{what} takes a function, got {callback!r}"))
    if shapes is _MISSING:
        raise ArgumentError(
            with_location(
                f"{what} of {function_name(callback)} needs the types of its results; pass an "
                "object "
                "with a shape and a dtype for each array, such as a ShapeDtypeStruct"
            )
        )
    leaves, structure = tree.flatten(shapes)
    return [_declared_result(what, leaf) for leaf in leaves], structure


def _declared_result(what: str, leaf: object) -> TensorType:
    if is_array_like(leaf):
        return abstract_of(leaf).type
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, type):
        return TensorType(tuple(leaf.shape), dtype_of(leaf.dtype))
    raise ArgumentError(
        with_location(
            f"a result of {what} is declared as {brief_with_type(leaf)}, which has no "
            "shape and dtype; use a ShapeDtypeStruct"
        )
    )
