"""Geometry of gather and scatter.

Both relate three tensors: an operand, indices whose last dimension is an index vector, and slices
(the result of a gather, the updates of a scatter). A dimension of the slices is either a window
dimension, which corresponds to a dimension of the operand, or a batch dimension, which corresponds
to a dimension of the indices. The other dimensions of the operand are dropped (one index is
selected) or batching dimensions, which also correspond to a dimension of the indices. Component i
of an index vector is the window start along operand dimension `index_map[i]`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shardir.errors import count_noun
from shardir.ir.attributes import Attributes
from shardir.ir.types import NumpyArray, TensorType
from shardir.op_rules.factors import FactorKind, RuleBuilder
from shardir.ops.type_checks import INTEGER, Ints, check_dims, common_dtype, format_list

Array = NumpyArray

DimPerTensor = tuple[int | None, ...]
"""The dimension of each tensor to which a factor maps."""

_MAX_INDEX = 1 << 62
"""The bound to which indices are clamped, so that additions cannot overflow."""


class IndexingDims(NamedTuple):
    """The dimensions in the attributes of a gather or a scatter, under common names."""

    window: Ints
    dropped: Ints
    index_map: Ints
    operand_batching: Ints
    indices_batching: Ints


class IndexingNames(NamedTuple):
    """The names of the attributes of a gather or a scatter, in the order of `IndexingDims`."""

    window: str
    dropped: str
    index_map: str
    operand_batching: str
    indices_batching: str

    def to_attrs(self, dims: IndexingDims) -> dict[str, Ints]:
        """Return the attributes by name; batching dimensions only if there are any."""
        optional = self.operand_batching, self.indices_batching
        pairs = zip(self, dims, strict=True)
        return {name: chosen for name, chosen in pairs if chosen or name not in optional}


@dataclass(frozen=True, slots=True)
class GatherAttributes(Attributes):
    """The attributes of a gather, with the names of StableHLO."""

    offset_dims: Ints
    collapsed_dims: Ints
    start_index_map: Ints
    operand_batching_dims: Ints = ()
    indices_batching_dims: Ints = ()

    @property
    def dims(self) -> IndexingDims:
        return IndexingDims(
            self.offset_dims,
            self.collapsed_dims,
            self.start_index_map,
            self.operand_batching_dims,
            self.indices_batching_dims,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterAttributes(Attributes):
    """The attributes of a scatter, with the names of StableHLO; `op` combines elements."""

    update_window_dims: Ints
    inserted_window_dims: Ints
    scatter_dims: Ints
    operand_batching_dims: Ints = ()
    indices_batching_dims: Ints = ()
    op: str

    @property
    def dims(self) -> IndexingDims:
        return IndexingDims(
            self.update_window_dims,
            self.inserted_window_dims,
            self.scatter_dims,
            self.operand_batching_dims,
            self.indices_batching_dims,
        )


GATHER = IndexingNames(
    "offset_dims",
    "collapsed_dims",
    "start_index_map",
    "operand_batching_dims",
    "indices_batching_dims",
)
SCATTER = IndexingNames(
    "update_window_dims",
    "inserted_window_dims",
    "scatter_dims",
    "operand_batching_dims",
    "indices_batching_dims",
)


@dataclass(frozen=True, slots=True)
class IndexingLayout:
    """The correspondence of the dimensions of operand, indices and slices."""

    operand: Ints
    """The shape of the operand."""
    window: dict[int, int]
    """The operand dimension of each window dimension of the slices."""
    batch: Ints
    """Batch dimensions of the slices; the i-th corresponds to dimension i of the indices."""
    dropped: Ints
    batching: dict[int, int]
    """The indices dimension of each batching dimension of the operand."""
    index_map: Ints

    @classmethod
    def for_shapes(cls, operand: Ints, slices: int, dims: IndexingDims) -> "IndexingLayout":
        """Return the layout for an operand of shape `operand` and slices of rank `slices`."""
        gone = (*dims.dropped, *dims.operand_batching)
        free = [d for d in range(len(operand)) if d not in gone]
        return cls(
            operand,
            dict(zip(dims.window, free, strict=True)),
            tuple(d for d in range(slices) if d not in dims.window),
            dims.dropped,
            dict(zip(dims.operand_batching, dims.indices_batching, strict=True)),
            dims.index_map,
        )

    def full_window_dims(self, slices: Ints) -> Ints:
        """Return the window dimensions that cover their operand dimension and cannot move."""
        return tuple(
            s
            for s, d in self.window.items()
            if slices[s] == self.operand[d] and d not in self.index_map
        )


def check_layout(
    x: TensorType, indices: TensorType, slices: TensorType, names: IndexingNames, dims: IndexingDims
) -> None:
    """Raise `TypeError` if types and attributes are inconsistent."""
    common_dtype(x, slices)
    INTEGER.check(indices)
    if indices.rank == 0:
        raise TypeError("indices have at least one dimension, that of the index vector; reshape")
    for of, name, chosen in (
        (slices, names.window, dims.window),
        (x, names.dropped, dims.dropped),
        (x, names.operand_batching, dims.operand_batching),
    ):
        if list(check_dims(of, chosen, name)) != sorted(chosen):
            raise TypeError(f"{name}={format_list(chosen)} must be ascending")
    _check_batching(indices, names, dims)
    _check_map(x, indices, names, dims)
    left = x.rank - len(dims.dropped) - len(dims.operand_batching)
    if len(dims.window) != left:
        raise TypeError(
            f"{names.window}={format_list(dims.window)} names "
            f"{count_noun(len(dims.window), 'dimension')} "
            f"for the {left} of {x} that are neither in {names.dropped} nor in "
            f"{names.operand_batching}"
        )
    _check_sizes(IndexingLayout.for_shapes(x.shape, slices.rank, dims), x, indices, slices)


def _check_batching(indices: TensorType, names: IndexingNames, dims: IndexingDims) -> None:
    check_dims(indices, dims.indices_batching, names.indices_batching)
    if len(dims.operand_batching) != len(dims.indices_batching):
        raise TypeError(
            f"{names.operand_batching}={format_list(dims.operand_batching)} and "
            f"{names.indices_batching}={format_list(dims.indices_batching)} must have equal lengths"
        )
    if indices.rank - 1 in dims.indices_batching:
        raise TypeError(
            f"{names.indices_batching}={format_list(dims.indices_batching)} names the last "
            "dimension of "
            f"{indices}, which is the index vector"
        )
    if both := set(dims.dropped) & set(dims.operand_batching):
        raise TypeError(f"dimension {min(both)} is in {names.dropped} and {names.operand_batching}")


def _check_map(
    x: TensorType, indices: TensorType, names: IndexingNames, dims: IndexingDims
) -> None:
    check_dims(x, dims.index_map, names.index_map)
    if len(dims.index_map) != indices.shape[-1]:
        raise TypeError(
            f"{names.index_map}={format_list(dims.index_map)} names "
            f"{count_noun(len(dims.index_map), 'dimension')} for "
            f"index vectors of {indices.shape[-1]} ({indices})"
        )
    if both := set(dims.index_map) & set(dims.operand_batching):
        raise TypeError(
            f"dimension {min(both)} is in {names.index_map} and {names.operand_batching}"
        )


def _check_sizes(
    layout: IndexingLayout, x: TensorType, indices: TensorType, slices: TensorType
) -> None:
    batch = tuple(slices.shape[d] for d in layout.batch)
    if batch != indices.shape[:-1]:
        raise TypeError(
            f"slices {slices} have the batch sizes {format_list(batch)} where {indices} has "
            f"{format_list(indices.shape[:-1])}"
        )
    for s, d in layout.window.items():
        if slices.shape[s] > x.shape[d]:
            raise TypeError(
                f"a window of {slices.shape[s]} (dimension {s} of {slices}) does not fit "
                f"dimension {d} of {x}"
            )
    for d, i in layout.batching.items():
        if x.shape[d] != indices.shape[i]:
            raise TypeError(
                f"batching dimension {d} of {x} and dimension {i} of {indices} differ in size"
            )
    if slices.size and any(x.shape[d] == 0 for d in layout.dropped):
        raise TypeError(f"there is nothing to index in {x}")


def add_factors(
    builder: RuleBuilder,
    layout: IndexingLayout,
    indices: TensorType,
    slices: TensorType,
    dims_of: Callable[..., tuple[DimPerTensor, DimPerTensor]],
    scatter: FactorKind | None,
) -> None:
    """Add the factors of a gather, or of a scatter whose batch factors have the kind `scatter`.

    `place(operand, indices, slices)` returns the dimensions for `RuleBuilder.add`.
    """
    own = {i: d for d, i in layout.batching.items()}
    batch = iter(range(len(layout.batch)))
    for s, size in enumerate(slices.shape):
        if s not in layout.window:
            i = next(batch)
            kind = FactorKind.PASS if scatter is None or i in own else scatter
            builder.add(*dims_of(own.get(i), i, s), size, kind)
            continue
        d = layout.window[s]
        extent = layout.operand[d]
        if size == extent:
            builder.add(*dims_of(d, None, s), extent)
        elif scatter is None and size != 1:
            builder.add(*dims_of(d, None, s), extent, FactorKind.REPLICATE, blocked=True)
        else:
            alone = FactorKind.REPLICATE if scatter else FactorKind.REDUCE
            builder.add(*dims_of(d, None, None), extent, alone)
            builder.add(*dims_of(None, None, s), size, FactorKind.REPLICATE)
    for d in layout.dropped:
        extent = layout.operand[d]
        looked_up = FactorKind.REPLICATE if extent == 1 else FactorKind.REDUCE
        builder.add(*dims_of(d, None, None), extent, FactorKind.PASS if scatter else looked_up)
    builder.add(*dims_of(None, indices.rank - 1, None), indices.shape[-1], FactorKind.REPLICATE)


@dataclass(frozen=True, slots=True)
class OperandPositions:
    """The positions of slice elements in the operand, without full window dimensions.

    `lead` are the indexed dimensions of the operand and `whole` the others; `index` has one array
    per dimension in `lead`. These arrays broadcast to `shape`, which belongs to the dimensions
    `slices` of the slices.
    """

    lead: Ints
    whole: Ints
    index: tuple[Array, ...]
    shape: Ints
    slices: Ints


def resolve_positions(
    layout: IndexingLayout, indices: Array, slices: Ints, clamp: bool
) -> OperandPositions:
    """Resolve index vectors; `clamp` moves out-of-bounds windows back in bounds."""
    vectors = _clamp_to_int64(indices)
    full_dims = layout.full_window_dims(slices)
    led = tuple(s for s in range(len(slices)) if s not in full_dims)
    lead = tuple(
        d for d in range(len(layout.operand)) if d not in [layout.window[s] for s in full_dims]
    )
    along = {d: s for s, d in layout.window.items()}

    def expand(array: Array, dims: Ints) -> Array:
        """Return `array`, whose dimensions are `dims` of the slices, reshaped for broadcasting."""
        sizes = dict(zip(dims, array.shape, strict=True))
        return array.reshape([sizes.get(s, 1) for s in led])

    index = []
    for d in lead:
        if d in layout.batching:
            batch = layout.batch[layout.batching[d]]
            index.append(expand(np.arange(layout.operand[d]), (batch,)))
            continue
        size = slices[along[d]] if d in along else 1
        start: Array = np.zeros((1,) * len(led), np.int64)
        if d in layout.index_map:
            start = expand(vectors[..., layout.index_map.index(d)], layout.batch)
            if clamp:
                start = np.clip(start, 0, max(layout.operand[d] - size, 0))
        if d in along:
            start = start + expand(np.arange(size), (along[d],))
        index.append(start)
    return OperandPositions(
        lead,
        tuple(layout.window[s] for s in full_dims),
        tuple(index),
        tuple(slices[s] for s in led),
        (*led, *full_dims),
    )


def _clamp_to_int64(indices: Array) -> Array:
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(_MAX_INDEX))
    return np.clip(indices.astype(np.int64), -_MAX_INDEX, _MAX_INDEX)
