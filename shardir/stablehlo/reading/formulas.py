"""Normalized formulas of the computations in regions, for comparison.

The region of a reduction or a sort becomes one text per returned value, such as `add(a0,b0)`. Known
computations are recognized by their formula. The parameters are `a0`, `a1`, ... on the left side
and `b0`, `b1`, ... on the right.
"""

from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

from lark import Token

from shardir.errors import count_noun
from shardir.ir.operation import Attr, Dense
from shardir.ir.types import COMPLEX, FLOATS, TensorType
from shardir.stablehlo.reading import records
from shardir.stablehlo.reading.call import OperationReader, UnsupportedOperation

COMBINATIONS = {
    "add": "add",
    "multiply": "mul",
    "maximum": "max",
    "minimum": "min",
    "and": "and",
    "or": "or",
}
"""The IR's names of operations that combine two elements."""


def region_formulas(
    call: OperationReader, block: records.BlockRecord, params: Sequence[Token]
) -> list[str]:
    """Return the formulas of the returned values; `params` are first left, then right ones."""
    half = len(params) // 2
    names = [f"a{i}" for i in range(half)] + [f"b{i}" for i in range(len(params) - half)]
    formula_of = {str(token): name for token, name in zip(params, names, strict=True)}
    for statement in block.statements:
        if not isinstance(statement, records.OpRecord):
            raise UnsupportedOperation("its region is not a simple computation")
        name = call.types.string(statement.name) if statement.name.type == "STRING" \
            else str(statement.name)  # fmt: skip
        inputs = [_input(call, token, formula_of) for token in _values(statement)]
        if name.rpartition(".")[2] == "return":
            return inputs
        formula = _formula(call, statement, name.removeprefix("stablehlo."), inputs)
        for result in statement.results:
            formula_of[str(result.name)] = formula
    raise UnsupportedOperation("its region returns nothing")


def region_formula(
    call: OperationReader, block: records.BlockRecord, params: Sequence[Token]
) -> str:
    """Return the formula of the only returned value."""
    returned = region_formulas(call, block, params)
    if len(returned) != 1:
        raise call.fail(f"its region returns {count_noun(len(returned), 'value')}, not 1")
    return returned[0]


def _values(op: records.OpRecord) -> list[Token]:
    return [p for p in op.parts if isinstance(p, Token) and p.type == "VALUE"]


def _input(call: OperationReader, token: Token, formula_of: dict[str, str]) -> str:
    if token in formula_of:
        return formula_of[token]
    number = call.reader.constant_of(call.reader.use(token))
    if number is None:
        raise UnsupportedOperation("its region uses values of the program around it")
    return _number(number)


def _number(number: Attr) -> str:
    if isinstance(number, bool | Dense):
        return str(number)
    return repr(complex(number) if isinstance(number, complex) else float(number))


def _formula(call: OperationReader, op: records.OpRecord, name: str, inputs: list[str]) -> str:
    inner = OperationReader(call.reader, op, operands=False)
    if name == "compare":
        total = "TOTALORDER" in f"{inner.attrs.get('compare_type')} {inner.words}"
        return f"{inner.word('comparison_direction')}{'!' * total}({','.join(inputs)})"
    if name == "constant":
        token = next((p for p in inner.literals if getattr(p, "type", "") == "DENSE"), None)
        token = token or getattr(inner.attrs.get("value"), "value", None)
        if token is None:
            raise UnsupportedOperation("its region has a constant of an unknown kind")
        return _number(call.types.constant(token, inner.result))
    if name == "sdy.sharding_constraint" and len(inputs) == 1:
        return inputs[0]  # Elements have no sharding.
    if inner.blocks or inner.params:
        raise UnsupportedOperation("its region is not a simple computation")
    return f"{name}({','.join(inputs)})"


def combination_of(formula: str, position: int) -> str | None:
    """Return the name of the combination of the parameters at one position, such as `add`."""
    name, _, inputs = formula.partition("(")
    if inputs in (f"a{position},b{position})", f"b{position},a{position})"):
        return COMBINATIONS.get(name)
    return None


def position_formulas(better: str, dtype: str) -> list[list[str]]:
    """Return the formulas that select a value and its position: JAX's, then those of the writer."""
    differs = "NE(a0,a0)"
    wins, draws, earlier = f"{better}(a0,b0)", "EQ(a0,b0)", "LT(a1,b1)"
    jax = f"or({wins},{differs})"
    theirs = [
        f"select({jax},a0,b0)",
        f"select(or({jax},and({draws},{earlier})),a1,b1)",
    ]
    if dtype in FLOATS:
        wins, draws = f"or({wins},{differs})", f"or({draws},and({differs},NE(b0,b0)))"
    takes = f"or(and({wins},not({draws})),and({draws},{earlier}))"
    return [theirs, [f"select({takes},a0,b0)", f"select({takes},a1,b1)"]]


def order_formulas(types: Sequence[TensorType], keys: int) -> list[str]:
    """Return the formulas that order by the first `keys` operands: the writer's, JAX's, and a plain
    one.
    """
    result = []
    for kind in (_written_comparison, _jax_comparison, _plain_comparison):
        decided = ""
        for key in reversed(range(keys)):
            less, same = kind(f"a{key}", f"b{key}", types[key].dtype)
            decided = f"or({less},and({same},{decided}))" if decided else less
        result.append(decided)
    return result


class KeyOrder(NamedTuple):
    """The order by one operand of a sort."""

    operand: int
    is_descending: bool
    is_total: bool


def key_orders(formula: str, count: int) -> list[KeyOrder] | None:
    """Return the operands by which a comparison orders, first ones first; `None` for others."""
    for operand in range(count):
        sides = f"(a{operand},b{operand})"
        for word, total in product(("LT", "GT"), ("", "!")):
            strict, equal = f"{word}{total}{sides}", f"EQ{total}{sides}"
            order = KeyOrder(operand, word == "GT", bool(total))
            if formula == strict:
                return [order]
            start = f"or({strict},and({equal},"
            if formula.startswith(start) and formula.endswith("))"):
                rest = key_orders(formula[len(start) : -2], count)
                return None if rest is None else [order, *rest]
    return None


def _written_comparison(a: str, b: str, dtype: str) -> tuple[str, str]:
    if dtype in COMPLEX:
        real = _written_comparison(f"real({a})", f"real({b})", "f32")
        imag = _written_comparison(f"imag({a})", f"imag({b})", "f32")
        return f"or({real[0]},and({real[1]},{imag[0]}))", f"and({real[1]},{imag[1]})"
    less, same = _plain_comparison(a, b, dtype)
    if dtype not in FLOATS:
        return less, same
    return (
        f"or({less},and(not(NE({a},{a})),NE({b},{b})))",
        f"or({same},and(NE({a},{a}),NE({b},{b})))",
    )


def _jax_comparison(a: str, b: str, dtype: str) -> tuple[str, str]:
    """Return a comparison in total order, after unifying signed zeros and NaNs."""
    if dtype in COMPLEX:
        real = _jax_comparison(f"real({a})", f"real({b})", "f32")
        imag = _jax_comparison(f"imag({a})", f"imag({b})", "f32")
        return f"or({real[0]},and({real[1]},{imag[0]}))", f"and({real[1]},{imag[1]})"
    if dtype not in FLOATS:
        return _plain_comparison(a, b, dtype)
    x, y = (f"select(NE({v},{v}),nan,select(EQ({v},0.0),0.0,{v}))" for v in (a, b))
    return f"LT!({x},{y})", f"EQ!({x},{y})"


def _plain_comparison(a: str, b: str, dtype: str) -> tuple[str, str]:
    return f"LT({a},{b})", f"EQ({a},{b})"


def log_add_exp_formulas() -> tuple[str, str]:
    """Return the formulas of log-add-exp: the writer's and JAX's."""
    high, low = "maximum(a0,b0)", "minimum(a0,b0)"
    gap = f"select(EQ({high},{low}),0.0,subtract({low},{high}))"
    difference = "subtract(a0,b0)"
    sum_of = f"add({high},log_plus_one(exponential(negate(abs({difference})))))"
    return (
        f"add({high},log_plus_one(exponential({gap})))",
        f"select(NE({difference},{difference}),add(a0,b0),{sum_of})",
    )


def split_pairs(params: Sequence[Token]) -> list[Token]:
    """Return parameters that are in pairs, all left ones first."""
    return [*islice(params, 0, None, 2), *islice(params, 1, None, 2)]
