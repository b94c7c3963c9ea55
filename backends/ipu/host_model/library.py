"""Compile emitted programs to a shared library of this machine; cache libraries by content.

The functions of the model and of the runner are compiled once into two objects. Programs are
compiled against declarations only, several of them in one translation unit if requested, each in
its own namespace. Libraries and objects are stored in the folder of compiled code, with a cache key
of all text that they depend on.
"""

import ctypes
import fcntl
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import count
from pathlib import Path

import numpy.typing as npt

from shardir.backends.cpu.codegen import object_cache
from shardir.backends.ipu.host_model.compiler import (
    Compiler,
    all_headers,
    find_compiler,
    include_folder,
    runner_folder,
)
from shardir.backends.ipu.host_model.host_program import Array, HostProgram

MODEL_SOURCE = "#include <shardir_host_model/implementation.hpp>\n"
RUNNER_SOURCE = '#include "shardir_ipu_files.hpp"\n#include "shardir_ipu_session.hpp"\n'

SEPARATE_FLAGS = ("-DSHARDIR_HOST_MODEL_SEPARATE", "-DSHARDIR_IPU_SEPARATE")
"""Programs are compiled against declarations only; see shardir_host_model/configuration.hpp."""

COMPILED_OBJECTS = (
    ("model", MODEL_SOURCE, ("-O1",)),
    ("runner", RUNNER_SOURCE, ("-O1", *SEPARATE_FLAGS)),
)
"""Objects that are compiled once: name, source and flags."""

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"].*[>\"])[ \t]*$", re.MULTILINE)
_library_numbers = count()


def build(
    programs: Mapping[str, str], *, compiler: Compiler | None = None
) -> dict[str, HostProgram]:
    """Compile emitted programs, by name, into one library and load it.

    Raises `HostModelError` with the compiler's message if one does not compile.
    """
    chosen = compiler or find_compiler()
    source = translation_unit(programs)
    library = _load(_library(chosen, source, ", ".join(programs)))
    return {
        name: HostProgram(library, f"run_{number}", f"describe_{number}")
        for number, name in enumerate(programs)
    }


def build_and_run(
    text: str, arguments: Sequence[npt.ArrayLike], *, steps: int = 1, sharded: bool = False
) -> tuple[Array, ...]:
    """Return the results of an emitted program for arguments; see `HostProgram`."""
    return build({"program": text})["program"](*arguments, steps=steps, sharded=sharded)


def build_executable(text: str, path: Path, *, compiler: Compiler | None = None) -> None:
    """Compile one emitted program to an executable with the runner's command line."""
    chosen = compiler or find_compiler()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / f"{path.stem}.cpp"
        source.write_text(text, "utf-8")
        objects = _objects(chosen, Path(folder))
        chosen.run([*_flags(), "-O0", *SEPARATE_FLAGS, source, *objects, "-o", path], path.stem)


def translation_unit(programs: Mapping[str, str]) -> str:
    """Return one source of several programs: all their includes, then each in its own namespace."""
    includes = dict.fromkeys(name for text in programs.values() for name in _INCLUDE.findall(text))
    parts = ["#define SHARDIR_IPU_LIBRARY\n", *(f"#include {name}\n" for name in includes)]
    for number, (name, text) in enumerate(programs.items()):
        shown = name.replace("\\", "\\\\").replace('"', '\\"')
        parts += [
            f"#undef SHARDIR_IPU_RUN\n#define SHARDIR_IPU_RUN run_{number}\n",
            f"#undef SHARDIR_IPU_DESCRIBE\n#define SHARDIR_IPU_DESCRIBE describe_{number}\n",
            f"namespace program_{number} {{\n",
            f'#line 1 "{shown}.cpp"\n',
            _INCLUDE.sub("", text),
            f"\n}}  // namespace program_{number}\n",
        ]
    return "".join(parts)


def _flags() -> list[str | Path]:
    # Only the entry points are exported: libraries in one process must not share symbols.
    return ["-I", include_folder(), "-I", runner_folder(), "-fvisibility=hidden"]


def _library(compiler: Compiler, source: str, what: str) -> bytes:
    def make(folder: Path) -> Path:
        file, made = folder / "unit.cpp", folder / "unit.so"
        file.write_text(source, "utf-8")
        objects = _objects(compiler, folder)
        flags = [*_flags(), "-O0", "-fPIC", "-shared", "-s", *SEPARATE_FLAGS]
        compiler.run([*flags, file, *objects, "-o", made], what)
        return made

    return _load_or_compile(_cache_key(compiler, "library", source), make)


def _objects(compiler: Compiler, folder: Path) -> list[Path]:
    """Write the objects that are compiled once to a folder, and return their paths."""
    files = []
    for name, _, _ in COMPILED_OBJECTS:
        file = folder / f"{name}.o"
        file.write_bytes(_object(compiler, name))
        files.append(file)
    return files


@cache
def _object(compiler: Compiler, name: str) -> bytes:
    source, flags = next(
        (source, flags) for each, source, flags in COMPILED_OBJECTS if each == name
    )

    def make(folder: Path) -> Path:
        file, made = folder / f"{name}.cpp", folder / f"{name}.o"
        file.write_text(source, "utf-8")
        compiler.run([*_flags(), *flags, "-fPIC", "-c", file, "-o", made], f"the host {name}")
        return made

    return _load_or_compile(_cache_key(compiler, name, source), make)


def _load_or_compile(key: str, make: Callable[[Path], Path]) -> bytes:
    """Return the cached code of a key, or the code that `make` writes to a folder."""
    code = object_cache.load(key)
    if code is not None:
        return code
    with _hold_lock(key):
        # Another process may have compiled it meanwhile.
        code = object_cache.load(key)
        if code is None:
            with tempfile.TemporaryDirectory(prefix="shardir-ipu-") as folder:
                code = make(Path(folder)).read_bytes()
            object_cache.save(key, code)
    return code


@contextmanager
def _hold_lock(key: str) -> Iterator[None]:
    """Hold a lock on a key between processes, if the folder of code is writable.

    Without a lock several processes may compile the same code, which only costs time.
    """
    place = object_cache.cache_folder()
    file = place / f"{key}.part" if place is not None else None
    handle = _lock_file(file) if file is not None else None
    if file is None or handle is None:
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):
            file.unlink()
        os.close(handle)


def _lock_file(file: Path) -> int | None:
    """Open and lock a file, or return None if it cannot be written or locked."""
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        os.close(handle)
        return None
    return handle


def _cache_key(compiler: Compiler, kind: str, source: str) -> str:
    """Return the cache key of a source with this compiler and the current headers."""
    parts = (kind, *compiler.command, compiler.version, source, _headers(), repr(COMPILED_OBJECTS))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return f"ipu-{digest.hexdigest()}"


@cache
def _headers() -> str:
    return "".join(f"{file.name}\n{file.read_text('utf-8')}" for file in all_headers())


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder of this process, for the libraries that it loads."""
    return tempfile.TemporaryDirectory(prefix="shardir-ipu-")


def _load(code: bytes) -> ctypes.CDLL:
    file = Path(_scratch().name) / f"{next(_library_numbers)}.so"
    file.write_bytes(code)
    return ctypes.CDLL(str(file))
