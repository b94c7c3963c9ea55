"""Checkpoints: arrays in files, each process writing what it has and nobody writing twice.

A checkpoint is a folder. Each process that has parts to write has a safetensors file in it, and
`index.json` says of every array what it is and where its parts are. The folder has its name only
once all of it is there: a job that dies while it writes leaves the checkpoint before as it was.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from shardir.frontend import tree
from shardir.frontend.array import Array
from shardir.frontend.buffers import Buffer
from shardir.frontend.errors import ArgumentError, CheckpointError
from shardir.frontend.gathering import Box, Pieces, whole_box
from shardir.frontend.locations import point, pointed
from shardir.frontend.operands import abstract_of, to_numpy
from shardir.frontend.processes import here
from shardir.frontend.same_checkpoint import Entry, agree_to_save

INDEX = "index.json"
FORMAT = "shardir checkpoint 1"
VIEWS: Mapping[str, str] = {"bf16": "uint16", "c128": "float64", "key": "uint64"}
"""Element types that safetensors has no name for in NumPy, and as what they are stored."""


@pointed
def save(folder: str | os.PathLike[str], arrays: Any, *, overwrite: bool = False) -> None:
    """Write containers of arrays and numbers to `folder`, which comes into being complete.

    Called by every process, with a folder that all of them see. Raises `CheckpointError` when the
    folder exists, unless it is to be overwritten: then it is kept until the new one is complete;
    in all of them, when one cannot write; and when they do not save the same arrays.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise CheckpointError(f"a checkpoint is saved to a folder, got {folder!r}")
    target, there = Path(folder), here()
    need_safetensors()
    if target.exists() and not overwrite:
        raise CheckpointError(
            f"{target} exists; save to another folder, or pass overwrite=True to replace it"
        )
    entries: dict[str, Entry] = {}
    mine: dict[str, Buffer] = {}
    own: dict[str, Buffer] = {}
    for name, leaf in named_leaves(arrays).items():
        entries[name], written, numbers = _entry(name, leaf)
        mine.update(written)
        if numbers is not None:
            own[name] = numbers
    agree_to_save(target, entries, own)  # nobody has begun to write before all have looked
    growing = target.with_name(f".{target.name}.part")
    first = there.index == 0
    try:
        _together(target, lambda: _begin(growing) if first else None)
        _together(target, lambda: _write(growing / file_of(there.index), mine))
        _together(target, lambda: _finish(growing, target, entries) if first else None)
    except CheckpointError:
        if first:
            shutil.rmtree(growing, ignore_errors=True)
        raise


def _begin(growing: Path) -> None:
    shutil.rmtree(growing, ignore_errors=True)
    growing.mkdir(parents=True)


def _write(path: Path, mine: dict[str, Buffer]) -> None:
    if mine:
        from safetensors.numpy import save_file

        save_file(mine, path)


def _together(target: Path, work: Callable[[], None]) -> None:
    """Do a part of saving in every process; where it fails in one, all raise `CheckpointError`."""
    from safetensors import SafetensorError

    why = ""
    try:
        work()
    except (OSError, SafetensorError) as error:
        why = str(error) or type(error).__name__
    link = here().link
    rows = [why.encode()] if link is None else link.gather(why.encode(), f"saving {target}")
    for process, row in enumerate(rows):
        if row:
            by = f" by {link.who(process)}" if link else ""
            raise CheckpointError(f"{target} cannot be written{by}: {row.decode()}")


def named_leaves(arrays: Any) -> dict[str, Any]:
    """The leaves of a container by their paths: `layers/0/w`."""
    leaves, structure = tree.flatten(arrays)
    names = ["/".join(map(str, path)) or "array" for path in structure.paths()]
    found = dict(zip(names, leaves, strict=True))
    if len(found) < len(leaves):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ArgumentError(
            point(f"two arrays of a checkpoint are called {twice!r}; rename a key of a container")
        )
    return found


def file_of(process: int) -> str:
    """The name of the file that a process writes."""
    return f"process-{process:05d}.safetensors"


def key_of(name: str, box: Box) -> str:
    """What a part is called in its file."""
    return f"{name}[{', '.join(f'{start}:{stop}' for start, stop in box)}]"


def _entry(name: str, leaf: Any) -> tuple[Entry, dict[str, Buffer], Buffer | None]:
    """What the index says of a leaf, what this process writes of it, and the numbers of one that
    is each process's own."""
    index = here().index
    if not isinstance(leaf, Array) or leaf.signature.sharding is None:
        # Not on anybody's devices in particular, so every process has all of it.
        type = abstract_of(leaf, f"{name} of the checkpoint").type
        numbers = leaf.whole() if isinstance(leaf, Array) else np.asarray(to_numpy(leaf))
        box = whole_box(type.shape)
        written = {key_of(name, box): stored(numbers, type.dtype)} if index == 0 else {}
        return Entry(type.shape, type.dtype, ((file_of(0), box),)), written, numbers
    pieces = Pieces(leaf.sharding, leaf.shape)
    mine = pieces.mine(leaf.parts, index)
    parts, written = [], {}
    for number, (box, holders) in enumerate(pieces.holders.items()):
        writer = holders[number % len(holders)]
        parts.append((file_of(writer), box))
        if writer == index:
            written[key_of(name, box)] = stored(mine[box], leaf.type.dtype)
    return Entry(leaf.shape, leaf.type.dtype, tuple(parts)), written, None


def stored(numbers: Buffer, dtype: str) -> Buffer:
    """Numbers as they are stored."""
    flat = np.ascontiguousarray(numbers)
    if dtype not in VIEWS:
        return flat.reshape(numbers.shape)
    view = flat.reshape(-1).view(VIEWS[dtype])
    return view.reshape((*numbers.shape, 2) if dtype == "c128" else numbers.shape)


def _finish(growing: Path, target: Path, entries: Mapping[str, Entry]) -> None:
    """Write the index and give the folder its name."""
    index = {
        "format": FORMAT,
        "arrays": {
            name: {
                "shape": entry.shape,
                "dtype": entry.dtype,
                "parts": [{"file": file, "box": box} for file, box in entry.parts],
            }
            for name, entry in entries.items()
        },
    }
    (growing / INDEX).write_text(json.dumps(index, indent=1))
    for path in growing.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    old = old_of(target)
    if not target.exists():
        growing.rename(target)
        return
    shutil.rmtree(old, ignore_errors=True)
    target.rename(old)
    try:
        growing.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def old_of(target: Path) -> Path:
    """Where the checkpoint before is while the new one gets its name."""
    return target.with_name(f".{target.name}.old")


def need_safetensors() -> None:
    """Raises `CheckpointError` where the library is lacking that reads and writes the files."""
    if find_spec("safetensors") is None:
        raise CheckpointError(
            "checkpoints are safetensors files, and safetensors is not installed; "
            "pip install 'shardir[checkpoints]'"
        )
