"""Checkpoints with randomly damaged bytes: `load` returns the saved arrays, or raises an error."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import shardir as sd
import shardir.numpy as snp
from shardir.checkpoints import load, save
from shardir.frontend.errors import CheckpointError
from shardir.sharding import NamedSharding, PartitionSpec as P

pytest.importorskip(
    "safetensors.numpy", reason="checkpoints need the extra: pip install 'shardir[checkpoints]'"
)

INDEX, DATA = "index.json", "process-00000.safetensors"
Files = dict[str, bytes]


def written(folder: Path) -> Files:
    """Return the files of a checkpoint with arrays of many dtypes and shardings."""
    mesh = sd.make_mesh((2, 2), ("x", "y"))
    numbers = np.arange(40, dtype=np.float32).reshape(8, 5)
    state = {
        "w": sd.device_put(numbers, NamedSharding(mesh, P("x"))),
        "v": sd.device_put(numbers + 1, NamedSharding(mesh, P(("x", "y")))),
        "half": snp.arange(6, dtype="bfloat16"),
        "z": snp.ones(3, "complex64"),
        "none": snp.zeros((0, 3)),
        "nothing": snp.zeros((0, 3)),
        "key": sd.random.key(1),
        "mask": np.array([True, False, True]),
        "step": 7,
    }
    save(folder, state)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Files, Any]:
    folder = tmp_path_factory.mktemp("damage") / "a"
    files = written(folder)
    return folder, files, bits(load(folder))


def bits(found: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return a value in a form whose equality compares bits."""
    made = {}
    for name, array in found.items():
        plain = sd.random.key_data(array) if name == "key" else array
        made[name] = (str(array.dtype), array.shape, np.asarray(plain).tobytes())
    return made


def check(place: tuple[Path, Files, Any], files: Files) -> bool:
    """Check that `load` of damaged files returns equal arrays or raises a short error."""
    folder, _, expected = place
    for name, data in files.items():
        (folder / name).write_bytes(data)
    try:
        found = load(folder)
    except CheckpointError as error:
        line = str(error).partition("\n")[0]
        assert line.isprintable()
        assert len(line) < 1000
        return False
    assert bits(found) == expected
    return True


def test_flipped_bits_are_detected(
    place: tuple[Path, Files, Any], pytestconfig: pytest.Config
) -> None:
    """Flip one bit of bytes of both files: of all bytes with `--long`, otherwise of every
    eleventh, and of every third inside of a tensor.
    """
    long = pytestconfig.getoption("--long")
    _, files, _ = place
    (header,) = np.frombuffer(files[DATA][:8], "<u8")
    for name, data in files.items():
        start = 8 + int(header) if name == DATA else len(data)
        for at in [*range(0, start, 1 if long else 11), *range(start, len(data), 1 if long else 3)]:
            changed = bytearray(data)
            changed[at] ^= 1 << at % 8
            loaded = check(place, {**files, name: bytes(changed)})
            # Whitespace and unused names of the JSON text do not matter.
            assert not (loaded and at >= start), (name, at)


@st.composite
def damages(draw: st.DrawFn) -> list[tuple[str, int, int, int, bytes]]:
    """Draw damages: the file, the kind, the position, the size, and the bytes."""
    change = st.tuples(
        st.sampled_from([INDEX, DATA]),
        st.integers(0, 5),
        st.integers(0, 1 << 20),
        st.integers(1, 64),
        st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from(PIECES)),
    )
    return draw(st.lists(change, min_size=1, max_size=3))


PIECES = [
    b"0",
    b"9",
    b"-1",
    b"1e9",
    b"NaN",
    b"Infinity",
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b",",
    b"null",
]
PIECES += [
    b"true",
    b"1" * 40,
    b'"w"',
    b'"v"',
    b'"f32"',
    b'"i32"',
    b'"crc32": "",',
    b"\0",
    b"\\u0000",
]


def done(data: bytes, kind: int, at: int, size: int, piece: bytes) -> bytes:
    at %= len(data) + 1
    changes: list[Callable[[], bytes]] = [
        lambda: data[:at] + piece + data[at + len(piece) :],
        lambda: data[:at] + piece + data[at:],
        lambda: data[:at] + data[at + size :],
        lambda: data[:at] + data[at : at + size] * 2 + data[at + size :],
        lambda: data[: at + size][:at] + data[at + size : at + 2 * size] + data[at : at + size]
        + data[at + 2 * size :],
        lambda: data[:at],
    ]  # fmt: skip
    return changes[kind]()


@given(changes=damages())
def test_damaged_files_are_detected(place: Any, changes: Any) -> None:
    _, files, _ = place
    changed = dict(files)
    for name, kind, at, size, piece in changes:
        changed[name] = done(changed[name], kind, at, size, piece)
    check(place, changed)


VALUES: list[Any] = [
    0, 1, -1, 2, 3, 8, 2**31, 2**63, 10**30, True, None, "", "w", "v", "f32", "i32", "u32", "key",
    "bf16", "u16", [], {}, [0, 0], [[0, 8], [0, 5]], DATA, "process-00001.safetensors", "00000000",
]  # fmt: skip


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[list[int], int, Any]]:
    """Draw edits that keep an index valid JSON: the path to a value, the kind, and the new
    value.
    """
    way = st.lists(st.integers(0, 40), min_size=1, max_size=8)
    change = st.tuples(way, st.integers(0, 3), st.sampled_from(VALUES))
    return draw(st.lists(change, min_size=1, max_size=3))


@given(edits=edits())
def test_edited_indices_are_detected(place: Any, edits: Any) -> None:
    _, files, _ = place
    index = json.loads(files[INDEX])
    for way, kind, value in edits:
        edit(index, way, kind, deepcopy(value))
    check(place, {**files, INDEX: json.dumps(index).encode()})


def edit(index: Any, way: list[int], kind: int, value: Any) -> None:
    """Replace, remove, repeat or rename the value at the end of a path."""
    at = index
    for number, step in enumerate(way):
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return
        key = keys[step % len(keys)]
        if number < len(way) - 1 and isinstance(at[key], (dict, list)) and at[key]:
            at = at[key]
            continue
        if kind == 0:
            at[key] = value
        elif kind == 1:
            del at[key]
        elif isinstance(at, list):
            at.insert(step % len(at), deepcopy(at[key]))
        elif kind == 2:
            at[keys[(step + 1) % len(keys)]] = deepcopy(at[key])
        else:
            at[str(value)] = at.pop(key)
        return
