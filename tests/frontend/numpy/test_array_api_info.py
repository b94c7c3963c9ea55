"""Requirements of the Array API standard for the namespace and its arrays."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.frontend.config import config
from shardir.frontend.errors import ArgumentError
from tests.array_api import failures, known_failures

ARRAY: Any = snp.arange(6.0).reshape(2, 3)


def test_an_array_knows_its_namespace() -> None:
    assert ARRAY.__array_namespace__() is snp
    assert ARRAY.__array_namespace__(api_version="2023.12") is snp
    with pytest.raises(ArgumentError) as caught:
        ARRAY.__array_namespace__(api_version="1999.12")
    assert str(caught.value).split("\n")[0] == (
        "version '1999.12' of the Array API is not known; the versions are 2021.12, 2022.12, "
        "2023.12, 2024.12"
    )
    assert snp.__array_api_version__ == "2024.12"


def test_the_namespace_reports_its_capabilities() -> None:
    info = snp.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"]
    assert info.default_device() in info.devices() == list(sd.devices())
    assert info.default_dtypes()["real floating"] == np.float32
    assert list(info.dtypes(kind="complex floating")) == ["complex64"]
    with config(enable_x64=True):
        assert info.default_dtypes()["integral"] == np.int64
        assert list(info.dtypes(kind="real floating")) == ["float32", "float64"]


def test_to_device_moves_arrays() -> None:
    device = sd.devices()[1]
    assert ARRAY.to_device(device).devices() == {device}


def test_arrays_are_exported_by_dlpack() -> None:
    there = np.from_dlpack(ARRAY)
    np.testing.assert_array_equal(there, np.asarray(ARRAY))
    assert not there.flags.writeable
    assert ARRAY.__dlpack_device__() == (1, 0)
    again = snp.from_dlpack(np.ones(3, "f"), device=sd.devices()[2])
    assert again.devices() == {sd.devices()[2]}
    assert snp.from_dlpack(ARRAY) is ARRAY


def test_a_dtype_is_equal_to_its_name_only() -> None:
    assert snp.float32 == "float32"
    for other in ({"category": "linalg"}, ["f4"], "no type\nat all", 3):
        assert snp.float32 != other


def test_signs_of_zeros_agree_with_numpy() -> None:
    x, y = np.array([-0.0, 0.0, -0.0, 0.0], "f"), np.array([1, 1, -2, -2], "f")
    for name in ("floor_divide", "remainder"):
        got = np.asarray(getattr(snp, name)(x, y))
        np.testing.assert_array_equal(np.signbit(got), np.signbit(getattr(np, name)(x, y)))
    assert not np.signbit(np.asarray(snp.sign(x))).any()
    assert np.signbit(np.asarray(snp.linalg.outer(x[:1], y)))[0].tolist() == [1, 1, 0, 0]


def test_large_diagonal_offsets_and_64_bit_numbers() -> None:
    for k in (2**70, -(2**70)):
        assert not np.asarray(snp.eye(2, 3, k)).any()
    with config(enable_x64=True):
        big = 2**40
        assert np.asarray(snp.unique_values(snp.asarray([big, 1, big]))).tolist() == [1, big]


@pytest.mark.parametrize(
    ("z", "expected"),
    [
        (complex(np.inf, 0), complex(np.inf, 0)),
        (complex(-np.inf, np.inf), complex(-1, 0)),
        (complex(np.nan, 0), complex(np.nan, 0)),
        (complex(1e-6, 1e-6), complex(1e-6, 1e-6)),
    ],
)
def test_expm1_of_complex_values(z: complex, expected: complex) -> None:
    got = np.asarray(snp.expm1(np.complex64(z)))
    np.testing.assert_allclose([got.real, got.imag], [expected.real, expected.imag], rtol=1e-5)


def test_the_page_of_failures_is_parsed() -> None:
    text = "```text\narray_api_tests/test_a.py::test_b[c > d]\n```\n"
    assert known_failures(text) == ["array_api_tests/test_a.py::test_b[c > d]"]
    report = "FAILED array_api_tests/test_a.py::test_b[c > d] - AssertionError: no - never\n"
    assert failures(report) == known_failures(text)
