"""Execution of scripts that contain `import jax`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from shardir.interop.jax_shim.jax_config import program_settings
from shardir.interop.jax_shim.program import Program


def run_script(path: str | Path, arguments: Sequence[str] = ()) -> dict[str, object]:
    """Run the script at `path` with the JAX shim and return its global names.

    The script and the modules in its folder import shardir under the name `jax`. Its changes of
    settings, `sys.argv`, `sys.path` and `__main__` are undone afterwards.
    """
    file = Path(path).resolve()
    module = ModuleType("__main__")
    module.__dict__.update(__file__=str(path))
    program = Program(folder=file.parent)
    code = compile(file.read_bytes(), str(path), "exec")
    before = sys.argv, sys.path, sys.modules["__main__"]
    sys.argv, sys.path = [str(path), *arguments], [str(file.parent), *sys.path]
    sys.modules["__main__"] = module
    try:
        with program_settings({}), program.running():
            program.execute(code, module.__dict__)
    finally:
        sys.argv, sys.path, sys.modules["__main__"] = before
    return module.__dict__
