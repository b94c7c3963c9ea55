"""The types of arrays, storages and blocks, and the offsets of their slots, for native code."""

from shardir.backends.cpu.native.llvm.text import Function, Value
from shardir.backends.cpu.native.runtime import blocks as small
from shardir.backends.cpu.native.runtime.python import python_object
from shardir.backends.cpu.native.runtime.references import drop, take, type_of

ARRAY_SLOTS = ("signature", "sharding", "held", "_parts", "_whole", "_gone")
STORAGE_SLOTS = ("address", "owner", "shape", "dtype", "_array")
BLOCK_SLOTS = ("address",)

FACTS = (
    "array", *ARRAY_SLOTS, "storage", *(f"storage.{name}" for name in STORAGE_SLOTS), "block",
    "small",
)  # fmt: skip
"""The words that describe arrays, storages and blocks: types, and offsets of slots."""
SIZE_WORDS = 4
"""The words of a block size: free list, bytes, the bytes as a Python object, fallback allocator."""


class Part:
    """Emits instructions that access arrays, storages and blocks."""

    def __init__(self, f: Function, facts: Value) -> None:
        self.f, self.facts = f, facts
        self.none = python_object(f, "none")

    def fact(self, name: str, type: str = "i64") -> Value:
        return self.f.load(self.f.offset(self.facts, 8 * FACTS.index(name)), type)

    def start(self, block: Value) -> Value:
        """Return the address of a block's memory."""
        f = self.f
        place = f.variable("ptr", 0)
        f.choose(
            type_of(f, block).is_("eq", self.fact("small", "ptr")),
            lambda: place.set(f.load(f.offset(block, small.ADDRESS), "ptr")),
            lambda: place.set(self.address(block, "block")),
        )
        return place.get()

    def set(self, target: Value, name: str, given: Value) -> None:
        take(self.f, given)
        self.f.store(given, self.f.offset(target, self.fact(name)))

    def is_storage(self, held: Value) -> Value:
        return type_of(self.f, held).is_("eq", self.fact("storage", "ptr"))

    def address(self, value: Value, name: str) -> Value:
        number = self.f.load(self.f.offset(value, self.fact(name)), "ptr")
        return self.f.call("PyLong_AsVoidPtr", [number], "ptr")

    def new_storage(self, address: Value, owner: Value, shape: Value, dtype: Value) -> Value:
        """Make a storage of memory that `owner` keeps alive; 0 if no memory is left."""
        f = self.f
        zero = f.value(0, "i64")
        storage = f.call("PyType_GenericAlloc", [self.fact("storage", "ptr"), zero], "ptr")
        result = f.variable("ptr", 0)
        with f.when(storage.is_("ne", 0)):
            number = f.call("PyLong_FromVoidPtr", [address], "ptr")

            def fill() -> None:
                f.store(number, f.offset(storage, self.fact("storage.address")))
                for name, given in (
                    ("owner", owner), ("shape", shape), ("dtype", dtype), ("_array", self.none),
                ):  # fmt: skip
                    self.set(storage, f"storage.{name}", given)
                result.set(storage)

            f.choose(number.is_("ne", 0), fill, lambda: drop(f, storage))
        return result.get()

    def new_block(self, row: Value) -> Value:
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
