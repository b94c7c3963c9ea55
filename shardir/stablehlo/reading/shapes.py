"""Reading of rearrangements, lookups and contractions."""

import re
from typing import Any

from shardir import (
    ops as ops,  # declares the operations
    ops as specs,
)
from shardir.ir.module import Value
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import (
    READERS,
    OperationReader,
    UnsupportedOperation,
    register_reader,
)
from shardir.stablehlo.reading.types import first_token

Values = tuple[Value, ...]
Ints = tuple[int, ...]


@register_reader("broadcast_in_dim")
def _broadcast(call: OperationReader) -> Values:
    """Read a broadcast; a permuted one becomes a transpose first, since the IR keeps the order."""
    (x,) = call.take_operands(1)
    dims = call.integers("dims", "broadcast_dimensions")
    if list(dims) != sorted(dims) and len(set(dims)) == len(dims) == x.type.rank:
        perm = tuple(sorted(range(len(dims)), key=dims.__getitem__))
        x, dims = call.emit_step("transpose", x, perm=perm), tuple(sorted(dims))
    return call.emit("broadcast", x, dims=dims)


@register_reader("broadcast")
def _broadcast_in_front(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    count = len(call.integers("sizes", "broadcast_sizes"))
    return call.emit("broadcast", x, dims=tuple(range(count, count + x.type.rank)))


@register_reader("transpose")
def _transpose(call: OperationReader) -> Values:
    return call.emit("transpose", *call.take_operands(1), perm=call.integers("dims", "permutation"))


@register_reader("reverse")
def _reverse(call: OperationReader) -> Values:
    return call.emit("reverse", *call.take_operands(1), dims=call.integers("dims", "dimensions"))


@register_reader("slice")
def _slice(call: OperationReader) -> Values:
    (x,) = call.take_operands(1)
    if call.has("start_indices"):
        starts, strides = call.integers("start_indices"), call.integers("strides")
        return call.emit("slice", x, starts=starts, strides=strides)
    lists = [part for part in call.literals if isinstance(part, records.ListsRecord)]
    if len(lists) != 1:
        raise call.fail("slice lacks its ranges, as [0:8, 4:8:2]")
    starts, strides = (), ()
    for item in call.types.items(lists[0]):
        if not isinstance(item, records.RangeRecord):
            raise call.fail("expected a range such as 0:8", first_token(item))
        numbers = [call.types.integer(token) for token in item.numbers]
        starts, strides = (*starts, numbers[0]), (*strides, (*numbers, 1)[2])
    return call.emit("slice", x, starts=starts, strides=strides)


@register_reader("pad")
def _pad(call: OperationReader) -> Values:
    return call.emit(
        "pad",
        *call.take_operands(2),
        low=call.integers("low", "edge_padding_low"),
        high=call.integers("high", "edge_padding_high"),
        interior=call.integers("interior", "interior_padding"),
    )


@register_reader("concatenate")
def _concatenate(call: OperationReader) -> Values:
    if call.reader.module.keep_opaque and is_concatenation_of_slices(call):
        raise UnsupportedOperation("its operands are slices")
    return call.emit("concatenate", *call.operands, dim=call.integer("dim", "dimension"))


@register_reader("dynamic_slice")
def _dynamic_slice(call: OperationReader) -> Values:
    return call.emit("dynamic_slice", *call.operands)


@register_reader("dynamic_update_slice")
def _dynamic_update_slice(call: OperationReader) -> Values:
    return call.emit("dynamic_update_slice", *call.operands)


@register_reader("convolution")
def _convolution(call: OperationReader) -> Values:
    x, w = call.take_operands(2)
    dims = _convolution_dims(call)
    count = len(dims.partition(",")[0]) - 2
    ones = (1,) * max(count, 0)
    window = dict(call.attrs)
    inner = window.get("window")
    if isinstance(inner, records.DictRecord):
        window |= {str(entry.key): entry.value for entry in inner.entries}

    def numbers(*names: str) -> Ints:
        node = next((window[name] for name in names if name in window), None)
        return ones if node is None else call.types.integers(node)

    padding = next((window[name] for name in ("pad", "padding") if name in window), None)
    flips = next((window[n] for n in ("reverse", "window_reversal") if n in window), None)
    if flips is not None and any(call.types.flags(flips)):
        spatial = dims.partition(",")[2].partition("->")[0]
        turned = [spatial.index(str(i)) for i, flip in enumerate(call.types.flags(flips)) if flip]
        w = call.emit_step("reverse", w, dims=tuple(sorted(turned)))
    return call.emit(
        "convolution",
        x,
        w,
        strides=numbers("stride", "window_strides"),
        padding=((0, 0),) * len(ones) if padding is None else call.types.pairs(padding),
        lhs_dilation=numbers("lhs_dilate", "lhs_dilation"),
        rhs_dilation=numbers("rhs_dilate", "rhs_dilation"),
        dims=dims,
        groups=call.integer("feature_group_count", default=1),
        batch_groups=call.integer("batch_group_count", default=1),
    )


def _convolution_dims(call: OperationReader) -> str:
    """Return `b01f,01io->b01f` for `[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`."""
    node = call.attr("dim_numbers", "dimension_numbers")
    if isinstance(node, records.ListsRecord):
        terms = ["".join(map(str, part.items)) for part in node.lists]
    else:
        terms = [re.sub(r"[\s,]", "", part) for part in re.findall(r"\[([^\]]*)\]", str(node))]
    if len(terms) != 3:
        raise call.fail("the dimensions of a convolution are three lists", first_token(node))
    return f"{terms[0]},{terms[1]}->{terms[2]}"


def is_concatenation_of_slices(call: OperationReader) -> bool:
    """Return whether all operands are slices, or parts of one value including a slice.

    Shardy treats such a concatenation as a permutation; others need replication.
    """
    makers = [call.reader.makers.get(value) for value in call.operands]
    slices = [op if op is not None and op.spec is specs.slice_ else None for op in makers]
    sources = {op.operands[0] if op else x for op, x in zip(slices, call.operands, strict=True)}
    return all(slices) or (any(slices) and len(sources) == 1)


def move_index_vectors_last(call: OperationReader, indices: Value, dim: int) -> Value:
    """Return indices with their vectors last; a vector of size 1 may be implicit."""
    rank = indices.type.rank
    if dim == rank:
        return call.emit_step(
            "reshape", indices, result=indices.type.with_shape((*indices.type.shape, 1))
        )
    if dim != rank - 1:
        raise UnsupportedOperation("its index vectors are not in the last dimension")
    return indices


@register_reader("gather")
def _gather(call: OperationReader) -> Values:
    x, indices = call.take_operands(2)
    numbers = gather_dims(call)
    vector = numbers.pop("index_vector_dim")
    sizes = call.integers("slice_sizes")
    gone = (*numbers["collapsed_dims"], *numbers.get("operand_batching_dims", ()))
    if any(d < len(sizes) and sizes[d] != 1 for d in gone):
        raise UnsupportedOperation("it collapses dimensions that have more than one element")
    return call.emit("gather", x, move_index_vectors_last(call, indices, vector), **numbers)


def gather_dims(call: OperationReader) -> dict[str, Any]:
    """Return the dimension numbers of a gather, and the dimension of the index vectors."""
    offset, collapsed, batch, of_indices, index_map, vector = call.struct(
        "dimension_numbers",
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "start_indices_batching_dims",
        "start_index_map",
        "index_vector_dim",
    )
    return {
        "offset_dims": offset,
        "collapsed_dims": collapsed,
        "start_index_map": index_map,
        "index_vector_dim": (*vector, 0)[0],
        **_batching(batch, of_indices),
    }


def _batching(batch: Ints, of_indices: Ints) -> dict[str, Any]:
    if not batch and not of_indices:
        return {}
    return {"operand_batching_dims": batch, "indices_batching_dims": of_indices}


def scatter_dims(call: OperationReader) -> tuple[dict[str, Any], int]:
    """Return the dimension numbers of a scatter, and the dimension of the index vectors."""
    window, inserted, batch, of_indices, dims, vector = call.struct(
        "scatter_dimension_numbers",
        "update_window_dims",
        "inserted_window_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
        "scatter_dims_to_operand_dims",
        "index_vector_dim",
    )
    return {
        "update_window_dims": window,
        "inserted_window_dims": inserted,
        "scatter_dims": dims,
        **_batching(batch, of_indices),
    }, (*vector, 0)[0]


def _top_k(call: OperationReader) -> Values:
    return call.emit("top_k", *call.take_operands(1))


READERS["chlo.top_k"] = _top_k
