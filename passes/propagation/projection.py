"""Projection of tensor shardings to the factors of an operation.

Propagation works on factors, shardings on dimensions. `project` distributes the axes of each
dimension to its factors, major to minor; `unproject` combines them again. A dimension with the
factors i (of size 2) and j (of size 4) that is sharded over an axis a of size 8 is sharded along i
over a:(1)2 and along j over a:(2)4.

All but the last factor of a dimension must be sharded evenly: an axis that shares no divisor with
the remaining size of such a factor *overflows* it, and the factors after it cannot be sharded.
"""

from dataclasses import dataclass
from math import gcd, prod

from shardir.axes import append
from shardir.factors import TensorFactors
from shardir.placement import OPEN, Axes, Axis, Dim, Sharding, size_of


@dataclass(slots=True)
class Cut:
    """Sharding of one tensor along one factor.

    `open`: more axes may be added. `last`: no other factor follows in its dimension, so uneven
    shards are allowed.
    """

    axes: Axes
    overflow: Axes
    open: bool
    last: bool


@dataclass(slots=True)
class View:
    """One tensor: its sharding along each factor, and the axes it may not use.

    `sharding` is the dimension sharding; `None` if none is known.
    """

    cuts: dict[int, Cut]
    sharding: Sharding | None
    mapping: TensorFactors

    @property
    def pieces(self) -> int:
        return prod(a.size for cut in self.cuts.values() for a in (*cut.axes, *cut.overflow))


def project(mapping: TensorFactors, sharding: Sharding | None, sizes: tuple[int, ...]) -> View:
    """Return the sharding of a tensor along its factors; `sizes` are those of the factors."""
    cuts: dict[int, Cut] = {}
    dims = sharding.dims if sharding else (OPEN,) * len(mapping)
    for factors, dim in zip(mapping, dims, strict=True):
        if len(factors) == 1:
            cuts[factors[0]] = Cut(dim.axes, (), dim.open, True)
        elif factors:
            _share_out(factors, dim, sizes, cuts)
    return View(cuts, sharding, mapping)


def _share_out(
    factors: tuple[int, ...], dim: Dim, sizes: tuple[int, ...], cuts: dict[int, Cut]
) -> None:
    """Distribute the axes of one dimension to its factors."""
    left = list(dim.axes)
    for factor in factors[:-1]:
        taken, overflow = _take(left, sizes[factor])
        cuts[factor] = Cut(taken, overflow, dim.open, False)
        if overflow:
            following = factors[factors.index(factor) + 1]
            cuts[following] = Cut((), (), False, following == factors[-1])
            return
    rest: Axes = ()
    for axis in left:
        rest = append(rest, axis)
    cuts[factors[-1]] = Cut(rest, (), dim.open, True)


def _take(left: list[Axis], size: int) -> tuple[Axes, Axes]:
    """Remove leading axes of `left` that shard `size` evenly; return them and the overflow."""
    taken: list[Axis] = []
    while left:
        axis = left[0]
        part = gcd(size, axis.size)
        if part == 1 and axis.size > 1:
            break
        size //= part
        taken.append(Axis(axis.name, axis.pre, part))
        if part == axis.size:
            del left[0]
        else:
            left[0] = Axis(axis.name, axis.pre * part, axis.size // part)
    overflow: Axes = ()
    if size > 1:
        for axis in left:
            overflow = append(overflow, axis)
        left.clear()
    return tuple(taken), overflow


def unproject(view: View, sizes: tuple[int, ...], mesh: str) -> Sharding:
    """Return the sharding whose dimensions have the axes of their factors.

    A dimension ends with the first factor that is not fully sharded: axes of later factors would
    result in strided shards, which no sharding can express.
    """
    old = view.sharding
    before = old.dims if old else (OPEN,) * len(view.mapping)
    dims = tuple(
        _unproject_dim(factors, view.cuts, sizes) if factors else dim
        for factors, dim in zip(view.mapping, before, strict=True)
    )
    if old is None:
        return Sharding(mesh, dims)
    return Sharding(mesh, dims, old.replicated, old.unreduced, old.reduction)


def _unproject_dim(factors: tuple[int, ...], cuts: dict[int, Cut], sizes: tuple[int, ...]) -> Dim:
    if len(factors) == 1:
        cut = cuts[factors[0]]
        return Dim(cut.axes, cut.open)
    axes: Axes = ()
    is_open = True
    for factor in factors:
        cut = cuts[factor]
        is_open = is_open and cut.open
        axes = _join(axes, cut.axes)
        if cut.overflow:
            axes = _join(axes, cut.overflow)
            break
        if size_of(cut.axes) < sizes[factor]:
            break
    return Dim(axes, is_open)


def _join(axes: Axes, more: Axes) -> Axes:
    """Concatenate axes; adjacent parts of one axis are merged."""
    return (*append(axes, more[0]), *more[1:]) if more else axes
