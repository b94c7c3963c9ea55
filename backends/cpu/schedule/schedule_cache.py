"""A disk cache of schedules: a program that was compiled before is not scheduled again.

The cache key of a program contains its text, and everything that its schedule depends on: the files
of passes, operations and this backend, the processor, and the number of workers. An entry is JSON
data: phases with the names of their kernels (`kernels` caches their code, or they are compiled
anew), control flow, slots, and the values of constants. Only programs that are one native call are
saved, because NumPy calls and user functions refer to Python objects.
"""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

import shardir.ir.module
from shardir.backends.cpu.codegen import object_cache
from shardir.backends.cpu.codegen.cache_keys import extension_sources, list_source_files
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.errors import MissingKernelCodeError
from shardir.backends.cpu.kernel_api import BufferView, Kernel, Phase
from shardir.backends.cpu.schedule.arena import BufferKind
from shardir.backends.cpu.schedule.instructions import has_only_native_items, native_segments
from shardir.backends.cpu.schedule.items import (
    BranchItem,
    Item,
    RowPointer,
    ScanItem,
    Schedule,
    Segment,
    WhileItem,
)
from shardir.ir.module import Module
from shardir.ir.types import TensorType
from shardir.text.printer import print_module

MAX_CONSTANT_BYTES = 1 << 20
"""Programs with more bytes of constants are not saved."""
FINGERPRINTED_FOLDERS = (
    "ir",
    "op_rules",
    "ops",
    "text",
    "passes",
    "backends",
    "backends/cpu",
    "backends/numpy",
)
"""Folders of the files that a schedule depends on; all but `backends` are searched recursively."""


def schedule_key(module: Module, workers: int, machine: HostDescription) -> str:
    """Return the cache key for the schedule of a partitioned module on a machine."""
    # The workspace size of a decomposition depends on NumPy's LAPACK.
    words = (source_fingerprint(), *extension_sources(), np.__version__, *machine.words())
    text = "\n".join(("schedule", *words, str(workers), print_module(module)))
    return hashlib.sha256(text.encode()).hexdigest()


def save_schedule(key: str, schedule: Schedule) -> None:
    """Save a schedule under a key, if it is one native call."""
    if not schedule.items or not has_only_native_items(schedule.items):
        return
    if sum(array.nbytes for _, array in schedule.constants) > MAX_CONSTANT_BYTES:
        return
    phases = [phase for each in native_segments(schedule.items) for phase in each.phases]
    kernels = {phase.kernel.name: phase.kernel.imports for phase in phases}
    indices = {name: number for number, name in enumerate(kernels)}
    encoded: dict[str, object] = {
        each.name: getattr(schedule, each.name)
        for each in fields(Schedule)
        if each.name not in ("items", "buffers", "machine")
    }
    encoded["types"] = [(type.shape, type.dtype) for type in schedule.types]
    encoded["sources"] = [(kind.value, number) for kind, number in schedule.sources]
    encoded["constants"] = [
        (slot, base64.b64encode(np.ascontiguousarray(array).tobytes()).decode())
        for slot, array in schedule.constants
    ]
    encoded["kernels"] = list(kernels.items())
    encoded["items"] = _encode_items(schedule.items, indices)
    object_cache.save(key, json.dumps(encoded).encode())


def load_schedule(key: str, machine: HostDescription) -> Schedule | None:
    """Load the schedule that was saved under a key of a machine, without buffers and causes of
    phases.

    A kernel of it raises `MissingKernelCodeError` if it has to be compiled. An invalid entry is
    removed, and `None` is returned.
    """
    found = object_cache.load(key)
    if found is None:
        return None
    try:
        return _decode_schedule(found, machine)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        object_cache.discard(key)
        return None


def _decode_schedule(found: bytes, machine: HostDescription) -> Schedule:
    """Decode the bytes that `save_schedule` wrote; raise for any other bytes."""
    read = json.loads(found)
    kernels = [
        Kernel(name, _raise_missing_code, tuple(imports)) for name, imports in read.pop("kernels")
    ]
    return Schedule(
        items=_decode_items(read.pop("items"), kernels),
        buffers=(),
        machine=machine,
        types=tuple(TensorType(tuple(shape), dtype) for shape, dtype in read.pop("types")),
        sources=tuple((BufferKind(kind), number) for kind, number in read.pop("sources")),
        constants=tuple(
            (slot, np.frombuffer(base64.b64decode(text), np.uint8).copy())
            for slot, text in read.pop("constants")
        ),
        **{name: _to_tuples(value) for name, value in read.items()},
    )


def _encode_items(items: Sequence[Item], indices: Mapping[str, int]) -> list[object]:
    """Encode items as JSON lists, with kernels by their index."""
    encoded: list[object] = []
    for item in items:
        if isinstance(item, Segment):
            phases = [(indices[phase.kernel.name], *phase[1:]) for phase in item.phases]
            encoded.append(["phases", phases])
        elif isinstance(item, ScanItem):
            rows = [(each.row, each.start, each.step) for each in item.rows]
            body = _encode_items(item.body, indices)
            encoded.append(["loop", item.length, item.backwards, rows, item.swaps, body])
        elif isinstance(item, WhileItem):
            condition, body = (_encode_items(each, indices) for each in (item.condition, item.body))
            encoded.append(["while", condition, item.going, item.swaps, body])
        else:
            assert isinstance(item, BranchItem)
            branches = [_encode_items(branch, indices) for branch in item.branches]
            encoded.append(["branch", item.index, branches])
    return encoded


def _decode_items(words: Sequence[Any], kernels: Sequence[Kernel]) -> tuple[Item, ...]:
    """Decode the lists that `_encode_items` wrote."""
    decoded: list[Item] = []
    for kind, *rest in words:
        if kind == "phases":
            phases = [
                Phase(kernels[number], tuple(record), *others)
                for number, record, *others in rest[0]
            ]
            decoded.append(Segment(phases))
        elif kind == "loop":
            length, backwards, rows, swaps, body = rest
            row_pointers = tuple(
                RowPointer(row, BufferView(*_to_tuples(start)), step) for row, start, step in rows
            )
            inner = _decode_items(body, kernels)
            decoded.append(
                ScanItem(None, length, backwards, row_pointers, _to_tuples(swaps), inner)
            )
        elif kind == "while":
            condition_words, going, swaps, body = rest
            condition, inner = (_decode_items(each, kernels) for each in (condition_words, body))
            decoded.append(
                WhileItem(None, condition, BufferView(*_to_tuples(going)), _to_tuples(swaps), inner)
            )
        else:
            index, branches = rest
            chosen = tuple(_decode_items(branch, kernels) for branch in branches)
            decoded.append(BranchItem(None, BufferView(*_to_tuples(index)), chosen))
    return tuple(decoded)


def _to_tuples(value: object) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value


def _raise_missing_code(machine: HostDescription) -> NoReturn:
    raise MissingKernelCodeError("the code of this kernel is no longer on disk")


@cache
def source_fingerprint() -> str:
    """Return a hash of names, sizes and times of the files that schedules depend on."""
    base = Path(shardir.errors.__file__).parent
    facts = (
        fact
        for folder in FINGERPRINTED_FOLDERS
        for fact in list_source_files(base / folder, deep=folder != "backends")
    )
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()
