"""The native call cache: repeated calls of a function run without Python code.

    cache = CallCache(code, facts, ...)          # what belongs to one function
    cache.install(callable)                      # from now on calls of `callable` come here first
    cache.insert(key, launch, ...)               # a call that a launch can run

A call is turned into a key (`key_builder`), looked up among the inserted ones, and invoked
(`invoke`). A call that is not found, or whose invocation fails, is passed to `slow`, a function of
the called object and its arguments. Objects that share a cache under another `slow` are other names
of the same function.
"""

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, final

import numpy as np

from shardir.backends.cpu.codegen.compiler import NativeLibrary
from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMModule, LLVMValue
from shardir.backends.cpu.dispatch import key_builder
from shardir.backends.cpu.dispatch.array_import import ArrayImport, import_words
from shardir.backends.cpu.dispatch.cache_key import (
    CALL_KEY_BYTES,
    HASH_OFFSET,
    LEAVES_OFFSET,
    WORDS_OFFSET,
)
from shardir.backends.cpu.dispatch.entry_point import make_builtin_function
from shardir.backends.cpu.dispatch.invoke import LAUNCH_WORDS, RESULT_WORDS
from shardir.backends.cpu.dispatch.launch import flatten_rows, int64_array
from shardir.backends.cpu.dispatch.python_api import emit_decref, emit_incref, python_object
from shardir.backends.cpu.dispatch.scalar_arguments import ARGUMENT_KINDS
from shardir.backends.cpu.dispatch.vectorcall_class import HEADER_OFFSET, install_vectorcall
from shardir.backends.fork_handlers import register_fork_lock

MAX_CACHED_CALLS = 4096
"""The cache is cleared when it holds this many entries."""
ALWAYS_INSERT_CALLS = 256
"""Beyond this many entries, or more than `INSERT_INTERVAL_CALLS` failed inserts, only one call in
`INSERT_INTERVAL_CALLS` is inserted: an insert takes several times the time of a call."""
INSERT_INTERVAL_CALLS = 32

ENTRY_WORDS = ("hash", "count", "tokens", "owner", "launch", "rows", "row_count", "form")
"""The words of a cache entry: its key, its owner, the words of its launch, the arguments as in
`invoke.ROW_WORDS`, and the function that rebuilds containers from a list of results; 0 if the
result is a single array."""


class TraceContext(NamedTuple):
    """The context of a call that its key depends on besides the arguments; see
    `key_builder.HEADER_WORDS`."""

    nones: Sequence[Any]
    variables: Sequence[Any]
    process: list[Any]
    stated: Mapping[Any, Any]


class StaticArguments(NamedTuple):
    """The static arguments of a function, by position and by name; `all` makes all but arrays
    static."""

    positions: Sequence[int] = ()
    names: Sequence[str] = ()
    all: bool = False


@final
class _CacheEntry:
    """A cache entry: its words, and the objects that they refer to."""

    __slots__ = ("memory", "words")

    def __init__(self, memory: tuple[object, ...]) -> None:
        self.memory, self.words = memory, (ctypes.c_int64 * len(ENTRY_WORDS))()


@final
class CallTable:
    """The cache entries of functions that share them, by key."""

    def __init__(self) -> None:
        self._entries: dict[bytes, _CacheEntry] = {}
        self._replaced: list[object] = []
        """Entries that native code may still find, if a signal handler raised during a change."""
        self._slot_arrays: list[ctypes.Array[ctypes.c_int64]] = []
        self._offered_calls = self.failed_inserts = 0
        self._memory = int64_array([0, 0])
        self.address = ctypes.addressof(self._memory)
        self._rehash()

    def __len__(self) -> int:
        return len(self._entries)

    def should_insert(self) -> bool:
        """Return whether to insert one more call."""
        self._offered_calls += 1
        has_few = len(
            self._entries
        ) < ALWAYS_INSERT_CALLS and self.failed_inserts < INSERT_INTERVAL_CALLS + len(self._entries)
        return has_few or self._offered_calls % INSERT_INTERVAL_CALLS == 0

    def add(self, tokens: bytes, line: _CacheEntry) -> None:
        """Add an entry; it replaces one of the same key."""
        with _table_lock:
            if len(self._entries) >= MAX_CACHED_CALLS:
                self.clear()
            replaced_line = self._entries.get(tokens)
            self._replaced.append(replaced_line)
            self._entries[tokens] = line
            if replaced_line or 2 * len(self._entries) > len(self._slots):
                self._rehash()
                self._replaced.clear()
            else:
                self._insert_slot(self._slots, line)

    def clear(self) -> None:
        """Remove all entries."""
        with _table_lock:
            self._replaced.append(self._entries)
            self._entries = {}
            self._rehash()
            self._replaced.clear()

    @property
    def _slots(self) -> ctypes.Array[ctypes.c_int64]:
        return self._slot_arrays[-1]

    def _rehash(self) -> None:
        """Let native code use a new array of slots, at most half of which are occupied."""
        size = 4
        while size < 2 * len(self._entries):
            size *= 2
        places = int64_array([0] * size)
        for line in self._entries.values():
            self._insert_slot(places, line)
        self._slot_arrays.append(places)
        # No lookup runs before both words are written: it would need the GIL.
        self._memory[:] = [ctypes.addressof(places), size - 1]
        del self._slot_arrays[:-1]

    def _insert_slot(self, places: ctypes.Array[ctypes.c_int64], line: _CacheEntry) -> None:
        last = len(places) - 1
        at = (line.words[0] & (1 << 64) - 1) >> 32 & last
        while places[at]:
            at = at + 1 & last
        places[at] = ctypes.addressof(line.words)


_table_lock = threading.RLock()
"""Held while a table changes."""
register_fork_lock(_table_lock.acquire, _table_lock.release)


@final
class CallCache:
    """The native call cache of one function."""

    def __init__(
        self,
        code: NativeLibrary,
        facts: ctypes.Array[ctypes.c_int64],
        context: TraceContext,
        slow: Callable[..., Any],
        static: "StaticArguments",
        table: CallTable | None = None,
        swap: bool = False,
    ) -> None:
        self.code, self.table = code, CallTable() if table is None else table
        lists = [int64_array([id(x) for x in each]) for each in (context.nones, context.variables)]
        names = int64_array([id(name) for name in static.names])
        bits = sum(1 << position for position in static.positions if position < 63)
        known = len(static.names)
        if static.all:
            bits, known = -1, -1
        self._header = int64_array(
            [ctypes.addressof(facts), ctypes.addressof(lists[0]), len(context.nones),
             ctypes.addressof(lists[1]), len(context.variables), id(context.process),
             id(context.stated), bits, ctypes.addressof(names), known, int(swap),
             self.table.address, id(slow)]
        )  # fmt: skip
        self._references = facts, context, lists, names, static, slow
        self._context = context

    def install(self, target: Any) -> "CallCache":
        """Let calls of an object use this cache, or the one that it already has; return that one.

        The object refers to the cache before native code uses it, and for as long as it lives: the
        cache of an object never changes.
        """
        with _table_lock:
            if target._answers is None:
                target._answers = self
            install_vectorcall(
                target, self.code["answer"], ctypes.addressof(target._answers._header)
            )
        kept: CallCache = target._answers
        return kept

    def build_key(self, args: tuple[Any, ...], options: dict[str, Any]) -> "CallKey | None":
        """Return the key of a call; `None` if native code does not support its arguments."""
        everything = (*args, *options.values())
        given, names = int64_array([id(each) for each in everything]), tuple(options)
        call = (ctypes.c_int64 * (CALL_KEY_BYTES // 8))()
        found: bool = _key_function(self.code["describe"])(
            ctypes.addressof(self._header), ctypes.addressof(given), len(args),
            id(names) if names else 0, ctypes.addressof(call),
        )  # fmt: skip
        if not found:
            return None
        count, leaves = call[0], call[1]
        first, second = WORDS_OFFSET // 8, LEAVES_OFFSET // 8
        tokens = bytes(int64_array(call[first : first + count]))
        return CallKey(call[2], tokens, call[second : second + leaves])

    def insert(
        self,
        call: "CallKey",
        launch: Any,
        rows: Sequence["ArgumentSource"],
        form: Callable[[list[Any]], Any] | None,
        keep: object,
    ) -> None:
        """Insert a call, so that equal calls run by a launch.

        `rows` are the sources of its arguments, then leaves of the call that it does not use, but
        that must be present; `keep` holds all objects that occur in the key.
        """
        header = ctypes.cast(launch.__self__, ctypes.POINTER(ctypes.c_int64))
        made_of = ctypes.cast(header[LAUNCH_WORDS.index("made")], ctypes.POINTER(ctypes.c_int64))
        rows = _skip_bool_imports(rows, header)
        # Other code may write into NumPy arrays, so a result that aliases one refers to a copy.
        entries = {k: row.entry for k, row in enumerate(rows) if row.kind == "entering"}
        for k in range(header[LAUNCH_WORDS.index("results")]):
            argument = -1 - made_of[RESULT_WORDS * k]
            if argument >= 0 and rows[argument].kind not in ("array", "bytes"):
                entries[argument] = rows[argument].entry
        made_entries = {k: entry and import_words(entry) for k, entry in entries.items()}
        entering = {k: found for k, found in made_entries.items() if found is not None}
        if len(entering) < len(entries):
            return
        count = header[LAUNCH_WORDS.index("arguments")]
        taken = ctypes.cast(header[LAUNCH_WORDS.index("rows")], ctypes.POINTER(ctypes.c_int64))
        places = []
        for k, row in enumerate(rows):
            slot, _, shape, _ = taken[4 * k : 4 * k + 4] if k < count else (-1, 0, 0, 0)
            kind, third = row.kind, row.constant or shape
            if k in entering:
                kind, third = "entering", ctypes.addressof(entering[k][0])
            places.append((slot, ARGUMENT_KINDS.index(kind), third, row.leaf))
        result = int64_array(flatten_rows(places))
        tokens = ctypes.create_string_buffer(call.tokens, len(call.tokens))
        values = tuple(each.get() for each in self._context.variables)
        process = tuple(self._context.process)
        line = _CacheEntry((result, tokens, launch, form, keep, values, process, entering))
        line.words[:] = [
            call.key_hash, len(call.tokens) // 8, ctypes.addressof(tokens), id(line),
            launch.__self__, ctypes.addressof(result), len(rows), 0 if form is None else id(form),
        ]  # fmt: skip
        self.table.add(call.tokens, line)


class ArgumentSource(NamedTuple):
    """The source of an argument: its kind in `scalar_arguments.KINDS`, the index of its leaf, its
    address if it is constant, and its import if it is a NumPy array."""

    kind: str
    leaf: int
    constant: int = 0
    entry: ArrayImport | None = None


def _skip_bool_imports(rows: Sequence[ArgumentSource], header: Any) -> list[ArgumentSource]:
    """Return rows without imports of bool arrays whose bytes a program reads unchanged."""
    count = header[LAUNCH_WORDS.index("arguments")]
    truths = ctypes.cast(header[LAUNCH_WORDS.index("truths")], ctypes.POINTER(ctypes.c_int64))
    return [
        row._replace(kind="numpy")
        if row.entry is not None and row.entry.source_dtype == np.bool_ and k < count and truths[k]
        else row
        for k, row in enumerate(rows)
    ]


@cache
def _key_function(code: int) -> Callable[..., Any]:
    result: Callable[..., Any] = make_builtin_function(code, 0, None)
    return result


class CallKey(NamedTuple):
    """The key of a call: its hash, its words as bytes, and the addresses of its leaves."""

    key_hash: int
    tokens: bytes
    leaves: list[int]


def define_cached_call(module: LLVMModule) -> None:
    """Define `answer`, a vectorcall function, which calls `fly` of the same module."""
    _define_lookup(module)
    _define_slow_call(module)
    f = LLVMFunction(module, "answer", ["ptr", "ptr", "i64", "ptr"], "ptr")
    called, args, flags, names = f.params
    header = f.load(f.offset(called, HEADER_OFFSET), "ptr")
    positional = flags & 0x7FFFFFFFFFFFFFFF
    call = f.emit(f"alloca [{CALL_KEY_BYTES} x i8], align 64", "ptr")
    none = python_object(f, "none")
    answer, line = f.variable("ptr", none), f.variable("ptr", 0)
    with f.when(f.call("read", [header, args, positional, names, call], "i1")):
        line.set(f.call("find", [header, call], "ptr"))

    def fly() -> None:
        owner = _entry_word(f, line.get(), "owner")
        emit_incref(f, owner)
        launch, rows, form = (
            _entry_word(f, line.get(), name) for name in ("launch", "rows", "form")
        )
        leaves = f.offset(call, LEAVES_OFFSET)
        alone = form.is_("eq", 0)
        count, nothing = _entry_word(f, line.get(), "row_count", "i64"), f.value(0, "ptr")
        answer.set(f.call("fly", [launch, leaves, rows, count, nothing, alone], "ptr"))
        result = answer.get()
        several = (alone ^ 1) & result.is_("ne", 0) & result.is_("ne", none)
        with f.when(several):
            answer.set(f.call("PyObject_CallOneArg", [form, result], "ptr"))
            emit_decref(f, result)
        emit_decref(f, owner)
        with f.when(answer.get().is_("eq", none)):
            emit_decref(f, none)

    with f.when(line.get().is_("ne", 0)):
        fly()
    with f.when(answer.get().is_("eq", none)):
        slow = key_builder.header_word(f, header, "slow", "ptr")
        answer.set(f.call("slowly", [called, slow, args, positional, names], "ptr"))
    f.ret(answer.get())


def _entry_word(f: LLVMFunction, line: LLVMValue, name: str, type: str = "ptr") -> LLVMValue:
    return f.load(f.offset(line, 8 * ENTRY_WORDS.index(name)), type)


def _define_lookup(module: LLVMModule) -> None:
    """Define `find(header, call) -> the entry with this key, 0 if there is none`."""
    f = LLVMFunction(module, "find", ["ptr", "ptr"], "ptr", "nounwind", internal=True)
    header, call = f.params
    table = key_builder.header_word(f, header, "table", "ptr")
    lines, mask = f.load(table, "ptr"), f.load(f.offset(table, 8), "i64")
    count, mixed = f.load(call, "i64"), f.load(f.offset(call, HASH_OFFSET), "i64")
    tokens = f.offset(call, WORDS_OFFSET)
    at, answer = f.variable("i64", mixed >> 32 & mask), f.variable("ptr", 0)
    line = f.variable("ptr", f.load(f.offset(lines, at.get(), "ptr"), "ptr"))
    with f.while_(lambda: line.get().is_("ne", 0) & answer.get().is_("eq", 0)):
        now = line.get()
        same = f.variable("i1", _entry_word(f, now, "hash", "i64").is_("eq", mixed)
                          & _entry_word(f, now, "count", "i64").is_("eq", count))  # fmt: skip
        with f.when(same.get()):
            known, k = _entry_word(f, now, "tokens"), f.variable("i64", 0)
            with f.while_(lambda: k.get().is_("slt", count) & same.get()):
                one = f.load(f.offset(known, k.get(), "i64"), "i64")
                same.set(one.is_("eq", f.load(f.offset(tokens, k.get(), "i64"), "i64")))
                k.set(k.get() + 1)
        with f.when(same.get()):
            answer.set(now)
        at.set(at.get() + 1 & mask)
        line.set(f.load(f.offset(lines, at.get(), "ptr"), "ptr"))
    f.ret(answer.get())


def _define_slow_call(module: LLVMModule) -> None:
    """Define `slowly(called, slow, args, positional, names)`: call `slow` with the object in
    front."""
    params = ["ptr", "ptr", "ptr", "i64", "ptr"]
    f = LLVMFunction(module, "slowly", params, "ptr", "nounwind noinline", internal=True)
    called, slow, args, positional, names = f.params
    f.call("PyErr_Clear", [])
    count = f.variable("i64", positional)
    with f.when(names.is_("ne", 0)):
        count.set(count.get() + f.call("PyTuple_Size", [names], "i64"))
    given = f.emit(f"alloca ptr, i64 {count.get() + 1}, align 64", "ptr")
    f.store(called, given)
    with f.loop(0, count.get()) as k:
        f.store(f.load(f.offset(args, k, "ptr"), "ptr"), f.offset(given, k + 1, "ptr"))
    f.ret(f.call("PyObject_Vectorcall", [slow, given, positional + 1, names], "ptr"))
