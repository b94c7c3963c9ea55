"""Checks of the rules of operations that other packages define.

Input: the rules that are given to `define_op`. Output: rules that raise `RuleError`, which names
the operation, the rule and the line, for exceptions and for results that the rule must not return.
The rules of this package are tested, so they run without these checks.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import wraps
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import numpy as np

from shardir.errors import RuleError, ShardirError, bound_message, count_noun, suggest_name
from shardir.ir.arithmetic import Arithmetic
from shardir.ir.dtypes import NARROW_FLOATS, NUMPY_DTYPES, SMALL_DTYPES, SMALL_FLOATS
from shardir.ir.location import exception_place
from shardir.ir.types import TOKEN, TensorType
from shardir.op_rules.factors import FactorRule

Rule = Callable[..., Any]
Check = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], str]
"""(returned object, positional arguments, keyword arguments) -> what is wrong with it, or ""."""


def check_declaration(
    function: str, name: str, rules: Mapping[str, Any], kinds: Mapping[str, object]
) -> None:
    """Raise `RuleError` if the name or the rules are not those of an operation.

    `function` declares the operation, and takes rules of the types `kinds`. Functions are only
    checked to be callable.
    """
    if not (isinstance(name, str) and re.fullmatch(r"[a-zA-Z_]\w*([-.]\w+)*", name)):
        raise RuleError(
            f"no operation can have the name {name!r}; use letters, digits, _ and -, with a letter "
            "at the beginning"
        )
    for rule in rules:
        if rule not in kinds:
            hint = suggest_name(rule, kinds) or f"the rules are {', '.join(kinds)}"
            raise RuleError(f"{function} has no rule {rule!r} for operation {name!r}; {hint}")
    for rule, given in rules.items():
        if not any(_is_of_kind(given, kind) for kind in _alternatives(kinds[rule])):
            names = " or ".join(map(_kind_name, _alternatives(kinds[rule])))
            raise RuleError(
                bound_message(
                    f"the rule {rule!r} of operation {name!r} is {given!r}; "
                    f"{function}({name!r}, {rule}=...) takes {names}"
                )
            )


def _alternatives(kind: object) -> tuple[object, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _is_function_kind(kind: object) -> bool:
    origin = get_origin(kind) or kind
    return origin is Callable or getattr(origin, "_is_protocol", False)


def _is_of_kind(given: object, kind: object) -> bool:
    if _is_function_kind(kind):
        return callable(given)
    if get_origin(kind) is type:
        return isinstance(given, type) and issubclass(given, get_args(kind))
    return isinstance(given, get_origin(kind) or kind)  # type: ignore[arg-type]


def _kind_name(kind: object) -> str:
    if _is_function_kind(kind):
        return "a function"
    if kind is NoneType:
        return "None"
    if get_origin(kind) is type:
        return f"a subclass of {get_args(kind)[0].__name__}"
    return f"an object of type {getattr(get_origin(kind) or kind, '__name__', kind)}"


def with_checks(name: str, rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rules of an operation with checks of what they return and raise."""
    return {
        key: _with_check(name, key, rule, RULES[key]) if key in RULES and callable(rule) else rule
        for key, rule in rules.items()
    }


def _with_check(name: str, key: str, rule: Rule, check: Check) -> Rule:
    @wraps(rule)
    def call_with_check(*args: Any, **options: Any) -> Any:
        try:
            given = map(_as_read_only, args) if key == "reference" else args
            returned = rule(*given, **options)
        except ShardirError:
            raise
        except Exception as error:
            # A type rule raises a sentence about the operands; a call that does not match its
            # parameters raises outside of it.
            is_raised_inside = error.__traceback__ is not None and error.__traceback__.tb_next
            if key == "type" and isinstance(error, TypeError) and is_raised_inside:
                raise
            message = f"raised {type(error).__name__}{exception_place(error)}: {error}"
            raise _rule_error(name, key, message) from error
        if wrong := check(returned, args, options):
            raise _rule_error(name, key, wrong)
        return returned

    return call_with_check


def _as_read_only(operand: object) -> object:
    """Return a view of an array that the rule cannot write into."""
    if not isinstance(operand, np.ndarray):
        return operand
    view = operand.view()
    view.flags.writeable = False
    return view


def _rule_error(name: str, key: str, wrong: str) -> RuleError:
    return RuleError(bound_message(f"the rule {key!r} of operation {name!r} {wrong}"))


def _check_type(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    types = returned if isinstance(returned, tuple | list) else (returned,)
    if not all(isinstance(each, TensorType) for each in types):
        return f"returned {returned!r}; return a TensorType, or a tuple of them"
    unknown = [each.dtype for each in types if each.dtype not in (*NUMPY_DTYPES, TOKEN)]
    if unknown:
        hint = suggest_name(unknown[0], NUMPY_DTYPES) or f"they are {', '.join(NUMPY_DTYPES)}"
        return f"returned the element type {unknown[0]!r}, which does not exist; {hint}"
    return ""


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
    if stated is None:
        return ""
    try:
        found = np.asarray(array)
    except ValueError as error:
        return f"returned no array{which} for {stated}: {error}"
    if found.shape != stated.shape:
        return f"returned an array of shape {found.shape}{which} for {stated}"
    # NumPy permits each conversion to the types of other packages, such as from complex numbers.
    numeric = _WIDE_DTYPES.get(stated.dtype, stated.numpy)
    if found.dtype != stated.numpy and not np.can_cast(found.dtype, numeric, "same_kind"):
        return f"returned an array of {found.dtype}{which} for {stated}; convert it with astype"
    return ""


_WIDE_DTYPES = {
    **dict.fromkeys(SMALL_DTYPES, np.dtype(np.int64)),
    **dict.fromkeys((*SMALL_FLOATS, *NARROW_FLOATS), np.dtype(np.float64)),
}


def _check_vjp(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    _, cotangent, *values = args
    results = len(cotangent) if isinstance(cotangent, tuple | list) else 1
    count = len(values) - results
    if not isinstance(returned, tuple | list) or len(returned) != count:
        return (
            f"returned {returned!r}; return a tuple of {count_noun(count, 'cotangent')}, one for "
            "each operand, None where it is zero"
        )
    for each in returned:
        if each is not None and not isinstance(each, type(values[0])):
            return f"returned {each!r} as a cotangent; build it with the builder, or return None"
    return ""


def _check_arithmetic(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    if returned is None or isinstance(returned, Arithmetic):
        return ""
    return f"returned {returned!r}; return an Arithmetic, or None if it only moves elements"


def _accept(returned: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    return ""


RULES: Final[Mapping[str, Check]] = {
    "type": _check_type,
    "factors": _check_factors,
    "reference": _check_reference,
    "vjp": _check_vjp,
    "jvp": _accept,
    "batch": _accept,
    "arithmetic": _check_arithmetic,
}
"""The check of what each rule returns."""
