"""The schedule cache on disk: equal programs load equal schedules."""

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
from shardir.backends.cpu.codegen.target import host_machine
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

pytestmark = pytest.mark.sample(3)


@pytest.fixture(autouse=True)
def code_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Start with an empty disk cache and an empty kernel table."""
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "code"))
    monkeypatch.setattr(kernel_table, "_kernel_addresses", {})
    object_cache.cache_folder.cache_clear()
    yield tmp_path / "code"
    object_cache.cache_folder.cache_clear()


def get_program(module: Module, lowerings: list[str]) -> NativeExecutable:
    """Load or compile the program of a module; `lowerings` records when the module is lowered."""

    def lower_module() -> Module:
        lowerings.append("lowered")
        return module

    program = BACKEND.load_or_compile(module, lower_module)
    assert isinstance(program, NativeExecutable)
    return program


def module_of(source: Any, *args: Any) -> Module:
    """Return the module of a function before partitioning."""
    return sd.jit(source).lower(*args).after("dce")


def sample_module(*args: Any) -> Module:
    def f(x: Any, w: Any) -> Any:
        table = np.array([1.5, -0.0, np.inf, 1e-45], np.float32)
        return sd.numpy.exp(x @ w), x.sum(1), x, sd.numpy.sort(x[:, :4] * table)

    return module_of(f, *args)


X = np.random.default_rng(0).standard_normal((64, 32), np.float32)
W = np.random.default_rng(1).standard_normal((32, 16), np.float32)


def key_of(module: Module, workers: int | None = None) -> str:
    """Return the cache key of a module on this host."""
    return schedule_cache.schedule_key(module, workers or worker_count(), host_machine())


def results(program: NativeExecutable, *arrays: Any) -> list[bytes]:
    return [each.array.tobytes() for each in program.run([Storage.of(a) for a in arrays])]


def test_a_cached_program_is_not_lowered() -> None:
    lowerings: list[str] = []
    module = sample_module(X, W)
    first, second = get_program(module, lowerings), get_program(module, lowerings)
    assert lowerings == ["lowered"]
    assert results(second, X, W) == results(first, X, W)
    assert second.memory() == first.memory()
    assert lowerings == ["lowered"]
    assert second.describe() == first.describe()
    assert lowerings == ["lowered"] * 2
    assert second.describe() == first.describe()
    assert lowerings == ["lowered"] * 2


SAMPLES_WITHOUT_EFFECTS = [
    sample for sample in SAMPLES if not sample.function().body.ops[-1].spec.effect
]


@pytest.mark.parametrize("sample", SAMPLES_WITHOUT_EFFECTS[::5], ids=lambda sample: sample.id)
def test_a_loaded_schedule_equals_the_saved_one(sample: Sample) -> None:
    schedule = compile_schedule(sample.function(), host_machine())
    schedule_cache.save_schedule("key", schedule)
    found = schedule_cache.load_schedule("key", host_machine())
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
            assert _item_attributes(one) == _item_attributes(item)
    for (slot, array), (its, other) in zip(found.constants, schedule.constants, strict=True):
        assert (slot, array.tobytes()) == (its, other.tobytes())
    same = replace(schedule, items=(), buffers=(), constants=())
    assert replace(found, items=(), buffers=(), constants=()) == same


def _item_attributes(item: Item) -> list[Any]:
    """Return the attributes of a loop or branch without its contents."""
    left_out = ("op", "body", "condition", "branches")
    if isinstance(item, tuple):
        names: Sequence[str] = item._fields
    else:
        names = [each.name for each in fields(item)]
    names_shown = [name for name in names if name not in left_out]
    return [type(item), *(getattr(item, name) for name in names_shown)]


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff", b"[]", b"3", b"{}", b'{"kernels": 3}', b"[" * 100_000,
     b'{"kernels": [], "items": [["loop"]]}', b'{"kernels": [], "items": [], "types": [3]}'],
)  # fmt: skip
def test_an_invalid_entry_is_removed(text: bytes) -> None:
    object_cache.save("key", text)
    assert schedule_cache.load_schedule("key", host_machine()) is None
    assert not object_cache.contains("key")


def test_swapped_entries_are_rejected() -> None:
    lowerings: list[str] = []
    modules = [module_of(lambda x: x + 1, X), module_of(lambda x: x - 1, X)]
    expected = [results(get_program(module, lowerings), X) for module in modules]
    entries = [Path(str(object_cache.cache_folder())) / f"{key_of(module)}.o" for module in modules]
    one, other = (entry.read_bytes() for entry in entries)
    entries[0].write_bytes(other)
    entries[1].write_bytes(one)
    assert [results(get_program(module, lowerings), X) for module in modules] == expected
    assert lowerings == ["lowered"] * 4


def test_different_programs_have_different_keys() -> None:
    keys = [
        key_of(sample_module(X, W), 2),
        key_of(sample_module(X[:32], W), 2),
        key_of(sample_module(X, W), 3),
        key_of(module_of(lambda x: x + 1, X), 2),
        key_of(module_of(lambda x: x + 2, X), 2),
        key_of(module_of(lambda x: x + 0.0, X), 2),
        key_of(module_of(lambda x: x + -0.0, X), 2),
        key_of(module_of(lambda x: x + np.float32(np.nan), X), 2),
        key_of(module_of(lambda x: x + np.arange(32, dtype=np.float32), X), 2),
        key_of(module_of(lambda x: x + np.arange(1, 33, dtype=np.float32), X), 2),
    ]
    assert len(set(keys)) == len(keys)
    assert key_of(sample_module(X, W), 2) == keys[0]


def test_the_key_depends_on_the_source_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = key_of(sample_module(X, W), 2)
    monkeypatch.setattr(schedule_cache, "source_fingerprint", lambda: "other files")
    assert key_of(sample_module(X, W), 2) != before
    fingerprints: list[list[str]] = []
    (tmp_path / "inner").mkdir()
    for text in ("x = 1", "x = 10"):
        (tmp_path / "inner" / "file.py").write_text(text, "utf-8")
        (tmp_path / "inner" / "other.txt").write_text(text, "utf-8")
        fingerprints.append([*list_source_files(tmp_path)])
    assert [len(each) for each in fingerprints] == [1, 1]
    assert fingerprints[0] != fingerprints[1]


def test_loops_and_branches_are_cached() -> None:
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

    lowerings: list[str] = []
    module = module_of(rounds, X)
    first, second = get_program(module, lowerings), get_program(module, lowerings)
    assert lowerings == ["lowered"]
    assert results(second, X) == results(first, X)
    assert second.describe() == first.describe()


def test_programs_with_numpy_calls_are_not_cached() -> None:
    lowerings: list[str] = []
    module = module_of(
        lambda x: sd.lax.sort((x + 1j, x), num_keys=1), X
    )  # complex: sorted by NumPy
    assert not has_only_native_items(compile_schedule(module.main, host_machine()).items)
    get_program(module, lowerings)
    get_program(module, lowerings)
    assert lowerings == ["lowered"] * 2


def test_a_program_without_cached_kernels_is_compiled_again(code_folder: Path) -> None:
    lowerings: list[str] = []
    module = sample_module(X, W)
    first = get_program(module, lowerings)
    key = key_of(module)
    for file in code_folder.iterdir():
        if file.stem != key:
            file.unlink()
    kernel_table._kernel_addresses.clear()
    assert results(get_program(module, lowerings), X, W) == results(first, X, W)
    assert lowerings == ["lowered"] * 2


def test_large_constants_are_not_cached() -> None:
    table = np.arange(schedule_cache.MAX_CONSTANT_BYTES, dtype=np.float32).reshape(1 << 10, -1)
    schedule = compile_schedule(module_of(lambda x: x + x, X).main, host_machine())
    schedule_cache.save_schedule("few", schedule)
    schedule_cache.save_schedule("many", replace(schedule, constants=((3, table),)))
    assert schedule_cache.load_schedule("few", host_machine()) is not None
    assert schedule_cache.load_schedule("many", host_machine()) is None


def test_profiles_of_a_cached_program_name_its_operations() -> None:
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
