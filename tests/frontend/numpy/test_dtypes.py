"""Dtypes: names, limits, families and promotion."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardir as sd
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError, NotAnArrayError
from shardir.frontend.numpy import api as snp
from shardir.ir.types import INEXACT, INTEGERS, NUMPY_DTYPES
from tests.namespace import run, words
from tests.optional_dependencies import require

NAMES = words(
    "bool_ int8 int16 int32 uint8 uint16 uint32 float16 bfloat16 float32 complex64 int64 float64"
)
X = np.array([[1.5, -2.5, 300.0]], "f")


def numpys(name: str) -> Any:
    return ml_dtypes.bfloat16 if name == "bfloat16" else getattr(np, name)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_the_dtype_of_numpy(name: str) -> None:
    kind, theirs = getattr(snp, name), np.dtype(numpys(name))
    assert kind.dtype == theirs
    assert kind == theirs
    assert theirs == kind
    assert hash(kind) == hash(theirs)
    assert np.dtype(kind) == theirs
    assert repr(kind) == f"shardir.numpy.{name}"
    assert (kind == "nonsense") is False


@pytest.mark.parametrize("name", NAMES)
def test_each_dtype_converts_to_arrays(name: str) -> None:
    made = getattr(snp, name)(1)
    narrow = {"int64": "int32", "float64": "float32"}.get(name, name)
    assert made.dtype == np.dtype(numpys(narrow))
    assert made.shape == ()
    assert run(lambda x: getattr(snp, name)(x), X).dtype == np.dtype(numpys(narrow))
    with config(enable_x64=True):
        assert getattr(snp, name)(1).dtype == np.dtype(numpys(name))


FLOAT_NAMES = sorted(NUMPY_DTYPES[name].name for name in INEXACT)


@pytest.mark.parametrize("name", FLOAT_NAMES)
def test_limits_of_floats_are_those_of_jax(name: str) -> None:
    require("jax")
    import jax.numpy as jnp

    mine, theirs = snp.finfo(name), jnp.finfo(name)
    for attribute in dir(theirs):
        if attribute.startswith("_"):
            continue
        found, expected = getattr(mine, attribute), getattr(theirs, attribute)
        assert type(found) is type(expected), attribute
        assert repr(found) == repr(expected), attribute
    assert repr(mine) == repr(theirs)
    assert snp.asarray(mine.max).dtype == mine.dtype or name in ("float64", "complex128")


@pytest.mark.parametrize("name", sorted(NUMPY_DTYPES[name].name for name in INTEGERS))
def test_limits_of_integers_are_those_of_jax(name: str) -> None:
    require("jax")
    import jax.numpy as jnp

    mine, theirs = snp.iinfo(name), jnp.iinfo(name)
    assert (mine.min, mine.max, mine.bits) == (theirs.min, theirs.max, theirs.bits)
    assert type(mine.max) is type(theirs.max)
    assert mine.dtype == theirs.dtype
    assert mine.kind == theirs.kind
    assert repr(mine) == repr(theirs)


def test_limits_of_integers() -> None:
    assert snp.iinfo(snp.int8).max == 127
    assert snp.iinfo("uint16").min == 0
    assert snp.iinfo(3).bits == 64
    assert snp.iinfo(snp.ones(2, int)).bits == 32


@pytest.mark.parametrize(
    ("operands", "expected"),
    [
        ((X, 1), "float32"),
        ((np.int8(1), 1.0), "float32"),
        ((snp.int8, snp.uint8), "int16"),
        ((snp.float16, snp.bfloat16), "float32"),
        (("int8", float), "float32"),
        ((snp.bfloat16, float), "bfloat16"),
        ((1, 2.0), "float32"),
        ((int,), "int32"),
        ((snp.int8, 1j), "complex64"),
        (([1, 2], snp.int8), "int32"),
    ],
    ids=str,
)
def test_result_types(operands: Any, expected: str) -> None:
    assert snp.result_type(*operands) == np.dtype(numpys(expected))


def test_promoted_types() -> None:
    assert snp.promote_types("int32", "float16") == np.float16
    assert snp.promote_types(snp.uint8, np.int8) == np.int16
    with pytest.raises(ArgumentError, match="result_type takes at least one array or element type"):
        snp.result_type()


@pytest.mark.parametrize(
    ("kind", "family", "expected"),
    [
        (snp.float32, snp.floating, True),
        (snp.bfloat16, snp.floating, True),
        (snp.bfloat16, snp.integer, False),
        (np.int8, snp.signedinteger, True),
        ("uint8", snp.signedinteger, False),
        (snp.complex64, snp.inexact, True),
        (snp.floating, snp.inexact, True),
        (snp.floating, snp.float32, False),
        (snp.float32, np.float32, True),
        (snp.float32, snp.float64, False),
        (float, snp.floating, True),
        (X.dtype, snp.number, True),
    ],
    ids=str,
)
def test_families(kind: Any, family: Any, expected: bool) -> None:
    assert snp.issubdtype(kind, family) is expected


def test_key_dtypes_are_not_numeric() -> None:
    kind = sd.random.key(0).dtype
    assert snp.issubdtype(kind, snp.generic)
    assert not snp.issubdtype(kind, snp.number)
    assert snp.issubdtype(kind, kind)


@pytest.mark.parametrize(
    ("kind", "of", "expected"),
    [
        (snp.int8, "integral", True),
        (snp.bfloat16, "real floating", True),
        (snp.bool_, "numeric", False),
        (snp.float32, ("complex floating", snp.float32), True),
        (snp.float32, np.float64, False),
    ],
    ids=str,
)
def test_kinds_of_the_array_api(kind: Any, of: Any, expected: bool) -> None:
    assert snp.isdtype(kind, of) is expected
    with pytest.raises(
        ArgumentError, match="'nonsense' is not a kind of element type; the kinds are"
    ):
        snp.isdtype(kind, "nonsense")


def test_casts() -> None:
    assert snp.can_cast(snp.int8, snp.float32)
    assert not snp.can_cast("float32", "int8")
    assert snp.can_cast("float32", "int8", "unsafe")
    assert run(snp.astype, X, "int8").tolist() == [[1, -2, 127]]
    assert run(lambda x: x.astype(bool), X).tolist() == [[True, True, True]]
    assert run(snp.astype, X, None).dtype == np.float32


def test_dtype_queries_need_no_elements() -> None:
    assert snp.shape(X) == (1, 3)
    assert snp.shape([[1, 2], [3, 4]]) == (2, 2)
    assert snp.ndim(3) == 0
    assert snp.size(X) == 3
    assert snp.size(X, 1) == 3
    assert snp.isscalar(3)
    assert not snp.isscalar([3])
    assert snp.iscomplexobj(1j)
    assert snp.iscomplexobj([1, 1j])
    assert snp.isrealobj([1, 2])
    assert not snp.iscomplexobj("text")
    assert snp.isrealobj(None)
    for function in (snp.shape, snp.ndim, snp.size, snp.iscomplexobj):
        with pytest.raises(NotAnArrayError, match=r"shapes \(1,\) and \(2,\) is not an array"):
            function([[1], [2, 3]])
    sd.jit(lambda x: snp.zeros(snp.shape(x)))(X)


def test_constants() -> None:
    assert (snp.pi, snp.e, snp.inf, snp.newaxis) == (np.pi, np.e, np.inf, None)
    assert np.isnan(snp.nan)
