"""A `save` interrupted at any file system call leaves the old checkpoint or the new one."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.checkpoints import exists, load, save
from shardir.frontend.checkpoint import index, load as restoring
from shardir.frontend.checkpoint.folder import find_checkpoint_folder
from shardir.frontend.errors import CheckpointError
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.process_control.process_kill import Killed, ProcessKiller

stored = pytest.importorskip(
    "safetensors.numpy", reason="checkpoints need the extra: pip install 'shardir[checkpoints]'"
)

MESH = sd.make_mesh((2,), ("x",))
OLD = np.arange(24, dtype=np.float32).reshape(8, 3)
NEW = -OLD
OS_CALLS = ("mkdir", "open", "write", "fsync", "rename", "replace", "unlink", "rmdir")


@pytest.fixture
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace `fsync` by a function that returns immediately."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def state(numbers: Any, step: int) -> dict[str, Any]:
    return {"w": sd.device_put(numbers, NamedSharding(MESH, P("x"))), "step": step}


def load_step(folder: Path) -> int:
    """Return the step of a checkpoint, and check the arrays saved with it."""
    found = load(folder, state(OLD, 0))
    step = found["step"]
    np.testing.assert_array_equal(np.asarray(found["w"]), {1: OLD, 2: NEW}[step])
    return int(step)


def save_killed(killer: ProcessKiller, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save the new state; the process is killed at one of its file system calls."""
    new = state(NEW, 2)
    with monkeypatch.context() as patched:
        for name in OS_CALLS:
            call = getattr(os, name)
            torn = half_written(call) if name == "write" else None
            patched.setattr(os, name, killer.of(call, name, torn))
        wrap = killer.of(stored.save_file, "save_file", torn_file)
        patched.setattr(stored, "save_file", wrap)
        with suppress(Killed):
            save(folder, new, overwrite=True)


def half_written(write: Callable[..., int]) -> Callable[..., int]:
    return lambda handle, data: write(handle, data[: len(data) // 2])


def torn_file(arrays: Any, path: Path) -> None:
    """Write a file as safetensors leaves it when it is killed during the write."""
    stored.save_file(arrays, path)
    whole = path.read_bytes()
    path.unlink()
    (path.parent / ".tmpAbC123").write_bytes(whole[: len(whole) // 2])


def kills(
    folder: Path, prepare: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ProcessKiller]:
    """Kill a save before and after each of its calls; `prepare` sets up the folder each time."""
    for after in (False, True):
        for at in count():
            for path in folder.parent.iterdir():
                shutil.rmtree(path)
            prepare()
            killer = ProcessKiller(at, after)
            save_killed(killer, folder, monkeypatch)
            if not killer.has_killed:
                assert load_step(folder) == 2
                break
            yield killer


@pytest.mark.usefixtures("quick_disk")
def test_a_new_checkpoint_is_complete_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = tmp_path / "a", []
    for killer in kills(folder, lambda: None, monkeypatch):
        seen.append(exists(folder))
        assert folder.exists() == exists(folder)
        if exists(folder):
            assert load_step(folder) == 2
        else:
            with pytest.raises(
                CheckpointError, match=r"a is not a checkpoint: it has no index\.json"
            ):
                load(folder)
        # The next save ignores the leftover files.
        save(folder, state(OLD, 1), overwrite=exists(folder))
        assert load_step(folder) == 1
        assert [path.name for path in tmp_path.iterdir()] == ["a"], killer.names
    assert True in seen
    assert False in seen


@pytest.mark.usefixtures("quick_disk")
def test_a_checkpoint_is_replaced_atomically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = tmp_path / "a", []

    def prepare() -> None:
        save(folder, state(OLD, 1))
        (folder / "notes.txt").write_text("mine", "utf-8")

    for killer in kills(folder, prepare, monkeypatch):
        assert exists(folder), killer.names
        seen.append(load_step(folder))
        save(folder, state(OLD, 1), overwrite=True)
        assert load_step(folder) == 1
        names = sorted(path.name for path in folder.iterdir())
        assert names[0] == "index.json"
        assert names[1] == "notes.txt"
        assert len(names) == 3, killer.names
        assert [path.name for path in tmp_path.iterdir()] == ["a"], killer.names
    before = seen.count(1)
    assert {1, 2} == set(seen)
    assert before > 20


@pytest.mark.usefixtures("quick_disk")
def test_a_checkpoint_interrupted_during_rename_by_an_earlier_version_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier version was killed after it had renamed the old checkpoint."""
    folder, seen = tmp_path / "a", []

    def prepare() -> None:
        save(tmp_path / ".a.old", state(OLD, 1))
        save(tmp_path / ".a.part", state(NEW, 2))

    for _ in kills(folder, prepare, monkeypatch):
        assert exists(folder)
        seen.append(load_step(folder))
    assert {1, 2} == set(seen)


@pytest.mark.usefixtures("quick_disk")
def test_a_folder_that_is_no_checkpoint_is_not_that_of_an_interrupted_job(tmp_path: Path) -> None:
    (tmp_path / ".run.old").mkdir()
    assert find_checkpoint_folder(tmp_path / "run") == tmp_path / "run"


def test_repeated_replacement_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a"

    def prepare() -> None:
        for _ in range(2):
            save(folder, state(NEW, 2), overwrite=folder.exists())
        save(folder, state(OLD, 1), overwrite=True)

    assert {load_step(folder) for _ in kills(folder, prepare, monkeypatch)} == {1, 2}


def test_files_are_synchronized_before_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test checks the order of writes, synchronizations, renames and removals."""
    folder = tmp_path / "a"
    assert calls_of_save(folder, tmp_path, monkeypatch) == [
        "mkdir .a.part",
        "save_file .a.part/process-00000.safetensors",
        "fsync .a.part/process-00000.safetensors",
        "write .a.part/index.json",
        "fsync .a.part/index.json",
        "fsync .a.part",
        "rename .a.part a",
        "fsync .",
    ]
    assert calls_of_save(folder, tmp_path, monkeypatch) == [
        "mkdir a/save-1",
        "save_file a/save-1/process-00000.safetensors",
        "fsync a/save-1/process-00000.safetensors",
        "write a/save-1/index.json",
        "fsync a/save-1/index.json",
        "fsync a/save-1",
        "fsync a",
        "replace a/save-1/index.json a/index.json",
        "fsync a",
        "unlink a/process-00000.safetensors",
    ]
    assert calls_of_save(tmp_path / "b" / "c" / "d", tmp_path, monkeypatch)[:5] == [
        "mkdir b",
        "fsync .",
        "mkdir b/c",
        "fsync b",
        "mkdir b/c/.d.part",
    ]


def calls_of_save(folder: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the calls of a save that change files, with names relative to a folder."""
    done: list[str] = []

    def recorded(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def record(*args: Any, **options: Any) -> Any:
            places = args[:1] if name in ("mkdir", "fsync", "write", "unlink") else args[:2]
            if name == "save_file":
                places = args[1:]
            shown = [
                os.readlink(f"/proc/self/fd/{place}") if isinstance(place, int) else place
                for place in places
            ]
            done.append(" ".join([name, *(os.path.relpath(place, base) for place in shown)]))
            return call(*args, **options)

        return record

    new = state(NEW, 2)
    with monkeypatch.context() as patched:
        for name in ("mkdir", "fsync", "write", "rename", "replace", "unlink"):
            patched.setattr(os, name, recorded(name, getattr(os, name)))
        wrap = recorded("save_file", stored.save_file)
        patched.setattr(stored, "save_file", wrap)
        save(folder, new, overwrite=True)
    return done


@pytest.mark.parametrize("kind", ["folder", "empty folder", "file", "other index", "link", "pipe"])
def test_only_checkpoints_are_replaced(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "thesis"
    if kind == "file":
        folder.write_text("years of work", "utf-8")
    elif kind == "link":
        folder.symlink_to(tmp_path / "nowhere")
    else:
        folder.mkdir()
    if kind == "folder":
        (folder / "chapter.txt").write_text("years of work", "utf-8")
    if kind == "other index":
        (folder / "index.json").write_text('{"format": "other"}', "utf-8")
    if kind == "pipe":
        os.mkfifo(folder / "index.json")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError) as caught:
        save(folder, {"a": 1}, overwrite=True)
    assert str(caught.value).partition("\n")[0] == (
        f"{folder} is not a checkpoint, and overwrite=True replaces nothing else; save to another "
        "folder, or remove this one first"
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_other_files_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    save(folder, state(OLD, 1))
    mine = [folder / "notes.txt", folder / "save-7" / "notes.txt", folder / "save-x" / "b.txt"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine", "utf-8")
    for step, numbers in ((2, NEW), (1, OLD)):
        save(folder, state(numbers, step), overwrite=True)
        assert load_step(folder) == step
        assert [path.read_text("utf-8") for path in mine] == ["mine"] * 3
    (tmp_path / ".b.part").mkdir()
    (tmp_path / ".b.part" / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(CheckpointError, match=r"b cannot be written: \[Errno 17\] File exists"):
        save(tmp_path / "b", state(OLD, 1))
    assert (tmp_path / ".b.part" / "notes.txt").read_text("utf-8") == "mine"


def test_a_symbolic_link_to_a_checkpoint_is_kept(tmp_path: Path) -> None:
    save(tmp_path / "real", state(OLD, 1))
    (tmp_path / "latest").symlink_to("real")
    save(tmp_path / "latest", state(NEW, 2), overwrite=True)
    assert (tmp_path / "latest").is_symlink()
    assert load_step(tmp_path / "real") == load_step(tmp_path / "latest") == 2
    # Removal does not follow symbolic links.
    (tmp_path / ".new.part").symlink_to("real")
    with pytest.raises(CheckpointError, match="File exists"):
        save(tmp_path / "new", state(OLD, 1))
    assert load_step(tmp_path / "real") == 2


def test_an_interrupt_keeps_the_previous_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(folder, state(NEW, 2))
    assert list(tmp_path.iterdir()) == []
    save(folder, state(OLD, 1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            save(folder, state(NEW, 2), overwrite=True)
    assert load_step(folder) == 1
    assert sorted(path.name for path in folder.iterdir()) == [
        "index.json", "process-00000.safetensors",
    ]  # fmt: skip


@pytest.mark.parametrize("limit", [0, 100, 5000])
def test_a_full_disk_keeps_the_previous_checkpoint(limit: int, tmp_path: Path) -> None:
    """A limit on the file size of the process simulates the full disk."""
    folder = tmp_path / "a"
    save(folder, state(OLD, 1))
    large = {"w": np.zeros(10_000, np.float32), "step": 2}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(CheckpointError) as caught:
            save(folder, large, overwrite=True)
        with pytest.raises(CheckpointError) as new:
            save(tmp_path / "b", large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for path, error in ((folder, caught), (tmp_path / "b", new)):
        assert str(error.value).startswith(f"{path} cannot be written: ")
        assert "File too large" in str(error.value)
    assert load_step(folder) == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "a", "index.json", "process-00000.safetensors",
    ]  # fmt: skip


def replace_while_loading(monkeypatch: pytest.MonkeyPatch, folder: Path, times: int) -> None:
    """Replace the checkpoint after each read of its index, a given number of times."""
    left = iter(range(times))

    def parse_index(path: Path, text: bytes) -> Any:
        if next(left, None) is not None:
            save(folder, state(NEW, 2), overwrite=True)
        return index.parse_index(path, text)

    monkeypatch.setattr(restoring, "parse_index", parse_index)


@pytest.mark.parametrize("like", [True, False])
def test_load_retries_if_the_checkpoint_is_replaced(
    like: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_disk: None
) -> None:
    save(tmp_path / "a", state(OLD, 1))
    replace_while_loading(monkeypatch, tmp_path / "a", 1)
    if like:
        assert load_step(tmp_path / "a") == 2
        return
    found = load(tmp_path / "a")
    np.testing.assert_array_equal(np.asarray(found["w"]), NEW)


def test_load_of_a_repeatedly_replaced_checkpoint_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_disk: None
) -> None:
    save(tmp_path / "a", state(OLD, 1))
    replace_while_loading(monkeypatch, tmp_path / "a", restoring.MAX_READ_ATTEMPTS - 1)
    assert load_step(tmp_path / "a") == 2
    replace_while_loading(monkeypatch, tmp_path / "a", 1000)
    with pytest.raises(CheckpointError, match=r"process-00000\.safetensors of the checkpoint cann"):
        load(tmp_path / "a", state(OLD, 0))


def test_a_missing_file_of_an_unchanged_checkpoint_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "a", state(OLD, 1))
    (tmp_path / "a" / "process-00000.safetensors").unlink()
    reads: list[Path] = []

    def parse_index(path: Path, text: bytes) -> Any:
        reads.append(path)
        return index.parse_index(path, text)

    monkeypatch.setattr(restoring, "parse_index", parse_index)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load(tmp_path / "a", state(OLD, 0))
    assert len(reads) == 1
