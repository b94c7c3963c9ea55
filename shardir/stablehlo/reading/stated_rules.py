"""Checks of the factor rules that a text states for operations (`sdy.sharding_rule`).

`parse_rule` reads the notations of shardir and of Shardy leniently; a text for Shardy must also
follow its syntax, and the rule must fit the tensors of its operation.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from shardir.errors import count_noun
from shardir.op_rules.factor_rule_text import parse_rule
from shardir.op_rules.factors import FactorKind, FactorRule, TensorFactors, factor_names

_DIM = r"(?:z_[1-9][0-9]*|[i-z](?!_))+"
_TENSOR = rf"\[(?:{_DIM}(?:,\s*{_DIM})*)?\]"
_TENSORS = rf"\(\s*{_TENSOR}(?:\s*,\s*{_TENSOR})*\s*\)"
_SPECIAL = ("reduction", "need_replication", "permutation", "blocked_propagation")
_RULE = re.compile(
    rf"#sdy\.op_sharding_rule<\s*{_TENSORS}\s*->\s*{_TENSORS}\s*(?:\{{([^{{}}]*)\}})?"
    + "".join(rf"(?:\s*{word}=\{{([^{{}}]*)\}})?" for word in _SPECIAL)
    + r"(?:\s*,\s*custom)?\s*>"
)
_FORM = "write ([i, k])->([i]) {i=8, k=4} reduction={k} need_replication={} permutation={}"


def find_rule_text_fault(text: str) -> str | None:
    """Return why a text is not a factor rule in Shardy's syntax; `None` if it is one."""
    match = _RULE.fullmatch(text.strip())
    if match is None:
        return f"{text!r} is not a factor rule of Shardy; {_FORM}"
    sizes, *special = (group or "" for group in match.groups())
    names = [part.partition("=")[0].strip() for part in sizes.split(",") if part.strip()]
    expected = [name for name, _ in zip(factor_names(), names, strict=False)]
    if names != expected:
        return f"the factors of a rule are called {', '.join(expected)}, not {', '.join(names)}"
    seen: dict[str, str] = {}
    for word, group in zip(_SPECIAL, special, strict=True):
        factors = [name.strip() for name in group.split(",") if name.strip()]
        unknown = [name for name in factors if name not in names]
        if unknown:
            return f"{word} states {unknown[0]}, which is no factor of the rule"
        for one, other in pairwise(factors):
            if names.index(one) >= names.index(other):
                return f"{word} states its factors in their order, each once, not {group}"
        for name in factors if word != "blocked_propagation" else ():
            if name in seen:
                return f"the factor {name} is in {seen[name]} and in {word}; it can be in one"
            seen[name] = word
    return None


def find_rule_fault(
    rule: FactorRule, operands: Sequence[int], results: Sequence[int]
) -> str | None:
    """Return why a rule does not fit tensors of these ranks; `None` if it does."""
    return next(_find_faults(rule, operands, results), None)


def _find_faults(
    rule: FactorRule, operands: Sequence[int], results: Sequence[int]
) -> Iterator[str]:
    for word, tensors, ranks in (
        ("operand", rule.operands, operands),
        ("result", rule.results, results),
    ):
        if len(tensors) != len(ranks):
            have = count_noun(len(ranks), word)
            yield f"the rule is for {count_noun(len(tensors), word)}, the operation has {have}"
            return
        for number, (tensor, rank) in enumerate(zip(tensors, ranks, strict=True)):
            if len(tensor) != rank:
                yield f"the rule states rank {len(tensor)} for {word} {number} of rank {rank}"
            yield from _find_tensor_faults(rule, tensor, f"{word} {number}")
    names = dict(enumerate(factor_names_of(rule)))
    used = {factor for tensor in rule.tensors for dim in tensor for factor in dim}
    for number in range(len(rule.factors)):
        if number not in used:
            yield f"the factor {names[number]} of the rule is in no operand and in no result"
    for number in rule.of_kind(FactorKind.REDUCE):
        if any(number in dim for tensor in rule.results for dim in tensor):
            yield f"the reduction factor {names[number]} is in a result of the rule"


def _find_tensor_faults(rule: FactorRule, tensor: TensorFactors, what: str) -> Iterator[str]:
    factors = [factor for dim in tensor for factor in dim]
    if len(set(factors)) < len(factors):
        yield f"a factor is twice in {what} of the rule"
    for dim in tensor:
        if len(dim) > 1 and any(rule.factors[factor].size == 1 for factor in dim):
            yield f"{what} of the rule has a factor of size 1 beside others of one dimension"


def factor_names_of(rule: FactorRule) -> list[str]:
    """Return the names of the factors of a rule in Shardy's notation."""
    return [name for name, _ in zip(factor_names(), rule.factors, strict=False)]


def find_stated_rule_fault(
    text: str, operands: Sequence[int], results: Sequence[int]
) -> str | None:
    """Return why an operation with tensors of these ranks cannot have the rule of a text."""
    if fault := find_rule_text_fault(text):
        return fault
    try:
        rule = parse_rule(text)
    except ValueError as error:
        return str(error)
    return find_rule_fault(rule, operands, results)
