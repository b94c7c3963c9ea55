"""The object cache on disk: permissions, corruption, eviction, and failing disks."""

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
from tests.process_control.process_kill import Killed, ProcessKiller
from tests.process_control.threads import run_concurrently

ROOT = Path(__file__).parents[4]
IMPORT = "from shardir.backends.cpu.codegen import object_cache"


@pytest.fixture
def code_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide the path of a cache folder that the first use creates."""
    folder = tmp_path / "code"
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(folder))
    monkeypatch.setattr(object_cache, "_looks", object_cache._first_looks())
    object_cache.cache_folder.cache_clear()
    yield folder
    object_cache.cache_folder.cache_clear()


def permission_bits(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_saved_code_is_loaded(code_folder: Path) -> None:
    assert object_cache.load("a") is None
    object_cache.save("a", b"code")
    object_cache.save("b", b"")
    object_cache.save("a", b"other code")
    assert object_cache.load("a") == b"other code"
    assert object_cache.load("b") == b""
    assert sorted(file.name for file in code_folder.iterdir()) == ["a.o", "b.o"]


def test_only_the_owner_has_permissions(code_folder: Path) -> None:
    before = os.umask(0)
    try:
        object_cache.save("a", b"code")
    finally:
        os.umask(before)
    assert permission_bits(code_folder) == 0o700
    assert permission_bits(code_folder / "a.o") == 0o600


@pytest.mark.parametrize("bits", [0o720, 0o702, 0o777])
def test_a_folder_writable_by_others_is_not_used(code_folder: Path, bits: int) -> None:
    code_folder.mkdir()
    code_folder.chmod(bits)
    assert object_cache.cache_folder() is None
    object_cache.save("a", b"code")
    assert list(code_folder.iterdir()) == []


def test_a_folder_of_another_user_is_not_used(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code_folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert object_cache.cache_folder() is None


@pytest.mark.parametrize("bits", [0o620, 0o602])
def test_a_file_writable_by_others_is_not_loaded(code_folder: Path, bits: int) -> None:
    object_cache.save("a", b"code")
    (code_folder / "a.o").chmod(bits)
    assert object_cache.load("a") is None


def test_symbolic_links_are_not_followed(code_folder: Path) -> None:
    object_cache.save("a", b"code")
    (code_folder / "b.o").symlink_to(code_folder / "a.o")
    assert object_cache.load("a") == b"code"
    assert object_cache.load("b") is None
    (code_folder / "c.o").mkdir()
    assert object_cache.load("c") is None


def test_pipes_do_not_block(code_folder: Path) -> None:
    object_cache.save("a", b"code")
    os.mkfifo(code_folder / "b.o", 0o600)
    # Run this in its own process, because opening the pipe could block forever.
    program = f"{IMPORT}; print(object_cache.load('a'), object_cache.load('b'))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "b'code' None\n"), done.stderr


def test_a_relative_folder_is_resolved_once(
    code_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
def test_a_corrupt_file_is_removed(code_folder: Path, damage: "object") -> None:
    object_cache.save("a", b"some code")
    file = code_folder / "a.o"
    assert callable(damage)
    file.write_bytes(damage(file.read_bytes()))
    assert object_cache.load("a") is None
    assert not file.exists()
    object_cache.save("a", b"some code")
    assert object_cache.load("a") == b"some code"


def test_code_under_another_key_is_removed(code_folder: Path) -> None:
    object_cache.save("a", b"code of a")
    object_cache.save("b", b"code of b")
    one, other = code_folder / "a.o", code_folder / "b.o"
    texts = one.read_bytes(), other.read_bytes()
    other.write_bytes(texts[0])
    one.write_bytes(texts[1])
    assert object_cache.load("a") is None
    assert object_cache.load("b") is None
    assert list(code_folder.iterdir()) == []


def test_the_checksum_separates_key_and_code(code_folder: Path) -> None:
    object_cache.save("ab", b"c")
    (code_folder / "a.o").write_bytes((code_folder / "ab.o").read_bytes().replace(b"c", b"bc"))
    assert object_cache.load("a") is None


def test_an_entry_of_an_earlier_format_is_removed(code_folder: Path) -> None:
    object_cache.save("a", b"code")
    (code_folder / "a.o").write_bytes(hashlib.sha256(b"code").digest() + b"code")
    assert object_cache.load("a") is None
    assert not (code_folder / "a.o").exists()


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")]
)
def test_an_unreadable_entry_is_removed(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    object_cache.save("a", b"code")
    open_file = os.open

    def raise_error(file: Path, *rest: int) -> int:
        if Path(file).name == "a.o":
            raise error
        return open_file(file, *rest)

    monkeypatch.setattr(os, "open", raise_error)
    assert object_cache.load("a") is None
    assert not (code_folder / "a.o").exists()


def test_entries_of_a_read_only_disk_are_kept(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_cache.save("a", b"code")
    object_cache.save("b", b"code")
    (code_folder / "b.o").write_bytes(b"damaged")
    age(code_folder / "a.o", 2 * object_cache.TOUCH_INTERVAL_SECONDS)

    def raise_error(*_: object, **__: object) -> NoReturn:
        raise OSError(30, "Read-only file system")

    for name in ("unlink", "utime", "replace"):
        monkeypatch.setattr(os, name, raise_error)
    monkeypatch.setattr(tempfile, "mkstemp", raise_error)
    assert object_cache.load("a") == b"code"
    assert object_cache.load("b") is None
    object_cache.discard("a")
    object_cache.save("c", b"code")
    assert sorted(file.name for file in code_folder.iterdir()) == ["a.o", "b.o"]


def test_a_killed_save_leaves_the_old_or_the_new_code(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill the writer before, after and during each of its system calls."""
    killed = []
    for call_index, after in product(range(10), (False, True)):
        object_cache.save("a", b"old code")
        killer = ProcessKiller(call_index, after)
        with monkeypatch.context() as patched:
            for module, name in ((tempfile, "mkstemp"), (os, "replace"), (os, "unlink")):
                patched.setattr(module, name, killer.of(getattr(module, name), name))
            patched.setattr(os, "fdopen", partial(open_with_kill_points, killer, os.fdopen))
            with suppress(Killed):
                object_cache.save("a", b"new code")
        killed += [killer.names[-1]] * killer.has_killed
        assert object_cache.load("a") in (b"old code", b"new code")
        assert object_cache.load("b") is None
    assert killed == ["mkstemp", "mkstemp", "write", "write", "replace", "replace"]


def open_with_kill_points(
    killer: ProcessKiller, fdopen: Callable[..., Any], handle: int, mode: str
) -> Any:
    """Return a file whose writes are kill points of a process."""
    file = fdopen(handle, mode, buffering=0)
    if mode == "rb":
        return file

    def write_half(data: bytes) -> None:
        file.write(data[: len(data) // 2])

    writer = MagicMock()
    writer.__enter__.return_value.write = killer.of(file.write, "write", torn=write_half)
    writer.__exit__.side_effect = lambda *_: file.close()
    return writer


def age(file: Path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_the_oldest_files_are_evicted_above_the_byte_limit(code_folder: Path) -> None:
    for number in range(10):
        object_cache.save(f"k{number}", bytes(1000))
        age(code_folder / f"k{number}.o", 1e6 - number * 1e4)
    object_cache.evict(code_folder, 11_000)
    assert len(list(code_folder.iterdir())) == 10
    # A load renews the modification time.
    assert object_cache.load("k1") is not None
    object_cache.evict(code_folder, 8_000)
    left = sorted(file.stem for file in code_folder.iterdir())
    assert left == ["k1", "k6", "k7", "k8", "k9"]


def test_the_oldest_files_are_evicted_above_the_file_limit(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_cache, "MAX_CACHE_FILES", 8)
    for number in range(9):
        object_cache.save(f"k{number}", b"")
        age(code_folder / f"k{number}.o", 1e6 - number * 1e4)
    object_cache.evict(code_folder, object_cache.MAX_CACHE_BYTES)
    assert sorted(file.stem for file in code_folder.iterdir()) == [
        "k3",
        "k4",
        "k5",
        "k6",
        "k7",
        "k8",
    ]
    object_cache.evict(code_folder, object_cache.MAX_CACHE_BYTES)
    assert len(list(code_folder.iterdir())) == 6


def test_saves_check_the_size_periodically(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_cache, "MAX_CACHE_BYTES", 20_000)
    for number in range(300):
        object_cache.save(f"k{number}", bytes(1000))
    max_files = 20 + object_cache.EVICTION_INTERVAL_FILES
    assert 0 < len(list(code_folder.iterdir())) <= max_files


def test_folders_below_the_limits_are_scanned_rarely(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan visits every file. The next scan happens after an eighth of the remaining file count
    or bytes."""
    scans: list[int] = []
    room = 100_000

    def evict(*_: object) -> tuple[int, int]:
        scans.append(saved)
        return object_cache.MAX_CACHE_FILES - 800, object_cache.MAX_CACHE_BYTES - room

    monkeypatch.setattr(object_cache, "evict", evict)
    monkeypatch.setattr(object_cache, "_looks", object_cache._Looks(3))
    for saved in range(1, 304):
        object_cache.save(f"k{saved % 10}", b"")
    assert scans == [3, 103, 203, 303]
    scans.clear()
    for saved in range(1, 201):
        object_cache.save(f"k{saved % 10}", bytes(150))
    assert scans == [84, 168]
    scans.clear()
    room = 1
    for saved in range(1, 150):
        object_cache.save(f"k{saved % 10}", bytes(150))
    assert scans == [52, 116]


def test_the_first_scan_of_a_process_is_random() -> None:
    first = {object_cache._first_looks().files for _ in range(2000)}
    assert first == set(range(1, object_cache.EVICTION_INTERVAL_FILES + 1))


def test_old_partial_files_are_evicted(code_folder: Path) -> None:
    object_cache.save("a", b"code")
    old, recent = code_folder / "x.part", code_folder / "y.part"
    for file in (old, recent):
        file.write_bytes(b"half")
    age(old, 2 * object_cache.TOUCH_INTERVAL_SECONDS)
    object_cache.evict(code_folder, 1 << 30)
    assert sorted(file.name for file in code_folder.iterdir()) == ["a.o", "y.part"]


def test_a_full_disk_only_disables_saving(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    object_cache.save("a", b"code")

    def raise_disk_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", raise_disk_full)
    object_cache.save("b", b"code")
    assert [file.name for file in code_folder.iterdir()] == ["a.o"]
    assert object_cache.load("b") is None


def test_a_folder_that_cannot_be_created_disables_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code_folder: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert object_cache.cache_folder() is None
    object_cache.save("a", b"code")
    assert object_cache.load("a") is None
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "file"))
    object_cache.cache_folder.cache_clear()
    assert object_cache.cache_folder() is None


def test_an_empty_setting_disables_the_cache(
    code_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDIR_CACHE_DIR", "")
    assert object_cache.cache_folder() is None


def test_the_default_folder_is_in_the_user_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code_folder: Path
) -> None:
    monkeypatch.delenv("SHARDIR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert object_cache.cache_folder() == tmp_path / "caches" / "shardir"


def test_concurrent_saves_and_loads_are_consistent(code_folder: Path) -> None:
    codes = {f"k{number}": bytes([number]) * 5000 for number in range(5)}
    mismatches: list[str] = []

    def save_and_load(_: int) -> None:
        for _ in range(40):
            for key, code in codes.items():
                object_cache.save(key, code)
                if object_cache.load(key) != code:
                    mismatches.append(key)

    run_concurrently(save_and_load, range(4))
    assert mismatches == []
    assert sorted(file.name for file in code_folder.iterdir()) == [f"{key}.o" for key in codes]


PROGRAM = """
import numpy as np
from shardir.backends.cpu.kernel_api import Phase
from shardir.backends.cpu.codegen import compiler
from shardir.backends.cpu.dispatch.program_table import load_program
from tests.backends.cpu.sample_kernels import NEIGHBOR_HASH, MULTIPLY_ADD
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


def test_the_next_process_loads_code_from_the_cache(code_folder: Path) -> None:
    def run(kinds: str) -> str:
        program = PROGRAM.replace("{kinds}", kinds)
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    assert run("[NEIGHBOR_HASH, MULTIPLY_ADD]") == "[[1], [2]]"  # the interpreter; both kernels
    assert run("[NEIGHBOR_HASH, MULTIPLY_ADD]") == "[]"
    assert run("[MULTIPLY_ADD]") == "[]"
    for file in code_folder.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    assert run("[MULTIPLY_ADD, NEIGHBOR_HASH]") == "[[1], [2]]"
