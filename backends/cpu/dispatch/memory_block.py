"""The Python interface of memory blocks: address, size, and bytes for NumPy.

There are two kinds: `MemoryBlock`, and `native.SmallBlock`, which the native tier allocates and
recycles without Python code, and which gets the same attributes here.
"""

from typing import Any, final

from shardir.backends.cpu.threads.zeroed_memory import mark_written
from shardir.backends.native import BlockFields, native


@final
class MemoryBlock(BlockFields):
    """`nbytes` of memory at `address`, 64-byte aligned, owned by this object.

    The initial contents are undefined. `np.asarray(block)` returns its bytes, and keeps it alive.
    """

    __slots__ = ("_home",)

    def __init__(self, address: int, nbytes: int, home: list[int]) -> None:
        self.address, self.nbytes, self._home = address, nbytes, home

    def __del__(self) -> None:
        self._home.append(self.address)

    def __reduce__(self) -> str:
        """Refuse a copy: a second object for the same memory would free it while the first is in
        use."""
        return _raise_not_copyable(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _array_interface(self)


def _array_interface(block: Any) -> dict[str, Any]:
    return {
        "data": (block.address, False),
        "shape": (block.nbytes,),
        "typestr": "|u1",
        "version": 3,
    }


def _writable_array_interface(block: Any) -> dict[str, Any]:
    """Return the array interface of a small block, which callers may write to."""
    mark_written(block)
    return _array_interface(block)


def _raise_not_copyable(_: object) -> str:
    raise TypeError("a memory block cannot be copied; copy its contents instead")


if native is not None:
    kind: Any = native.SmallBlock
    kind.__array_interface__ = property(_writable_array_interface)
    kind.show = mark_written
    kind.__reduce__ = _raise_not_copyable
