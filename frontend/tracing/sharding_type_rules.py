"""Rules for the shardings in types: the sharding of a result, derived from those of the operands.

The rules follow from the factor rule of an operation. Operands that share a factor must agree on
its axes; unsharded operands agree with all others. A dimension of a result has the axes of its
factors. A reduced factor that shards one operand is reduced silently, as a sum over a sharded
dimension is. If it shards several operands alike, the operation is ambiguous: its result may be
replicated, sharded or unreduced. A few operations differ from their factor rules; `_EXACT`,
`CUMULATIVE`, `MOVABLE`, `check_gather` and `check_scatter` state how.

`infer_results` refuses what is ambiguous or impossible; `sharding_type_choice` resolves conflicts.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from math import prod

from shardir import ops
from shardir.frontend.tracing.partial_sum_rules import infer_reduced, infer_unreduced
from shardir.frontend.tracing.sharding_type import (
    RESHARD,
    AxisNames,
    ShardingType,
    TypeConflictError,
    Types,
    describe,
    format_type,
    quote,
    replicated_type,
)
from shardir.ir.module import Op
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorKind, FactorRule
from shardir.ops.contraction.convolution_factors import parse_dims

Sizes = Mapping[str, int]
"""The size of each mesh axis."""
_EXACT = (ops.concatenate, ops.dynamic_update_slice)
"""Operations whose array operands must have the same sharding."""
CUMULATIVE = (ops.cumsum, ops.cumprod, ops.cummax, ops.cummin, ops.cumlogsumexp)
"""Operations that must be unsharded along the dimension `dim`."""
MOVABLE = (ops.concatenate, ops.fft, ops.dynamic_slice, ops.dynamic_update_slice)
"""Operations that may be sharded along factors that need replication; partitioning gathers them."""
_UNSHARDED = (ops.cholesky,)
"""Operations whose operands must be unsharded, as in JAX."""
_HOST_CALLS = (ops.callback, ops.pure_callback)
"""Operations on the host, which receive the whole operands, as in JAX."""

STATE_OUT_SHARDING = "state the sharding of the result with out_sharding="


def infer_results(op: Op, types: Types, sizes: Sizes) -> list[ShardingType | None]:
    """Return the sharding types of the results; raises `TypeConflictError` for a conflict."""
    if all(type is None or type.is_replicated for type in types):
        return _replicated_results(op, types)
    rule = op.factors()
    if rule is None:
        if op.spec in _HOST_CALLS:
            infer_unreduced(op, types)  # It refuses partial sums.
        else:
            _require_unsharded(op, types)
        return _replicated_results(op, types)
    if op.spec in _UNSHARDED:
        _require_unsharded(op, types)
    if op.spec in _EXACT:
        _check_equal(op, types)
    if op.spec is ops.gather:
        check_gather(op, rule, types)
    elif op.spec is ops.scatter:
        check_scatter(op, rule, types)
    elif op.spec is ops.reshape:
        check_reshape(op, types)
    elif op.spec is ops.convolution:
        check_convolution(op, types)
    unreduced, reduced = infer_unreduced(op, types), infer_reduced(op, types)
    if op.spec is ops.clamp and types[1] is not None:
        return [types[1]]
    if op.spec is ops.convolution and types[0] is not None:
        return [ShardingType(_convolution_dims(op, types[0], sizes), unreduced, reduced)]
    axes_of = _axes_of_factors(op, rule, types, sizes)
    if op.spec is ops.dot:
        _unshard_batch_of_second(rule, types, axes_of)
    return [
        ShardingType(_result_dims(op, rule, axes_of, i, sizes), unreduced, reduced)
        for i in range(len(op.results))
    ]


def _axes_of_factors(op: Op, rule: FactorRule, types: Types, sizes: Sizes) -> dict[int, AxisNames]:
    """Return the axes that shard each factor; raise `TypeConflictError` if operands disagree, if
    both shard a contracted dimension, or if the operation needs the dimension unsharded."""
    axes_of: dict[int, AxisNames] = {}
    owner: dict[int, tuple[int, int]] = {}
    ambiguous: list[tuple[int, int, int]] = []
    for operand, dim, factor, axes in _sharded_factors(op, rule, types, sizes):
        kind = rule.factors[factor].kind
        is_cumulative = op.spec in CUMULATIVE and dim == op.attrs["dim"]
        if is_cumulative or (kind is FactorKind.REPLICATE and op.spec not in MOVABLE):
            raise TypeConflictError(
                f"{describe(op, operand, types)} is sharded over {quote(axes)} along dimension "
                f"{dim}, and {op.name} needs that dimension unsharded; {RESHARD}"
            )
        known = axes_of.setdefault(factor, axes)
        first = owner.setdefault(factor, (operand, dim))
        if known != axes:
            raise TypeConflictError(
                f"{describe(op, first[0], types)} is sharded over {quote(known)} along dimension "
                f"{first[1]}, and {describe(op, operand, types)} over {quote(axes)} along "
                f"dimension {dim}, which is the same dimension of {op.name}; reshard one of them "
                "(sharding.reshard)"
            )
        if kind is FactorKind.REDUCE and first[0] != operand:
            ambiguous.append((factor, operand, dim))
    if ambiguous:
        factor, operand, dim = ambiguous[0]
        first = owner[factor]
        raise TypeConflictError(
            f"{describe(op, first[0], types)} and {describe(op, operand, types)} are both "
            f"sharded over {quote(axes_of[factor])} along the contracted dimension "
            f"({first[1]} and {dim}), so the sharding of the result of {op.name} is ambiguous; "
            f"{STATE_OUT_SHARDING}PartitionSpec(...)"
        )
    return axes_of


def summed_axes(op: Op, types: Types, sizes: Sizes) -> frozenset[str]:
    """Return the axes along which devices may hold partial sums of the result of an operation.

    These are the axes of the dimensions that a sum reduces, and those of the contracted dimensions
    of a product, if they shard both operands alike.
    """
    rule = op.factors()
    if op.spec not in (ops.sum_, ops.dot) or rule is None:
        return frozenset()
    found: dict[int, list[AxisNames]] = {}
    for type, mapping in zip(types, rule.operands, strict=True):
        for dim, factors in enumerate(mapping):
            axes = type.dims[dim] if type is not None else ()
            for factor, part in _split_axes(rule, factors, axes, sizes) or () if axes else ():
                if rule.factors[factor].kind is FactorKind.REDUCE:
                    found.setdefault(factor, []).append(part)
    # An operand without a type adopts the sharding of the other one.
    count = sum(type is not None for type in types)
    return frozenset(
        axis
        for parts in found.values()
        if len(parts) == count and all(part == parts[0] for part in parts)
        for axis in parts[0]
    )


def _unshard_batch_of_second(rule: FactorRule, types: Types, axes_of: dict[int, AxisNames]) -> None:
    """Remove the axes of batch dimensions that shard only the second operand of a product.

    As in JAX, the result has the batch dimensions of the first operand.
    """
    if types[0] is None:
        return
    for (factor,), axes in zip(rule.operands[0], types[0].dims, strict=True):
        if not axes and rule.factors[factor].kind is FactorKind.PASS:
            axes_of.pop(factor, None)


def _replicated_results(op: Op, types: Types) -> list[ShardingType | None]:
    """Return replicated types; a broadcast and a result of values without a type have none."""
    if op.spec is ops.broadcast or all(type is None for type in types):
        return [None] * len(op.results)
    return [replicated_type(result.type.rank) for result in op.results]


def _require_unsharded(op: Op, types: Types) -> None:
    for i, type in enumerate(types):
        if type is not None and not type.is_replicated:
            raise TypeConflictError(
                f"{describe(op, i, types)} is sharded, and {op.name} needs unsharded operands; "
                f"{RESHARD}, or call the function in sharding.auto_axes"
            )


def _check_equal(op: Op, types: Types) -> None:
    """Check that the array operands have the same sharding, also where one is replicated."""
    found: int | None = None
    for i, type in enumerate(types):
        if type is None or not type.dims:
            continue
        if found is None:
            found = i
        elif type != types[found]:
            raise TypeConflictError(
                f"{describe(op, found, types)} and {describe(op, i, types)} have different "
                f"shardings, and {op.name} needs the same one; reshard one of them "
                "(sharding.reshard)"
            )


def check_cases(operands: Sequence[TensorType], types: Types) -> None:
    """Check that the condition of `select`, unless it is a scalar, and the cases have one sharding.

    JAX requires this of `lax.select`, and of `where` with operands of one shape.
    """
    known = [(i, type) for i, type in enumerate(types) if type is not None and type.dims]
    for (i, first), (k, second) in combinations(known, 2):
        is_equal = first.dims == second.dims if i == 0 else first == second
        if not is_equal:
            raise TypeConflictError(
                f"operand {i} of select, {format_type(operands[i], first)}, and operand {k} of "
                f"select, {format_type(operands[k], second)}, have different shardings, and select "
                "needs the same one; reshard one of them (sharding.reshard)"
            )


def check_gather(op: Op, rule: FactorRule, types: Types) -> None:
    """Check that neither the dimensions that are looked up nor the indices are sharded."""
    table, positions = rule.operands[:2]
    for operand, mapping, other in ((0, table, None), (1, positions, table)):
        type = types[operand]
        for dim, axes in enumerate(type.dims if type is not None else ()):
            for factor in mapping[dim] if axes else ():
                is_looked_up = rule.factors[factor].kind is not FactorKind.PASS
                is_index = other is not None and all(factor not in each for each in other)
                if is_looked_up or is_index:
                    raise TypeConflictError(
                        f"{describe(op, operand, types)} is sharded over {quote(axes)} along "
                        f"dimension {dim}, so the sharding of the result of indexing is ambiguous; "
                        "state it with x.at[...].get(out_sharding=PartitionSpec(...))"
                    )


def check_scatter(op: Op, rule: FactorRule, types: Types) -> None:
    """Check that no dimension along which rows are scattered is sharded."""
    target, updates = rule.operands[0], rule.operands[2]
    for operand, mapping, other in ((0, target, updates), (1, rule.operands[1], target),
                                    (2, updates, target)):  # fmt: skip
        type = types[operand]
        for dim, axes in enumerate(type.dims if type is not None else ()):
            for factor in mapping[dim] if axes else ():
                if all(factor not in each for each in other):
                    raise TypeConflictError(
                        f"{describe(op, operand, types)} is sharded over {quote(axes)} along "
                        f"dimension {dim}, so the sharding of the updated array is ambiguous; "
                        "state it with x.at[...].set(..., out_sharding=PartitionSpec(...)), or "
                        "with out_sharding= of add, multiply, min or max"
                    )
    _check_updates(op, rule, types)


def _check_updates(op: Op, rule: FactorRule, types: Types) -> None:
    """Check that the updates of a scatter are sharded only where the updated array is."""
    target, updates = types[0], types[2]
    axes_of = {
        factor: target.dims[dim] if target is not None else ()
        for dim, factors in enumerate(rule.operands[0])
        for factor in factors
    }
    for dim, axes in enumerate(updates.dims if updates is not None else ()):
        for factor in rule.operands[2][dim] if axes else ():
            if not axes_of.get(factor, axes):
                raise TypeConflictError(
                    f"{describe(op, 2, types)} is sharded over {quote(axes)} along dimension "
                    f"{dim}, and {describe(op, 0, types)} is not; reshard one of them "
                    "(sharding.reshard)"
                )


def check_reshape(op: Op, types: Types) -> None:
    """Check that a reshape splits or merges one sharded group of dimensions, as JAX requires.

    Dimensions of size 1 may be added and removed anywhere in a reshape that only does that.
    """
    type = types[0]
    before, after = list(op.operands[0].type.shape), list(op.result.type.shape)
    if type is None or not any(type.dims):
        return
    if [size for size in before if size > 1] == [size for size in after if size > 1]:
        return
    while before and after and before[0] == after[0]:
        del before[0], after[0]
    while before and after and before[-1] == after[-1]:
        del before[-1], after[-1]
    if min(len(before), len(after)) > 1:
        raise TypeConflictError(
            f"{describe(op, 0, types)} is reshaped to {op.result.type}, which is neither the "
            "split of one dimension nor the merge of adjacent dimensions into one; "
            f"{STATE_OUT_SHARDING}PartitionSpec(...) of reshape, or reshape one dimension at a time"
        )


def check_convolution(op: Op, types: Types) -> None:
    """Check that neither the filter nor the features of the images are sharded."""
    of, _, _ = parse_dims(op.attrs["dims"])
    for operand, type in enumerate(types):
        for dim, axes in enumerate(type.dims if type is not None else ()):
            if axes and (operand == 1 or dim == of.features_or_outputs):
                raise TypeConflictError(
                    f"{describe(op, operand, types)} is sharded over {quote(axes)} along "
                    f"dimension {dim}, so the sharding of the result of convolution is ambiguous; "
                    f"{STATE_OUT_SHARDING}PartitionSpec(...)"
                )


def _convolution_dims(op: Op, images: ShardingType, sizes: Sizes) -> tuple[AxisNames, ...]:
    """Return the axes of the dimensions of a result: those of the images, also if windows do not
    divide a shard of them.
    """
    of, _, to = parse_dims(op.attrs["dims"])
    dims: list[AxisNames] = [()] * op.result.type.rank
    sources, targets = (of.batch_or_inputs, *of.spatial), (to.batch_or_inputs, *to.spatial)
    for source, target in zip(sources, targets, strict=True):
        dims[target] = images.dims[source]
        _check_divides(op, 0, target, dims[target], sizes)
    return tuple(dims)


def _sharded_factors(
    op: Op, rule: FactorRule, types: Types, sizes: Sizes
) -> Iterator[tuple[int, int, int, AxisNames]]:
    """Yield operand, dimension, factor and axes for each sharded dimension of an operand.

    `_split_axes` states which factors of a dimension have its axes.
    """
    for operand, (type, mapping) in enumerate(zip(types, rule.operands, strict=True)):
        for dim, axes in enumerate(type.dims if type is not None else ()):
            if not axes:
                continue
            parts = _split_axes(rule, mapping[dim], axes, sizes)
            if parts is None:
                major = rule.factors[major_factor(rule, mapping[dim])]
                raise TypeConflictError(
                    f"{describe(op, operand, types)} is sharded over {quote(axes)} along "
                    f"dimension {dim}, and its major part in the result {op.result.type} has the "
                    f"size {major.size}, which is not divisible by "
                    f"{prod(sizes[axis] for axis in axes)}; "
                    f"{STATE_OUT_SHARDING}PartitionSpec(...) of reshape"
                )
            for factor, part in parts:
                yield operand, dim, factor, part


def _split_axes(
    rule: FactorRule, factors: tuple[int, ...], axes: AxisNames, sizes: Sizes
) -> list[tuple[int, AxisNames]] | None:
    """Return the axes of each sharded factor of a dimension; `None` if they do not nest.

    The major factor has all axes if they divide it. Otherwise its axes must cover it, and the
    following factors have the remaining axes.
    """
    if len(factors) == 1:
        return [(factors[0], axes)]
    parts: list[tuple[int, AxisNames]] = []
    rest = list(axes)
    for factor in factors:
        taken: list[str] = []
        left = rule.factors[factor].size
        while rest and left % sizes[rest[0]] == 0 and (left > 1 or sizes[rest[0]] == 1):
            left //= sizes[rest[0]]
            taken.append(rest.pop(0))
        if taken:
            parts.append((factor, tuple(taken)))
        if not rest:
            return parts
        if left > 1:
            return None
    return None


def major_factor(rule: FactorRule, factors: tuple[int, ...]) -> int:
    """Return the first factor of a dimension that has more than one position."""
    return next((f for f in factors if rule.factors[f].size > 1), factors[0])


def _result_dims(
    op: Op, rule: FactorRule, axes_of: Mapping[int, AxisNames], result: int, sizes: Sizes
) -> tuple[AxisNames, ...]:
    """Return the axes of each dimension of a result; raises for a sharding that does not exist."""
    dims: list[AxisNames] = []
    seen: dict[str, int] = {}
    type = op.results[result].type
    for dim, factors in enumerate(rule.results[result]):
        axes: list[str] = []
        unsharded = False
        for factor in factors:
            found = axes_of.get(factor, ())
            if found and unsharded:
                raise TypeConflictError(
                    f"the minor part of dimension {dim} of the result {type} of {op.name} is "
                    f"sharded over {quote(found)} and its major part is not; "
                    f"{STATE_OUT_SHARDING}PartitionSpec(...) of reshape, or reshard the operand"
                )
            unsharded = unsharded or (not found and rule.factors[factor].size > 1)
            axes.extend(found)
        for axis in axes:
            if axis in seen:
                raise TypeConflictError(
                    f"dimensions {seen[axis]} and {dim} of the result {type} of {op.name} are both "
                    f"sharded over {axis!r}; reshard an operand (sharding.reshard), or "
                    f"{STATE_OUT_SHARDING}PartitionSpec(...)"
                )
            seen[axis] = dim
        _check_divides(op, result, dim, tuple(axes), sizes)
        dims.append(tuple(axes))
    return tuple(dims)


def _check_divides(op: Op, result: int, dim: int, axes: AxisNames, sizes: Sizes) -> None:
    type, count = op.results[result].type, prod(sizes[axis] for axis in axes)
    if type.shape[dim] % count:
        raise TypeConflictError(
            f"dimension {dim} of the result {type} of {op.name} is sharded over "
            f"{quote(axes)}, whose size {count} does not divide {type.shape[dim]}; "
            "reshard the operand (sharding.reshard), so that this dimension is unsharded"
        )
