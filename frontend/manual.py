"""Functions that every device of a mesh runs on its own piece: what `shard_map` and `pmap` share.

The function is traced once, on the pieces, with the mesh's axes there for collectives by name, and
becomes the body of a `manual_computation`. What it uses from outside becomes an operand of that
too, whole on every device. The axes stay those of a token (see annotations.py) until the mesh of
the whole program is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardir.build import substitute
from shardir.frontend.annotations import axis_token, constrain, manual_axes
from shardir.frontend.mesh import Mesh
from shardir.frontend.named_axes import Named, all_bound, known_axes
from shardir.frontend.partition_spec import PartitionSpec
from shardir.frontend.promotion import Abstract
from shardir.frontend.shardings import NamedSharding
from shardir.frontend.trace import emit, require, trace_block, wrap
from shardir.frontend.tracer import Tracer
from shardir.frontend.varying import sharded, vma_of
from shardir.ir import Block, Value
from shardir.passes.make_varying import implicit
from shardir.placement import Axes
from shardir.types import TensorType
from shardir.vma import Varying

Cuts = tuple[tuple[str, ...], ...]
"""The names of the axes that cut each dimension, major first."""


@dataclass(frozen=True)
class Region:
    """The manual axes of one call: those of `names` on the mesh."""

    mesh: Mesh
    names: tuple[str, ...]
    what: str
    checked: bool = False
    called: tuple[str | None, ...] | None = None
    """What collectives call each of the axes, where it is not its name; `None`: nothing."""

    def named(self) -> list[Named]:
        """The axes as collectives inside find them; an axis of one position stands for none."""
        program = require(self.what).program
        made = []
        for name in self.names:
            size = self.mesh.shape[name]
            axes = (axis_token(program, self.mesh, name),) if size > 1 else ()
            made.append(Named(name, size, axes, True, self.checked))
        return made

    def visible(self, named: Sequence[Named]) -> list[Named]:
        """The axes under the names that collectives inside know."""
        words = self.names if self.called is None else self.called
        return [replace(a, name=word) for a, word in zip(named, words, strict=True) if word]

    def run(
        self,
        fun: Callable[..., Sequence[Tracer]],
        args: Sequence[Tracer],
        cuts: Sequence[Cuts],
        labels: Sequence[str],
        results: Callable[[Sequence[Tracer], Sequence[Varying]], Sequence[Cuts]],
    ) -> list[Tracer]:
        """Call `fun` on the pieces that `cuts` make of the arguments; the results, whole.

        `results` is given what `fun` returned, and along which axes each may vary, and says how
        the pieces make up the results.
        """
        named = self.named()
        axes_of = {each.name: each.axes for each in named}
        axes = tuple(axis for each in named for axis in each.axes)
        pieces = [
            Abstract(self.piece(arg.value.type, cut), arg.weak_type)
            for arg, cut in zip(args, cuts, strict=True)
        ]
        ways: list[Sequence[Cuts]] = []

        def traced(*slices: Tracer) -> Sequence[Tracer]:
            values = {
                tracer.value: frozenset(axis for dim in cut for n in dim for axis in axes_of[n])
                for tracer, cut in zip(slices, cuts, strict=True)
            }
            with sharded(values), all_bound(self.visible(named)):
                with manual_axes(self.mesh, self.names):
                    made = list(fun(*slices))
                ways.append(results(made, vma_of(made)))
            return made

        if not axes:
            at_home = NamedSharding(self.mesh, PartitionSpec())
            return list(traced(*(constrain(arg, at_home) for arg in args)))
        block, abstracts = trace_block(traced, pieces, self.what, labels, args)
        block, outside = _closed(block, axes)

        def along(cut: Cuts) -> tuple[Axes, ...]:
            return tuple(tuple(axis for name in dim for axis in axes_of[name]) for dim in cut)

        given = [wrap(value) for value in outside]
        whole = [((),) * value.type.rank for value in outside]
        unchecked: dict[str, Any] = {} if self.checked else {"check_vma": False}
        made = emit(
            "manual_computation",
            *args,
            *given,
            blocks=(block,),
            axes=axes,
            in_axes=(*(along(cut) for cut in cuts), *whole),
            out_axes=tuple(along(cut) for cut in ways[0]),
            **unchecked,
        )
        tracers = [made] if isinstance(made, Tracer) else list(made)
        return [
            wrap(tracer.value, abstract.weak)
            for tracer, abstract in zip(tracers, abstracts, strict=True)
        ]

    def piece(self, type: TensorType, cuts: Cuts) -> TensorType:
        """What one device has of a value; the cuts divide it."""
        shape = []
        for size, dim in zip(type.shape, cuts, strict=True):
            for name in dim:
                size //= self.mesh.shape[name]
            shape.append(size)
        return type.with_shape(shape)


def _closed(block: Block, axes: Axes) -> tuple[Block, tuple[Value, ...]]:
    """The block with parameters for what it uses from outside, and what that is.

    What became varying along `axes` is no longer shown.
    """
    trace = require("a block is closed")
    program = trace.program
    # A value may be known by two identities until it has its name.
    program.settle(trace)
    (block,) = implicit(axes, program.renamed(block))
    outside = tuple(map(program.named, block.captures()))
    new = {value: Value(value.type, program.names.fresh(value.name)) for value in outside}
    inner = substitute(block, new)
    return Block((*block.params, *new.values()), inner.ops, inner.returns), outside


def is_manual(name: str) -> bool:
    """Whether an axis of this name is manual around the line already."""
    known = known_axes().get(name)
    return known is not None and known.manual
