"""Code on disk: who may read and write it, damage, size, and disks that fail."""

import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest

from shardir.backends.cpu.codegen import object_cache
from tests.process_control.process_kill import Killed, Killer
from tests.process_control.threads import at_once

ROOT = Path(__file__).parents[4]
IMPORT = "from shardir.backends.cpu.codegen import object_cache"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the cache, made by its first use."""
    folder = tmp_path / "code"
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(folder))
    monkeypatch.setattr(object_cache, "_looks", object_cache._first_looks())
    object_cache.cache_folder.cache_clear()
    yield folder
    object_cache.cache_folder.cache_clear()


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_what_is_saved_is_loaded(place: Path) -> None:
    assert object_cache.load("a") is None
    object_cache.save("a", b"code")
    object_cache.save("b", b"")
    object_cache.save("a", b"other code")
    assert object_cache.load("a") == b"other code"
    assert object_cache.load("b") == b""
    assert sorted(file.name for file in place.iterdir()) == ["a.o", "b.o"]


def test_nobody_else_may_read_or_write_it(place: Path) -> None:
    before = os.umask(0)
    try:
        object_cache.save("a", b"code")
    finally:
        os.umask(before)
    assert mode(place) == 0o700
    assert mode(place / "a.o") == 0o600


@pytest.mark.parametrize("bits", [0o720, 0o702, 0o777])
def test_a_folder_that_others_may_write_is_not_used(place: Path, bits: int) -> None:
    place.mkdir()
    place.chmod(bits)
    assert object_cache.cache_folder() is None
    object_cache.save("a", b"code")
    assert list(place.iterdir()) == []


def test_a_folder_of_somebody_else_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert object_cache.cache_folder() is None


@pytest.mark.parametrize("bits", [0o620, 0o602])
def test_a_file_that_others_may_write_is_not_run(place: Path, bits: int) -> None:
    object_cache.save("a", b"code")
    (place / "a.o").chmod(bits)
    assert object_cache.load("a") is None


def test_a_link_is_not_followed(place: Path) -> None:
    object_cache.save("a", b"code")
    (place / "b.o").symlink_to(place / "a.o")
    assert object_cache.load("a") == b"code"
    assert object_cache.load("b") is None
    (place / "c.o").mkdir()
    assert object_cache.load("c") is None


def test_nobody_waits_at_a_pipe(place: Path) -> None:
    object_cache.save("a", b"code")
    os.mkfifo(place / "b.o", 0o600)
    # In a process of its own, which would wait for ever.
    program = f"{IMPORT}; print(object_cache.load('a'), object_cache.load('b'))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "b'code' None\n"), done.stderr


def test_a_folder_stays_where_it_is_when_the_process_goes_elsewhere(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDIR_CACHE_DIR", "near")
    monkeypatch.chdir(tmp_path)
    object_cache.save("a", b"code")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert object_cache.load("a") == b"code"
    object_cache.save("b", b"code")
    assert not (tmp_path / "elsewhere" / "near").exists()
    assert object_cache.cache_folder() == tmp_path / "near"


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[:10],
        lambda whole: whole[:-1],
        lambda whole: whole + b"x",
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
        lambda whole: bytes([whole[0] ^ 1]) + whole[1:],
    ],
    ids=["empty", "no checksum", "cut short", "longer", "changed", "wrong checksum"],
)
def test_a_damaged_file_is_thrown_away(place: Path, damage: "object") -> None:
    object_cache.save("a", b"some code")
    file = place / "a.o"
    assert callable(damage)
    file.write_bytes(damage(file.read_bytes()))
    assert object_cache.load("a") is None
    assert not file.exists()
    object_cache.save("a", b"some code")
    assert object_cache.load("a") == b"some code"


def test_code_under_another_key_is_thrown_away(place: Path) -> None:
    object_cache.save("a", b"code of a")
    object_cache.save("b", b"code of b")
    one, other = place / "a.o", place / "b.o"
    texts = one.read_bytes(), other.read_bytes()
    other.write_bytes(texts[0])
    one.write_bytes(texts[1])
    assert object_cache.load("a") is None
    assert object_cache.load("b") is None
    assert list(place.iterdir()) == []


def test_a_key_and_its_code_are_not_run_together(place: Path) -> None:
    object_cache.save("ab", b"c")
    (place / "a.o").write_bytes((place / "ab.o").read_bytes().replace(b"c", b"bc"))
    assert object_cache.load("a") is None


def test_an_entry_of_an_earlier_version_is_thrown_away(place: Path) -> None:
    object_cache.save("a", b"code")
    (place / "a.o").write_bytes(hashlib.sha256(b"code").digest() + b"code")
    assert object_cache.load("a") is None
    assert not (place / "a.o").exists()


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")]
)
def test_an_entry_that_cannot_be_read_is_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    object_cache.save("a", b"code")
    opened = os.open

    def refuse(file: Path, *rest: int) -> int:
        if Path(file).name == "a.o":
            raise error
        return opened(file, *rest)

    monkeypatch.setattr(os, "open", refuse)
    assert object_cache.load("a") is None
    assert not (place / "a.o").exists()


def test_entries_of_a_disk_that_cannot_be_written_stay(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_cache.save("a", b"code")
    object_cache.save("b", b"code")
    (place / "b.o").write_bytes(b"damaged")
    age(place / "a.o", 2 * object_cache.TOUCH_INTERVAL_SECONDS)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(30, "Read-only file system")

    for name in ("unlink", "utime", "replace"):
        monkeypatch.setattr(os, name, refuse)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert object_cache.load("a") == b"code"
    assert object_cache.load("b") is None
    object_cache.discard("a")
    object_cache.save("c", b"code")
    assert sorted(file.name for file in place.iterdir()) == ["a.o", "b.o"]


def test_a_save_that_is_killed_leaves_the_old_code_or_the_new(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the writer before and after each of its calls, and in the middle of what it writes."""
    killed = []
    for at, after in product(range(10), (False, True)):
        object_cache.save("a", b"old code")
        killer = Killer(at, after)
        with monkeypatch.context() as patched:
            for module, name in ((tempfile, "mkstemp"), (os, "replace"), (os, "unlink")):
                patched.setattr(module, name, killer.of(getattr(module, name), name))
            patched.setattr(os, "fdopen", partial(written_by, killer, os.fdopen))
            with suppress(Killed):
                object_cache.save("a", b"new code")
        killed += [killer.names[-1]] * killer.has_killed
        assert object_cache.load("a") in (b"old code", b"new code")
        assert object_cache.load("b") is None
    assert killed == ["mkstemp", "mkstemp", "write", "write", "replace", "replace"]


def written_by(killer: Killer, fdopen: Callable[..., Any], handle: int, mode: str) -> Any:
    """A file whose writing is one of the calls at which a process is killed."""
    file = fdopen(handle, mode, buffering=0)
    if mode == "rb":
        return file

    def half(data: bytes) -> None:
        file.write(data[: len(data) // 2])

    writer = MagicMock()
    writer.__enter__.return_value.write = killer.of(file.write, "write", torn=half)
    writer.__exit__.side_effect = lambda *_: file.close()
    return writer


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_the_oldest_goes_when_there_is_too_much(place: Path) -> None:
    for number in range(10):
        object_cache.save(f"k{number}", bytes(1000))
        age(place / f"k{number}.o", 1e6 - number * 1e4)
    object_cache.evict(place, 11_000)
    assert len(list(place.iterdir())) == 10
    # What is used is young again.
    assert object_cache.load("k1") is not None
    object_cache.evict(place, 8_000)
    left = sorted(file.stem for file in place.iterdir())
    assert left == ["k1", "k6", "k7", "k8", "k9"]


def test_the_oldest_goes_when_there_are_too_many(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_cache, "MAX_CACHE_FILES", 8)
    for number in range(9):
        object_cache.save(f"k{number}", b"")
        age(place / f"k{number}.o", 1e6 - number * 1e4)
    object_cache.evict(place, object_cache.MAX_CACHE_BYTES)
    assert sorted(file.stem for file in place.iterdir()) == ["k3", "k4", "k5", "k6", "k7", "k8"]
    object_cache.evict(place, object_cache.MAX_CACHE_BYTES)
    assert len(list(place.iterdir())) == 6


def test_the_size_is_looked_at_now_and_then(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "MAX_CACHE_BYTES", 20_000)
    for number in range(300):
        object_cache.save(f"k{number}", bytes(1000))
    most = 20 + object_cache.EVICTION_INTERVAL_FILES
    assert 0 < len(list(place.iterdir())) <= most


def test_a_folder_with_room_is_looked_at_seldom(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look takes a step for each file: a process looks again when it has used up an eighth of
    the room for files, or for bytes, that it found."""
    looks: list[int] = []
    room = 100_000

    def evict(*_: object) -> tuple[int, int]:
        looks.append(saved)
        return object_cache.MAX_CACHE_FILES - 800, object_cache.MAX_CACHE_BYTES - room

    monkeypatch.setattr(object_cache, "evict", evict)
    monkeypatch.setattr(object_cache, "_looks", object_cache._Looks(3))
    for saved in range(1, 304):
        object_cache.save(f"k{saved % 10}", b"")
    assert looks == [3, 103, 203, 303]
    looks.clear()
    for saved in range(1, 201):
        object_cache.save(f"k{saved % 10}", bytes(150))
    assert looks == [84, 168]
    looks.clear()
    room = 1
    for saved in range(1, 150):
        object_cache.save(f"k{saved % 10}", bytes(150))
    assert looks == [52, 116]


def test_a_process_begins_anywhere_between_two_looks() -> None:
    first = {object_cache._first_looks().files for _ in range(2000)}
    assert first == set(range(1, object_cache.EVICTION_INTERVAL_FILES + 1))


def test_what_a_process_left_half_written_goes_later(place: Path) -> None:
    object_cache.save("a", b"code")
    old, young = place / "x.part", place / "y.part"
    for file in (old, young):
        file.write_bytes(b"half")
    age(old, 2 * object_cache.TOUCH_INTERVAL_SECONDS)
    object_cache.evict(place, 1 << 30)
    assert sorted(file.name for file in place.iterdir()) == ["a.o", "y.part"]


def test_a_full_disk_costs_nothing_but_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    object_cache.save("a", b"code")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    object_cache.save("b", b"code")
    assert [file.name for file in place.iterdir()] == ["a.o"]
    assert object_cache.load("b") is None


def test_a_folder_that_cannot_be_made_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert object_cache.cache_folder() is None
    object_cache.save("a", b"code")
    assert object_cache.load("a") is None
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "file"))
    object_cache.cache_folder.cache_clear()
    assert object_cache.cache_folder() is None


def test_it_can_be_turned_off(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDIR_CACHE_DIR", "")
    assert object_cache.cache_folder() is None


def test_the_usual_place_is_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.delenv("SHARDIR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert object_cache.cache_folder() == tmp_path / "caches" / "shardir"


def test_many_write_and_read_at_once(place: Path) -> None:
    codes = {f"k{number}": bytes([number]) * 5000 for number in range(5)}
    faults: list[str] = []

    def work(_: int) -> None:
        for _ in range(40):
            for key, code in codes.items():
                object_cache.save(key, code)
                if object_cache.load(key) != code:
                    faults.append(key)

    at_once(work, range(4))
    assert faults == []
    assert sorted(file.name for file in place.iterdir()) == [f"{key}.o" for key in codes]


PROGRAM = """
import numpy as np
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.codegen import compiler
from shardir.backends.cpu.dispatch.program_table import load_program
from tests.backends.cpu.sample_kernels import MIX, MULTIPLY_ADD
made = []
emit = compiler.emit
compiler.emit = lambda groups, *how: (made.append([*map(len, groups)]), emit(groups, *how))[1]
from shardir.backends.cpu.codegen import kernel_table
kernel_table.emit = compiler.emit
words = np.zeros(8, np.uint64)
kinds = {kinds}
load_program([Phase(kind, (1, 1, 8, 0), 8, 0.0) for kind in kinds], 2)(words.ctypes.data)
print(made)
"""


def test_the_next_process_compiles_nothing(place: Path) -> None:
    def run(kinds: str) -> str:
        program = PROGRAM.replace("{kinds}", kinds)
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    assert run("[MIX, MULTIPLY_ADD]") == "[[1], [2]]"  # the interpreter, and both kernels as one
    assert run("[MIX, MULTIPLY_ADD]") == "[]"
    assert run("[MULTIPLY_ADD]") == "[]"
    for file in place.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert run("[MULTIPLY_ADD, MIX]") == "[[1], [2]]"
