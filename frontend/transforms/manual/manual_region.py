"""Manual regions: functions that every device runs on its shards, for `shard_map` and `pmap`.

The function is traced once, on shards, with the mesh axes bound for collectives, and becomes the
body of a `manual_computation`. Captured values become replicated operands of that operation. The
axes remain those of a token (see sharding_tokens.py) until the mesh of the whole program is known.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.shardings.manual_axes import manual_axes
from shardir.frontend.shardings.mesh import Mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.shardings.sharding_tokens import axis_token
from shardir.frontend.shardings.traced_constraints import constrain
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.manual_block import TracedManualBlock
from shardir.frontend.tracing.named_axes import NamedAxis, bind_axes, bound_axes
from shardir.frontend.tracing.trace import emit_results, require_trace, wrap_value
from shardir.frontend.tracing.traced_program import TracedProgram
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.tracing.varying_axes import declare_sharded, varying_axes_of
from shardir.ir.builder import substitute
from shardir.ir.module import Block, Value
from shardir.ir.operation import Attr, Varying
from shardir.ir.sharding import Axes
from shardir.ir.types import TensorType
from shardir.passes.autodiff.make_varying import remove_explicit_varying

DimensionAxisNames = tuple[tuple[str, ...], ...]
"""The names of the axes that shard each dimension, major first."""


@dataclass(frozen=True)
class ManualRegion:
    """The manual axes of one call: those of `names` on the mesh."""

    mesh: Mesh
    names: tuple[str, ...]
    what: str
    checked: bool = False
    collective_names: tuple[str | None, ...] | None = None
    """The name of each axis for collectives, where it differs from the mesh axis; `None`: no
    name."""

    def make_named_axes(self) -> list[NamedAxis]:
        """Return the named axes for collectives inside; an axis of size 1 represents no axes of the
        IR."""
        program = require_trace(self.what).program
        result = []
        for name in self.names:
            size = self.mesh.shape[name]
            axes = (axis_token(program, self.mesh, name),) if size > 1 else ()
            result.append(NamedAxis(name, size, axes, True, self.checked))
        return result

    def visible_axes(self, named: Sequence[NamedAxis]) -> list[NamedAxis]:
        """Return the axes under the names that collectives inside use."""
        words = self.names if self.collective_names is None else self.collective_names
        return [replace(a, name=word) for a, word in zip(named, words, strict=True) if word]

    def trace_region(
        self,
        fun: Callable[..., Sequence[Tracer]],
        args: Sequence[Tracer],
        arg_axes: Sequence[DimensionAxisNames],
        labels: Sequence[str],
        results: Callable[[Sequence[Tracer], Sequence[Varying]], Sequence[DimensionAxisNames]],
    ) -> list[Tracer]:
        """Call `fun` on the shards of the arguments, and return the global results.

        `arg_axes` are the mesh axes that shard each argument. `results` receives what `fun`
        returned, and the varying axes of each value, and returns the mesh axes of each result.
        """
        named = self.make_named_axes()
        axes_of = {each.name: each.axes for each in named}
        axes = tuple(axis for each in named for axis in each.axes)
        pieces = [
            AbstractValue(
                self.shard_type(arg.value.type, axis_names), arg.weak_type, self.inner_sharding(arg)
            )
            for arg, axis_names in zip(args, arg_axes, strict=True)
        ]
        in_axes = [_axes_of_names(axis_names, axes_of) for axis_names in arg_axes]
        result_axes: list[Sequence[DimensionAxisNames]] = []
        program = require_trace("a manual region").program

        def call_on_shards(*slices: Tracer) -> Sequence[Tracer]:
            values = {
                tracer.value: frozenset(axis for dim_axes in dims for axis in dim_axes)
                for tracer, dims in zip(slices, in_axes, strict=True)
            }
            with declare_sharded(values), bind_axes(self.visible_axes(named)):
                with manual_axes(self.mesh, self.names), _use_auto_axes(program, self.names):
                    result = list(fun(*slices))
                result_axes.append(results(result, varying_axes_of(result)))
            return result

        if not axes:
            replicated = NamedSharding(self.mesh, PartitionSpec())
            return list(call_on_shards(*(constrain(arg, replicated) for arg in args)))

        operands = tuple(arg.value for arg in args)
        manual = TracedManualBlock(self.mesh, self.names, axes, operands, tuple(in_axes))
        block, abstracts = trace_block(
            call_on_shards, pieces, self.what, labels, args, manual=manual
        )
        block, outside = _parametrize_captures(block, axes)
        whole = [((),) * value.type.rank for value in outside]
        unchecked: dict[str, Attr] = {} if self.checked else {"check_vma": False}
        new_values = emit_results(
            "manual_computation",
            *args,
            *map(wrap_value, outside),
            blocks=(block,),
            axes=axes,
            in_axes=(*in_axes, *whole),
            out_axes=tuple(_axes_of_names(names, axes_of) for names in result_axes[0]),
            **unchecked,
        )
        return [
            wrap_value(tracer.value, abstract.weak)
            for tracer, abstract in zip(new_values, abstracts, strict=True)
        ]

    def inner_sharding(self, arg: Tracer) -> NamedSharding | None:
        """Return the Explicit axes that shard an argument and are not manual; `None` if none."""
        types = require_trace("a manual region").program.sharding_types
        sharding = None if types is None else types.sharding_of(arg.value)
        if sharding is None or len(self.names) == len(sharding.mesh.axis_names):
            return None
        entries = [sharding.spec.axes(i) for i in range(arg.ndim)]
        spec = PartitionSpec(
            *(
                tuple(axis for axis in axes if axis not in self.names)
                for axes in entries
                if axes is not UNCONSTRAINED
            )
        )
        return NamedSharding(sharding.mesh, spec) if any(spec) else None

    def shard_type(self, type: TensorType, dim_axes: DimensionAxisNames) -> TensorType:
        """Return the type of one device's shard of a value; the sharding must divide it."""
        shape = []
        for size, dim in zip(type.shape, dim_axes, strict=True):
            for name in dim:
                size //= self.mesh.shape[name]
            shape.append(size)
        return type.with_shape(shape)


def _axes_of_names(axis_names: DimensionAxisNames, axes_of: Mapping[str, Axes]) -> tuple[Axes, ...]:
    """Return the axes of the IR along each dimension."""
    return tuple(tuple(axis for name in dim for axis in axes_of[name]) for dim in axis_names)


def _use_auto_axes(program: TracedProgram, names: Sequence[str]) -> AbstractContextManager[None]:
    """Return a context in which types do not contain the axes `names`."""
    types = program.sharding_types
    return nullcontext() if types is None else types.use_auto_axes(names)


def _parametrize_captures(block: Block, axes: Axes) -> tuple[Block, tuple[Value, ...]]:
    """Return the block with parameters for its captures, and the captures.

    Explicit operations that make values vary along `axes` are removed.
    """
    trace = require_trace("a block is closed")
    program = trace.program
    # A value may have two identities until its name is final.
    trace.assign_names()
    (block,) = remove_explicit_varying(axes, program.rename_block(block))
    outside = tuple(map(program.named_value, block.captures()))
    new = {value: Value(value.type, program.names.fresh(value.name)) for value in outside}
    inner = substitute(block, new)
    return Block((*block.params, *new.values()), inner.ops, inner.returns), outside


def is_manual_axis(name: str) -> bool:
    """Return whether an axis of this name is already manual at the current line."""
    known = bound_axes().get(name)
    return known is not None and known.manual
