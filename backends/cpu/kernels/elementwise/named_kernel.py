"""Name loop kernels by the parameters of their text."""

from collections.abc import Callable
from hashlib import sha256
from typing import TypeVar

from shardir.backends.cpu.codegen.llvm_text import LLVMModule
from shardir.backends.cpu.kernel_api import Kernel
from shardir.backends.cpu.kernels.math import library

KernelShape = TypeVar("KernelShape")


def make_named_kernel(
    word: str, shape: KernelShape, write: Callable[[KernelShape, str], LLVMModule]
) -> Kernel:
    """Return the kernel of `write(shape, name)`; its name contains `word` and a hash of `shape`."""
    name = f"{word}_{sha256(repr(shape).encode()).hexdigest()[:24]}"
    module = write(shape, name)
    text = module.text()
    return Kernel(name, lambda: text, library.imported_symbols(module))
