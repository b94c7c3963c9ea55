"""The index of a checkpoint: the type of each array, and the file, box and checksums of its parts.

`index.json` of the format "shardir checkpoint 2" is an object of three members: `format`; `arrays`,
with `shape`, `dtype` and `parts` of each name; and `crc32`, the checksum of the other two as JSON
without spaces and with sorted names. A part has a `file`, a `box` (start and stop along each
dimension) and `crc32`: eight hexadecimal digits for each chunk of its rows (`chunk_checksums`). The
format "shardir checkpoint 1" is the same without checksums; it is read and not written.

An index is read as untrusted input: the type and the range of every value are checked, and the
parts of an array must tile it, before memory is allocated for any of it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

from shardir.frontend.checkpoint.chunk_checksums import chunk_count
from shardir.frontend.distributed.shard_exchange import Box, box_size
from shardir.frontend.errors import CheckpointError
from shardir.frontend.quoting import quote_path, quote_text
from shardir.ir.types import NUMPY_DTYPES, TensorType

FORMAT = "shardir checkpoint 2"
FORMAT_WITHOUT_CHECKSUMS = "shardir checkpoint 1"
FORMAT_PREFIX = "shardir checkpoint "
MAX_DIMENSIONS = 64
"""Maximum rank of arrays, which is that of NumPy."""
MAX_ARRAY_BYTES = 2**63 - 1
"""Size in bytes of the largest addressable array."""
MAX_DIVIDED_DIMENSIONS = 6
"""Maximum number of divided dimensions for which `do_boxes_tile` compares the corners of boxes that
form no grid; there are 2 to this power corners for each box."""

_FILE = re.compile(r"(save-\d{1,18}/)?process-\d{5,10}\.safetensors", re.ASCII)
_CHECKSUMS = re.compile(r"([0-9a-f]{8})*", re.ASCII)


@dataclass(frozen=True)
class StoredPart:
    """The location of a box of an array; `checksums` is None if none were written."""

    file: str
    box: Box
    checksums: str | None = None


@dataclass(frozen=True)
class IndexEntry:
    """The index entry of an array."""

    shape: tuple[int, ...]
    dtype: str
    parts: tuple[StoredPart, ...]

    @property
    def type(self) -> TensorType:
        return TensorType(self.shape, self.dtype)


@dataclass(frozen=True)
class CheckpointIndex:
    """The arrays of a checkpoint by name; `is_intact` states whether the checksum of the index
    matches.

    A wrong checksum does not locate the damage, so `load` reports it last.
    """

    entries: Mapping[str, IndexEntry]
    is_intact: bool


class _MalformedIndexError(Exception):
    """An index is malformed."""


def index_text(entries: Mapping[str, IndexEntry]) -> bytes:
    """Return the text of an index, with a line for each array."""
    index: dict[str, Any] = {
        "format": FORMAT,
        "arrays": {
            name: {
                "shape": entry.shape,
                "dtype": entry.dtype,
                "parts": [
                    {"file": part.file, "box": part.box, "crc32": part.checksums or ""}
                    for part in entry.parts
                ],
            }
            for name, entry in entries.items()
        },
    }
    arrays = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in index["arrays"].items()
    )
    members = {
        "format": json.dumps(FORMAT),
        "arrays": f"{{\n{arrays}\n }}",
        "crc32": json.dumps(_checksum(index)),
    }
    lines = ",\n".join(f' "{name}": {text}' for name, text in members.items())
    return f"{{\n{lines}\n}}\n".encode()


def parse_index(path: Path, text: bytes) -> CheckpointIndex:
    """Return the index that the file `path` holds as `text`.

    Raises `CheckpointError` if the text is not an index, or describes impossible arrays.
    """
    try:
        return _read_index(path, parse_json(text))
    except _MalformedIndexError as error:
        raise CheckpointError(
            f"{quote_path(path)} cannot be read as the index of a checkpoint: {error}"
        ) from None


def read_format(text: bytes) -> str | None:
    """Return the format that an index names, of this version or another, or None."""
    try:
        found = parse_json(text)
    except _MalformedIndexError:
        return None
    name = found.get("format") if isinstance(found, dict) else None
    return name if isinstance(name, str) and name.startswith(FORMAT_PREFIX) else None


def parse_json(text: bytes) -> Any:
    """Return the parsed JSON; raises an error if a name occurs twice in an object."""
    try:
        return json.loads(
            text,
            object_pairs_hook=_make_object,
            parse_constant=_refuse_constant,
            parse_float=_refuse_float,
        )
    except RecursionError:
        raise _MalformedIndexError("it is nested too deeply") from None
    except MemoryError:
        raise _MalformedIndexError("it does not fit into memory") from None
    except ValueError as error:  # Not JSON, not UTF-8, or an integer of thousands of digits.
        raise _MalformedIndexError(quote_text(str(error))[1:-1]) from None


def _make_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise _MalformedIndexError(f"the name {quote_text(twice)} occurs twice")
    return result


def _refuse_constant(text: str) -> NoReturn:
    raise _MalformedIndexError(f"it has the number {text}")


def _refuse_float(text: str) -> NoReturn:
    raise _MalformedIndexError(
        f"it has the number {quote_text(text)[1:-1]}, which is not an integer"
    )


def _read_index(path: Path, index: object) -> CheckpointIndex:
    if not isinstance(index, dict) or not isinstance(index.get("format"), str):
        raise _MalformedIndexError("it names no format")
    if index["format"] not in (FORMAT, FORMAT_WITHOUT_CHECKSUMS):
        raise CheckpointError(
            f"{quote_path(path.parent)} is of the format {quote_text(index['format'])}, and this "
            f"version reads {FORMAT!r} and {FORMAT_WITHOUT_CHECKSUMS!r}"
        )
    has_checksums = index["format"] == FORMAT
    checksums = ("crc32",) if has_checksums else ()
    _check_members("the index", index, ("format", "arrays", *checksums))
    if not isinstance(index["arrays"], dict):
        raise _MalformedIndexError("its arrays are not an object")
    entries = {}
    for name, found in index["arrays"].items():
        _check_name(name)
        what = f"the array {quote_text(name)}"
        entries[name] = entry = _read_entry(what, found, has_checksums)
        if not do_boxes_tile([part.box for part in entry.parts], entry.shape):
            raise CheckpointError(
                f"{quote_path(path)} is damaged: the parts that it lists of {quote_text(name)} "
                f"do not cover {quote_text(str(entry.type))[1:-1]} exactly once; load an earlier "
                "checkpoint"
            )
    is_intact = not has_checksums or index.pop("crc32") == _checksum(index)
    return CheckpointIndex(entries, is_intact)


def _check_members(what: str, found: object, names: tuple[str, ...]) -> None:
    if not isinstance(found, dict):
        raise _MalformedIndexError(f"{what} is not an object")
    if set(found) != set(names):
        raise _MalformedIndexError(
            f"{what} does not have the members {', '.join(names)} and no others"
        )


def _check_name(name: str) -> None:
    if not is_text(name):
        raise _MalformedIndexError(
            f"the name {quote_text(name)} has a character that UTF-8 cannot write"
        )


def is_text(name: str) -> bool:
    """Return whether UTF-8 can encode a name, that is, whether it has no lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_entry(what: str, found: Any, has_checksums: bool) -> IndexEntry:
    _check_members(what, found, ("shape", "dtype", "parts"))
    shape, dtype, parts = found["shape"], found["dtype"], found["parts"]
    if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
        raise _MalformedIndexError(f"the shape of {what} is not a list of sizes")
    if len(shape) > MAX_DIMENSIONS:
        raise _MalformedIndexError(
            f"{what} has {len(shape)} dimensions, at most {MAX_DIMENSIONS} can be"
        )
    if not isinstance(dtype, str) or dtype not in NUMPY_DTYPES:
        raise _MalformedIndexError(f"the dtype of {what} is unknown")
    if prod(max(size, 1) for size in shape) > MAX_ARRAY_BYTES // NUMPY_DTYPES[dtype].itemsize:
        raise _MalformedIndexError(f"{what} has more than {MAX_ARRAY_BYTES} bytes")
    if not isinstance(parts, list):
        raise _MalformedIndexError(f"the parts of {what} are not a list")
    return IndexEntry(
        tuple(shape), dtype, tuple(_read_part(what, part, dtype, has_checksums) for part in parts)
    )


def _read_part(what: str, found: Any, dtype: str, has_checksums: bool) -> StoredPart:
    _check_members(f"a part of {what}", found, ("file", "box", *("crc32",) * has_checksums))
    file, box = found["file"], found["box"]
    if not isinstance(file, str) or _FILE.fullmatch(file) is None:
        raise _MalformedIndexError(f"the file of a part of {what} is not named as save names files")
    if not isinstance(box, list) or not all(_is_span(span) for span in box):
        raise _MalformedIndexError(
            f"the box of a part of {what} has no start and stop for each dimension"
        )
    result = tuple((start, stop) for start, stop in box)
    if not has_checksums:
        return StoredPart(file, result)
    checksums = found["crc32"]
    if not isinstance(checksums, str) or _CHECKSUMS.fullmatch(checksums) is None:
        raise _MalformedIndexError(f"the checksums of a part of {what} are not eight digits each")
    if len(checksums) != 8 * chunk_count(tuple(stop - start for start, stop in result), dtype):
        raise _MalformedIndexError(
            f"a part of {what} has another number of checksums than its size needs"
        )
    return StoredPart(file, result, checksums)


def _is_size(size: object) -> bool:
    return type(size) is int and 0 <= size <= MAX_ARRAY_BYTES  # A boolean is an int.


def _is_span(span: object) -> bool:
    return (
        isinstance(span, list)
        and len(span) == 2
        and all(map(_is_size, span))
        and span[0] <= span[1]
    )


def do_boxes_tile(boxes: Sequence[Box], shape: tuple[int, ...]) -> bool:
    """Return whether boxes cover an array without overlap.

    The boxes of `save` are the cells of a grid. Others are compared by their corners
    (`_sum_to_one`), if they divide at most `MAX_DIVIDED_DIMENSIONS`. Both take time proportional to
    the number of boxes, apart from sorting them.
    """
    if not all(
        len(box) == len(shape)
        and all(start <= stop <= size for (start, stop), size in zip(box, shape, strict=True))
        for box in boxes
    ):
        return False
    if 0 in shape:
        return True
    if any(start == stop for box in boxes for start, stop in box):
        return False
    if sum(map(box_size, boxes)) != prod(shape):
        return False
    return _are_grid(boxes, shape) or _sum_to_one(boxes, shape)


def _are_grid(boxes: Sequence[Box], shape: tuple[int, ...]) -> bool:
    """Return whether boxes are all the cells of a grid.

    They must be distinct, each with one span of a division of each dimension, and as many as the
    grid has cells.
    """
    cells = 1
    for dimension, size in enumerate(shape):
        spans = sorted({box[dimension] for box in boxes})
        bounds = [0, *(stop for _, stop in spans)]
        if [start for start, _ in spans] != bounds[:-1] or bounds[-1] != size:
            return False
        cells *= len(spans)
    return len(boxes) == cells == len(set(boxes))


def _sum_to_one(boxes: Sequence[Box], shape: tuple[int, ...]) -> bool:
    """Return whether each element is in exactly one box.

    The sum of the indicator functions of boxes is determined by its mixed difference along all
    dimensions, which is 1 or -1 at each corner of each box. Boxes tile an array if these cancel
    except at the corners of the array itself. Dimensions that no box divides are omitted.
    """
    divided = [d for d, size in enumerate(shape) if any(box[d] != (0, size) for box in boxes)]
    if len(divided) > MAX_DIVIDED_DIMENSIONS:
        return False
    whole = tuple((0, size) for size in shape)
    left: dict[tuple[int, ...], int] = {}
    for sign, box in ((-1, whole), *((1, box) for box in boxes)):
        for ends in product((0, 1), repeat=len(divided)):
            corner = tuple(box[d][end] for d, end in zip(divided, ends, strict=True))
            left[corner] = left.get(corner, 0) + (-sign if sum(ends) % 2 else sign)
    return not any(left.values())


def _checksum(index: Mapping[str, object]) -> str:
    text = json.dumps(index, sort_keys=True, separators=(",", ":"))
    return f"{crc32(text.encode()):08x}"
