"""One call of a `pmap`: its slices, their devices, and the trace.

A `pmap` inside a `pmap` needs a device for every pair of positions. When one is found, the function
is traced again on a mesh with an additional axis.
"""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import prod

from shardir.errors import count_noun, state_count
from shardir.frontend.arrays.device_transfer import device_put
from shardir.frontend.arrays.float0 import (
    Float0Node,
    is_float0,
    replace_float0,
    without_axis,
)
from shardir.frontend.arrays.numpy_conversion import abstract_of
from shardir.frontend.call_signatures import check_call_signature
from shardir.frontend.dispatch.traced_calls import is_array_like, result_tracer
from shardir.frontend.errors import ArgumentError, AxisError, BatchError, NotAnArrayError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.prefix import broadcast_prefix
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief_with_type
from shardir.frontend.shardings.devices import (
    Device,
    devices as all_devices,
    how_to_add_devices,
)
from shardir.frontend.shardings.mesh import Mesh, as_device_array
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.operands import as_tracer, reshape
from shardir.frontend.tracing.parameters import Parameters
from shardir.frontend.tracing.trace import require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.manual.manual_region import DimensionAxisNames, ManualRegion
from shardir.frontend.transforms.vmap import is_axis_entry

PmapLevel = tuple[str, int]
"""The mapped axis of one pmap: its name and its number of positions."""


class _NestedPmapError(Exception):
    """A nested pmap was found for which the mesh has no axis."""

    def __init__(self, levels: tuple[PmapLevel, ...]) -> None:
        super().__init__()
        self.levels = levels


@dataclass(frozen=True)
class _EnclosingPmap:
    """The mesh of the outermost pmap, and the number of its axes that are in use."""

    mesh: Mesh
    num_used_axes: int


_enclosing_pmap: ContextVar[_EnclosingPmap | None] = ContextVar("shardir_pmap", default=None)


@dataclass(frozen=True)
class PmapParameters:
    """The parameters of a pmap; `inner` are the nested pmaps that the last trace found."""

    name: str
    fun: UserFunction
    parameters: Parameters
    axis_name: str | None
    in_axes: object
    out_axes: object
    devices: tuple[Device, ...] | None
    axis_size: int | None
    backend: str | None = None
    inner: list[PmapLevel] = field(default_factory=list)


def _check_static_positions(mapping: PmapParameters, count: int) -> None:
    """Raise `ArgumentError` if one of `count` positional arguments is missing that is static."""
    static = mapping.parameters.static
    if static and count <= max(static):
        listed = tuple(sorted(static))
        raise ArgumentError(
            with_location(
                f"pmapped function has static_broadcasted_argnums={listed} but was called with "
                f"only {count} positional argument{'s' if count != 1 else ''}. All static "
                "broadcasted arguments must be passed positionally."
            )
        )


class PmapCall:
    """One call: its leaves, their mapped axes, and the number of positions."""

    def __init__(
        self, mapping: PmapParameters, args: tuple[PyTree, ...], options: dict[str, PyTree]
    ) -> None:
        self.mapping, self.args, self.options = mapping, args, options
        known = self.parameters = mapping.parameters.for_call(len(args))
        _check_static_positions(mapping, len(args))
        check_call_signature(mapping.fun, mapping.name, args, options)
        self.dynamic, _ = known.partition_arguments(args, options)
        self.leaves, structure = tree.flatten(self.dynamic)
        self.labels = known.labels(*self.dynamic)
        self.axes = self._resolve_in_axes()
        self.size = self._resolve_size()
        self._separate_float0(structure)

    def _separate_float0(self, structure: tree.PyTreeDef) -> None:
        """Make arrays of `float0`, which have no data, part of the structure of the arguments.

        `slices` is the structure of the arguments of the function.
        """
        described = list(zip(self.leaves, self.labels, self.axes, strict=True))
        kept = [row for row in described if not is_float0(row[0])]

        def structure_with(shape_of: Callable[[PyTree, int | None], tuple[int, ...]]) -> PyTree:
            nodes = [Float0Node(shape_of(x, at)) if is_float0(x) else x for x, _, at in described]
            return tree.structure(tree.unflatten(structure, nodes))

        self.structure = structure_with(lambda x, _: x.shape)
        self.slices = structure_with(lambda x, at: without_axis(x.shape, at))
        self.leaves = [x for x, _, _ in kept]
        self.labels = [label for _, label, _ in kept]
        self.axes = [at for _, _, at in kept]

    def _resolve_in_axes(self) -> list[int | None]:
        mapping, static = self.mapping, self.parameters.static
        in_axes, word = mapping.in_axes, f"in_axes of pmap of {mapping.name}"
        positional, named = self.dynamic
        if isinstance(in_axes, tuple):
            if len(in_axes) != len(self.args):
                raise BatchError(
                    with_location(
                        f"{word} has {count_noun(len(in_axes), 'entry', 'entries')}, and it was "
                        f"called with {count_noun(len(self.args), 'positional argument')}; give "
                        "one entry for each, or one number for all"
                    )
                )
            in_axes = tuple(entry for i, entry in enumerate(in_axes) if i not in static)
        try:
            axes = broadcast_prefix(in_axes, tuple(positional), is_axis_entry, word)
        except ArgumentError as error:
            raise BatchError(str(error)) from None
        return [*axes, *[0] * len(tree.leaves(named))]

    def _resolve_size(self) -> int:
        """Return the number of positions, and make the mapped axes nonnegative."""
        name = self.mapping.name
        sizes = []
        for i, (leaf, label, axis) in enumerate(
            zip(self.leaves, self.labels, self.axes, strict=True)
        ):
            if not is_array_like(leaf):
                raise NotAnArrayError(
                    with_location(
                        f"argument {label} of {name} is {brief_with_type(leaf)}, "
                        "which is not an array; list it in static_broadcasted_argnums"
                    )
                )
            if axis is None:
                continue
            shape = leaf.shape if is_float0(leaf) else abstract_of(leaf, label).type.shape
            at = axis + len(shape) if axis < 0 else axis
            if not 0 <= at < len(shape):
                whole = f"float0{list(shape)}" if is_float0(leaf) else abstract_of(leaf, label).type
                raise AxisError(
                    with_location(
                        f"pmap of {name} maps axis {axis} of {label}, which is {whole}; give it "
                        "another axis in in_axes, or None to replicate it on every device"
                    )
                )
            self.axes[i] = at
            sizes.append((shape[at], f"axis {axis} of {label} is {shape[at]}"))
        if self.mapping.axis_size is not None:
            sizes.insert(0, (self.mapping.axis_size, f"axis_size is {self.mapping.axis_size}"))
        if not sizes:
            raise BatchError(
                with_location(
                    f"pmap of {name} maps nothing: no argument has an axis in in_axes; give one, "
                    "or state axis_size"
                )
            )
        if len({size for size, _ in sizes}) > 1:
            raise BatchError(
                with_location(
                    f"pmap of {name} maps axes of different sizes: "
                    f"{', '.join(text for _, text in sizes)}; choose others with in_axes, or None "
                    "for arguments that all devices share"
                )
            )
        return sizes[0][0]

    def place_arguments(self) -> tuple[list[PyTree], dict[str, PyTree]]:
        """Return the arguments on the devices that need them."""
        levels = ((self.mapping.axis_name or "pmap", self.size), *self.mapping.inner)
        if self.mapping.devices is not None and not self._uses_all_devices(levels):
            # Tracing will show whether a nested pmap uses the remaining devices.
            dynamic = replace_float0(tree.unflatten(self.structure, self.leaves))
            return self.parameters.merge_arguments(dynamic, self.args, self.options)
        mesh = self._make_mesh(levels)
        moved = [
            device_put(leaf, NamedSharding(mesh, _spec_at(mesh.axis_names[0], axis)))
            for leaf, axis in zip(self.leaves, self.axes, strict=True)
        ]
        filled = replace_float0(tree.unflatten(self.structure, moved))
        return self.parameters.merge_arguments(filled, self.args, self.options)

    def _make_mesh(self, levels: Sequence[PmapLevel]) -> Mesh:
        """Return the mesh of an outermost pmap, with an axis for each nested one."""
        name, required = self.mapping.name, prod(size for _, size in levels)
        mine = self.mapping.devices
        there = all_devices(self.mapping.backend) if mine is None else mine
        if mine is not None and len(levels) == 1 and len(mine) < required:
            raise BatchError(
                with_location(
                    f"pmap of {name} maps {count_noun(required, 'position')}, and the number of "
                    f"its devices is {len(mine)}; give one device for each"
                )
            )
        if required > len(there) or required < 1:
            sizes = " by ".join(str(size) for _, size in levels)
            how = how_to_add_devices(there[0].backend, required) if mine is None else ""
            more = f", or {how}" if how else ""
            raise BatchError(
                with_location(
                    f"pmap of {name} maps {sizes} positions, each on its own device, and "
                    f"{state_count(len(there), 'device')}; map fewer, with vmap for the rest{more}"
                )
            )
        names: list[str] = []
        for axis, _ in levels:
            names.append(axis if axis not in names else f"{axis}_{len(names)}")
        array = as_device_array(list(there[:required]), f"pmap of {name}")
        return Mesh(array.reshape([size for _, size in levels]), names)

    def _uses_all_devices(self, levels: Sequence[PmapLevel]) -> bool:
        """Return whether all of the given devices are used."""
        mine = self.mapping.devices
        return mine is None or len(mine) == prod(size for _, size in levels)

    def trace(self) -> PyTree:
        """Trace the call and return the results, in the current trace."""
        level = self.mapping.axis_name or "pmap", self.size
        around = _enclosing_pmap.get()
        if around is not None:
            if self.mapping.devices is not None:
                raise ArgumentError(
                    with_location(
                        f"pmap of {self.mapping.name} is inside another and has devices; pass "
                        "them to the outermost, enough for every pair of positions"
                    )
                )
            sizes = around.mesh.axis_sizes
            if around.num_used_axes == len(sizes) or sizes[around.num_used_axes] != self.size:
                raise _NestedPmapError((level,))
            return self._trace_on_mesh(_EnclosingPmap(around.mesh, around.num_used_axes + 1))
        program = require_trace("pmap").program
        requested_before = dict(program.requested_shardings)
        levels: tuple[PmapLevel, ...] = (level,)
        while True:
            mesh = self._make_mesh(levels)
            try:
                result = self._trace_on_mesh(_EnclosingPmap(mesh, 1))
            except _NestedPmapError as deeper:
                if len(levels) > 1 and len(deeper.levels) == len(levels):
                    raise BatchError(
                        with_location(
                            f"pmaps inside {self.mapping.name} map different numbers of "
                            "positions; map the same number in each"
                        )
                    ) from None
                levels = (level, *deeper.levels)
                program.requested_shardings.clear()
                program.requested_shardings.update(requested_before)
                continue
            if not self._uses_all_devices(levels):
                raise BatchError(
                    with_location(
                        f"pmap of {self.mapping.name} maps {prod(size for _, size in levels)} "
                        f"positions, and the number of its devices is "
                        f"{len(self.mapping.devices or ())}; give "
                        "one device for each"
                    )
                )
            self.mapping.inner[:] = levels[1:]
            return result

    def _trace_on_mesh(self, around: _EnclosingPmap) -> PyTree:
        """Return the results, with the positions along the last used axis of a mesh."""
        mesh, axis = around.mesh, around.mesh.axis_names[around.num_used_axes - 1]
        tracers = list(map(as_tracer, self.leaves))
        if around.num_used_axes == 1:
            tracers = [
                self._constrain_mapped(mesh, axis, x, at)
                for x, at in zip(tracers, self.axes, strict=True)
            ]
        arg_axes = [
            _dimension_axes(axis, at, x.ndim) for x, at in zip(tracers, self.axes, strict=True)
        ]
        found: list[tuple[tree.PyTreeDef, list[int | None]]] = []

        def flat(*pieces: Tracer) -> list[Tracer]:
            results, outs, axes = self._call_on_slices(around, pieces)
            found.append((outs, axes))
            return results

        def whole(made: Sequence[Tracer], _: object) -> list[DimensionAxisNames]:
            return [
                _dimension_axes(axis, at, x.ndim) for x, at in zip(made, found[0][1], strict=True)
            ]

        region = ManualRegion(
            mesh, (axis,), self.mapping.name, collective_names=(self.mapping.axis_name,)
        )
        results = region.trace_region(flat, tracers, arg_axes, self.labels, whole)
        outs, axes = found[0]
        if around.num_used_axes == 1:
            results = [
                self._constrain_mapped(mesh, axis, x, at)
                for x, at in zip(results, axes, strict=True)
            ]
        return tree.unflatten(outs, results)

    def _call_on_slices(
        self, around: _EnclosingPmap, pieces: Sequence[Tracer]
    ) -> tuple[list[Tracer], tree.PyTreeDef, list[int | None]]:
        """Call the function on the slices of one device.

        Return its results with a dimension of size 1 for the mapped axis, the pytree structure of
        the results of all devices, and the position of the mapped axis in each of them.
        """
        slices = [
            piece if at is None else reshape(piece, (*piece.shape[:at], *piece.shape[at + 1 :]))
            for piece, at in zip(pieces, self.axes, strict=True)
        ]
        filled = tree.unflatten(self.slices, slices)
        args, options = self.parameters.merge_arguments(filled, self.args, self.options)
        token = _enclosing_pmap.set(around)
        try:
            out = self.mapping.fun(*args, **options)
        except _NestedPmapError as deeper:
            names, sizes = around.mesh.axis_names, around.mesh.axis_sizes
            done = [(names[i], sizes[i]) for i in range(1, around.num_used_axes)]
            if len(deeper.levels) <= len(done):
                deeper = _NestedPmapError((*done, *deeper.levels))
            raise deeper from None
        finally:
            _enclosing_pmap.reset(token)
        leaves, outs = tree.flatten(out)
        made = [
            leaf if is_float0(leaf) else result_tracer(leaf, i, outs, self.mapping.name)
            for i, leaf in enumerate(leaves)
        ]
        positions = self._resolve_out_axes(outs, out, made)
        pairs = list(zip(made, positions, strict=True))
        outs = tree.structure(tree.unflatten(outs, [self._stack_float0(x, at) for x, at in pairs]))
        axes = [at for x, at in pairs if not is_float0(x)]
        results = [
            x if at is None else reshape(x, (*x.shape[:at], 1, *x.shape[at:]))
            for x, at in pairs
            if not is_float0(x)
        ]
        return results, outs, axes

    def _stack_float0(self, x: PyTree, at: int | None) -> PyTree:
        """Return the node of a `float0` result of all devices, and other results unchanged."""
        if not is_float0(x):
            return x
        return Float0Node(x.shape if at is None else (*x.shape[:at], self.size, *x.shape[at:]))

    @staticmethod
    def _constrain_mapped(mesh: Mesh, axis: str, x: Tracer, at: int | None) -> Tracer:
        """Return an argument or a result, sharded over the devices along its mapped axis."""
        return constrain(x, NamedSharding(mesh, _spec_at(axis, at, x.ndim if mesh.ndim > 1 else 0)))

    def _resolve_out_axes(
        self, outs: tree.PyTreeDef, out: object, made: Sequence[PyTree]
    ) -> list[int | None]:
        """Return the nonnegative position of the mapped axis in each result."""
        name = self.mapping.name
        try:
            axes = broadcast_prefix(
                self.mapping.out_axes, out, is_axis_entry, f"out_axes of pmap of {name}"
            )
        except ArgumentError as error:
            raise BatchError(str(error)) from None
        counted: list[int | None] = []
        for axis, x, path in zip(axes, made, outs.paths(), strict=True):
            if axis is None:
                counted.append(None)
                continue
            rank = x.ndim + 1
            at = axis + rank if axis < 0 else axis
            if not 0 <= at < rank:
                where = "".join(f"[{entry!r}]" for entry in path)
                described = f"result{where} of {name}" if where else f"the result of {name}"
                kind = f"float0{list(x.shape)}" if is_float0(x) else x.value.type
                raise AxisError(
                    with_location(
                        f"out_axes has axis {axis} for {described}, which is {kind} on "
                        f"each device; the mapped axis can be {' or '.join(map(str, range(rank)))}"
                    )
                )
            counted.append(at)
        return counted


def _dimension_axes(axis: str, at: int | None, rank: int) -> DimensionAxisNames:
    return tuple((axis,) if dim == at else () for dim in range(rank))


def _spec_at(axis: str, at: int | None, free: int = 0) -> PartitionSpec:
    """Return the spec that shards dimension `at`, and replicates or, with `free`, frees the
    others."""
    rest = UNCONSTRAINED if free else None
    entries = [axis if dim == at else rest for dim in range(max(free, 0 if at is None else at + 1))]
    return PartitionSpec(*entries)
