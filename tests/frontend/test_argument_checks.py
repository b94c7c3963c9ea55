"""Errors of arguments that are not valid row counts, sizes, axes or real numbers."""

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
import pytest

import shardir
from shardir.errors import OperationTypeError, ShardirError
from shardir.frontend.argument_checks import check_flag
from shardir.frontend.errors import ArgumentError, AxisError, NotAnArrayError, RandomError
from shardir.nn import initializers as _initializers
from shardir.scipy import linalg as _linalg, special as _special
from tests.error_assertions import assert_raises_exactly

snp: Any = shardir.numpy
random: Any = shardir.random
initializers: Any = _initializers
linalg: Any = _linalg
special: Any = _special

X = np.ones(3, np.float32)


def test_arrays_of_one_element_have_truth_values() -> None:
    for given in (True, 1, "a", np.array([1]), snp.ones((1, 1)), snp.float32(3)):
        assert check_flag("flag", given)
    for given in (0, (), np.zeros(1), snp.zeros((1, 1))):
        assert not check_flag("flag", given)
    for wrong in (np.zeros(0), np.ones(2), snp.ones(2)):
        with pytest.raises(ArgumentError, match=r"^flag "):
            check_flag("flag", wrong)


CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (
        lambda: snp.fft.fftfreq("a"),
        ArgumentError,
        "the number of elements of fftfreq must be an integer, got 'a'",
    ),
    (
        lambda: snp.fft.rfftfreq(2.5),
        ArgumentError,
        "the number of elements of rfftfreq must be an integer, got 2.5",
    ),
    (
        lambda: linalg.cho_solve(3, X),
        ArgumentError,
        "cho_solve takes as c_and_lower the pair that cho_factor returns, got 3",
    ),
    (
        lambda: linalg.cho_solve((snp.eye(3), np.array([1, 2])), X),
        ArgumentError,
        "lower of cho_solve is True or False, got int64[2]",
    ),
    (
        lambda: linalg.lu_solve((1, 2, 3), X),
        ArgumentError,
        "lu_solve takes as lu_and_piv the pair that lu_factor returns, got (1, 2, 3)",
    ),
    (
        lambda: linalg.lu_solve((snp.eye(3), snp.arange(3)), X, trans=[1]),
        ArgumentError,
        "lu_solve takes as trans one of 0, 'N', 1, 'T', 2, 'C', got [1]",
    ),
    (
        lambda: linalg.dft("a"),
        ArgumentError,
        "the number of rows of dft must be an integer, got 'a'",
    ),
    (
        lambda: linalg.dft(3, [1]),
        ArgumentError,
        "dft has the scales 'sqrtn', 'n' and None, not [1]",
    ),
    (
        lambda: linalg.hadamard(10**30),
        ArgumentError,
        "the number of rows of hadamard is at most 32768, got 1000000000000000000000000000000",
    ),
    (
        lambda: linalg.helmert(0),
        ArgumentError,
        "the number of rows of helmert is at least 1, got 0",
    ),
    (
        lambda: linalg.pascal(501),
        ArgumentError,
        "the number of rows of pascal is at most 500, got 501",
    ),
    (
        lambda: linalg.pascal(3, np.array([1, 2])),
        ArgumentError,
        "pascal has the kinds 'symmetric', 'lower' and 'upper', not array([1, 2])",
    ),
    (
        lambda: linalg.invhilbert(201),
        ArgumentError,
        "the number of rows of invhilbert is at most 200, got 201",
    ),
    (
        lambda: linalg.invhilbert(15, exact=True),
        ArgumentError,
        "the number of rows of invhilbert is at most 14, got 15",
    ),
    (
        lambda: linalg.convolution_matrix(X, "a"),
        ArgumentError,
        "n of convolution_matrix must be an integer, got 'a'",
    ),
    (
        lambda: random.key_impl("a"),
        NotAnArrayError,
        "argument keys of key_impl is 'a' of type str, which is not an array",
    ),
    (
        lambda: random.key_impl(X),
        RandomError,
        "expected a random key, got f32[3]; make one with random.key(seed)",
    ),
    (
        lambda: initializers.variance_scaling("a", "fan_in", "normal"),
        ArgumentError,
        "scale of variance_scaling is a real number, got 'a'",
    ),
    (
        lambda: initializers.variance_scaling(-1, "fan_in", "normal"),
        ArgumentError,
        "scale of variance_scaling is at least 0, got -1",
    ),
    (
        lambda: initializers.variance_scaling(1, ["fan_in"], "normal"),
        ArgumentError,
        "mode of variance_scaling is one of fan_in, fan_out, fan_avg, fan_geo_avg, got ['fan_in']",
    ),
    (
        lambda: initializers.variance_scaling(1, "fan_in", "normal", in_axis=None),
        ArgumentError,
        "in_axis of variance_scaling must be a tuple of integers, got (None,)",
    ),
    (
        lambda: initializers.orthogonal(column_axis=5)(random.key(0), (2, 3)),
        AxisError,
        "axis 5 is out of range for an array of rank 2",
    ),
    (
        lambda: linalg.invpascal(3, [1]),
        ArgumentError,
        "invpascal has the kinds 'symmetric', 'lower' and 'upper', not [1]",
    ),
    (
        lambda: linalg.invhilbert(3, exact=X),
        ArgumentError,
        "exact of invhilbert is True or False, got float32[3]",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[text[:40] for *_, text in CASES])
def test_an_invalid_argument_has_an_exact_error(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)


def test_large_binomials_are_not_wrapped() -> None:
    with shardir.enable_x64():
        found = np.asarray(linalg.pascal(40))
        inverse = np.asarray(linalg.invpascal(40))
    assert found[39, 39] == float(comb(78, 39))
    assert inverse[0, 0] == 40


@pytest.mark.parametrize("name", ["i0", "i0e", "i1", "i1e", "ndtr", "log_ndtr", "ndtri"])
def test_functions_of_real_numbers_reject_complex_arguments(name: str) -> None:
    with pytest.raises(OperationTypeError) as caught:
        getattr(special, name)(1j)
    text = f"{name} takes no complex numbers, got c64[]; pass .real, .imag or abs"
    assert str(caught.value).split("\n")[0] == text
    with pytest.raises(OperationTypeError, match="gammainc takes no complex numbers"):
        special.gammainc(1j, 2.0)
