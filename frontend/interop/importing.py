"""`from_jax`: functions written for JAX as functions of ours.

JAX traces the function once for each kind of arguments; its program is kept, and read into
whatever trace is current. Called outside of a trace the function is compiled as by `jit`.
"""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, final

import jax
import numpy as np

from shardir.errors import ShardirError
from shardir.frontend.array import Array
from shardir.frontend.calling import MANY, is_array_like, surroundings
from shardir.frontend.errors import ArgumentError, LostUpdateError, NotAnArrayError
from shardir.frontend.foreign_keys import is_foreign_key
from shardir.frontend.interop.arrays import converted
from shardir.frontend.interop.containers import (
    Known,
    is_copy,
    is_number,
    known_parts,
    paths_of,
    unmarked,
)
from shardir.frontend.interop.graph_objects import (
    Written,
    call_inside,
    holds_objects,
    is_graph_object,
    is_nnx_function,
    is_split_object,
    split_objects,
    update_context,
    write_back,
)
from shardir.frontend.interop.mutations import Containers
from shardir.frontend.interop.reading import Reader
from shardir.frontend.interop.table import READY
from shardir.frontend.interop.tracing import program_of, struct_of
from shardir.frontend.jit import JitFunction, Lowered
from shardir.frontend.locations import boundary, point
from shardir.frontend.operands import as_tracer
from shardir.frontend.parameters import Parameters, name_of
from shardir.frontend.trace import current
from shardir.frontend.tracer import Tracer

assert READY


def from_jax(
    fun: Callable[..., Any],
    *,
    static_argnums: int | tuple[int, ...] = (),
    static_argnames: str | tuple[str, ...] = (),
) -> "ImportedFunction":
    """What `fun`, a function written for JAX, computes, as a function of ours.

    Call it with arrays of ours, of JAX's or of NumPy, also inside `jit`, `grad`, `vmap` and the
    other transformations; `lower` shows its program. JAX traces `fun` once for each combination of
    containers, shapes and element types; containers that JAX knows (Equinox's modules, Flax's and
    Optax's states) are containers here, and results come back in them.

    Numbers of Python are traced, also inside of containers, as by `jax.jit`. What is no array,
    strings and bools are known while tracing, and so are the numbers inside of Equinox's modules
    (as for `equinox.filter_jit`) and the arguments in `static_argnums` and `static_argnames`.

    Objects of `flax.nnx` among the arguments (modules, optimizers, metrics, rngs, Variables) are
    updated to what `fun` leaves, as by `nnx.jit`. Raises `LostUpdateError` where that is
    impossible, because a transformation of ours has put a copy in the place of such an object, and
    for a value that `fun` stores in a list or another container it was given and does not return.
    Raises `UnknownPrimitiveError`, when it is traced, for a primitive that has no rule.
    """
    if not callable(fun):
        raise ArgumentError(point(f"from_jax takes a function, got {fun!r}"))
    known = Parameters.of(fun, static_argnums, static_argnames)
    return ImportedFunction(fun, known)


@final
class ImportedFunction:
    """What `from_jax` returns."""

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, fun: Callable[..., Any], parameters: Parameters) -> None:
        update_wrapper(self, fun)
        self.__name__ = name_of(fun)
        self._fun, self._parameters = fun, parameters
        self._states_too = is_nnx_function(fun)
        self._programs: dict[Any, _Program] = {}
        self._constants: dict[int, tuple[Any, Array]] = {}

        def within(*args: Any, **options: Any) -> Any:
            return self._within(*args, **options)

        self._jitted = JitFunction(update_wrapper(within, fun), Parameters.of(fun), None, None)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """The function's result for these arguments; objects of nnx among them are updated."""
        if not holds_objects((args, options), self._states_too):
            return self._called(args, options)
        with update_context():
            given, named = split_objects((args, options), self._states_too)
            written = self._called(given, named)
            if written.changed:
                self._check_objects((args, options))
            return write_back(written, (given, named))

    @boundary
    def _check_objects(self, arguments: Any) -> None:
        """Raise `LostUpdateError` if an updated object is one that a transformation has made."""
        leaves = jax.tree_util.tree_leaves(arguments, is_leaf=is_graph_object)
        if any(is_graph_object(x) and is_copy(x) for x in leaves):
            raise LostUpdateError(
                point(
                    f"{self.__name__} changes an object of flax.nnx in place, and inside of jit, "
                    "grad and other transformations that object is a copy of the caller's, which "
                    "would keep its state; call it outside of them (from_jax compiles it, and "
                    "nnx.grad works inside of it), or give it the graph and the state of nnx.split "
                    "and return the new state after nnx.merge"
                )
            )

    def _called(self, args: Any, options: Any) -> Any:
        if current() is not None:
            return unmarked(self._within(*args, **options))
        given, named = self._marked(args, options)
        return unmarked(self._jitted(*given, **named))

    def lower(self, *args: Any, **options: Any) -> Lowered:
        """Trace for these arguments without running anything; see `jit`.

        Objects of nnx stay as they are; the program takes and returns their arrays.
        """
        if not holds_objects((args, options), self._states_too):
            given, named = self._marked(args, options)
            return self._jitted.lower(*given, **named)
        with update_context():
            given, named = self._marked(*split_objects((args, options), self._states_too))
            return self._jitted.lower(*given, **named)

    def eval_shape(self, *args: Any, **options: Any) -> Any:
        """The result's containers with a `ShapeDtypeStruct` for each array."""
        info = self.lower(*args, **options).out_info
        return info.result if isinstance(info, Written) else info

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        from types import MethodType

        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<{self.__name__} from JAX>"

    def _marked(self, args: Any, options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call from outside: arrays as ours, what shapes the program as such."""
        known = self._parameters

        def each(x: Any, static: bool) -> Any:
            if static:
                return x if isinstance(x, Known) else Known(x)
            return jax.tree_util.tree_map(converted, known_parts(x, is_array))

        given = tuple(each(x, i in known.static) for i, x in enumerate(args))
        return given, {key: each(x, key in known.static_names) for key, x in options.items()}

    @boundary
    def _within(self, *args: Any, **options: Any) -> Any:
        """The function's result in the current trace; `Known` parts stay so."""
        given, named = self._marked(args, options)
        leaves, structure = jax.tree_util.tree_flatten((given, named))
        known = tuple((i, x) for i, x in enumerate(leaves) if isinstance(x, Known))
        chosen = [i for i, x in enumerate(leaves) if not isinstance(x, Known)]
        tracers = [as_tracer(leaves[i]) for i in chosen]
        around = surroundings(), jax.sharding.get_abstract_mesh()
        key = structure, known, tuple(x.abstract for x in tracers), around
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) >= MANY:
                self._programs.clear()
            program = self._programs[key] = _Program(self, structure, leaves, chosen, tracers)
        found = Reader(self._constants).read(program.closed, tracers)
        return program.filled(found)

    def run_traced(self, arguments: Any) -> tuple[Any, Callable[[], None]]:
        """Run the function inside of a trace of JAX on (positional, named) arguments.

        Returns the result, and a function that raises `LostUpdateError`, for after the trace, if a
        container among the arguments holds another value now.
        """
        checks: list[Callable[[], None]] = []

        def run(arguments: Any) -> Any:
            containers = Containers(arguments)
            args, options = arguments
            result = self._fun(*args, **options)
            names = self._parameters.names
            checks.append(lambda: containers.check(self.__name__, names, result))
            return result

        if any(map(is_split_object, jax.tree_util.tree_leaves(arguments, is_leaf=is_split_object))):
            return call_inside(run, arguments, self._states_too), checks[-1]
        return run(arguments), checks[-1]


def is_array(x: Any) -> bool:
    """Whether a leaf is an array, for us or for JAX; bools of Python are not."""
    if isinstance(x, (bool, int, float, complex)) and not isinstance(x, np.generic):
        return False
    return isinstance(x, jax.ShapeDtypeStruct) or is_array_like(x) or is_foreign_key(x)


class _Program:
    """What JAX has traced for one kind of arguments; `closed` is its program."""

    def __init__(
        self,
        function: ImportedFunction,
        structure: Any,
        leaves: list[Any],
        chosen: list[int],
        tracers: list[Tracer],
    ) -> None:
        self.name = function.__name__
        self._numbers = _numbers_by_place(structure, leaves)
        self._check: Callable[[], None]

        def flat(*arrays: Any) -> list[Any]:
            filled = list(leaves)
            for i, x in zip(chosen, arrays, strict=True):
                filled[i] = x
            given = unmarked(jax.tree_util.tree_unflatten(structure, filled))
            result, self._check = function.run_traced(given)
            return self._results(result)

        try:
            self.closed, _ = program_of(flat, [struct_of(x) for x in tracers])
        except TypeError as error:
            # JAX names a value's class by its module, so ours are known by it.
            if isinstance(error, ShardirError) or "'shardir." not in str(error):
                raise
            said = str(error).partition("\n")[0].rstrip(".")
            raise NotAnArrayError(
                point(
                    f"{self.name} is written for JAX and met what is of shardir: {said}; give it "
                    "arrays as arguments, and use the functions of one of both in it"
                )
            ) from None
        self._check()
        del self._check

    def _results(self, out: Any) -> list[Any]:
        """The arrays of a result; what else is in it is kept."""
        leaves, self._structure = jax.tree_util.tree_flatten(out)
        places = paths_of(self._structure)
        arrays: list[Any] = []
        self._leaves: list[Any] = []
        self._dynamic: list[int] = []
        for i, (leaf, place) in enumerate(zip(leaves, places, strict=True)):
            if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
                dynamic = True
            elif is_number(leaf):
                # A number that was part of a model is so still; one that has changed is a result.
                dynamic = (place.rpartition(".")[2], type(leaf), leaf) not in self._numbers
            elif isinstance(leaf, (Array, Tracer)):
                raise NotAnArrayError(
                    point(
                        f"{self.name} is written for JAX and returned {leaf!r}, which is of "
                        "shardir; use the functions of one of both in it"
                    )
                )
            else:
                dynamic = False
            if dynamic:
                self._dynamic.append(i)
                arrays.append(leaf)
            self._leaves.append(None if dynamic else Known(leaf))
        return arrays

    def filled(self, arrays: list[Tracer]) -> Any:
        """The result in its containers."""
        leaves = list(self._leaves)
        for i, x in zip(self._dynamic, arrays, strict=True):
            leaves[i] = x
        return jax.tree_util.tree_unflatten(self._structure, leaves)


def _numbers_by_place(structure: Any, leaves: list[Any]) -> frozenset[Any]:
    """The numbers of Python that were known, with the last word of where they were."""
    return frozenset(
        (place.rpartition(".")[2], type(leaf.value), leaf.value)
        for place, leaf in zip(paths_of(structure), leaves, strict=True)
        if isinstance(leaf, Known) and is_number(leaf.value)
    )
