"""Run the microbatches of a partitioned program in loops, one after the other.

before: `%g = all-reduce(%g.partial, axes=[data, microbatch], op=add)`
after:  `%3 = scan(%1, %0, carries=1, length=2, reverse=false)`, whose body contains
        `%2 = add(%g.total, %g.partial)`, and `%g = all-reduce(%3, axes=[data], op=add)`

The positions along the axis `microbatch`, which `split-batch` adds, become iterations: operations
that vary along it are the body of a loop, an all-reduce over it becomes a sum that the loop
carries, and an all-gather or a result becomes a stacked result of the loop. A sum of numbers of
16 bits is carried in f32. Other operations run before or after the loop; `microbatch_levels`
decides where. Gradients are thus added over the microbatches before the devices add them. Calls of
functions are inlined before, because only some operations of a function may belong to a loop.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from shardir import ops
from shardir.errors import PipelineError
from shardir.ir.builder import Builder, UniqueNames, as_values, substitute
from shardir.ir.dtypes import NARROW_FLOATS
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, GlobalTensor, Module, Op, SpmdInterface, Value
from shardir.ir.operation import OpSpec
from shardir.ir.sharding import Axis, Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.partitioning import identity_element
from shardir.passes.microbatching.microbatch_index import (
    crosses,
    depends_on_index,
    index_operation,
    split_axes,
)
from shardir.passes.microbatching.microbatch_levels import AFTER_ALL_LOOPS, Levels
from shardir.passes.microbatching.split_batch import MICROBATCH_AXIS
from shardir.passes.pipeline import Pass
from shardir.passes.rewriting import use_counts, used_names
from shardir.passes.simplify.inline_calls import inline_calls_in_function

COMBINING_OPERATIONS: Mapping[str, OpSpec] = {
    "add": ops.add, "mul": ops.mul, "max": ops.maximum, "min": ops.minimum,
}  # fmt: skip
"""The elementwise operation of each reduction."""


class AccumulateMicrobatches(Pass, name="accumulate-microbatches"):
    """Turn the axis of microbatches, which `split-batch` adds, into loops."""

    def __call__(self, module: Module) -> Module:
        main = module.main
        mesh = next((mesh for mesh in module.meshes if MICROBATCH_AXIS in mesh.sizes), None)
        if mesh is None or main.spmd is None:
            raise PipelineError(
                f"@{main.name} has no microbatches; write split-batch{{microbatches=2}},default,"
                "accumulate-microbatches"
            )
        inlined = inline_calls_in_function(main)
        function = _Accumulator(inlined, Axis.full(MICROBATCH_AXIS, mesh)).run()
        meshes = tuple(_without_axis(each) if each is mesh else each for each in module.meshes)
        return replace(module, meshes=meshes, functions=(function, *module.functions[1:]))


def _without_axis(mesh: Mesh) -> Mesh:
    """Return the mesh of the devices that execute the microbatches. The mesh of a program for one
    device keeps the axis, with one position."""
    count = mesh.sizes[MICROBATCH_AXIS]
    ids = mesh.device_ids
    if ids is not None:
        ids = tuple(number // count for number in ids[::count])
    return Mesh(mesh.name, mesh.axes[:-1] or ((MICROBATCH_AXIS, 1),), ids)


@dataclass
class _Loop:
    """One loop over the microbatches, while it is built."""

    body: Builder
    inits: list[Value] = field(default_factory=list)
    totals: list[Value] = field(default_factory=list)
    """The carried values at the begin of an iteration."""
    sums: list[Value] = field(default_factory=list)
    """The carried values at its end."""
    stacks: list[Value] = field(default_factory=list)
    slices: list[Value] = field(default_factory=list)
    new: dict[Value, Value] = field(default_factory=dict)
    """The values in the body that replace values of the program."""


class _Accumulator:
    """Rewrites one function."""

    def __init__(self, function: Function, axis: Axis) -> None:
        assert function.spmd is not None
        self.function, self.axis, self.interface = function, axis, function.spmd
        self.count = axis.size
        names = used_names(function)
        body = _hoist_reductions(function.body, axis.name, names)
        pairs = zip(body.params, self.interface.params, strict=True)
        self.dims = {param: self._dim_of(known.sharding) for param, known in pairs}
        varying = {param for param, dim in self.dims.items() if dim is not None}
        self.levels = Levels(body, axis.name, varying)
        self.stored = self.levels.find_stored()
        self.b = Builder(names)
        self.new: dict[Value, Value] = {}
        """The values after the rewrite, for values outside of loops."""
        self.stacked: dict[Value, Value] = {}
        """The values of all microbatches, stacked along the first dimension."""

    def run(self) -> Function:
        body, levels = self.levels.block, self.levels
        params = tuple(map(self._whole_parameter, body.params))
        emitted: set[Op] = set()
        for loop in range(levels.loop_count):
            self._emit_outside(loop, emitted)
            self._emit_loop(loop)
        self._emit_outside(AFTER_ALL_LOOPS, emitted)
        returns = [
            self._unstack(value, known.sharding)
            for value, known in zip(body.returns, self.interface.results, strict=True)
        ]
        interface = SpmdInterface(
            tuple(map(self._without_microbatches, self.interface.params)),
            tuple(map(self._without_microbatches, self.interface.results)),
        )
        return replace(self.function, body=self.b.block(params, returns), spmd=interface)

    def _whole_parameter(self, param: Value) -> Value:
        """Return the parameter with the rows of all microbatches; stack those that vary."""
        dim = self.dims[param]
        if dim is None:
            return param
        shape = list(param.type.shape)
        shape[dim] *= self.count
        whole = Value(param.type.with_shape(shape), param.name)
        self.stacked[param] = self._stack(whole, dim)
        return whole

    def _stack(self, whole: Value, dim: int) -> Value:
        """Return a value with the microbatches of a dimension along a new first dimension."""
        shape = whole.type.shape
        parts = (*shape[:dim], self.count, shape[dim] // self.count, *shape[dim + 1 :])
        self.b.loc, self.b.why = None, "the microbatches are along the first dimension"
        split: Value = self.b.reshape(whole, result=whole.type.with_shape(parts))
        if dim:
            others = (d for d in range(len(parts)) if d != dim)
            split = self.b.transpose(split, perm=(dim, *others))
        return split

    def _unstack(self, value: Value, sharding: Sharding) -> Value:
        """Return a result with the rows of all microbatches."""
        dim = self._dim_of(sharding)
        if dim is not None:
            return self._join(self._stacked_value(value), dim)
        if value in self.stacked:
            return self._take_first(self.stacked[value])
        return self._outside(value)

    def _take_first(self, stacked: Value) -> Value:
        """Return the value of the first microbatch, for a value of which all have the same: one of
        several results of an operation, of which another one varies."""
        type, rank = stacked.type, stacked.type.rank
        first = type.with_shape((1, *type.shape[1:]))
        self.b.loc, self.b.why = None, "all microbatches have the same value"
        one = self.b.slice(stacked, starts=(0,) * rank, strides=(1,) * rank, result=first)
        value: Value = self.b.reshape(one, result=type.with_shape(type.shape[1:]))
        return value

    def _join(self, stacked: Value, dim: int) -> Value:
        """Return a value with the microbatches, which are along its first dimension, in `dim`."""
        shape = stacked.type.shape[1:]
        self.b.loc, self.b.why = None, "the rows of all microbatches"
        if dim:
            perm = (*range(1, dim + 1), 0, *range(dim + 1, len(shape) + 1))
            stacked = self.b.transpose(stacked, perm=perm)
        whole = (*shape[:dim], shape[dim] * self.count, *shape[dim + 1 :])
        joined: Value = self.b.reshape(stacked, result=stacked.type.with_shape(whole))
        return joined

    def _dim_of(self, sharding: Sharding) -> int | None:
        """Return the dimension that the axis of microbatches shards; `None` without one."""
        for dim, axes in enumerate(sharding.axes):
            if any(axis.name == self.axis.name for axis in axes):
                if axes[-1] != self.axis:
                    raise PipelineError(
                        f"the axis {self.axis.name!r} of @{self.function.name} is not the last one "
                        "of the dimension that it shards; write the loop over microbatches with "
                        "lax.scan"
                    )
                return dim
        return None

    def _without_microbatches(self, outer: GlobalTensor) -> GlobalTensor:
        dims = tuple(
            replace(dim, axes=tuple(axis for axis in dim.axes if axis.name != self.axis.name))
            for dim in outer.sharding.dims
        )
        replicated = tuple(x for x in outer.sharding.replicated if x.name != self.axis.name)
        return replace(outer, sharding=replace(outer.sharding, dims=dims, replicated=replicated))

    def _outside(self, value: Value) -> Value:
        """Return the value outside of loops that replaces one that does not vary."""
        return self.new.get(value, value)

    def _stacked_value(self, value: Value) -> Value:
        """Return the values of all microbatches; copies of one that is equal in all."""
        if value not in self.stacked:
            whole = self._outside(value)
            self.b.loc, self.b.why = None, "all microbatches have the same value"
            self.stacked[value] = self.b.broadcast(
                whole,
                dims=tuple(range(1, 1 + whole.type.rank)),
                result=whole.type.with_shape((self.count, *whole.type.shape)),
            )
        return self.stacked[value]

    def _emit_outside(self, loop: int, emitted: set[Op]) -> None:
        """Append the operations that run before a loop."""
        for op in self.levels.block.ops:
            before = self.levels.before.get(op)
            if before is not None and before <= loop and op not in emitted:
                emitted.add(op)
                (changed,) = substitute(Block((), (op,), ()), self.new).ops
                self.b.append(changed)

    def _emit_loop(self, number: int) -> None:
        """Append a loop, and after it the operations on its results."""
        levels, b = self.levels, self.b
        own = [op for op in levels.block.ops if levels.loop_of.get(op) == number]
        reduced = [
            op
            for op, loop in levels.boundaries.items()
            if loop == number and op.spec is ops.all_reduce
        ]
        gathered = [
            op
            for op, loop in levels.boundaries.items()
            if loop == number and op.spec is ops.all_gather
        ]
        if not own and not reduced:
            self._emit_gathers(gathered)
            return
        made = _Loop(b.inner())
        index: Value | None = None
        if any(depends_on_index(op, self.axis.name) for op in own):
            index = self._add_stack(made, self._iterations(), MICROBATCH_AXIS)
        for value in self._find_stacks(own, reduced):
            made.new[value] = self._add_stack(made, self._stacked_value(value), value.name)
        for op in own:
            self._emit_inside(made, op, index)
        totals = [self._add_sum(made, op) for op in reduced]
        defined = {value for op in own for value in op.results}
        stored = [value for value in levels.block.values() if value in defined & self.stored]
        returns = [*made.sums, *(made.new.get(value, value) for value in stored)]
        b.loc, b.why = None, f"a loop over {self.count} microbatches"
        results = as_values(
            b.emit(
                ops.scan,
                *made.inits,
                *made.stacks,
                blocks=(made.body.block((*made.totals, *made.slices), returns),),
                carries=len(made.inits),
                length=self.count,
                reverse=False,
            )
        )
        self.stacked |= zip(stored, results[len(totals) :], strict=True)
        for op, total in zip(reduced, results[: len(totals)], strict=True):
            self._finish_sum(op, total)
        self._emit_gathers(gathered)

    def _iterations(self) -> Value:
        self.b.loc, self.b.why = None, "the numbers of the microbatches"
        numbers: Value = self.b.iota(dim=0, result=TensorType((self.count,), "i32"))
        return numbers

    def _add_stack(self, made: _Loop, stack: Value, name: str) -> Value:
        """Add an operand of which each iteration takes one slice; return the slice."""
        param = Value(stack.type.with_shape(stack.type.shape[1:]), self.b.names.fresh(name))
        made.stacks.append(stack)
        made.slices.append(param)
        return param

    def _find_stacks(self, own: Sequence[Op], reduced: Sequence[Op]) -> Iterable[Value]:
        """Return the stacked values that operations of a loop use."""
        used = (value for op in (*own, *reduced) for value in op.uses())
        return dict.fromkeys(x for x in used if x in self.stacked)

    def _emit_inside(self, made: _Loop, op: Op, index: Value | None) -> None:
        """Append an operation to the body of a loop; `index` is the number of the iteration, if an
        operation depends on it."""
        (changed,) = substitute(Block((), (op,), ()), {**self.new, **made.new}).ops
        if index is not None:
            changed = index_operation(made.body, changed, self.axis, index)
        made.body.append(changed)

    def _add_sum(self, made: _Loop, op: Op) -> Value:
        """Carry the sum of the operand of an all-reduce, or its maximum, ..."""
        (operand,), reduction = op.operands, op.attrs["op"]
        partial = made.new.get(operand, operand)
        type = partial.type
        if type.dtype in NARROW_FLOATS and reduction in ("add", "mul"):
            type = type.with_dtype("f32")
        self.b.loc = made.body.loc = op.loc
        self.b.why = made.body.why = f"{reduction} over the microbatches; {op.why}"
        made.inits.append(self.b.full(identity_element(reduction, type.dtype), type))
        total = Value(type, self.b.names.fresh(f"{op.result.name}.total"))
        made.totals.append(total)
        if type != partial.type:
            partial = made.body.convert(partial, result=type)
        combine = COMBINING_OPERATIONS[reduction]
        made.sums.append(made.body.emit(combine, total, partial))
        return total

    def _finish_sum(self, op: Op, total: Value) -> None:
        """Append what follows the loop for an all-reduce: the reduction over other axes."""
        self.b.loc, self.b.why = op.loc, op.why
        if total.type != op.result.type:
            total = self.b.convert(total, result=op.result.type)
        others = tuple(axis for axis in op.attrs["axes"] if axis.name != self.axis.name)
        if others:
            attrs = {**op.attrs, "axes": others}
            self.b.append(Op(op.spec, (total,), op.results, attrs, (), op.loc, op.why))
        else:
            self.new[op.result] = total

    def _emit_gathers(self, gathered: Sequence[Op]) -> None:
        for op in gathered:
            others, dim = split_axes(op, self.axis), op.attrs["dim"]
            joined = self._join(self._stacked_value(op.operands[0]), dim)
            if others:
                attrs = {**op.attrs, "axes": others}
                self.b.append(Op(op.spec, (joined,), op.results, attrs, (), op.loc, op.why))
            else:
                self.new[op.result] = joined


def _hoist_reductions(block: Block, axis: str, names: UniqueNames) -> Block:
    """Return the block with all-reduces over an axis after loops, if they reduce a value that the
    loop stacks: the sum of a stack is the stack of the sums."""
    b = Builder(names)
    for op in block.ops:
        if op.blocks:
            inner = tuple(_hoist_reductions(each, axis, names) for each in op.blocks)
            op = replace(op, blocks=inner)
        if op.spec is ops.scan:
            _hoist_from_scan(b, op, axis)
        else:
            b.append(op)
    return Block(block.params, tuple(b.ops), block.returns)


def _hoist_from_scan(b: Builder, op: Op, axis: str) -> None:
    (body,) = op.blocks
    carries: int = op.attrs["carries"]
    makers = {value: each for each in body.ops for value in each.results}
    counts = use_counts(body)
    returns, results = list(body.returns), list(op.results)
    after: list[Op] = []
    removed: set[Op] = set()
    for i in range(carries, len(returns)):
        made = makers.get(returns[i])
        if made is None or made.spec is not ops.all_reduce or not crosses(made, axis):
            continue
        if counts[made.result] == 1:
            removed.add(made)
            returns[i] = made.operands[0]
            results[i] = Value(op.results[i].type, b.names.fresh(f"{op.results[i].name}.partial"))
            after.append(replace(made, operands=(results[i],), results=(op.results[i],)))
    inner = replace(
        body, ops=tuple(each for each in body.ops if each not in removed), returns=tuple(returns)
    )
    b.append(replace(op, blocks=(inner,), results=tuple(results)))
    for each in after:
        b.append(each)
