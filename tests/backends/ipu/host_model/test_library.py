"""The library of compiled programs: each program is compiled once, by any available compiler."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest

from shardir.backends.cpu.codegen import object_cache
from shardir.backends.ipu.host_model import (
    Compiler,
    HostModelError,
    build,
    build_and_run,
    build_executable,
    compiler,
    find_compiler,
    include_folder,
    library,
    runner_files,
)
from tests.backends.ipu.host_model.compiled_programs import PROGRAMS

STRICT_FLAGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

NEGATION = """
#include "shardir_ipu_host.hpp"
#include <popops/ElementWise.hpp>
#include <popops/codelets.hpp>

shardir_ipu::Contract contract() {
  return {"negated", 1,
          {{"x", "x", poplar::INT, {3}, {3}, {{}}}}, {{"y", "y", poplar::INT, {3}, {3}, {{}}}}};
}

void build(shardir_ipu::Program& program) {
  popops::addCodelets(program.graph);
  const poplar::Tensor x = program.argument("x");
  program.result("y", popops::map(program.graph, -popops::expr::_1, {x}, program.step));
}

SHARDIR_IPU_ENTRY(contract, build)
"""


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a code cache that contains only the objects that all programs need."""
    objects = library._objects(find_compiler(), tmp_path)
    assert all(file.exists() for file in objects)
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "cache"))
    object_cache.cache_folder.cache_clear()
    yield tmp_path / "cache"
    object_cache.cache_folder.cache_clear()


def test_a_program_is_compiled_once(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    run = Compiler.run

    def record_compilation(self: Compiler, arguments: list[str | Path], what: str) -> None:
        compiled.append(what)
        run(self, arguments, what)

    monkeypatch.setattr(Compiler, "run", record_compilation)
    x = np.arange(3, dtype="i4")
    for _ in range(2):
        np.testing.assert_array_equal(build_and_run(NEGATION, [x])[0], -x)
    np.testing.assert_array_equal(build_and_run(NEGATION.replace("-popops", "~popops"), [x])[0], ~x)
    assert compiled == ["program", "program"]
    assert [file.suffix for file in sorted(fresh_cache.iterdir())] == [".o", ".o"]


def test_without_a_cache_folder_a_program_is_compiled_each_time(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDIR_CACHE_DIR", "")
    object_cache.cache_folder.cache_clear()
    x = np.arange(3, dtype="i4")
    np.testing.assert_array_equal(build_and_run(NEGATION, [x])[0], -x)
    assert not fresh_cache.exists()


def test_a_read_only_cache_folder_only_disables_caching(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_cache.mkdir(mode=0o700)
    lock = library._lock_file

    def raise_read_only(*_: object, **__: object) -> NoReturn:
        raise OSError(30, "Read-only file system")

    made: list[str] = []

    def lock_read_only(file: Path) -> int | None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", raise_read_only)
            return lock(file)

    def make(folder: Path) -> Path:
        made.append("made")
        (folder / "code").write_bytes(b"code")
        return folder / "code"

    monkeypatch.setattr(library, "_lock_file", lock_read_only)
    monkeypatch.setattr(tempfile, "mkstemp", raise_read_only)
    assert library._load_or_compile("key", make) == library._load_or_compile("key", make) == b"code"
    assert made == ["made"] * 2
    assert list(fresh_cache.iterdir()) == []


def test_a_compilation_error_names_the_line() -> None:
    with pytest.raises(HostModelError) as caught:
        build({"fine": NEGATION, "broken": NEGATION.replace("argument(", "arguments(")})
    first, *rest = str(caught.value).splitlines()
    assert first == f"{find_compiler().command[0]} cannot compile fine, broken:"
    assert any(line.startswith("broken.cpp:13:") for line in rest), rest


CONTRACT_ERRORS = {
    "the program takes 1 of 1 arguments and gives 0 of 1 results": (
        '  program.result("y"',
        '  if (false) program.result("y"',
    ),
    "the contract has no 'z'": ('argument("x")', 'argument("z")'),
    "'x' is taken or given twice": ('argument("x");', 'argument("x"); program.argument("x");'),
    "the result 'y' is INT (3,), the contract says INT (2,)": (
        "INT, {3}, {3}, {{}}}}};",
        "INT, {2}, {2}, {{}}}}};",
    ),
    "no 3 IPUs are free together; they are joined in powers of 2": (
        '"negated", 1,',
        '"negated", 3,',
    ),
}
"""The expected error for a program after a text replacement."""


def test_programs_that_violate_their_contract_are_rejected() -> None:
    programs = build(
        {message: NEGATION.replace(*change) for message, change in CONTRACT_ERRORS.items()}
    )
    for message, program in programs.items():
        with pytest.raises(HostModelError) as caught:
            program(*(np.zeros(port.whole, port.dtype) for port in program.arguments))
        assert str(caught.value) == message


def test_a_missing_compiler_is_an_error_with_a_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler --fast")
    with pytest.raises(HostModelError) as caught:
        find_compiler()
    assert str(caught.value) == (
        "there is no C++ compiler (tried no-such-compiler --fast); install g++, or pip install "
        "'shardir[ipu]'"
    )
    monkeypatch.delenv("CXX")
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    with pytest.raises(HostModelError) as caught:
        find_compiler()
    assert str(caught.value) == (
        "there is no C++ compiler (tried g++, clang++ and ziglang); install g++, or pip install "
        "'shardir[ipu]'"
    )


@pytest.mark.needs("ziglang")
def test_ziglang_is_the_last_compiler_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    assert compiler.list_compilers()[-1] == compiler.ZIG_COMMAND
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert compiler.list_compilers() == [compiler.ZIG_COMMAND]


def test_the_headers_have_no_warnings(tmp_path: Path) -> None:
    """The headers compile without warnings as header-only code, with all possible includes."""
    source = tmp_path / "all.cpp"
    source.write_text(
        '#include <shardir_host_model/declarations.hpp>\n#include "shardir_ipu_host.hpp"\n', "utf-8"
    )
    find_compiler().run([*library._flags(), *STRICT_FLAGS, "-fsyntax-only", source], "all")


def test_each_header_is_self_contained(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    headers = [
        file.relative_to(include_folder()).as_posix()
        for file in sorted(include_folder().rglob("*.hpp"))
        if file.parent.name != "shardir_host_model"
    ]
    if not request.config.getoption("--long"):
        headers = headers[:1]
    for header in headers:
        source = tmp_path / "one.cpp"
        source.write_text(f"#include <{header}>\n", "utf-8")
        find_compiler().run([*library._flags(), *STRICT_FLAGS, "-fsyntax-only", source], header)


def test_runner_files_are_the_expected_headers() -> None:
    assert list(runner_files()) == [
        "shardir_ipu_files.hpp",
        "shardir_ipu_host.hpp",
        "shardir_ipu_npy.hpp",
        "shardir_ipu_session.hpp",
    ]


def test_the_documented_build_command_works(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The documented command builds a program with the header-only model."""
    include_command = [sys.executable, "-m", "shardir.backends.ipu.host_model"]
    folder = subprocess.run(
        include_command, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert folder == str(include_folder())
    if not request.config.getoption("--long"):
        return
    for name, text in runner_files().items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "negated.cpp").write_text(NEGATION, "utf-8")
    build_command = [
        *find_compiler().command,
        "-std=c++17",
        "-I",
        folder,
        "negated.cpp",
        "-o",
        "negated",
    ]
    subprocess.run(build_command, cwd=tmp_path, check=True)
    for name in ("arguments", "results"):
        (tmp_path / name).mkdir()
    np.save(tmp_path / "arguments" / "x.npy", np.arange(3, dtype="i4"))
    subprocess.run([tmp_path / "negated"], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "results" / "y.npy"), [0, -1, -2])


@pytest.mark.needs("ziglang")
def test_ziglang_builds_programs(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    version = subprocess.run(
        [*compiler.ZIG_COMMAND, "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert "clang" in version
    if not request.config.getoption("--long"):
        return
    zig = Compiler(compiler.ZIG_COMMAND, version)
    x = np.arange(3, dtype="i4")
    (y,) = build({"negated": NEGATION}, compiler=zig)["negated"](x)
    np.testing.assert_array_equal(y, -x)
    parts = [(PROGRAMS / each).read_text("utf-8") for each in ("error_bench.hpp", "errors.cpp")]
    build_executable("".join(parts), tmp_path / "it", compiler=zig)
    done = subprocess.run([tmp_path / "it"], capture_output=True, text=True, check=True)
    assert "nothing is refused" not in done.stdout
