"""Saving of checkpoints: each process writes its shards to a file, and no shard is written twice.

A checkpoint is a folder. Each process that has shards to write writes one safetensors file, and
`index.json` states the type of every array and the locations of its parts (`index`). A job that is
interrupted while it writes leaves the previous checkpoint unchanged (`folder`).
"""

import json
import os
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.array_types import ArrayLike
from shardir.frontend.arrays.numpy_conversion import abstract_of, to_numpy
from shardir.frontend.arrays.shard_buffers import Buffer
from shardir.frontend.checkpoint.chunk_checksums import compute_checksums
from shardir.frontend.checkpoint.folder import (
    CheckpointWriter,
    check_can_save,
    checkpoint_path,
    sync_file,
)
from shardir.frontend.checkpoint.index import IndexEntry, StoredPart, is_text
from shardir.frontend.checkpoint.process_agreement import agree_to_save, raise_together
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.distributed.shard_exchange import Box, ShardHolders, full_box
from shardir.frontend.errors import ArgumentError, CheckpointError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import quote_message, quote_path, quote_text
from shardir.frontend.source_locations import with_location
from shardir.ir.dtypes import DTYPE_INFO, KEYS, NUMPY_DTYPES

STORAGE_DTYPES: Mapping[str, str] = {
    **{name: f"uint{info.memory_bits}" for name, info in DTYPE_INFO.items() if info.is_extension},
    "c128": "float64",
    **dict.fromkeys(KEYS, "uint64"),
}
"""Element types that safetensors does not support in NumPy, and the type in which they are
stored; an element that is wider than this type is stored as a row."""


NESTED_TOO_DEEPLY = "the pytree of a checkpoint is nested too deeply; nest it less than 1,000 deep"


@locate_errors
def save(folder: str | os.PathLike[str], arrays: object, *, overwrite: bool = False) -> None:
    """Write a pytree of arrays and numbers to `folder` as one atomic step.

    Every process must call it, with a folder that all of them can access. Raises `CheckpointError`
    when the folder exists, unless `overwrite` is true and it is a checkpoint: then the new one
    replaces it atomically after it is completely on disk, and other files in the folder stay.
    Raises it in all processes when one cannot write, or does not see the same folder as the others,
    and when they do not save the same arrays. If it raises, the folder is unchanged.
    """
    target = checkpoint_path(folder, "saved to")
    require_safetensors()
    leaves = named_leaves(arrays)
    writing = _agree_on_location(target, overwrite)
    entries: dict[str, IndexEntry] = {}
    mine: dict[str, Buffer] = {}
    own: dict[str, Buffer] = {}
    for name, leaf in leaves.items():
        entries[name], written, numbers = _make_entry(name, leaf, writing)
        mine.update(written)
        if numbers is not None:
            own[name] = numbers
    agree_to_save(target, entries, own)  # No process writes before all agree.
    first = process_group().index == 0
    try:
        _run_in_all_processes(target, writing.begin if first else _do_nothing)
        rows = _run_in_all_processes(target, lambda: _write_parts(writing, mine, entries))
        written_by = _WrittenParts.merge(rows)
        complete = {name: written_by.with_checksums(name, entry) for name, entry in entries.items()}
        _run_in_all_processes(
            target, lambda: writing.commit(complete, written_by.sizes) if first else None
        )
    except BaseException:
        if first:
            writing.abandon()
        raise


def _agree_on_location(target: Path, overwrite: bool) -> CheckpointWriter:
    """Return the location to which all processes write; raises `CheckpointError` in all if one must
    not."""
    why, number = "", None
    try:
        check_can_save(target, overwrite)
        number = CheckpointWriter.choose_location(target).number
    except CheckpointError as error:
        why = str(error)
    except OSError as error:
        why = _write_error_text(target, "", error)
    link = process_group().link
    row = json.dumps([why, number]).encode()
    rows = [row] if link is None else link.gather(row, f"saving {quote_path(target)}")
    found = [json.loads(row) for row in rows]
    raise_together([why for why, _ in found])
    return CheckpointWriter(target, found[0][1])


def _do_nothing() -> None:
    return None


@dataclass(frozen=True)
class _WrittenParts:
    """The checksums of each written part by its key, and the size of each file."""

    checksums: Mapping[str, str]
    sizes: Mapping[str, int]

    @staticmethod
    def merge(rows: list[Any]) -> "_WrittenParts":
        checksums: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for written, size_of in rows:
            checksums.update(written)
            sizes.update(size_of)
        return _WrittenParts(checksums, sizes)

    def with_checksums(self, name: str, entry: IndexEntry) -> IndexEntry:
        """Return an index entry with the checksums of its parts."""
        return replace(
            entry,
            parts=tuple(
                replace(part, checksums=self.checksums[part_key(name, part.box)])
                for part in entry.parts
            ),
        )


def _write_parts(
    writing: CheckpointWriter, mine: dict[str, Buffer], entries: Mapping[str, IndexEntry]
) -> list[object]:
    """Write and synchronize the file of this process; return the checksums and the size of the
    file."""
    if not mine:
        return [{}, {}]
    from safetensors.numpy import save_file

    shapes = {
        part_key(name, part.box): (tuple(stop - start for start, stop in part.box), entry.dtype)
        for name, entry in entries.items()
        for part in entry.parts
    }
    checksums = compute_checksums((array, *shapes[key]) for key, array in mine.items())
    file = writing.process_file(process_group().index)
    path = writing.path_of_file(file)
    path.touch()
    permissions = stat.S_IMODE(path.stat().st_mode)
    save_file(mine, path)
    # safetensors replaces the file by one that only its owner may read.
    with suppress(OSError):  # Some file systems have no permissions.
        path.chmod(permissions)
    return [dict(zip(mine, checksums, strict=True)), {file: sync_file(path)}]


def _run_in_all_processes(target: Path, work: Callable[[], PyTree]) -> list[PyTree]:
    """Run one step of saving in every process, and return the results of all as JSON values.

    If it fails in one process, all raise `CheckpointError`.
    """
    from safetensors import SafetensorError

    why, made, link = "", None, process_group().link
    by = f" by {link.process_name(process_group().index)}" if link else ""
    try:
        made = work()
    except (OSError, MemoryError, SafetensorError) as error:
        why = _write_error_text(target, by, error)
    row = json.dumps([why, made]).encode()
    rows = [row] if link is None else link.gather(row, f"saving {quote_path(target)}")
    found = [json.loads(row) for row in rows]
    for why, _ in found:
        if why:
            raise CheckpointError(why)
    return [made for _, made in found]


def _write_error_text(target: Path, by: str, error: Exception) -> str:
    reason = str(error) or type(error).__name__
    return f"{quote_path(target)} cannot be written{by}: {quote_message(reason)}"


def named_leaves(arrays: object) -> dict[str, PyTree]:
    """Return the leaves of a pytree by their paths: `layers/0/w`."""
    try:
        leaves, structure = tree.flatten(arrays)
    except RecursionError:
        raise CheckpointError(NESTED_TOO_DEEPLY) from None
    names = ["/".join(map(str, path)) or "array" for path in structure.paths()]
    result = dict(zip(names, leaves, strict=True))
    if len(result) < len(leaves):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ArgumentError(
            with_location(
                f"two arrays of a checkpoint are named {quote_text(twice)}; rename a key of the "
                "pytree"
            )
        )
    for name in names:
        if not is_text(name):
            raise CheckpointError(
                f"an array of a checkpoint is named {quote_text(name)}, which has a character that "
                "UTF-8 cannot encode; rename a key of the pytree"
            )
    return result


def part_key(name: str, box: Box) -> str:
    """Return the key of a part in its file."""
    return f"{name}[{', '.join(f'{start}:{stop}' for start, stop in box)}]"


def _make_entry(
    name: str, leaf: ArrayLike, writing: CheckpointWriter
) -> tuple[IndexEntry, dict[str, Buffer], Buffer | None]:
    """Return the index entry of a leaf, the parts this process writes, and the elements if
    uncommitted."""
    index = process_group().index
    if not isinstance(leaf, Array) or leaf.signature.sharding is None:
        # Every process has all elements of an uncommitted array.
        type = abstract_of(leaf, f"{name} of the checkpoint").type
        numbers = leaf.to_numpy_view() if isinstance(leaf, Array) else np.asarray(to_numpy(leaf))
        box = full_box(type.shape)
        written = {part_key(name, box): to_stored(numbers, type.dtype)} if index == 0 else {}
        return (
            IndexEntry(type.shape, type.dtype, (StoredPart(writing.process_file(0), box),)),
            written,
            numbers,
        )
    pieces = ShardHolders(leaf.sharding, leaf.shape)
    mine = pieces.local_shards(leaf.device_shards, index)
    parts, written = [], {}
    for number, (box, holders) in enumerate(pieces.holders.items()):
        writer = holders[number % len(holders)]
        parts.append(StoredPart(writing.process_file(writer), box))
        if writer == index:
            written[part_key(name, box)] = to_stored(mine[box], leaf.type.dtype)
    return IndexEntry(leaf.shape, leaf.type.dtype, tuple(parts)), written, None


def to_stored(numbers: Buffer, dtype: str) -> Buffer:
    """Return elements in the representation in which they are stored."""
    flat = np.ascontiguousarray(numbers)
    if dtype not in STORAGE_DTYPES:
        return flat.reshape(numbers.shape)
    view = flat.reshape(-1).view(STORAGE_DTYPES[dtype])
    return view.reshape((*numbers.shape, *stored_row(dtype)))


def stored_row(dtype: str) -> tuple[int, ...]:
    """Return the shape in which one element is stored: empty, or the length of a row."""
    stored = np.dtype(STORAGE_DTYPES.get(dtype, NUMPY_DTYPES[dtype]))
    count = NUMPY_DTYPES[dtype].itemsize // stored.itemsize
    return (count,) if count > 1 else ()


def require_safetensors() -> None:
    """Raise `CheckpointError` if the library safetensors is not installed."""
    if find_spec("safetensors") is None:
        raise CheckpointError(
            "checkpoints are safetensors files, and safetensors is not installed; "
            "pip install 'shardir[checkpoints]'"
        )
