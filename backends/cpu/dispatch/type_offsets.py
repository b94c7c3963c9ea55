"""The types of arrays, storages and blocks, and the offsets of their slots, for native code."""

from shardir.backends.cpu.codegen.llvm_text import LLVMFunction, LLVMValue
from shardir.backends.cpu.dispatch import small_blocks as small
from shardir.backends.cpu.dispatch.python_api import (
    emit_decref,
    emit_incref,
    python_object,
    type_of,
)

ARRAY_SLOTS = ("signature", "sharding", "held", "_parts", "_whole", "_gone")
STORAGE_SLOTS = ("address", "owner", "shape", "dtype", "_array")
BLOCK_SLOTS = ("address",)

TYPE_OFFSET_WORDS = (
    "array", *ARRAY_SLOTS, "storage", *(f"storage.{name}" for name in STORAGE_SLOTS), "block",
    "small",
)  # fmt: skip
"""The words that describe arrays, storages and blocks: types, and offsets of slots."""
SIZE_ROW_WORDS = 4
"""The words of a block size: free list, bytes, the bytes as a Python object, fallback allocator."""


class ObjectAccess:
    """Emits instructions that access arrays, storages and blocks."""

    def __init__(self, f: LLVMFunction, facts: LLVMValue) -> None:
        self.f, self.facts = f, facts
        self.none = python_object(f, "none")

    def type_word(self, name: str, type: str = "i64") -> LLVMValue:
        return self.f.load(self.f.offset(self.facts, 8 * TYPE_OFFSET_WORDS.index(name)), type)

    def block_start(self, block: LLVMValue) -> LLVMValue:
        """Return the address of a block's memory."""
        f = self.f
        place = f.variable("ptr", 0)
        f.if_else(
            type_of(f, block).is_("eq", self.type_word("small", "ptr")),
            lambda: place.set(f.load(f.offset(block, small.ADDRESS_OFFSET), "ptr")),
            lambda: place.set(self.slot_address(block, "block")),
        )
        return place.get()

    def set_slot(self, target: LLVMValue, name: str, given: LLVMValue) -> None:
        emit_incref(self.f, given)
        self.f.store(given, self.f.offset(target, self.type_word(name)))

    def is_storage(self, held: LLVMValue) -> LLVMValue:
        return type_of(self.f, held).is_("eq", self.type_word("storage", "ptr"))

    def slot_address(self, value: LLVMValue, name: str) -> LLVMValue:
        number = self.f.load(self.f.offset(value, self.type_word(name)), "ptr")
        return self.f.call("PyLong_AsVoidPtr", [number], "ptr")

    def new_storage(
        self, address: LLVMValue, owner: LLVMValue, shape: LLVMValue, dtype: LLVMValue
    ) -> LLVMValue:
        """Make a storage of memory that `owner` keeps alive; 0 if no memory is left."""
        f = self.f
        zero = f.value(0, "i64")
        storage = f.call("PyType_GenericAlloc", [self.type_word("storage", "ptr"), zero], "ptr")
        result = f.variable("ptr", 0)
        with f.when(storage.is_("ne", 0)):
            number = f.call("PyLong_FromVoidPtr", [address], "ptr")

            def fill() -> None:
                f.store(number, f.offset(storage, self.type_word("storage.address")))
                for name, given in (
                    ("owner", owner), ("shape", shape), ("dtype", dtype), ("_array", self.none),
                ):  # fmt: skip
                    self.set_slot(storage, f"storage.{name}", given)
                result.set(storage)

            f.if_else(number.is_("ne", 0), fill, lambda: emit_decref(f, storage))
        return result.get()

    def new_block(self, row: LLVMValue) -> LLVMValue:
        """Allocate a block of a size row, from its free list or by Python; 0 if Python raised."""
        f = self.f
        home = f.load(row, "ptr")
        block = f.variable("ptr", 0)
        with f.when(home.is_("ne", 0)):
            block.set(f.call("pop", [home, f.load(f.offset(row, 8), "i64")], "ptr"))
        with f.when(block.get().is_("eq", 0)):
            size, more = (f.load(f.offset(row, place), "ptr") for place in (16, 24))
            block.set(f.call("PyObject_CallOneArg", [more, size], "ptr"))
        return block.get()
