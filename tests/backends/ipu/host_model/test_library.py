"""Emitted programs are compiled once, with whatever compiler there is."""

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

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

NEGATED = """
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
    """A folder of compiled code with nothing in it but the objects that all programs need."""
    objects = library._objects(find_compiler(), tmp_path)
    assert all(file.exists() for file in objects)
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "cache"))
    object_cache.cache_folder.cache_clear()
    yield tmp_path / "cache"
    object_cache.cache_folder.cache_clear()


def test_a_program_is_compiled_once(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    run = Compiler.run

    def counted(self: Compiler, arguments: list[str | Path], what: str) -> None:
        compiled.append(what)
        run(self, arguments, what)

    monkeypatch.setattr(Compiler, "run", counted)
    x = np.arange(3, dtype="i4")
    for _ in range(2):
        np.testing.assert_array_equal(build_and_run(NEGATED, [x])[0], -x)
    np.testing.assert_array_equal(build_and_run(NEGATED.replace("-popops", "~popops"), [x])[0], ~x)
    assert compiled == ["program", "program"]
    assert [file.suffix for file in sorted(fresh_cache.iterdir())] == [".o", ".o"]


def test_without_a_folder_for_code_a_program_is_compiled_each_time(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHARDIR_CACHE_DIR", "")
    object_cache.cache_folder.cache_clear()
    x = np.arange(3, dtype="i4")
    np.testing.assert_array_equal(build_and_run(NEGATED, [x])[0], -x)
    assert not fresh_cache.exists()


def test_a_folder_for_code_that_cannot_be_written_costs_time_alone(
    fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh_cache.mkdir(mode=0o700)
    lock = library._lock_file

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(30, "Read-only file system")

    made: list[str] = []

    def locked(file: Path) -> int | None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refuse)
            return lock(file)

    def make(folder: Path) -> Path:
        made.append("made")
        (folder / "code").write_bytes(b"code")
        return folder / "code"

    monkeypatch.setattr(library, "_lock_file", locked)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert library._load_or_compile("key", make) == library._load_or_compile("key", make) == b"code"
    assert made == ["made"] * 2
    assert list(fresh_cache.iterdir()) == []


def test_a_program_that_does_not_compile_says_where() -> None:
    with pytest.raises(HostModelError) as caught:
        build({"fine": NEGATED, "broken": NEGATED.replace("argument(", "arguments(")})
    first, *rest = str(caught.value).splitlines()
    assert first == f"{find_compiler().command[0]} cannot compile fine, broken:"
    assert any(line.startswith("broken.cpp:13:") for line in rest), rest


BROKEN = {
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
"""What is said of the program with something replaced."""


def test_a_program_keeps_its_contract() -> None:
    programs = build({message: NEGATED.replace(*change) for message, change in BROKEN.items()})
    for message, program in programs.items():
        with pytest.raises(HostModelError) as caught:
            program(*(np.zeros(port.whole, port.dtype) for port in program.arguments))
        assert str(caught.value) == message


def test_without_a_compiler_the_message_says_what_to_install(
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
def test_the_compiler_of_the_package_ziglang_is_the_last_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    assert compiler.list_compilers()[-1] == compiler.ZIG_COMMAND
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert compiler.list_compilers() == [compiler.ZIG_COMMAND]


def test_the_headers_have_no_warnings(tmp_path: Path) -> None:
    """As they are, everything inline, with all that a program may include."""
    source = tmp_path / "all.cpp"
    source.write_text(
        '#include <shardir_host_model/declarations.hpp>\n#include "shardir_ipu_host.hpp"\n', "utf-8"
    )
    find_compiler().run([*library._flags(), *STRICT, "-fsyntax-only", source], "all")


def test_each_header_can_be_included_alone(request: pytest.FixtureRequest, tmp_path: Path) -> None:
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
        find_compiler().run([*library._flags(), *STRICT, "-fsyntax-only", source], header)


def test_the_headers_beside_a_program_are_those_of_the_runner() -> None:
    assert list(runner_files()) == [
        "shardir_ipu_files.hpp",
        "shardir_ipu_host.hpp",
        "shardir_ipu_npy.hpp",
        "shardir_ipu_session.hpp",
    ]


def test_a_program_is_built_by_hand_as_documented(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Header-only: the command of docs/ipu_host_model.md, a program beside its headers."""
    asked = [sys.executable, "-m", "shardir.backends.ipu.host_model"]
    folder = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    assert folder == str(include_folder())
    if not request.config.getoption("--long"):
        return
    for name, text in runner_files().items():
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "negated.cpp").write_text(NEGATED, "utf-8")
    built = [*find_compiler().command, "-std=c++17", "-I", folder, "negated.cpp", "-o", "negated"]
    subprocess.run(built, cwd=tmp_path, check=True)
    for name in ("arguments", "results"):
        (tmp_path / name).mkdir()
    np.save(tmp_path / "arguments" / "x.npy", np.arange(3, dtype="i4"))
    subprocess.run([tmp_path / "negated"], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "results" / "y.npy"), [0, -1, -2])


@pytest.mark.needs("ziglang")
def test_a_program_is_built_with_ziglang(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    version = subprocess.run(
        [*compiler.ZIG_COMMAND, "--version"], capture_output=True, text=True, check=True
    ).stdout
    assert "clang" in version
    if not request.config.getoption("--long"):
        return
    zig = Compiler(compiler.ZIG_COMMAND, version)
    x = np.arange(3, dtype="i4")
    (y,) = build({"negated": NEGATED}, compiler=zig)["negated"](x)
    np.testing.assert_array_equal(y, -x)
    parts = [(PROGRAMS / each).read_text("utf-8") for each in ("refusal_bench.hpp", "refusals.cpp")]
    build_executable("".join(parts), tmp_path / "it", compiler=zig)
    done = subprocess.run([tmp_path / "it"], capture_output=True, text=True, check=True)
    assert "nothing is refused" not in done.stdout
