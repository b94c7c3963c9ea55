"""From the texts of modules to object code, on several threads at once.

Kernels are written as vectors already, so that the few passes that clean up are enough: the loop
vectorizer would find nothing to do. Loops are not turned round either: code generation lays them
out so that a round has one jump, and needs a quarter less time where nothing was repeated before.

llvmlite lets one thread at a time into LLVM. That is needed where threads share a context; here
each module has one of its own, and so the two functions that take nearly all of the time are called
without llvmlite's lock.
"""

import ctypes
from collections.abc import Sequence
from functools import partial
from threading import Event, Thread
from typing import Any

import llvmlite.binding as binding
from llvmlite.binding import ffi

from shardir.backends.cpu.address_space import COMPILE_BYTES, is_too_little_for
from shardir.backends.cpu.native.llvm.target import Machine, architecture, host
from shardir.backends.cpu.native.llvm.threads import done_apart, inside, started
from shardir.backends.cpu.native.runtime.errors import OutOfMemoryError
from shardir.sizes import show_bytes


def target_of(machine: Machine, level: int = 1) -> Any:
    """What LLVM knows of a machine and how to emit code for it.

    One level higher takes a sixth more time, for kernels that run as long. Level 0 takes a third of
    the time.
    """
    # On ARM addresses take few bits: what may be far away is found through a table nearby.
    model = (
        {"reloc": "pic", "codemodel": "small"} if architecture(machine.triple) == "aarch64" else {}
    )
    return binding.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=level, jit=True, **model
    )


_contexts: dict[int, Any] = {}
"""Those of modules that are not closed yet, by their identity: to compare them takes steps of
Python, between which other threads add and remove some. Where an error ends the work on one, the
collector of garbage closes it, and would close the context, which the module needs for that, in any
order."""


class Prepared:
    """Several modules as one, and the passes that clean it up, in a context nobody else has.

    What is made in `haste` is made in a quarter of the time, and runs a tenth longer where it calls
    functions most of the time. Raises `RuntimeError` with LLVM's words when a text is no module or
    two define the same.
    """

    def __init__(self, texts: Sequence[str], haste: bool = False) -> None:
        if is_too_little_for(COMPILE_BYTES):  # LLVM would end the process.
            raise OutOfMemoryError(
                f"compiling a program may take {show_bytes(COMPILE_BYTES)} of address space, "
                "which are not left; allow this process more address space (ulimit -v)"
            )
        self._target = target_of(host(), 0 if haste else 1)
        self._context = binding.create_context()
        _contexts[id(self._context)] = self._context
        self._module = self._parsed(texts[0])
        for text in texts[1:]:
            self._module.link_in(self._parsed(text))
        options = binding.create_pipeline_tuning_options(speed_level=2)
        self._passes = binding.create_new_module_pass_manager()
        self._passes.add_always_inliner_pass()
        self._passes.add_sroa_pass()
        if not haste:
            self._passes.add_instruction_combine_pass()
            self._passes.add_simplify_cfg_pass()
        self._builder = binding.create_pass_builder(self._target, options)

    def code(self) -> bytes:
        """The object code, once; functions that are internal to one module stay so."""
        try:
            _RUN(self._passes, self._module, self._builder)
            with ffi.OutputString() as words:
                buffer = _EMIT(self._target, self._module, 1, words)
                if not buffer:
                    raise RuntimeError(str(words))
            try:
                start, size = ffi.lib.LLVMPY_GetBufferStart, ffi.lib.LLVMPY_GetBufferSize
                return ctypes.string_at(start(buffer), size(buffer))
            finally:
                ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
        finally:
            self._module.close()
            del _contexts[id(self._context)]

    def _parsed(self, text: str) -> Any:
        module = binding.parse_assembly(text, self._context)
        module.triple = host().triple
        module.data_layout = str(self._target.target_data)
        return module


class Ahead:
    """Object code that is made on a thread while who began it does something else.

    Who begins it waits until the texts are read: that is many short calls, and after each of them
    the thread would wait for the other to let go of Python. Raises as `Prepared` does.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._code = b""
        self._error: BaseException | None = None
        self._read = Event()
        self._thread = Thread(target=self._make, args=(texts,), name="shardir-compile")
        if not started(self._thread):
            self._make(texts)
        self._read.wait()
        if self._error is not None:
            raise self._error

    @property
    def ended(self) -> bool:
        """Whether `code` would not wait."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Return when it has ended, well or badly."""
        if self._thread.ident is not None:
            self._thread.join()

    def code(self) -> bytes:
        """The object code; raises `RuntimeError` with LLVM's words where there is none."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._code

    def _make(self, texts: Sequence[str]) -> None:
        with inside():
            try:
                prepared = Prepared(texts)
                self._read.set()
                self._code = prepared.code()
            except BaseException as error:  # Raised again where it is wanted.
                self._error = error
            finally:
                self._read.set()


def emit(groups: Sequence[Sequence[str]], haste: bool = False) -> list[bytes]:
    """The object code of each group of modules, at the same time; raises as `Prepared` does."""
    return done_apart([partial(_emitted, group, haste) for group in groups])


def _emitted(texts: Sequence[str], haste: bool) -> bytes:
    return Prepared(texts, haste).code()


def _unlocked(name: str) -> Any:
    """A function of llvmlite's library that many threads may be in."""
    known = getattr(ffi.lib, name)
    function = getattr(ctypes.CDLL(ffi.lib._name), name)
    function.argtypes, function.restype = known.argtypes, known.restype
    return function


_RUN = _unlocked("LLVMPY_RunNewModulePassManager")
_EMIT = _unlocked("LLVMPY_TargetMachineEmitToMemory")
