"""Checkpoints: arrays in files, each process writing what it has and nobody writing twice.

A checkpoint is a folder. Each process that has parts to write has a safetensors file in it, and
`index.json` says of every array what it is and where its parts are (`checkpoint_index`). A job that
dies while it writes leaves the checkpoint before as it was (`checkpoint_folder`).
"""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from shardir.frontend import tree
from shardir.frontend.array import Array
from shardir.frontend.buffers import Buffer
from shardir.frontend.checkpoint_chunks import checksums_of
from shardir.frontend.checkpoint_folder import Writing, check_can_save, path_of, synchronize
from shardir.frontend.checkpoint_index import Entry, Part, is_text
from shardir.frontend.errors import ArgumentError, CheckpointError
from shardir.frontend.gathering import Box, Pieces, whole_box
from shardir.frontend.locations import point, pointed
from shardir.frontend.operands import abstract_of, to_numpy
from shardir.frontend.processes import here
from shardir.frontend.quoting import quoted, shown, shown_path
from shardir.frontend.same_checkpoint import agree_to_save, raise_together

VIEWS: Mapping[str, str] = {"bf16": "uint16", "c128": "float64", "key": "uint64"}
"""Element types that safetensors has no name for in NumPy, and as what they are stored."""


NESTED_TOO_DEEPLY = (
    "the containers of a checkpoint are nested too deeply; nest them less than 1,000 deep"
)


@pointed
def save(folder: str | os.PathLike[str], arrays: Any, *, overwrite: bool = False) -> None:
    """Write containers of arrays and numbers to `folder`, which comes into being complete.

    Called by every process, with a folder that all of them see. Raises `CheckpointError` when the
    folder exists, unless `overwrite` and it is a checkpoint: then the new one replaces it at once,
    when all of the new one is on disk, and other files in the folder stay. Raises it in all
    processes when one cannot write, or does not see the folder that others see, and when they do
    not save the same arrays. If it raises, the folder is as it was before.
    """
    target = path_of(folder, "saved to")
    need_safetensors()
    leaves = named_leaves(arrays)
    writing = _agree_where(target, overwrite)
    entries: dict[str, Entry] = {}
    mine: dict[str, Buffer] = {}
    own: dict[str, Buffer] = {}
    for name, leaf in leaves.items():
        entries[name], written, numbers = _entry(name, leaf, writing)
        mine.update(written)
        if numbers is not None:
            own[name] = numbers
    agree_to_save(target, entries, own)  # nobody has begun to write before all have looked
    first = here().index == 0
    try:
        _together(target, writing.begin if first else _nothing)
        rows = _together(target, lambda: _write(writing, mine, entries))
        written_by = _Written.of_all(rows)
        complete = {name: written_by.completed(name, entry) for name, entry in entries.items()}
        _together(target, lambda: writing.commit(complete, written_by.sizes) if first else None)
    except BaseException:
        if first:
            writing.abandon()
        raise


def _agree_where(target: Path, overwrite: bool) -> Writing:
    """Return where all processes write; raises `CheckpointError` in all where one may not."""
    why, number = "", None
    try:
        check_can_save(target, overwrite)
        number = Writing.to(target).number
    except CheckpointError as error:
        why = str(error)
    except OSError as error:
        why = _cannot_be_written(target, "", error)
    link = here().link
    row = json.dumps([why, number]).encode()
    rows = [row] if link is None else link.gather(row, f"saving {shown_path(target)}")
    found = [json.loads(row) for row in rows]
    raise_together([why for why, _ in found])
    return Writing(target, found[0][1])


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class _Written:
    """What processes have written: the checksums of each part by its key, the size of each file."""

    checksums: Mapping[str, str]
    sizes: Mapping[str, int]

    @staticmethod
    def of_all(rows: list[Any]) -> "_Written":
        checksums: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for written, size_of in rows:
            checksums.update(written)
            sizes.update(size_of)
        return _Written(checksums, sizes)

    def completed(self, name: str, entry: Entry) -> Entry:
        """Return an entry with the checksums of its parts."""
        return replace(
            entry,
            parts=tuple(
                replace(part, checksums=self.checksums[key_of(name, part.box)])
                for part in entry.parts
            ),
        )


def _write(writing: Writing, mine: dict[str, Buffer], entries: Mapping[str, Entry]) -> list[Any]:
    """Write the parts of this process to its file, and bring that to disk; returns their checksums
    and the size of the file."""
    if not mine:
        return [{}, {}]
    from safetensors.numpy import save_file

    shapes = {
        key_of(name, part.box): (tuple(stop - start for start, stop in part.box), entry.dtype)
        for name, entry in entries.items()
        for part in entry.parts
    }
    checksums = checksums_of((array, *shapes[key]) for key, array in mine.items())
    file = writing.file_of(here().index)
    save_file(mine, writing.path_of(file))
    return [dict(zip(mine, checksums, strict=True)), {file: synchronize(writing.path_of(file))}]


def _together(target: Path, work: Callable[[], Any]) -> list[Any]:
    """Do a part of saving in every process, and return what it returned in each, as JSON has it.

    Where it fails in one, all raise `CheckpointError`.
    """
    from safetensors import SafetensorError

    why, made, link = "", None, here().link
    by = f" by {link.who(here().index)}" if link else ""
    try:
        made = work()
    except (OSError, MemoryError, SafetensorError) as error:
        why = _cannot_be_written(target, by, error)
    row = json.dumps([why, made]).encode()
    rows = [row] if link is None else link.gather(row, f"saving {shown_path(target)}")
    found = [json.loads(row) for row in rows]
    for why, _ in found:
        if why:
            raise CheckpointError(why)
    return [made for _, made in found]


def _cannot_be_written(target: Path, by: str, error: Exception) -> str:
    told = str(error) or type(error).__name__
    return f"{shown_path(target)} cannot be written{by}: {shown(told)}"


def named_leaves(arrays: Any) -> dict[str, Any]:
    """The leaves of a container by their paths: `layers/0/w`."""
    try:
        leaves, structure = tree.flatten(arrays)
    except RecursionError:
        raise CheckpointError(NESTED_TOO_DEEPLY) from None
    names = ["/".join(map(str, path)) or "array" for path in structure.paths()]
    found = dict(zip(names, leaves, strict=True))
    if len(found) < len(leaves):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ArgumentError(
            point(
                f"two arrays of a checkpoint are called {quoted(twice)}; rename a key of a "
                "container"
            )
        )
    for name in names:
        if not is_text(name):
            raise CheckpointError(
                f"an array of a checkpoint is called {quoted(name)}, which has a character that "
                "UTF-8 cannot write; rename a key of a container"
            )
    return found


def key_of(name: str, box: Box) -> str:
    """What a part is called in its file."""
    return f"{name}[{', '.join(f'{start}:{stop}' for start, stop in box)}]"


def _entry(
    name: str, leaf: Any, writing: Writing
) -> tuple[Entry, dict[str, Buffer], Buffer | None]:
    """What the index says of a leaf, what this process writes of it, and the numbers of one that
    is each process's own."""
    index = here().index
    if not isinstance(leaf, Array) or leaf.signature.sharding is None:
        # Not on anybody's devices in particular, so every process has all of it.
        type = abstract_of(leaf, f"{name} of the checkpoint").type
        numbers = leaf.whole() if isinstance(leaf, Array) else np.asarray(to_numpy(leaf))
        box = whole_box(type.shape)
        written = {key_of(name, box): stored(numbers, type.dtype)} if index == 0 else {}
        return Entry(type.shape, type.dtype, (Part(writing.file_of(0), box),)), written, numbers
    pieces = Pieces(leaf.sharding, leaf.shape)
    mine = pieces.mine(leaf.parts, index)
    parts, written = [], {}
    for number, (box, holders) in enumerate(pieces.holders.items()):
        writer = holders[number % len(holders)]
        parts.append(Part(writing.file_of(writer), box))
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


def need_safetensors() -> None:
    """Raises `CheckpointError` where the library is lacking that reads and writes the files."""
    if find_spec("safetensors") is None:
        raise CheckpointError(
            "checkpoints are safetensors files, and safetensors is not installed; "
            "pip install 'shardir[checkpoints]'"
        )
