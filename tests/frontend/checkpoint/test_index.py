"""Validation of the index of a checkpoint: every invalid index is an error that states the
fault.
"""

import json
import os
import resource
from itertools import product
from pathlib import Path
from threading import Thread
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, strategies as st

import shardir as sd
from shardir.checkpoints import load, save
from shardir.frontend.checkpoint.index import MAX_ARRAY_BYTES, do_boxes_tile
from shardir.frontend.distributed.shard_exchange import Box
from shardir.frontend.errors import CheckpointError
from shardir.sharding import NamedSharding, PartitionSpec as P

stored = pytest.importorskip(
    "safetensors.numpy", reason="checkpoints need the extra: pip install 'shardir[checkpoints]'"
)

MESH = sd.make_mesh((4, 2), ("x", "y"))
W = np.arange(96, dtype=np.float32).reshape(8, 12)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    w = sd.device_put(W, NamedSharding(MESH, P("x", "y")))
    save(tmp_path / "a", {"w": w, "step": 3})
    return tmp_path / "a"


def load_error(folder: Path) -> str:
    """Return the first line of the error of `load`."""
    with pytest.raises(CheckpointError) as caught:
        load(folder)
    line = str(caught.value).partition("\n")[0]
    assert line.isprintable()
    assert len(line) < 700
    return line


def read_index(folder: Path) -> Any:
    return json.loads((folder / "index.json").read_text("utf-8"))


def in_format_1(folder: Path) -> Any:
    """Rewrite the index in the format of an earlier version, which has no checksums."""
    index = read_index(folder)
    index["format"] = "shardir checkpoint 1"
    del index["crc32"]
    for entry in index["arrays"].values():
        for part in entry["parts"]:
            del part["crc32"]
    return index


def test_checkpoints_of_an_earlier_version_are_loaded(saved: Path) -> None:
    (saved / "index.json").write_text(json.dumps(in_format_1(saved), indent=1), "utf-8")
    found = load(saved)
    np.testing.assert_array_equal(np.asarray(found["w"]), W)
    assert int(found["step"]) == 3


def test_an_index_has_a_checksum(saved: Path) -> None:
    index = read_index(saved)
    assert len(index["crc32"]) == 8
    (saved / "index.json").write_text(
        json.dumps(index), "utf-8"
    )  # The checksum does not include whitespace.
    load(saved)
    index["arrays"]["v"] = index["arrays"].pop("step")
    index["arrays"]["v"]["parts"] = []
    index["arrays"]["v"]["shape"] = [0, 5]
    (saved / "index.json").write_text(json.dumps(index), "utf-8")
    assert load_error(saved) == (
        f"{saved / 'index.json'} is damaged: it does not have the checksum that it was written with"
    )


NESTED = "[" * 100_000
NOT_READ = "cannot be read as the index of a checkpoint: "
TEXTS = {
    "": "Expecting value",
    "{": "Expecting property name",
    "\xff": "can't decode byte",
    NESTED: "it is nested too deeply",
    '{"a":' * 100_000: "it is nested too deeply",
    "[]": "it names no format",
    "3": "it names no format",
    "null": "it names no format",
    '"format"': "it names no format",
    "{}": "it names no format",
    '{"format": 3}': "it names no format",
    '{"format": "shardir checkpoint 1"}': "the index does not have the members format, arrays and",
    '{"format": "shardir checkpoint 1", "arrays": []}': "its arrays are not an object",
    '{"format": "shardir checkpoint 1", "arrays": {}, "more": 1}': "the index does not have the",
    '{"format": "shardir checkpoint 1", "format": "x"}': "the name 'format' occurs twice",
    '{"format": NaN}': "it has the number NaN",
    '{"format": -Infinity}': "it has the number -Infinity",
    '{"format": 1.5}': "it has the number 1.5, which is not an integer",
    '{"format": 1e400}': "it has the number 1e400, which is not an integer",
    '{"format": ' + "9" * 10_000 + "}": "Exceeds the limit",
    '{"format": "shardir checkpoint 1", "arrays": {"\\ud800": {}}}': "'\\ud800' has a character",
    '{"format": "shardir checkpoint 1", "arrays": {"w": 3}}': "the array 'w' is not an object",
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:60]))
def test_text_that_is_no_index_is_an_error(text: str, saved: Path) -> None:
    (saved / "index.json").write_bytes(text.encode("latin-1"))
    error = load_error(saved)
    assert error.startswith(f"{saved / 'index.json'} {NOT_READ}")
    assert TEXTS[text] in error


NUMBERS: list[Any] = [-1, 2**63, 10**30, True, "3", None, [], {}]
SHAPES: list[Any] = ["8", None, 3, {}, *([8, n] for n in NUMBERS)]
DTYPES: list[Any] = ["f77", None, 3, ["f32"], {}, ""]
NO_LISTS: list[Any] = [{}, None, "x", 3]
NO_OBJECTS: list[Any] = [[], None, "x", 3]
BOXES: list[Any] = [3, None, {}, [3], [[0]], [[0, 1, 2]], [[2, 1]], *([[0, n]] for n in NUMBERS)]
CHANGES: dict[str, list[Any]] = {
    "the shape of the array 'w' is not a list of sizes": [
        {"shape": shape} for shape in SHAPES
    ],
    "the array 'w' has 65 dimensions, at most 64 can be": [{"shape": [1] * 65}],
    f"the array 'w' has more than {MAX_ARRAY_BYTES} bytes": [
        {"shape": [2**62, 2]}, {"shape": [0, 2**40, 2**40]}, {"shape": [2**61]},
    ],
    "the dtype of the array 'w' is unknown": [
        {"dtype": dtype} for dtype in DTYPES
    ],
    "the parts of the array 'w' are not a list": [{"parts": parts} for parts in NO_LISTS],
    "a part of the array 'w' is not an object": [{"parts": [part]} for part in NO_OBJECTS],
    "a part of the array 'w' does not have the members file, box": [{"parts": [{"file": "x"}]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("message", "change"), [(m, change) for m, changes in CHANGES.items() for change in changes]
)
def test_values_of_wrong_types_are_errors(message: str, change: Any, saved: Path) -> None:
    for index in (in_format_1(saved), read_index(saved)):
        index["arrays"]["w"].update(change)
        (saved / "index.json").write_text(json.dumps(index), "utf-8")
        assert load_error(saved).startswith(f"{saved / 'index.json'} {NOT_READ}{message}")


OTHER_PARTS: dict[str, list[Any]] = {
    "the file of a part of the array 'w' is not named as save names files": [
        {"file": file}
        for file in (
            3, None, "", "../process-00000.safetensors", "/etc/passwd", "process-0.safetensors",
            "save-1/../process-00000.safetensors", "process-00000.safetensors\0", "process-00000",
            "process-00000.safetensors\n", "process-\u0966\u0966\u0966\u0966\u0966.safetensors",
        )
    ],
    "the box of a part of the array 'w' has no start and stop for each dimension": [
        {"box": box} for box in BOXES
    ],
    "the checksums of a part of the array 'w' are not eight digits each": [
        {"crc32": crc32}
        for crc32 in (3, None, "x", "0", "0123456", "0123456G", "0123456\n", "\uff11" * 8)
    ],
    "a part of the array 'w' has another number of checksums than its size needs": [
        {"crc32": ""}, {"crc32": "01234567" * 2},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("message", "change"), [(m, change) for m, changes in OTHER_PARTS.items() for change in changes]
)
def test_parts_of_wrong_types_are_errors(message: str, change: Any, saved: Path) -> None:
    index = read_index(saved)
    index["arrays"]["w"]["parts"][0].update(change)
    (saved / "index.json").write_text(json.dumps(index), "utf-8")
    assert load_error(saved).startswith(f"{saved / 'index.json'} {NOT_READ}{message}")


def test_boxes_tile_their_array(saved: Path) -> None:
    index = in_format_1(saved)
    parts = index["arrays"]["w"]["parts"]
    boxes = [part["box"] for part in parts]
    assert boxes[0] == [[0, 2], [0, 6]]

    def changed(number: int, box: Any) -> str:
        parts[number]["box"] = box
        (saved / "index.json").write_text(json.dumps(index), "utf-8")
        parts[number]["box"] = boxes[number]
        return load_error(saved)

    lacking = (
        f"{saved / 'index.json'} is damaged: the parts that it lists of 'w' do not cover "
        "f32[8, 12] exactly once; load an earlier checkpoint"
    )
    assert (
        changed(0, boxes[1]) == lacking
    )  # Duplicate the second box, so that the first is missing.
    assert (
        changed(0, [[1, 3], [0, 6]]) == lacking
    )  # Move a box over another; the total size is unchanged.
    assert changed(0, [[0, 2], [0, 5]]) == lacking
    assert changed(0, [[0, 3], [0, 6]]) == lacking
    assert changed(7, [[6, 8], [6, 13]]) == lacking
    assert changed(0, [[0, 2]]) == lacking
    assert changed(0, [[0, 0], [0, 6]]) == lacking


def brute_force(boxes: list[Box], shape: tuple[int, ...]) -> bool:
    """Return whether each element is in exactly one box, by counting."""
    counts = np.zeros([2 * size + 2 for size in shape], int)
    for box in boxes:
        counts[tuple(slice(*span) for span in box)] += 1
    inside = tuple(slice(0, size) for size in shape)
    outside = counts.sum() - counts[inside].sum()
    return bool((counts[inside] == 1).all() and outside == 0)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[list[Box], tuple[int, ...]]:
    """Draw boxes that tile an array; possibly replace one of them by another box."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    boxes: list[Box] = [tuple((0, size) for size in shape)]
    for _ in range(draw(st.integers(0, 6))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        d = draw(st.integers(0, len(shape) - 1))
        (start, stop) = box[d]
        if stop - start < 2:
            boxes.append(box)
            continue
        at = draw(st.integers(start + 1, stop - 1))
        boxes += [(*box[:d], span, *box[d + 1 :]) for span in ((start, at), (at, stop))]
    if draw(st.booleans()):
        number = draw(st.integers(0, len(boxes) - 1))
        spans = [draw(st.sampled_from([(a, b) for b in range(size + 2) for a in range(b)]))
                 for size in shape]  # fmt: skip
        boxes[number] = tuple(spans)
    return boxes, shape


@given(divisions())
def test_tilings_agree_with_counting(case: tuple[list[Box], tuple[int, ...]]) -> None:
    boxes, shape = case
    assert do_boxes_tile(boxes, shape) == brute_force(boxes, shape)


def test_tilings_that_are_not_grids() -> None:
    # Four boxes surround one in the center: no line separates them.
    wheel = [
        ((0, 1), (0, 2)),
        ((0, 2), (2, 3)),
        ((2, 3), (1, 3)),
        ((1, 3), (0, 1)),
        ((1, 2), (1, 2)),
    ]
    assert do_boxes_tile(wheel, (3, 3))
    assert not do_boxes_tile([*wheel[:4], ((0, 1), (0, 1))], (3, 3))
    assert do_boxes_tile([()], ())
    assert not do_boxes_tile([], ())
    assert not do_boxes_tile([(), ()], ())
    assert do_boxes_tile([], (0, 3))
    assert do_boxes_tile([((0, 0), (0, 3))], (0, 3))
    assert not do_boxes_tile([((0, 1), (0, 3))], (0, 3))


def test_many_boxes_are_compared_quickly() -> None:
    """The test has 40,000 boxes; a comparison of all pairs would take 800 million steps."""
    side = 200
    grid = [((i, i + 1), (j, j + 1)) for i, j in product(range(side), repeat=2)]
    assert do_boxes_tile(grid, (side, side))
    assert not do_boxes_tile([*grid[:-1], grid[0]], (side, side))
    bricks = [((i, i + 1), span) for i in range(side) for span in ((0, 1 + i % 2), (1 + i % 2, 3))]
    assert do_boxes_tile(bricks, (side, 3))
    # Boxes with very many corners are an error.
    many = [tuple((0, 2) for _ in range(63)) + ((i, i + 1),) for i in range(2)]
    assert do_boxes_tile(many, (2,) * 64)
    assert not do_boxes_tile([((0, 1),) * 64, ((1, 2),) * 64], (2,) * 64)


def test_tensors_have_checksums(saved: Path) -> None:
    file = saved / "process-00000.safetensors"
    parts = stored.load_file(file)
    parts["w[2:4, 6:12]"][1, 3] += 1
    stored.save_file(parts, file)
    assert load_error(saved) == (
        f"{file} of the checkpoint is damaged: the elements of 'w[2:4, 6:12]' do not have the "
        "checksum that they were saved with; restore the file, or load an earlier checkpoint"
    )
    # Arrays that do not need the damaged part are loaded.
    assert load(saved, {"step": 0}) == {"step": 3}


def test_every_chunk_of_rows_has_a_checksum(tmp_path: Path) -> None:
    rows = np.arange(3 << 20, dtype=np.float32).reshape(
        6, -1
    )  # Each array has 2 MiB, that is three chunks.
    save(tmp_path / "a", rows)
    (part,) = read_index(tmp_path / "a")["arrays"]["array"]["parts"]
    assert len(part["crc32"]) == 3 * 8
    file = tmp_path / "a" / "process-00000.safetensors"
    numbers = stored.load_file(file)
    numbers["array[0:6, 0:524288]"][5, 7] = 0
    stored.save_file(numbers, file)
    assert "do not have the checksum" in load_error(tmp_path / "a")
    mesh = sd.make_mesh((2,), ("x",))
    sharding = NamedSharding(mesh, P("x"))
    with pytest.raises(CheckpointError, match="do not have the checksum"):
        load(tmp_path / "a", shardings={"array": sharding})
    numbers["array[0:6, 0:524288]"][5, 7] = rows[5, 7]
    stored.save_file(numbers, file)
    for spec in (P("x"), P(None, "x"), P()):
        found = load(tmp_path / "a", shardings={"array": NamedSharding(mesh, spec)})["array"]
        np.testing.assert_array_equal(np.asarray(found), rows)


@pytest.mark.parametrize("cores", [1, 4])
def test_checksums_do_not_depend_on_threads(
    cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    state: dict[str, Any] = {
        "a": np.arange(3 << 20, dtype=np.float32).reshape(6, -1),
        "b": np.arange(7),
        "c": 1,
    }
    save(tmp_path / "a", state)
    digits = {
        name: entry["parts"][0]["crc32"]
        for name, entry in read_index(tmp_path / "a")["arrays"].items()
    }
    rows = [state["a"][at : at + 2].tobytes() for at in (0, 2, 4)]
    assert digits == {
        "a": "".join(f"{crc32(each):08x}" for each in rows),
        "b": f"{crc32(np.arange(7, dtype=np.int32).tobytes()):08x}",
        "c": f"{crc32(np.int32(1).tobytes()):08x}",
    }

    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    save(tmp_path / "b", state)
    assert (tmp_path / "b" / "index.json").read_bytes() == (
        tmp_path / "a" / "index.json"
    ).read_bytes()


def test_missing_and_irregular_files_are_errors(saved: Path) -> None:
    file = saved / "process-00000.safetensors"
    whole = file.read_bytes()
    file.unlink()
    start = f"{file} of the checkpoint cannot be read: "
    assert load_error(saved).startswith(start)
    file.mkdir()
    assert load_error(saved) == f"{start}[Errno 22] not a regular file: '{file}'"
    file.rmdir()
    os.mkfifo(file)  # Opening the named pipe would block for ever.
    assert load_error(saved) == f"{start}[Errno 22] not a regular file: '{file}'"
    file.unlink()
    for text in (b"", whole[:7], whole[:-1], whole + b"x", bytes(8) + whole[8:], b"\xff" * 8):
        file.write_bytes(text)
        assert load_error(saved).startswith(start)
    (saved / "index.json").unlink()
    (saved / "index.json").mkdir()
    assert load_error(saved).startswith(f"{saved / 'index.json'} cannot be read: ")
    (saved / "index.json").rmdir()
    os.mkfifo(saved / "index.json")
    assert load_error(saved) == (
        f"{saved / 'index.json'} cannot be read: [Errno 22] not a regular file: "
        f"'{saved / 'index.json'}'"
    )


def test_an_array_missing_in_its_file_allocates_no_memory(saved: Path) -> None:
    index = in_format_1(saved)
    entry = index["arrays"]["w"]
    entry["shape"] = [2**20, 2**20]
    entry["parts"] = [{**entry["parts"][0], "box": [[0, 2**20], [0, 2**20]]}]
    (saved / "index.json").write_text(json.dumps(index), "utf-8")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert load_error(saved).startswith(
        f"{saved / 'process-00000.safetensors'} of the checkpoint cannot be read: "
    )
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("verb", ["save", "load"])
@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("", "a folder, got ''"),
        (b"a", "a folder, got b'a'"),
        (None, "a folder, got None"),
        ("a\0b", "a folder, and 'a\\x00b' has a character that no path has"),
        ("\ud800", "a folder, and '\\ud800' has a character that no path has"),
    ],
)
def test_values_that_are_no_paths_are_errors(verb: str, folder: Any, message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        _ = save(folder, {"a": 1}) if verb == "save" else load(folder)
    word = "saved to" if verb == "save" else "loaded from"
    assert str(caught.value).partition("\n")[0] == f"a checkpoint is {word} {message}"


@pytest.mark.parametrize("folder", ["/", ".", "..", "x" * 300, "x/" * 3000, "\x1b[31m", "\udcff"])
def test_paths_without_a_checkpoint_are_errors(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = load_error(Path(folder))
    assert "is not a checkpoint: it has no index.json" in error or "File name too long" in error


def test_the_current_folder_may_be_a_checkpoint(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(saved)
    np.testing.assert_array_equal(np.asarray(load(".")["w"]), W)
    save(".", {"w": W + 1}, overwrite=True)
    np.testing.assert_array_equal(np.asarray(load(".")["w"]), W + 1)
    with pytest.raises(
        CheckpointError, match=r"/ is not a folder that a checkpoint can be saved to"
    ):
        save("/", {"w": W}, overwrite=True)


def test_deeply_nested_containers_are_errors(saved: Path) -> None:
    deep: Any = 1
    for number in range(5_000):
        deep = {"a": deep} if number % 2 else [deep]
    message = "the pytree of a checkpoint is nested too deeply; nest it less than 1,000 deep"
    for call in (
        lambda: save(saved.parent / "b", deep),
        lambda: load(saved, deep),
        lambda: load(saved, shardings=deep),
        lambda: load(saved, {"w": W}, shardings=deep),
    ):
        with pytest.raises(CheckpointError) as caught:
            call()
        assert str(caught.value).partition("\n")[0] == message


def test_names_that_are_not_encodable_in_utf_8_are_errors(saved: Path) -> None:
    for call in (
        lambda: save(saved.parent / "b", {"\ud800": 1}),
        lambda: load(saved, {"\ud800": 1}),
    ):
        with pytest.raises(CheckpointError) as caught:
            call()
        assert str(caught.value).partition("\n")[0] == (
            "an array of a checkpoint is named '\\ud800', which has a character that UTF-8 cannot "
            "encode; rename a key of the pytree"
        )


def test_other_names_are_restored(tmp_path: Path) -> None:
    state = {"\0": 1, "\n": 2, "": 3, "é/ü": 4, "__metadata__": 5, "x" * 10_000: 6, "[0:1]": 7}
    save(tmp_path / "a", state)
    assert load(tmp_path / "a", state) == state
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path / "a", {"y" * 10_000: 1})
    line = str(caught.value).partition("\n")[0]
    assert line.isprintable()
    assert len(line) < 2000


def test_out_of_range_numbers_are_errors(tmp_path: Path) -> None:
    save(tmp_path / "a", {"loss": float("inf"), "key": sd.random.key(0), "z": np.complex64(1j)})
    for like in ({"loss": 0}, {"key": 0}, {"z": 0}, {"z": 0.0}):
        with pytest.raises(CheckpointError):
            load(tmp_path / "a", like)
    with sd.enable_x64():
        save(tmp_path / "b", {"z": np.complex128(2 + 3j)})
        assert load(tmp_path / "b", {"z": 0j}) == {"z": 2 + 3j}
