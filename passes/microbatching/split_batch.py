"""Shard the batch of a traced program along one more axis: that of its microbatches.

before: `func @step(%x: f32[16@data, 4], %w: f32[4, 8]) ...`, on a mesh `[data=2]`
after:  `%x: f32[16@(data, microbatch), 4@-]` and weights `%w: f32[4, 8] replicated(microbatch)`, on
        a mesh `[data=2, microbatch=2]`

The default passes then make the program of one microbatch on each device, as if the axis had
devices. `accumulate-microbatches`, which runs after them, turns the axis into a loop.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from shardir.errors import PipelineError, count_noun
from shardir.ir.builder import substitute
from shardir.ir.mesh import Mesh
from shardir.ir.module import Function, Module, Value
from shardir.ir.sharding import Axes, Axis, Sharding
from shardir.passes.global_programs import mesh_of_function
from shardir.passes.microbatching.batch_dimensions import find_batch
from shardir.passes.pipeline import Pass
from shardir.passes.propagation.propagate import Propagate
from shardir.passes.rewriting import all_values

MICROBATCH_AXIS = "microbatch"
"""The name of the axis whose positions are the microbatches of a step."""
VIRTUAL_MESH = "microbatches"
"""The name of the mesh of a program without a mesh."""


@dataclass(frozen=True)
class SplitBatch(Pass, name="split-batch"):
    """Divide the batch of each device into `microbatches` parts; `accumulate-microbatches`, after
    the default passes, computes one after the other."""

    microbatches: int = 2

    def __call__(self, module: Module) -> Module:
        main = module.main
        if self.microbatches < 1:
            raise PipelineError(
                "split-batch cannot make "
                f"{count_noun(self.microbatches, 'microbatch', 'microbatches')}; write "
                "split-batch{microbatches=2}"
            )
        if main.spmd is not None:
            raise PipelineError(
                f"@{main.name} has been partitioned, and split-batch needs the program before; "
                f"write {self},default,accumulate-microbatches"
            )
        mesh = mesh_of_function(main, module)
        if mesh is not None and MICROBATCH_AXIS in mesh.sizes:
            raise PipelineError(
                f"the mesh of @{main.name} has an axis {MICROBATCH_AXIS!r}, which is the name of "
                "the axis that split-batch adds; write split-batch once, or rename the "
                "axis of the mesh"
            )
        batch = find_batch(main)
        if batch is None:
            raise PipelineError(
                f"split-batch finds no batch in @{main.name}: no dimension of its arguments occurs "
                "at most once in each value that depends on it; write the loop over microbatches "
                "with lax.scan"
            )
        extended = self._extend(mesh)
        propagated = main if mesh is None else Propagate(leave_open=True)(module).main
        changed = _Splitter(extended, batch, main.name).split(main, propagated)
        meshes = tuple(extended if each is mesh else each for each in module.meshes)
        return Module(meshes or (extended,), (changed, *module.functions[1:]))

    def _extend(self, mesh: Mesh | None) -> Mesh:
        """Return the mesh with the axis of microbatches."""
        count = self.microbatches
        added = (MICROBATCH_AXIS, count)
        if mesh is None:
            return Mesh(VIRTUAL_MESH, (added,))
        ids = mesh.device_ids
        if ids is not None:
            ids = tuple(number * count + i for number in ids for i in range(count))
        return Mesh(mesh.name, (*mesh.axes, added), ids)


class _Splitter:
    """The shardings of a function whose batch is sharded along the axis of microbatches."""

    def __init__(self, mesh: Mesh, batch: Mapping[Value, int], name: str) -> None:
        self.mesh, self.batch, self.name = mesh, batch, name
        self.axis = Axis.full(MICROBATCH_AXIS, mesh)

    def split(self, function: Function, propagated: Function) -> Function:
        """Return the function with new shardings; `propagated` has the shardings of its values
        without microbatches."""
        known = {value.name: value.sharding for value in all_values(propagated.body)}
        nbytes: Counter[Axes] = Counter()
        for value, dim in self.batch.items():
            sharding = known.get(value.name)
            nbytes[() if sharding is None else sharding.dims[dim].axes] += value.type.nbytes
        ((axes, _),) = nbytes.most_common(1)
        new = {
            param: _with_sharding(param, self._of_parameter(param, known[param.name], axes))
            for param in function.body.params
        }
        for value in all_values(function.body):
            if value not in new and value.sharding is not None:
                new[value] = _with_sharding(value, self._extend(value, value.sharding))
        results = tuple(
            None if stated is None else self._extend(value, stated)
            for value, stated in zip(function.body.returns, function.result_shardings, strict=True)
        )
        return Function(function.name, substitute(function.body, new), results)

    def _of_parameter(self, param: Value, propagated: Sharding | None, axes: Axes) -> Sharding:
        """Return the sharding of a parameter.

        If the axes of its batch are those of most of the program, the axis of microbatches follows
        them. Otherwise the program reshards the parameter first, and its devices need not hold the
        rows of their own microbatches. No other dimension may be along that axis.
        """
        rank = param.type.rank
        if param not in self.batch:
            sharding = param.sharding or Sharding.open(self.mesh.name, rank)
            return replace(sharding, replicated=(*sharding.replicated, self.axis))
        known = ((),) * rank if propagated is None else propagated.axes
        closed = Sharding.of(self.mesh.name, known)
        dim = self.batch[param]
        if known[dim] != axes:
            return closed
        closed = self._extend(param, closed)
        shards = closed.dims[dim].num_shards // self.axis.size
        rows = -(-param.type.shape[dim] // shards)
        if param.type.shape[dim] % closed.dims[dim].num_shards:
            raise PipelineError(
                f"the batch of @{self.name} has {count_noun(rows, 'row')} on each device "
                f"(dimension {dim} of %{param.name}), which {self.axis.size} microbatches do not "
                "divide; choose a divisor"
            )
        return closed

    def _extend(self, value: Value, sharding: Sharding) -> Sharding:
        """Return a sharding whose closed batch dimension has the axis of microbatches too."""
        dim = self.batch.get(value)
        if dim is None or sharding.dims[dim].open:
            return sharding
        dims = list(sharding.dims)
        dims[dim] = replace(dims[dim], axes=(*dims[dim].axes, self.axis))
        return replace(sharding, dims=tuple(dims))


def _with_sharding(value: Value, sharding: Sharding) -> Value:
    return Value(value.type, value.name, sharding)
