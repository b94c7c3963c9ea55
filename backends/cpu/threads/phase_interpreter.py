"""The interpreter of phases, as LLVM text.

A program is a table of phases; `interpret` runs it from a given row on. A phase that is worth
sharing is *opened*: the caller writes it to the control memory, then stores its epoch and its
number of tasks in one word, `STATE`. A thread claims a task by a compare-and-swap that decrements
this word: success proves that the phase is still the one that the thread read, and it stays open
until the task is counted in `DONE`. The caller claims tasks like the workers, then waits for the
*tasks*, never for workers, so that a sleeping or preempted worker delays only the task that it
holds. Other phases run on the caller alone, without access to shared memory.

`docs/cpu_runtime.md` proves that this is free of races; a test explores every interleaving of it.
"""

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.threads import shared_memory_layout as at
from shardir.backends.cpu.threads.parking import (
    atomic_load,
    atomic_store,
    define_parking,
    emit_pause,
    emit_yield,
)

SPINS_PER_CLOCK_READ = 16
"""Spins on shared memory between two reads of the clock."""


def define_interpreter(module: LLVMModule, triple: str, how: str) -> None:
    """Define the interpreter in a module; `how` selects the way in which threads sleep."""
    define_parking(module, triple, how)
    _define_stamp(module)
    _define_record_task(module)
    _define_claim(module)
    _define_work(module, triple)
    _define_wake_all(module)
    _define_run_shared(module, triple)
    _define_interpret(module)
    _define_caller_slots(module)


def _define_stamp(module: LLVMModule) -> None:
    """Define `stamp(ring, entry, task, begin)`: record that a task ended now."""
    f = LLVMFunction(
        module, "stamp", ["ptr", "ptr", "i64", "i64"], "void", "nounwind", internal=True
    )
    ring, entry, task, begin = f.params
    count = f.load(ring, "i64")
    row = f.offset(ring, (count % at.RING_RECORDS + 1) * (8 * at.RING_FIELDS))
    f.store(entry, row)
    f.store(task, f.offset(row, 8))
    f.store(begin, f.offset(row, 16))
    f.store(f.call("now", [], "i64"), f.offset(row, 24))
    f.store(count + 1, ring)
    f.ret()


def _define_record_task(module: LLVMModule) -> None:
    """Define `recorded(control, bases, entry, task, worker, lane)`: run a task and record it."""
    params = ["ptr", "ptr", "ptr", "i64", "i64", "i64"]
    f = LLVMFunction(module, "recorded", params, "void", "nounwind noinline", internal=True)
    control, bases, entry, task, worker, lane = f.params
    begin = f.call("now", [], "i64")
    kernel = f.load(f.offset(entry, at.ENTRY_KERNEL), "ptr")
    record = f.load(f.offset(entry, at.ENTRY_RECORD), "ptr")
    f.call(kernel.text, [bases, record, task, worker])
    rings = atomic_load(f, f.offset(control, at.RINGS), "ptr")
    with f.when(rings.is_("ne", 0)):
        f.call("stamp", [f.offset(rings, lane * at.RING_BYTES), entry, task, begin])
    f.ret()


def _define_claim(module: LLVMModule) -> None:
    """Define `claim(control, epoch, worker)`: run tasks of an epoch until none are left."""
    f = LLVMFunction(module, "claim", ["ptr", "i64", "i64"], "void", "nounwind", internal=True)
    control, epoch, worker = f.params
    state = f.offset(control, at.STATE)
    count = f.variable("i64", 0)
    going = f.variable("i1", 1)
    with f.while_(going.get):
        observed = atomic_load(f, state, "i64")
        left = observed & 0xFFFFFFFF
        there = (observed >> 32).is_("eq", epoch) & left.is_("ne", 0)

        def take(observed: LLVMValue = observed, left: LLVMValue = left) -> None:
            swap = f"cmpxchg ptr {state}, i64 {observed}, i64 {observed - 1} acq_rel monotonic"
            both = f.emit(swap, "{ i64, i1 }")
            with f.when(f.emit(f"extractvalue {{ i64, i1 }} {both}, 1", "i1")):
                bases = f.load(f.offset(control, at.JOB_BASES), "ptr")
                task = f.load(f.offset(control, at.JOB_END), "i64") - left
                rings = atomic_load(f, f.offset(control, at.RINGS), "ptr", "monotonic")

                def run() -> None:
                    kernel = f.load(f.offset(control, at.JOB_KERNEL), "ptr")
                    record = f.load(f.offset(control, at.JOB_RECORD), "ptr")
                    f.call(kernel.text, [bases, record, task, worker])

                def run_recorded() -> None:
                    entry = f.load(f.offset(control, at.JOB_ENTRY), "ptr")
                    f.call("recorded", [control, bases, entry, task, worker, worker])

                f.if_else(rings.is_("eq", 0), run, run_recorded)
                count.set(count.get() + 1)

        f.if_else(there, take, lambda: going.set(0))
    with f.when(count.get().is_("ne", 0)):
        done = f.offset(control, at.DONE)
        f.emit(f"atomicrmw add ptr {done}, i64 {count.get()} seq_cst", "i64")
        waiting = atomic_load(f, f.offset(control, at.WAITING), "i32", "seq_cst")
        with f.when(waiting.is_("ne", 0)):
            f.call("unpark", [control, done, f.value(1, "i32")])
    f.ret()


def _define_work(module: LLVMModule, triple: str) -> None:
    """Define `work(control, worker)`: the main loop of a worker thread."""
    f = LLVMFunction(module, "work", ["ptr", "i64"])
    control, worker = f.params
    state, sleepers = f.offset(control, at.STATE), f.offset(control, at.SLEEPERS)
    stop, spin = f.offset(control, at.STOP), f.offset(control, at.SPIN)
    since = f.variable("i64", f.call("now", [], "i64"))

    def going() -> LLVMValue:
        return atomic_load(f, stop, "i32").is_("eq", 0)

    def sleep() -> None:
        f.emit(f"atomicrmw add ptr {sleepers}, i32 1 seq_cst", "i32")
        observed = atomic_load(f, state, "i64", "seq_cst")
        with f.when((observed & 0xFFFFFFFF).is_("eq", 0) & going()):
            epoch = (observed >> 32).to("i32", "trunc")
            f.call("park", [control, f.offset(control, at.EPOCH), epoch])
        f.emit(f"atomicrmw sub ptr {sleepers}, i32 1 seq_cst", "i32")
        since.set(f.call("now", [], "i64"))

    looks = f.variable("i64", 0)

    def look() -> None:
        emit_pause(f, triple)
        looks.set(looks.get() + 1)
        with f.when((looks.get() % SPINS_PER_CLOCK_READ).is_("eq", 0)):
            idle = f.call("now", [], "i64") - since.get()
            with f.when(idle.is_("sgt", f.load(spin, "i64"))):
                sleep()

    with f.while_(going):
        observed = atomic_load(f, state, "i64")

        def run(observed: LLVMValue = observed) -> None:
            f.call("claim", [control, observed >> 32, worker])
            since.set(f.call("now", [], "i64"))

        f.if_else((observed & 0xFFFFFFFF).is_("ne", 0), run, look)
    f.ret()


def _define_wake_all(module: LLVMModule) -> None:
    """Define `rouse(control)`: wake all sleeping workers."""
    f = LLVMFunction(module, "rouse", ["ptr"])
    (control,) = f.params
    f.call("unpark", [control, f.offset(control, at.EPOCH), f.value(at.MAX_WORKERS, "i32")])
    f.ret()


def _define_run_shared(module: LLVMModule, triple: str) -> None:
    """Define `share(control, entry, bases)`: run a phase together with the workers."""
    f = LLVMFunction(module, "share", ["ptr", "ptr", "ptr"], "void", "nounwind", internal=True)
    control, entry, bases = f.params
    state, done = f.offset(control, at.STATE), f.offset(control, at.DONE)
    tasks = f.load(f.offset(entry, at.ENTRY_TASKS), "i64")
    first = f.load(f.offset(entry, at.ENTRY_FIRST), "i64")
    for field, job in ((at.ENTRY_KERNEL, at.JOB_KERNEL), (at.ENTRY_RECORD, at.JOB_RECORD)):
        f.store(f.load(f.offset(entry, field), "ptr"), f.offset(control, job))
    f.store(first + tasks, f.offset(control, at.JOB_END))
    f.store(bases, f.offset(control, at.JOB_BASES))
    f.store(entry, f.offset(control, at.JOB_ENTRY))
    atomic_store(f, 0, done, "i64", "monotonic")
    epoch = (atomic_load(f, state, "i64", "monotonic") >> 32) + 1 & 0xFFFFFFFF
    atomic_store(f, epoch << 32 | tasks, state, "i64")
    flags = f.load(f.offset(entry, at.ENTRY_FLAGS), "i64")
    sleepers = atomic_load(f, f.offset(control, at.SLEEPERS), "i32", "seq_cst")
    with f.when((flags & at.FLAG_WAKE).is_("ne", 0) & sleepers.is_("ne", 0)):
        others = (tasks - 1).to("i32", "trunc")
        f.call("unpark", [control, f.offset(control, at.EPOCH), others])
    f.call("claim", [control, epoch, f.value(0, "i64")])
    with f.when(atomic_load(f, done, "i64").is_("ult", tasks)):
        _emit_wait(f, control, tasks, triple)
    f.ret()


def _emit_wait(f: LLVMFunction, control: LLVMValue, tasks: LLVMValue, triple: str) -> None:
    """Wait until all tasks have ended: spin, then sleep."""
    done, waiting = f.offset(control, at.DONE), f.offset(control, at.WAITING)
    spin = f.load(f.offset(control, at.SPIN), "i64")
    since = f.call("now", [], "i64")
    looks = f.variable("i64", 0)
    with f.while_(lambda: atomic_load(f, done, "i64").is_("ult", tasks)):
        emit_pause(f, triple)
        looks.set(looks.get() + 1)
        with f.when((looks.get() % SPINS_PER_CLOCK_READ).is_("eq", 0)):
            idle = f.call("now", [], "i64") - since
            with f.when(idle.is_("sgt", spin)):
                atomic_store(f, 1, waiting, "i32")
                observed = atomic_load(f, done, "i64", "seq_cst")
                with f.when(observed.is_("ult", tasks)):
                    f.call("park", [control, done, observed.to("i32", "trunc")])
                atomic_store(f, 0, waiting, "i32")


def _define_interpret(module: LLVMModule) -> None:
    """Define `interpret(control, table, start, stop, bases, lane)`: run rows, return the next row.

    It stops early after a row with the `CHECK` flag. Lane 0 owns the workers.
    """
    params = ["ptr", "ptr", "i64", "i64", "ptr", "i64"]
    f = LLVMFunction(module, "interpret", params, "i64", "nounwind noinline")
    control, table, start, stop, bases, lane = f.params
    row = f.variable("i64", start)
    limit = f.variable("i64", stop)
    zero = f.value(0, "i64")
    with f.while_(lambda: row.get().is_("ult", limit.get())):
        entry = f.offset(table, row.get() * at.ENTRY_BYTES)
        flags = f.load(f.offset(entry, at.ENTRY_FLAGS), "i64")

        def alone(entry: LLVMValue = entry) -> None:
            kernel = f.load(f.offset(entry, at.ENTRY_KERNEL), "ptr")
            record = f.load(f.offset(entry, at.ENTRY_RECORD), "ptr")
            first = f.load(f.offset(entry, at.ENTRY_FIRST), "i64")
            end = first + f.load(f.offset(entry, at.ENTRY_TASKS), "i64")
            rings = atomic_load(f, f.offset(control, at.RINGS), "ptr", "monotonic")

            def run() -> None:
                with f.loop(first, end) as task:
                    f.call(kernel.text, [bases, record, task, zero])

            def run_recorded() -> None:
                with f.loop(first, end) as task:
                    f.call("recorded", [control, bases, entry, task, zero, lane])

            f.if_else(rings.is_("eq", 0), run, run_recorded)

        def run_shared(entry: LLVMValue = entry) -> None:
            f.call("share", [control, entry, bases])

        workers = f.load(f.offset(control, at.COUNT), "i64")
        fits = workers.is_("ule", f.load(f.offset(entry, at.ENTRY_MAX_WORKERS), "i64"))
        is_shared = (flags & at.FLAG_PARALLEL).is_("ne", 0) & lane.is_("eq", 0) & fits
        f.if_else(is_shared, run_shared, alone)
        row.set(row.get() + 1)
        with f.when((flags & at.FLAG_CHECK_SIGNALS).is_("ne", 0)):
            limit.set(row.get())
    f.ret(row.get())


def _define_caller_slots(module: LLVMModule) -> None:
    """Define `acquire(control, flags) -> bit` and `release(control, bit)` of caller slots.

    Bit 0 owns the workers; programs that use no workers take it last.
    """
    f = LLVMFunction(module, "acquire", ["ptr", "i64"], "i64", "nounwind")
    control, flags = f.params
    busy = f.offset(control, at.BUSY)
    all_slots = (1 << at.MAX_CALLERS) - 1
    fits = f.select((flags & at.FLAG_PARALLEL).is_("ne", 0), all_slots, all_slots - 1)
    fits = f.select((flags & at.FLAG_OWN_WORKERS).is_("ne", 0), 1, fits)
    mine = f.variable("i64", 0)
    with f.while_(lambda: mine.get().is_("eq", 0)):
        observed = atomic_load(f, busy, "i64")
        open_ = (observed ^ -1) & fits
        lowest = open_ & (f.value(0, "i64") - open_)

        def take(observed: LLVMValue = observed, lowest: LLVMValue = lowest) -> None:
            swap = f"cmpxchg ptr {busy}, i64 {observed}, i64 {observed | lowest} acq_rel monotonic"
            both = f.emit(swap, "{ i64, i1 }")
            with f.when(f.emit(f"extractvalue {{ i64, i1 }} {both}, 1", "i1")):
                mine.set(lowest)

        f.if_else(lowest.is_("ne", 0), take, lambda: emit_yield(f))
    f.ret(f.call(_cttz(module), [mine.get(), f.value(0, "i1")], "i64"))
    f = LLVMFunction(module, "release", ["ptr", "i64"], "void", "nounwind")
    control, bit = f.params
    mask = f.value(1, "i64") << bit ^ -1
    f.emit(f"atomicrmw and ptr {f.offset(control, at.BUSY)}, i64 {mask} release", "i64")
    f.ret()


def _cttz(module: LLVMModule) -> str:
    module.declare("llvm.cttz.i64", "i64", ["i64", "i1"])
    return "llvm.cttz.i64"
