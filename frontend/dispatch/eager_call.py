"""Calls of public functions outside of a trace: look up the compiled program, or compile it.

The cache key of a program consists of the pytree structure and static parts of the arguments, the
signatures of the arrays, and the trace context. A cache miss traces the function on tracers in
place of the arrays, lowers and compiles it.
"""

from collections.abc import Iterator, Sequence
from inspect import CO_VARKEYWORDS
from types import FunctionType
from typing import TYPE_CHECKING

import numpy as np

from shardir._imports.lazy_import import lazy_import
from shardir.backends.native import native
from shardir.frontend.argument_checks import parameter_names
from shardir.frontend.arrays.array import Array, fits_dtype, from_numpy, signature_of_numpy
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number, not_an_array_error
from shardir.frontend.arrays.signature import ArraySignature
from shardir.frontend.config import config
from shardir.frontend.dispatch.call_table import (
    CallTable,
    CompiledCall,
    ContextObjects,
    context_objects,
    is_current,
    trace_context,
)
from shardir.frontend.dispatch.programs.lowering import lower
from shardir.frontend.dispatch.programs.runnable import Runnable
from shardir.frontend.dispatch.recorded_calls import RecordedCall, recorded_calls
from shardir.frontend.dispatch.scalar_arguments import is_wide_int, numbers_as_arrays
from shardir.frontend.dispatch.temporary_programs import compile_temporary
from shardir.frontend.dispatch.traced_calls import (
    ArgumentLeaf,
    is_array_like,
    signature_of_leaf,
    trace_call,
)
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.named_axes import without_bound_axes
from shardir.frontend.tracing.parameters import UnhashableError, static_key
from shardir.frontend.tracing.trace import require_trace, suspended_trace_of, use_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import NumpyArray

if TYPE_CHECKING:
    from shardir.frontend.dispatch import native_call_cache
else:
    native_call_cache = lazy_import("shardir.frontend.dispatch.native_call_cache")

MAX_LIST_ELEMENTS = 1024
"""Maximum number of elements in a list that an eager call accepts.

Each is an argument of the compiled program, and compilation with thousands of arguments takes
seconds.
"""


def _is_argument(x: object) -> bool:
    """Return whether a leaf of an eager call is an argument of its program."""
    return is_array_like(x) and not is_wide_int(x)


class EagerFunction:
    """A public function with its compiled programs; `call_eagerly` calls it outside of traces.

    `public_function` is the object that the user calls; it owns the native call cache.
    """

    public_function: UserFunction

    def __init__(self, fun: UserFunction, static: Sequence[str], cached: bool, name: str) -> None:
        self.names, self.positional, self.variadic = parameter_names(fun)
        # The functions of operations take their attributes as any keywords.
        takes_any = type(fun) is FunctionType and fun.__code__.co_flags & CO_VARKEYWORDS
        if not takes_any and (unknown := [name for name in static if name not in self.names]):
            raise ValueError(f"{fun.__name__} has no parameter {unknown[0]!r} to be static")
        self.fun, self.cached, self.name = fun, cached, name
        self.static = frozenset(static)
        self.static_positions = frozenset(
            i for i, name in enumerate(self.positional) if name in self.static
        )
        self.calls = CallTable()


def call_eagerly(
    eager: EagerFunction, args: tuple[PyTree, ...], options: dict[str, PyTree]
) -> PyTree:
    """Call a public function outside of a trace."""
    given = args, options
    suspended = suspended_trace_of((*args, *options.values()))
    if suspended is not None:
        with use_trace(suspended):
            return eager.public_function(*args, **options)
    placed: dict[int, NumpyArray] = {}
    if eager.cached:
        args, placed = _import_arguments(args, eager.static_positions)
        if not all(x.flags.c_contiguous for x in placed.values()):
            # The native call cache cannot read the original arguments, but it reads these.
            return eager.public_function(*args, **options)
        args, options = numbers_as_arrays(args, options, eager.static_positions, eager.static)
    leaves: list[PyTree] = []
    shape: list[object] = []
    try:
        for i, arg in enumerate(args):
            _flatten_argument(arg, i in eager.static_positions, leaves, shape)
        for key in options:
            shape.append(key)
            _flatten_argument(options[key], key in eager.static, leaves, shape)
    except UnhashableError as error:
        if any(_has_integer_arrays(value) for _, value in _static_arguments(eager, args, options)):
            return _call_with_static_arrays(eager, args, options)
        raise _unhashable_error(eager, args, options) from error
    if eager.cached and len(leaves) > MAX_LIST_ELEMENTS:
        for arg in (*args, *options.values()):
            _check_list_length(arg)
    signatures = tuple([x.signature if type(x) is Array else signature_of_leaf(x) for x in leaves])
    signature, context = (tuple(shape), signatures, trace_context()), context_objects()
    there = eager.calls.get(signature) if eager.cached else None
    captured: list[Array] = []
    if there is None:
        there, captured = _compile_call(eager, args, options, signatures, context)
        if eager.cached:
            eager.calls.add(signature, there)
    program, structure, _, _ = there
    taken = leaves
    if program.results_are_views:
        # A result must not share memory with a NumPy array, which is writable.
        taken = [from_numpy(x) if type(x) is np.ndarray else x for x in leaves]
    results = program(taken + captured)
    if placed:
        leaves = [placed.get(id(x), x) for x in leaves]
    made = results[0] if structure is None else tree.unflatten(structure, results)
    # The types of the arguments do not identify a call with a number that is part of the program.
    is_cacheable = eager.cached and not any(map(is_wide_int, (*args, *options.values())))
    done, launch = recorded_calls.get(), program.launch if is_cacheable else None
    if not is_current(context):
        launch = None
    if done is not None:
        done.append(RecordedCall((*given[0], *given[1].values()), launch, leaves, structure, made))
    elif launch is not None:
        if native is None:
            if not options and all(type(x) is Array for x in args):
                call = CompiledCall(program, structure, launch, context)
                eager.calls.add(signatures, call)
            return made
        static = eager.static_positions, eager.static
        native_call_cache.insert_call(
            eager.public_function, static, launch, structure, *given, leaves
        )
    return made


def _import_arguments(
    args: tuple[PyTree, ...], static: frozenset[int]
) -> tuple[tuple[PyTree, ...], dict[int, PyTree]]:
    """Return the arguments with converted or non-contiguous NumPy arrays replaced by arrays.

    Also return the original of each replaced argument, by the id of the replacement.
    """
    made, placed = [], {}
    for i, x in enumerate(args):
        array = x
        if type(x) is np.ndarray and i not in static and _needs_conversion(x):
            array = from_numpy(x)
            placed[id(array)] = x
        made.append(array)
    return (tuple(made), placed) if placed else (args, placed)


def _needs_conversion(array: NumpyArray) -> bool:
    """Return whether importing a NumPy array makes another array without an error."""
    known = signature_of_numpy(array)
    if known is None or (known[1] is array.dtype and array.flags.c_contiguous):
        return False
    return fits_dtype(array, known[1])


class _ArrayPlaceholder:
    """Placeholder of an array in a cache key."""

    def __repr__(self) -> str:
        return "*"


ARRAY_PLACEHOLDER = _ArrayPlaceholder()


def _flatten_argument(arg: object, static: bool, leaves: list[object], shape: list[object]) -> None:
    """Append the arrays of an argument to `leaves` and the rest of its cache key to `shape`."""
    if static:
        shape.append(static_key(arg))
    elif type(arg) is Array or _is_argument(arg):
        leaves.append(arg)
        shape.append(ARRAY_PLACEHOLDER)
    elif arg is None or type(arg) is int:
        shape.append(arg)
    else:
        parts, structure = tree.flatten(arg)
        shape.append(structure)
        for part in parts:
            if _is_argument(part):
                leaves.append(part)
                shape.append(ARRAY_PLACEHOLDER)
            else:
                shape.append(static_key(part))


def _check_list_length(arg: object) -> None:
    """Raise `NotAnArrayError` for a long list of scalars, which should be one array."""
    if not isinstance(arg, (list, tuple)):
        return
    parts = tree.leaves(arg)
    if len(parts) > MAX_LIST_ELEMENTS and all(
        is_number(part) or isinstance(part, np.generic) for part in parts
    ):
        raise not_an_array_error(
            arg,
            "",
            lambda _: (
                f"is a {type(arg).__name__} of {len(parts)} numbers, and at most "
                f"{MAX_LIST_ELEMENTS} are accepted; make it one array with snp.array"
            ),
        )


def _insert_tracers(arg: object, static: bool, tracers: Iterator[Tracer]) -> object:
    """Return the argument with tracers in place of its arrays."""
    if static:
        return arg
    parts, structure = tree.flatten(arg)
    return tree.unflatten(
        structure, [next(tracers) if _is_argument(part) else part for part in parts]
    )


def _compile_call(
    eager: EagerFunction,
    args: tuple[PyTree, ...],
    options: dict[str, PyTree],
    signatures: tuple[ArraySignature, ...],
    context: ContextObjects,
) -> tuple[CompiledCall, list[Array]]:
    """Trace and compile a call.

    Return it and the captured arrays that the program takes in addition to the arguments.
    """
    name = eager.name
    labels: list[str] = []
    for i, arg in enumerate(args):
        positional = i < len(eager.positional)
        base = (
            eager.positional[i] if positional else f"{eager.variadic}.{i - len(eager.positional)}"
        )
        if i not in eager.static_positions:
            labels.extend(_array_labels(base, arg))
    for key, option in options.items():
        if key not in eager.static:
            labels.extend(_array_labels(key, option))

    rebuilt: list[object] = []

    def rebuild(given: Iterator[Tracer]) -> tuple[list[PyTree], dict[str, PyTree]]:
        params = list(given)
        require_trace(name).program.internal_tracers += params
        tracers = iter(params)
        filled = [
            _insert_tracers(a, i in eager.static_positions, tracers) for i, a in enumerate(args)
        ]
        named = {k: _insert_tracers(v, k in eager.static, tracers) for k, v in options.items()}
        rebuilt.extend((*filled, *named.values()))
        return filled, named

    described = [
        ArgumentLeaf(label, f"argument {label} of {name}", signature)
        for label, signature in zip(labels, signatures, strict=True)
    ]
    try:
        with without_bound_axes():
            traced, structure = trace_call(eager.fun, name, described, rebuild, not eager.cached)
    except NotAnArrayError as error:
        _restore_original(error, rebuilt, [*args, *options.values()])
        raise
    plan = lower(
        traced,
        [leaf.signature.sharding for leaf in described],
        [None] * len(traced.results),
        [leaf.description for leaf in described],
        config.uneven,
    )
    containers = None if structure.is_leaf() else structure
    if eager.cached:
        program = Runnable(plan, traced.results, traced.captured)
        return CompiledCall(program, containers, None, context), []
    program = compile_temporary(plan, traced)
    return CompiledCall(program, containers, None, context), list(traced.captured)


def _restore_original(error: NotAnArrayError, rebuilt: PyTree, given: PyTree) -> bool:
    """Let an error about a container of `rebuilt`, which has tracers, be about that of `given`.

    Return whether it was found.
    """
    if not error.about:
        return False
    culprit, describe = error.about
    if rebuilt is culprit:
        error.about = given, describe
        return True
    if not isinstance(given, (list, tuple, dict)):
        return False
    keys = given if isinstance(given, dict) else range(len(given))
    return any(_restore_original(error, rebuilt[key], given[key]) for key in keys)


def _array_labels(base: str, arg: PyTree) -> list[str]:
    """Return names for the arrays of an argument."""
    parts, structure = tree.flatten(arg)
    return [
        ".".join(map(str, (base, *path)))
        for path, part in zip(structure.paths(), parts, strict=True)
        if _is_argument(part)
    ]


def _static_arguments(
    eager: EagerFunction, args: tuple[PyTree, ...], options: dict[str, PyTree]
) -> list[tuple[str, PyTree]]:
    """Return the names and the values of the arguments that determine the program."""
    return [
        *((eager.positional[i], args[i]) for i in sorted(eager.static_positions) if i < len(args)),
        *((name, value) for name, value in options.items() if name in eager.static),
    ]


def _call_with_static_arrays(
    eager: EagerFunction, args: tuple[PyTree, ...], options: dict[str, PyTree]
) -> PyTree:
    """Call a function with arrays as shapes, sizes or axes: their elements determine the program.

    The call with NumPy arrays is cached, and this one is not.
    """
    changed = [
        _as_numpy_integers(value) if i in eager.static_positions else value
        for i, value in enumerate(args)
    ]
    named = {
        key: _as_numpy_integers(value) if key in eager.static else value
        for key, value in options.items()
    }
    return eager.public_function(*changed, **named)


def _is_integer_array(value: PyTree) -> bool:
    return type(value) is Array and value.dtype.kind in "iu"


def _has_integer_arrays(value: PyTree) -> bool:
    """Return whether a static argument is an array of integers, or contains one."""
    if type(value) is tuple or type(value) is list:
        return any(map(_has_integer_arrays, value))
    return _is_integer_array(value)


def _as_numpy_integers(value: PyTree) -> PyTree:
    """Return a static argument with its arrays of integers as NumPy arrays."""
    if type(value) is tuple or type(value) is list:
        return type(value)(map(_as_numpy_integers, value))
    return np.asarray(value) if _is_integer_array(value) else value


def _unhashable_error(
    eager: EagerFunction, args: tuple[PyTree, ...], options: dict[str, PyTree]
) -> ArgumentError:
    """Return the error for a static argument that cannot be hashed."""
    for name, value in _static_arguments(eager, args, options):
        try:
            static_key(value)
        except UnhashableError:
            return ArgumentError(
                with_location(
                    f"argument {name} of {eager.name} is {brief(value)}; it must be known and "
                    "hashable, because it determines the program"
                )
            )
    for arg in (*args, *options.values()):
        for leaf in tree.leaves(arg):
            if not is_array_like(leaf):
                abstract_of(leaf)  # Raises an error, in which the caller names the argument.
    return ArgumentError(with_location(f"{eager.name} has an argument that cannot be hashed"))
