"""What a block of memory is to Python: an address, a size, and its bytes for NumPy.

There are two kinds: `Block`, for large ones, and the type of machine code of `blocks`, for small
ones, which `become_block` gives the same attributes.
"""

from typing import Any, final

from shardir.backends.cpu.native.runtime.zeroing import show


@final
class Block:
    """`nbytes` of memory at `address`, 64-byte aligned, for as long as somebody refers to it.

    What it holds at first is not defined. `np.asarray(block)` are its bytes, and keep it alive.
    """

    __slots__ = ("_home", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, home: list[int]) -> None:
        self.address, self.nbytes, self._home = address, nbytes, home

    def __del__(self) -> None:
        self._home.append(self.address)

    def __reduce__(self) -> str:
        """A second object for the same memory would give it back while the first is in use."""
        return _refuse_copies(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return _bytes(self)


def become_block(kind: type) -> None:
    """Give a type of machine code what a `Block` has, and `show`."""
    kind.__array_interface__ = property(_shown_bytes)  # type: ignore[attr-defined]
    kind.show = show  # type: ignore[attr-defined]
    kind.__reduce__ = _refuse_copies  # type: ignore[assignment]


def _bytes(block: Block) -> dict[str, Any]:
    return {
        "data": (block.address, False),
        "shape": (block.nbytes,),
        "typestr": "|u1",
        "version": 3,
    }


def _shown_bytes(block: Block) -> dict[str, Any]:
    """The bytes of a block of machine code, for who may write into them."""
    show(block)
    return _bytes(block)


def _refuse_copies(_: object) -> str:
    raise TypeError("a block is memory of one owner; copy what it holds")
