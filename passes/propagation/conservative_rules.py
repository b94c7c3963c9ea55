"""Factor rules of conservative propagation, which are those of Shardy's conservative mode.

An operation that shifts or resizes a dimension of its operands does not propagate along that
dimension. Concatenated dimensions and the windows of convolutions have no common factors at all:
each of them has a factor of size 1, which does not count towards the size of its tensor when
conflicts are resolved.
"""

from collections.abc import Set as AbstractSet
from dataclasses import replace

from shardir import ops as specs
from shardir.ir.module import Op
from shardir.op_rules.factors import FactorKind, FactorRule, RuleBuilder
from shardir.ops.opaque import has_rule_in_text


def conservative_rule(op: Op, rule: FactorRule) -> FactorRule:
    """Return the rule for conservative propagation; rules that users state do not change."""
    if rule != op.factors() or (op.spec is specs.opaque and has_rule_in_text(op.attrs)):
        return rule
    text_name = op.attrs["operation"] if op.spec is specs.opaque else ""
    if op.spec is specs.convolution:
        return _remove_factors(op, rule, _window_factors(op, rule))
    if op.spec is specs.concatenate or text_name == "stablehlo.concatenate":
        return _remove_factors(op, rule, _of_kinds(rule, FactorKind.REPLICATE, FactorKind.PERMUTE))
    if op.spec is specs.select_and_scatter or text_name == "stablehlo.select_and_scatter":
        return _block(rule, _of_kinds(rule, FactorKind.REPLICATE, FactorKind.PERMUTE))
    if op.spec is specs.reverse or text_name not in ("", "stablehlo.reduce_window"):
        return rule
    return _block(rule, _of_kinds(rule, FactorKind.PERMUTE))


def _of_kinds(rule: FactorRule, *kinds: FactorKind) -> set[int]:
    return {number for number, factor in enumerate(rule.factors) if factor.kind in kinds}


def _block(rule: FactorRule, blocked: AbstractSet[int]) -> FactorRule:
    factors = tuple(
        replace(factor, blocked=True) if number in blocked else factor
        for number, factor in enumerate(rule.factors)
    )
    return replace(rule, factors=factors)


def _window_factors(op: Op, rule: FactorRule) -> set[int]:
    """Return the factors of the dimensions along which the windows of a convolution move."""
    letters = op.attrs["dims"].replace("->", ",").split(",")
    return {
        factor
        for names, dims in zip(letters, rule.tensors, strict=True)
        for name, dim in zip(names, dims, strict=True)
        if name.isdigit()
        for factor in dim
    }


def _remove_factors(op: Op, rule: FactorRule, removed: AbstractSet[int]) -> FactorRule:
    """Return the rule without some factors, and with a factor of size 1 for each dimension that
    has none left.
    """
    shapes = [value.type.shape for value in (*op.operands, *op.results)]
    count = len(op.operands)
    builder = RuleBuilder(shapes[:count], shapes[count:])
    for number, factor in enumerate(rule.factors):
        if number in removed:
            continue
        dims = [
            next((i for i, dim in enumerate(tensor) if number in dim), None)
            for tensor in rule.tensors
        ]
        builder.add(dims[:count], dims[count:], factor.size, factor.kind, blocked=factor.blocked)
    return builder.build(rule.reduction)
