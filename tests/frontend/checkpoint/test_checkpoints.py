"""Checkpoints are restored under any sharding, and are either complete or absent."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.checkpoints import exists, load, save
from shardir.frontend.errors import ArgumentError, CheckpointError
from shardir.sharding import NamedSharding, PartitionSpec as P

stored = pytest.importorskip(
    "safetensors.numpy", reason="checkpoints need the extra: pip install 'shardir[checkpoints]'"
)

MESH = sd.make_mesh((4, 2), ("x", "y"))
W = np.arange(96, dtype=np.float32).reshape(8, 12)


def put_sharded(array: Any, *spec: Any) -> Any:
    return sd.device_put(array, NamedSharding(MESH, P(*spec)), uneven="pad")


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))


def test_load_returns_the_saved_arrays(tmp_path: Path) -> None:
    state: dict[str, Any] = {
        "layers": [
            {"w": put_sharded(W, "x", "y")},
            {"w": put_sharded(W, None, "x"), "b": snp.ones(3)},
        ],
        "step": 7,
        "rate": 0.5,
        "loss": snp.float32(1.5),
        "numbers": np.arange(5, dtype=np.int16),
    }
    save(tmp_path / "a", state)
    found = load(tmp_path / "a", state)
    assert found["step"] == 7
    assert type(found["step"]) is int
    assert found["rate"] == 0.5
    for i in range(2):
        same(found["layers"][i]["w"], W)
        assert found["layers"][i]["w"].sharding == state["layers"][i]["w"].sharding
    assert not found["layers"][1]["b"].committed
    same(found["numbers"], snp.arange(5, dtype="int16"))


@pytest.mark.parametrize("before", [(), ("x",), ("y", "x"), (("x", "y"),)])
@pytest.mark.parametrize("after", [("x",), (None, ("y", "x")), ()])
def test_load_with_another_sharding(
    before: tuple[Any, ...], after: tuple[Any, ...], tmp_path: Path
) -> None:
    save(tmp_path / "a", {"w": put_sharded(W, *before)})
    sharding = NamedSharding(MESH, P(*after))
    found = load(tmp_path / "a", {"w": sd.ShapeDtypeStruct(W.shape, "float32")}, shardings=sharding)
    assert found["w"].sharding == sharding
    same(found["w"], W)


def test_uneven_shards(tmp_path: Path) -> None:
    odd = np.arange(35, dtype=np.float32).reshape(5, 7)
    save(tmp_path / "a", put_sharded(odd, "x", "y"))
    for spec in ((), ("y", "x"), (("x", "y"),)):
        same(load(tmp_path / "a", put_sharded(odd, *spec)), odd)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "bool", "int8", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (8, 2)])
def test_every_dtype(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    x = put_sharded(snp.ones(shape, dtype), *("x",)[: len(shape)])
    save(tmp_path / "a", [x])
    same(load(tmp_path / "a", [x])[0], x)


def test_complex128(tmp_path: Path) -> None:
    with sd.enable_x64():
        x = put_sharded(np.arange(8) * (1 + 2j), "x")
        save(tmp_path / "a", x)
        same(load(tmp_path / "a", x), x)


def test_random_keys(tmp_path: Path) -> None:
    keys = put_sharded(sd.random.split(sd.random.key(3), 8), "x")
    save(tmp_path / "a", keys)
    for found in (load(tmp_path / "a", keys), load(tmp_path / "a")["array"]):
        words = sd.random.key_data(found)
        np.testing.assert_array_equal(words, np.asarray(sd.random.key_data(keys)))


def test_load_without_a_template_returns_arrays_by_name(tmp_path: Path) -> None:
    save(tmp_path / "a", {"layers": [{"w": put_sharded(W, "x")}], "b": snp.zeros(2)})
    found = load(tmp_path / "a")
    assert set(found) == {"layers/0/w", "b"}
    same(found["layers/0/w"], W)
    assert not found["b"].committed
    cut = load(tmp_path / "a", shardings={"layers/0/w": NamedSharding(MESH, P("y")), "b": None})
    assert cut["layers/0/w"].sharding.spec == P("y")


def test_the_file_is_valid_safetensors(tmp_path: Path) -> None:
    save(tmp_path / "a", {"w": put_sharded(W, "y")})
    found = stored.load_file(tmp_path / "a" / "process-00000.safetensors")
    assert set(found) == {"w[0:4, 0:12]", "w[4:8, 0:12]"}
    np.testing.assert_array_equal(found["w[4:8, 0:12]"], W[4:])


def test_a_checkpoint_is_replaced_only_on_request(tmp_path: Path) -> None:
    save(tmp_path / "a", put_sharded(W, "x"))
    with pytest.raises(CheckpointError, match=r"a exists; save to another folder, or pass overw"):
        save(tmp_path / "a", put_sharded(W + 1, "x"))
    same(load(tmp_path / "a", put_sharded(W)), W)
    save(tmp_path / "a", put_sharded(W + 1, "x"), overwrite=True)
    same(load(tmp_path / "a", put_sharded(W)), W + 1)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_leftover_files_of_a_killed_job_are_ignored(tmp_path: Path) -> None:
    (tmp_path / ".a.part").mkdir()
    (tmp_path / ".a.part" / "process-00000.safetensors").write_text("half", "utf-8")
    with pytest.raises(CheckpointError, match=r"is not a checkpoint: it has no index\.json"):
        load(tmp_path / "a")
    save(tmp_path / "a", put_sharded(W))
    same(load(tmp_path / "a", put_sharded(W)), W)


def test_a_restarted_script_resumes(tmp_path: Path) -> None:
    """The script is that of docs/distributed.md."""
    path = tmp_path / "a"

    def script() -> int:
        state: dict[str, Any] = {"w": put_sharded(W, "x"), "step": 0}
        if exists(path):
            state = load(path, state)
        save(path, {"w": state["w"] + 1, "step": state["step"] + 1}, overwrite=exists(path))
        return int(state["step"])

    assert [script() for _ in range(3)] == [0, 1, 2]
    assert not exists(tmp_path)
    assert not exists(tmp_path / "b")
    # With a damaged checkpoint, the script neither starts over nor removes files.
    files = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    (path / "index.json").write_text("{", "utf-8")
    with pytest.raises(CheckpointError, match="cannot be read as the index of a checkpoint"):
        script()
    del files[path / "index.json"]
    assert {file: file.read_bytes() for file in files} == files


def test_mismatched_templates_are_errors(tmp_path: Path) -> None:
    save(tmp_path / "a", {"weights": put_sharded(W, "x")})
    struct = sd.ShapeDtypeStruct
    with pytest.raises(CheckpointError, match="has no array 'weight'; did you mean 'weights'"):
        load(tmp_path / "a", {"weight": W})
    with pytest.raises(CheckpointError, match=r"'weights' is f32\[8, 12\] in the checkpoint"):
        load(tmp_path / "a", {"weights": struct((8, 13), "float32")})
    with pytest.raises(CheckpointError, match=r"and f16\[8, 12\] is requested; pass a like"):
        load(tmp_path / "a", {"weights": struct((8, 12), "float16")})
    with pytest.raises(ArgumentError, match="two arrays of a checkpoint are named 'a/b'"):
        save(tmp_path / "b", {"a": {"b": 1}, "a/b": 2})


def test_the_error_names_the_missing_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardir.frontend.checkpoint.save.find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"is not installed; pip install 'shardir\[check"):
        save(tmp_path / "a", W)
    with pytest.raises(CheckpointError, match="safetensors is not installed"):
        load(tmp_path / "a")


def test_damage_is_an_error(tmp_path: Path) -> None:
    save(tmp_path / "a", {"w": put_sharded(W, "x")})
    path = tmp_path / "a" / "process-00000.safetensors"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CheckpointError, match="of the checkpoint cannot be read"):
        load(tmp_path / "a")
    path.unlink()
    with pytest.raises(CheckpointError, match="of the checkpoint cannot be read"):
        load(tmp_path / "a")
    index = tmp_path / "a" / "index.json"
    index.write_text("{", "utf-8")
    with pytest.raises(CheckpointError, match="cannot be read as the index of a checkpoint"):
        load(tmp_path / "a")
    index.write_text(json.dumps({"format": "shardir checkpoint 9", "arrays": {}}), "utf-8")
    with pytest.raises(CheckpointError, match="is of the format 'shardir checkpoint 9', and this"):
        load(tmp_path / "a")


def test_an_inconsistent_index_is_an_error(tmp_path: Path) -> None:
    save(tmp_path / "a", {"w": put_sharded(W, "x")})
    path = tmp_path / "a" / "index.json"
    good = json.loads(path.read_text("utf-8"))

    def told(**changes: Any) -> str:
        entry = {**good["arrays"]["w"], **changes}
        path.write_text(json.dumps({**good, "arrays": {"w": entry}}), "utf-8")
        with pytest.raises(CheckpointError) as caught:
            load(tmp_path / "a")
        return str(caught.value).partition("\n")[0]

    parts = good["arrays"]["w"]["parts"]
    lacking = (
        f"{path} is damaged: the parts that it lists of 'w' do not cover f32[8, 12] exactly "
        "once; load an earlier checkpoint"
    )
    assert told(parts=parts[1:]) == lacking
    assert told(parts=[*parts[1:], parts[1]]) == lacking
    assert told(shape=[8, 13]) == lacking.replace("12]", "13]")
    assert told(parts=[{**parts[0], "box": [[0, 12]]}]) == lacking
    assert "cannot be read as the index" in told(dtype="f77")
    file = path.parent / "process-00000.safetensors"
    assert told(dtype="i32") == (
        f"{file} of the checkpoint is damaged: it has 'w[0:2, 0:12]' as float32, which should be "
        "int32"
    )
    numbers = {key: part[:, :6].copy() for key, part in stored.load_file(file).items()}
    stored.save_file(numbers, file)
    assert told() == (
        f"{file} of the checkpoint is damaged: it has 'w[0:2, 0:12]' of shape (2, 6), which should "
        "be (2, 12)"
    )


def test_load_does_not_round_to_the_dtype_of_the_template(tmp_path: Path) -> None:
    save(tmp_path / "a", {"rate": 0.5, "step": 3, "best": float("nan"), "z": 1j})
    found = load(tmp_path / "a", {"rate": 0.0, "step": 0.0, "best": 0.0, "z": 0j})
    assert found["rate"] == 0.5
    assert found["step"] == 3.0
    assert np.isnan(found["best"])
    assert found["z"] == 1j
    with pytest.raises(
        CheckpointError, match=r"'rate' is 0\.5 in the checkpoint .*, and 0 of type"
    ):
        load(tmp_path / "a", {"rate": 0})
    with pytest.raises(CheckpointError, match="is requested; pass a like with a complex there"):
        load(tmp_path / "a", {"z": 0.0})


@pytest.mark.parametrize("call", ["mkdir", "write", "fsync", "replace"])
def test_a_failed_save_keeps_the_previous_checkpoint(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "a", put_sharded(W, "x"))
    (tmp_path / "a" / "notes.txt").write_text("mine", "utf-8")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, refuse)
        with pytest.raises(CheckpointError) as caught:
            save(tmp_path / "a", put_sharded(W + 1, "x"), overwrite=True)
    assert str(caught.value).partition("\n")[0] == (
        f"{tmp_path / 'a'} cannot be written: [Errno 28] No space left on device"
    )
    same(load(tmp_path / "a", put_sharded(W)), W)
    assert files_in(tmp_path) == [
        "a", "a/index.json", "a/notes.txt", "a/process-00000.safetensors",
    ]  # fmt: skip


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_checkpoint_interrupted_during_rename_by_an_earlier_version_is_found(
    tmp_path: Path,
) -> None:
    save(tmp_path / ".a.old", put_sharded(W, "x"))
    same(load(tmp_path / "a", put_sharded(W)), W)
    assert exists(tmp_path / "a")
    with pytest.raises(
        CheckpointError, match=r"a exists at .*\.a\.old, where an interrupted job left"
    ):
        save(tmp_path / "a", put_sharded(W + 1))
    same(load(tmp_path / "a", put_sharded(W)), W)
    save(tmp_path / "a", put_sharded(W + 1), overwrite=True)
    same(load(tmp_path / "a", put_sharded(W)), W + 1)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_folders_must_be_paths(tmp_path: Path) -> None:
    for call in (save, load):
        with pytest.raises(CheckpointError, match="a folder, got 3"):
            call(3, W)  # type: ignore[arg-type]
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="file is not a checkpoint: it has no index"):
        load(tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"b cannot be written: \[Errno 20\] Not a directory"):
        save(tmp_path / "file" / "b", W)


@pytest.mark.skipif(os.name != "posix", reason="there are no permissions of groups")
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_permissions_of_files_are_those_that_the_process_gives(
    tmp_path: Path, mask: int, mode: int
) -> None:
    before = os.umask(mask)
    try:
        save(tmp_path / "checkpoint", {"x": np.ones(3, np.float32)})
    finally:
        os.umask(before)
    files = sorted((tmp_path / "checkpoint").iterdir())
    assert [file.name for file in files] == ["index.json", "process-00000.safetensors"]
    assert [file.stat().st_mode & 0o777 for file in files] == [mode, mode]
