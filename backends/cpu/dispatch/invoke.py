"""Invoke a program once, from arrays to arrays.

    fly(header, leaves, rows, count, given, alone) -> a list of arrays, or with `alone` the only one

There are `count` rows, one for each argument, and possibly more. The result is `None` if an
argument is not a single-storage array or a number that fits, and 0 if an exception was raised.
`given` are memory blocks for results; with 0 they are allocated.
"""

from collections.abc import Callable

from shardir.backends.cpu.codegen.llvm_text import (
    LLVMFunction,
    LLVMModule,
    LLVMValue,
    StackVariable,
)
from shardir.backends.cpu.dispatch import numpy_layout
from shardir.backends.cpu.dispatch.python_api import (
    emit_decref,
    emit_incref,
    python_object,
    type_of,
)
from shardir.backends.cpu.dispatch.scalar_arguments import ARGUMENT_KINDS
from shardir.backends.cpu.dispatch.type_offsets import SIZE_ROW_WORDS, ObjectAccess

LAUNCH_WORDS = (
    "program", "slots", "facts", "template", "arguments", "rows", "placed", "places", "results",
    "made", "blocks", "sizes", "truths",
)  # fmt: skip
"""The words of a launch: counts, and addresses of tables. Without a program nothing runs.
`truths` says for each argument whether all of its readers treat any nonzero byte as
true."""
ROW_WORDS = 4
"""(slot, kind, shape, leaf) of an argument: the slot of its address (below 0: none), its kind in
`scalar_arguments.KINDS`, the shape that its storage must have (0: any), and the index of its leaf.
A constant has its address in place of the shape, an imported array the address of its import."""
PLACE_WORDS = 3
"""(slot, block, offset)"""
RESULT_WORDS = 7
"""(block, offset, shape, type, signature, sharding, part). A block below 0 refers to the argument
-1 - block, of which the result is all, or a `part`."""


def launch_word(f: LLVMFunction, header: LLVMValue, name: str, type: str = "i64") -> LLVMValue:
    """Return a word of a launch."""
    return f.load(f.offset(header, 8 * LAUNCH_WORDS.index(name)), type)


def define_invoke(module: LLVMModule) -> None:
    """Define `fly`, which calls `run`, and `enter`, `pop` and `write_number` of the same
    module."""
    _MakeArrayFunction(module)
    _InvokeFunction(module)


class _MakeArrayFunction(ObjectAccess):
    """Define `make(facts, blocks, held, row) -> a new array for a result`, 0 if no memory is
    left."""

    def __init__(self, module: LLVMModule) -> None:
        params = ["ptr", "ptr", "ptr", "ptr"]
        f = LLVMFunction(module, "make", params, "ptr", "nounwind noinline", internal=True)
        facts, self._blocks, self._storages, row = f.params
        super().__init__(f, facts)
        f.ret(self._array(row))

    def _array(self, row: LLVMValue) -> LLVMValue:
        """Return a new array, 0 if no memory is left."""
        f = self.f
        zero = f.value(0, "i64")
        number, offset = f.load(row, "i64"), f.load(f.offset(row, 8), "i64")
        owner, start = f.variable("ptr", 0), f.variable("ptr", 0)

        def in_block() -> None:
            owner.set(f.load(f.offset(self._blocks, number, "ptr"), "ptr"))
            start.set(self.block_start(owner.get()))

        def in_argument() -> None:
            held = f.load(f.offset(self._storages, number ^ -1, "ptr"), "ptr")
            f.if_else(self.is_storage(held), lambda: in_storage(held), lambda: in_bytes(held))

        def in_bytes(held: LLVMValue) -> None:
            start.set(f.offset(held, numpy_layout.BYTES_DATA_OFFSET))
            owner.set(held)

        def in_storage(held: LLVMValue) -> None:
            start.set(self.slot_address(held, "storage.address"))
            owner.set(f.load(f.offset(held, self.type_word("storage.owner")), "ptr"))
            # The owner of a part is no block that a program may overwrite from its start.
            part = f.load(f.offset(row, 48), "i64").is_("ne", 0)
            with f.when(part & (self.is_storage(owner.get()) ^ 1)):
                owner.set(held)

        f.if_else(number.is_("sge", 0), in_block, in_argument)
        shape, dtype, signature, sharding = (
            f.load(f.offset(row, 8 * each), "ptr") for each in range(2, 6)
        )
        place = f.offset(start.get(), offset)
        storage = self.new_storage(place, owner.get(), shape, dtype)
        result = f.variable("ptr", 0)
        with f.when(storage.is_("ne", 0)):
            array = f.call("PyType_GenericAlloc", [self.type_word("array", "ptr"), zero], "ptr")

            def fill() -> None:
                f.store(storage, f.offset(array, self.type_word("held")))
                empty = python_object(f, "empty_text")
                for name, given in (
                    ("signature", signature), ("sharding", sharding), ("_parts", self.none),
                    ("_whole", self.none), ("_gone", empty),
                ):  # fmt: skip
                    self.set_slot(array, name, given)
                result.set(array)

            f.if_else(array.is_("ne", 0), fill, lambda: emit_decref(f, storage))
        return result.get()


class _InvokeFunction(ObjectAccess):
    """The instructions of `fly`."""

    def __init__(self, module: LLVMModule) -> None:
        params = ["ptr", "ptr", "ptr", "i64", "ptr", "i1"]
        f = LLVMFunction(module, "fly", params, "ptr", "nounwind noinline", internal=True)
        self._header, leaves, rows, self._count, given, single_result = f.params
        super().__init__(f, launch_word(f, self._header, "facts", "ptr"))
        self._blocks = self.word("blocks")
        slots, template = self.word("slots"), self.pointer("template")
        self._answer = f.variable("ptr", 0)
        self._bases = f.emit(f"alloca i64, i64 {slots + 1}, align 64", "ptr")
        self._storages = f.emit(f"alloca ptr, i64 {self._count + 1}, align 64", "ptr")
        self._scalar_cells = f.emit(f"alloca i64, i64 {self._count + 1}, align 64", "ptr")
        self._result_blocks = f.emit(f"alloca ptr, i64 {self._blocks + 1}, align 64", "ptr")
        with f.loop(0, slots) as k:
            f.store(f.load(f.offset(template, k, "i64"), "i64"), f.offset(self._bases, k, "i64"))
        good = self._read(leaves, rows)

        def nothing() -> None:
            emit_incref(f, self.none)
            self._answer.set(self.none)

        f.if_else(good.get(), lambda: self._run(rows, given, single_result), nothing)
        f.ret(self._answer.get())

    def word(self, name: str) -> LLVMValue:
        return launch_word(self.f, self._header, name)

    def pointer(self, name: str) -> LLVMValue:
        return launch_word(self.f, self._header, name, "ptr")

    def _read(self, leaves: LLVMValue, rows: LLVMValue) -> StackVariable:
        """Find the addresses of the arguments; return whether all arguments are supported."""
        f = self.f
        array, storage = self.type_word("array", "ptr"), self.type_word("storage", "ptr")
        good, k = f.variable("i1", 1), f.variable("i64", 0)
        self._has_imports = f.variable("i1", 0)
        with f.while_(lambda: k.get().is_("slt", self._count) & good.get()):
            number = k.get()
            row = f.offset(rows, number * (8 * ROW_WORDS))
            slot, kind, which = (f.load(f.offset(row, 8 * each), "i64") for each in (0, 1, 3))
            leaf = f.load(f.offset(leaves, which, "ptr"), "ptr")
            held, place = f.variable("ptr", leaf), f.variable("ptr", 0)

            def of_array(leaf: LLVMValue = leaf, row: LLVMValue = row) -> None:
                good.set(type_of(f, leaf).is_("eq", array))
                with f.when(good.get()):
                    held.set(f.load(f.offset(leaf, self.type_word("held")), "ptr"))
                    good.set(type_of(f, held.get()).is_("eq", storage))
                    with f.when(good.get()):
                        place.set(self.slot_address(held.get(), "storage.address"))
                        expected_shape = f.load(f.offset(row, 16), "ptr")
                        with f.when(expected_shape.is_("ne", 0)):
                            good.set(self._same_shape(held.get(), expected_shape))

            def of_number(
                leaf: LLVMValue = leaf, kind: LLVMValue = kind, number: LLVMValue = number
            ) -> None:
                cell = f.offset(self._scalar_cells, number, "i64")
                place.set(cell)
                good.set(f.call("write_number", [leaf, kind, cell], "i1"))

            def of_constant(row: LLVMValue = row) -> None:
                place.set(f.load(f.offset(row, 16), "ptr"))
                held.set(self.none)

            def from_foreign(leaf: LLVMValue = leaf, kind: LLVMValue = kind) -> None:
                data = f.load(f.offset(leaf, numpy_layout.DATA_OFFSET), "ptr")
                a_number = kind.is_("eq", ARGUMENT_KINDS.index("numpy"))
                place.set(f.select(a_number, data, f.offset(leaf, numpy_layout.BYTES_DATA_OFFSET)))

            def from_import() -> None:
                self._has_imports.set(f.value(1, "i1"))

            def of_memory(
                kind: LLVMValue = kind,
                from_foreign: Callable[[], None] = from_foreign,
                from_import: Callable[[], None] = from_import,
            ) -> None:
                f.if_else(
                    kind.is_("eq", ARGUMENT_KINDS.index("entering")), from_import, from_foreign
                )

            def not_constant(
                kind: LLVMValue = kind,
                of_number: Callable[[], None] = of_number,
                of_memory: Callable[[], None] = of_memory,
            ) -> None:
                f.if_else(kind.is_("sle", ARGUMENT_KINDS.index("bytes")), of_memory, of_number)

            def of_other(
                kind: LLVMValue = kind,
                not_constant: Callable[[], None] = not_constant,
                of_constant: Callable[[], None] = of_constant,
            ) -> None:
                f.if_else(
                    kind.is_("eq", ARGUMENT_KINDS.index("constant")), of_constant, not_constant
                )

            f.if_else(kind.is_("eq", ARGUMENT_KINDS.index("array")), of_array, of_other)
            with f.when(slot.is_("sge", 0)):
                f.store(place.get(), f.offset(self._bases, slot, "ptr"))
            f.store(held.get(), f.offset(self._storages, number, "ptr"))
            k.set(number + 1)
        return good

    def _same_shape(self, storage: LLVMValue, expected_shape: LLVMValue) -> LLVMValue:
        f = self.f
        shape = f.load(f.offset(storage, self.type_word("storage.shape")), "ptr")
        same = f.variable("i1", shape.is_("eq", expected_shape))
        with f.when(same.get() ^ 1):
            equal = f.value(2, "i32")
            found = f.call("PyObject_RichCompareBool", [shape, expected_shape, equal], "i32")
            same.set(found.is_("eq", 1))
        return same.get()

    def _import_arrays(self, rows: LLVMValue) -> LLVMValue:
        """Replace arrays to import by storages of their own; return whether all imports
        succeeded."""
        f = self.f
        good, k = f.variable("i1", 1), f.variable("i64", 0)
        with f.while_(lambda: k.get().is_("slt", self._count) & good.get()):
            row = f.offset(rows, k.get() * (8 * ROW_WORDS))
            kind = f.load(f.offset(row, 8), "i64")
            with f.when(kind.is_("eq", ARGUMENT_KINDS.index("entering"))):
                place = f.offset(self._storages, k.get(), "ptr")
                array, entry = f.load(place, "ptr"), f.load(f.offset(row, 16), "ptr")
                storage = f.call("enter", [self.facts, entry, array], "ptr")
                good.set(storage.is_("ne", 0))
                with f.when(good.get()):
                    f.store(storage, place)
                    emit_decref(f, array)
                    slot = f.load(row, "i64")
                    with f.when(slot.is_("sge", 0)):
                        address = self.slot_address(storage, "storage.address")
                        f.store(address, f.offset(self._bases, slot, "ptr"))
            k.set(k.get() + 1)
        return good.get()

    def _run(self, rows: LLVMValue, given: LLVMValue, alone: LLVMValue) -> None:
        """Allocate memory, run the program, and make the results."""
        f = self.f
        # Another thread may delete an array meanwhile.
        with f.loop(0, self._count) as k:
            emit_incref(f, f.load(f.offset(self._storages, k, "ptr"), "ptr"))
        got, good = f.variable("i64", 0), f.variable("i1", 1)
        with f.when(self._has_imports.get()):
            good.set(self._import_arrays(rows))
            with f.when(good.get() ^ 1):
                # Python repeats the import and raises its error.
                f.call("PyErr_Clear", [])
                emit_incref(f, self.none)
                self._answer.set(self.none)
        with f.while_(lambda: got.get().is_("slt", self._blocks) & good.get()):
            block = f.variable("ptr", 0)

            def old(block: StackVariable = block) -> None:
                block.set(f.load(f.offset(given, got.get(), "ptr"), "ptr"))
                emit_incref(f, block.get())

            def new(block: StackVariable = block) -> None:
                row = f.offset(self.pointer("sizes"), got.get() * (8 * SIZE_ROW_WORDS))
                block.set(self.new_block(row))

            f.if_else(given.is_("ne", 0), old, new)
            f.store(block.get(), f.offset(self._result_blocks, got.get(), "ptr"))
            good.set(block.get().is_("ne", 0))
            got.set(got.get() + good.get().to("i64", "zext"))
        with f.when(good.get()):
            places = self.pointer("places")
            with f.loop(0, self.word("placed")) as k:
                row = f.offset(places, k * (8 * PLACE_WORDS))
                number = f.load(f.offset(row, 8), "i64")
                start = self.block_start(
                    f.load(f.offset(self._result_blocks, number, "ptr"), "ptr")
                )
                where = f.offset(start, f.load(f.offset(row, 16), "i64"))
                f.store(where, f.offset(self._bases, f.load(row, "i64"), "ptr"))
            program = self.pointer("program")
            with f.when(program.is_("ne", 0)):
                good.set(f.call("run", [program, self._bases], "i1"))
            with f.when(good.get()):
                f.if_else(alone, self._return_single, self._return_list)
        with f.loop(0, got.get()) as k:
            emit_decref(f, f.load(f.offset(self._result_blocks, k, "ptr"), "ptr"))
        with f.loop(0, self._count) as k:
            emit_decref(f, f.load(f.offset(self._storages, k, "ptr"), "ptr"))

    def _make_array(self, row: LLVMValue) -> LLVMValue:
        return self.f.call("make", [self.facts, self._result_blocks, self._storages, row], "ptr")

    def _return_single(self) -> None:
        self._answer.set(self._make_array(self.pointer("made")))

    def _return_list(self) -> None:
        """Return a list of arrays, 0 if no memory is left."""
        f = self.f
        count, table = self.word("results"), self.pointer("made")
        result = self._answer
        result.set(f.call("PyList_New", [count], "ptr"))
        k = f.variable("i64", 0)
        with f.while_(lambda: k.get().is_("slt", count) & result.get().is_("ne", 0)):
            row = f.offset(table, k.get() * (8 * RESULT_WORDS))
            array = self._make_array(row)

            def keep(array: LLVMValue = array) -> None:
                f.call("PyList_SetItem", [result.get(), k.get(), array], "i32")

            def give_up() -> None:
                emit_decref(f, result.get())
                result.set(f.value(0, "ptr"))

            f.if_else(array.is_("ne", 0), keep, give_up)
            k.set(k.get() + 1)
