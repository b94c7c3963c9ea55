"""Schedules on disk: a program that was compiled once is not even scheduled again.

A program is found by its text, and by everything that its schedule depends on: the files of passes,
operations and this backend, the processor, and the number of workers. What is kept is data, read as
JSON: the phases by the names of their kernels (`kernels` has their code, or they are compiled
anew), the loops and branches around them, slots, and the numbers of constants. Programs that are
one native call can be kept, and so nothing that refers to Python: what NumPy does, functions of
users.
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
"""Bytes of constants beyond which a program is not kept."""
FOLDERS = ("", "ops", "text", "passes", "backends", "backends/cpu")
"""Where the files are that a schedule depends on; of the last two, what is in them."""


def key_of(module: Module, workers: int) -> str:
    """What the schedule of a partitioned module is found by on disk."""
    # NumPy's LAPACK says how much memory it takes.
    words = (fingerprint(), np.__version__, *host().words())
    text = "\n".join(("schedule", *words, str(workers), show(module)))
    return hashlib.sha256(text.encode()).hexdigest()


def keep(key: str, schedule: Schedule) -> None:
    """Keep a schedule under a key, if it is one native call."""
    if not schedule.items or not are_native(schedule.items):
        return
    if sum(array.nbytes for _, array in schedule.constants) > MOST_CONSTANTS:
        return
    phases = [phase for each in segments(schedule.items) for phase in each.phases]
    kernels = {phase.kernel.name: phase.kernel.imports for phase in phases}
    numbers = {name: number for number, name in enumerate(kernels)}
    made: dict[str, Any] = {
        each.name: getattr(schedule, each.name)
        for each in fields(Schedule)
        if each.name not in ("items", "buffers")
    }
    made["types"] = [(type.shape, type.dtype) for type in schedule.types]
    made["sources"] = [(kind.value, number) for kind, number in schedule.sources]
    made["constants"] = [
        (slot, base64.b64encode(np.ascontiguousarray(array).tobytes()).decode())
        for slot, array in schedule.constants
    ]
    made["kernels"] = list(kernels.items())
    made["items"] = _words(schedule.items, numbers)
    object_cache.save(key, json.dumps(made).encode())


def kept(key: str) -> Schedule | None:
    """The schedule that was kept under a key, without its buffers and without causes of phases.

    Its kernels raise `ForgottenError` where they are to be compiled. An entry that is no schedule
    is removed, and there is none.
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
    """The schedule that `keep` wrote; raises for what it did not write."""
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


def _words(items: Sequence[Item], numbers: Mapping[str, int]) -> list[Any]:
    """Items as JSON has them; kernels are `numbers` by their names."""
    made: list[Any] = []
    for item in items:
        if isinstance(item, Segment):
            phases = [
                (numbers[phase.kernel.name], phase.record, phase.tasks, phase.cost, phase.label)
                for phase in item.phases
            ]
            made.append(["phases", phases])
        elif isinstance(item, Loop):
            rows = [(each.row, each.start, each.step) for each in item.rows]
            body = _words(item.body, numbers)
            made.append(["loop", item.length, item.backwards, rows, item.swaps, body])
        elif isinstance(item, While):
            asked, body = (_words(each, numbers) for each in (item.condition, item.body))
            made.append(["while", asked, item.going, item.swaps, body])
        else:
            assert isinstance(item, Branch)
            branches = [_words(branch, numbers) for branch in item.branches]
            made.append(["branch", item.index, branches])
    return made


def _items(words: Sequence[Any], kernels: Sequence[Kernel]) -> tuple[Item, ...]:
    """What `_words` wrote."""
    made: list[Item] = []
    for kind, *rest in words:
        if kind == "phases":
            phases = [
                Phase(kernels[number], tuple(record), tasks, cost, label)
                for number, record, tasks, cost, label in rest[0]
            ]
            made.append(Segment(phases))
        elif kind == "loop":
            length, backwards, rows, swaps, body = rest
            shown = tuple(Rows(row, View(*_tuples(start)), step) for row, start, step in rows)
            inner = _items(body, kernels)
            made.append(Loop(None, length, backwards, shown, _tuples(swaps), inner))
        elif kind == "while":
            asked, going, swaps, body = rest
            condition, inner = (_items(each, kernels) for each in (asked, body))
            made.append(While(None, condition, View(*_tuples(going)), _tuples(swaps), inner))
        else:
            index, branches = rest
            chosen = tuple(_items(branch, kernels) for branch in branches)
            made.append(Branch(None, View(*_tuples(index)), chosen))
    return tuple(made)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _forgotten() -> NoReturn:
    raise ForgottenError("the code of this kernel is not there any longer")


@cache
def fingerprint() -> str:
    """A hash over what the files are that make schedules: their names, sizes and times."""
    base = Path(shardir.ir.__file__).parent
    facts = (
        fact
        for folder in FOLDERS
        for fact in facts_of(base / folder, deep=folder not in ("", "backends"))
    )
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()
