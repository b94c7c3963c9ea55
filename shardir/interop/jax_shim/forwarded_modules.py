"""Modules of the JAX package that only use public names and therefore run on shardir.

Their files are executed as part of a program in which `import jax` imports shardir. JAX must be
installed, but it is not imported.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

FORWARDED_MODULES = frozenset(["jax.example_libraries.optimizers", "jax.example_libraries.stax"])
"""The forwarded modules."""


Execute = Callable[[CodeType, dict[str, Any]], None]
"""A function that runs code of a program in a namespace."""


def load_forwarded(full: str, execute: Execute) -> ModuleType | None:
    """Return the module `full` on top of shardir; `None` if JAX or the module is not installed."""
    found = find_spec("jax")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent.joinpath(*full.split(".")[1:]).with_suffix(".py")
    if not path.is_file():
        return None
    module = ModuleType(full)
    module.__dict__["__file__"] = str(path)
    code = compile(path.read_bytes(), str(path), "exec")
    execute(code, module.__dict__)
    return module
