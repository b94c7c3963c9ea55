"""Tensors seen through the factors of an operation.

Propagation is about factors, shardings are about dimensions. `project` hands the axes of each
dimension out to the factors it walks, major to minor; `unproject` puts them together again.
A dimension that walks the factors i (of 2) and j (of 4) and is cut over an axis a of 8 is cut
along i over a:(1)2 and along j over a:(2)4.

All but the last factor of a dimension must be cut evenly: what shares no divisor with the
positions left in such a factor *overflows* it, and the factors after it cannot be cut at all.
"""

from dataclasses import dataclass
from math import gcd, prod

from shardir.axes import append
from shardir.factors import TensorFactors
from shardir.placement import OPEN, Axes, Axis, Dim, Sharding, size_of


@dataclass(slots=True)
class Cut:
    """How one tensor is cut along one factor.

    `open`: more axes may be added. `last`: no other factor follows in its dimension, so that
    uneven pieces are allowed.
    """

    axes: Axes
    overflow: Axes
    open: bool
    last: bool


@dataclass(slots=True)
class View:
    """One tensor: its cut along each factor, and the axes it may not be cut over.

    `sharding` is where it came from; `None` says nothing about the tensor.
    """

    cuts: dict[int, Cut]
    sharding: Sharding | None
    mapping: TensorFactors

    @property
    def pieces(self) -> int:
        return prod(a.size for cut in self.cuts.values() for a in (*cut.axes, *cut.overflow))


def project(mapping: TensorFactors, sharding: Sharding | None, sizes: tuple[int, ...]) -> View:
    """The cuts of a tensor along the factors its dimensions walk; `sizes` are the factors'."""
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
    """Give each factor of one dimension the axes it can take."""
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
    """Axes off the front of `left` that cut `size` evenly, and what overflows then."""
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
    """The sharding whose dimensions are cut as the factors are.

    A dimension ends with the first factor that is not cut all the way: cuts of later factors
    would leave every device with strided pieces, which no sharding can say.
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
    """Both lists in one; the boundary is merged where one axis goes on."""
    return (*append(axes, more[0]), *more[1:]) if more else axes
