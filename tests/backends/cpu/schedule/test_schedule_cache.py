"""Schedules on disk: found by programs that are the same, and as good as new."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir.backends.cpu import BACKEND
from shardir.backends.cpu.codegen import kernel_table, object_cache
from shardir.backends.cpu.codegen.cache_keys import list_source_files
from shardir.backends.cpu.executable import NativeExecutable
from shardir.backends.cpu.schedule import schedule_cache
from shardir.backends.cpu.schedule.build import compile_schedule
from shardir.backends.cpu.schedule.instructions import has_only_native_items, walk_items
from shardir.backends.cpu.schedule.items import Item, Segment
from shardir.backends.cpu.threads.workers import worker_count
from shardir.backends.storage import Storage
from shardir.ir.module import Module
from tests.op_sample import Sample
from tests.samples import SAMPLES


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No code on disk, no kernel known."""
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "code"))
    monkeypatch.setattr(kernel_table, "_kernel_addresses", {})
    object_cache.cache_folder.cache_clear()
    yield tmp_path / "code"
    object_cache.cache_folder.cache_clear()


def brought(module: Module, asked: list[str]) -> NativeExecutable:
    """The program for a module; `asked` grows when the module is lowered."""

    def lowered() -> Module:
        asked.append("lowered")
        return module

    program = BACKEND.load_or_compile(module, lowered)
    assert isinstance(program, NativeExecutable)
    return program


def of(source: Any, *args: Any) -> Module:
    """A function as the program that is partitioned."""
    return sd.jit(source).lower(*args).after("dce")


def some(*args: Any) -> Module:
    def f(x: Any, w: Any) -> Any:
        table = np.array([1.5, -0.0, np.inf, 1e-45], np.float32)
        return sd.numpy.exp(x @ w), x.sum(1), x, sd.numpy.sort(x[:, :4] * table)

    return of(f, *args)


X = np.random.default_rng(0).standard_normal((64, 32), np.float32)
W = np.random.default_rng(1).standard_normal((32, 16), np.float32)


def results(program: NativeExecutable, *arrays: Any) -> list[bytes]:
    return [each.array.tobytes() for each in program.run([Storage.of(a) for a in arrays])]


def test_the_second_program_is_not_even_lowered() -> None:
    asked: list[str] = []
    module = some(X, W)
    first, second = brought(module, asked), brought(module, asked)
    assert asked == ["lowered"]
    assert results(second, X, W) == results(first, X, W)
    assert second.memory() == first.memory()
    assert asked == ["lowered"]
    assert second.describe() == first.describe()
    assert asked == ["lowered"] * 2
    assert second.describe() == first.describe()
    assert asked == ["lowered"] * 2


RUNNING = [sample for sample in SAMPLES if not sample.function().body.ops[-1].spec.effect]


@pytest.mark.parametrize("sample", RUNNING[::5], ids=lambda sample: sample.id)
def test_what_comes_back_is_what_was_kept(sample: Sample) -> None:
    schedule = compile_schedule(sample.function())
    schedule_cache.save_schedule("key", schedule)
    found = schedule_cache.load_schedule("key")
    if not schedule.items or not has_only_native_items(schedule.items):
        assert found is None
        return
    assert found is not None
    for one, item in zip(walk_items(found.items), walk_items(schedule.items), strict=True):
        if isinstance(item, Segment):
            assert isinstance(one, Segment)
            for phase, before in zip(one.phases, item.phases, strict=True):
                assert phase._replace(kernel=before.kernel) == before
                assert (phase.kernel.name, phase.kernel.imports) == (
                    before.kernel.name, before.kernel.imports,
                )  # fmt: skip
        else:
            assert _facts(one) == _facts(item)
    for (slot, array), (its, other) in zip(found.constants, schedule.constants, strict=True):
        assert (slot, array.tobytes()) == (its, other.tobytes())
    same = replace(schedule, items=(), buffers=(), constants=())
    assert replace(found, items=(), buffers=(), constants=()) == same


def _facts(item: Item) -> list[Any]:
    """What a loop or a branch is, without what is in it."""
    left_out = ("op", "body", "condition", "branches")
    if isinstance(item, tuple):
        names: Sequence[str] = item._fields
    else:
        names = [each.name for each in fields(item)]
    shown = [name for name in names if name not in left_out]
    return [type(item), *(getattr(item, name) for name in shown)]


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff", b"[]", b"3", b"{}", b'{"kernels": 3}', b"[" * 100_000,
     b'{"kernels": [], "items": [["loop"]]}', b'{"kernels": [], "items": [], "types": [3]}'],
)  # fmt: skip
def test_an_entry_that_is_no_schedule_is_none_and_is_removed(text: bytes) -> None:
    object_cache.save("key", text)
    assert schedule_cache.load_schedule("key") is None
    assert not object_cache.contains("key")


def test_programs_whose_entries_were_swapped_are_compiled_anew() -> None:
    asked: list[str] = []
    modules = [of(lambda x: x + 1, X), of(lambda x: x - 1, X)]
    wanted = [results(brought(module, asked), X) for module in modules]
    entries = [
        Path(str(object_cache.cache_folder()))
        / f"{schedule_cache.schedule_key(module, worker_count())}.o"
        for module in modules
    ]
    one, other = (entry.read_bytes() for entry in entries)
    entries[0].write_bytes(other)
    entries[1].write_bytes(one)
    assert [results(brought(module, asked), X) for module in modules] == wanted
    assert asked == ["lowered"] * 4


def test_other_programs_are_others() -> None:
    keys = [
        schedule_cache.schedule_key(some(X, W), 2),
        schedule_cache.schedule_key(some(X[:32], W), 2),
        schedule_cache.schedule_key(some(X, W), 3),
        schedule_cache.schedule_key(of(lambda x: x + 1, X), 2),
        schedule_cache.schedule_key(of(lambda x: x + 2, X), 2),
        schedule_cache.schedule_key(of(lambda x: x + 0.0, X), 2),
        schedule_cache.schedule_key(of(lambda x: x + -0.0, X), 2),
        schedule_cache.schedule_key(of(lambda x: x + np.float32(np.nan), X), 2),
        schedule_cache.schedule_key(of(lambda x: x + np.arange(32, dtype=np.float32), X), 2),
        schedule_cache.schedule_key(of(lambda x: x + np.arange(1, 33, dtype=np.float32), X), 2),
    ]
    assert len(set(keys)) == len(keys)
    assert schedule_cache.schedule_key(some(X, W), 2) == keys[0]


def test_the_key_changes_with_the_files_that_make_schedules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = schedule_cache.schedule_key(some(X, W), 2)
    monkeypatch.setattr(schedule_cache, "source_fingerprint", lambda: "other files")
    assert schedule_cache.schedule_key(some(X, W), 2) != before
    facts: list[list[str]] = []
    (tmp_path / "inner").mkdir()
    for text in ("x = 1", "x = 10"):
        (tmp_path / "inner" / "file.py").write_text(text, "utf-8")
        (tmp_path / "inner" / "other.txt").write_text(text, "utf-8")
        facts.append([*list_source_files(tmp_path)])
    assert [len(each) for each in facts] == [1, 1]
    assert facts[0] != facts[1]


def test_loops_and_branches_are_kept() -> None:
    def rounds(x: Any) -> Any:
        def more(carried: Any) -> Any:
            return carried[0].sum() < 1e6

        def another(carried: Any) -> Any:
            y, i = carried
            twice = sd.lax.cond(y[0, 0] > 3, lambda z: z * 2, lambda z: z + 1, y)
            return sd.lax.switch(
                i % 3, [sd.numpy.abs, lambda z: z + 2, lambda z: z * 3], twice
            ), i + 1

        final, count = sd.lax.while_loop(more, another, (x, 0))
        return sd.lax.scan(lambda c, row: (c * row[0] + 1, c), final, final, reverse=True), count

    asked: list[str] = []
    module = of(rounds, X)
    first, second = brought(module, asked), brought(module, asked)
    assert asked == ["lowered"]
    assert results(second, X) == results(first, X)
    assert second.describe() == first.describe()


def test_programs_with_work_for_numpy_are_made_each_time() -> None:
    asked: list[str] = []
    module = of(lambda x: sd.lax.sort((x + 1j, x), num_keys=1), X)  # complex numbers
    assert not has_only_native_items(compile_schedule(module.main).items)
    brought(module, asked)
    brought(module, asked)
    assert asked == ["lowered"] * 2


def test_a_program_whose_kernels_are_gone_is_made_anew(place: Path) -> None:
    asked: list[str] = []
    module = some(X, W)
    first = brought(module, asked)
    key = schedule_cache.schedule_key(module, worker_count())
    for file in place.iterdir():
        if file.stem != key:
            file.unlink()
    kernel_table._kernel_addresses.clear()
    assert results(brought(module, asked), X, W) == results(first, X, W)
    assert asked == ["lowered"] * 2


def test_many_constants_are_not_kept() -> None:
    table = np.arange(schedule_cache.MAX_CONSTANT_BYTES, dtype=np.float32).reshape(1 << 10, -1)
    schedule = compile_schedule(of(lambda x: x + x, X).main)
    schedule_cache.save_schedule("few", schedule)
    schedule_cache.save_schedule("many", replace(schedule, constants=((3, table),)))
    assert schedule_cache.load_schedule("few") is not None
    assert schedule_cache.load_schedule("many") is None


def test_profiles_of_a_kept_program_tell_operations() -> None:
    def f(x: Any) -> Any:
        return sd.numpy.exp(x @ x.T)

    x = sd.device_put(X)
    tables = []
    for _ in range(2):
        kernel_table._kernel_addresses.clear()
        found = sd.profile(sd.jit(f), x, runs=1)
        tables.append(sorted((row.name, row.where, row.memory, row.flops) for row in found.rows))
    assert tables[0] == tables[1]
    assert any(row[1] for row in tables[1])
