"""`custom_partitioning`: the user states the program that each device runs for a function."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.call_signatures import with_method_errors
from shardir.frontend.custom_partitioning.partitioned_call import (
    RuleSource,
    UserCall,
    parse_rule,
)
from shardir.frontend.custom_partitioning.sdy_sharding_rule import SdyShardingRule
from shardir.frontend.errors import ArgumentError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree, UserFunction
from shardir.frontend.quoting import brief
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.named_axes import bound_axes
from shardir.frontend.tracing.tracer import Tracer
from shardir.frontend.transforms.custom_function import CustomFunction
from shardir.frontend.transforms.custom_rules import CustomCall, Primal, nondiff_positions

PartitionFunction = UserFunction


@with_method_errors
@final
class custom_partitioning(CustomFunction[PyTree]):
    """A function whose program for each device the user states.

    `f = custom_partitioning(fun)`, then `f.def_partition(partition, sharding_rule=rule)`.

    Shardings propagate through calls of `f` by the rule, such as `"... i, i j -> ... j"`. When they
    are known, `partition(mesh, arg_shapes, result_shape)` receives a `ShapeDtypeStruct` with a
    `NamedSharding` for each argument and result, and returns `(mesh, lower, result_shardings,
    arg_shardings)`. Each device then calls `lower` on its shards of the arguments, which receive
    `arg_shardings`; it returns shards of the results, and may use collectives along the axes of the
    mesh.

    On one device and inside of `shard_map`, `fun` itself is called. `vmap` adds a dimension to the
    rule and to the shardings and maps `lower`. Derivatives are those of `fun`. Arguments in
    `static_argnums` need not be arrays and are passed first to `partition` and to a rule that is a
    function.
    """

    @with_argument_errors
    def __init__(self, fun: UserFunction, static_argnums: Sequence[int] = ()) -> None:
        numbers = tuple(static_argnums)
        super().__init__(fun, nondiff_positions(fun, "static_argnames", numbers, ()))
        self._static = numbers
        self._partition: PartitionFunction | None = None
        self._rule: RuleSource = None

    def def_partition(
        self,
        partition: PartitionFunction,
        infer_sharding_from_operands: PartitionFunction | None = None,
        propagate_user_sharding: PartitionFunction | None = None,
        decode_shardings: bool = True,
        sharding_rule: str | SdyShardingRule | Callable[..., object] | None = None,
        *,
        reduction_factors: Sequence[str] = (),
        need_replication_factors: Sequence[str] = (),
        permutation_factors: Sequence[str] = (),
        **factor_sizes: int,
    ) -> PartitionFunction:
        """Set the partition function and the rule, and return the function.

        `sharding_rule` is a text, an `SdyShardingRule`, or a function `(mesh, arg_shapes,
        result_shapes)` that returns one of them. Without a rule, no sharding propagates through
        calls. For a text, `reduction_factors`, `need_replication_factors` and `permutation_factors`
        list the factors of these kinds, and other keyword arguments state sizes of factors. `lower`
        itself adds the partial results over sharded reduction factors.

        The functions `infer_sharding_from_operands` and `propagate_user_sharding` belong to XLA's
        former partitioner; they are accepted beside a rule, which replaces them.
        """
        word = f"def_partition of {self._name}"
        if not callable(partition):
            raise ArgumentError(with_location(f"{word} takes a function, got {brief(partition)}"))
        if not decode_shardings:
            raise ArgumentError(
                with_location(
                    f"{word}: decode_shardings=False is not supported, because all shardings are "
                    "of class NamedSharding; leave it out"
                )
            )
        callbacks = infer_sharding_from_operands, propagate_user_sharding
        if sharding_rule is None and any(each is not None for each in callbacks):
            raise ArgumentError(
                with_location(
                    f"{word} has functions for XLA's former partitioner and no sharding_rule; "
                    "state the rule, such as sharding_rule='i j -> i j'"
                )
            )
        kinds = {
            "reduction_factors": reduction_factors,
            "need_replication_factors": need_replication_factors,
            "permutation_factors": permutation_factors,
        }
        options: dict[str, Any] = {**{k: v for k, v in kinds.items() if v}, **factor_sizes}
        if isinstance(sharding_rule, str):
            self._rule = parse_rule(sharding_rule, **options)
        elif options:
            raise ArgumentError(
                with_location(
                    f"{word}: {', '.join(options)} belong to a sharding_rule in text, and it is "
                    f"{brief(sharding_rule)}"
                )
            )
        elif isinstance(sharding_rule, SdyShardingRule):
            self._rule = sharding_rule.rule
        elif sharding_rule is None or callable(sharding_rule):
            self._rule = sharding_rule
        else:
            raise ArgumentError(
                with_location(
                    f"{word}: sharding_rule is a text such as 'i j -> j i', an SdyShardingRule or "
                    f"a function, got {brief(sharding_rule)}"
                )
            )
        self._partition = partition
        return partition

    def _check_rule(self) -> None:
        if self._partition is None:
            raise ArgumentError(
                with_location(
                    f"custom_partitioning {self._name} has no partition function; give it one with "
                    "def_partition"
                )
            )

    def _emit(self, call: CustomCall, primal: Primal) -> PyTree:
        assert self._partition is not None
        static = [call.args[i] for i in self._static]
        for number, value in zip(self._static, static, strict=True):
            if any(isinstance(leaf, Tracer) for leaf in tree.leaves(value)):
                raise ArgumentError(
                    with_location(
                        f"argument {number} of {self._name} is listed in static_argnums and "
                        f"contains {brief(value)}, which is traced; pass it as an array argument"
                    )
                )
        if any(axis.manual for axis in bound_axes().values()):
            return self._fun(*call.all_arguments(call.tracers))

        def compute(*moving: PyTree) -> PyTree:
            given = iter(moving)
            fixed = call.nondiff_positions
            args = [arg if i in fixed else next(given) for i, arg in enumerate(call.args)]
            return self._fun(*args)

        rule = self._rule
        user_call = UserCall(
            self._name,
            compute,
            call.structure,
            primal.structure,
            partial(rule, *static) if callable(rule) else rule,
            partial(self._partition, *static),
        )
        return tree.unflatten(primal.structure, user_call.call(call.tracers))
