"""Reading of selections of the largest elements, and of products of groups of rows."""

from string import ascii_lowercase

from shardir import ops
from shardir.ir.module import Value
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import (
    OperationReader,
    UnsupportedOperation,
    register_reader,
    rename_results,
)
from shardir.stablehlo.reading.expansions.arithmetic import Tensor, full, tensors_of

Values = tuple[Value, ...]


def read_approximate_top_k(call: OperationReader) -> Values:
    """Read ApproxTopK as the exact selection, as XLA does on CPUs."""
    if len(call.operands) != 4:
        raise UnsupportedOperation("it selects from several tensors")
    x, numbers = tensors_of(call, call.operands[:2])
    config = call.attrs.get("mhlo.backend_config")
    entries = config.entries if isinstance(config, records.DictRecord) else ()
    dims = [entry.value for entry in entries if entry.key.strip('"') == "reduction_dim"]
    if len(dims) != 1:
        raise UnsupportedOperation("its configuration has no 'reduction_dim'")
    dim, last = call.types.integer(dims[0]), x.type.rank - 1
    maker = call.reader.maker_of(numbers.value)
    if maker is None or maker.spec is not ops.iota or maker.attrs["dim"] != dim:
        raise UnsupportedOperation("its second operand does not number the elements")
    comparison = str(call.attr("called_computations"))
    if "_gt_" not in comparison and "_lt_" not in comparison:
        raise UnsupportedOperation("it compares by an unknown computation")
    is_largest = "_gt_" in comparison
    perm = tuple(d for d in range(last + 1) if d != dim) + (dim,)
    back = tuple(perm.index(d) for d in range(last + 1))
    rows = x.apply("transpose", perm=perm)
    count = call.results[0].shape[dim]
    shape = (*rows.type.shape[:-1], count)
    types = [rows.type.with_shape(shape), rows.type.with_shape(shape).with_dtype("i32")]
    values = tuple(Value(type, call.reader.names.fresh("")) for type in types)
    source = rows if is_largest else -rows
    call.reader.append("top_k", (source.value,), values, {}, (), call.written.loc)
    best, places = tensors_of(call, values)
    found = [best if is_largest else -best, places]
    return rename_results(call, [y.apply("transpose", perm=back).value for y in found])


@register_reader("chlo.ragged_dot")
def _ragged_dot(call: OperationReader) -> Values:
    """Read a product whose groups of rows meet different matrices, with rows of other groups set
    to zero.
    """
    x, y, sizes = tensors_of(call, call.take_operands(3))
    left_batch, right_batch, left, right, ragged, groups = call.struct(
        "ragged_dot_dimension_numbers",
        "lhs_batching_dimensions",
        "rhs_batching_dimensions",
        "lhs_contracting_dimensions",
        "rhs_contracting_dimensions",
        "lhs_ragged_dimensions",
        "rhs_group_dimensions",
    )
    if len(ragged) != 1 or sizes.type.rank != 1 or left_batch or right_batch:
        raise UnsupportedOperation("it has batch dimensions")
    parts = _mask_groups(x, sizes, ragged[0])
    letters = iter(ascii_lowercase)
    group = next(letters)
    names = {d: next(letters) for d in range(x.type.rank)}
    partner = dict(zip(right, left, strict=True))
    others = {
        d: group if d in groups else names[partner[d]] if d in partner else next(letters)
        for d in range(y.type.rank)
    }
    output = [] if groups else [group]
    output += [names[d] for d in names if d not in left]
    output += [others[d] for d in others if d not in right and d not in groups]
    terms = group + "".join(names.values()), "".join(others.values()), "".join(output)
    return call.emit("dot", parts.value, y.value, dims="{},{}->{}".format(*terms))


def _mask_groups(x: Tensor, sizes: Tensor, dim: int) -> Tensor:
    """Return, per group in a leading dimension, `x` with zeros outside of the group."""
    shape = (sizes.type.shape[0], *x.type.shape)
    ends = sizes.apply("cumsum", dim=0, reverse=False)
    starts = ends - sizes
    repeated = x.broadcast(shape, range(1, len(shape)))
    number = repeated.iota(dim + 1, sizes.type.dtype)
    is_inside = (number >= starts.broadcast(shape, (0,))) & (number < ends.broadcast(shape, (0,)))
    return is_inside.where(repeated, full(x.emit, 0, repeated.type))
