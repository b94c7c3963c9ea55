"""`from_jax`: conversion of functions written for JAX to functions of shardir.

JAX traces the function once per signature; its jaxpr is cached, and read into the current trace. A
call outside of a trace compiles the function as `jit` does.
"""

from collections.abc import Callable, Hashable
from types import MethodType
from typing import TypeAlias, final

import jax
import numpy as np

from shardir.errors import ShardirError
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.jax_keys import is_jax_key
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.dispatch.call_table import MAX_CACHED_PROGRAMS, trace_context
from shardir.frontend.dispatch.jit_function import JitFunction
from shardir.frontend.dispatch.stages.stages import Lowered
from shardir.frontend.dispatch.traced_calls import is_array_like
from shardir.frontend.errors import ArgumentError, LostUpdateError, NotAnArrayError
from shardir.frontend.interop.graph_objects import (
    UpdatedObjects,
    call_with_merged_objects,
    contains_objects,
    is_graph_object,
    is_nnx_function,
    is_split_object,
    split_objects,
    update_caller_objects,
    update_context,
)
from shardir.frontend.interop.jax_containers import (
    Static,
    is_object_copy,
    is_python_number,
    leaf_paths,
    mark_static_parts,
    register_named_tuples,
    unwrap_static_parts,
)
from shardir.frontend.interop.jax_shardings import convert_array
from shardir.frontend.interop.jax_tracing import jax_struct_of, trace_to_jaxpr
from shardir.frontend.interop.jaxpr_reader import Constants, JaxprReader
from shardir.frontend.interop.mutation_checks import ArgumentContainers
from shardir.frontend.interop.primitive_rules import (
    collectives,
    control,
    derivatives,
    elementwise,
    host,
    indexing,
    linalg,
    ragged,
    random,
    shapes,
    sparse,
)
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.source_locations import trace_boundary, with_location
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import ArgNames, ArgNums, Parameters, function_name
from shardir.frontend.tracing.trace import current_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.wrappers import update_wrapper

Arguments: TypeAlias = tuple[PyTree, ...]
Keywords: TypeAlias = dict[str, PyTree]

RULE_MODULES = (
    collectives,
    control,
    derivatives,
    elementwise,
    host,
    indexing,
    linalg,
    ragged,
    random,
    shapes,
    sparse,
)
"""The modules whose import registers the rules."""


def from_jax(
    fun: UserFunction,
    *,
    static_argnums: ArgNums | None = None,
    static_argnames: ArgNames | None = None,
) -> "ImportedFunction":
    """Convert `fun`, a function written for JAX, to a function of shardir.

    The result accepts arrays of shardir, JAX and NumPy, also inside of `jit`, `grad`, `vmap` and
    the other transformations; `lower` shows its program. JAX traces `fun` once per combination of
    containers, shapes and element types. JAX's pytree nodes (Equinox modules, Flax and Optax
    states) are containers here, and results are returned in them.

    Python numbers are traced, also inside of containers, as by `jax.jit`. Objects that are not
    arrays, strings and bools are static, and so are the numbers inside of Equinox modules (as for
    `equinox.filter_jit`) and the arguments in `static_argnums` and `static_argnames`.

    `flax.nnx` objects among the arguments (modules, optimizers, metrics, rngs, Variables) are
    updated as by `nnx.jit`. Raise `LostUpdateError` if that is impossible because a transformation
    of shardir replaced such an object by a copy, and for a value that `fun` stores in a list or
    another container among its arguments and does not return. Raise `UnknownPrimitiveError`, during
    tracing, for a primitive without a rule.
    """
    if not callable(fun):
        raise ArgumentError(with_location(f"from_jax takes a function, got {fun!r}"))
    known = Parameters.of(fun, static_argnums, static_argnames)
    return ImportedFunction(fun, known)


@with_method_errors
@final
class ImportedFunction:
    """A function written for JAX, as `from_jax` returns it."""

    __name__: str
    __wrapped__: UserFunction

    def __init__(self, fun: UserFunction, parameters: Parameters) -> None:
        update_wrapper(self, fun)
        self.__name__ = function_name(fun)
        self._fun, self._parameters = fun, parameters
        self._states_too = is_nnx_function(fun)
        self._programs: dict[Hashable, _TracedJaxpr] = {}
        self._constants: Constants = {}

        def within(*args: object, **options: PyTree) -> PyTree:
            return self._call_in_trace(*args, **options)

        self._jitted = JitFunction(update_wrapper(within, fun), Parameters.of(fun), None, None)

    def __call__(self, *args: object, **options: PyTree) -> PyTree:
        """Return the function's result; nnx objects among the arguments are updated."""
        if not contains_objects((args, options), self._states_too):
            return self._call_pure(args, options)
        with update_context():
            given, named = split_objects((args, options), self._states_too)
            written = self._call_pure(given, named)
            if written.changed:
                self._check_objects((args, options))
            return update_caller_objects(written, (given, named))

    @trace_boundary
    def _check_objects(self, arguments: object) -> None:
        """Raise `LostUpdateError` if an updated object is a copy by a transformation."""
        leaves = jax.tree_util.tree_leaves(arguments, is_leaf=is_graph_object)
        if any(is_graph_object(x) and is_object_copy(x) for x in leaves):
            raise LostUpdateError(
                with_location(
                    f"{self.__name__} changes an object of flax.nnx in place, and inside of jit, "
                    "grad and other transformations that object is a copy of the caller's, which "
                    "would keep its state; call it outside of them (from_jax compiles it, and "
                    "nnx.grad works inside of it), or give it the graph and the state of nnx.split "
                    "and return the new state after nnx.merge"
                )
            )

    def _call_pure(self, args: Arguments, options: Keywords) -> PyTree:
        if current_trace() is not None:
            return unwrap_static_parts(self._call_in_trace(*args, **options))
        given, named = self._mark_arguments(args, options)
        return unwrap_static_parts(self._jitted(*given, **named))

    def lower(self, *args: PyTree, **options: PyTree) -> Lowered:
        """Trace for these arguments without running anything; see `jit`.

        nnx objects are not changed; the program takes and returns their arrays.
        """
        if not contains_objects((args, options), self._states_too):
            given, named = self._mark_arguments(args, options)
            return self._jitted.lower(*given, **named)
        with update_context():
            given, named = self._mark_arguments(*split_objects((args, options), self._states_too))
            return self._jitted.lower(*given, **named)

    def eval_shape(self, *args: object, **options: PyTree) -> PyTree:
        """Return the containers of the result with a `ShapeDtypeStruct` for each array."""
        info = self.lower(*args, **options).out_info
        return info.result if isinstance(info, UpdatedObjects) else info

    def __get__(
        self, instance: object, owner: type | None = None
    ) -> "ImportedFunction | MethodType":
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.__name__} from JAX>"

    def _mark_arguments(self, args: Arguments, options: Keywords) -> tuple[Arguments, Keywords]:
        """Convert the arguments of an outside call: arrays, and static parts as `Static`."""
        known = self._parameters.for_call(len(args))
        register_named_tuples((args, options))

        def each(x: object, static: bool) -> PyTree:
            if static:
                return x if isinstance(x, Static) else Static(x)
            return jax.tree_util.tree_map(convert_array, mark_static_parts(x, is_array))

        given = tuple(each(x, i in known.static) for i, x in enumerate(args))
        return given, {key: each(x, key in known.static_names) for key, x in options.items()}

    @trace_boundary
    def _call_in_trace(self, *args: PyTree, **options: PyTree) -> PyTree:
        """Return the function's result in the current trace; `Static` parts stay wrapped."""
        given, named = self._mark_arguments(args, options)
        leaves, structure = jax.tree_util.tree_flatten((given, named))
        known = tuple((i, x) for i, x in enumerate(leaves) if isinstance(x, Static))
        dynamic = [i for i, x in enumerate(leaves) if not isinstance(x, Static)]
        tracers = [as_tracer(leaves[i]) for i in dynamic]
        context = trace_context(), jax.sharding.get_abstract_mesh()
        key = structure, known, tuple(x.abstract for x in tracers), context
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) >= MAX_CACHED_PROGRAMS:
                self._programs.clear()
            program = self._programs[key] = _TracedJaxpr(self, structure, leaves, dynamic, tracers)
        found = JaxprReader(self._constants).read(program.closed, tracers)
        return program.fill_result(found)

    def run_traced(
        self, arguments: tuple[Arguments, Keywords]
    ) -> tuple[PyTree, Callable[[], None]]:
        """Run the function inside of a JAX trace on (positional, named) arguments.

        Return the result, and a function to call after the trace, which raises `LostUpdateError` if
        a container among the arguments has other contents than before.
        """
        checks: list[Callable[[], None]] = []

        def run(arguments: tuple[Arguments, Keywords]) -> PyTree:
            containers = ArgumentContainers(arguments)
            args, options = arguments
            result = self._fun(*args, **options)
            names = self._parameters.names
            checks.append(lambda: containers.check(self.__name__, names, result))
            return result

        if any(map(is_split_object, jax.tree_util.tree_leaves(arguments, is_leaf=is_split_object))):
            return call_with_merged_objects(run, arguments, self._states_too), checks[-1]
        return run(arguments), checks[-1]


def is_array(x: object) -> bool:
    """Return whether a leaf is an array for shardir or JAX; Python scalars are not."""
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return False
    return isinstance(x, jax.ShapeDtypeStruct) or is_array_like(x) or is_jax_key(x)


class _TracedJaxpr:
    """The jaxpr (`closed`) that JAX traced for one signature."""

    def __init__(
        self,
        function: ImportedFunction,
        structure: object,
        leaves: list[object],
        chosen: list[int],
        tracers: list[Tracer],
    ) -> None:
        self.name = function.__name__
        self._numbers = _static_numbers(structure, leaves)
        self._check: Callable[[], None]

        def flat(*arrays: object) -> list[PyTree]:
            filled = list(leaves)
            for i, x in zip(chosen, arrays, strict=True):
                filled[i] = x
            given = unwrap_static_parts(jax.tree_util.tree_unflatten(structure, filled))
            result, self._check = function.run_traced(given)
            return self._results(result)

        try:
            self.closed, _ = trace_to_jaxpr(flat, [jax_struct_of(x) for x in tracers])
        except TypeError as error:
            # JAX names the class of a value with its module, which identifies values of shardir.
            if isinstance(error, ShardirError) or "'shardir." not in str(error):
                raise
            message = str(error).partition("\n")[0].rstrip(".")
            raise NotAnArrayError(
                with_location(
                    f"{self.name} is written for JAX and received a value of shardir: {message}; "
                    "give it arrays as arguments, and use the functions of only one of the two in "
                    "it"
                )
            ) from None
        self._check()
        del self._check

    def _results(self, out: object) -> list[PyTree]:
        """Return the arrays of a result; other leaves are stored as static."""
        register_named_tuples(out)
        leaves, self._structure = jax.tree_util.tree_flatten(out)
        paths = leaf_paths(self._structure)
        arrays: list[PyTree] = []
        self._leaves: list[object] = []
        self._dynamic: list[int] = []
        for i, (leaf, path) in enumerate(zip(leaves, paths, strict=True)):
            if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
                dynamic = True
            elif is_python_number(leaf):
                # A number that was part of a model stays static; one that has changed is a result.
                dynamic = (path.rpartition(".")[2], type(leaf), leaf) not in self._numbers
            elif isinstance(leaf, (Array, Tracer)):
                raise NotAnArrayError(
                    with_location(
                        f"{self.name} is written for JAX and returned {leaf!r}, a value of "
                        "shardir; use the functions of only one of the two in it"
                    )
                )
            else:
                dynamic = False
            if dynamic:
                self._dynamic.append(i)
                arrays.append(leaf)
            self._leaves.append(None if dynamic else Static(leaf))
        return arrays

    def fill_result(self, arrays: list[Tracer]) -> PyTree:
        """Return the result in its containers."""
        leaves = list(self._leaves)
        for i, x in zip(self._dynamic, arrays, strict=True):
            leaves[i] = x
        return jax.tree_util.tree_unflatten(self._structure, leaves)


def _static_numbers(structure: object, leaves: list[object]) -> frozenset[tuple[str, type, object]]:
    """Return the static Python numbers with the last component of their path."""
    return frozenset(
        (path.rpartition(".")[2], type(leaf.value), leaf.value)
        for path, leaf in zip(leaf_paths(structure), leaves, strict=True)
        if isinstance(leaf, Static) and is_python_number(leaf.value)
    )
