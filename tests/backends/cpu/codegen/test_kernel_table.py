"""Kernels by name: compiled once, together, kept on disk; and the libraries that they import."""

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
from shardir.backends.cpu.dispatch.program_table import load_program
from shardir.backends.cpu.kernel_api import Kernel, Phase
from shardir.backends.cpu.kernels.math import library
from tests.backends.cpu.sample_kernels import kernel


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No code on disk, no kernel known."""
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "code"))
    for known in ("_kernel_addresses", "_running_compilations", "_pending_texts"):
        monkeypatch.setattr(kernel_table, known, {})
    object_cache.cache_folder.cache_clear()
    yield
    object_cache.cache_folder.cache_clear()


def adding(name: str, number: int, made: list[str]) -> Kernel:
    """A kernel that adds a number to a word by an internal function; `made` lists the texts."""

    def text() -> str:
        made.append(name)
        module = LLVMModule()
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


def forget() -> None:
    """As in a new process."""
    kernel_table._kernel_addresses.clear()


def test_a_kernel_is_compiled_once() -> None:
    made: list[str] = []
    assert run(adding("a", 1, made), adding("a", 1, made), adding("b", 10, made)) == 12
    assert run(adding("b", 10, made), adding("a", 1, made)) == 11
    assert made == ["a", "b"]


def test_internal_functions_of_one_name_are_kept_apart() -> None:
    assert run(*(adding(f"k{n}", 10**n, []) for n in range(5))) == 11111


def test_text_is_made_only_when_there_is_no_code_on_disk() -> None:
    made: list[str] = []
    one, two, three = (adding(f"k{n}", 10**n, made) for n in range(3))
    assert run(one, two) == 11
    forget()
    assert run(two) == 10
    assert run(two, three) == 110
    assert made == ["k0", "k1", "k2"]


def test_modules_that_share_a_kernel_are_both_loaded() -> None:
    made: list[str] = []
    one, two, three, four = (adding(f"k{n}", 10**n, made) for n in range(4))
    assert run(one, two) == 11
    forget()
    for file in Path(str(object_cache.cache_folder())).glob("*.o"):
        if file.name == f"{cache_key('kernel', 'k1')}.o":
            file.unlink()
    assert run(two, three, four) == 1110
    forget()
    assert run(one, two, three, four) == 1111
    assert made == ["k0", "k1", "k1", "k2", "k3"]


@pytest.mark.parametrize("kind", ["kernel", "group"])
def test_code_of_another_kernel_is_not_run(kind: str) -> None:
    made: list[str] = []
    assert run(adding("a", 1, made)) == 1
    forget()
    assert run(adding("b", 10, made)) == 10
    forget()
    folder = Path(str(object_cache.cache_folder()))
    (folder / f"{cache_key(kind, 'a')}.o").write_bytes(
        (folder / f"{cache_key(kind, 'b')}.o").read_bytes()
    )
    assert run(adding("a", 1, made)) == 1
    assert made == ["a", "b", "a"]


@pytest.mark.parametrize(
    "entry", [b"{", b"3", b"{}", b'{"names": ["b"], "group": "", "imports": []}']
)
def test_an_entry_that_is_not_of_the_kernel_is_removed(entry: bytes) -> None:
    made: list[str] = []
    object_cache.save(cache_key("kernel", "a"), entry)
    assert kernel_table._load_from_disk([adding("a", 1, made)])[0].name == "a"
    assert not object_cache.contains(cache_key("kernel", "a"))


def test_the_key_changes_with_the_files_of_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    assert run(adding("a", 1, made)) == 1
    forget()
    monkeypatch.setattr(cache_keys, "fingerprint", lambda: "other files")
    assert run(adding("a", 1, made)) == 1
    assert made == ["a", "a"]


@pytest.mark.parametrize("ahead", [True, False])
def test_imports_come_from_the_library(monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    asked: list[str] = []
    labs = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value or 0

    def size() -> str:
        module = LLVMModule()
        f = LLVMFunction(module, "the_size", ["i64"], "i64")
        (number,) = f.params
        f.ret(f.select(number.is_("slt", 0), f.value(0, "i64") - number, number))
        return module.text()

    def of(name: str) -> str | None:
        asked.append(name)
        return size() if ahead and name == "the_size" else None

    def addresses(names: list[str]) -> dict[str, int]:
        return {name: labs for name in names if name == "the_size" and not ahead}

    library = SimpleNamespace(function_text=of, function_addresses=addresses)
    monkeypatch.setattr(imported_symbols, "_math_library", lambda: library)
    monkeypatch.setattr(imported_symbols, "_symbol_addresses", {})

    def text() -> str:
        module = LLVMModule()
        module.declare("the_size", "i64", ["i64"])
        f = LLVMFunction(module, "sized", ["ptr", "ptr", "i64", "i64"])
        word = f.load(f.offset(f.params[0], 8), "ptr")
        f.store(f.call("the_size", [f.load(word, "i64") - 7], "i64"), word)
        f.ret()
        return module.text()

    assert run(Kernel("sized", text, ("the_size",))) == 7
    assert asked == ["the_size"]
    with pytest.raises(
        KeyError, match="no library of the CPU backend provides nothing_like_it, nor_this"
    ):
        imported_symbols.symbol_addresses(["the_size", "nothing_like_it", "nor_this"])
    assert imported_symbols.symbol_addresses([]) == {}


def test_a_text_that_is_no_module_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="expected top-level entity"):
        run(Kernel("wrong", lambda: "nonsense"))
    assert run(kernel("right", lambda *_: None)) == 0


def test_much_text_is_shared_between_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 3)
    together: list[list[int]] = []
    emit = emission.emit

    def counted(groups: Sequence[Sequence[str]]) -> list[bytes]:
        together.append(list(map(len, groups)))
        return emit(groups)

    monkeypatch.setattr(kernel_table, "emit", counted)
    assert run(*(adding(f"k{n}", 10**n, []) for n in range(7))) == 1_111_111
    assert [sorted(each) for each in together] == [[2, 2, 3]]
    forget()
    assert run(*(adding(f"k{n}", 10**n, []) for n in range(7))) == 1_111_111
    assert len(together) == 1


def test_a_share_has_at_most_so_many_kernels() -> None:
    written = [
        (adding(f"k{n}", n, []), "text") for n in range(2 * kernel_table.MAX_KERNELS_PER_MODULE)
    ]
    assert [len(share) for share in kernel_table._split_into_modules(written, 8)] == [
        kernel_table.MAX_KERNELS_PER_MODULE
    ] * 2


def test_kernels_are_compiled_while_others_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 2)
    made: list[str] = []
    begun = [adding("a", 1, made), adding("b", 10, made)]
    for each in begun:
        kernel_table.start_compiling(each)
    kernel_table.start_compiling(adding("a", 1, made))
    assert made == ["a", "b"]
    assert "a" in kernel_table._running_compilations
    assert run(*begun, adding("c", 100, made)) == 111
    assert made == ["a", "b", "c"]
    assert (kernel_table._running_compilations, kernel_table._pending_texts) == ({}, {})
    kernel_table.start_compiling(begun[0])
    forget()
    assert run(*begun) == 11
    assert made == ["a", "b", "c"]


def test_one_core_compiles_nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 1)
    made: list[str] = []
    kernel_table.start_compiling(adding("a", 1, made))
    assert made == []


def test_what_is_on_disk_is_not_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 2)
    made: list[str] = []
    assert run(adding("a", 1, made)) == 1
    forget()
    kernel_table.start_compiling(adding("a", 1, made))
    assert made == ["a"]


def test_an_error_ahead_is_raised_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 2)
    with pytest.raises(RuntimeError, match="expected"):
        kernel_table.start_compiling(Kernel("bad", lambda: "no module"))
    assert run(adding("a", 1, [])) == 1


def test_an_error_in_another_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_table, "MIN_MODULE_CHARACTERS", 1)
    monkeypatch.setattr(kernel_table, "allowed_worker_count", lambda: 2)
    with pytest.raises(RuntimeError, match="expected top-level entity"):
        run(Kernel("wrong", lambda: "nonsense"), adding("a", 1, []))
    assert run(adding("a", 1, [])) == 1


def test_functions_of_libraries_are_loaded_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported_symbols, "_symbol_addresses", {})
    monkeypatch.setattr(library, "_function_addresses", {})
    found = imported_symbols.symbol_addresses(["shardir_exp_f32", "shardir_log_f32"])
    nothing = SimpleNamespace(function_addresses=lambda names: {})
    monkeypatch.setattr(imported_symbols, "_math_library", lambda: nothing)
    again = imported_symbols.symbol_addresses(["shardir_log_f32", "shardir_exp_f32"])
    assert again.keys() == found.keys()
    assert imported_symbols.symbol_addresses(["shardir_exp_f32"]) == {
        "shardir_exp_f32": again["shardir_exp_f32"]
    }
    with pytest.raises(KeyError, match="no library of the CPU backend provides shardir_sin_f32"):
        imported_symbols.symbol_addresses(["shardir_exp_f32", "shardir_sin_f32"])
