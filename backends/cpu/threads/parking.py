"""LLVM text for waiting until a word of memory changes, for pausing, and for reading the clock.

`park(control, address, expected)` sleeps while the 32-bit word has the expected value, and may wake
spuriously; `unpark(control, address, count)` is called after the word changed, and wakes up to
`count` threads. Linux provides both as system calls (futex). Elsewhere one mutex and one condition
variable serve all words: `park` compares the word while it holds the mutex, and `unpark` acquires
the mutex between the change and the signal, so that no wakeup is lost.
"""

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue, Operand
from shardir.backends.cpu.codegen.target import architecture, system_name
from shardir.backends.cpu.threads.shared_memory_layout import CONDITION, MUTEX

FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98}
FUTEX_WAIT, FUTEX_WAKE = 128, 129
"""Both private to the process."""
MONOTONIC_CLOCK_ID = {"linux": 1, "darwin": 8}
"""The clock that `time.monotonic_ns` reads."""
_WORD_BYTES = {"i8": 1, "i32": 4}
"""Bytes of the word types; 8 for others."""


def sleep_method(triple: str) -> str:
    """Return how threads sleep on a system: `futex` or `condition`."""
    return "futex" if system_name(triple) == "linux" else "condition"


def libc_symbols(how: str) -> tuple[str, ...]:
    """Return the C library functions that the text calls."""
    sleep = {
        "futex": ("syscall",),
        "condition": (
            "pthread_mutex_lock",
            "pthread_mutex_unlock",
            "pthread_cond_wait",
            "pthread_cond_broadcast",
        ),
    }
    return ("clock_gettime", "sched_yield", "usleep", *sleep[how])


def define_parking(module: LLVMModule, triple: str, how: str) -> None:
    """Define `park`, `unpark` and `now` in a module."""
    _define_now(module, triple)
    if how == "futex":
        _define_futex(module, FUTEX_SYSCALL[architecture(triple)])
    else:
        _define_condition(module)


def emit_pause(f: LLVMFunction, triple: str) -> None:
    """Emit a spin-wait hint."""
    if architecture(triple) == "x86_64":
        f.module.declare("llvm.x86.sse2.pause", "void", [])
        f.call("llvm.x86.sse2.pause", [])
    else:
        f.module.declare("llvm.aarch64.hint", "void", ["i32"])
        f.call("llvm.aarch64.hint", [f.value(1, "i32")])


def emit_yield(f: LLVMFunction) -> None:
    """Emit a yield of the core to another thread."""
    f.module.declare("sched_yield", "i32", [])
    f.call("sched_yield", [], "i32")


def emit_sleep(f: LLVMFunction, microseconds: int) -> None:
    """Emit a sleep of at least `microseconds`."""
    f.module.declare("usleep", "i32", ["i32"])
    f.call("usleep", [f.value(microseconds, "i32")], "i32")


def atomic_load(
    f: LLVMFunction, address: LLVMValue, type: str, order: str = "acquire"
) -> LLVMValue:
    """Emit an atomic load of a word that other threads write."""
    size = _WORD_BYTES.get(type, 8)
    return f.emit(f"load atomic {type}, ptr {address} {order}, align {size}", type)


def atomic_store(
    f: LLVMFunction, value: Operand, address: LLVMValue, type: str, order: str = "seq_cst"
) -> None:
    """Emit an atomic store of a word that other threads read."""
    size = _WORD_BYTES.get(type, 8)
    given = f.value(value, type)
    f.do(f"store atomic {type} {given}, ptr {address} {order}, align {size}")


def _define_now(module: LLVMModule, triple: str) -> None:
    f = LLVMFunction(module, "now", [], "i64", "nounwind", internal=True)
    module.declare("clock_gettime", "i32", ["i32", "ptr"])
    time = f.variable("{ i64, i64 }")
    clock = f.value(MONOTONIC_CLOCK_ID[system_name(triple)], "i32")
    f.call("clock_gettime", [clock, time.address], "i32")
    seconds = f.load(time.address, "i64")
    f.ret(seconds * 1_000_000_000 + f.load(f.offset(time.address, 8), "i64"))


def _define_futex(module: LLVMModule, number: int) -> None:
    module.declare("syscall", "i64", ["i64", "..."])
    f = LLVMFunction(module, "park", ["ptr", "ptr", "i32"], "void", "nounwind", internal=True)
    _, address, expected = f.params
    args = f"i64 {number}, ptr {address}, i32 {FUTEX_WAIT}, i32 {expected}, ptr null"
    f.emit(f"call i64 (i64, ...) @syscall({args})", "i64")
    f.ret()
    f = LLVMFunction(module, "unpark", ["ptr", "ptr", "i32"], "void", "nounwind", internal=True)
    _, address, count = f.params
    args = f"i64 {number}, ptr {address}, i32 {FUTEX_WAKE}, i32 {count}"
    f.emit(f"call i64 (i64, ...) @syscall({args})", "i64")
    f.ret()


def _define_condition(module: LLVMModule) -> None:
    for name in ("mutex_lock", "mutex_unlock", "cond_broadcast"):
        module.declare(f"pthread_{name}", "i32", ["ptr"])
    module.declare("pthread_cond_wait", "i32", ["ptr", "ptr"])
    f = LLVMFunction(module, "park", ["ptr", "ptr", "i32"], "void", "nounwind", internal=True)
    control, address, expected = f.params
    mutex, condition = f.offset(control, MUTEX), f.offset(control, CONDITION)
    f.call("pthread_mutex_lock", [mutex], "i32")
    with f.when(atomic_load(f, address, "i32", "seq_cst").is_("eq", expected)):
        f.call("pthread_cond_wait", [condition, mutex], "i32")
    f.call("pthread_mutex_unlock", [mutex], "i32")
    f.ret()
    f = LLVMFunction(module, "unpark", ["ptr", "ptr", "i32"], "void", "nounwind", internal=True)
    control = f.params[0]
    mutex, condition = f.offset(control, MUTEX), f.offset(control, CONDITION)
    f.call("pthread_mutex_lock", [mutex], "i32")
    f.call("pthread_cond_broadcast", [condition], "i32")
    f.call("pthread_mutex_unlock", [mutex], "i32")
    f.ret()
