"""Factor rules in a canonical form for comparison."""

from typing import Any

from shardir.op_rules.factors import Factor, FactorKind, FactorRule, TensorFactors


def loops(rule: FactorRule) -> Any:
    """Return a rule in canonical form: without names of factors, and kinds of factors of one
    tensor.

    Tensors of rank 0 are omitted.
    """
    numbers: dict[int, int] = {}

    def renumbered(tensors: tuple[TensorFactors, ...]) -> Any:
        return [
            [[numbers.setdefault(f, len(numbers)) for f in dim] for dim in tensor]
            for tensor in tensors
            if tensor
        ]

    def factor(old: int) -> Factor:
        each = rule.factors[old]
        tensors = sum(any(old in dim for dim in tensor) for tensor in rule.tensors)
        return Factor(each.size, each.kind if tensors > 1 else FactorKind.PASS, each.blocked)

    sides = renumbered(rule.operands), renumbered(rule.results)
    return *sides, [factor(old) for old in numbers]
