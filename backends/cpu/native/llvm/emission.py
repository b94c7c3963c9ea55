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
from threading import Thread
from typing import Any

import llvmlite.binding as binding
from llvmlite.binding import ffi

from shardir.backends.cpu.native.llvm.target import Machine, host


def target_of(machine: Machine) -> Any:
    """What LLVM knows of a machine and how to emit code for it."""
    return binding.Target.from_triple(machine.triple).create_target_machine(
        cpu=machine.cpu, features=machine.features, opt=2, jit=True
    )


def emitted(texts: Sequence[str]) -> bytes:
    """The object code of several modules as one; functions that are internal to one stay so.

    Raises `RuntimeError` with LLVM's words when a text is no module or two define the same.
    """
    target = target_of(host())
    module = _optimised(texts, target)
    try:
        with ffi.OutputString() as words:
            buffer = _EMIT(target, module, 1, words)
            if not buffer:
                raise RuntimeError(str(words))
        try:
            start, size = ffi.lib.LLVMPY_GetBufferStart, ffi.lib.LLVMPY_GetBufferSize
            return ctypes.string_at(start(buffer), size(buffer))
        finally:
            ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)
    finally:
        module.close()


def emitted_together(groups: Sequence[Sequence[str]]) -> list[bytes]:
    """`emitted` of each group, at the same time; the caller is one of the threads."""
    made: list[bytes | None] = [None] * len(groups)
    errors: list[BaseException] = []

    def make(number: int) -> None:
        try:
            made[number] = emitted(groups[number])
        except BaseException as error:  # Raised again where it is wanted.
            errors.append(error)

    threads = [Thread(target=make, args=(number,)) for number in range(1, len(groups))]
    started = []
    for number, thread in enumerate(threads, 1):
        try:
            thread.start()
            started.append(thread)
        except RuntimeError:  # No thread can be had.
            make(number)
    if groups:
        make(0)
    for thread in started:
        thread.join()
    if errors:
        raise errors[0]
    return [each for each in made if each is not None]


def assembly(text: str) -> str:
    """The machine code of a module as text, for people."""
    target = target_of(host())
    return str(target.emit_assembly(_optimised([text], target)))


def _optimised(texts: Sequence[str], target: Any) -> Any:
    """The modules as one, cleaned up, in a context that nobody else has."""
    context = binding.create_context()
    module = _parsed(texts[0], context, target)
    for text in texts[1:]:
        module.link_in(_parsed(text, context, target))
    options = binding.create_pipeline_tuning_options(speed_level=2)
    passes = binding.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    _RUN(passes, module, binding.create_pass_builder(target, options))
    return module


def _parsed(text: str, context: Any, target: Any) -> Any:
    module = binding.parse_assembly(text, context)
    module.triple = host().triple
    module.data_layout = str(target.target_data)
    return module


def _unlocked(name: str) -> Any:
    """A function of llvmlite's library that many threads may be in."""
    known = getattr(ffi.lib, name)
    function = getattr(ctypes.CDLL(ffi.lib._name), name)
    function.argtypes, function.restype = known.argtypes, known.restype
    return function


_RUN = _unlocked("LLVMPY_RunNewModulePassManager")
_EMIT = _unlocked("LLVMPY_TargetMachineEmitToMemory")
