"""The factors of a convolution, and which of them can be sharded.

A spatial dimension of the operand has two factors: the window positions and the positions inside a
window. Sharding either one requires a halo exchange unless the windows do not overlap.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from shardir.ir.attributes import Attributes
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.ops.reductions.window_geometry import Padding
from shardir.ops.type_checks import Ints


@dataclass(frozen=True, slots=True)
class ConvolutionAttributes(Attributes):
    """The attributes of a convolution; sequences have one entry per spatial dimension.

    `groups` splits the features of the operand and the output features of the filter into
    independent groups; `batch_groups` splits the batch and the output features.
    """

    strides: Ints
    padding: Padding
    lhs_dilation: Ints
    rhs_dilation: Ints
    dims: str
    """The dimensions of the tensors; see `parse_dims`."""
    groups: int = 1
    batch_groups: int = 1


class ConvolutionDims(NamedTuple):
    """The positions of the dimensions of one tensor."""

    batch_or_inputs: int
    """The batch dimension; in a filter, the input features."""
    features_or_outputs: int
    """The feature dimension; in a filter, the output features."""
    spatial: Ints


@lru_cache(maxsize=256)
def parse_dims(dims: str) -> tuple[ConvolutionDims, ConvolutionDims, ConvolutionDims]:
    """Return the dimensions of operand, filter and result; raise `TypeError` if malformed."""
    if not isinstance(dims, str):
        raise TypeError(f'dims={dims!r} must be text such as "b01f,01io->b01f"')
    operands, arrow, output = dims.partition("->")
    terms = (*operands.split(","), output)
    digits = "".join(map(str, range(len(output) - 2)))
    expected = [sorted(letters + digits) for letters in ("bf", "io", "bf")]
    if not arrow or [sorted(term) for term in terms] != expected or len(digits) > 10:
        raise TypeError(f'dims={dims!r} is not a convolution such as "b01f,01io->b01f"')
    places = [
        ConvolutionDims(
            term.index(letters[0]), term.index(letters[1]), tuple(term.index(d) for d in digits)
        )
        for term, letters in zip(terms, ("bf", "io", "bf"), strict=True)
    ]
    return places[0], places[1], places[2]


def convolution_factors(
    x: TensorType,
    w: TensorType,
    *,
    result: TensorType,
    attributes: ConvolutionAttributes,
) -> FactorRule:
    """Return the factors as Shardy defines them.

    A spatial dimension of `x` maps to the window positions and to the positions inside a window,
    the larger one first. Spatial dimensions without a factor cannot be sharded.
    """
    of, by, to = parse_dims(attributes.dims)
    groups, batch_groups = attributes.groups, attributes.batch_groups
    builder = RuleBuilder([x.shape, w.shape], [result.shape])
    if batch_groups > 1:
        builder.add(
            [of.batch_or_inputs, by.features_or_outputs], [to.features_or_outputs], batch_groups
        )
    batch = result.shape[to.batch_or_inputs]
    builder.add(
        [of.batch_or_inputs if batch_groups == 1 or batch > 1 else None, None],
        [to.batch_or_inputs],
        batch,
    )
    exact, left_over = True, []
    for i, (d, k, p) in enumerate(zip(of.spatial, by.spatial, to.spatial, strict=True)):
        left, window, places = x.shape[d], w.shape[k], result.shape[p]
        inside, outside = False, False
        for is_inside in (True, False) if places < window else (False, True):
            size = min(left, window if is_inside else places)
            if size <= 1:
                continue
            if is_inside:
                builder.add([d, k], [None], size, FactorKind.REDUCE)
                exact &= _is_contraction(x.shape[d], window, i, attributes)
                inside = True
            else:
                builder.add([d, None], [p], size, FactorKind.PERMUTE)
                outside = True
            left //= size
        if not inside and not outside:
            left_over.append((0, d, x.shape[d]))
        if not inside:
            left_over.append((1, k, window))
    if groups > 1:
        builder.add(
            [of.features_or_outputs, by.features_or_outputs], [to.features_or_outputs], groups
        )
    inputs = w.shape[by.batch_or_inputs]
    source = of.features_or_outputs if groups == 1 or inputs > 1 else None
    builder.add([source, by.batch_or_inputs], [None], inputs, FactorKind.REDUCE)
    outputs = result.shape[to.features_or_outputs] // (groups * batch_groups)
    if outputs > 1:
        builder.add([None, by.features_or_outputs], [to.features_or_outputs], outputs)
    for tensor, dim, size in sorted(left_over):
        if size > 1:
            own = [dim if tensor == t else None for t in range(2)]
            builder.add(own, [None], 1, FactorKind.REPLICATE)
    return builder.build("add" if exact else None)


def convolution_shardable(
    rule: FactorRule,
    x: TensorType,
    w: TensorType,
    *,
    result: TensorType,
    attributes: ConvolutionAttributes,
) -> list[int]:
    """Return all factors except those inside windows that cover only a part of the window, and
    those that only the filter has: a single output feature is a separate factor of the result.
    """
    _, by, _ = parse_dims(attributes.dims)
    inside = {i for d in by.spatial for i in rule.operands[1][d]}
    result_factors = {i for mapping in rule.results for dim in mapping for i in dim}
    partly = {
        i for d in by.spatial for i in rule.operands[1][d] if rule.factors[i].size != w.shape[d]
    }
    return [
        i
        for i, factor in enumerate(rule.factors)
        if factor.kind is not FactorKind.REPLICATE
        and i not in partly
        and (factor.kind is not FactorKind.PASS or i in result_factors or i in inside)
    ]


def convolution_uneven(
    rule: FactorRule,
    x: TensorType,
    w: TensorType,
    *,
    result: TensorType,
    attributes: ConvolutionAttributes,
) -> list[int]:
    """Exclude factors inside windows: padding of the filter would be multiplied with valid
    elements.
    """
    _, by, _ = parse_dims(attributes.dims)
    inside = {i for d in by.spatial for i in rule.operands[1][d]}
    chosen = convolution_shardable(rule, x, w, result=result, attributes=attributes)
    return [i for i in chosen if i not in inside]


def _is_contraction(size: int, window: int, i: int, attributes: ConvolutionAttributes) -> bool:
    """Return whether one window covers a spatial dimension, so that the factor is a contraction.

    Otherwise windows overlap, and sharding the factor on both sides does not suffice.
    """
    return size == window and attributes.padding[i] == (0, 0) and attributes.lhs_dilation[i] == 1
