"""Folders of checkpoints: creation of a new checkpoint, and atomic replacement of an existing one.

A new checkpoint is written to the folder `.NAME.part` beside its final one, which is renamed once
all files are on disk. A checkpoint that is replaced keeps its folder: the new files are written to
a subfolder `save-N`, then the new index is renamed over the previous index, and the previous files
are removed afterwards. A single `rename` therefore decides which of the two checkpoints exists, on
every file system and at any moment: both are complete on disk before it and after it. If a job
ended before the rename, or before the previous files were removed, the next `save` removes the
remaining files.

Earlier versions renamed the folder of the previous checkpoint to `.NAME.old`, and that of the new
one to its name. If a job ended between the two renames, `.NAME.old` is the checkpoint: `load` reads
it, and `save` renames it back.

Only files that `save` has written are ever removed; other files in a folder stay.
"""

import errno
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shardir.frontend.checkpoint.index import IndexEntry, index_text, parse_index, read_format
from shardir.frontend.errors import CheckpointError
from shardir.frontend.quoting import brief, quote_path, quote_text

INDEX = "index.json"
MAX_INDEX_BYTES = 1 << 30
"""Maximum size of an index in bytes."""

_SAVE = re.compile(r"save-(\d{1,18})", re.ASCII)
_DATA = re.compile(r"process-\d{5,10}\.safetensors", re.ASCII)
_TEMPORARY = re.compile(r"\.tmp[A-Za-z0-9]{6}", re.ASCII)
"""The names under which safetensors writes a file that it renames afterwards."""


def checkpoint_path(folder: object, word: str) -> Path:
    """Return the path of the folder of a checkpoint; `word` is "saved to" or "loaded from".

    Raises `CheckpointError` for an object that is no path.
    """
    try:
        text = os.fspath(folder)  # type: ignore[call-overload]
    except TypeError:
        text = None
    if not isinstance(text, str) or not text:
        raise CheckpointError(f"a checkpoint is {word} a folder, got {brief(folder)}")
    try:
        is_name = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_name = False
    if not is_name:
        raise CheckpointError(
            f"a checkpoint is {word} a folder, and {quote_text(text)} has a character that no "
            "path has"
        )
    return Path(text)


def read_index(folder: Path) -> bytes:
    """Return the text of the index in a folder; raises `OSError` if there is no readable index."""
    handle = os.open(folder / INDEX, os.O_RDONLY | os.O_NONBLOCK)  # A pipe would block.
    with os.fdopen(handle, "rb") as file:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(folder / INDEX))
        if facts.st_size > MAX_INDEX_BYTES:
            raise OSError(errno.EFBIG, "too long for an index", str(folder / INDEX))
        return file.read()


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder has the index of a checkpoint, of this version or another."""
    try:
        return read_format(read_index(folder)) is not None
    except OSError:
        return False


def find_checkpoint_folder(target: Path) -> Path:
    """Return the folder of the checkpoint `target`.

    It is `target` itself, or `.NAME.old` if a job of an earlier version ended between two renames.
    """
    old = _sibling_folder(target, "old")
    return old if old is not None and not os.path.lexists(target) and is_checkpoint(old) else target


def check_can_save(target: Path, overwrite: bool) -> None:
    """Raise `CheckpointError` unless a checkpoint may be saved to a folder."""
    name = quote_path(target)
    if _sibling_folder(target, "part") is None:
        raise CheckpointError(
            f"{name} is not a folder that a checkpoint can be saved to; choose another"
        )
    found = find_checkpoint_folder(target)
    if not os.path.lexists(found):
        return
    if not overwrite:
        at = "" if found == target else f" at {quote_path(found)}, where an interrupted job left it"
        raise CheckpointError(
            f"{name} exists{at}; save to another folder, or pass overwrite=True to replace it"
        )
    if not is_checkpoint(found):
        raise CheckpointError(
            f"{name} is not a checkpoint, and overwrite=True replaces nothing else; save to "
            "another folder, or remove this one first"
        )


@dataclass(frozen=True)
class CheckpointWriter:
    """A checkpoint that is being written.

    `number` is None for a new one, and the number of the subfolder for one that replaces another.
    """

    target: Path
    number: int | None

    @staticmethod
    def choose_location(target: Path) -> "CheckpointWriter":
        """Choose the location of the files of a checkpoint, before any is written."""
        found = find_checkpoint_folder(target)
        if not os.path.lexists(found):
            return CheckpointWriter(target, None)
        matches = [_SAVE.fullmatch(name) for name in os.listdir(found)]
        return CheckpointWriter(
            target, 1 + max((int(match[1]) for match in matches if match), default=0)
        )

    @property
    def folder(self) -> Path:
        """The folder to which files are written."""
        if self.number is not None:
            return self.target / f"save-{self.number}"
        return _require_sibling_folder(self.target, "part")

    def process_file(self, process: int) -> str:
        """Return the name in the index of the file that a process writes."""
        name = f"process-{process:05d}.safetensors"
        return name if self.number is None else f"save-{self.number}/{name}"

    def path_of_file(self, file: str) -> Path:
        """Return the path of a file while it is written, by its name in the index."""
        return self.folder / file.rpartition("/")[2]

    def begin(self) -> None:
        """Make the folder for files, and remove files that an interrupted job has left there."""
        _remove_written(_require_sibling_folder(self.target, "part"))
        if self.number is None:
            _make_folders(self.folder.parent)
        else:
            found = find_checkpoint_folder(self.target)
            if found != self.target:
                os.rename(found, self.target)
                _sync_folder(self.target.parent)
            _remove_unindexed(self.target)
        os.mkdir(self.folder)

    def commit(self, entries: Mapping[str, IndexEntry], sizes: Mapping[str, int]) -> None:
        """Write the index, and make the folder the checkpoint that it describes.

        Every process must have written and synchronized its files, of `sizes` in bytes by their
        names in the index. Raises `OSError` if a file is missing or has another size.
        """
        for file in sorted({part.file for entry in entries.values() for part in entry.parts}):
            path = self.path_of_file(file)
            if os.stat(path).st_size != sizes.get(file):
                raise OSError(errno.EIO, "not as long as it was written", str(path))
        _write_synchronized(self.folder / INDEX, index_text(entries))
        _sync_folder(self.folder)
        if self.number is None:
            os.rename(self.folder, self.target)
            _sync_folder(self.target.parent)
            return
        _sync_folder(self.target)
        os.replace(self.folder / INDEX, self.target / INDEX)
        _sync_folder(self.target)
        _remove_unindexed(self.target)
        _remove_written(_require_sibling_folder(self.target, "old"))

    def abandon(self) -> None:
        """Remove the written files, unless they have become the checkpoint already."""
        if self.number is None:
            _remove_written(self.folder)
        else:
            _remove_unindexed(self.target)


def sync_file(path: Path) -> int:
    """Flush a file to disk and return its size in bytes."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        return os.fstat(handle).st_size
    finally:
        os.close(handle)


def _sibling_folder(target: Path, ending: str) -> Path | None:
    """Return the folder `.NAME.ending` beside `NAME`; None for the root of the file
    system."""
    whole = Path(os.path.abspath(target))
    return whole.with_name(f".{whole.name}.{ending}") if whole.name else None


def _require_sibling_folder(target: Path, ending: str) -> Path:
    result = _sibling_folder(target, ending)
    assert result is not None, target  # See `check_can_save`.
    return result


def _make_folders(folder: Path) -> None:
    """Make a folder and its missing parents, and flush their directory entries to disk."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        os.mkdir(each)
        _sync_folder(each.parent)


def _write_synchronized(path: Path, text: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        left = memoryview(text)
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Flush the entries of a folder to disk, where the file system supports it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def _remove_unindexed(folder: Path) -> None:
    """Remove the checkpoint files in a folder that its index does not name.

    Files that cannot be removed stay. Without a readable index nothing is removed.
    """
    try:
        index = parse_index(folder / INDEX, read_index(folder))
        names = os.listdir(folder)
    except (OSError, CheckpointError):
        return
    files = {part.file for entry in index.entries.values() for part in entry.parts}
    folders = {file.partition("/")[0] for file in files if "/" in file}
    for name in names:
        if _SAVE.fullmatch(name) and name not in folders:
            _remove_written(folder / name)
        elif _DATA.fullmatch(name) and name not in files:
            _remove_file(folder / name)


def _remove_written(folder: Path) -> None:
    """Remove the files that a job has written to a folder, and the folder if it is then empty.

    Files that cannot be removed stay. A symbolic link stays, because it may lead to another
    checkpoint.
    """
    if os.path.islink(folder):
        return
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in sorted(names, key=lambda name: name != INDEX):  # Index first: then no checkpoint.
        if name == INDEX or _DATA.fullmatch(name) or _TEMPORARY.fullmatch(name):
            _remove_file(folder / name)
        elif _SAVE.fullmatch(name):
            _remove_written(folder / name)
    try:
        os.rmdir(folder)
    except OSError:  # It is not empty or cannot be removed; `begin` raises an error if it must be.
        return


def _remove_file(path: Path) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
