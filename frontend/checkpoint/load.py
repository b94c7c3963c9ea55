"""Loading of checkpoints, under the current mesh and number of processes.

Each process reads only the parts that its devices need, from any file.
"""

import os
from collections.abc import Mapping, Sequence
from errno import EINVAL
from itertools import islice
from pathlib import Path
from stat import S_ISREG
from typing import Any

import numpy as np

from shardir.errors import suggest_name
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.arrays.abstract_value import AbstractValue
from shardir.frontend.arrays.array import Array
from shardir.frontend.arrays.numpy_conversion import abstract_of, is_number
from shardir.frontend.arrays.shard_buffers import Buffer, pad_shard
from shardir.frontend.arrays.signature import ShapeDtypeStruct, signature_of
from shardir.frontend.checkpoint.chunk_checksums import chunk_checksum, overlapping_chunks
from shardir.frontend.checkpoint.folder import (
    INDEX,
    checkpoint_path,
    find_checkpoint_folder,
    read_index,
)
from shardir.frontend.checkpoint.index import CheckpointIndex, IndexEntry, StoredPart, parse_index
from shardir.frontend.checkpoint.process_agreement import agree_to_load, agree_to_reload
from shardir.frontend.checkpoint.save import (
    NESTED_TOO_DEEPLY,
    STORAGE_DTYPES,
    named_leaves,
    part_key,
    require_safetensors,
    stored_row,
)
from shardir.frontend.dispatch.execution_context import default_array_device
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.distributed.shard_exchange import (
    Box,
    intersect_boxes,
    process_boxes,
    relative_slices,
)
from shardir.frontend.errors import CheckpointError
from shardir.frontend.pytree import tree
from shardir.frontend.pytree_types import PyTree
from shardir.frontend.quoting import MAX_TEXT_CHARACTERS, quote_message, quote_path, quote_text
from shardir.frontend.shardings.requested_sharding import (
    broadcast_sharding_requests,
    is_sharding_request,
    resolve_sharding,
)
from shardir.frontend.shardings.sharding import Sharding, SingleDeviceSharding
from shardir.ir.dtypes import KEYS
from shardir.ir.types import NUMPY_DTYPES, TensorType

MAX_LISTED_NAMES = 10
"""Maximum number of array names that an error lists."""

MAX_READ_ATTEMPTS = 4
"""Maximum number of attempts to read a checkpoint that another job keeps replacing."""

SAFETENSORS_DTYPES: Mapping[str, str] = {
    "BOOL": "bool",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "U8": "uint8",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
"""NumPy types of stored parts by their names in safetensors."""


@locate_errors
def load(
    folder: str | os.PathLike[str], like: object = None, *, shardings: object = None
) -> PyTree:
    """Return the pytree that `save` wrote to `folder`.

    `like` is a pytree of arrays or `ShapeDtypeStruct`s with the names, shapes and element types of
    the checkpoint. The result has the same structure, with the shardings of `like`, or of
    `shardings`, which is a pytree prefix. Without `like` the result is a dictionary by name. An
    array without a sharding is placed on the default device. Where `like` has a Python number, so
    has the result.

    Arrays on devices of several processes are loaded collectively by all of these processes.

    Raises `CheckpointError` when the folder is not a checkpoint, is damaged, or has other arrays
    than `like`. Every part that is read is compared with its checksum, if it was saved with one. In
    a collective load every process raises an error when one does, or finds no checkpoint or another
    one. If another job replaces the checkpoint meanwhile, the new one is loaded.
    """
    target = checkpoint_path(folder, "loaded from")
    require_safetensors()
    word = "shardings of load"
    try:
        requested = None if like is None else _requested_leaves(like, shardings, word)
        requests = tree.leaves(shardings, is_leaf=is_sharding_request) if requested is None else []
    except RecursionError:
        raise CheckpointError(NESTED_TOO_DEEPLY) from None
    given = [sharding for _, sharding in requested.values()] if requested else []
    given += [
        resolve_sharding(request, word) for request in requests if is_sharding_request(request)
    ]
    together = not all(each is None or each.is_fully_addressable for each in given)
    for attempt in range(MAX_READ_ATTEMPTS):
        root, text, why = find_checkpoint_folder(target), None, ""
        try:
            text = _read_checkpoint_index(target, root)
        except CheckpointError as error:
            if not together:
                raise
            why = str(error)
        if together:
            agree_to_load(target, text, why)
        assert text is not None
        found: list[Any] = []
        pattern, leaf_requests = like, requested
        try:
            index = parse_index(root / INDEX, text)
            if leaf_requests is None:
                # Without `like`, placeholder numbers take its place.
                pattern = dict.fromkeys(index.entries, 0)
                spread = broadcast_sharding_requests(shardings, pattern, word)
                leaf_requests = {
                    name: (_AnyArray(), resolve_sharding(request, word))
                    for name, request in zip(named_leaves(pattern), spread, strict=True)
                }
            found = _load_leaves(root, index, leaf_requests)
        except CheckpointError as error:
            is_replaced = attempt + 1 < MAX_READ_ATTEMPTS and _is_replaced(target, text)
            if not together:
                if is_replaced:
                    continue
                raise
            why = str(error)
            if agree_to_reload(why, is_replaced):
                continue
        else:
            if together and agree_to_reload("", False):
                continue
        break
    return tree.unflatten(tree.structure(pattern), found)


def _is_replaced(target: Path, text: bytes) -> bool:
    """Return whether the index of a checkpoint now differs from `text`.

    A job that replaces a checkpoint removes the files of the previous one.
    """
    try:
        return read_index(find_checkpoint_folder(target)) != text
    except OSError:
        return False


@locate_errors
def exists(folder: str | os.PathLike[str]) -> bool:
    """Return whether `folder` contains a checkpoint: a file `index.json`.

    It does not check for damage; `load` does. Every process must call it. Raises `CheckpointError`
    in all of them when only some find one.
    """
    target = checkpoint_path(folder, "looked for in")
    result = os.path.lexists(find_checkpoint_folder(target) / INDEX)
    link = process_group().link
    rows = [result]
    if link is not None:
        rows = [
            row == b"1"
            for row in link.gather(b"01"[result : result + 1], f"looking for {quote_path(target)}")
        ]
    if any(rows) and not all(rows):
        yes, no = rows.index(True), rows.index(False)
        assert link is not None
        raise CheckpointError(
            f"{link.process_name(yes)} finds a checkpoint at {quote_path(target)}, and "
            f"{link.process_name(no)} finds "
            "none; use a folder that all processes can read"
        )
    return result


class _AnyArray:
    """Placeholder of an array of any type."""


def _requested_leaves(
    like: object, shardings: object, word: str
) -> dict[str, tuple[object, Sharding | None]]:
    """Return each leaf of `like` and its requested sharding, by name."""
    named = named_leaves(like)
    requests = broadcast_sharding_requests(shardings, like, word)
    requested = {}
    for (name, leaf), request in zip(named.items(), requests, strict=True):
        sharding = (
            None if is_number(leaf) else resolve_sharding(request, word) or _sharding_of(leaf)
        )
        requested[name] = leaf, sharding
    return requested


def _load_leaves(
    root: Path, index: CheckpointIndex, requested: Mapping[str, tuple[object, Sharding | None]]
) -> list[Any]:
    """Return the requested arrays and numbers."""
    placed = []
    for name, (leaf, sharding) in requested.items():
        entry = _find_entry(name, index.entries, root)
        if not isinstance(leaf, _AnyArray):
            _check_same_type(name, entry, leaf, root)
        placed.append((name, entry, leaf, sharding))
    files, leaves = _CheckpointFiles(root), []
    for name, entry, leaf, sharding in placed:
        array = _load_array(name, entry, sharding, files)
        leaves.append(_convert_to_number(name, array, leaf, root) if is_number(leaf) else array)
    if not index.is_intact:
        raise CheckpointError(
            f"{quote_path(root / INDEX)} is damaged: it does not have the checksum that it was "
            "written with"
        )
    return leaves


def _convert_to_number(name: str, array: Array, like: Any, root: Path) -> object:
    """Return a number of the class of `like`; raises an error if that cannot hold it."""
    found = np.asarray(array).item()
    try:
        result = type(like)(found)
    except (TypeError, ValueError, OverflowError):  # For example 1j as a float.
        result = None
    if result is None or (result != found and found == found):
        raise CheckpointError(
            f"{quote_text(name)} is {found!r} in the checkpoint {quote_path(root)}, and {like!r} "
            "of "
            f"type {type(like).__name__} is requested; pass a like with a "
            f"{type(found).__name__} there"
        )
    return result


def _read_checkpoint_index(target: Path, root: Path) -> bytes:
    """Return the text of the index of a checkpoint."""
    try:
        return read_index(root)
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointError(
            f"{quote_path(target)} is not a checkpoint: it has no {INDEX}; write one with save"
        ) from None
    except (OSError, MemoryError) as error:
        reason = quote_message(str(error) or type(error).__name__)
        raise CheckpointError(f"{quote_path(root / INDEX)} cannot be read: {reason}") from None


def _find_entry(name: str, entries: Mapping[str, IndexEntry], root: Path) -> IndexEntry:
    if name not in entries:
        close = suggest_name(
            name[:MAX_TEXT_CHARACTERS],
            [each for each in entries if len(each) <= MAX_TEXT_CHARACTERS],
        )
        raise CheckpointError(
            f"the checkpoint {quote_path(root)} has no array {quote_text(name)}; "
            f"{close or _list_names(entries)}"
        )
    return entries[name]


def _list_names(entries: Mapping[str, IndexEntry]) -> str:
    named = ", ".join(quote_text(name) for name in islice(entries, MAX_LISTED_NAMES)) or "none"
    left = len(entries) - MAX_LISTED_NAMES
    return f"it has {named}" + (f" and {left} more" if left > 0 else "")


def _check_same_type(name: str, entry: IndexEntry, leaf: object, root: Path) -> None:
    if is_number(leaf) and not entry.shape and entry.dtype not in KEYS:
        return
    found = TensorType(entry.shape, entry.dtype)
    requested = abstract_of(leaf, f"{name} of like").type
    if found != requested:
        raise CheckpointError(
            f"{quote_text(name)} is {found} in the checkpoint {quote_path(root)}, and {requested} "
            "is requested; pass a like with the shapes and element types that were saved"
        )


def _sharding_of(leaf: object) -> Sharding | None:
    if isinstance(leaf, Array):
        return leaf.signature.sharding
    return leaf.sharding if isinstance(leaf, ShapeDtypeStruct) else None


def _load_array(
    name: str, entry: IndexEntry, sharding: Sharding | None, files: "_CheckpointFiles"
) -> Array:
    """Return an array after reading its shards on the devices of this process."""
    placed = SingleDeviceSharding(default_array_device()) if sharding is None else sharding
    stored = placed.stored_shape(entry.shape)
    boxes = process_boxes(placed, entry.shape).get(process_group().index, [])
    distinct = list(dict.fromkeys(boxes))
    read = zip(distinct, files.read(name, entry, distinct), strict=True)
    made = {box: pad_shard(part, stored) for box, part in read}
    abstract = AbstractValue(TensorType(entry.shape, entry.dtype))
    return Array(signature_of(abstract, sharding), placed, [made[box] for box in boxes])


class _CheckpointFiles:
    """The files of a checkpoint, each opened when a part of it is first needed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open_files: dict[str, object] = {}

    def read(self, name: str, entry: IndexEntry, boxes: Sequence[Box]) -> list[Buffer]:
        """Return the elements in boxes of an array."""
        needed = [part for part in entry.parts if any(_do_overlap(box, part.box) for box in boxes)]
        # Memory is allocated only after checking that the files are long enough.
        slices = [self._part_reader(part, name, entry) for part in needed]
        try:
            result = [
                np.empty([stop - start for start, stop in box], NUMPY_DTYPES[entry.dtype])
                for box in boxes
            ]
            for part, stored in zip(needed, slices, strict=True):
                self._copy_part(part, stored, name, entry, boxes, result)
        except MemoryError:
            raise CheckpointError(
                f"{quote_text(name)} of the checkpoint {quote_path(self.root)} does not fit into "
                "memory"
            ) from None
        return result

    def _part_reader(self, part: StoredPart, name: str, entry: IndexEntry) -> object:
        """Return a reader of rows of a part after checking its shape and element type."""
        key, path = part_key(name, part.box), self.root / part.file
        try:
            result = self._open_file(part.file).get_slice(key)
            shape, dtype = tuple(result.get_shape()), result.get_dtype()
        except Exception as error:
            raise self._unreadable_error(part.file, error) from error
        if shape != (expected := _stored_shape(part, entry)):
            raise CheckpointError(
                f"{quote_path(path)} of the checkpoint is damaged: it has {quote_text(key)} of "
                "shape "
                f"{shape}, which should be {expected}"
            )
        kind = np.dtype(STORAGE_DTYPES.get(entry.dtype, NUMPY_DTYPES[entry.dtype]))
        if (stored := SAFETENSORS_DTYPES.get(dtype)) != kind.name:
            raise CheckpointError(
                f"{quote_path(path)} of the checkpoint is damaged: it has {quote_text(key)} as "
                f"{stored or dtype}, which should be {kind}"
            )
        return result

    def _open_file(self, file: str) -> Any:
        from safetensors import safe_open

        if file not in self._open_files:
            path = self.root / file
            if not S_ISREG(os.stat(path).st_mode):  # A pipe would block.
                raise OSError(EINVAL, "not a regular file", str(path))
            self._open_files[file] = safe_open(path, "np")
        return self._open_files[file]

    def _copy_part(
        self,
        part: StoredPart,
        stored: object,
        name: str,
        entry: IndexEntry,
        boxes: Sequence[Box],
        made: Sequence[Buffer],
    ) -> None:
        """Copy the overlap of boxes with a part, chunk by chunk, and verify each chunk that is
        read."""
        if not entry.shape:
            whole = self._read_chunk(part, 0, slice(None), stored, name, entry)
            for target in made:
                target[...] = whole
            return
        shape = tuple(stop - start for start, stop in part.box)
        first, rest = part.box[0][0], part.box[1:]
        overlaps = [
            (each, overlap)
            for each in range(len(boxes))
            if (overlap := intersect_boxes(boxes[each], part.box))
        ]
        needed = range(
            min(overlap[0][0] for _, overlap in overlaps) - first,
            max(overlap[0][1] for _, overlap in overlaps) - first,
        )
        for number, rows in overlapping_chunks(shape, entry.dtype, needed):
            box = ((first + rows.start, first + rows.stop), *rest)
            shared = [
                (each, piece)
                for each, overlap in overlaps
                if (piece := intersect_boxes(overlap, box))
            ]
            if shared:
                chunk = self._read_chunk(
                    part, number, slice(rows.start, rows.stop), stored, name, entry
                )
                for each, piece in shared:
                    made[each][relative_slices(piece, boxes[each])] = chunk[
                        relative_slices(piece, box)
                    ]

    def _read_chunk(
        self, part: StoredPart, number: int, rows: slice, stored: Any, name: str, entry: IndexEntry
    ) -> Buffer:
        """Return the rows of a chunk of a part; raises `CheckpointError` if their checksum
        differs."""
        try:
            numbers = np.ascontiguousarray(stored[rows] if entry.shape else stored[...])
        except Exception as error:
            raise self._unreadable_error(part.file, error) from error
        if part.checksums is not None and (
            chunk_checksum(numbers) != part.checksums[8 * number : 8 * number + 8]
        ):
            raise CheckpointError(
                f"{quote_path(self.root / part.file)} of the checkpoint is damaged: the elements "
                f"of {quote_text(part_key(name, part.box))} do not have the checksum that they "
                "were "
                "saved with; restore the file, or load an earlier checkpoint"
            )
        if entry.dtype not in STORAGE_DTYPES:
            return numbers
        shape = numbers.shape[: numbers.ndim - len(stored_row(entry.dtype))]
        return numbers.reshape(-1).view(NUMPY_DTYPES[entry.dtype]).reshape(shape)

    def _unreadable_error(self, file: str, error: Exception) -> CheckpointError:
        reason = quote_message(str(error) or type(error).__name__)
        return CheckpointError(
            f"{quote_path(self.root / file)} of the checkpoint cannot be read: {reason}"
        )


def _do_overlap(one: Box, other: Box) -> bool:
    return intersect_boxes(one, other) is not None


def _stored_shape(part: StoredPart, entry: IndexEntry) -> tuple[int, ...]:
    """Return the shape in which a part is stored."""
    shape = tuple(stop - start for start, stop in part.box)
    return (*shape, *stored_row(entry.dtype))
