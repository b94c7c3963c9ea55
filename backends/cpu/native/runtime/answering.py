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

from shardir.backends.cpu.native.llvm.compiler import Library
from shardir.backends.cpu.native.llvm.text import Function, Module, Value
from shardir.backends.cpu.native.runtime import reading
from shardir.backends.cpu.native.runtime.callables import HEADER_PLACE, install
from shardir.backends.cpu.native.runtime.entering import Entry, entry_words
from shardir.backends.cpu.native.runtime.entry import function
from shardir.backends.cpu.native.runtime.flight import HEADER, RESULT_WORDS
from shardir.backends.cpu.native.runtime.launching import flat, words
from shardir.backends.cpu.native.runtime.numbers import KINDS
from shardir.backends.cpu.native.runtime.python import python_object
from shardir.backends.cpu.native.runtime.references import drop, take
from shardir.backends.cpu.native.runtime.tokens import CALL_BYTES, HASH, LEAVES, TOKENS
from shardir.backends.forking import held_by_forks

MANY = 4096
"""The cache is cleared when it holds this many entries."""
SOME = 256
"""Beyond this many entries, or more than `INSERT_INTERVAL_CALLS` failed inserts, only one call in
`INSERT_INTERVAL_CALLS` is inserted: an insert takes several times the time of a call."""
SELDOM = 32

LINE = ("hash", "count", "tokens", "owner", "launch", "rows", "row_count", "form")
"""The words of a cache entry: its key, its owner, the words of its launch, the arguments as in
`invoke.ROW_WORDS`, and the function that rebuilds containers from a list of results; 0 if the
result is a single array."""


class Surroundings(NamedTuple):
    """The context of a call that its key depends on besides the arguments; see
    `key_builder.HEADER_WORDS`."""

    nones: Sequence[Any]
    variables: Sequence[Any]
    process: list[Any]
    stated: Mapping[Any, Any]


class Static(NamedTuple):
    """The static arguments of a function, by position and by name; `all` makes all but arrays
    static."""

    positions: Sequence[int] = ()
    names: Sequence[str] = ()
    all: bool = False


@final
class _Line:
    """A cache entry: its words, and the objects that they refer to."""

    __slots__ = ("memory", "words")

    def __init__(self, memory: tuple[object, ...]) -> None:
        self.memory, self.words = memory, (ctypes.c_int64 * len(LINE))()


@final
class Table:
    """The cache entries of functions that share them, by key."""

    def __init__(self) -> None:
        self._lines: dict[bytes, _Line] = {}
        self._leaving: list[object] = []
        """Entries that native code may still find, if a signal handler raised during a change."""
        self._kept: list[ctypes.Array[ctypes.c_int64]] = []
        self._asked = self.failed = 0
        self._memory = words([0, 0])
        self.address = ctypes.addressof(self._memory)
        self._build()

    def __len__(self) -> int:
        return len(self._lines)

    def is_worth_it(self) -> bool:
        """Return whether to insert one more call."""
        self._asked += 1
        has_few = len(self._lines) < SOME and self.failed < SELDOM + len(self._lines)
        return has_few or self._asked % SELDOM == 0

    def add(self, tokens: bytes, line: _Line) -> None:
        """Add an entry; it replaces one of the same key."""
        with _writing:
            if len(self._lines) >= MANY:
                self.clear()
            replaced_line = self._lines.get(tokens)
            self._leaving.append(replaced_line)
            self._lines[tokens] = line
            if replaced_line or 2 * len(self._lines) > len(self._places):
                self._build()
                self._leaving.clear()
            else:
                self._put(self._places, line)

    def clear(self) -> None:
        """Remove all entries."""
        with _writing:
            self._leaving.append(self._lines)
            self._lines = {}
            self._build()
            self._leaving.clear()

    @property
    def _places(self) -> ctypes.Array[ctypes.c_int64]:
        return self._kept[-1]

    def _build(self) -> None:
        """Let native code use a new array of slots, at most half of which are occupied."""
        size = 4
        while size < 2 * len(self._lines):
            size *= 2
        places = words([0] * size)
        for line in self._lines.values():
            self._put(places, line)
        self._kept.append(places)
        # No lookup runs before both words are written: it would need the GIL.
        self._memory[:] = [ctypes.addressof(places), size - 1]
        del self._kept[:-1]

    def _put(self, places: ctypes.Array[ctypes.c_int64], line: _Line) -> None:
        last = len(places) - 1
        at = (line.words[0] & (1 << 64) - 1) >> 32 & last
        while places[at]:
            at = at + 1 & last
        places[at] = ctypes.addressof(line.words)


_writing = threading.RLock()
"""Held while a table changes."""
held_by_forks(_writing.acquire, _writing.release)


@final
class Answers:
    """The native call cache of one function."""

    def __init__(
        self,
        code: Library,
        facts: ctypes.Array[ctypes.c_int64],
        context: Surroundings,
        slow: Callable[..., Any],
        static: "Static",
        table: Table | None = None,
        swap: bool = False,
    ) -> None:
        self.code, self.table = code, Table() if table is None else table
        lists = [words([id(x) for x in each]) for each in (context.nones, context.variables)]
        names = words([id(name) for name in static.names])
        bits = sum(1 << position for position in static.positions if position < 63)
        known = len(static.names)
        if static.all:
            bits, known = -1, -1
        self._header = words(
            [ctypes.addressof(facts), ctypes.addressof(lists[0]), len(context.nones),
             ctypes.addressof(lists[1]), len(context.variables), id(context.process),
             id(context.stated), bits, ctypes.addressof(names), known, int(swap),
             self.table.address, id(slow)]
        )  # fmt: skip
        self._keep = facts, context, lists, names, static, slow
        self._around = context

    def install(self, target: Any) -> "Answers":
        """Let calls of an object use this cache, or the one that it already has; return that one.

        The object refers to the cache before native code uses it, and for as long as it lives: the
        cache of an object never changes.
        """
        with _writing:
            if target._answers is None:
                target._answers = self
            install(target, self.code["answer"], ctypes.addressof(target._answers._header))
        kept: Answers = target._answers
        return kept

    def read(self, args: tuple[Any, ...], options: dict[str, Any]) -> "Call | None":
        """Return the key of a call; `None` if native code does not support its arguments."""
        everything = (*args, *options.values())
        given, names = words([id(each) for each in everything]), tuple(options)
        call = (ctypes.c_int64 * (CALL_BYTES // 8))()
        found: bool = _describe(self.code["describe"])(
            ctypes.addressof(self._header), ctypes.addressof(given), len(args),
            id(names) if names else 0, ctypes.addressof(call),
        )  # fmt: skip
        if not found:
            return None
        count, leaves = call[0], call[1]
        first, second = TOKENS // 8, LEAVES // 8
        tokens = bytes(words(call[first : first + count]))
        return Call(call[2], tokens, call[second : second + leaves])

    def learn(
        self,
        call: "Call",
        launch: Any,
        rows: Sequence["Row"],
        form: Callable[[list[Any]], Any] | None,
        keep: object,
    ) -> None:
        """Insert a call, so that equal calls run by a launch.

        `rows` are the sources of its arguments, then leaves of the call that it does not use, but
        that must be present; `keep` holds all objects that occur in the key.
        """
        header = ctypes.cast(launch.__self__, ctypes.POINTER(ctypes.c_int64))
        made_of = ctypes.cast(header[HEADER.index("made")], ctypes.POINTER(ctypes.c_int64))
        rows = _read_where_they_lie(rows, header)
        # Other code may write into NumPy arrays, so a result that aliases one refers to a copy.
        entries = {k: row.entry for k, row in enumerate(rows) if row.kind == "entering"}
        for k in range(header[HEADER.index("results")]):
            argument = -1 - made_of[RESULT_WORDS * k]
            if argument >= 0 and rows[argument].kind not in ("array", "bytes"):
                entries[argument] = rows[argument].entry
        made_entries = {k: entry and entry_words(entry) for k, entry in entries.items()}
        entering = {k: found for k, found in made_entries.items() if found is not None}
        if len(entering) < len(entries):
            return
        count = header[HEADER.index("arguments")]
        taken = ctypes.cast(header[HEADER.index("rows")], ctypes.POINTER(ctypes.c_int64))
        places = []
        for k, row in enumerate(rows):
            slot, _, shape, _ = taken[4 * k : 4 * k + 4] if k < count else (-1, 0, 0, 0)
            kind, third = row.kind, row.constant or shape
            if k in entering:
                kind, third = "entering", ctypes.addressof(entering[k][0])
            places.append((slot, KINDS.index(kind), third, row.leaf))
        result = words(flat(places))
        tokens = ctypes.create_string_buffer(call.tokens, len(call.tokens))
        values = tuple(each.get() for each in self._around.variables)
        process = tuple(self._around.process)
        line = _Line((result, tokens, launch, form, keep, values, process, entering))
        line.words[:] = [
            call.mixed, len(call.tokens) // 8, ctypes.addressof(tokens), id(line),
            launch.__self__, ctypes.addressof(result), len(rows), 0 if form is None else id(form),
        ]  # fmt: skip
        self.table.add(call.tokens, line)


class Row(NamedTuple):
    """The source of an argument: its kind in `scalar_arguments.KINDS`, the index of its leaf, its
    address if it is constant, and its import if it is a NumPy array."""

    kind: str
    leaf: int
    constant: int = 0
    entry: Entry | None = None


def _read_where_they_lie(rows: Sequence[Row], header: Any) -> list[Row]:
    """Return rows without imports of bool arrays whose bytes a program reads unchanged."""
    count = header[HEADER.index("arguments")]
    truths = ctypes.cast(header[HEADER.index("truths")], ctypes.POINTER(ctypes.c_int64))
    return [
        row._replace(kind="numpy")
        if row.entry is not None and row.entry.given == np.bool_ and k < count and truths[k]
        else row
        for k, row in enumerate(rows)
    ]


@cache
def _describe(code: int) -> Callable[..., Any]:
    result: Callable[..., Any] = function(code, 0, None)
    return result


class Call(NamedTuple):
    """The key of a call: its hash, its words as bytes, and the addresses of its leaves."""

    mixed: int
    tokens: bytes
    leaves: list[int]


def define_answer(module: Module) -> None:
    """Define `answer`, a vectorcall function, which calls `fly` of the same module."""
    _define_find(module)
    _define_slow(module)
    f = Function(module, "answer", ["ptr", "ptr", "i64", "ptr"], "ptr")
    called, args, flags, names = f.params
    header = f.load(f.offset(called, HEADER_PLACE), "ptr")
    positional = flags & 0x7FFFFFFFFFFFFFFF
    call = f.emit(f"alloca [{CALL_BYTES} x i8], align 64", "ptr")
    none = python_object(f, "none")
    answer, line = f.variable("ptr", none), f.variable("ptr", 0)
    with f.when(f.call("read", [header, args, positional, names, call], "i1")):
        line.set(f.call("find", [header, call], "ptr"))

    def fly() -> None:
        owner = _word(f, line.get(), "owner")
        take(f, owner)
        launch, rows, form = (_word(f, line.get(), name) for name in ("launch", "rows", "form"))
        leaves = f.offset(call, LEAVES)
        alone = form.is_("eq", 0)
        count, nothing = _word(f, line.get(), "row_count", "i64"), f.value(0, "ptr")
        answer.set(f.call("fly", [launch, leaves, rows, count, nothing, alone], "ptr"))
        result = answer.get()
        several = (alone ^ 1) & result.is_("ne", 0) & result.is_("ne", none)
        with f.when(several):
            answer.set(f.call("PyObject_CallOneArg", [form, result], "ptr"))
            drop(f, result)
        drop(f, owner)
        with f.when(answer.get().is_("eq", none)):
            drop(f, none)

    with f.when(line.get().is_("ne", 0)):
        fly()
    with f.when(answer.get().is_("eq", none)):
        slow = reading.word(f, header, "slow", "ptr")
        answer.set(f.call("slowly", [called, slow, args, positional, names], "ptr"))
    f.leave(answer.get())


def _word(f: Function, line: Value, name: str, type: str = "ptr") -> Value:
    return f.load(f.offset(line, 8 * LINE.index(name)), type)


def _define_find(module: Module) -> None:
    """Define `find(header, call) -> the entry with this key, 0 if there is none`."""
    f = Function(module, "find", ["ptr", "ptr"], "ptr", "nounwind", internal=True)
    header, call = f.params
    table = reading.word(f, header, "table", "ptr")
    lines, mask = f.load(table, "ptr"), f.load(f.offset(table, 8), "i64")
    count, mixed = f.load(call, "i64"), f.load(f.offset(call, HASH), "i64")
    tokens = f.offset(call, TOKENS)
    at, answer = f.variable("i64", mixed >> 32 & mask), f.variable("ptr", 0)
    line = f.variable("ptr", f.load(f.offset(lines, at.get(), "ptr"), "ptr"))
    with f.while_(lambda: line.get().is_("ne", 0) & answer.get().is_("eq", 0)):
        now = line.get()
        same = f.variable("i1", _word(f, now, "hash", "i64").is_("eq", mixed)
                          & _word(f, now, "count", "i64").is_("eq", count))  # fmt: skip
        with f.when(same.get()):
            known, k = _word(f, now, "tokens"), f.variable("i64", 0)
            with f.while_(lambda: k.get().is_("slt", count) & same.get()):
                one = f.load(f.offset(known, k.get(), "i64"), "i64")
                same.set(one.is_("eq", f.load(f.offset(tokens, k.get(), "i64"), "i64")))
                k.set(k.get() + 1)
        with f.when(same.get()):
            answer.set(now)
        at.set(at.get() + 1 & mask)
        line.set(f.load(f.offset(lines, at.get(), "ptr"), "ptr"))
    f.leave(answer.get())


def _define_slow(module: Module) -> None:
    """Define `slowly(called, slow, args, positional, names)`: call `slow` with the object in
    front."""
    params = ["ptr", "ptr", "ptr", "i64", "ptr"]
    f = Function(module, "slowly", params, "ptr", "nounwind noinline", internal=True)
    called, slow, args, positional, names = f.params
    f.call("PyErr_Clear", [])
    count = f.variable("i64", positional)
    with f.when(names.is_("ne", 0)):
        count.set(count.get() + f.call("PyTuple_Size", [names], "i64"))
    given = f.emit(f"alloca ptr, i64 {count.get() + 1}, align 64", "ptr")
    f.store(called, given)
    with f.loop(0, count.get()) as k:
        f.store(f.load(f.offset(args, k, "ptr"), "ptr"), f.offset(given, k + 1, "ptr"))
    f.leave(f.call("PyObject_Vectorcall", [slow, given, positional + 1, names], "ptr"))
