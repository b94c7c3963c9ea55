"""`vmap`: map a function of single examples over batches.

The function is traced once, on one slice of each mapped argument, and
`shardir.passes.batching.vectorize` transforms it to a function of the batch. This module moves the
mapped axis of arguments to the front, and of results to the requested position.

`check_axis_entries` checks `in_axes` and `out_axes`: an axis for each array, `None` if it is not
mapped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shardir.errors import VectorizeError, count_noun
from shardir.frontend.argument_checks import check_integer
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.dispatch.temporary_programs import run_temporary
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError, AxisError, BatchError, NotAnArrayError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.prefix import broadcast_prefix
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief, brief_with_type
from shardir.frontend.shardings.partition_spec import PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.traced_constraints import constrain, slice_abstract
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracebacks import traceback_boundary
from shardir.frontend.tracing.function_tracing import trace_function
from shardir.frontend.tracing.named_axes import bind_batch_axis
from shardir.frontend.tracing.operands import as_tracer
from shardir.frontend.tracing.parameters import Parameters, leaf_labels
from shardir.frontend.tracing.trace import (
    append_block,
    current_trace,
    emit,
    require_trace,
    wrap_value,
)
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import explicit_spec, typeof
from shardir.frontend.transforms.batched_shardings import (
    AxisNames,
    batch_axes_filter,
    batch_sharding_map,
)
from shardir.frontend.wrappers import wraps
from shardir.ir.types import TensorType
from shardir.passes.batching.vectorize import vectorize


def is_axis_number(x: object) -> bool:
    """Return whether `x` is the number of an axis."""
    return isinstance(x, int) and not isinstance(x, bool)


def is_axis_entry(x: object) -> bool:
    """Return whether `x` is the mapped axis of an array or a pytree of arrays, or `None`."""
    return x is None or is_axis_number(x)


def check_axis_entries(axes: object, word: str, unmapped: str) -> None:
    """Raise `ArgumentError` for entries that are no axes; `unmapped` describes the meaning of
    `None`."""
    for entry in tree.leaves(axes, is_leaf=is_axis_entry):
        if not is_axis_entry(entry):
            raise ArgumentError(
                with_location(
                    f"{word} has {brief_with_type(entry)}; its entries are axis "
                    f"numbers, and None for {unmapped}"
                )
            )


def check_mapped_axes(
    what: str,
    in_axes: object,
    out_axes: object,
    axis_name: object,
    axis_size: object,
    unmapped: str,
) -> int | None:
    """Check the options that `vmap` and `pmap` share, and return the size as an integer.

    `what` is the call in errors (`vmap of f`), and `unmapped` the meaning of `None` in `in_axes`.
    """
    for word, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        check_axis_entries(axes, f"{word} of {what}", unmapped)
    if axis_name is not None and not isinstance(axis_name, str):
        raise ArgumentError(
            with_location(f"axis_name of {what} is {axis_name!r}, which is not a string")
        )
    if not (in_axes is None or is_axis_number(in_axes) or isinstance(in_axes, (tuple, list))):
        raise ArgumentError(
            with_location(
                f"in_axes of {what} is {in_axes!r}; it is a number, None, or a tuple with an entry "
                "for each positional argument"
            )
        )
    if axis_size is None:
        return None
    return check_integer(f"axis_size of {what}", axis_size, least=0)


@traceback_boundary
def vmap(
    fun: UserFunction,
    in_axes: object = 0,
    out_axes: object = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
    spmd_axis_name: AxisNames = None,
) -> UserFunction:
    """Return a function that computes `fun` for every slice of its arguments.

    `in_axes` is the mapped axis of each positional argument: one integer for all, or a tuple with
    an entry for each argument, which may be a pytree prefix of the argument; `None` marks an
    argument that all slices share. Keyword arguments are mapped along axis 0. `out_axes` is the
    position of the mapped axis in each result, `None` for a result that does not depend on it. All
    mapped axes have the same size; `axis_size` states it if no argument is mapped.

    `axis_name` is the name of the mapped axis for collectives such as `lax.psum` inside `fun`.
    `spmd_axis_name` names the mesh axes that shard it in sharding constraints inside `fun`, where
    otherwise the compiler chooses.

    Raises `BatchError` for sizes and pytrees that do not match, and `AxisError` for an axis that an
    array does not have.
    """
    if not callable(fun):
        raise ArgumentError(with_location(f"vmap takes a function, got {brief(fun)}"))
    parameters = Parameters.of(fun)
    name = parameters.name
    in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes
    spmd_axes = (spmd_axis_name,) if isinstance(spmd_axis_name, str) else spmd_axis_name
    if spmd_axes is not None and not (
        isinstance(spmd_axes, (list, tuple)) and all(isinstance(axis, str) for axis in spmd_axes)
    ):
        raise ArgumentError(
            with_location(
                f"spmd_axis_name of vmap of {name} is the name of a mesh axis, or of several, got "
                f"{brief(spmd_axis_name)}"
            )
        )
    what, unmapped = f"vmap of {name}", "an argument that is not mapped"
    size = check_mapped_axes(what, in_axes, out_axes, axis_name, axis_size, unmapped)

    @traceback_boundary
    @wraps(fun)
    def call_batched(*args: PyTree, **options: PyTree) -> PyTree:
        leaves, structure = tree.flatten((args, options))
        labels = _labels_of_leaves(parameters, args, options)
        axes = _leaf_axes(in_axes, args, options, name)
        shared = [leaf for leaf, axis in zip(leaves, axes, strict=True) if axis is None]
        batch = _VmapCall(name, axis_name, size, spmd_axis_name, out_axes, shared)
        chosen = [i for i, axis in enumerate(axes) if axis is not None]
        batch.resolve_axes([(labels[i], leaves[i], axes[i]) for i in chosen])

        def run(slices: Sequence[Tracer]) -> PyTree:
            filled = list(leaves)
            for i, one in zip(chosen, slices, strict=True):
                filled[i] = one
            inner, named = tree.unflatten(structure, filled)
            return call_user_function(fun, name, inner, named)

        mapped_leaves = [leaves[i] for i in chosen]
        names = [labels[i] for i in chosen]

        def trace_call(*tracers: Tracer) -> PyTree:
            return batch.trace_batch(run, tracers, names)

        if current_trace() is not None:
            return trace_call(*map(as_tracer, mapped_leaves))
        return run_temporary(trace_call, name, mapped_leaves, names)

    return call_batched


def _labels_of_leaves(
    parameters: Parameters, args: Sequence[PyTree], options: dict[str, PyTree]
) -> list[str]:
    """Return the names of the leaves of the arguments in errors."""
    named = [
        *((parameters.label(i), arg) for i, arg in enumerate(args)),
        *((key, options[key]) for key in sorted(options)),
    ]
    return [label for name, arg in named for label in leaf_labels(name, arg)]


def _leaf_axes(
    in_axes: object, args: Sequence[PyTree], options: PyTree, name: str
) -> list[int | None]:
    """Return the mapped axis of each leaf."""
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise BatchError(
            with_location(
                f"in_axes of vmap of {name} has {count_noun(len(in_axes), 'entry', 'entries')}, "
                f"and it was called with {count_noun(len(args), 'positional argument')}; give one "
                "entry for each, or one number for all"
            )
        )
    try:
        axes = broadcast_prefix(in_axes, tuple(args), is_axis_entry, f"in_axes of vmap of {name}")
    except ArgumentError as error:
        raise BatchError(str(error)) from None
    return [*axes, *[0] * len(tree.leaves(options))]


@dataclass
class _VmapCall:
    """One call of a mapped function: the size of the batch and the axes of arguments and
    results."""

    name: str
    axis_name: str | None
    size: int | None
    spmd_axis_name: AxisNames
    out_axes: object
    unmapped: Sequence[object] = ()
    """The arguments that all slices share."""
    axes: tuple[int, ...] = ()
    sharding: NamedSharding | None = None
    """The type of an argument whose mapped dimension Explicit axes shard, with that dimension
    first."""

    def resolve_axes(self, chosen: Sequence[tuple[str, object, int | None]]) -> None:
        """Determine the size of the batch and the nonnegative axis of each mapped leaf."""
        axes, sizes = [], []
        for label, leaf, axis in chosen:
            assert axis is not None
            if not is_array_like(leaf):
                raise NotAnArrayError(
                    with_location(
                        f"vmap of {self.name} maps {label}, which is "
                        f"{brief_with_type(leaf)} and not an array; give it None in in_axes"
                    )
                )
            whole = abstract_of(leaf, label).type
            at = _normalize_axis(axis, whole.rank)
            if at is None:
                raise AxisError(
                    with_location(
                        f"vmap of {self.name} maps axis {axis} of {label}, which is {whole}; give "
                        "it another axis in in_axes, or None to share it among all slices"
                    )
                )
            axes.append(at)
            sizes.append((whole.shape[at], f"axis {axis} of {label} is {whole.shape[at]}"))
        if self.size is not None:
            sizes.insert(0, (self.size, f"axis_size is {self.size}"))
        if not sizes:
            raise BatchError(
                with_location(
                    f"vmap of {self.name} maps nothing: no argument has an axis in in_axes; give "
                    "one, or state axis_size"
                )
            )
        if len({size for size, _ in sizes}) > 1:
            listed = ", ".join(text for _, text in sizes)
            raise BatchError(
                with_location(
                    f"vmap of {self.name} maps axes of different sizes: {listed}; choose others "
                    "with in_axes, or None for arguments that all slices share"
                )
            )
        self.size, self.axes = sizes[0][0], tuple(axes)

    def trace_batch(
        self, run: Callable[[Sequence[Tracer]], PyTree], tracers: Sequence[Tracer], names: list[str]
    ) -> PyTree:
        """Trace the batched function and return its results, in the current trace."""
        size = self.size
        assert size is not None
        structure: list[tree.PyTreeDef] = []

        def flat(*slices: Tracer) -> list[Tracer]:
            with bind_batch_axis(self.axis_name, size):
                results, found = tree.flatten(run(slices))
            structure.append(found)
            return [result_tracer(x, i, found, self.name) for i, x in enumerate(results)]

        fronted = [_move_axis(x, axis, 0) for x, axis in zip(tracers, self.axes, strict=True)]
        self._check_batch_shardings(fronted)
        slices = [slice_abstract(x) for x in fronted]
        function, results = trace_function(flat, slices, self.name, names, fronted, ())
        program = require_trace("vmap").program
        place = batch_sharding_map(program, self.spmd_axis_name)
        front = batch_axes_filter(program, self.spmd_axis_name)
        try:
            many = vectorize(function, [True] * len(slices), size, place, self.axis_name, front)
        except VectorizeError as error:
            raise VectorizeError(with_location(str(error))) from None
        values = append_block(many.body, fronted, function.body)
        outs = [
            self._move_result_axis(wrap_value(value, abstract.weak), abstract.type, axis, where)
            for value, abstract, (axis, where) in zip(
                values, results, self._result_axes(structure[0]), strict=True
            )
        ]
        return tree.unflatten(structure[0], outs)

    def _check_batch_shardings(self, fronted: Sequence[Tracer]) -> None:
        """Raise `ShardingTypeError` unless Explicit axes shard all mapped dimensions alike."""
        types = require_trace("vmap").program.sharding_types
        if types is None:
            return
        shardings = [types.sharding_of(x.value) for x in fronted if not types.is_untyped(x.value)]
        found = {sharding.spec.axes(0) for sharding in shardings if sharding is not None}
        self.sharding = next((each for each in shardings if each and each.spec.axes(0)), None)
        named = self.spmd_axis_name
        first = None if self.sharding is None else self.sharding.spec.axes(0)
        batch = first if isinstance(first, tuple) else ()
        if named is not None and batch and batch != ((named,) if isinstance(named, str) else named):
            types.refuse(
                f"vmap of {self.name} has spmd_axis_name={named!r}, and Explicit axes shard the "
                f"mapped dimension of {self.sharding}; omit spmd_axis_name, or reshard the "
                "arguments (sharding.reshard)"
            )
        for leaf in self.unmapped if batch else ():
            if any(explicit_spec(leaf, batch) or ()):
                types.refuse(
                    f"vmap of {self.name} maps dimensions that are sharded over "
                    f"{' and '.join(map(repr, batch))}, and an argument that is not mapped, "
                    f"{typeof(leaf)}, is sharded over the same axes; reshard one of them "
                    "(sharding.reshard)"
                )
        if len(found) > 1:
            listed = " and ".join(str(typeof(x)) for x in fronted)
            types.refuse(
                f"vmap of {self.name} maps dimension 0 of {listed}, which are sharded differently "
                "along it; reshard them (sharding.reshard)"
            )

    def _result_axes(self, structure: tree.PyTreeDef) -> list[tuple[int | None, str]]:
        """Return the axis of each result, and its path."""
        whole = tree.unflatten(structure, range(structure.num_leaves))
        try:
            axes = broadcast_prefix(
                self.out_axes, whole, is_axis_entry, f"out_axes of vmap of {self.name}"
            )
        except ArgumentError as error:
            raise BatchError(str(error)) from None
        paths = ["".join(f"[{entry!r}]" for entry in path) for path in structure.paths()]
        return list(zip(axes, paths, strict=True))

    def _move_result_axis(self, y: Tracer, one: TensorType, axis: int | None, where: str) -> Tracer:
        """Return a result with the mapped axis at the requested position; `one` is the type of a
        slice."""
        assert self.size is not None
        has = y.ndim > one.rank
        described = f"result{where} of {self.name}" if where else f"the result of {self.name}"
        if axis is None:
            if has:
                raise BatchError(
                    with_location(
                        f"out_axes is None for {described}, which depends on a mapped argument; "
                        "give it an axis, or reduce it over the batch"
                    )
                )
            return y
        at = _normalize_axis(axis, one.rank + 1)
        if at is None:
            raise AxisError(
                with_location(
                    f"out_axes has axis {axis} for {described}, which is {one} for each slice; "
                    f"the mapped axis can be {' or '.join(map(str, range(one.rank + 1)))}"
                )
            )
        if has:
            return _move_axis(y, 0, at)
        shape = (*one.shape[:at], self.size, *one.shape[at:])
        dims = tuple(d for d in range(one.rank + 1) if d != at)
        repeated: Tracer = emit(
            "broadcast", y, dims=dims, result=one.with_shape(shape), weak=y.weak_type
        )
        return repeated if self.sharding is None else self._shard_batch(repeated, at)

    def _shard_batch(self, y: Tracer, dim: int) -> Tracer:
        """Return a result that depends on no argument with the Explicit axes of the batch."""
        types = require_trace("vmap").program.sharding_types
        has = None if types is None else types.sharding_of(y.value)
        if has is None or self.sharding is None:
            return y
        entries = [*has.spec]
        entries[dim] = self.sharding.spec[0]
        return constrain(y, NamedSharding(has.mesh, PartitionSpec(*entries)))


def _normalize_axis(axis: int, rank: int) -> int | None:
    """Return the nonnegative axis, or `None` if it is out of range."""
    at = axis + rank if axis < 0 else axis
    return at if 0 <= at < rank else None


def _move_axis(x: Tracer, source: int, target: int) -> Tracer:
    """Return `x` with one axis moved."""
    if source == target:
        return x
    perm = [d for d in range(x.ndim) if d != source]
    perm.insert(target, source)
    moved: Tracer = emit("transpose", x, perm=tuple(perm), weak=x.weak_type)
    return moved
