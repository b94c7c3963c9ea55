"""The kernel table: compilation once per name, in groups, with a disk cache and imported
symbols."""

import ctypes
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from shardir.backends.cpu.codegen import (
    cache_keys,
    emission,
    imported_symbols,
    kernel_table,
    object_cache,
)
from shardir.backends.cpu.codegen.cache_keys import cache_key
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule
from shardir.backends.cpu.codegen.target import HostDescription, host_machine
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.kernel_api import Kernel, Phase
from shardir.backends.cpu.kernels.math import library
from tests.backends.cpu.sample_kernels import make_kernel


@pytest.fixture(autouse=True)
def empty_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Start with an empty disk cache and an empty kernel table."""
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "code"))
    for known in ("_kernel_addresses", "_running_compilations", "_pending_texts"):
        monkeypatch.setattr(kernel_table, known, {})
    object_cache.cache_folder.cache_clear()
    yield
    object_cache.cache_folder.cache_clear()


def add_kernel(name: str, number: int, written_texts: list[str]) -> Kernel:
    """Return a kernel that adds a number to a word; `written_texts` records each generation of its
    text."""

    def text(machine: HostDescription) -> str:
        written_texts.append(name)
        module = LLVMModule(machine)
        helper = LLVMFunction(module, "helper", ["i64"], "i64", "nounwind noinline", internal=True)
        helper.ret(helper.params[0] + number)
        f = LLVMFunction(module, name, ["ptr", "ptr", "i64", "i64"])
        word = f.load(f.offset(f.params[0], 8), "ptr")
        f.store(f.call("helper", [f.load(word, "i64")], "i64"), word)
        f.ret()
        return module.text()

    return Kernel(name, text)


def run(*kinds: Kernel) -> int:
    word = np.zeros(1, np.int64)
    load_program([Phase(kind, (), 1, 0.0) for kind in kinds], 2)(word.ctypes.data)
    return int(word[0])


def clear_kernel_table() -> None:
    """Simulate a new process."""
    kernel_table._kernel_addresses.clear()


def test_a_kernel_is_compiled_once() -> None:
    written_texts: list[str] = []
    assert (
        run(
            add_kernel("a", 1, written_texts),
            add_kernel("a", 1, written_texts),
            add_kernel("b", 10, written_texts),
        )
        == 12
    )
    assert run(add_kernel("b", 10, written_texts), add_kernel("a", 1, written_texts)) == 11
    assert written_texts == ["a", "b"]


def test_internal_functions_of_equal_names_do_not_conflict() -> None:
    assert run(*(add_kernel(f"k{n}", 10**n, []) for n in range(5))) == 11111


def test_text_is_generated_only_without_cached_code() -> None:
    written_texts: list[str] = []
    one, two, three = (add_kernel(f"k{n}", 10**n, written_texts) for n in range(3))
    assert run(one, two) == 11
    clear_kernel_table()
    assert run(two) == 10
    assert run(two, three) == 110
    assert written_texts == ["k0", "k1", "k2"]


def test_cached_modules_with_a_common_kernel_can_both_be_loaded() -> None:
    written_texts: list[str] = []
    one, two, three, four = (add_kernel(f"k{n}", 10**n, written_texts) for n in range(4))
    assert run(one, two) == 11
    clear_kernel_table()
    for file in Path(str(object_cache.cache_folder())).glob("*.o"):
        if file.name == f"{cache_key(host_machine(), 'kernel', 'k1')}.o":
            file.unlink()
    assert run(two, three, four) == 1110
    clear_kernel_table()
    assert run(one, two, three, four) == 1111
    assert written_texts == ["k0", "k1", "k1", "k2", "k3"]


@pytest.mark.parametrize("kind", ["kernel", "group"])
def test_cached_code_of_another_kernel_is_rejected(kind: str) -> None:
    written_texts: list[str] = []
    assert run(add_kernel("a", 1, written_texts)) == 1
    clear_kernel_table()
    assert run(add_kernel("b", 10, written_texts)) == 10
    clear_kernel_table()
    folder = Path(str(object_cache.cache_folder()))
    (folder / f"{cache_key(host_machine(), kind, 'a')}.o").write_bytes(
        (folder / f"{cache_key(host_machine(), kind, 'b')}.o").read_bytes()
    )
    assert run(add_kernel("a", 1, written_texts)) == 1
    assert written_texts == ["a", "b", "a"]


@pytest.mark.parametrize(
    "entry", [b"{", b"3", b"{}", b'{"names": ["b"], "group": "", "imports": []}']
)
def test_invalid_cache_entries_are_removed(entry: bytes) -> None:
    written_texts: list[str] = []
    object_cache.save(cache_key(host_machine(), "kernel", "a"), entry)
    assert (
        kernel_table._load_from_disk([add_kernel("a", 1, written_texts)], host_machine())[0].name
        == "a"
    )
    assert not object_cache.contains(cache_key(host_machine(), "kernel", "a"))


def test_the_cache_key_depends_on_the_files_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    written_texts: list[str] = []
    assert run(add_kernel("a", 1, written_texts)) == 1
    clear_kernel_table()
    monkeypatch.setattr(cache_keys, "fingerprint", lambda: "other files")
    assert run(add_kernel("a", 1, written_texts)) == 1
    assert written_texts == ["a", "a"]


@pytest.mark.parametrize("from_text", [True, False])
def test_imported_symbols_come_from_the_library(
    monkeypatch: pytest.MonkeyPatch, from_text: bool
) -> None:
    requested_names: list[str] = []
    labs = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value or 0

    def size(machine: HostDescription) -> str:
        module = LLVMModule(machine)
        f = LLVMFunction(module, "the_size", ["i64"], "i64")
        (number,) = f.params
        f.ret(f.select(number.is_("slt", 0), f.value(0, "i64") - number, number))
        return module.text()

    def function_text(name: str, machine: HostDescription) -> str | None:
        requested_names.append(name)
        return size(machine) if from_text and name == "the_size" else None

    def addresses(machine: HostDescription, names: list[str]) -> dict[str, int]:
        return {name: labs for name in names if name == "the_size" and not from_text}

    library = SimpleNamespace(function_text=function_text, function_addresses=addresses)
    monkeypatch.setattr(imported_symbols, "_math_library", lambda: library)
    monkeypatch.setattr(imported_symbols, "_symbol_addresses", {})

    def text(machine: HostDescription) -> str:
        module = LLVMModule(machine)
        module.declare("the_size", "i64", ["i64"])
        f = LLVMFunction(module, "sized", ["ptr", "ptr", "i64", "i64"])
        word = f.load(f.offset(f.params[0], 8), "ptr")
        f.store(f.call("the_size", [f.load(word, "i64") - 7], "i64"), word)
        f.ret()
        return module.text()

    assert run(Kernel("sized", text, ("the_size",))) == 7
    assert requested_names == ["the_size"]
    with pytest.raises(
        KeyError, match="no library of the CPU backend provides nothing_like_it, nor_this"
    ):
        imported_symbols.symbol_addresses(
            ["the_size", "nothing_like_it", "nor_this"], host_machine()
        )
    assert imported_symbols.symbol_addresses([], host_machine()) == {}


def test_invalid_module_text_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="expected top-level entity"):
        run(Kernel("wrong", lambda machine: "nonsense"))
    assert run(make_kernel("right", lambda *_: None)) == 0


def test_large_texts_are_divided_between_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 3)
    group_sizes: list[list[int]] = []
    emit = emission.emit

    def record_groups(groups: Sequence[Sequence[str]], machine: HostDescription) -> list[bytes]:
        group_sizes.append(list(map(len, groups)))
        return emit(groups, machine)

    monkeypatch.setattr(kernel_table, "emit", record_groups)
    assert run(*(add_kernel(f"k{n}", 10**n, []) for n in range(7))) == 1_111_111
    assert [sorted(each) for each in group_sizes] == [[2, 2, 3]]
    clear_kernel_table()
    assert run(*(add_kernel(f"k{n}", 10**n, []) for n in range(7))) == 1_111_111
    assert len(group_sizes) == 1


def test_a_module_has_a_maximum_number_of_kernels() -> None:
    written = [
        (add_kernel(f"k{n}", n, []), "text") for n in range(2 * kernel_table.MAX_KERNELS_PER_MODULE)
    ]
    assert [len(share) for share in kernel_table._split_into_modules(written, 8)] == [
        kernel_table.MAX_KERNELS_PER_MODULE
    ] * 2


def test_kernels_compile_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 2)
    written_texts: list[str] = []
    started = [add_kernel("a", 1, written_texts), add_kernel("b", 10, written_texts)]
    for each in started:
        kernel_table.start_compiling(each, host_machine())
    kernel_table.start_compiling(add_kernel("a", 1, written_texts), host_machine())
    assert written_texts == ["a", "b"]
    assert (host_machine(), "a") in kernel_table._running_compilations
    assert run(*started, add_kernel("c", 100, written_texts)) == 111
    assert written_texts == ["a", "b", "c"]
    assert (kernel_table._running_compilations, kernel_table._pending_texts) == ({}, {})
    kernel_table.start_compiling(started[0], host_machine())
    clear_kernel_table()
    assert run(*started) == 11
    assert written_texts == ["a", "b", "c"]


def test_a_single_core_does_not_compile_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 1)
    written_texts: list[str] = []
    kernel_table.start_compiling(add_kernel("a", 1, written_texts), host_machine())
    assert written_texts == []


def test_cached_kernels_are_not_compiled_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 2)
    written_texts: list[str] = []
    assert run(add_kernel("a", 1, written_texts)) == 1
    clear_kernel_table()
    kernel_table.start_compiling(add_kernel("a", 1, written_texts), host_machine())
    assert written_texts == ["a"]


@pytest.mark.parametrize(("cores", "is_compiled"), [(2, True), (1, False)])
def test_a_kernel_compiled_ahead_is_saved(
    monkeypatch: pytest.MonkeyPatch, cores: int, is_compiled: bool
) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: cores)
    written_texts: list[str] = []
    kernel_table.compile_ahead(add_kernel("a", 1, written_texts), host_machine())
    assert object_cache.contains(cache_key(host_machine(), "kernel", "a")) == is_compiled
    assert ((host_machine(), "a") in kernel_table._kernel_addresses) == is_compiled
    written_texts.clear()
    assert run(add_kernel("a", 1, written_texts)) == 1
    assert written_texts == ["a"] * (not is_compiled)


def test_no_kernel_is_compiled_ahead_while_a_program_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernels of the program need the free core."""
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 3)
    kernel_table.start_compiling(add_kernel("pending", 1, []), host_machine())
    kernel_table.compile_ahead(add_kernel("a", 10, []), host_machine())
    assert [name for _, name in kernel_table._pending_texts] == ["pending"]
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    kernel_table.start_compiling(add_kernel("running", 100, []), host_machine())
    monkeypatch.setattr(kernel_table, "count_running_compilations", lambda: 1)
    kernel_table.compile_ahead(add_kernel("a", 10, []), host_machine())
    assert [name for _, name in kernel_table._running_compilations] == ["pending", "running"]
    assert run(add_kernel("pending", 1, []), add_kernel("running", 100, [])) == 101


def test_an_error_of_background_compilation_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 2)
    with pytest.raises(RuntimeError, match="expected"):
        kernel_table.start_compiling(Kernel("bad", lambda machine: "no module"), host_machine())
    assert run(add_kernel("a", 1, [])) == 1


def test_an_error_of_a_compilation_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 2)
    with pytest.raises(RuntimeError, match="expected top-level entity"):
        run(Kernel("wrong", lambda machine: "nonsense"), add_kernel("a", 1, []))
    assert run(add_kernel("a", 1, [])) == 1


def test_library_functions_are_loaded_from_the_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported_symbols, "_symbol_addresses", {})
    monkeypatch.setattr(library, "_function_addresses", {})
    found = imported_symbols.symbol_addresses(
        ["shardir_exp_f32", "shardir_log_f32"], host_machine()
    )
    nothing = SimpleNamespace(function_addresses=lambda machine, names: {})
    monkeypatch.setattr(imported_symbols, "_math_library", lambda: nothing)
    again = imported_symbols.symbol_addresses(
        ["shardir_log_f32", "shardir_exp_f32"], host_machine()
    )
    assert again.keys() == found.keys()
    assert imported_symbols.symbol_addresses(["shardir_exp_f32"], host_machine()) == {
        "shardir_exp_f32": again["shardir_exp_f32"]
    }
    with pytest.raises(KeyError, match="no library of the CPU backend provides shardir_sin_f32"):
        imported_symbols.symbol_addresses(["shardir_exp_f32", "shardir_sin_f32"], host_machine())
