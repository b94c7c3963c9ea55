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

import shardir.ir
from shardir.backends.cpu.native.data import Kernel, Phase, View
from shardir.backends.cpu.native.llvm import object_cache
from shardir.backends.cpu.native.llvm.naming import facts_of
from shardir.backends.cpu.native.llvm.target import host
from shardir.backends.cpu.native.runtime.kernels import ForgottenError
from shardir.backends.cpu.native.schedule.instructions import are_native, segments
from shardir.backends.cpu.native.schedule.items import Branch, Item, Loop, Rows, Segment, While
from shardir.backends.cpu.native.schedule.memory import Kind
from shardir.backends.cpu.native.schedule.schedule import Schedule
from shardir.ir import Module
from shardir.text.printer import show
from shardir.types import TensorType

MOST_CONSTANTS = 1 << 20
"""Programs with more bytes of constants are not saved."""
FOLDERS = ("", "ops", "text", "passes", "backends", "backends/cpu")
"""Folders of the files that a schedule depends on; only the last two are searched recursively."""


def key_of(module: Module, workers: int) -> str:
    """Return the cache key for the schedule of a partitioned module."""
    # The workspace size of a decomposition depends on NumPy's LAPACK.
    words = (fingerprint(), np.__version__, *host().words())
    text = "\n".join(("schedule", *words, str(workers), show(module)))
    return hashlib.sha256(text.encode()).hexdigest()


def keep(key: str, schedule: Schedule) -> None:
    """Save a schedule under a key, if it is one native call."""
    if not schedule.items or not are_native(schedule.items):
        return
    if sum(array.nbytes for _, array in schedule.constants) > MOST_CONSTANTS:
        return
    phases = [phase for each in segments(schedule.items) for phase in each.phases]
    kernels = {phase.kernel.name: phase.kernel.imports for phase in phases}
    indices = {name: number for number, name in enumerate(kernels)}
    encoded: dict[str, Any] = {
        each.name: getattr(schedule, each.name)
        for each in fields(Schedule)
        if each.name not in ("items", "buffers")
    }
    encoded["types"] = [(type.shape, type.dtype) for type in schedule.types]
    encoded["sources"] = [(kind.value, number) for kind, number in schedule.sources]
    encoded["constants"] = [
        (slot, base64.b64encode(np.ascontiguousarray(array).tobytes()).decode())
        for slot, array in schedule.constants
    ]
    encoded["kernels"] = list(kernels.items())
    encoded["items"] = _words(schedule.items, indices)
    object_cache.save(key, json.dumps(encoded).encode())


def kept(key: str) -> Schedule | None:
    """Load the schedule that was saved under a key, without buffers and causes of phases.

    A kernel of it raises `ForgottenError` if it has to be compiled. An invalid entry is removed,
    and `None` is returned.
    """
    found = object_cache.load(key)
    if found is None:
        return None
    try:
        return _schedule(found)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        object_cache.discard(key)
        return None


def _schedule(found: bytes) -> Schedule:
    """Decode the bytes that `save_schedule` wrote; raise for any other bytes."""
    read = json.loads(found)
    kernels = [Kernel(name, _forgotten, tuple(imports)) for name, imports in read.pop("kernels")]
    return Schedule(
        items=_items(read.pop("items"), kernels),
        buffers=(),
        types=tuple(TensorType(tuple(shape), dtype) for shape, dtype in read.pop("types")),
        sources=tuple((Kind(kind), number) for kind, number in read.pop("sources")),
        constants=tuple(
            (slot, np.frombuffer(base64.b64decode(text), np.uint8).copy())
            for slot, text in read.pop("constants")
        ),
        **{name: _tuples(value) for name, value in read.items()},
    )


def _words(items: Sequence[Item], indices: Mapping[str, int]) -> list[Any]:
    """Encode items as JSON lists, with kernels by their index."""
    encoded: list[Any] = []
    for item in items:
        if isinstance(item, Segment):
            phases = [
                (indices[phase.kernel.name], phase.record, phase.tasks, phase.cost, phase.label)
                for phase in item.phases
            ]
            encoded.append(["phases", phases])
        elif isinstance(item, Loop):
            rows = [(each.row, each.start, each.step) for each in item.rows]
            body = _words(item.body, indices)
            encoded.append(["loop", item.length, item.backwards, rows, item.swaps, body])
        elif isinstance(item, While):
            condition, body = (_words(each, indices) for each in (item.condition, item.body))
            encoded.append(["while", condition, item.going, item.swaps, body])
        else:
            assert isinstance(item, Branch)
            branches = [_words(branch, indices) for branch in item.branches]
            encoded.append(["branch", item.index, branches])
    return encoded


def _items(words: Sequence[Any], kernels: Sequence[Kernel]) -> tuple[Item, ...]:
    """Decode the lists that `_encode_items` wrote."""
    decoded: list[Item] = []
    for kind, *rest in words:
        if kind == "phases":
            phases = [
                Phase(kernels[number], tuple(record), tasks, cost, label)
                for number, record, tasks, cost, label in rest[0]
            ]
            decoded.append(Segment(phases))
        elif kind == "loop":
            length, backwards, rows, swaps, body = rest
            row_pointers = tuple(
                Rows(row, View(*_tuples(start)), step) for row, start, step in rows
            )
            inner = _items(body, kernels)
            decoded.append(Loop(None, length, backwards, row_pointers, _tuples(swaps), inner))
        elif kind == "while":
            condition_words, going, swaps, body = rest
            condition, inner = (_items(each, kernels) for each in (condition_words, body))
            decoded.append(While(None, condition, View(*_tuples(going)), _tuples(swaps), inner))
        else:
            index, branches = rest
            chosen = tuple(_items(branch, kernels) for branch in branches)
            decoded.append(Branch(None, View(*_tuples(index)), chosen))
    return tuple(decoded)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _forgotten() -> NoReturn:
    raise ForgottenError("the code of this kernel is no longer on disk")


@cache
def fingerprint() -> str:
    """Return a hash of names, sizes and times of the files that schedules depend on."""
    base = Path(shardir.ir.__file__).parent
    facts = (
        fact
        for folder in FOLDERS
        for fact in facts_of(base / folder, deep=folder not in ("", "backends"))
    )
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()
