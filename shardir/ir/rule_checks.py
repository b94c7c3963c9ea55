"""Checks of the rules of operations that other packages define.

Input: the rules that are given to `define_op`. Output: rules that raise `RuleError`, which names
the operation, the rule and the line, for exceptions and for results that the rule must not return.
The rules of this package are tested, so they run without these checks.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import numpy as np

from shardir.errors import RuleError, ShardirError, bound_message, count_noun, suggest_name
from shardir.ir.exception_places import exception_place
from shardir.ir.types import TensorType
from shardir.op_rules.factors import FactorRule

Rule = Callable[..., Any]
Check = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], str]
"""(returned object, positional arguments, keyword arguments) -> what is wrong with it, or ""."""


def check_declaration(name: str, rules: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise `RuleError` if the name, the rules or their kinds are not those of an operation."""
    if not re.fullmatch(r"[a-zA-Z_]\w*([-.]\w+)*", name):
        raise RuleError(f"no operation can have the name {name!r}; use letters, digits, _ and -")
    for rule in rules:
        if rule not in known:
            hint = suggest_name(rule, known) or f"the rules are {', '.join(known)}"
            raise RuleError(f"define_op has no rule {rule!r} for operation {name!r}; {hint}")
    for rule in ("type", *RULES):
        if not (callable(rules.get(rule)) or (rules.get(rule) is None and rule != "type")):
            raise RuleError(
                f"the rule {rule!r} of operation {name!r} is {rules.get(rule)!r}; "
                f"define_op({name!r}, {rule}=f) takes a function"
            )


def with_checks(name: str, rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of an operation with checks of what they return and raise."""
    return {
        key: _with_check(name, key, rule, RULES[key]) if key in RULES and rule else rule
        for key, rule in rules.items()
    }


def _with_check(name: str, key: str, rule: Rule, check: Check) -> Rule:
    @wraps(rule)
    def checked(*args: Any, **options: Any) -> Any:
        try:
            returned = rule(*args, **options)
        except ShardirError:
            raise
        except Exception as error:
            if key == "type" and isinstance(error, TypeError):
                raise  # The sentence of a type rule about the operands.
            message = f"raised {type(error).__name__}{exception_place(error)}: {error}"
            raise _rule_error(name, key, message) from error
        if wrong := check(returned, args, options):
            raise _rule_error(name, key, wrong)
        return returned

    return checked


def _rule_error(name: str, key: str, wrong: str) -> RuleError:
    return RuleError(bound_message(f"the rule {key!r} of operation {name!r} {wrong}"))


def _check_type(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    types = returned if isinstance(returned, tuple | list) else (returned,)
    if all(isinstance(each, TensorType) for each in types):
        return ""
    return f"returned {returned!r}; return a TensorType, or a tuple of them"


def _check_factors(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    if returned is None:
        return ""
    if not isinstance(returned, FactorRule):
        return (
            f"returned {returned!r}; return the result of "
            "sharding_rule(...).for_shapes(operand shapes, result shapes)"
        )
    result = options.get("result")
    results = result if isinstance(result, tuple | list) else (result,)
    for noun, rows, types in (
        ("operand", returned.operands, args),
        ("result", returned.results, results),
    ):
        if len(rows) != len(types):
            return f"describes {count_noun(len(rows), noun)}, and the operation has {len(types)}"
        for number, (row, stated) in enumerate(zip(rows, types, strict=True)):
            shape = tuple(math.prod(returned.factors[f].size for f in dim) for dim in row)
            described = any(row)  # Tensors that do not participate have no factors.
            if stated is not None and described and shape != stated.shape:
                return f"describes {noun} {number} with shape {shape}, and it is {stated}"
    return ""


def _check_reference(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    result = options.get("result")
    if not isinstance(result, tuple | list):
        return _check_array(returned, result, "")
    if not isinstance(returned, tuple | list) or len(returned) != len(result):
        is_tuple = isinstance(returned, tuple | list)
        got = count_noun(len(returned), "array") if is_tuple else "one array"
        return (
            f"returned {got}, and the operation has {count_noun(len(result), 'result')}; "
            "return a tuple of arrays"
        )
    pairs = enumerate(zip(returned, result, strict=True))
    return next(filter(None, (_check_array(x, t, f" as result {i}") for i, (x, t) in pairs)), "")


def _check_array(array: Any, stated: TensorType | None, which: str) -> str:
    if stated is None or np.shape(array) == stated.shape:
        return ""
    return f"returned an array of shape {np.shape(array)}{which} for {stated}"


def _check_vjp(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    _, cotangent, *values = args
    results = len(cotangent) if isinstance(cotangent, tuple | list) else 1
    wanted = len(values) - results
    if not isinstance(returned, tuple | list) or len(returned) != wanted:
        return (
            f"returned {returned!r}; return a tuple of {count_noun(wanted, 'cotangent')}, one for "
            "each operand, None where it is zero"
        )
    for each in returned:
        if each is not None and not isinstance(each, type(values[0])):
            return f"returned {each!r} as a cotangent; build it with the builder, or return None"
    return ""


def _accept(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    return ""


RULES: Final[Mapping[str, Check]] = {
    "type": _check_type,
    "factors": _check_factors,
    "reference": _check_reference,
    "vjp": _check_vjp,
    "jvp": _accept,
    "batch": _accept,
}
"""The check of what each rule returns."""
