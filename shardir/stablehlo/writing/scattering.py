"""Writing of scatters.

A scatter of this IR drops the elements of a window that are out of bounds; one of XLA drops the
whole window. With `for_xla`, the text computes the same in XLA: the dimensions of a window that
can be partly out of bounds become dimensions of the indices.
"""

from dataclasses import dataclass, replace

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Op
from shardir.ir.operation import OPS
from shardir.ir.types import TensorType
from shardir.stablehlo.writing.attributes import (
    format_array,
    format_boolean,
    format_int_list,
    format_integer,
)
from shardir.stablehlo.writing.regions import combination_region
from shardir.stablehlo.writing.writer import WRITERS, MlirWriter, TypedName

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Scatter:
    """The operands of a scatter, and the roles of their dimensions."""

    operand: TypedName
    indices: TypedName
    updates: TypedName
    window: Dims
    """The window dimensions of the updates."""
    inserted: Dims
    """The operand dimensions that the window lacks, apart from batching dimensions."""
    operand_batching: Dims
    indices_batching: Dims
    index_map: Dims
    """The operand dimension of each component of an index."""

    @property
    def window_of(self) -> dict[int, int]:
        """The window dimension of the updates for each operand dimension that has one."""
        gone = (*self.inserted, *self.operand_batching)
        windowed = [dim for dim in range(self.operand[1].rank) if dim not in gone]
        return dict(zip(windowed, self.window, strict=True))


@WRITERS.rule(OPS["scatter"])
def _scatter(w: MlirWriter, op: Op) -> None:
    operand, indices, updates = map(w.typed_name, op.operands)
    scatter = Scatter(
        operand,
        indices,
        updates,
        op.attrs["update_window_dims"],
        op.attrs["inserted_window_dims"],
        op.attrs.get("operand_batching_dims", ()),
        op.attrs.get("indices_batching_dims", ()),
        op.attrs["scatter_dims"],
    )
    if w.for_xla:
        if not updates[1].size:
            w.alias(op.result, operand[0])
            return
        scatter = _index_elements(w, _index_something(w, scatter))
    _write_scatter(w, op, scatter)


def _write_scatter(w: MlirWriter, op: Op, scatter: Scatter) -> None:
    type = scatter.operand[1]
    numbers = {
        "update_window_dims": format_int_list(scatter.window),
        "inserted_window_dims": format_int_list(scatter.inserted),
        "input_batching_dims": format_int_list(scatter.operand_batching),
        "scatter_indices_batching_dims": format_int_list(scatter.indices_batching),
        "scatter_dims_to_operand_dims": format_int_list(scatter.index_map),
        "index_vector_dim": str(scatter.indices[1].rank - 1),
    }
    fields = ", ".join(f"{key} = {value}" for key, value in numbers.items())
    attrs = {
        "scatter_dimension_numbers": f"#stablehlo.scatter<{fields}>",
        "indices_are_sorted": format_boolean(False),
        "unique_indices": format_boolean(False),
    }
    combine, scalar = str(op.attrs["op"]), type.with_shape(())
    region = (
        w.small_region([scalar, scalar], lambda old, new: [new])
        if combine == "set"
        else combination_region(w, combine, scalar.dtype)
    )
    operands = [scatter.operand, scatter.indices, scatter.updates]
    if type == op.result.type:
        w.write_op(op, "stablehlo.scatter", attrs, operands=operands, regions=[region])
        return
    made = w.write_step("stablehlo.scatter", operands, type, attrs, [region])
    w.write_op(op, "stablehlo.reshape", operands=[made])


def _index_something(w: MlirWriter, scatter: Scatter) -> Scatter:
    """Return the scatter with an index of 0 if its index vector is empty, which XLA simplifies to
    a wrong program.
    """
    if scatter.index_map:
        return scatter
    type = scatter.operand[1]
    free = [dim for dim in range(type.rank) if dim not in scatter.operand_batching]
    if not free:  # All elements have their own index: add a dimension of size 1.
        longer = type.with_shape((*type.shape, 1))
        operand = w.write_step("stablehlo.reshape", [scatter.operand], longer)
        inserted = (*scatter.inserted, type.rank)
        scatter, free = replace(scatter, operand=operand, inserted=inserted), [type.rank]
    shape = (*scatter.indices[1].shape[:-1], 1)
    zeros = w.constant(0, scatter.indices[1].with_shape(shape))
    return replace(scatter, indices=zeros, index_map=(free[0],))


def _index_elements(w: MlirWriter, scatter: Scatter) -> Scatter:
    """Return the scatter with an index for each element of windows that can be partly out of
    bounds."""
    updates = scatter.updates[1]
    moved = {
        scatter.window_of[dim]: component
        for component, dim in enumerate(scatter.index_map)
        if dim in scatter.window_of and updates.shape[scatter.window_of[dim]] > 1
    }
    """The component of the index of each such window dimension of the updates."""
    if not moved:
        return scatter
    batch = [dim for dim in range(updates.rank) if dim not in scatter.window]
    kept = [dim for dim in range(updates.rank) if dim in batch or dim in moved]
    new = {dim: number for number, dim in enumerate(kept)}
    indices = _widen(w, scatter.indices)
    count = indices[1].shape[-1]
    shape = (*(updates.shape[dim] for dim in kept), count)
    type = indices[1].with_shape(shape)
    places = format_array([*(new[dim] for dim in batch), len(kept)])
    indices = w.write_step(
        "stablehlo.broadcast_in_dim", [indices], type, {"broadcast_dimensions": places}
    )
    for dim, component in moved.items():
        offset = _offsets(w, type, new[dim], component)
        indices = w.write_step("stablehlo.add", [indices, offset], type)
    return replace(
        scatter,
        indices=indices,
        window=tuple(dim for dim in scatter.window if dim not in moved),
        inserted=tuple(
            sorted({*scatter.inserted, *(scatter.index_map[i] for i in moved.values())})
        ),
        indices_batching=tuple(new[batch[dim]] for dim in scatter.indices_batching),
    )


def _widen(w: MlirWriter, indices: TypedName) -> TypedName:
    """Return indices in a type in which the size of a window can be added to them."""
    type = indices[1]
    if type.dtype == "u64":
        # A sum with the greatest index of 64 bits is out of bounds too.
        indices = w.write_step("stablehlo.minimum", [indices, w.constant(2**62, type)], type)
    wide = type.with_dtype("i64" if type.dtype in ("u32", "u64", "i64") else "i32")
    return indices if type == wide else w.write_step("stablehlo.convert", [indices], wide)


def _offsets(w: MlirWriter, type: TensorType, dim: int, component: int) -> TypedName:
    """Return the positions along a dimension in one component of the indices, 0 in the others."""
    along = {"iota_dimension": format_integer(dim)}
    positions = w.write_step("stablehlo.iota", [], type, along)
    if type.shape[-1] == 1:
        return positions
    last = {"iota_dimension": format_integer(type.rank - 1)}
    components = w.write_step("stablehlo.iota", [], type, last)
    equal = {"comparison_direction": "#stablehlo<comparison_direction EQ>"}
    chosen = w.write_step(
        "stablehlo.compare",
        [components, w.constant(component, type)],
        type.with_dtype("bool"),
        equal,
    )
    return w.write_step("stablehlo.select", [chosen, positions, w.constant(0, type)], type)
