"""Checkpoints read back, under the mesh and by the number of processes that there are now.

Each process reads the parts that its devices are to have and nothing else, from whichever files
they are in.
"""

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from shardir.errors import suggestion
from shardir.frontend import tree
from shardir.frontend.array import Array
from shardir.frontend.buffers import Buffer, lengthened
from shardir.frontend.errors import CheckpointError
from shardir.frontend.gathering import Box, boxes_of, common, inside, volume
from shardir.frontend.locations import pointed
from shardir.frontend.operands import abstract_of, is_number
from shardir.frontend.processes import here
from shardir.frontend.promotion import Abstract
from shardir.frontend.running import uncommitted_device
from shardir.frontend.same_checkpoint import Entry, agree_to_have_loaded, agree_to_load
from shardir.frontend.saving import (
    FORMAT,
    INDEX,
    VIEWS,
    key_of,
    named_leaves,
    need_safetensors,
    old_of,
)
from shardir.frontend.shardings import Sharding, SingleDeviceSharding
from shardir.frontend.signature import ShapeDtypeStruct, signature_of
from shardir.frontend.wishes import granted, spread_wishes
from shardir.types import NUMPY_DTYPES, TensorType


@pointed
def load(folder: str | os.PathLike[str], like: Any = None, *, shardings: Any = None) -> Any:
    """What `save` wrote to `folder`.

    `like` is a container of arrays or `ShapeDtypeStruct`s with the names, shapes and element types
    of the checkpoint; the result is such a container, its arrays placed as those of `like`, or as
    `shardings` says, a container that may stop early. Without `like` the result is a dictionary by
    name. What has no sharding goes to the default device. Where `like` has a Python number, so has
    the result.

    Arrays on devices of several processes are loaded by all of these together.

    Raises `CheckpointError` when the folder is no checkpoint, or has other arrays than `like`, and
    in every process when one finds another checkpoint there.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise CheckpointError(f"a checkpoint is loaded from a folder, got {folder!r}")
    root = Path(folder)
    need_safetensors()
    index = _read(root)
    entries = _entries(root, index)
    # Without `like`, numbers of which nothing is asked stand in its place.
    pattern = dict.fromkeys(entries, 0) if like is None else like
    wanted = named_leaves(pattern)
    word = "shardings of load"
    wishes = spread_wishes(shardings, pattern, word)
    placed: list[tuple[str, Entry, Any, Sharding | None]] = []
    for (name, leaf), wish in zip(wanted.items(), wishes, strict=True):
        entry = _find(name, entries, root)
        number = like is not None and is_number(leaf)
        sharding = None if number else granted(wish, word)
        if like is not None:
            _check_same_type(name, entry, leaf, root)
            sharding = sharding or _sharding_of(leaf)
        placed.append((name, entry, leaf if number else None, sharding))
    together = not all(each is None or each.is_fully_addressable for *_, each in placed)
    if together:
        agree_to_load(root, index)
    files, leaves, why = _Files(root), list[Any](), ""
    try:
        for name, entry, number, sharding in placed:
            array = _loaded(name, entry, sharding, files)
            leaves.append(array if number is None else _as_number(name, array, number, root))
    except CheckpointError as error:
        if not together:
            raise
        why = str(error)
    if together:
        agree_to_have_loaded(why)
    return tree.unflatten(tree.structure(pattern), leaves)


def _as_number(name: str, array: Array, like: Any, root: Path) -> Any:
    """A number of the class of `like`, if that can hold it."""
    found = np.asarray(array).item()
    try:
        made = type(like)(found)
    except TypeError:  # a complex number where a real one is asked for
        made = None
    if made is None or (made != found and found == found):
        raise CheckpointError(
            f"{name!r} is {found!r} in the checkpoint {root}, and {like!r} of type "
            f"{type(like).__name__} is asked for; give a like with a {type(found).__name__} there"
        )
    return made


def _read(root: Path) -> bytes:
    """The index of a checkpoint."""
    path = root / INDEX
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        told = f"{root} is no checkpoint: it has no {INDEX}; "
        old = old_of(root)
        if not root.exists() and (old / INDEX).exists():
            raise CheckpointError(
                f"{told}a job that ended while it saved has left the one before: rename {old}"
            ) from None
        raise CheckpointError(f"{told}write one with save") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None


def _entries(root: Path, text: bytes) -> dict[str, Entry]:
    path = root / INDEX
    try:
        index = json.loads(text)
        if index["format"] != FORMAT:
            raise CheckpointError(
                f"{root} is of the format {index['format']!r}, and this version reads {FORMAT!r}"
            )
        entries = {name: _read_entry(entry) for name, entry in index["arrays"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{path} cannot be read as the index of a checkpoint") from error
    for name, entry in entries.items():
        if not _is_whole(entry):
            raise CheckpointError(
                f"{path} is damaged: the parts that it names of {name!r} are not all of an array "
                f"{TensorType(entry.shape, entry.dtype)}"
            )
    return entries


def _is_whole(entry: Entry) -> bool:
    """Whether the parts of an array are all of it, and none is there twice."""
    boxes = {box for _, box in entry.parts}
    fit = all(
        len(box) == len(entry.shape)
        and all(
            0 <= start <= stop <= size for (start, stop), size in zip(box, entry.shape, strict=True)
        )
        for box in boxes
    )
    return fit and len(boxes) == len(entry.parts) and sum(map(volume, boxes)) == prod(entry.shape)


def _read_entry(entry: Mapping[str, Any]) -> Entry:
    parts = tuple(
        (part["file"], tuple((int(start), int(stop)) for start, stop in part["box"]))
        for part in entry["parts"]
    )
    read = Entry(tuple(map(int, entry["shape"])), entry["dtype"], parts)
    NUMPY_DTYPES[read.dtype]  # a KeyError for what there is none of
    return read


def _find(name: str, entries: Mapping[str, Entry], root: Path) -> Entry:
    if name not in entries:
        hint = suggestion(name, entries) or f"it has {', '.join(map(repr, entries)) or 'none'}"
        raise CheckpointError(f"the checkpoint {root} has no array {name!r}; {hint}")
    return entries[name]


def _check_same_type(name: str, entry: Entry, leaf: Any, root: Path) -> None:
    if is_number(leaf) and not entry.shape:
        return
    found = TensorType(entry.shape, entry.dtype)
    asked = abstract_of(leaf, f"{name} of like").type
    if found != asked:
        raise CheckpointError(
            f"{name!r} is {found} in the checkpoint {root}, and {asked} is asked for; "
            "give a like of the shapes and element types that were saved"
        )


def _sharding_of(leaf: Any) -> Sharding | None:
    if isinstance(leaf, Array):
        return leaf.signature.sharding
    return leaf.sharding if isinstance(leaf, ShapeDtypeStruct) else None


def _loaded(name: str, entry: Entry, sharding: Sharding | None, files: "_Files") -> Array:
    """An array whose parts on the devices of this process have been read."""
    placed = SingleDeviceSharding(uncommitted_device()) if sharding is None else sharding
    stored = placed.stored_shape(entry.shape)
    boxes = boxes_of(placed, entry.shape).get(here().index, [])
    made: dict[Box, Buffer] = {}
    for box in boxes:
        if box not in made:
            made[box] = lengthened(files.read(name, entry, box), stored)
    abstract = Abstract(TensorType(entry.shape, entry.dtype))
    return Array(signature_of(abstract, sharding), placed, [made[box] for box in boxes])


class _Files:
    """The files of a checkpoint, each opened when something of it is first needed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: dict[str, Any] = {}

    def read(self, name: str, entry: Entry, box: Box) -> Buffer:
        """The numbers in a box of an array."""
        whole = np.empty([stop - start for start, stop in box], NUMPY_DTYPES[entry.dtype])
        for file, part in entry.parts:
            cut = common(box, part)
            if cut is not None:
                whole[inside(cut, box)] = self._slice(file, key_of(name, part), cut, part, entry)
        return whole

    def _slice(self, file: str, key: str, cut: Box, part: Box, entry: Entry) -> Buffer:
        from safetensors import SafetensorError, safe_open

        try:
            if file not in self._open:
                self._open[file] = safe_open(self.root / file, "np")
            opened = self._open[file]
            if (found := opened.get_slice(key).get_shape()) != (wanted := _stored(part, entry)):
                raise CheckpointError(
                    f"{self.root / file} of the checkpoint is damaged: it has {key!r} of shape "
                    f"{tuple(found)}, which should be {tuple(wanted)}"
                )
            numbers = opened.get_slice(key)[inside(cut, part)] if cut else opened.get_tensor(key)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"{self.root / file} of the checkpoint cannot be read: {error}"
            ) from error
        kind = VIEWS.get(entry.dtype, NUMPY_DTYPES[entry.dtype])
        if numbers.dtype != kind:
            raise CheckpointError(
                f"{self.root / file} of the checkpoint is damaged: it has {key!r} as "
                f"{numbers.dtype}, which should be {np.dtype(kind)}"
            )
        if entry.dtype not in VIEWS:
            return np.asarray(numbers)
        shape = [stop - start for start, stop in cut]
        flat = np.ascontiguousarray(numbers).reshape(-1)
        return flat.view(NUMPY_DTYPES[entry.dtype]).reshape(shape)


def _stored(part: Box, entry: Entry) -> list[int]:
    """The shape in which a part is stored."""
    shape = [stop - start for start, stop in part]
    return [*shape, 2] if entry.dtype == "c128" else shape
