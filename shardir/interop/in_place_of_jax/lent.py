"""Libraries beside JAX, in its package, that are Python over public names: they run on shardir.

Their files are executed as part of a program whose `import jax` finds shardir. JAX is not imported
for it, but it has to be installed.
"""

from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

LENT = frozenset(["jax.example_libraries.optimizers", "jax.example_libraries.stax"])
"""The modules that can be had so."""


def lend(full: str) -> ModuleType | None:
    """The module `full` over shardir; `None` where JAX is not installed, or has it no longer."""
    # Programs import by what is looked up here.
    from shardir.interop.in_place_of_jax.programs import Program

    found = find_spec("jax")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent.joinpath(*full.split(".")[1:]).with_suffix(".py")
    if not path.is_file():
        return None
    module = ModuleType(full)
    module.__dict__["__file__"] = str(path)
    code = compile(path.read_bytes(), str(path), "exec")
    Program().execute(code, module.__dict__)
    return module
