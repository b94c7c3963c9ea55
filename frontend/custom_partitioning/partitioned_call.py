"""Calls of partitioned functions, and the calls that `vmap` and derivatives make of them.

A call is emitted as one operation inside of two regions. The batching rule of the outer region
makes a call with one more dimension, which the factor rule gets as one more factor; its partition
function adds the mesh axes of this dimension to the shardings that the user's function returns. The
derivative rule of the other region differentiates the function itself, and calls the partitioned
function for the results.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from shardir.errors import ShardirError
from shardir.frontend.arrays.signature import ShapeDtypeStruct
from shardir.frontend.call_signatures import call_user_function
from shardir.frontend.custom_partitioning.device_programs import (
    PartitionedForm,
    communicates_along,
    trace_device_program,
)
from shardir.frontend.custom_partitioning.sdy_sharding_rule import SdyShardingRule
from shardir.frontend.dispatch.traced_calls import result_tracer
from shardir.frontend.errors import ArgumentError
from shardir.frontend.lax.control_flow.body_tracing import set_weak_types
from shardir.frontend.pytree import tree
from shardir.frontend.pytree.prefix import broadcast_prefix
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import brief
from shardir.frontend.shardings.mesh import Mesh, current_mesh
from shardir.frontend.shardings.partition_spec import UNCONSTRAINED, PartitionSpec
from shardir.frontend.shardings.program_mesh import ProgramMesh
from shardir.frontend.shardings.sharding import NamedSharding
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.function_tracing import trace_block
from shardir.frontend.tracing.trace import emit_results, require_trace
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_jvp import custom_jvp
from shardir.frontend.transforms.custom_rules import check_rule_structure
from shardir.frontend.transforms.custom_vmap import custom_vmap
from shardir.frontend.transforms.jvp_vjp import jvp
from shardir.frontend.transforms.vmap import vmap
from shardir.ir.builder import substitute
from shardir.ir.host_function import HostFunction
from shardir.ir.sharding import Sharding
from shardir.ir.types import TensorType
from shardir.op_rules.factors import Factor, FactorRule, RuleBuilder, TensorFactors
from shardir.op_rules.rule_notation import ShardingRule, sharding_rule
from shardir.ops.control_flow.custom_partitioning import DeviceProgram

Types = Sequence[TensorType]
Structs = Sequence[ShapeDtypeStruct]
RuleSource = ShardingRule | Callable[..., object] | None


class PartitionedCall(ABC):
    """A partitioned function of flat arguments and results."""

    name: str

    @abstractmethod
    def compute(self, *leaves: Tracer) -> tuple[Tracer, ...]:
        """Return the results of the function itself."""

    @abstractmethod
    def factors(self, operands: Types, results: Types, mesh: Mesh | None) -> FactorRule | None:
        """Return the factor rule; `None` if it depends on the mesh and `mesh` is `None`."""

    @abstractmethod
    def partition(
        self, mesh: Mesh, operands: Structs, results: Structs, kept: frozenset[str]
    ) -> PartitionedForm:
        """Return what the partition function returns for operands and results with shardings.

        Dimensions that `vmap` added are not sharded along the axes in `kept`.
        """

    def call(self, leaves: Sequence[Tracer]) -> tuple[Tracer, ...]:
        """Emit the operation, with its batching rule and its derivative rule."""

        def emit(*tracers: Tracer) -> tuple[Tracer, ...]:
            return _emit(self, tracers)

        def batching_rule(
            axis_size: int, in_batched: Sequence[bool], *tracers: Tracer
        ) -> tuple[tuple[Tracer, ...], tuple[bool, ...]]:
            made = BatchedCall(self.name, self, tuple(in_batched), axis_size).call(tracers)
            return made, (True,) * len(made)

        def derivative_rule(
            primals: Sequence[Tracer], tangents: Sequence[Tracer]
        ) -> tuple[tuple[Tracer, ...], tuple[Tracer, ...]]:
            return self.call(primals), jvp(self.compute, tuple(primals), tuple(tangents))[1]

        emit.__name__ = self.name
        mapped = custom_vmap(emit)
        mapped.def_vmap(batching_rule)
        differentiable = custom_jvp(mapped)
        differentiable.defjvp(derivative_rule)
        made: tuple[Tracer, ...] = differentiable(*leaves)
        return made


def _emit(call: PartitionedCall, tracers: Sequence[Tracer]) -> tuple[Tracer, ...]:
    names = [f"arg{i}" for i in range(len(tracers))]
    abstracts = [replace(tracer.abstract, sharding=None) for tracer in tracers]
    block, found = trace_block(call.compute, abstracts, call.name, names)
    # A transformation inside of the function refers to values by their final names, which are other
    # values than the parameters.
    block = substitute(block, require_trace(call.name).program.unnamed_values)
    captures = block.captures()
    if captures:
        raise ArgumentError(
            with_location(
                f"{call.name} refers to an array of type {captures[0].type}, and a function with a "
                "custom partitioning receives all arrays as arguments; pass it as an argument, or "
                "refer to a NumPy array"
            )
        )
    operands = [tracer.value.type for tracer in tracers]
    results = [abstract.type for abstract in found]
    rule = call.factors(operands, results, None)

    entered = current_mesh()

    def bind(lowered_mesh: ProgramMesh) -> tuple[str, Callable[..., DeviceProgram]]:
        program_mesh = lowered_mesh.prefer(entered)
        bound = call.factors(operands, results, program_mesh.mesh)

        def device_program(
            operand_shardings: Sequence[Sharding | None],
            result_shardings: Sequence[Sharding | None],
        ) -> DeviceProgram:
            try:
                return _trace_form(
                    call,
                    _describe(operands, operand_shardings, program_mesh),
                    _describe(results, result_shardings, program_mesh),
                    program_mesh,
                )
            except ShardirError:
                raise
            except Exception as error:
                raise ArgumentError(
                    with_location(
                        f"the partition function of {call.name}, or the function that it returned, "
                        f"raised {type(error).__name__}: {error}"
                    )
                ) from error

        return str(bound), device_program

    made = emit_results(
        "custom-partitioning",
        *tracers,
        result=results[0] if len(results) == 1 else tuple(results),
        function=HostFunction(call.name, lambda: block),
        partition=HostFunction(call.name, bind),
        factor_rule="" if rule is None else str(rule),
    )
    return tuple(set_weak_types(made, [abstract.weak for abstract in found]))


def _describe(
    types: Types, shardings: Sequence[Sharding | None], program_mesh: ProgramMesh
) -> list[ShapeDtypeStruct]:
    """Return values with shardings as the partition function receives them."""
    replicated = NamedSharding(program_mesh.mesh, PartitionSpec())
    return [
        ShapeDtypeStruct(
            type.shape, type.numpy, sharding=program_mesh.to_user(sharding) or replicated
        )
        for type, sharding in zip(types, shardings, strict=True)
    ]


def _trace_form(
    call: PartitionedCall, operands: Structs, results: Structs, program_mesh: ProgramMesh
) -> DeviceProgram:
    """Return the program of a device for operands and results with shardings.

    The dimensions that `vmap` added are not sharded along an axis that the program itself uses.
    """
    mesh = program_mesh.mesh
    kept: frozenset[str] = frozenset()
    while True:
        form = call.partition(mesh, operands, results, kept)
        program = trace_device_program(
            form,
            f"the partition function of {call.name}",
            [x.abstract.type for x in operands],
            [x.abstract.type for x in results],
            program_mesh,
        )
        used = {axis for axis in form.batch_axes if communicates_along(program, axis, program_mesh)}
        if not used:
            return program
        kept |= used


@dataclass(frozen=True, eq=False)
class UserCall(PartitionedCall):
    """A call by the user.

    `fun` takes and returns flat arrays, and the other functions are the user's with the static
    arguments bound.
    """

    name: str
    fun: Callable[..., PyTree]
    arguments: tree.PyTreeDef
    results: tree.PyTreeDef
    rule: RuleSource
    partition_function: Callable[..., object]

    def compute(self, *leaves: Tracer) -> tuple[Tracer, ...]:
        made, structure = tree.flatten(self.fun(*tree.unflatten(self.arguments, leaves)))
        return tuple(result_tracer(x, i, structure, self.name) for i, x in enumerate(made))

    def factors(self, operands: Types, results: Types, mesh: Mesh | None) -> FactorRule | None:
        rule = self.rule
        if callable(rule):
            if mesh is None:
                return None
            rule = _rule_of_result(
                rule(mesh, _without_sharding(operands), _without_sharding(results)), self.name
            )
        operand_shapes, result_shapes = [x.shape for x in operands], [y.shape for y in results]
        if rule is None:
            return _separate_factors(operand_shapes, result_shapes)
        return rule.for_shapes(operand_shapes, result_shapes)

    def partition(
        self, mesh: Mesh, operands: Structs, results: Structs, kept: frozenset[str]
    ) -> PartitionedForm:
        what = f"the partition function of {self.name}"
        given = tree.unflatten(self.arguments, operands), tree.unflatten(self.results, results)
        returned = call_user_function(self.partition_function, what, (mesh, *given))
        if not isinstance(returned, (tuple, list)) or len(returned) != 4:
            raise ArgumentError(
                with_location(
                    f"{what} returns (mesh, function, result_shardings, arg_shardings), and it "
                    f"returned {brief(returned)}"
                )
            )
        own_mesh, fun, result_shardings, operand_shardings = returned
        if not isinstance(own_mesh, Mesh) or own_mesh.device_assignment != mesh.device_assignment:
            raise ArgumentError(
                with_location(
                    f"{what} returned {brief(own_mesh)} as the mesh; return {mesh!r} or another "
                    "mesh of its devices"
                )
            )
        if not callable(fun):
            raise ArgumentError(
                with_location(f"{what} returned {brief(fun)} in place of a function of shards")
            )

        def lower(*shards: Tracer) -> list[Tracer]:
            out = call_user_function(
                fun, f"the function that {what} returned", tree.unflatten(self.arguments, shards)
            )
            made, structure = tree.flatten(out)
            check_rule_structure(
                ArgumentError,
                f"the function of shards of {what}",
                "results",
                structure,
                f"the results of {self.name}",
                self.results,
            )
            return [result_tracer(x, i, structure, self.name) for i, x in enumerate(made)]

        return PartitionedForm(
            own_mesh,
            lower,
            _flatten_shardings(operand_shardings, given[0], own_mesh, f"arg_shardings of {what}"),
            _flatten_shardings(result_shardings, given[1], own_mesh, f"result_shardings of {what}"),
        )


def _flatten_shardings(
    shardings: object, values: PyTree, mesh: Mesh, word: str
) -> tuple[NamedSharding, ...]:
    """Return the sharding of each leaf of `values`, all on `mesh`."""
    flat = broadcast_prefix(shardings, values, lambda x: isinstance(x, NamedSharding), word)
    for sharding, value in zip(flat, tree.leaves(values), strict=True):
        if sharding.mesh != mesh:
            raise ArgumentError(
                with_location(f"{word} has {sharding}; use the mesh that it returned, {mesh!r}")
            )
        if sharding.spec.unreduced:
            raise ArgumentError(
                with_location(f"{word} has {sharding}; reduce partial sums in the function")
            )
        if len(sharding.spec) > value.ndim:
            raise ArgumentError(
                with_location(f"{word} has {sharding.spec} for a value of shape {value.shape}")
            )
    return tuple(flat)


def _without_sharding(types: Types) -> list[ShapeDtypeStruct]:
    return [ShapeDtypeStruct(type.shape, type.numpy) for type in types]


def _rule_of_result(returned: object, name: str) -> ShardingRule:
    """Return the rule that the user's function of the mesh and the types returned."""
    options: dict[str, Any] = {}
    if isinstance(returned, (tuple, list)) and len(returned) == 2:
        returned, options = returned
    if isinstance(returned, SdyShardingRule):
        return returned.rule
    if isinstance(returned, str):
        return parse_rule(returned, **options)
    raise ArgumentError(
        with_location(
            f"sharding_rule of {name} returned {brief(returned)}; return a rule such as "
            "'i j -> j i', an SdyShardingRule, or a pair of a rule and its options"
        )
    )


def parse_rule(
    text: str,
    *,
    reduction_factors: Sequence[str] = (),
    need_replication_factors: Sequence[str] = (),
    permutation_factors: Sequence[str] = (),
    **factor_sizes: int,
) -> ShardingRule:
    """Return the rule that a text and the options of `def_partition` state."""
    return sharding_rule(
        text,
        reduction=reduction_factors,
        need_replication=need_replication_factors,
        permutation=permutation_factors,
        sizes=factor_sizes,
    )


def _separate_factors(
    operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]
) -> FactorRule:
    """Return the rule of a function without a rule, through which no sharding propagates."""
    builder = RuleBuilder(operands, results)
    nowhere: list[int | None] = [None] * (len(operands) + len(results))
    for i, shape in enumerate((*operands, *results)):
        for dim, size in enumerate(shape):
            where = [*nowhere[:i], dim, *nowhere[i + 1 :]]
            builder.add(where[: len(operands)], where[len(operands) :], size)
    return builder.build()


@dataclass(frozen=True, eq=False)
class BatchedCall(PartitionedCall):
    """A call that `vmap` makes: the operands that `batched` flags, and all results, have one more
    leading dimension of size `size` than those of `inner`."""

    name: str
    inner: PartitionedCall
    batched: tuple[bool, ...]
    size: int

    def compute(self, *leaves: Tracer) -> tuple[Tracer, ...]:
        made: tuple[Tracer, ...] = vmap(self.inner.compute, self._in_axes)(*leaves)
        return made

    def factors(self, operands: Types, results: Types, mesh: Mesh | None) -> FactorRule | None:
        slices = [_slice(x) if has else x for x, has in zip(operands, self.batched, strict=True)]
        rule = self.inner.factors(slices, [_slice(y) for y in results], mesh)
        if rule is None:
            return None

        def add(mapping: TensorFactors, has: bool) -> TensorFactors:
            moved = tuple(tuple(i + 1 for i in dim) for dim in mapping)
            return ((0,), *moved) if has else moved

        return replace(
            rule,
            operands=tuple(map(add, rule.operands, self.batched)),
            results=tuple(add(mapping, True) for mapping in rule.results),
            factors=(Factor(self.size), *rule.factors),
        )

    def partition(
        self, mesh: Mesh, operands: Structs, results: Structs, kept: frozenset[str]
    ) -> PartitionedForm:
        slices = [
            _slice_struct(x) if has else x for x, has in zip(operands, self.batched, strict=True)
        ]
        form = self.inner.partition(mesh, slices, [_slice_struct(y) for y in results], kept)
        stated = {axis for s in (*form.operands, *form.results) for axis in _axes_of(s)}
        axes = () if form.mesh != mesh or not results else _first_axes(results[0])
        free = tuple(axis for axis in axes if axis not in kept | stated)
        # The shards of a dimension along some of its axes are contiguous only for the major axes.
        free = free if free == axes[: len(free)] else ()

        def add(sharding: NamedSharding) -> NamedSharding:
            return NamedSharding(sharding.mesh, PartitionSpec(free, *sharding.spec))

        return PartitionedForm(
            form.mesh,
            vmap(form.lower, self._in_axes),
            tuple(add(s) if has else s for s, has in zip(form.operands, self.batched, strict=True)),
            tuple(map(add, form.results)),
            form.batch_axes | set(free),
        )

    @property
    def _in_axes(self) -> tuple[int | None, ...]:
        return tuple(0 if has else None for has in self.batched)


def _slice(type: TensorType) -> TensorType:
    return type.with_shape(type.shape[1:])


def _slice_struct(x: ShapeDtypeStruct) -> ShapeDtypeStruct:
    assert isinstance(x.sharding, NamedSharding)
    spec = PartitionSpec(*x.sharding.spec[1:])
    return ShapeDtypeStruct(x.shape[1:], x.dtype, sharding=NamedSharding(x.sharding.mesh, spec))


def _first_axes(x: ShapeDtypeStruct) -> tuple[str, ...]:
    assert isinstance(x.sharding, NamedSharding)
    axes = x.sharding.spec.axes(0)
    return () if axes is UNCONSTRAINED else axes


def _axes_of(sharding: NamedSharding) -> frozenset[str]:
    return frozenset(sharding.spec.mentioned_axes())
