"""Compile the texts of modules to object code, on several threads.

Kernels are vectorized by their rules, so that a few cleanup passes are enough: the loop vectorizer
would find nothing to do. Loops are not rotated either: code generation lays them out with one jump
for each iteration, and compiling takes a quarter less time.

llvmlite admits one thread at a time into LLVM, which is needed if threads share a context. Here
each module has a context of its own, and so the two functions that take nearly all of the time are
called without llvmlite's lock.
"""

import ctypes
from collections.abc import Sequence
from functools import partial
from threading import Event, Thread
from typing import Any

import llvmlite.binding as binding
from llvmlite.binding import ffi

from shardir.backends.cpu.codegen.llvm_threads import (
    block_forks,
    run_on_llvm_threads,
    try_start_thread,
)
from shardir.backends.cpu.codegen.target import HostDescription
from shardir.backends.cpu.errors import OutOfMemoryError
from shardir.backends.cpu.threads.address_space import MAX_COMPILE_BYTES, is_too_little_for
from shardir.display.byte_sizes import show_bytes


def make_target_machine(machine: HostDescription, level: int = 1) -> binding.TargetMachine:
    """Return LLVM's target machine for a host at an optimization level.

    Level 2 takes a sixth more time than level 1, and its kernels run as long. Level 0 takes a third
    of the time.
    """
    # The small code model reaches distant symbols through the global offset table, and constants
    # relative to the instruction. With the large one, each address of a constant would need a
    # register: LLVM took 7 % longer, and loops of reductions loaded constants in each iteration
    # (softmax of f32 with AVX-512 took 9 % longer on one core of a Zen 4).
    return binding.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=level, jit=True,
        reloc="pic", codemodel="small",
    )  # fmt: skip


_open_contexts: dict[int, binding.ContextRef] = {}
"""The contexts of open modules by identity: comparing them would run Python code, during which
other threads may change the dictionary. If an error abandons a module, the garbage collector closes
it, and would close its context in any order, which the module still needs."""


class CompilationUnit:
    """Several linked modules, and the passes that clean them up, in a context of their own.

    Raises `RuntimeError` with LLVM's message if a text is not a valid module, or if two texts
    define the same symbol.
    """

    def __init__(self, texts: Sequence[str], machine: HostDescription) -> None:
        if is_too_little_for(MAX_COMPILE_BYTES):  # LLVM would end the process.
            raise OutOfMemoryError(
                f"compiling a program may take {show_bytes(MAX_COMPILE_BYTES)} of address space, "
                "but less is left; allow this process more address space (ulimit -v)"
            )
        self._machine, self._target = machine, make_target_machine(machine)
        self._context = binding.create_context()
        _open_contexts[id(self._context)] = self._context
        self._module = self._parse(texts[0])
        for text in texts[1:]:
            self._module.link_in(self._parse(text))
        options = binding.create_pipeline_tuning_options(speed_level=2)
        self._passes = binding.create_new_module_pass_manager()
        self._passes.add_always_inliner_pass()
        self._passes.add_sroa_pass()
        self._passes.add_instruction_combine_pass()
        self._passes.add_simplify_cfg_pass()
        self._builder = binding.create_pass_builder(self._target, options)

    def code(self) -> bytes:
        """Return the object code; call this once. Internal functions stay internal."""
        try:
            _RUN_PASSES(self._passes, self._module, self._builder)
            with ffi.OutputString() as words:
                buffer = _EMIT_OBJECT(self._target, self._module, 1, words)
                if not buffer:
                    raise RuntimeError(str(words))
            try:
                start, size = ffi.lib.LLVMPY_GetBufferStart, ffi.lib.LLVMPY_GetBufferSize
                return ctypes.string_at(start(buffer), size(buffer))
            finally:
                ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
        finally:
            self._module.close()
            del _open_contexts[id(self._context)]

    def _parse(self, text: str) -> binding.ModuleRef:
        module = binding.parse_assembly(text, self._context)
        module.triple = self._machine.triple
        module.data_layout = str(self._target.target_data)
        return module


class BackgroundCompilation:
    """Object code that a thread compiles while the caller goes on.

    The constructor waits until the texts are parsed: parsing takes many short calls, and after each
    of them the thread would wait for the interpreter lock. Raises as `CompilationUnit` does.
    """

    def __init__(self, texts: Sequence[str], machine: HostDescription) -> None:
        self._code = b""
        self._error: BaseException | None = None
        self._read = Event()
        self._thread = Thread(target=self._make, args=(texts, machine), name="shardir-compile")
        if not try_start_thread(self._thread):
            self._make(texts, machine)
        self._read.wait()
        if self._error is not None:
            raise self._error

    @property
    def has_ended(self) -> bool:
        """Return whether `code` would return without waiting."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until the compilation has ended, with or without an error."""
        if self._thread.ident is not None:
            self._thread.join()

    def code(self) -> bytes:
        """Return the object code; raise `RuntimeError` with LLVM's message if compilation
        failed."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._code

    def _make(self, texts: Sequence[str], machine: HostDescription) -> None:
        with block_forks():
            try:
                prepared = CompilationUnit(texts, machine)
                self._read.set()
                self._code = prepared.code()
            except BaseException as error:  # Raised again by the constructor or by `code`.
                self._error = error
            finally:
                self._read.set()


def emit(groups: Sequence[Sequence[str]], machine: HostDescription) -> list[bytes]:
    """Compile each group of modules, concurrently; raise as `CompilationUnit` does."""
    return run_on_llvm_threads([partial(_emit_group, group, machine) for group in groups])


def _emit_group(texts: Sequence[str], machine: HostDescription) -> bytes:
    return CompilationUnit(texts, machine).code()


def _without_llvmlite_lock(name: str) -> Any:
    """Return a function of llvmlite's library without the lock around it."""
    known = getattr(ffi.lib, name)
    function = getattr(ctypes.CDLL(ffi.lib._name), name)
    function.argtypes, function.restype = known.argtypes, known.restype
    return function


_RUN_PASSES = _without_llvmlite_lock("LLVMPY_RunNewModulePassManager")
_EMIT_OBJECT = _without_llvmlite_lock("LLVMPY_TargetMachineEmitToMemory")
