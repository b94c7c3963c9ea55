"""Run the suite of emitted programs on a GPU with compiled kernels.

`python -m tests.backends.gpu.run_on_gpu` runs the programs; `make gpu` also runs the kernel tests.
Each program runs with all four devices of its mesh on that GPU, and also with one device if its
text permits that.
"""

import argparse
import os
import re
import sys
import traceback
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import shardir as sd
from shardir.backends.emission import Emission
from shardir.frontend.dispatch.stages.emission import make_emission, write_files
from shardir.ir.module import Module
from shardir.text.parser import parse
from shardir.text.printer import print_module
from tests.backends.gpu.four_process_run import RUNTIME, load
from tests.backends.gpu.programs import PROGRAMS
from tests.backends.gpu.test_programs import differing_results


def with_one_device(module: Module) -> Module | None:
    """Return the program on a mesh whose axes have size 1, or `None` if it depends on the size."""
    if not module.meshes:
        return None
    if any(op.name == "manual_computation" or op.spec.spmd for op in module.main.body.walk()):
        return None
    text = print_module(module)
    if ":(" in text:  # A sub-axis has no size 1.
        return None
    meshes, functions = text.split("\n\n", 1)
    return parse("\n\n".join([re.sub(r"=\d+", "=1", meshes), functions]))


def run_error(emission: Emission, folder: Path, kind: str) -> str:
    """Return the error of a program run on devices of a kind, or an empty string."""
    write_files(emission, "gpu", folder, {})
    if RUNTIME not in sys.modules:
        sys.path.insert(0, str(folder))
    local, worker = (import_module(f"{RUNTIME}.{name}") for name in ("threads", "worker"))
    (path,) = folder.glob("*.py")
    try:
        module = load(path)
        run_options = worker.RunOptions(results=folder / "made")

        def work(comm: Any) -> Any:
            return worker.Worker(module.main, module.PROGRAM, comm, run_options).work()

        local.run_threads(module.PROGRAM.devices, [kind] * emission.mesh.size, work)
    except Exception:
        return traceback.format_exc()
    return differing_results(emission, folder / "made")


def run_suite(kind: str, selected: list[str]) -> int:
    """Run all or the selected programs, print each outcome, and return the number of failures."""
    failed = 0
    with TemporaryDirectory() as root, sd.cpu_devices(4):
        for name, make in PROGRAMS.items():
            if selected and name not in selected:
                continue
            lowered = make()
            emissions = [lowered.emission("gpu", selftest=True)]
            single = with_one_device(lowered.module)
            if single is not None:
                emissions.append(make_emission(single, "gpu", lowered.naming, samples=True))
            for emission in emissions:
                folder = Path(root) / f"{name}_{emission.mesh.size}"
                error = run_error(emission, folder, kind)
                failed += bool(error)
                print(
                    f"{'WRONG' if error else 'ok   '} {name} on {emission.mesh.size}", error or ""
                )
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="the torch device")
    parser.add_argument("programs", nargs="*", help="names of programs (default: all)")
    options = parser.parse_args()
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU on this machine; run this on one with a GPU")
    os.environ.pop("TRITON_INTERPRET", None)
    if failed := run_suite(options.device, options.programs):
        raise SystemExit(f"{failed} programs went wrong")


if __name__ == "__main__":
    main()
