"""Without native compilation NumPy runs programs, and one warning says so."""

import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import llvmlite
import pytest

from shardir.backends.cpu import availability
from shardir.backends.cpu.availability import is_available, unavailable_reason

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def clear_caches() -> Iterator[None]:
    unavailable_reason.cache_clear()
    availability._warn_once.cache_clear()
    yield
    unavailable_reason.cache_clear()
    availability._warn_once.cache_clear()


def test_native_compilation_is_available_on_the_test_host() -> None:
    assert unavailable_reason() is None
    assert is_available()


def test_missing_llvmlite_gives_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    with pytest.warns(RuntimeWarning) as caught:
        found = [is_available() for _ in range(2)]
    assert found == [False, False]
    assert [str(warning.message) for warning in caught] == [
        "programs run on NumPy, which is several times slower: llvmlite cannot be imported "
        "(import of llvmlite.binding halted; None in sys.modules); pip install llvmlite"
    ]


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.44.1", "llvmlite is 0.44.1, which is too old; pip install -U llvmlite"),
        ("0.45.0rc1", None),
        ("1.0", None),
        ("unknown", None),
    ],
)
def test_an_old_llvmlite_is_unavailable(
    version: str, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llvmlite, "__version__", version)
    assert unavailable_reason() == reason


def test_the_minimum_llvmlite_version_is_the_required_one() -> None:
    min_version = ".".join(map(str, availability.MIN_LLVMLITE_VERSION))
    assert f'"llvmlite>={min_version};' in (ROOT / "pyproject.toml").read_text("utf-8")


def test_unsupported_systems_and_processors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert (
        unavailable_reason()
        == "the processor is riscv64; compiled programs run on x86-64 and ARM64 only"
    )
    unavailable_reason.cache_clear()
    monkeypatch.setattr(sys, "platform", "win32")
    assert (
        unavailable_reason() == "the system is win32; compiled programs run on Linux and macOS only"
    )


def test_programs_run_without_llvmlite() -> None:
    program = """
import sys, warnings
sys.modules["llvmlite"] = None
sys.modules["llvmlite.binding"] = None
import shardir as sd
import shardir.numpy as jnp
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    f = sd.jit(lambda x: x + 1)
    print(f(jnp.arange(3)), f(jnp.arange(4.0)))
print([str(w.message)[:52] for w in said])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "[1 2 3] [1. 2. 3. 4.]\n['programs run on NumPy, which is several times slower']\n"
    )


def test_available_compilation_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert is_available()
