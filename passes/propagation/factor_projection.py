"""Projection of tensor shardings to the factors of an operation.

Propagation works on factors, shardings on dimensions. `project_to_factors` distributes the axes of
each dimension to its factors, major to minor; `project_to_dims` combines them again. A dimension
with the factors i (of size 2) and j (of size 4) that is sharded over an axis a of size 8 is sharded
along i over a:(1)2 and along j over a:(2)4.

All but the last factor of a dimension must be sharded evenly: an axis that shares no divisor with
the remaining size of such a factor *overflows* it, and the factors after it cannot be sharded.
"""

from dataclasses import dataclass
from math import gcd, prod

from shardir.ir.sharding import OPEN_DIM, Axes, Axis, DimSharding, Sharding, count_positions
from shardir.ir.sub_axes import append_axis
from shardir.op_rules.factors import TensorFactors


@dataclass(slots=True)
class FactorSharding:
    """Sharding of one tensor along one factor.

    `open`: more axes may be added. `last`: no other factor follows in its dimension, so uneven
    shards are allowed.
    """

    axes: Axes
    overflow: Axes
    open: bool
    last: bool


@dataclass(slots=True)
class ProjectedTensor:
    """One tensor: its sharding along each factor, and the axes it may not use.

    `sharding` is the dimension sharding; `None` if none is known.
    """

    factor_shardings: dict[int, FactorSharding]
    sharding: Sharding | None
    mapping: TensorFactors

    @property
    def shard_count(self) -> int:
        return prod(
            a.size
            for factor_sharding in self.factor_shardings.values()
            for a in (*factor_sharding.axes, *factor_sharding.overflow)
        )


def project_to_factors(
    mapping: TensorFactors, sharding: Sharding | None, sizes: tuple[int, ...]
) -> ProjectedTensor:
    """Return the sharding of a tensor along its factors; `sizes` are those of the factors."""
    factor_shardings: dict[int, FactorSharding] = {}
    dims = sharding.dims if sharding else (OPEN_DIM,) * len(mapping)
    for factors, dim in zip(mapping, dims, strict=True):
        if len(factors) == 1:
            factor_shardings[factors[0]] = FactorSharding(dim.axes, (), dim.open, True)
        elif factors:
            _distribute_axes(factors, dim, sizes, factor_shardings)
    return ProjectedTensor(factor_shardings, sharding, mapping)


def _distribute_axes(
    factors: tuple[int, ...],
    dim: DimSharding,
    sizes: tuple[int, ...],
    factor_shardings: dict[int, FactorSharding],
) -> None:
    """Distribute the axes of one dimension to its factors."""
    left = list(dim.axes)
    for factor in factors[:-1]:
        taken, overflow = _take_dividing_axes(left, sizes[factor])
        factor_shardings[factor] = FactorSharding(taken, overflow, dim.open, False)
        if overflow:
            following = factors[factors.index(factor) + 1]
            factor_shardings[following] = FactorSharding((), (), False, following == factors[-1])
            return
    rest: Axes = ()
    for axis in left:
        rest = append_axis(rest, axis)
    factor_shardings[factors[-1]] = FactorSharding(rest, (), dim.open, True)


def _take_dividing_axes(left: list[Axis], size: int) -> tuple[Axes, Axes]:
    """Remove leading axes of `left` that shard `size` evenly; return them and the overflow."""
    taken: list[Axis] = []
    while left:
        axis = left.pop(0)
        part = gcd(size, axis.size)
        size //= part
        if part > 1 or axis.size == 1:
            taken.append(Axis(axis.name, axis.pre, part))
        if part < axis.size:
            left.insert(0, Axis(axis.name, axis.pre * part, axis.size // part))
            break
    overflow: Axes = ()
    if size > 1:
        for axis in left:
            overflow = append_axis(overflow, axis)
        left.clear()
    return tuple(taken), overflow


def project_to_dims(view: ProjectedTensor, sizes: tuple[int, ...], mesh: str) -> Sharding:
    """Return the sharding whose dimensions have the axes of their factors.

    A dimension ends with the first factor that is not fully sharded: axes of later factors would
    result in strided shards, which no sharding can express.
    """
    old = view.sharding
    before = old.dims if old else (OPEN_DIM,) * len(view.mapping)
    dims = tuple(
        DimSharding(_axes_of_dim(factors, view.factor_shardings, sizes), dim.open)
        if factors
        else dim
        for factors, dim in zip(view.mapping, before, strict=True)
    )
    if old is None:
        return Sharding(mesh, dims)
    return Sharding(mesh, dims, old.replicated, old.unreduced, old.reduction)


def _axes_of_dim(
    factors: tuple[int, ...], factor_shardings: dict[int, FactorSharding], sizes: tuple[int, ...]
) -> Axes:
    axes: Axes = ()
    for factor in factors:
        factor_sharding = factor_shardings[factor]
        axes = _concatenate_axes(axes, factor_sharding.axes)
        if factor_sharding.overflow:
            axes = _concatenate_axes(axes, factor_sharding.overflow)
            break
        if count_positions(factor_sharding.axes) < sizes[factor]:
            break
    return axes


def _concatenate_axes(axes: Axes, more: Axes) -> Axes:
    """Concatenate axes; adjacent parts of one axis are merged."""
    return (*append_axis(axes, more[0]), *more[1:]) if more else axes
