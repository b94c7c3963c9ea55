"""Errors name the public function that was called and its parameter, even if an inner function
raises.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir
from shardir.errors import ShardirError
from shardir.frontend.errors import ArgumentError, NotAnArrayError, StructureError
from tests.error_assertions import assert_raises_exactly

sd: Any = shardir
snp: Any = shardir.numpy
X = np.ones(3, np.float32)
NO_ARRAY = "is 'ab' of type str, which is not an array"
NAMED: list[tuple[Callable[[], Any], str]] = [
    (lambda: snp.union1d("ab", X), "ar1 of union1d"),
    (lambda: snp.union1d(X, "ab"), "ar2 of union1d"),
    (lambda: snp.union1d(X, ["ab"]), "ar2.0 of union1d"),
    (lambda: snp.union1d("ab", X, size=2), "ar1 of union1d"),
    (lambda: snp.intersect1d("ab", X), "ar1 of intersect1d"),
    (lambda: snp.intersect1d(X, "ab", return_indices=True), "ar2 of intersect1d"),
    (lambda: snp.intersect1d(X, "ab", size=2), "ar2 of intersect1d"),
    (lambda: snp.setdiff1d(X, "ab"), "ar2 of setdiff1d"),
    (lambda: snp.setdiff1d("ab", X, assume_unique=True), "ar1 of setdiff1d"),
    (lambda: snp.setxor1d("ab", X), "ar1 of setxor1d"),
    (lambda: snp.unique("ab"), "ar of unique"),
    (lambda: snp.unique("ab", axis=0), "ar of unique"),
    (lambda: snp.unique_all("ab"), "x of unique_all"),
    (lambda: snp.unique_counts("ab"), "x of unique_counts"),
    (lambda: snp.unique_inverse("ab"), "x of unique_inverse"),
    (lambda: snp.unique_values("ab"), "x of unique_values"),
    (lambda: snp.isin("ab", X), "element of isin"),
    (lambda: snp.argwhere("ab"), "a of argwhere"),
    (lambda: snp.flatnonzero("ab"), "a of flatnonzero"),
    (lambda: snp.where("ab"), "condition of where"),
    (lambda: snp.extract("ab", X), "condition of extract"),
    (lambda: snp.extract(X, "ab"), "arr of extract"),
    (lambda: snp.compress(X, "ab"), "a of compress"),
    (lambda: snp.median("ab"), "a of median"),
    (lambda: snp.nanmedian("ab"), "a of nanmedian"),
    (lambda: snp.quantile(X, "ab"), "q of quantile"),
    (lambda: snp.nanquantile("ab", 0.5), "a of nanquantile"),
    (lambda: snp.percentile("ab", [1.0, 2.0]), "a of percentile"),
    (lambda: snp.nanpercentile("ab", 50), "a of nanpercentile"),
    (lambda: snp.linspace("ab", 1), "start of linspace"),
    (lambda: snp.atleast_2d("ab"), "arys.0 of atleast_2d"),
    (lambda: snp.fft.fftfreq(3, "ab"), "d of fftfreq"),
    (lambda: snp.fft.rfftfreq(3, "ab"), "d of rfftfreq"),
]


@pytest.mark.parametrize(("wrong", "argument"), NAMED, ids=[argument for _, argument in NAMED])
def test_an_argument_that_is_no_array_is_named(wrong: Callable[[], Any], argument: str) -> None:
    assert_raises_exactly(wrong, NotAnArrayError, f"argument {argument} {NO_ARRAY}")


def test_an_unhashable_argument_is_named() -> None:
    assert_raises_exactly(
        lambda: snp.asarray({1}),
        NotAnArrayError,
        "argument a of asarray is {1} of type set, which is not an array",
    )
    assert_raises_exactly(
        lambda: snp.union1d(X, {1}),
        NotAnArrayError,
        "argument ar2 of union1d is {1} of type set, which is not an array",
    )


def test_a_cyclic_list_is_an_error() -> None:
    endless: list[Any] = [1.0]
    endless.append(endless)
    assert_raises_exactly(
        lambda: sd.jit(lambda x: snp.interp(endless, "ab", x))(X),
        StructureError,
        "the list [1.0, [...]] contains itself; a pytree must be finite",
    )


FLAGS: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (
        lambda: snp.unique(X, snp.ones(3)),
        ArgumentError,
        "return_index of unique is True or False, got f32[3]",
    ),
    (
        lambda: snp.unique(X, equal_nan=np.ones(0)),
        ArgumentError,
        "equal_nan of unique is True or False, got float64[0]",
    ),
    (
        lambda: snp.setxor1d(X, X, snp.ones(3)),
        ArgumentError,
        "assume_unique of setxor1d is True or False, got f32[3]",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), FLAGS, ids=[text for *_, text in FLAGS])
def test_arrays_of_several_elements_are_not_bools(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    assert_raises_exactly(wrong, kind, text)
