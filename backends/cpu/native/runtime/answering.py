"""Objects of Python that machine code is called for: calls like earlier ones are answered at once.

    answers = Answers(code, facts, ...)          # what belongs to one function
    answers.install(thing)                       # from now on calls of `thing` come here first
    answers.learn(args, options, ...)            # a call that a launch can answer

A call is read (`reading`), looked up among those that were learned, and flown (`flight`). What is
not there, or does not fly, is done by `slow`, a function of the called object and its arguments.
Objects that share answers under another `slow` are functions with other names for the same.
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
"""What was learned is forgotten when there is so much of it."""
SOME = 256
"""Beyond so many answers, or more than `SELDOM` calls that could not be learned, one in so many is
tried: it takes several times the time of a call."""
SELDOM = 32

LINE = ("hash", "count", "tokens", "owner", "launch", "rows", "row_count", "form")
"""The words of an answer: its tokens, who keeps it, the words of its launch, the arguments as
`flight.ROW_WORDS` says, and what makes containers of a list of results; 0: there is one."""


class Surroundings(NamedTuple):
    """What answers depend on beside the arguments; see `reading.HEADER`."""

    nones: Sequence[Any]
    variables: Sequence[Any]
    process: list[Any]
    stated: Mapping[Any, Any]


class Static(NamedTuple):
    """Which arguments of a function are no arguments of its programs, by position and by name; or
    `all` but arrays."""

    positions: Sequence[int] = ()
    names: Sequence[str] = ()
    all: bool = False


@final
class _Line:
    """An answer: its words, and what has to live for them."""

    __slots__ = ("memory", "words")

    def __init__(self, memory: tuple[object, ...]) -> None:
        self.memory, self.words = memory, (ctypes.c_int64 * len(LINE))()


@final
class Table:
    """The answers of functions that share them, by tokens."""

    def __init__(self) -> None:
        self._lines: dict[bytes, _Line] = {}
        self._leaving: list[object] = []
        """What machine code may still find, if what a signal's handler raised ended a change."""
        self._kept: list[ctypes.Array[ctypes.c_int64]] = []
        self._asked = self.failed = 0
        self._memory = words([0, 0])
        self.address = ctypes.addressof(self._memory)
        self._build()

    def __len__(self) -> int:
        return len(self._lines)

    def is_worth_it(self) -> bool:
        """Whether one more call should be learned."""
        self._asked += 1
        few = len(self._lines) < SOME and self.failed < SELDOM + len(self._lines)
        return few or self._asked % SELDOM == 0

    def add(self, tokens: bytes, line: _Line) -> None:
        """Keep an answer; one for the same tokens goes."""
        with _writing:
            if len(self._lines) >= MANY:
                self.clear()
            known = self._lines.get(tokens)
            self._leaving.append(known)
            self._lines[tokens] = line
            if known or 2 * len(self._lines) > len(self._places):
                self._build()
                self._leaving.clear()
            else:
                self._put(self._places, line)

    def clear(self) -> None:
        """Forget all answers."""
        with _writing:
            self._leaving.append(self._lines)
            self._lines = {}
            self._build()
            self._leaving.clear()

    @property
    def _places(self) -> ctypes.Array[ctypes.c_int64]:
        return self._kept[-1]

    def _build(self) -> None:
        """Let machine code look among new places, at most half of which are taken."""
        size = 4
        while size < 2 * len(self._lines):
            size *= 2
        places = words([0] * size)
        for line in self._lines.values():
            self._put(places, line)
        self._kept.append(places)
        # Nobody looks before both words are there: that takes the GIL.
        self._memory[:] = [ctypes.addressof(places), size - 1]
        del self._kept[:-1]

    def _put(self, places: ctypes.Array[ctypes.c_int64], line: _Line) -> None:
        last = len(places) - 1
        at = (line.words[0] & (1 << 64) - 1) >> 32 & last
        while places[at]:
            at = at + 1 & last
        places[at] = ctypes.addressof(line.words)


_writing = threading.RLock()
"""Held by who changes a table."""
held_by_forks(_writing.acquire, _writing.release)


@final
class Answers:
    """What machine code knows of the calls of one function."""

    def __init__(
        self,
        code: Library,
        facts: ctypes.Array[ctypes.c_int64],
        around: Surroundings,
        slow: Callable[..., Any],
        static: "Static",
        table: Table | None = None,
        swap: bool = False,
    ) -> None:
        self.code, self.table = code, Table() if table is None else table
        lists = [words([id(x) for x in each]) for each in (around.nones, around.variables)]
        names = words([id(name) for name in static.names])
        bits = sum(1 << position for position in static.positions if position < 63)
        known = len(static.names)
        if static.all:
            bits, known = -1, -1
        self._header = words(
            [ctypes.addressof(facts), ctypes.addressof(lists[0]), len(around.nones),
             ctypes.addressof(lists[1]), len(around.variables), id(around.process),
             id(around.stated), bits, ctypes.addressof(names), known, int(swap),
             self.table.address, id(slow)]
        )  # fmt: skip
        self._keep = facts, around, lists, names, static, slow
        self._around = around

    def install(self, thing: Any) -> "Answers":
        """Have calls of an object answered, by other answers if it has some; returns those.

        The object keeps them from before machine code works by them, and for as
        long as it lives: they never change.
        """
        with _writing:
            if thing._answers is None:
                thing._answers = self
            install(thing, self.code["answer"], ctypes.addressof(thing._answers._header))
        kept: Answers = thing._answers
        return kept

    def read(self, args: tuple[Any, ...], options: dict[str, Any]) -> "Call | None":
        """A call as machine code sees it; `None`: it does not go that way."""
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
        """Answer calls like this one by a launch.

        `rows` are what its arguments are, and then leaves of the call that it has no use for, but
        that have to be there; `keep` holds all objects that are tokens.
        """
        header = ctypes.cast(launch.__self__, ctypes.POINTER(ctypes.c_int64))
        made_of = ctypes.cast(header[HEADER.index("made")], ctypes.POINTER(ctypes.c_int64))
        rows = _read_where_they_lie(rows, header)
        # Into NumPy's arrays somebody may write, so what shows their numbers shows a copy.
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
        made = words(flat(places))
        tokens = ctypes.create_string_buffer(call.tokens, len(call.tokens))
        values = tuple(each.get() for each in self._around.variables)
        process = tuple(self._around.process)
        line = _Line((made, tokens, launch, form, keep, values, process, entering))
        line.words[:] = [
            call.mixed, len(call.tokens) // 8, ctypes.addressof(tokens), id(line),
            launch.__self__, ctypes.addressof(made), len(rows), 0 if form is None else id(form),
        ]  # fmt: skip
        self.table.add(call.tokens, line)


class Row(NamedTuple):
    """What an argument is: a kind out of `numbers.KINDS`, which leaf of the call, where it lies if
    it is a constant, and what becomes of it if it is an array of NumPy that enters."""

    kind: str
    leaf: int
    constant: int = 0
    entry: Entry | None = None


def _read_where_they_lie(rows: Sequence[Row], header: Any) -> list[Row]:
    """Rows of which those of truth enter no more where a program takes their bytes as they are."""
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
    made: Callable[..., Any] = function(code, 0, None)
    return made


class Call(NamedTuple):
    """A call as it was read: its tokens, mixed and one after the other, and the addresses of its
    leaves."""

    mixed: int
    tokens: bytes
    leaves: list[int]


def define_answer(module: Module) -> None:
    """Define `answer`, a function of Python's protocol for quick calls, which calls `fly` of the
    same module."""
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
        made = answer.get()
        several = (alone ^ 1) & made.is_("ne", 0) & made.is_("ne", none)
        with f.when(several):
            answer.set(f.call("PyObject_CallOneArg", [form, made], "ptr"))
            drop(f, made)
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
    """`find(header, call) -> the line with its tokens, 0 if there is none`."""
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
    """`slowly(called, slow, args, positional, names)`: call `slow` with the object in front."""
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
