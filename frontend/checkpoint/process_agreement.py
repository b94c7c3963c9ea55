"""Agreement of all processes on a checkpoint; an error of one process is raised in all."""

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from shardir.frontend.arrays.shard_buffers import Buffer
from shardir.frontend.checkpoint.index import IndexEntry
from shardir.frontend.distributed.processes import process_group
from shardir.frontend.errors import CheckpointError
from shardir.frontend.quoting import quote_path, quote_text


def agree_to_save(
    target: Path, entries: Mapping[str, IndexEntry], own: Mapping[str, Buffer]
) -> None:
    """Raise `CheckpointError` in all processes unless they save the same arrays.

    The elements of arrays in `own`, which each process holds separately, must be equal too, because
    they are written once.
    """
    link = process_group().link
    if link is None:
        return
    mine = {
        name: [str(entry.type), _parts_digest(entry.parts), _elements_digest(own, name)]
        for name, entry in entries.items()
    }
    rows = link.gather(json.dumps(mine).encode(), f"saving {quote_path(target)}")
    first: dict[str, list[str]] = json.loads(rows[0])
    for process, row in enumerate(rows):
        if row == rows[0]:
            continue
        here_has, one, other = json.loads(row), link.process_name(0), link.process_name(process)
        for name in {**first, **here_has}:
            found = _describe_difference(
                quote_text(name), first.get(name), here_has.get(name), one, other
            )
            if found:
                raise CheckpointError(
                    f"the processes do not save the same to {quote_path(target)}: {found}; "
                    "every process must save the same pytree"
                )


def _describe_difference(
    name: str, one: list[str] | None, other: list[str] | None, first: str, second: str
) -> str:
    """Return a description of how two processes differ under one name, or an empty text."""
    if one is None or other is None:
        has, lacks = (second, first) if one is None else (first, second)
        return f"{has} has an array {name}, and {lacks} has none"
    if one[0] != other[0]:
        return f"{name} is {one[0]} in {first} and {other[0]} in {second}"
    if one[1] != other[1]:
        return f"{name} is on other devices in {second} than in {first}"
    if one[2] != other[2]:
        return (
            f"{name} is not placed on devices, and has other elements in {second} than in {first}"
        )
    return ""


def agree_to_load(root: Path, index: bytes | None, why: str) -> None:
    """Raise `CheckpointError` in all processes unless all read the same index.

    `why` is the error of a process that could not read an index.
    """
    link = process_group().link
    if link is None:
        return
    read = "" if index is None else blake2b(index, digest_size=16).hexdigest()
    rows = [
        json.loads(row)
        for row in link.gather(json.dumps([why, read]).encode(), "loading a checkpoint")
    ]
    raise_together([why for why, _ in rows])
    for process, row in enumerate(rows):
        if row != rows[0]:
            raise CheckpointError(
                f"{link.process_name(process)} finds another checkpoint than "
                f"{link.process_name(0)}, here at "
                f"{quote_path(root)}; use a folder that all processes can read"
            )


def agree_to_reload(why: str, is_replaced: bool) -> bool:
    """Return whether all processes must read the checkpoint again.

    They must when a process failed to read its parts, with the error `why`, and every failed
    process has found that the checkpoint was replaced meanwhile. Raises `CheckpointError` in all
    processes when one failed for another reason, so that either all continue or none does.
    """
    link = process_group().link
    if link is None:
        return is_replaced
    message = json.dumps([why, is_replaced]).encode()
    rows = [json.loads(row) for row in link.gather(message, "loading a checkpoint")]
    failed = [replaced for why, replaced in rows if why]
    if failed and all(failed):
        return True
    raise_together([why for why, _ in rows])
    return False


def raise_together(whys: Sequence[str]) -> None:
    """Raise `CheckpointError` if any process reports an error.

    The message names the first of these processes, unless all report the same error.
    """
    link = process_group().link
    for process, why in enumerate(whys):
        if why:
            by = "" if link is None or len(set(whys)) == 1 else f"{link.process_name(process)}: "
            raise CheckpointError(f"{by}{why}")


def _elements_digest(own: Mapping[str, Buffer], name: str) -> str:
    if name not in own:
        return ""
    numbers = np.ascontiguousarray(own[name]).reshape(-1).view(np.uint8)
    return blake2b(numbers.data, digest_size=16).hexdigest()


def _parts_digest(parts: object) -> str:
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()
