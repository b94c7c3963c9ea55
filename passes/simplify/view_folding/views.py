"""Views: the elements of a value in other dimensions, without data movement.

A view has a base, which is an existing value, and for each of its dimensions the pieces of the
base's dimensions that it covers, major first. A piece (dim, stride, size) covers dimension `dim` of
the base in `size` steps of `stride`; one without a dimension is a broadcast. Splitting, joining and
reordering dimensions and broadcasting along new ones are views of views: `[16@x, 8]` viewed per
device is base `[16, 8]`, dims `((0, 4, 4),), ((0, 1, 4),), ((1, 1, 8),)`. A view covers every
position of the base, and without broadcasts exactly once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

from shardir.ir.builder import Builder
from shardir.ir.module import Value
from shardir.passes.whole_program.dim_arrangement import reshape_if_needed


class ViewPiece(NamedTuple):
    """`size` steps of `stride` along a dimension of the base; along none for `BROADCAST_DIM`."""

    dim: int
    stride: int
    size: int


BROADCAST_DIM = -1
"""Dimension of pieces that are broadcasts."""
ViewPieces = tuple[ViewPiece, ...]
ViewDims = tuple[ViewPieces, ...]


@dataclass(frozen=True, slots=True)
class View:
    """A view as described above. Adjacent pieces that continue each other are merged, and none has
    size 1."""

    base: Value
    dims: ViewDims

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(size_of(pieces) for pieces in self.dims)

    @property
    def is_identity(self) -> bool:
        """True if the view equals its base."""
        return self.dims == identity_dims(self.base.type.shape)

    @property
    def has_broadcasts(self) -> bool:
        return any(piece.dim == BROADCAST_DIM for pieces in self.dims for piece in pieces)


def identity_view(value: Value) -> View:
    """Return a value as a view of itself."""
    return View(value, identity_dims(value.type.shape))


@lru_cache(maxsize=4096)
def identity_dims(shape: tuple[int, ...]) -> ViewDims:
    """Return the dimensions of a base in its own layout."""
    return tuple((ViewPiece(d, 1, n),) if n != 1 else () for d, n in enumerate(shape))


def size_of(pieces: ViewPieces) -> int:
    return prod(piece.size for piece in pieces)


def merge_pieces(pieces: Sequence[ViewPiece]) -> ViewPieces:
    """Merge adjacent pieces that continue each other."""
    result: list[ViewPiece] = []
    for piece in pieces:
        if piece.size == 1:
            continue
        if result:
            last = result[-1]
            if last.dim == piece.dim and last.stride == piece.stride * piece.size:
                result[-1] = ViewPiece(piece.dim, piece.stride, last.size * piece.size)
                continue
        result.append(piece)
    return tuple(result)


def split_piece(piece: ViewPiece, minor: int) -> tuple[ViewPiece, ViewPiece]:
    """Split a piece into a major one and a minor one of the given size."""
    dim, stride, size = piece
    return ViewPiece(dim, stride * minor, size // minor), ViewPiece(dim, stride, minor)


def broadcast_dim(size: int) -> ViewPieces:
    """Return a broadcast dimension."""
    return (ViewPiece(BROADCAST_DIM, 0, size),) if size != 1 else ()


@lru_cache(maxsize=4096)
def reshape_dims(dims: ViewDims, shape: tuple[int, ...]) -> ViewDims | None:
    """Return the same elements in row-major order in another shape; `None` if no pieces represent
    it."""
    left = [piece for pieces in dims for piece in pieces]
    left.reverse()
    result: list[ViewPieces] = []
    for size in shape:
        taken: list[ViewPiece] = []
        while size > 1:
            piece = left.pop()
            if size % piece.size == 0:
                taken.append(piece)
                size //= piece.size
            elif piece.size % size == 0:
                major, minor = split_piece(piece, piece.size // size)
                taken.append(major)
                left.append(minor)
                size = 1
            else:
                return None
        result.append(merge_pieces(taken))
    return tuple(result)


def refine_pieces(first: ViewPieces, second: ViewPieces) -> tuple[ViewPieces, ViewPieces] | None:
    """Return both with pieces of the same sizes; `None` without a common refinement.

    The first one has at least as many elements as the second.
    """
    if len(first) == 1 == len(second):
        return (first, second) if first[0].size == second[0].size else None
    left, right = list(reversed(first)), list(reversed(second))
    one: list[ViewPiece] = []
    other: list[ViewPiece] = []
    while right:
        a, b = left.pop(), right.pop()
        size = gcd(a.size, b.size)
        if size not in (a.size, b.size):
            return None
        if a.size > size:
            a, rest = split_piece(a, a.size // size)
            left.append(rest)
        if b.size > size:
            b, rest = split_piece(b, b.size // size)
            right.append(rest)
        one.append(a)
        other.append(b)
    return (tuple(one), tuple(other)) if not left else None


def view_in_base_of(view: ViewDims, lead: View) -> ViewDims | None:
    """Return `view`, of the same shape as `lead`, in the dimensions of the base of `lead`.

    Returns `None` if pieces are incompatible, or where `lead` is a broadcast and `view` is not.
    """
    return _view_in_base_of(view, lead.dims, lead.base.type.rank)


@lru_cache(maxsize=4096)
def _view_in_base_of(view: ViewDims, lead: ViewDims, rank: int) -> ViewDims | None:
    pieces_by_dim: list[list[tuple[int, ViewPiece]]] = [[] for _ in range(rank)]
    for mine, theirs in zip(view, lead, strict=True):
        both = refine_pieces(mine, theirs)
        if both is None:
            return None
        for piece, base_piece in zip(*both, strict=True):
            if base_piece.dim != BROADCAST_DIM:
                pieces_by_dim[base_piece.dim].append((-base_piece.stride, piece))
            elif piece.dim != BROADCAST_DIM:
                return None
    return tuple(merge_pieces([piece for _, piece in sorted(each)]) for each in pieces_by_dim)


def materialize_view(b: Builder, view: View) -> Value:
    """Materialize a view: the base reshaped, transposed and broadcast as far as necessary."""
    base = view.base
    if view.is_identity:
        return base
    walked = sorted(
        {p for pieces in view.dims for p in pieces if p.dim != BROADCAST_DIM}, key=position_in_base
    )
    number = {piece: i for i, piece in enumerate(walked)}
    # Runs of pieces of the base, and broadcasts in between, become one dimension each.
    order: list[list[int]] = []
    wide: list[int] = []
    at: list[int] = []
    for pieces in view.dims:
        run: list[int] | None = None
        for piece in pieces:
            if piece.dim == BROADCAST_DIM:
                wide.append(piece.size)
                run = None
                continue
            if run is None:
                run = []
                order.append(run)
                at.append(len(wide))
                wide.append(1)
            run.append(number[piece])
            wide[-1] *= piece.size
        if not pieces:
            order.append([])
            at.append(len(wide))
            wide.append(1)
    x = _arrange(b, base, [piece.size for piece in walked], order)
    if x.type.rank != len(wide):
        x = b.broadcast(x, dims=tuple(at), result=x.type.with_shape(wide))
    return reshape_if_needed(b, x, view.shape)


def position_in_base(piece: ViewPiece) -> tuple[int, int]:
    """Return the sort key of a piece for the order of the base."""
    return piece.dim, -piece.stride


def _arrange(b: Builder, x: Value, sizes: Sequence[int], order: Sequence[Sequence[int]]) -> Value:
    perm = tuple(part for parts in order for part in parts)
    if perm != tuple(range(len(perm))):
        x = b.transpose(reshape_if_needed(b, x, sizes), perm=perm)
    return reshape_if_needed(b, x, [prod(sizes[part] for part in parts) for parts in order])


def split_by_kind(b: Builder, view: View, kinds: Sequence[int]) -> tuple[View, list[int]]:
    """Return the view over a base in which each dimension belongs to view dimensions of one kind.

    `kinds` has a number for each dimension of the view. The second result is the kind of each
    dimension of the new base, which is the old one reshaped; pieces that continue each other and
    are of one kind stay together. Remaining dimensions of size 1 have kind 0.
    """
    piece_kinds: list[tuple[ViewPiece, int]] = []
    for pieces, kind in zip(view.dims, kinds, strict=True):
        piece_kinds += [(piece, kind) for piece in pieces if piece.dim != BROADCAST_DIM]
    piece_kinds.sort(key=lambda each: position_in_base(each[0]))
    shape: list[int] = []
    made_kinds: list[int] = []
    runs: list[list[ViewPiece]] = []
    for piece, kind in piece_kinds:
        if runs and runs[-1][0].dim == piece.dim and made_kinds[-1] == kind:
            runs[-1].append(piece)
            shape[-1] *= piece.size
        else:
            runs.append([piece])
            shape.append(piece.size)
            made_kinds.append(kind)
    # Dimensions of size 1 may stay where nothing else changes.
    places = [d for d, n in enumerate(view.base.type.shape) if n != 1]
    base = view.base
    if shape == [base.type.shape[d] for d in places]:
        alone = [0] * base.type.rank
        for d, kind in zip(places, made_kinds, strict=True):
            alone[d] = kind
        made_kinds = alone
    else:
        base, places = reshape_if_needed(b, base, shape), list(range(len(shape)))
    new: dict[ViewPiece, ViewPiece] = {}
    for d, run in zip(places, runs, strict=True):
        stride = 1
        for piece in reversed(run):
            new[piece] = ViewPiece(d, stride, piece.size)
            stride *= piece.size
    dims = tuple(merge_pieces([new.get(piece, piece) for piece in pieces]) for pieces in view.dims)
    return View(base, dims), made_kinds
