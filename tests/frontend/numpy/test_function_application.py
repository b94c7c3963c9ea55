"""Application of user functions along axes, and index helpers such as `r_` and `s_`."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.errors import OperationTypeError
from shardir.frontend.numpy import api as snp
from tests.namespace import eagerly, run, same

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ROW = np.array([1.0, 2.0, 3.0], np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_apply_along_axis(axis: int) -> None:
    functions: list[tuple[Any, Any]] = [
        (lambda v: v.sum(), lambda v: v.sum()),
        (lambda v: v * 2, lambda v: v * 2),
        (lambda v: snp.outer(v, v), lambda v: np.outer(v, v)),
    ]
    for mine, theirs in functions:
        expected = np.apply_along_axis(theirs, axis, X)
        same(run(lambda x, f=mine: snp.apply_along_axis(f, axis, x), X), expected)
        same(eagerly(lambda x, f=mine: snp.apply_along_axis(f, axis, x), X), expected)
    scaled = run(lambda x, s: snp.apply_along_axis(lambda v, by: v * by, axis, x, s), X, ROW[1:2])
    same(scaled, X * 2)


def test_apply_over_axes() -> None:
    for axes in (0, (0, 2), [-1]):
        same(run(lambda x, a=axes: snp.apply_over_axes(snp.sum, x, a), X),
             np.apply_over_axes(np.sum, X, axes))  # fmt: skip
    with pytest.raises(OperationTypeError, match="keeps the other 2 axes"):
        run(lambda x: snp.apply_over_axes(lambda x, axis: x.sum(), x, 0), X)


def test_index_expressions() -> None:
    assert snp.s_[1:3] == slice(1, 3)
    assert snp.s_[1, ...] == (1, Ellipsis)
    assert snp.index_exp[1:3] == (slice(1, 3),)
    assert snp.index_exp[1, None] == (1, None)


def test_concatenation_by_index_helpers() -> None:
    r: Any = np.r_
    c: Any = np.c_
    same(run(lambda x: snp.r_[x, 7.0, 0.0:3.0], ROW), r[ROW, np.float32(7), 0.0:3.0].astype("f"))
    same(run(lambda x: snp.r_[0:6:2, x], ROW), r[0:6:2, ROW].astype("f"))
    same(run(lambda: snp.r_[-1:1:5j]), r[-1:1:5j].astype("f"))
    same(run(lambda x: snp.c_[x, x * 2], ROW), c[ROW, ROW * 2])
    same(run(lambda x: snp.c_[x, x], X[0]), c[X[0], X[0]])
    for directive in ("0,2", "-1,2,0", "1,3,1", "0"):
        same(run(lambda x, d=directive: snp.r_[d, x, x], ROW), r[directive, ROW, ROW])
    same(run(lambda x: snp.r_["1", x, x], X), r["1", X, X])
    with pytest.raises(OperationTypeError, match="the directive 'q' is unknown"):
        snp.r_["q", ROW]


def test_functions_of_this_library_are_applied_by_one_program() -> None:
    for axis in (0, 1, 2):
        for mine, theirs in ((snp.sum, np.sum), (snp.sort, np.sort), (jitted, lambda v: v * 2)):
            for _ in range(2):
                made = snp.apply_along_axis(mine, axis, snp.asarray(X))
                same(made, np.apply_along_axis(theirs, axis, X))
    kept = snp.apply_along_axis(snp.cumsum, 1, snp.asarray(X), dtype=np.int32)
    assert kept.dtype == np.int32


def test_user_functions_are_traced_again_at_each_call() -> None:
    factors = [1.0]
    for factor in (1.0, 3.0, 1.0):
        factors[0] = factor
        made = snp.apply_along_axis(lambda v: v * factors[0], 0, snp.asarray(X))
        same(made, X * factor)


jitted = sd.jit(lambda v: v * 2)
