"""Shardy's text of a sharding rule, and rules without what cannot matter."""

import re
from dataclasses import replace
from typing import Any

from shardir.factors import Factor, FactorRule, Kind, TensorFactors

_NAME = re.compile(r"[a-y]|z(?:_\d+)?")
_KINDS = (("reduction", Kind.REDUCE), ("need_replication", Kind.REPLICATE),
          ("permutation", Kind.PERMUTE))  # fmt: skip


def read_rule(text: str) -> FactorRule:
    """`#sdy.op_sharding_rule<([i, jk])->([i]) {i=8, j=2, k=4} reduction={j}>`."""
    inside = text[text.index("<") + 1 : text.rindex(">")]
    sizes = re.search(r"\{([^}]*=[^}]*)\}", inside)
    named = dict(part.strip().split("=") for part in sizes[1].split(",")) if sizes else {}
    numbers = {name: i for i, name in enumerate(named)}
    factors = [Factor(int(size)) for size in named.values()]
    for word, kind in _KINDS:
        for name in _names(inside, word):
            factors[numbers[name]] = replace(factors[numbers[name]], kind=kind)
    for name in _names(inside, "blocked_propagation"):
        factors[numbers[name]] = replace(factors[numbers[name]], blocked=True)
    before, _, behind = inside.partition("->")
    sides = [
        tuple(
            tuple(
                tuple(numbers[name] for name in _NAME.findall(dim))
                for dim in tensor.split(",")
                if dim.strip()
            )
            for tensor in re.findall(r"\[([^\]]*)\]", side)
        )
        for side in (before, behind.partition(")")[0])
    ]
    return FactorRule(sides[0], sides[1], tuple(factors))


def _names(text: str, word: str) -> list[str]:
    match = re.search(rf"\b{word}=\{{([^}}]*)\}}", text)
    return _NAME.findall(match[1]) if match else []


def loops(rule: FactorRule) -> Any:
    """A rule without what cannot matter: names of factors, kinds of those in one tensor.

    Tensors without dimensions are left out.
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
        return Factor(each.size, each.kind if tensors > 1 else Kind.PASS, each.blocked)

    sides = renumbered(rule.operands), renumbered(rule.results)
    return *sides, [factor(old) for old in numbers]
