"""One call of a program, from arrays to arrays.

    fly(header, leaves, rows, count, given, alone) -> a list of arrays, or with `alone` the only one

There are `count` rows, one for each argument, and perhaps more. `None` where an argument is no
array in one piece or a number that does not fit, 0 where something was raised. `given` are blocks
of memory for results, 0: it gets them itself.
"""

from collections.abc import Callable

from shardir.backends.cpu.native.llvm.text import Function, Module, Value, Variable
from shardir.backends.cpu.native.runtime import blocks as small, foreign
from shardir.backends.cpu.native.runtime.numbers import KINDS
from shardir.backends.cpu.native.runtime.python import python_object
from shardir.backends.cpu.native.runtime.references import drop, drop_if_any, take, type_of

ARRAY_SLOTS = ("signature", "sharding", "held", "_parts", "_whole", "_gone")
STORAGE_SLOTS = ("address", "owner", "shape", "dtype", "_array")
BLOCK_SLOTS = ("address",)

FACTS = (
    "array", *ARRAY_SLOTS, "storage", *(f"storage.{name}" for name in STORAGE_SLOTS), "block",
    "small",
)  # fmt: skip
"""The words that say what arrays, storages and blocks are: types, and offsets of slots."""
HEADER = (
    "program", "slots", "facts", "template", "arguments", "rows", "placed", "places", "results",
    "made", "blocks", "sizes",
)  # fmt: skip
"""The words of a launch: counts, and addresses of tables. Without a program nothing runs."""
ROW_WORDS = 4
"""(slot, kind, shape, leaf) of an argument: where its address goes (below 0: nowhere), its kind out
of `numbers.KINDS`, the shape that its storage must have (0: any), and which of the leaves it is. Of
a constant, its address is in the place of the shape."""
PLACE_WORDS = 3
"""(slot, block, offset)"""
SIZE_WORDS = 4
"""(home, bytes, the bytes as an object of Python, what gives memory where the home is empty)"""
RESULT_WORDS = 7
"""(block, offset, shape, type, signature, sharding, part). A block below 0 is argument -1 - block,
of which a result is all, or a `part`."""


def word(f: Function, header: Value, name: str, type: str = "i64") -> Value:
    """A word of a launch."""
    return f.load(f.offset(header, 8 * HEADER.index(name)), type)


def define_flight(module: Module) -> None:
    """Define `fly`, which calls `pop` and `write_number` of the same module, and `run`."""
    _Making(module)
    _Flight(module)


class _Part:
    """Instructions that know the facts about arrays."""

    def __init__(self, f: Function, facts: Value) -> None:
        self.f, self._facts = f, facts
        self._none = python_object(f, "none")

    def fact(self, name: str, type: str = "i64") -> Value:
        return self.f.load(self.f.offset(self._facts, 8 * FACTS.index(name)), type)

    def _start(self, block: Value) -> Value:
        """Where a block lies."""
        f = self.f
        place = f.variable("ptr", 0)
        f.choose(
            type_of(f, block).is_("eq", self.fact("small", "ptr")),
            lambda: place.set(f.load(f.offset(block, small.ADDRESS), "ptr")),
            lambda: place.set(self._address(block, "block")),
        )
        return place.get()

    def _set(self, target: Value, name: str, given: Value) -> None:
        take(self.f, given)
        self.f.store(given, self.f.offset(target, self.fact(name)))

    def _is_storage(self, held: Value) -> Value:
        return type_of(self.f, held).is_("eq", self.fact("storage", "ptr"))

    def _address(self, thing: Value, name: str) -> Value:
        number = self.f.load(self.f.offset(thing, self.fact(name)), "ptr")
        return self.f.call("PyLong_AsVoidPtr", [number], "ptr")


class _Making(_Part):
    """`make(facts, blocks, held, row) -> a new array for a result`, 0 where there is no memory."""

    def __init__(self, module: Module) -> None:
        params = ["ptr", "ptr", "ptr", "ptr"]
        f = Function(module, "make", params, "ptr", "nounwind noinline", internal=True)
        facts, self._mine, self._held, row = f.params
        super().__init__(f, facts)
        f.leave(self._array(row))

    def _array(self, row: Value) -> Value:
        """A new array, 0 where there is no memory."""
        f = self.f
        zero = f.value(0, "i64")
        number, offset = f.load(row, "i64"), f.load(f.offset(row, 8), "i64")
        owner, start = f.variable("ptr", 0), f.variable("ptr", 0)

        def in_block() -> None:
            owner.set(f.load(f.offset(self._mine, number, "ptr"), "ptr"))
            start.set(self._start(owner.get()))

        def in_argument() -> None:
            held = f.load(f.offset(self._held, number ^ -1, "ptr"), "ptr")
            f.choose(self._is_storage(held), lambda: in_storage(held), lambda: in_bytes(held))

        def in_bytes(held: Value) -> None:
            start.set(f.offset(held, foreign.OCTETS))
            owner.set(held)

        def in_storage(held: Value) -> None:
            start.set(self._address(held, "storage.address"))
            owner.set(f.load(f.offset(held, self.fact("storage.owner")), "ptr"))
            # Who owns a part is no block that a program might write into from its beginning.
            part = f.load(f.offset(row, 48), "i64").is_("ne", 0)
            with f.when(part & (self._is_storage(owner.get()) ^ 1)):
                owner.set(held)

        f.choose(number.is_("sge", 0), in_block, in_argument)
        storage = f.call("PyType_GenericAlloc", [self.fact("storage", "ptr"), zero], "ptr")
        made = f.variable("ptr", 0)
        with f.when(storage.is_("ne", 0)):
            address = f.call("PyLong_FromVoidPtr", [f.offset(start.get(), offset)], "ptr")
            array = f.call("PyType_GenericAlloc", [self.fact("array", "ptr"), zero], "ptr")
            full = array.is_("ne", 0) & address.is_("ne", 0)

            def fill() -> None:
                shape, dtype, signature, sharding = (
                    f.load(f.offset(row, 8 * each), "ptr") for each in range(2, 6)
                )
                f.store(address, f.offset(storage, self.fact("storage.address")))
                for name, given in (
                    ("owner", owner.get()), ("shape", shape), ("dtype", dtype),
                    ("_array", self._none),
                ):  # fmt: skip
                    self._set(storage, f"storage.{name}", given)
                f.store(storage, f.offset(array, self.fact("held")))
                empty = python_object(f, "empty_text")
                for name, given in (
                    ("signature", signature), ("sharding", sharding), ("_parts", self._none),
                    ("_whole", self._none), ("_gone", empty),
                ):  # fmt: skip
                    self._set(array, name, given)
                made.set(array)

            def give_up() -> None:
                drop(f, storage)
                for other in (array, address):
                    drop_if_any(f, other)

            f.choose(full, fill, give_up)
        return made.get()


class _Flight(_Part):
    """The instructions of `fly`."""

    def __init__(self, module: Module) -> None:
        params = ["ptr", "ptr", "ptr", "i64", "ptr", "i1"]
        f = Function(module, "fly", params, "ptr", "nounwind noinline", internal=True)
        self._header, leaves, rows, self._count, given, alone = f.params
        super().__init__(f, word(f, self._header, "facts", "ptr"))
        self._blocks = self.word("blocks")
        slots, template = self.word("slots"), self.pointer("template")
        self._answer = f.variable("ptr", 0)
        self._bases = f.emit(f"alloca i64, i64 {slots + 1}, align 64", "ptr")
        self._held = f.emit(f"alloca ptr, i64 {self._count + 1}, align 64", "ptr")
        self._cells = f.emit(f"alloca i64, i64 {self._count + 1}, align 64", "ptr")
        self._mine = f.emit(f"alloca ptr, i64 {self._blocks + 1}, align 64", "ptr")
        with f.loop(0, slots) as k:
            f.store(f.load(f.offset(template, k, "i64"), "i64"), f.offset(self._bases, k, "i64"))
        good = self._read(leaves, rows)

        def nothing() -> None:
            take(f, self._none)
            self._answer.set(self._none)

        f.choose(good.get(), lambda: self._go(given, alone), nothing)
        f.leave(self._answer.get())

    def word(self, name: str) -> Value:
        return word(self.f, self._header, name)

    def pointer(self, name: str) -> Value:
        return word(self.f, self._header, name, "ptr")

    def _read(self, leaves: Value, rows: Value) -> Variable:
        """Find where the arguments lie; whether all are as they should be."""
        f = self.f
        array, storage = self.fact("array", "ptr"), self.fact("storage", "ptr")
        good, k = f.variable("i1", 1), f.variable("i64", 0)
        with f.while_(lambda: k.get().is_("slt", self._count) & good.get()):
            number = k.get()
            row = f.offset(rows, number * (8 * ROW_WORDS))
            slot, kind, which = (f.load(f.offset(row, 8 * each), "i64") for each in (0, 1, 3))
            leaf = f.load(f.offset(leaves, which, "ptr"), "ptr")
            held, place = f.variable("ptr", leaf), f.variable("ptr", 0)

            def of_array(leaf: Value = leaf, row: Value = row) -> None:
                good.set(type_of(f, leaf).is_("eq", array))
                with f.when(good.get()):
                    held.set(f.load(f.offset(leaf, self.fact("held")), "ptr"))
                    good.set(type_of(f, held.get()).is_("eq", storage))
                    with f.when(good.get()):
                        place.set(self._address(held.get(), "storage.address"))
                        wanted = f.load(f.offset(row, 16), "ptr")
                        with f.when(wanted.is_("ne", 0)):
                            good.set(self._same_shape(held.get(), wanted))

            def of_number(leaf: Value = leaf, kind: Value = kind, number: Value = number) -> None:
                cell = f.offset(self._cells, number, "i64")
                place.set(cell)
                good.set(f.call("write_number", [leaf, kind, cell], "i1"))

            def of_constant(row: Value = row) -> None:
                place.set(f.load(f.offset(row, 16), "ptr"))
                held.set(self._none)

            def of_foreign(leaf: Value = leaf, kind: Value = kind) -> None:
                data = f.load(f.offset(leaf, foreign.DATA), "ptr")
                a_number = kind.is_("eq", KINDS.index("numpy"))
                place.set(f.select(a_number, data, f.offset(leaf, foreign.OCTETS)))

            def no_constant(
                kind: Value = kind,
                of_number: Callable[[], None] = of_number,
                of_foreign: Callable[[], None] = of_foreign,
            ) -> None:
                f.choose(kind.is_("sle", KINDS.index("bytes")), of_foreign, of_number)

            def of_other(
                kind: Value = kind,
                no_constant: Callable[[], None] = no_constant,
                of_constant: Callable[[], None] = of_constant,
            ) -> None:
                f.choose(kind.is_("eq", KINDS.index("constant")), of_constant, no_constant)

            f.choose(kind.is_("eq", KINDS.index("array")), of_array, of_other)
            with f.when(slot.is_("sge", 0)):
                f.store(place.get(), f.offset(self._bases, slot, "ptr"))
            f.store(held.get(), f.offset(self._held, number, "ptr"))
            k.set(number + 1)
        return good

    def _same_shape(self, storage: Value, wanted: Value) -> Value:
        f = self.f
        shape = f.load(f.offset(storage, self.fact("storage.shape")), "ptr")
        same = f.variable("i1", shape.is_("eq", wanted))
        with f.when(same.get() ^ 1):
            equal = f.value(2, "i32")
            found = f.call("PyObject_RichCompareBool", [shape, wanted, equal], "i32")
            same.set(found.is_("eq", 1))
        return same.get()

    def _go(self, given: Value, alone: Value) -> None:
        """Get memory, run, and make the results."""
        f = self.f
        # Somebody may delete an array meanwhile.
        with f.loop(0, self._count) as k:
            take(f, f.load(f.offset(self._held, k, "ptr"), "ptr"))
        got, good = f.variable("i64", 0), f.variable("i1", 1)
        with f.while_(lambda: got.get().is_("slt", self._blocks) & good.get()):
            block = f.variable("ptr", 0)

            def old(block: Variable = block) -> None:
                block.set(f.load(f.offset(given, got.get(), "ptr"), "ptr"))
                take(f, block.get())

            def new(block: Variable = block) -> None:
                block.set(self._new_block(got.get()))

            f.choose(given.is_("ne", 0), old, new)
            f.store(block.get(), f.offset(self._mine, got.get(), "ptr"))
            good.set(block.get().is_("ne", 0))
            got.set(got.get() + good.get().to("i64", "zext"))
        with f.when(good.get()):
            places = self.pointer("places")
            with f.loop(0, self.word("placed")) as k:
                row = f.offset(places, k * (8 * PLACE_WORDS))
                number = f.load(f.offset(row, 8), "i64")
                start = self._start(f.load(f.offset(self._mine, number, "ptr"), "ptr"))
                where = f.offset(start, f.load(f.offset(row, 16), "i64"))
                f.store(where, f.offset(self._bases, f.load(row, "i64"), "ptr"))
            program = self.pointer("program")
            with f.when(program.is_("ne", 0)):
                good.set(f.call("run", [program, self._bases], "i1"))
            with f.when(good.get()):
                f.choose(alone, self._only, self._list)
        with f.loop(0, got.get()) as k:
            drop(f, f.load(f.offset(self._mine, k, "ptr"), "ptr"))
        with f.loop(0, self._count) as k:
            drop(f, f.load(f.offset(self._held, k, "ptr"), "ptr"))

    def _new_block(self, number: Value) -> Value:
        """A block from its home, or from Python where there is none; 0: no memory."""
        f = self.f
        row = f.offset(self.pointer("sizes"), number * (8 * SIZE_WORDS))
        home = f.load(row, "ptr")
        block = f.variable("ptr", 0)
        with f.when(home.is_("ne", 0)):
            block.set(f.call("pop", [home, f.load(f.offset(row, 8), "i64")], "ptr"))
        with f.when(block.get().is_("eq", 0)):
            size, more = (f.load(f.offset(row, place), "ptr") for place in (16, 24))
            block.set(f.call("PyObject_CallOneArg", [more, size], "ptr"))
        return block.get()

    def _made(self, row: Value) -> Value:
        return self.f.call("make", [self._facts, self._mine, self._held, row], "ptr")

    def _only(self) -> None:
        self._answer.set(self._made(self.pointer("made")))

    def _list(self) -> None:
        """A list of arrays, 0 where there is no memory for them."""
        f = self.f
        count, table = self.word("results"), self.pointer("made")
        made = self._answer
        made.set(f.call("PyList_New", [count], "ptr"))
        k = f.variable("i64", 0)
        with f.while_(lambda: k.get().is_("slt", count) & made.get().is_("ne", 0)):
            row = f.offset(table, k.get() * (8 * RESULT_WORDS))
            array = self._made(row)

            def keep(array: Value = array) -> None:
                f.call("PyList_SetItem", [made.get(), k.get(), array], "i32")

            def give_up() -> None:
                drop(f, made.get())
                made.set(f.value(0, "ptr"))

            f.choose(array.is_("ne", 0), keep, give_up)
            k.set(k.get() + 1)
