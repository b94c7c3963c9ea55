"""The features of Arm processors that the operating system reports."""

import ctypes
from collections.abc import Mapping
from typing import Any

import pytest

from shardir.backends.cpu.codegen.arm_features import AT_HWCAP2, detect_matrix_features


class _Function:
    """A function of the C library, whose types the caller sets."""

    def __init__(self, values: Mapping[Any, int]) -> None:
        self.values = values


class _AuxiliaryVector(_Function):
    def __call__(self, entry: int) -> int:
        return self.values[entry]


class _Sysctl(_Function):
    def __call__(self, name: bytes, value: Any, *rest: object) -> int:
        if name not in self.values:
            return -1
        ctypes.cast(value, ctypes.POINTER(ctypes.c_int32))[0] = self.values[name]
        return 0


class _Library:
    def __init__(self, auxiliary: int = 0, **settings: int) -> None:
        self.getauxval = _AuxiliaryVector({AT_HWCAP2: auxiliary})
        names = {f"hw.optional.arm.{name}".encode(): value for name, value in settings.items()}
        self.sysctlbyname = _Sysctl(names)


@pytest.mark.parametrize(
    ("system", "library", "features"),
    [
        ("linux", _Library(0), []),
        ("linux", _Library(1 << 13), ["i8mm"]),
        ("linux", _Library(1 << 14 | 1 << 13 | 1), ["i8mm", "bf16"]),
        ("darwin", _Library(), []),
        ("darwin", _Library(FEAT_BF16=0, FEAT_I8MM=0), []),
        ("darwin", _Library(FEAT_BF16=1, FEAT_I8MM=1), ["i8mm", "bf16"]),
    ],
)
def test_matrix_features_of_each_system(
    monkeypatch: pytest.MonkeyPatch, system: str, library: _Library, features: list[str]
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: library)
    assert detect_matrix_features(system) == features


def test_a_library_without_the_auxiliary_vector_reports_no_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert detect_matrix_features("linux") == []
