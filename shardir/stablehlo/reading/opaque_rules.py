"""Factor rules of opaque operations, so that shardings propagate through them.

Each rule equals that of OpenXLA Shardy's registry of sharding rules; a rule that the text states
(`sdy.sharding_rule`) takes precedence.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lark import Token

from shardir import ops as ops  # declares the operations
from shardir.ir.module import Op, Value
from shardir.ir.operation import OPS, Attr, Symbol
from shardir.ir.types import TensorType
from shardir.op_rules.factor_rule_text import parse_rule
from shardir.op_rules.factors import (
    FactorKind,
    FactorRule,
    RuleBuilder,
    TensorFactors,
    einsum_rule,
)
from shardir.stablehlo.reading.call import OperationReader, UnsupportedOperation
from shardir.stablehlo.reading.formulas import combination_of, region_formulas
from shardir.stablehlo.reading.products import contraction_dims
from shardir.stablehlo.reading.records import DictRecord
from shardir.stablehlo.reading.shapes import gather_dims, is_concatenation_of_slices, scatter_dims
from shardir.stablehlo.reading.stated_rules import find_stated_rule_fault

Shapes = Sequence[tuple[int, ...]]
Rule = Callable[[OperationReader, Shapes, Shapes], FactorRule | None]
SHARDING_RULE_ATTRIBUTE = "sdy.sharding_rule"
SHARDY_RULES: dict[str, Rule] = {}
REPLICATE = FactorKind.REPLICATE


def check_stated_rule(call: OperationReader) -> None:
    """Raise `ParseError` if the operation states a factor rule that it cannot have."""
    stated = call.attrs.get(SHARDING_RULE_ATTRIBUTE)
    if stated is None:
        return
    if not isinstance(stated, Token):
        raise call.fail(f"{SHARDING_RULE_ATTRIBUTE} is not a factor rule, #sdy.op_sharding_rule<>")
    signature = call.written.signature
    # The signature lists the operands in the order of the rule, also if the text pairs them.
    operands = (
        [call.types.type(token) for token in signature.operands]
        if signature is not None and signature.operands is not None
        else [value.type for value in call.all_operands]
    )
    fault = find_stated_rule_fault(
        str(stated), [type.rank for type in operands], [type.rank for type in call.results]
    )
    if fault:
        raise call.fail(fault, stated)


def factor_rule_of(
    call: OperationReader, target: str, operands: Sequence[Value]
) -> FactorRule | None:
    """Return the factor rule of an operation; `target` is the target of a custom call.

    `operands` are in text order, even if the text groups them in pairs.
    """
    stated = call.attrs.get(SHARDING_RULE_ATTRIBUTE)
    if isinstance(stated, Token):
        return parse_rule(str(stated))
    rule = SHARDY_RULES.get(f"@{target}" if target else call.name)
    xs = [value.type.shape for value in operands]
    ys = [type.shape for type in call.results]
    if rule is None or not xs or not ys:
        return None
    try:
        return rule(call, xs, ys)
    except (
        IndexError,
        TypeError,
        ValueError,
        UnsupportedOperation,
    ):  # The operation has unexpected ranks.
        return None


def _register(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        SHARDY_RULES.update((n if n[0] == "@" else f"stablehlo.{n}", rule) for n in names)
        return rule

    return register


def _same_dim(dim: int, xs: Shapes, ys: Shapes) -> tuple[list[int | None], list[int | None]]:
    """Return the same dimension of every tensor that is not a scalar."""
    return [dim if x else None for x in xs], [dim if y else None for y in ys]


def _none(shapes: Shapes) -> list[int | None]:
    return [None] * len(shapes)


def _resize_rule(dims: Sequence[int], xs: Shapes, ys: Shapes) -> FactorRule:
    """Return a rule in which `dims` need replication and may change their size."""
    builder = RuleBuilder(xs, ys).add_pointwise(xs[0], skip=dims)
    for dim in dict.fromkeys(dims):
        before, after = _same_dim(dim, xs, ys)
        builder.add(before, _none(ys), xs[0][dim], REPLICATE)
        builder.add(_none(xs), after, ys[0][dim], REPLICATE)
    return builder.build()


@_register("all_gather")
def _all_gather(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    return _resize_rule([call.integer("all_gather_dim")], xs, ys)


@_register("reduce_scatter")
def _reduce_scatter(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    return _resize_rule([call.integer("scatter_dimension")], xs, ys)


@_register("all_to_all")
def _all_to_all(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    return _resize_rule([call.integer("split_dimension"), call.integer("concat_dimension")], xs, ys)


@_register("batch_norm_inference")
def _batch_norm(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    feature = call.integer("feature_index")
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(xs[0]):
        others = [0 if dim == feature else None] * (len(xs) - 1)
        builder.add([dim, *others], [dim], size)
    return builder.build()


@_register("bitcast_convert")
def _bitcast(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    small, large = sorted((xs[0], ys[0]), key=len)
    builder = RuleBuilder(xs, ys).add_pointwise(small)
    if len(small) < len(large):
        last = len(small)
        of_x = last if len(xs[0]) > last else None
        builder.add([of_x], [last if of_x is None else None], large[last], REPLICATE)
    return builder.build()


def _replicate_last_rule(last: int, xs: Shapes, ys: Shapes) -> FactorRule:
    """Return a pointwise rule in which the last dimensions need replication."""
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(xs[0]):
        builder.add(
            *_same_dim(dim, xs, ys),
            size,
            REPLICATE if dim >= len(xs[0]) - last else FactorKind.PASS,
        )
    return builder.build()


@_register("cholesky")
def _cholesky(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    return _replicate_last_rule(2, xs, ys)


@_register("dot_general", "dot")
def _dot(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    return einsum_rule(contraction_dims(call, *xs), xs)


@_register("fft")
def _fft(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    first = len(xs[0]) - len(call.integers("length", "fft_length"))
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(xs[0]):
        kind = REPLICATE if dim >= first else FactorKind.PASS
        builder.add([dim], [dim], size, kind, blocked=size != ys[0][dim])
    return builder.build()


@_register("@X64Combine")
def _x64_combine(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    """Return a pointwise rule, with replication for the state of a random generator."""
    if not call.reader.is_read_by(call.names, "stablehlo.rng_bit_generator"):
        return RuleBuilder(xs, ys).add_pointwise(ys[0]).build()
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(ys[0]):
        builder.add(*_same_dim(dim, xs, ys), size, REPLICATE, blocked=True)
    return builder.build()


@_register("@Eigh")
def _eigh(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    rank = len(xs[0])
    builder = RuleBuilder(xs, ys).add_pointwise(xs[0][:-2])
    builder.add([rank - 2], [rank - 2, None], xs[0][-2])
    return builder.add([rank - 1], [rank - 1, rank - 2], xs[0][-1]).build()


@_register("@Qr", "@QrDecompositionBlock")
def _qr(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    rank = len(xs[0])
    builder = RuleBuilder(xs, ys).add_pointwise(xs[0][:-2])
    for dim in (rank - 2, rank - 1):
        builder.add([dim], [dim, None], xs[0][dim], REPLICATE)
    return builder.add([None], [None, len(ys[1]) - 1], ys[1][-1], REPLICATE).build()


@_register("@ProductOfElementaryHouseholderReflectors")
def _householder(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    rank = len(xs[0])
    builder = RuleBuilder(xs, ys).add_pointwise(xs[0][:-2])
    for dim in (rank - 2, rank - 1):
        builder.add([dim, None], [dim], xs[0][dim], REPLICATE)
    return builder.add([None, len(xs[1]) - 1], [None], xs[1][-1], REPLICATE).build()


def _reduction_dim(call: OperationReader) -> int | None:
    """Return `reduction_dim`, an entry of a dictionary or of its text."""
    config = call.attrs.get("mhlo.backend_config")
    for entry in config.entries if isinstance(config, DictRecord) else ():
        if entry.key == "reduction_dim":
            return call.types.integer(entry.value)
    text = str(call.attrs.get("backend_config", ""))
    match = re.search(r'reduction_dim(?:\\22|")?\s*[:=]\s*(\d{1,9})', text)
    return int(match[1]) if match else None


@_register("@ApproxTopK", "@PartialReduce")
def _approximate_top_k(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule | None:
    dim = _reduction_dim(call)
    if dim is None:
        return None
    builder = RuleBuilder(xs, ys).add_pointwise(xs[0], skip=[dim])
    before, after = _same_dim(dim, xs, ys)
    builder.add(before, _none(ys), xs[0][dim])
    return builder.add(_none(xs), after, ys[0][dim], REPLICATE, blocked=True).build()


@_register("broadcast_in_dim")
def _broadcast(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    """Return the rule; broadcast dimensions have separate factors in operand and result."""
    dims = call.integers("dims", "broadcast_dimensions")
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(ys[0]):
        before = dims.index(dim) if dim in dims else None
        if before is not None and xs[0][before] != size:
            builder.add([before], [None], xs[0][before])
            before = None
        builder.add([before], [dim], size)
    return builder.build()


@_register("concatenate")
def _concatenate(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    along = call.integer("dim", "dimension")
    kind = FactorKind.PERMUTE if is_concatenation_of_slices(call) else REPLICATE
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(ys[0]):
        builder.add(*_same_dim(dim, xs, ys), size, kind if dim == along else FactorKind.PASS)
    return builder.build()


@_register("reduce")
def _reduce(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    dims = call.integers("dimensions")
    shape = max(xs, key=len)
    builder, result_dim = RuleBuilder(xs, ys), 0
    for dim, size in enumerate(shape):
        before, after = [dim if x == shape else None for x in xs], _none(ys)
        if dim not in dims:
            after, result_dim = [result_dim] * len(ys), result_dim + 1
        builder.add(before, after, size, FactorKind.REDUCE if dim in dims else FactorKind.PASS)
    return builder.build()


@_register("reduce_window")
def _reduce_window(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    ones = (1,) * len(ys[0])
    wide = [
        call.integers("window_dimensions"),
        call.integers("window_strides", default=ones),
    ]
    padding = call.pairs_of("padding", ((0, 0),) * len(ones))
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(ys[0]):
        plain = all(numbers[dim] == 1 for numbers in wide) and padding[dim] == (0, 0)
        builder.add(*_same_dim(dim, xs, ys), size, FactorKind.PASS if plain else FactorKind.PERMUTE)
    return builder.build()


@_register("rng_bit_generator")
def _random_bits(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(xs[0]):
        builder.add([dim], [dim, None], size, REPLICATE, blocked=True)
    for dim, size in enumerate(ys[1]):
        builder.add([None], [None, dim], size)
    return builder.build()


@_register("sort")
def _sort(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    along = call.integer("dimension", default=-1) % len(xs[0])
    lonely = all(size == 1 for dim, size in enumerate(xs[0]) if dim != along)
    builder = RuleBuilder(xs, ys)
    for dim, size in enumerate(xs[0]):
        sorts = dim == along
        builder.add(
            *_same_dim(dim, xs, ys),
            size,
            REPLICATE if sorts else FactorKind.PASS,
            blocked=sorts and lonely,
        )
    return builder.build()


@_register("triangular_solve")
def _triangular_solve(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule:
    row, column = len(xs[0]) - 2, len(xs[0]) - 1
    left = call.types.flag(call.attr("left_side"))
    is_transposed = call.word("transpose_a") != "NO_TRANSPOSE"
    summed, free = (row, column) if left else (column, row)
    # The contracted factor is in the columns of the matrix for one side and in its rows for the
    # other; a transposition exchanges them.
    of_a = (column if is_transposed else row) if left else (row if is_transposed else column)
    builder = RuleBuilder(xs, ys).add_pointwise(xs[0][:-2])
    for dim in (row, column):
        if dim == summed:
            builder.add([of_a, summed], [None], xs[1][summed], REPLICATE)
        else:
            builder.add([None, free], [free], xs[1][free], REPLICATE)
    other = row + column - of_a
    return builder.add([other, None], [summed], xs[0][other], REPLICATE).build()


@_register("select_and_scatter")
def _select_and_scatter(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule | None:
    """Return the rule of this IR's operation, which selects maxima."""
    x, source, init = call.all_operands
    ones = (1,) * x.type.rank
    attrs: dict[str, Attr] = {
        "op": Symbol("max"),
        "window": call.integers("window_dimensions", default=ones),
        "strides": call.integers("window_strides", default=ones),
        "padding": call.pairs_of("padding", ((0, 0),) * x.type.rank),
        "base_dilation": ones,
        "window_dilation": ones,
    }
    rule = _rule_of_op("select_and_scatter", [x, source], x.type, attrs)
    return rule and replace(rule, operands=(*rule.operands, ((),) * init.type.rank))


@_register("gather")
def _gather(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule | None:
    x, indices = call.operands
    numbers = gather_dims(call)
    vector = numbers.pop("index_vector_dim")
    attrs: dict[str, Attr] = _with_vectors_last(numbers, "indices_batching_dims", vector)
    rule = _rule_of_op("gather", [x, _with_last(indices, vector)], call.results[0], attrs)
    return rule and _with_vectors_at(rule, vector, indices.type.rank)


def _with_last(indices: Value, vector: int) -> Value:
    """Return the indices with their vectors in the last dimension."""
    shape = list(indices.type.shape)
    shape.append(shape.pop(vector) if vector < len(shape) else 1)
    return replace(indices, type=indices.type.with_shape(tuple(shape)))


def _with_vectors_last(attrs: dict[str, Attr], name: str, vector: int) -> dict[str, Any]:
    """Return the attributes for indices that have their vectors in the last dimension."""
    if name not in attrs:
        return attrs
    return {**attrs, name: tuple(d - (d > vector) for d in attrs[name])}


def _with_vectors_at(rule: FactorRule, vector: int, rank: int) -> FactorRule:
    """Return the rule for indices whose vectors are in another dimension or implicit."""
    x, indices, *others = rule.operands
    dims, last = indices[:-1], indices[-1]
    if vector < rank:
        moved = (*dims[:vector], last, *dims[vector:])
        return replace(rule, operands=(x, moved, *others))
    (gone,) = last

    def shift_indices(tensors: tuple[TensorFactors, ...]) -> tuple[TensorFactors, ...]:
        return tuple(
            tuple(tuple(i - (i > gone) for i in dim) for dim in tensor) for tensor in tensors
        )

    factors = (*rule.factors[:gone], *rule.factors[gone + 1 :])
    operands, results = shift_indices((x, dims, *others)), shift_indices(rule.results)
    return replace(rule, operands=operands, results=results, factors=factors)


@_register("scatter")
def _scatter(call: OperationReader, xs: Shapes, ys: Shapes) -> FactorRule | None:
    """Return the rule of one operand; sums require that all operands have one known combination."""
    count = len(xs) // 2
    values = call.all_operands
    dims, vector = scatter_dims(call)
    (block,) = call.blocks
    returned = region_formulas(call, block, [param.name for param in block.params])
    combinations = {combination_of(formula, i) for i, formula in enumerate(returned)}
    has_combination = len(combinations) == 1 and combinations <= {"add", "mul", "min", "max"}
    name = "indices_batching_dims"
    attrs: dict[str, Attr] = {**_with_vectors_last(dims, name, vector), "op": Symbol("add")}
    first = [values[0], _with_last(values[count], vector), values[count + 1]]
    rule = _rule_of_op("scatter", first, values[0].type, attrs)
    if rule is None:
        return None
    rule = _with_vectors_at(rule, vector, values[count].type.rank)
    x, indices, updates = rule.operands
    factors = rule.factors if has_combination else tuple(
        replace(factor, kind=REPLICATE if factor.kind is FactorKind.REDUCE else factor.kind)
        for factor in rule.factors
    )  # fmt: skip
    operands = (*[x] * count, indices, *[updates] * count)
    return FactorRule(operands, rule.results * count, factors)


def _rule_of_op(
    name: str, operands: Sequence[Value], result: TensorType, attrs: Mapping[str, Attr]
) -> FactorRule | None:
    """Return the rule of an operation of this IR."""
    return Op(OPS[name], tuple(operands), (Value(result, ""),), attrs).factors()
