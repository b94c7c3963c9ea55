"""Functions made by `jit` and `pmap`: a call looks up the program, or compiles it, and runs it.

Inside of another trace the function is inlined into the enclosing program (`inlined_traces`).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter
from types import MethodType
from typing import TYPE_CHECKING, final

from shardir._imports.lazy_import import lazy_import
from shardir.backends.base import Launch
from shardir.backends.native import native, vectorcall_class
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.float0 import replace_float0
from shardir.frontend.call_signatures import check_call_signature, with_method_errors
from shardir.frontend.config import resolve_pipeline, resolve_uneven_mode
from shardir.frontend.dispatch.argument_placement import DevicePlacement, Placement
from shardir.frontend.dispatch.boundary_shardings import BoundaryShardings
from shardir.frontend.dispatch.cache_info import CacheInfo, CallKey
from shardir.frontend.dispatch.call_table import (
    CompiledCall,
    TraceContext,
    context_objects,
    is_current,
    trace_context,
)
from shardir.frontend.dispatch.execution_context import (
    check_compiler_options,
    default_array_device,
    execution_context,
)
from shardir.frontend.dispatch.function_caches import FunctionCaches, find_caches
from shardir.frontend.dispatch.programs.compilation import prepare_backend
from shardir.frontend.dispatch.programs.deferred_arguments import (
    UnplannedCall,
    find_deferred,
    lower_as_chosen,
)
from shardir.frontend.dispatch.programs.donation import run_with_donation
from shardir.frontend.dispatch.programs.lowering import (
    LoweredProgram,
    lower,
)
from shardir.frontend.dispatch.programs.runnable import Runnable
from shardir.frontend.dispatch.stages.stages import Lowered
from shardir.frontend.dispatch.stages.traced import Traced
from shardir.frontend.dispatch.traced_calls import (
    ArgumentLeaf,
    check_argument_leaf,
    is_array_like,
    signature_of_leaf,
    signatures_of,
    trace_call,
)
from shardir.frontend.errors import (
    ArgumentError,
    IncompatibleDevicesError,
    NotAnArrayError,
    RecursiveError,
)
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.shardings.devices import Device, local_devices
from shardir.frontend.shardings.sharding import Sharding
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.source_locations import find_definition, with_location
from shardir.frontend.tracebacks import hide_own_frames, traceback_boundary
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import Dynamic, Parameters
from shardir.frontend.tracing.trace import current_trace, stage_out
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.wrappers import update_wrapper

if TYPE_CHECKING:
    from shardir.backends._native import CallCache
    from shardir.frontend.dispatch import native_call_cache
else:
    native_call_cache = lazy_import("shardir.frontend.dispatch.native_call_cache")


def _flatten_positional_arrays(
    args: tuple[PyTree, ...], options: dict[str, PyTree]
) -> tuple[Sequence[PyTree], tuple[PyTree, ...]] | None:
    """Return the arguments of a call and their signatures, `None` for those that are no arrays."""
    key = tuple([x.signature if type(x) is Array else None for x in args])
    return None if options else (args, key)


flatten_arrays = _flatten_positional_arrays if native is None else native.flatten
"""Return the arrays of a call and their signatures, or `None` if there are other arguments."""


@with_method_errors
@final
@vectorcall_class
class JitFunction:
    """The result of `jit` or `pmap`. Call it, or `lower` it for arguments without running it."""

    __name__: str
    call_cache: "CallCache | None"
    __wrapped__: UserFunction

    def __init__(
        self,
        fun: UserFunction,
        parameters: Parameters,
        in_shardings: object,
        out_shardings: object,
        uneven: str | None = None,
        backend: str | None = None,
        device: Device | None = None,
        compiler_options: Mapping[str, object] | None = None,
        passes: str | None = None,
        placement: Placement | None = None,
        transform: str = "jit",
    ) -> None:
        """`transform` is the public function that makes it; a function of another one than `jit`
        checks its arguments while it is traced."""
        update_wrapper(self, fun)
        self._fun, self._parameters = fun, parameters
        self._shardings = BoundaryShardings(
            parameters.name, in_shardings, out_shardings, device, uneven
        )
        self._backend = backend
        self._compiler_options, self._passes = compiler_options, passes
        self._transform = transform
        self._placement = placement if device is None else DevicePlacement(parameters, device)
        self._has_static = parameters.has_static
        shardings = in_shardings, out_shardings
        options = parameters, shardings, uneven, backend, device, compiler_options, passes
        self._set_caches(find_caches(fun, options) if placement is None else FunctionCaches())

    def _set_caches(self, caches: FunctionCaches) -> None:
        self._caches = caches
        self._calls, self._traces = caches.calls, caches.traces
        self._chosen, self._compilations = caches.chosen, caches.compilations

    def __call__(self, *args: PyTree, **options: PyTree) -> PyTree:
        """Call the function with these arguments."""
        try:
            if self._calls:
                leaves: PyTree = args
                if native is None and not options and not self._has_static:
                    # Inlined, because this takes a large part of the time of the Python tier.
                    key: PyTree = tuple([x.signature if type(x) is Array else None for x in args])
                elif current_trace() is not None:
                    return self._inline(args, options)
                else:
                    leaves, key = self._flatten_arrays(args, options)
                known = self._find_static(key) if self._has_static else self._calls.get(key)
                if known is not None:
                    program, structure, launch, context = known
                    if is_current(context):
                        made = (
                            self._run_with_donation(launch, leaves, program)
                            if program.donated
                            else launch(leaves)
                        )
                        if made is not None:
                            return made[0] if structure is None else tree.unflatten(structure, made)
            if current_trace() is not None:
                return self._inline(args, options)
            return self._call_slow_path(args, options)
        except Exception as error:
            hide_own_frames(error)
            raise

    def _find_static(self, key: PyTree) -> CompiledCall | None:
        """Return the call with a key of the table that contains static arguments.

        Raises `ArgumentError` if they cannot be compared with those of an earlier call.
        """
        try:
            return self._calls.get(key)
        except Exception as error:
            raise ArgumentError(
                with_location(
                    f"static arguments of {self._parameters.name} should be comparable using "
                    f"__eq__, which raised {type(error).__name__}: {error}"
                )
            ) from error

    def _run_with_donation(self, run: Launch, leaves: list[PyTree], program: Runnable) -> PyTree:
        return run_with_donation(
            run, leaves, program.donated, self._parameters.name, program.plan.devices
        )

    def _flatten_arrays(
        self, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> tuple[PyTree, PyTree]:
        """Return the arrays of a call, and their signatures with the static arguments as a key of
        the table; the key is `None` if there are other arguments."""
        if not self._has_static:
            return flatten_arrays(args, options) or ((), None)
        known = self._parameters.for_call(len(args))
        dynamic, static = known.partition_arguments(args, options)
        found = flatten_arrays(*dynamic)
        return ((), None) if found is None else (found[0], (found[1], static))

    def _call_slow_path(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> PyTree:
        """Call the function with any arguments: place them, look up the program, or compile it."""
        if execution_context().jit_disabled:
            return self._fun(*args, **options)
        placement = self._placement
        if placement is None:
            return self._call_placed(args, options, args, options)
        version = placement.version
        try:
            return self._call_placed(*placement.place(args, options), args, options)
        except IncompatibleDevicesError:
            if placement.version == version:
                raise
        return self._call_placed(*placement.place(args, options), args, options)

    def _call_placed(
        self,
        placed: Sequence[PyTree],
        named: dict[str, PyTree],
        args: tuple[PyTree, ...],
        options: dict[str, PyTree],
    ) -> PyTree:
        """Call the function with arguments on its devices; `args` and `options` are those of the
        user."""
        known = self._parameters.for_call(len(args))
        call = tuple(placed), named
        dynamic, static = known.partition_arguments(*call) if known.has_static else (call, ())
        try:
            leaves, tokens = tree.flatten_with_key(dynamic, Array, signature_of_leaf)
        except NotAnArrayError:
            replaced = replace_float0((args, options))
            if replaced[0] is not args:
                return self._call_slow_path(*replaced)
            signatures_of(known, tree.leaves(dynamic), dynamic)
            raise
        context, objects = trace_context(), context_objects()
        signature = tokens, static, context
        found = self._find_static(signature) if static else self._calls.get(signature)
        if found is None:
            prepare_backend(default_array_device().backend)
            begin = perf_counter()
            program, structure = self._lower(*call).make_program()
            seconds = perf_counter() - begin
            found = CompiledCall(program, None if structure.is_leaf() else structure, None, objects)
            self._calls.add(signature, found)  # Last, because other threads read the table.
            self._compilations.add(
                self._fun, known.name, self._call_key(known, dynamic, static, context), seconds
            )
        program = found.program
        made = (
            self._run_with_donation(program, leaves, program)
            if program.donated
            else program(leaves)
        )
        if program.launch is not None and is_current(objects):
            direct = CompiledCall(program, found.structure, program.launch, objects)
            self._insert_call(direct, leaves, args, options)
        return made[0] if found.structure is None else tree.unflatten(found.structure, made)

    def _insert_call(
        self,
        call: CompiledCall,
        placed: Sequence[object],
        args: tuple[PyTree, ...],
        options: dict[str, PyTree],
    ) -> None:
        """Let later calls with these signatures run the launch of a program directly.

        The program took the leaves in `placed`. Where all devices share memory, its launch takes
        the user's, too: placing them copied no elements. `run_with_donation` keeps the user's
        arrays that would have been copied.
        """
        program, structure, launch, _ = call
        given: Sequence[PyTree] = placed
        if self._placement is not None:
            known = self._parameters.for_call(len(args))
            given = tree.leaves(known.partition_arguments(args, options)[0])
            if len(given) != len(placed):
                return  # Arrays of float0 are no arguments of the program.
        if not program.donated:
            static = self._parameters.static, self._parameters.static_names
            distinct = native_call_cache.with_distinct_arrays(args, options, given)
            native_call_cache.insert_call(self, static, launch, structure, *distinct)
        leaves, key = self._flatten_arrays(args, options)
        if key is not None and all(type(x) is Array for x in leaves):
            self._calls.add(key, call)

    @traceback_boundary
    def lower(self, *args: PyTree, **options: PyTree) -> Lowered:
        """Trace for these arguments, arrays or `ShapeDtypeStruct`s, without running the program."""
        return self._lower(args, options)

    @traceback_boundary
    def trace(self, *args: PyTree, **options: PyTree) -> Traced:
        """Trace for these arguments, arrays or `ShapeDtypeStruct`s; see `Traced`."""
        return Traced(self._lower(args, options), self._parameters.name)

    @traceback_boundary
    def eval_shape(self, *args: PyTree, **options: PyTree) -> PyTree:
        """Return the pytree of results with a `ShapeDtypeStruct` for each array."""
        return self._lower(args, options).out_info

    def with_shardings(self, in_shardings: object, out_shardings: object) -> "JitFunction":
        """Return the function with other shardings of its arguments and results."""
        return JitFunction(
            self._fun,
            self._parameters,
            in_shardings,
            out_shardings,
            self._shardings.uneven,
            self._backend,
            None,
            self._compiler_options,
            self._passes,
        )

    def cache_info(self) -> CacheInfo:
        """Return the compilations of this function with the reason for each of them."""
        entries = tuple(self._compilations.entries)
        return CacheInfo(self._parameters.name, self._calls.num_programs(), entries)

    def _cache_size(self) -> int:
        """Return the number of compiled programs in the cache; the name is JAX's."""
        return self._calls.num_programs()

    @staticmethod
    def _call_key(
        known: Parameters, dynamic: Dynamic, static: PyTree, context: TraceContext
    ) -> CallKey:
        leaves, structure = tree.flatten(dynamic)
        named = [(known.label(i) if isinstance(i, int) else i, value) for i, value in static]
        return CallKey(
            structure,
            tuple(known.labels(*dynamic)),
            signatures_of(known, leaves, dynamic),
            tuple(named),
            context,
        )

    def clear_cache(self) -> None:
        """Remove all compiled programs from the cache."""
        self._caches.clear()
        if self.call_cache is not None:
            self.call_cache.table.clear()

    def __get__(self, instance: object, owner: type | None = None) -> "JitFunction | MethodType":
        return self if instance is None else MethodType(self, instance)

    def __getstate__(self) -> dict[str, PyTree]:
        """Return the attributes for a copy, which compiles its own programs."""
        caches = FunctionCaches()
        own = {
            "_caches": caches,
            "_calls": caches.calls,
            "_traces": caches.traces,
            "_chosen": caches.chosen,
            "_compilations": caches.compilations,
        }
        return {**self.__dict__, **own}

    def __repr__(self) -> str:
        return f"<{self._transform} of {self._parameters.name}>"

    def _lower(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> Lowered:
        known = self._parameters.for_call(len(args))
        check_compiler_options(self._compiler_options, known.name)
        check_call_signature(self._fun, known.name, args, options)
        dynamic, static = known.partition_arguments(args, options)
        leaves, structure = tree.flatten(dynamic)
        labels = known.labels(*dynamic)
        signatures = signatures_of(known, leaves, dynamic)
        described = [
            ArgumentLeaf(label, f"argument {label} of {known.name}", signature)
            for label, signature in zip(labels, signatures, strict=True)
        ]
        requests = self._shardings.argument_requests(dynamic, len(leaves))
        deferred = find_deferred(requests, known.name)
        requested = self._shardings.resolve_arguments(requests)
        homes = self._shardings.place_arguments(leaves, described, requested)

        def rebuild(tracers: Iterator[Tracer]) -> tuple[Sequence[PyTree], dict[str, PyTree]]:
            return known.merge_arguments(tree.unflatten(structure, tracers), args, options)

        traced, results = trace_call(
            self._call_traced, known.name, described, rebuild, shardings=homes
        )
        donated = known.donated_leaves(structure, args, options)
        out = self._shardings.resolve_results(results)

        def lower_with(
            homes: Sequence[Sharding | None], out: Sequence[Sharding | None]
        ) -> LoweredProgram:
            return lower(
                traced,
                homes,
                out,
                [leaf.description for leaf in described],
                resolve_uneven_mode(self._shardings.uneven, known.name),
                None if self._backend is None else local_devices(backend=self._backend)[0],
                resolve_pipeline(self._passes, known.name),
            )

        find_plan = None
        if deferred is None:
            plan = lower_with(homes, out)
        else:
            call = UnplannedCall(structure, static, signatures, requested, out, donated)
            chosen = self._chosen.choose(deferred, call, lower_with)
            homes = self._shardings.place_arguments(leaves, described, chosen.arguments)
            plan, find_plan = lower_as_chosen(chosen, homes, out, lower_with), chosen.find_plan
        return Lowered(
            plan,
            traced,
            structure,
            results,
            labels,
            find_definition(self._fun),
            donated,
            known.static,
            self._shardings.device,
            _find_plan=find_plan and partial(find_plan, self),
        )

    def _call_traced(self, *args: PyTree, **options: PyTree) -> PyTree:
        """Call the function with traced arguments, or append its operations if they are known from
        a call in another program."""
        if self._traces:
            dynamic, static = self._parameters.for_call(len(args)).partition_arguments(
                args, options
            )
            leaves, structure = tree.flatten(dynamic)
            _, trace = self._traces.find(structure, leaves, static)
            if trace is not None:
                return trace.append(leaves)
        return self._fun(*args, **options)

    def _inline(self, args: tuple[PyTree, ...], options: dict[str, PyTree]) -> PyTree:
        """Inline a call into the enclosing trace."""
        if self._transform != "jit":
            return self._fun(*args, **options)
        known = self._parameters.for_call(len(args))
        check_compiler_options(self._compiler_options, known.name, inside=True)
        check_call_signature(self._fun, known.name, args, options)
        dynamic, static = known.partition_arguments(args, options)
        leaves, structure = tree.flatten(dynamic)
        for leaf, label in zip(leaves, known.labels(*dynamic), strict=True):
            if not is_array_like(leaf):
                check_argument_leaf(known, leaf, label)
        requests = self._shardings.argument_requests(dynamic, len(leaves))
        if find_deferred(requests, known.name) is not None:
            raise ArgumentError(
                with_location(
                    f"in_shardings of {known.name} has AUTO, and {known.name} is called while "
                    "another function is traced, whose program determines the shardings; use AUTO "
                    "in the outermost jit"
                )
            )
        in_shardings = self._shardings.resolve_arguments(requests)
        tracers = [
            as_tracer(leaf) if sharding is None else constrain(as_tracer(leaf), sharding)
            for leaf, sharding in zip(leaves, in_shardings, strict=True)
        ]

        def call(*inner: Tracer) -> PyTree:
            filled, named = known.merge_arguments(tree.unflatten(structure, inner), args, options)
            return self._fun(*filled, **named)

        try:
            with stage_out():
                key, trace = self._traces.find(structure, tracers, static)
                if trace is None:
                    result = self._traces.add(call, tracers, known.name, key)
                else:
                    result = trace.append(tracers)
        except RecursionError:
            raise RecursiveError(
                with_location(
                    f"{known.name} calls itself without end: tracing enters every branch of a "
                    "program, whatever the values; loop with lax.while_loop or lax.fori_loop, or "
                    "end the recursion on a value known while tracing, such as a static argument"
                )
            ) from None
        outs, results = tree.flatten(result)
        requested = self._shardings.resolve_results(results)
        return tree.unflatten(
            results,
            [
                out if sharding is None else constrain(as_tracer(out), sharding)
                for out, sharding in zip(outs, requested, strict=True)
            ],
        )
