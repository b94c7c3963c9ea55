"""Name loop kernels by the parameters of their text."""

from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from shardir.backends.cpu.native.data import Kernel
from shardir.backends.cpu.native.llvm.text import Module
from shardir.backends.cpu.native.vector import library

Shape = TypeVar("Shape")


def written(word: str, shape: Shape, write: Callable[[Shape, str], Module]) -> Kernel:
    """Return the kernel of `write(shape, name)`; its name contains `word` and a hash of `shape`."""
    name = f"{word}_{sha256(repr(shape).encode()).hexdigest()[:24]}"
    module = write(shape, name)
    text = module.text()
    return Kernel(name, lambda: text, library.symbols_of(module))
