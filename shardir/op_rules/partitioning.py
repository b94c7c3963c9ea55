"""Partitioning rules: how an operation runs on the shards of one device.

Most operations need no rule: with the factors of their rule sharded, the same attributes on local
shapes compute the local result. `Partitioning` is for operations that depend on the position of the
shard in the global tensor (iota, random bits), that have attributes which count a sharded quantity
(groups of a convolution), or that can run with a factor sharded although the factor rule alone does
not state how.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from shardir.errors import OperationTypeError
from shardir.ir.builder import Builder
from shardir.ir.dtypes import DTYPE_INFO, greatest_number, least_number
from shardir.ir.mesh import Mesh
from shardir.ir.operation import Op, Value
from shardir.ir.sharding import Axes, count_positions
from shardir.ir.types import COMPLEX, FLOATS, TensorType
from shardir.op_rules.factors import FactorKind, FactorRule


@lru_cache(maxsize=1 << 12)
def default_shardable_factors(rule: FactorRule) -> tuple[int, ...]:
    """Return the factors along which the same operation on local shapes is correct.

    These are the pass-through factors that a result has, and the reduced ones if partial results
    can be combined.
    """
    result_factors = {i for mapping in rule.results for dim in mapping for i in dim}
    return tuple(
        i
        for i, factor in enumerate(rule.factors)
        if (factor.kind is FactorKind.PASS and i in result_factors)
        or (factor.kind is FactorKind.REDUCE and rule.reduction is not None)
    )


def all_factors(rule: FactorRule, *_: object, **__: object) -> range:
    """Return all factors; for operations that can be sharded along each of them."""
    return range(len(rule.factors))


def factors_without_replicated(rule: FactorRule, *_: object, **__: object) -> list[int]:
    """Return all factors except those that need replication."""
    return [i for i, factor in enumerate(rule.factors) if factor.kind is not FactorKind.REPLICATE]


@dataclass(frozen=True)
class LocalOp:
    """One application of an operation as one device executes it.

    `op` is the operation on global tensors, whose values have closed shardings.
    """

    op: Op
    mesh: Mesh

    @cached_property
    def operands(self) -> tuple[TensorType, ...]:
        """The types of the local operands."""
        return tuple(map(local_type_of, self.op.operands))

    @cached_property
    def results(self) -> tuple[TensorType, ...]:
        """The types of the local results."""
        return tuple(map(local_type_of, self.op.results))

    @property
    def result(self) -> TensorType:
        """The type of the only local result."""
        (result,) = self.results
        return result

    def sharding_axes(self, value: Value, dim: int) -> Axes:
        """Return the axes along which a dimension of an operand or result is sharded."""
        return value.sharding.dims[dim].axes if value.sharding else ()

    def num_shards(self, value: Value, dim: int) -> int:
        """Return the number of shards along a dimension of an operand or result."""
        return count_positions(self.sharding_axes(value, dim))

    def shard_start(self, b: Builder, value: Value, dim: int, dtype: str = "i32") -> Value | None:
        """Return the start of the device's shard of `value` along `dim` as a scalar integer.

        Returns `None` if the dimension is not sharded.
        """
        axes = self.sharding_axes(value, dim)
        if not axes:
            return None
        position: Value = b.axis_index(axes=axes, name=f"{value.name}.index")
        if dtype != "i32":
            position = b.convert(position, result=TensorType((), dtype))
        size = b.full(local_type_of(value).shape[dim], position.type)
        start: Value = b.mul(position, size, name=f"{value.name}.start")
        return start

    def is_uneven(self, value: Value, dim: int) -> bool:
        """Return whether the last shards of `value` along `dim` are shorter and thus padded."""
        sharding = value.sharding
        return sharding is not None and value.type.shape[dim] % sharding.dims[dim].num_shards != 0

    def valid_mask(self, b: Builder, value: Value, dim: int) -> Value | None:
        """Return the mask of the valid positions of the device's shard along `dim`: bool, rank 1.

        Returns `None` if no shard has padding.
        """
        if not self.is_uneven(value, dim):
            return None
        line = TensorType((local_type_of(value).shape[dim],), "i32")
        index = b.add(
            b.iota(dim=0, result=line),
            b.broadcast(self.shard_start(b, value, dim), dims=(), result=line),
        )
        inside: Value = b.lt(index, b.full(value.type.shape[dim], line))
        return inside

    def mask_padding(
        self, b: Builder, piece: Value, value: Value, dims: Iterable[int], filler: complex
    ) -> Value:
        """Return the device's shard of `value` with `filler` in its padding along `dims`."""
        everywhere = None
        for dim in dims:
            if (inside := self.valid_mask(b, value, dim)) is not None:
                here = b.broadcast(inside, dims=(dim,), result=piece.type.with_dtype("bool"))
                everywhere = here if everywhere is None else b.and_(everywhere, here)
        if everywhere is None:
            return piece
        masked: Value = b.select(everywhere, piece, b.full(filler, piece.type))
        return masked

    def is_first(self, b: Builder, axes: Axes) -> Value:
        """Return whether the device is the first along `axes`, as a scalar bool."""
        position = b.axis_index(axes=axes)
        first: Value = b.eq(position, b.full(0, position.type))
        return first


def local_type_of(value: Value) -> TensorType:
    """Return the type of the local shard of a value."""
    if value.sharding is None:
        return value.type
    return value.type.with_shape(value.sharding.local_shape(value.type.shape))


def identity_element(reduction: str, dtype: str) -> complex:
    """Return the identity element of a reduction, which also preserves negative zeros."""
    if reduction == "mul":
        return 1
    if reduction == "add":
        if dtype in FLOATS and not DTYPE_INFO[dtype].has_zero:
            raise OperationTypeError(
                f"{dtype} has no zero, so that sums of it cannot be split between devices or "
                "padded; convert it to f32 first"
            )
        return complex(-0.0, -0.0) if dtype in COMPLEX else -0.0 if dtype in FLOATS else 0
    if dtype in FLOATS:
        return least_number(dtype) if reduction == "max" else greatest_number(dtype)
    if dtype == "bool":
        return reduction == "min"
    return least_number(dtype) if reduction == "max" else greatest_number(dtype)
