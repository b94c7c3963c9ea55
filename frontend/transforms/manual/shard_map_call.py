"""One call of a `shard_map`: shard the arguments, trace the function, assemble the results."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from shardir.errors import count_noun
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.config import config
from shardir.frontend.dispatch.temporary_programs import run_temporary
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import (
    ArgumentError,
    IndivisibleError,
    NotAnArrayError,
    ShardingError,
    ShardingTypeError,
)
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.prefix import broadcast_prefix
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.mesh import AbstractMesh, Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, splat
from shardir.frontend.tracing.parameters import Parameters, leaf_labels
from shardir.frontend.tracing.trace import current_trace, emit, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.typeof import explicit_spec, is_untyped, typeof
from shardir.frontend.transforms.manual.manual_region import DimensionAxisNames, ManualRegion
from shardir.ir.builder import substitute
from shardir.ir.module import Block
from shardir.ir.operation import Varying
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.passes.partitioning.padded_dims import PaddedDim, padded_dims


def is_partition_spec(x: object) -> bool:
    return isinstance(x, PartitionSpec)


def is_in_spec(x: object) -> bool:
    return x is None or is_partition_spec(x)


def infer_in_specs(args: tuple[PyTree, ...], names: Collection[str]) -> PyTree:
    """Return the spec in the type of each argument, restricted to the mesh axes `names`."""
    return tree.map(lambda leaf: explicit_spec(leaf, names) or PartitionSpec(), tuple(args))


def format_names(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


@dataclass(frozen=True)
class ShardMapCall:
    """The parameters of a `shard_map`; `run` calls it.

    `names` are the manual axes. `checked`: replicated results must provably not vary. `pads`:
    dimensions that do not divide are padded with zeros.
    """

    name: str
    fun: UserFunction
    mesh: Mesh
    names: tuple[str, ...]
    checked: bool
    pads: bool
    in_specs: PyTree
    out_specs: object

    def run(self, args: tuple[PyTree, ...], parameters: Parameters) -> PyTree:
        every, structure = tree.flatten(args)
        if isinstance(self.mesh, AbstractMesh) and current_trace() is None:
            return replace(self, mesh=self.mesh_of_arguments(every)).run(args, parameters)
        labels = [
            label for i, arg in enumerate(args) for label in leaf_labels(parameters.label(i), arg)
        ]
        word = f"in_specs of shard_map of {self.name}"
        several = isinstance(self.in_specs, (tuple, list)) and not is_partition_spec(self.in_specs)
        if several and len(self.in_specs) != len(args):
            raise ArgumentError(
                with_location(
                    f"{word} has {count_noun(len(self.in_specs), 'entry', 'entries')}, and it was "
                    f"called with {count_noun(len(args), 'argument')}; give one for each, or one "
                    "spec for all"
                )
            )
        entries = broadcast_prefix(_as_tuple(self.in_specs), tuple(args), is_in_spec, word)
        chosen = [i for i, spec in enumerate(entries) if spec is not None]
        leaves, labels = [every[i] for i in chosen], [labels[i] for i in chosen]
        specs = [entries[i] for i in chosen]
        arg_axes = []
        for leaf, spec, label in zip(leaves, specs, labels, strict=True):
            if not is_array_like(leaf):
                raise NotAnArrayError(
                    with_location(
                        f"shard_map of {self.name} shards {label}, which is "
                        f"{brief_with_type(leaf)} and not an array; let the function capture it"
                    )
                )
            whole = abstract_of(leaf, label).type
            arg_axes.append(
                self.argument_axes(spec, whole, f"{word} has {spec} for {label}", label)
            )
            self.check_type(leaf, spec, word, label)

        def call_function(pieces: Sequence[Tracer]) -> PyTree:
            filled = list(every)
            for i, piece in zip(chosen, pieces, strict=True):
                filled[i] = piece
            with self.mesh:  # The mesh of specs and of shard_map inside.
                return self.fun(*tree.unflatten(structure, filled))

        def trace(*tracers: Tracer) -> PyTree:
            return self.trace_call(call_function, tracers, arg_axes, labels)

        if current_trace() is not None:
            return trace(*map(as_tracer, leaves))
        placed = [self.place_argument(leaf, spec) for leaf, spec in zip(leaves, specs, strict=True)]
        uneven = "pad" if self.pads else config.uneven
        return run_temporary(trace, self.name, placed, labels, uneven, is_derivative=False)

    def mesh_of_arguments(self, leaves: Sequence[object]) -> Mesh:
        """Return the mesh of the arguments, whose axes are those of the abstract mesh."""
        shardings = [x.sharding for x in leaves if isinstance(x, Array) and x.committed]
        meshes = [each.mesh for each in shardings if isinstance(each, NamedSharding)]
        for mesh in meshes:
            if mesh.abstract_mesh != self.mesh:
                raise ShardingError(
                    with_location(
                        f"shard_map of {self.name} has {self.mesh}, and an argument is on {mesh}; "
                        "place it on a mesh with the same axes with device_put"
                    )
                )
        if not meshes:
            raise ShardingError(
                with_location(
                    f"shard_map of {self.name} has {self.mesh}, which has no devices, and no "
                    "argument is on a mesh; place one with device_put and a NamedSharding, or "
                    "pass a Mesh of devices()"
                )
            )
        return meshes[0]

    def check_type(self, leaf: ArrayLike, spec: PartitionSpec, word: str, label: str) -> None:
        """Raise `ShardingTypeError` unless `spec` is the sharding in the type of an argument.

        As in JAX, only a function that is manual along all axes of an Explicit mesh is checked:
        otherwise the compiler determines the sharding along the other axes.
        """
        is_typed = self.mesh.are_all_axes_explicit and len(self.names) == len(self.mesh.axis_names)
        if not is_typed or config.explicit_sharding == "lenient" or is_untyped(leaf):
            return
        rank = abstract_of(leaf, label).type.rank
        has = explicit_spec(leaf, self.names) or PartitionSpec(*[None] * rank)
        if [spec.axes(dim) for dim in range(rank)] != [has.axes(dim) for dim in range(rank)]:
            raise ShardingTypeError(
                with_location(
                    f"{word} has {spec} for {label}, which is {typeof(leaf)}; state {has}, omit "
                    "in_specs, or reshard the argument (sharding.reshard)"
                )
            )

    def place_argument(self, leaf: ArrayLike, spec: PartitionSpec) -> PyTree:
        """Return an argument on the devices of the mesh."""
        on = leaf.sharding.device_assignment if isinstance(leaf, Array) else None
        if on == self.mesh.device_assignment:
            return leaf
        uneven = "pad" if self.pads else None
        return device_put(leaf, NamedSharding(self.mesh, spec), uneven=uneven)

    def pad_argument(self, x: Tracer, dim_axes: DimensionAxisNames) -> Tracer:
        """Return an argument with zeros at the end of the dimensions that do not divide."""
        missing = tuple(
            -size % self.num_shards(axes) for size, axes in zip(x.shape, dim_axes, strict=True)
        )
        if not any(missing):
            return x
        none = (0,) * x.ndim
        zero = splat(0, TensorType((), x.value.type.dtype))
        result: Tracer = emit(
            "pad", x, zero, low=none, high=missing, interior=none, weak=x.weak_type
        )
        return result

    def num_shards(self, axes: Sequence[str]) -> int:
        """Return the number of shards of a dimension along axes."""
        return prod(self.mesh.shape[axis] for axis in axes)

    def trace_call(
        self,
        called: Callable[[Sequence[Tracer]], PyTree],
        tracers: Sequence[Tracer],
        arg_axes: Sequence[DimensionAxisNames],
        labels: Sequence[str],
    ) -> PyTree:
        found: list[tuple[tree.PyTreeDef, list[PartitionSpec]]] = []
        sizes: list[tuple[int, ...]] = []
        shards: list[Tracer] = []
        given = [
            self.pad_argument(x, axis_names)
            for x, axis_names in zip(tracers, arg_axes, strict=True)
        ]

        def flat(*pieces: Tracer) -> list[Tracer]:
            shards[:] = pieces
            out = called(pieces)
            leaves, outs = tree.flatten(out)
            result = [result_tracer(leaf, i, outs, self.name) for i, leaf in enumerate(leaves)]
            word = f"out_specs of shard_map of {self.name}"
            found.append(
                (outs, broadcast_prefix(_as_tuple(self.out_specs), out, is_partition_spec, word))
            )
            return result

        def whole(made: Sequence[Tracer], varying: Sequence[Varying]) -> list[DimensionAxisNames]:
            outs, specs = found[0]
            paths = ["".join(f"[{entry!r}]" for entry in path) for path in outs.paths()]
            results = [
                self.result_axes(spec, tracer, path, along)
                for spec, tracer, path, along in zip(specs, made, paths, varying, strict=True)
            ]
            if self.pads:
                sizes[:] = self.result_shapes(tracers, arg_axes, shards, made, results)
            return results

        region = ManualRegion(self.mesh, self.names, self.name, self.checked)
        made = region.trace_region(flat, given, arg_axes, labels, whole)
        if sizes:
            made = [_remove_padding(x, shape) for x, shape in zip(made, sizes, strict=True)]
        outs, specs = found[0]
        if len(self.names) == len(self.mesh.axis_names):
            made = [
                constrain(tracer, NamedSharding(self.mesh, spec))
                for tracer, spec in zip(made, specs, strict=True)
            ]
        return tree.unflatten(outs, made)

    def result_shapes(
        self,
        tracers: Sequence[Tracer],
        arg_axes: Sequence[DimensionAxisNames],
        shards: Sequence[Tracer],
        made: Sequence[Tracer],
        result_axes: Sequence[DimensionAxisNames],
    ) -> list[tuple[int, ...]]:
        """Return the shapes of the results without the padding of the arguments.

        A dimension of a result loses its padding if `out_specs` shards it as `in_specs` shards that
        of the argument, and the function has preserved the positions of its elements.
        """
        region = ManualRegion(self.mesh, self.names, self.name, self.checked)
        axes = {named.name: named.axes for named in region.make_named_axes()}

        def along(names: Sequence[str]) -> Axes:
            return tuple(axis for name in names for axis in axes[name])

        before = require_trace("shard_map").program.unnamed_values
        known = {
            before.get(shard.value, shard.value): tuple(
                PaddedDim(along(names), size) if size % self.num_shards(names) else None
                for size, names in zip(tracer.shape, axis_names, strict=True)
            )
            for tracer, axis_names, shard in zip(tracers, arg_axes, shards, strict=True)
        }
        ops = tuple(require_trace("shard_map").ops)
        body = substitute(Block((), ops, ()), before)
        found = padded_dims(body, known)
        shapes = []
        for tracer, axis_names in zip(made, result_axes, strict=True):
            value = before.get(tracer.value, tracer.value)
            dims = found.get(value, (None,) * tracer.ndim)
            shapes.append(
                tuple(
                    dim.size if dim and dim.axes == along(names) else size * self.num_shards(names)
                    for dim, size, names in zip(dims, tracer.shape, axis_names, strict=True)
                )
            )
        return shapes

    def result_axes(
        self, spec: PartitionSpec, tracer: Tracer, path: str, varying: Varying
    ) -> DimensionAxisNames:
        """Return the axes of a result; raises an error if it may vary along an axis that replicates
        it."""
        described = f"result{path}" if path else "the result"
        word = f"out_specs of shard_map of {self.name} has {spec} for {described}"
        dim_axes = self.spec_axes(spec, tracer.value.type, word)
        if not self.checked:
            return dim_axes
        axes = {
            axis: named.name
            for named in ManualRegion(self.mesh, self.names, self.name).make_named_axes()
            for axis in named.axes
        }
        axis_names = [name for dim in dim_axes for name in dim]
        differ = [name for axis, name in axes.items() if axis in varying and name not in axis_names]
        if differ:
            along = " and ".join(map(repr, differ))
            raise ShardingError(
                with_location(
                    f"{word}, which replicates it along {along}, but it may vary along "
                    f"{along}; reduce it along {along} (lax.psum, lax.pmean), "
                    f"name {along} in the spec, or pass check_vma=False"
                )
            )
        return dim_axes

    def spec_axes(self, spec: PartitionSpec, type: TensorType, word: str) -> DimensionAxisNames:
        """Return the checked axes that a spec assigns to each dimension."""
        if len(spec) > type.rank:
            raise ShardingError(
                with_location(
                    f"{word}, which is {type}; a spec has an entry for each dimension at most"
                )
            )
        dim_axes = []
        seen: list[str] = []
        for dim in range(type.rank):
            axes = spec.axes(dim)
            if axes is UNCONSTRAINED:
                raise ShardingError(
                    with_location(f"{word}; name axes or None instead of UNCONSTRAINED")
                )
            for axis in axes:
                if axis not in self.mesh.axis_names:
                    raise ShardingError(
                        with_location(
                            f"{word}, and {axis!r} is not an axis of the mesh; its axes are "
                            f"{format_names(self.mesh.axis_names)}"
                        )
                    )
                if axis not in self.names:
                    raise ShardingError(
                        with_location(
                            f"{word}, and {axis!r} is not among the axis_names, which are "
                            f"{format_names(self.names)}; the compiler shards along it"
                        )
                    )
                if axis in seen:
                    raise ShardingError(with_location(f"{word}, which names {axis!r} twice"))
                seen.append(axis)
            dim_axes.append(axes)
        return tuple(dim_axes)

    def argument_axes(
        self, spec: PartitionSpec, type: TensorType, word: str, label: str
    ) -> DimensionAxisNames:
        """Return the axes that shard each dimension of an argument; raises an error if they do not
        divide it."""
        dim_axes = self.spec_axes(spec, type, word)
        for dim, (size, axes) in enumerate(zip(type.shape, dim_axes, strict=True)):
            count = self.num_shards(axes)
            if size % count and not self.pads:
                over = " and ".join(f"{axis!r} of size {self.mesh.shape[axis]}" for axis in axes)
                raise IndivisibleError(
                    with_location(
                        f"shard_map of {self.name} shards dimension {dim} of {label}, which is "
                        f"{type}, over {over}, and {size} is not divisible by {count}; pad it to "
                        f"{-(-size // count) * count}, replicate it, or pass "
                        'uneven="pad" to shard_map'
                    )
                )
        return dim_axes


def _remove_padding(x: Tracer, shape: tuple[int, ...]) -> Tracer:
    """Return a result without the padding at the end of its dimensions."""
    if x.shape == shape:
        return x
    result: Tracer = emit(
        "slice",
        x,
        starts=(0,) * x.ndim,
        strides=(1,) * x.ndim,
        result=x.value.type.with_shape(shape),
        weak=x.weak_type,
    )
    return result


def _as_tuple(specs: object) -> PyTree:
    return tuple(specs) if type(specs) is list else specs
