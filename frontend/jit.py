"""`jit`: functions that are traced once for each signature of the arguments, and run compiled.

A call flattens its arguments, looks up the program for their signatures, and runs it. Inside of
another trace the function is inlined into the enclosing program.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, final, overload

from shardir.backends.base import Launch
from shardir.backends.cpu.native.runtime.callables import quick_class
from shardir.frontend import tree
from shardir.frontend.annotations import constrain
from shardir.frontend.array import Array
from shardir.frontend.calling import (
    MANY,
    Leaf,
    Surroundings,
    is_array_like,
    signature_of_leaf,
    surroundings,
    trace_call,
    unchanged,
)
from shardir.frontend.config import uneven_mode
from shardir.frontend.described import check_function, check_leaf, placed, signatures_of
from shardir.frontend.devices import Device, local_devices
from shardir.frontend.donating import donating
from shardir.frontend.emptiness import without_nothings
from shardir.frontend.errors import (
    ArgumentError,
    NotAnArrayError,
    RecursiveError,
)
from shardir.frontend.executing import Gather, gatherer, prepare
from shardir.frontend.locations import defined, point
from shardir.frontend.lowering import check_divides, lower
from shardir.frontend.operands import as_tracer
from shardir.frontend.parameters import Parameters, check_call, name_of
from shardir.frontend.placing import device_put
from shardir.frontend.runnable import Runnable
from shardir.frontend.running import check_compiler_options, conditions, uncommitted_device
from shardir.frontend.shardings import Sharding, SingleDeviceSharding
from shardir.frontend.stages import Compiled as Compiled, Lowered as Lowered
from shardir.frontend.trace import current
from shardir.frontend.tracer import Tracer
from shardir.frontend.wishes import check_wishes, granted, spread_wishes

if TYPE_CHECKING:
    from shardir.backends.cpu.native.runtime.answering import Answers

Numbers = int | Sequence[int] | None
Names = str | Sequence[str] | None


_Quick = tuple[Launch, tree.PyTreeDef | None, Surroundings, Runnable]
"""The launch of a call with only arrays, the structure of its results unless that is one array, the
trace context in which it is valid, and the program, which states the donated arrays."""


@final
@quick_class
class JitFunction:
    """The result of `jit`. Call it, or `lower` it for arguments without running it."""

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(
        self,
        fun: Callable[..., Any],
        parameters: Parameters,
        in_shardings: Any,
        out_shardings: Any,
        uneven: str | None = None,
        backend: str | None = None,
        device: Device | None = None,
        compiler_options: Mapping[str, Any] | None = None,
    ) -> None:
        update_wrapper(self, fun)
        self._fun, self._parameters = fun, parameters
        self._in, self._out = in_shardings, out_shardings
        self._uneven, self._backend, self._device = uneven, backend, device
        self._compiler_options = compiler_options
        self._programs: dict[Any, tuple[Runnable, tree.PyTreeDef]] = {}
        self._quick: dict[tuple[Any, ...], _Quick] = {}
        self._gather: Gather
        self._static = parameters.has_static
        self._answers: Answers | None = None
        self._asked = False

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function with these arguments."""
        if current() is not None:
            return self._inlined(args, options)
        if self._quick:
            found = self._gathered(args, options) if self._static else self._gather(args, options)
            known = None if found is None else self._quick.get(found[1])
            if found is not None and known is not None and unchanged(known[2]):
                launch, results, _, program = known
                if self._answers is None and not program.donated and self._may_be_answered():
                    return self._called(args, options)
                made = self._run(launch, found[0], program)
                if made is not None:
                    return made[0] if results is None else tree.unflatten(results, made)
        return self._called(args, options)

    def _may_be_answered(self) -> bool:
        """Return whether the native call cache has become available since the last check."""
        if self._asked or sys.is_finalizing():  # Imports fail during shutdown.
            return False
        from shardir.backends.cpu.native.runtime.calls import calls_soon

        self._asked = calls_soon() is not None
        return self._asked

    def _run(self, run: Launch, leaves: list[Any], program: Runnable) -> Any:
        if not program.donated:
            return run(leaves)
        return donating(run, leaves, program.donated, self._parameters.name, program.plan.devices)

    def _gathered(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Return the arrays of a call, and its cache key including the static arguments."""
        dynamic, static = self._parameters.divide(args, options)
        found = self._gather(*dynamic)
        return found and (found[0], (found[1], static))

    def _called(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Call the function with any arguments: look up the program, or compile it."""
        if conditions().disabled:
            return self._fun(*args, **options)
        known = self._parameters
        if self._device is not None:
            moved = device_put(known.divide(args, options)[0], self._device)
            positional, options = known.join(moved, args, options)
            args = tuple(positional)
        dynamic, static = known.divide(args, options) if known.has_static else ((args, options), ())
        try:
            leaves, tokens = tree.walk(dynamic, Array, signature_of_leaf)
        except NotAnArrayError:
            call = without_nothings((args, options))
            if call[0] is not args:
                return self._called(*call)
            signatures_of(known, tree.leaves(dynamic), dynamic)
            raise
        key = tokens, static, surroundings()
        found = self._programs.get(key)
        if found is None:
            if len(self._programs) >= MANY:
                self._programs.clear()
            prepare(uncommitted_device().backend)
            found = self._lowered(args, options).program()
            if known.donated:
                numbers = tree.unflatten(tree.flatten(dynamic)[1], range(len(leaves)))
                positions, named = known.join(numbers, args, options)
                found[0].donate(tree.leaves(known.donations(tuple(positions), named)))
            self._programs[key] = found  # Last, because other threads read the cache.
        program, results = found
        made = self._run(program, leaves, program)
        out = tree.unflatten(results, made)
        if program.launch is not None:
            # Later calls with this signature use the fast path if all arguments are arrays.
            self._gather = gatherer(Array)
            alone = (self._gathered if self._static else self._gather)(args, options)
            if not program.donated and unchanged(key[2]):
                from shardir.backends.cpu.native.runtime.answering import Static
                from shardir.frontend.answers import remember, told_apart

                call = told_apart(args, options, leaves)
                static = Static(sorted(known.static), sorted(known.static_names))
                remember(self, static, program.launch, results, *call)
            if alone is not None:
                if len(self._quick) >= MANY:
                    self._quick.clear()
                form = None if results.is_leaf() else results
                self._quick[alone[1]] = program.launch, form, key[2], program
        return out

    def lower(self, *args: Any, **options: Any) -> Lowered:
        """Trace for these arguments, arrays or `ShapeDtypeStruct`s, without running the program."""
        return self._lowered(args, options)

    def eval_shape(self, *args: Any, **options: Any) -> Any:
        """Return the pytree of results with a `ShapeDtypeStruct` for each array."""
        return self._lowered(args, options).out_info

    def clear_cache(self) -> None:
        """Remove all compiled programs from the cache."""
        self._programs.clear()
        self._quick.clear()
        if self._answers is not None:
            self._answers.table.clear()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_answers": None}

    def __repr__(self) -> str:
        return f"<jit of {self._parameters.name}>"

    def _lowered(self, args: tuple[Any, ...], options: dict[str, Any]) -> Lowered:
        known = self._parameters
        check_compiler_options(self._compiler_options, known.name)
        check_call(self._fun, known.name, args, options)
        dynamic, _ = known.divide(args, options)
        leaves, structure = tree.flatten(dynamic)
        labels = known.labels(*dynamic)
        signatures = signatures_of(known, leaves, dynamic)
        described = [
            Leaf(label, f"argument {label} of {known.name}", signature)
            for label, signature in zip(labels, signatures, strict=True)
        ]
        wanted = self._in_shardings(dynamic, len(leaves))
        homes = [placed(leaf, sharding) for leaf, sharding in zip(described, wanted, strict=True)]
        uneven = uneven_mode(self._uneven, known.name)
        for given, leaf, sharding in zip(leaves, described, homes, strict=True):
            # A committed array was checked when it was placed.
            there = type(given) is Array and leaf.signature.sharding is not None
            if sharding is not None and not there:
                check_divides(leaf.word, sharding, leaf.signature.abstract.type, uneven)

        def rebuild(tracers: Iterator[Tracer]) -> tuple[Sequence[Any], dict[str, Any]]:
            return known.join(tree.unflatten(structure, tracers), args, options)

        traced, results = trace_call(self._fun, known.name, described, rebuild)
        plan = lower(
            traced,
            homes,
            self._out_shardings(results),
            [leaf.word for leaf in described],
            uneven,
            None if self._backend is None else local_devices(backend=self._backend)[0],
        )
        filled, named = known.join(tree.unflatten(structure, range(len(leaves))), args, options)
        donated = tree.leaves(known.donations(tuple(filled), named)) if known.donated else []
        return Lowered(plan, traced, structure, results, labels, defined(self._fun), donated)

    def _in_shardings(self, dynamic: Any, count: int) -> list[Sharding | None]:
        """Return the requested sharding of each argument."""
        if self._device is not None:
            return [SingleDeviceSharding(self._device)] * count
        if self._in is None:
            return [None] * count
        args, options = dynamic
        if options:
            raise ArgumentError(
                point(
                    f"{self._parameters.name} has in_shardings, which are for positional "
                    f"arguments, and was called with {', '.join(options)} by name; pass all "
                    "arguments by position"
                )
            )
        word = f"in_shardings of {self._parameters.name}"
        return [granted(request, word) for request in spread_wishes(self._in, args, word)]

    def _out_shardings(self, results: tree.PyTreeDef) -> list[Sharding | None]:
        """Return the requested sharding of each result."""
        if self._device is not None:
            return [SingleDeviceSharding(self._device)] * results.num_leaves
        if self._out is None:
            return [None] * results.num_leaves
        whole = tree.unflatten(results, range(results.num_leaves))
        word = f"out_shardings of {self._parameters.name}"
        return [granted(request, word) for request in spread_wishes(self._out, whole, word)]

    def _inlined(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Inline a call into the enclosing trace."""
        known = self._parameters
        check_compiler_options(self._compiler_options, known.name, inside=True)
        check_call(self._fun, known.name, args, options)
        dynamic, _ = known.divide(args, options)
        leaves, structure = tree.flatten(dynamic)
        for leaf, label in zip(leaves, known.labels(*dynamic), strict=True):
            if not is_array_like(leaf):
                check_leaf(known, leaf, label)
        wanted = self._in_shardings(dynamic, len(leaves))
        tracers = [
            as_tracer(leaf) if sharding is None else constrain(as_tracer(leaf), sharding)
            for leaf, sharding in zip(leaves, wanted, strict=True)
        ]
        filled, named = known.join(tree.unflatten(structure, tracers), args, options)
        try:
            result = self._fun(*filled, **named)
        except RecursionError:
            raise RecursiveError(
                point(
                    f"{known.name} calls itself without end: tracing enters every branch of a "
                    "program, whatever the values; loop with lax.while_loop or lax.fori_loop, or "
                    "end the recursion on a value known while tracing, such as a static argument"
                )
            ) from None
        if self._out is None and self._device is None:
            return result
        outs, results = tree.flatten(result)
        requested = self._out_shardings(results)
        return tree.unflatten(
            results,
            [
                out if sharding is None else constrain(as_tracer(out), sharding)
                for out, sharding in zip(outs, requested, strict=True)
            ],
        )


class _Options(TypedDict, total=False):
    """The keyword arguments of `jit`, for type checkers."""

    in_shardings: Any
    out_shardings: Any
    static_argnums: Numbers
    static_argnames: Names
    donate_argnums: Numbers
    donate_argnames: Names
    keep_unused: bool
    inline: bool
    uneven: str | None
    backend: str | None
    device: Device | None
    compiler_options: Mapping[str, Any] | None


@overload
def jit(fun: Callable[..., Any], /, **options: Unpack[_Options]) -> JitFunction: ...


@overload
def jit(**options: Unpack[_Options]) -> Callable[[Callable[..., Any]], JitFunction]: ...


def jit(
    fun: Callable[..., Any] | None = None,
    /,
    *,
    in_shardings: Any = None,
    out_shardings: Any = None,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
    donate_argnums: Numbers = None,
    donate_argnames: Names = None,
    keep_unused: bool = False,
    inline: bool = False,
    uneven: str | None = None,
    backend: str | None = None,
    device: Device | None = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Any:
    """Return a function that computes the same as `fun`, as one compiled program.

    `fun` takes and returns pytrees of arrays. It is traced once for each combination of pytree
    structure, shapes, element types, shardings, static arguments and settings; later calls do not
    run its Python code.

    `static_argnums`, `static_argnames`: arguments that `fun` receives unchanged; they must be
    hashable.

    `donate_argnums`, `donate_argnames`: arguments whose memory results may reuse, and that must not
    be used after the call. As in JAX, an argument is not donated if the program copies it (because
    `in_shardings` or the devices of other arguments move it), does not use it, or has no result of
    its shape and element type.

    `in_shardings`, `out_shardings`: the shardings of arguments and results, as pytree prefixes of
    shardings, specs on the mesh of the enclosing `with mesh:`, and `None` (unspecified). An entry
    applies to the whole subtree below it.

    `uneven`: the treatment of a dimension that its sharding does not divide; by default the
    setting. Without either, an argument or a result is an error (`IndivisibleError`), and inside of
    the program the last shards are padded. `"pad"` pads everywhere: the last devices hold fewer
    elements than the others, or none. `"replicate"` shards inside of the program only as far as it
    divides; `"error"` raises a `PartitionError` there.

    `backend`: the platform on which to run, `"cpu"` or `"gpu"`, by default that of the arrays.
    `device`: the device to which all arguments are moved and on which the program runs; not
    combined with shardings. `keep_unused`, `inline` and the `compiler_options` for optimization
    levels have no effect.

    Use as `jit(f)`, `@jit` or `@jit(static_argnums=0)`. Raises `ArgumentError` for parameters that
    `fun` does not have.
    """

    def decorate(fun: Callable[..., Any]) -> JitFunction:
        check_function(fun, "jit")
        others = [in_shardings, out_shardings, backend]
        if device is not None and any(other is not None for other in others):
            raise ArgumentError(
                point(f"jit of {name_of(fun)} has a device, and shardings or a backend; choose one")
            )
        for word, prefix in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
            check_wishes(prefix, word)
        parameters = Parameters.of(
            fun, static_argnums, static_argnames, donate_argnums, donate_argnames
        )
        uneven_mode(uneven, "jit")
        return JitFunction(
            fun, parameters, in_shardings, out_shardings, uneven, backend, device, compiler_options
        )

    return decorate if fun is None else decorate(fun)
