"""Compiled kernels compute the same as their Python functions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from shardir.passes.planning.kernel_compiler import Floats, Ints, compile_kernels

SCALE = 3
IS_LARGE = True


class Pair(NamedTuple):
    """Two arrays."""

    counts: Ints
    weights: Floats


def arithmetic(a: int, b: int, x: float) -> float:
    c = a * b - a + 7 // SCALE
    c += b % 2 if b >= 0 else 0
    y = x / 4 - c
    return -y + float(a) * 0.1 + int(x)


def comparisons(a: int, b: int, x: float) -> int:
    found = 0
    found += 1 if a < b else 0
    found += 2 if a <= b else 0
    found += 4 if x > a else 0
    found += 8 if x >= b else 0
    found += 16 if a == b else 0
    found += 32 if x != 1.5 else 0
    return found


def conditions(a: int, b: int, x: float) -> int:
    if a and b > 0:
        return 1
    if a > 2 or (b > 2 and not x > 0.0):
        return 2
    found = 3
    if not (a < 0 or b < 0):
        found = 4
        a += 1
    else:
        found += 2
    is_less = a < b
    return found * 2 + is_less + IS_LARGE


def loops(a: int, b: int, x: float) -> int:
    total = 0
    for i in range(a, a + 5):
        if i == b:
            continue
        total += i
        i = 100
    for j in range(5):
        if j > b:
            break
        total = total * 3 + j
    count = 0
    while count < 10:
        count += 2
        if count % 4 == 0:
            continue
        if count > 6 and x > 0.0:
            break
        total += count
    return total


def least(a: int, b: int, x: float) -> float:
    return min(a, b) + max(x, b) + max(a, 2) + min(x, 0.5)


def read(pair: Pair, position: int) -> float:
    return float(pair.counts[position] * pair.weights[position])


def write(pair: Pair, place: int, step: float) -> int:
    """Change both arrays, through calls of another kernel."""
    for i in range(place):
        pair.weights[i] = read(pair, i) + step
        pair.counts[i] += i
        pair.weights[i] *= 2
    return place


@pytest.mark.parametrize("function", [arithmetic, comparisons, conditions, loops, least])
def test_numbers_are_those_of_python(function: Callable[..., Any]) -> None:
    compiled = compile_kernels([function])[function.__name__]
    for a in range(-2, 4):
        for b in range(-2, 4):
            for x in (-1.5, 0.0, 1.5, 3.25):
                assert compiled(a, b, x) == function(a, b, x), (a, b, x)


def test_arrays_of_records_are_read_and_written() -> None:
    compiled = compile_kernels([read, write])
    mine, theirs = (Pair(np.arange(5) + 1, np.linspace(0.0, 1.0, 5)) for _ in range(2))
    assert compiled["write"](mine, 4, 0.25) == write(theirs, 4, 0.25) == 4
    assert mine.counts.tolist() == theirs.counts.tolist() == [1, 3, 5, 7, 5]
    assert mine.weights.tolist() == theirs.weights.tolist()
    assert compiled["read"](mine, 3) == read(theirs, 3)


def test_without_llvmlite_the_functions_run_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llvmlite.binding", None)
    assert compile_kernels([read, write]) == {"read": read, "write": write}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.arange(4), np.zeros(4)), "read takes 3 arguments, not 2"),
        ((np.zeros(4), np.zeros(4), 1), "read takes contiguous arrays of int64"),
        ((np.arange(4), np.zeros(8)[::2], 1), "read takes contiguous arrays of float64"),
    ],
)
def test_other_arguments_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    compiled = compile_kernels([read])["read"]
    with pytest.raises(TypeError) as error:
        compiled(*arguments)
    assert str(error.value) == message


def deleting(a: int) -> int:
    del a
    return 0


def power(a: int) -> int:
    return a + len("a")


def rounding(x: float) -> int:
    return x  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (deleting, "kernels have no Delete statement"),
        (power, "kernels have no expression 'a'"),
        (rounding, "rounding uses a value of type float as int"),
    ],
)
def test_other_programs_are_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        compile_kernels([function])
    assert str(error.value) == message
