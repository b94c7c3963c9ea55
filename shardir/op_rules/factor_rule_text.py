"""Parser for the text of factor rules, also in Shardy's form:

`([i, jk])->([i]) {i=8, j=2, k=4}`.
"""

import re
from dataclasses import replace
from functools import lru_cache

from shardir.op_rules.factors import Factor, FactorKind, FactorRule
from shardir.text.number_text import parse_natural_number

_NAME = re.compile(r"z_[0-9]+|[a-z]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_KINDS = (
    ("reduction", FactorKind.REDUCE),
    ("need[-_]replication", FactorKind.REPLICATE),
    ("permutation", FactorKind.PERMUTE),
)


@lru_cache(maxsize=1 << 12)
def parse_rule(text: str) -> FactorRule:
    """Return the rule that a text describes; raise `ValueError` if the text is not a rule.

    Equal texts return the same object, because callers compare rules by identity.
    """
    try:
        return _parse_rule_text(text)
    except (IndexError, KeyError, ValueError):
        raise ValueError(
            f"{text!r} is not a factor rule such as ([i, k])->([i]) {{i=8, k=4}}"
        ) from None


def show_shardy(rule: FactorRule) -> str:
    """Return the rule in the syntax of OpenXLA Shardy."""
    text = str(rule).replace(") -> (", ")->(").replace(" need-replication=", " need_replication=")
    return text.replace(" blocked=", " blocked_propagation=")


def _parse_rule_text(text: str) -> FactorRule:
    before, arrow, behind = text.partition("->")
    if not arrow:
        raise ValueError(text)
    sizes = next((inside for inside in _BRACES.findall(behind) if "=" in inside), "")
    named = dict(part.replace(" ", "").split("=") for part in sizes.split(",")) if sizes else {}
    numbers = {name: i for i, name in enumerate(named)}
    factors = [Factor(_parse_size(size)) for size in named.values()]
    for word, kind in _KINDS:
        for name in _find_factor_names(behind, word):
            factors[numbers[name]] = replace(factors[numbers[name]], kind=kind)
    for name in _find_factor_names(behind, "blocked(?:_propagation)?"):
        factors[numbers[name]] = replace(factors[numbers[name]], blocked=True)
    operands, results = (
        tuple(
            tuple(
                tuple(numbers[name] for name in _NAME.findall(dim))
                for dim in tensor.split(",")
                if dim.strip()
            )
            for tensor in re.findall(r"\[([^\]]*)\]", side)
        )
        for side in (before, behind.partition(")")[0])
    )
    return FactorRule(operands, results, tuple(factors))


def _parse_size(text: str) -> int:
    size = parse_natural_number(text)
    if size is None:
        raise ValueError(text)
    return size


def _find_factor_names(text: str, word: str) -> list[str]:
    match = re.search(rf"\b{word}=\{{([^{{}}]*)\}}", text)
    return _NAME.findall(match[1]) if match else []
