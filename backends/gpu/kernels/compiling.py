"""Compile kernels ahead of time, also for GPUs that are not present."""

import importlib.util
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

from shardir.backends.gpu.kernels.helpers import helper_functions
from shardir.backends.gpu.kernels.kernel import KernelLaunch, KernelText


def compile_ahead(kernel: KernelText, capability: int, form: str = "cubin") -> dict[str, bytes]:
    """Return the machine code of a group's kernels by name, for a compute capability such as 90.

    `form` is `cubin`, or an intermediate form in Triton's terms: `ptx`, `llir`, `ttgir`, `ttir`.
    Raises Triton's `CompilationError` for invalid text, and `RuntimeError` if Triton interprets
    kernels.
    """
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise RuntimeError("cannot compile kernels while TRITON_INTERPRET=1; unset it")
    with TemporaryDirectory() as folder:
        module = _import_text(_module_text(kernel), Path(folder) / "kernels_ahead.py")
        return {
            launch.function: _compile_launch(module, launch, capability, form)
            for launch in kernel.launches
        }


def _module_text(kernel: KernelText) -> str:
    """Return the text of the kernels and their helpers, without the launch."""
    imports = [line for line in kernel.imports if line != "import torch"]
    helpers = [helper_functions()[name] for name in kernel.helpers]
    return "\n\n\n".join(["\n".join(imports), *helpers, kernel.text]) + "\n"


def _import_text(text: str, path: Path) -> ModuleType:
    """Write the text to a file and import it: Triton reads the source of kernels from files."""
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = kept
    return module


def _compile_launch(module: ModuleType, launch: KernelLaunch, capability: int, form: str) -> bytes:
    """Compile a kernel as it is launched: with 16-byte aligned pointers, as torch
    allocates them.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {**launch.pointers, **dict.fromkeys(launch.constants, "constexpr")}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(launch.pointers))}
    source = ASTSource(getattr(module, launch.function), signature, dict(launch.constants), aligned)
    options = {"num_warps": launch.num_warps, **launch.options}
    target = GPUTarget("cuda", capability, 32)
    code: bytes | str = triton.compile(source, target=target, options=options).asm[form]
    return code if isinstance(code, bytes) else code.encode()
