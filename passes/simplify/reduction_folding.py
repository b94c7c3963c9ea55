"""Folding of reductions into the operations that make their operands.

A rule appends the operations that compute the reduced value and returns it, or `None` if it does
not apply.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from shardir import ops
from shardir.ir.builder import Builder
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.module import Block, Op, Value
from shardir.ir.types import INTEGERS
from shardir.ops.contraction.convolution_factors import parse_dims
from shardir.ops.indexing.layout import (
    SCATTER,
    ScatterAttributes,
)
from shardir.passes.simplify.view_folding import views
from shardir.passes.simplify.view_folding.views import View, ViewPiece, merge_pieces

FOLDED_REDUCTIONS = (ops.sum_, ops.prod, ops.max_, ops.min_, ops.any_, ops.all_)
REASSOCIABLE_TYPES = ("f32", "f64", "c64", "c128", *INTEGERS)
"""Element types whose sums have range and precision for more terms.

Operands of contractions may be added up before the contraction in these types, and terms and
factors of results handled afterwards. In other types partial sums may overflow where the complete
sum does not.
"""
SingleUseMaker = Callable[[Value], Op | None]
"""Returns the operation that defines a value if the value has no other use."""


def fold_reduction(
    b: Builder, makers: SingleUseMaker, value: Value, kind: str, dims: Sequence[int]
) -> Value | None:
    """Return `value` reduced over `dims` by the operation that makes it; `None` if impossible."""
    maker = makers(value)
    if maker is None:
        return None
    if maker.name == kind:
        return _reduction(b, makers, maker, dims)
    rule = _RULES.get(maker.name) if kind == "sum" else None
    return rule(b, makers, maker, dims) if rule else None


def _shape_without(value: Value, dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(value.type.shape) if d not in dims)


def _reduction(b: Builder, makers: SingleUseMaker, maker: Op, dims: Sequence[int]) -> Value:
    (x,) = maker.operands
    remaining_dims = [d for d in range(x.type.rank) if d not in maker.attrs["dims"]]
    every = tuple(sorted((*maker.attrs["dims"], *(remaining_dims[d] for d in dims))))
    result = fold_reduction(b, makers, x, maker.name, every)
    if result is None:
        result = b.emit(maker.spec, x, dims=every)
    return result


def _dot(b: Builder, makers: SingleUseMaker, maker: Op, dims: Sequence[int]) -> Value | None:
    """Contract a factor that both operands have; sum an operand over a factor that only it has."""
    inputs, _, output = maker.attrs["dims"].partition("->")
    terms = inputs.split(",")
    operands = list(maker.operands)
    for d in dims:
        having = [i for i in (0, 1) if output[d] in terms[i]]
        if len(having) == 2:
            continue
        (i,) = having
        dtype = operands[i].type.dtype
        # The products may be added up in a wider type than that of the operands.
        if dtype not in REASSOCIABLE_TYPES or dtype != maker.result.type.dtype:
            return None
    for i, term in enumerate(terms):
        own = [output[d] for d in dims if output[d] in term and output[d] not in terms[1 - i]]
        if own:
            operands[i] = b.sum(operands[i], dims=tuple(sorted(map(term.index, own))))
            terms[i] = "".join(letter for letter in term if letter not in own)
    remaining_letters = "".join(letter for d, letter in enumerate(output) if d not in dims)
    type = maker.result.type.with_shape(_shape_without(maker.result, dims))
    result: Value = b.dot(*operands, dims=f"{','.join(terms)}->{remaining_letters}", result=type)
    return result


def _product(b: Builder, makers: SingleUseMaker, maker: Op, dims: Sequence[int]) -> Value | None:
    """Multiply by a factor that is constant along some of the dimensions after the sum.

    Integer quotients are rounded, so they are excluded.
    """
    dtype = maker.result.type.dtype
    if dtype not in REASSOCIABLE_TYPES or (maker.spec is ops.div and dtype in INTEGERS):
        return None
    x, y = maker.operands
    pairs = ((x, y), (y, x)) if maker.spec is ops.mul else ((x, y),)
    for one, other in pairs:
        repeat = makers(other)
        if repeat is None or repeat.spec is not ops.broadcast:
            continue
        source = dict(zip(repeat.attrs["dims"], repeat.operands[0].type.shape, strict=True))
        shape = maker.result.type.shape
        along = [d for d in dims if source.get(d, 1) != shape[d]]
        maker_of_one = makers(one)
        if not along or maker_of_one is None or maker_of_one.spec not in (ops.dot, ops.sum_):
            continue
        less = fold_reduction(b, makers, one, "sum", along)
        if less is None:
            continue
        factor = _broadcast_without(b, repeat, along)
        b.why = maker.why
        product: Value = b.emit(maker.spec, *((less, factor) if one is x else (factor, less)))
        rest = [d for d in range(len(shape)) if d not in along]
        left = tuple(rest.index(d) for d in dims if d not in along)
        return b.sum(product, dims=left) if left else product
    return None


def _broadcast_without(b: Builder, repeat: Op, along: Sequence[int]) -> Value:
    """Return a broadcast without some dimensions of its result."""
    (x,) = repeat.operands
    position_of: dict[int, int] = {}
    for d in range(repeat.result.type.rank):
        if d not in along:
            position_of[d] = len(position_of)
    remaining = [i for i, d in enumerate(repeat.attrs["dims"]) if d in position_of]
    if len(remaining) < x.type.rank:
        x = b.reshape(x, result=x.type.with_shape([x.type.shape[i] for i in remaining]))
    dims = tuple(position_of[repeat.attrs["dims"][i]] for i in remaining)
    type = repeat.result.type.with_shape(_shape_without(repeat.result, along))
    result: Value = x if x.type == type else b.broadcast(x, dims=dims, result=type)
    return result


def _sum_or_difference(
    b: Builder, makers: SingleUseMaker, maker: Op, dims: Sequence[int]
) -> Value | None:
    """Return the sum of a sum or difference if it can be folded into one of the terms."""
    if maker.result.type.dtype not in REASSOCIABLE_TYPES:
        return None
    folded = [fold_reduction(b, makers, value, "sum", dims) for value in maker.operands]
    if not any(folded):
        return None
    parts = [
        b.sum(value, dims=tuple(dims)) if less is None else less
        for value, less in zip(maker.operands, folded, strict=True)
    ]
    b.why = maker.why
    result: Value = b.emit(maker.spec, *parts)
    return result


def _transpose(b: Builder, makers: SingleUseMaker, maker: Op, dims: Sequence[int]) -> Value | None:
    perm = maker.attrs["perm"]
    gone = sorted(perm[d] for d in dims)
    less = fold_reduction(b, makers, maker.operands[0], "sum", gone)
    if less is None:
        return None
    remaining_dims = [d for d in range(len(perm)) if d not in gone]
    result: Value = b.transpose(
        less, perm=tuple(remaining_dims.index(d) for d in perm if d not in gone)
    )
    return result


def _has_reassociable_range(dtype: str) -> bool:
    """Return whether numbers of a dtype wrap, or have the range of f32 at least and are not small
    floats."""
    if dtype in REASSOCIABLE_TYPES:
        return True
    info, least = DTYPE_INFO[dtype], DTYPE_INFO["f32"].max_exponent
    return not info.is_small and info.max_exponent >= least


def _scatter(b: Builder, makers: SingleUseMaker, maker: Op, dims: Sequence[int]) -> Value | None:
    """Fold the sum over a batch of scatter-adds into one scatter-add."""
    read = ScatterAttributes.of(maker).dims
    pairs = dict(zip(read.operand_batching, read.indices_batching, strict=True))
    x, indices, updates = maker.operands
    if maker.attrs["op"] != "add" or any(d not in pairs for d in dims):
        return None
    # A scatter rounds after each term in any case, so that only the range matters.
    if not _has_reassociable_range(x.type.dtype):
        return None
    position_of = {d: i for i, d in enumerate(d for d in range(x.type.rank) if d not in dims)}
    left = {position_of[d]: i for d, i in pairs.items() if d not in dims}
    attrs = {
        **maker.attrs,
        SCATTER.dropped: tuple(position_of[d] for d in read.dropped),
        SCATTER.index_map: tuple(position_of[d] for d in read.index_map),
        SCATTER.operand_batching: tuple(left),
        SCATTER.indices_batching: tuple(left.values()),
    }
    total = b.sum(x, dims=tuple(dims))
    result: Value = b.scatter(total, indices, updates, **attrs)
    return result


def _convolution_dims(maker: Op) -> tuple[int, int, int, int]:
    """Return the filter's input and output dimension, the result's feature dimension, and the group
    count of a convolution."""
    groups = maker.attrs.get("groups", 1)
    _, by, to = parse_dims(maker.attrs["dims"])
    return by.batch_or_inputs, by.features_or_outputs, to.features_or_outputs, groups


def fold_sum_over_groups(b: Builder, maker: Op, gone: Sequence[ViewPiece]) -> Value | None:
    """Fold the sum over the groups of a convolution: the features of a group become input
    features."""
    convolution_dims = _convolution_dims(maker) if maker.spec is ops.convolution else None
    if convolution_dims is None or len(gone) != 1:
        return None
    inside, outside, dim, groups = convolution_dims
    (piece,) = gone
    x, w = maker.operands
    size = maker.result.type.shape[dim] // groups
    if piece != ViewPiece(dim, size, groups):
        return None
    # The filter [inputs, groups * outputs] as [groups * inputs, outputs].
    dims = list(views.identity_dims(w.type.shape))
    inputs = ViewPiece(inside, 1, w.type.shape[inside])
    dims[inside] = merge_pieces([ViewPiece(outside, size, groups), inputs])
    dims[outside] = merge_pieces([ViewPiece(outside, 1, size)])
    turned = views.materialize_view(b, View(w, tuple(dims)))
    shape = list(maker.result.type.shape)
    shape[dim] = size
    attrs = {**maker.attrs, "groups": 1}
    result: Value = b.convolution(x, turned, result=maker.result.type.with_shape(shape), **attrs)
    return result


def fold_sum_into_scan(b: Builder, scan: Op, result: Value, dims: Sequence[int]) -> Op | None:
    """Return a scan that stacks sums instead of the values summed afterwards; its other results are
    the same."""
    position = scan.results.index(result)
    carries, (body,) = scan.attrs["carries"], scan.blocks
    if position < carries or 0 in dims:
        return None
    inner = Builder(b.names, scan.loc)
    inner.why = "summed as it is made"
    less = inner.sum(body.returns[position], dims=tuple(d - 1 for d in dims))
    returns = (*body.returns[:position], less, *body.returns[position + 1 :])
    block = Block(body.params, (*body.ops, *inner.ops), returns)
    type = result.type.with_shape(_shape_without(result, dims))
    new_value = Value(type, b.names.fresh(result.name))
    results = (*scan.results[:position], new_value, *scan.results[position + 1 :])
    return replace(scan, results=results, blocks=(block,))


ReductionFoldingRule = Callable[[Builder, SingleUseMaker, Op, Sequence[int]], Value | None]
_RULES: dict[str, ReductionFoldingRule] = {
    "dot": _dot,
    "add": _sum_or_difference,
    "sub": _sum_or_difference,
    "transpose": _transpose,
    "mul": _product,
    "div": _product,
    "scatter": _scatter,
}
