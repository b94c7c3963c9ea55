"""The suite of emitted programs on a GPU, its kernels compiled.

`python -m tests.backends.gpu.run_on_gpu` runs them; `make gpu` the tests of kernels as well. Each
program runs with the four devices of its mesh on that GPU, and, where it can be said of one device
too, with one.
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
from shardir.frontend.dispatch.emission import make_emission, write_files
from shardir.ir.module import Module
from shardir.text.parser import parse
from shardir.text.printer import print_module
from tests.backends.gpu.four_process_run import RUNTIME, load
from tests.backends.gpu.programs import PROGRAMS
from tests.backends.gpu.test_programs import compared


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


def wrong(emission: Emission, folder: Path, kind: str) -> str:
    """What is wrong with a program's results on devices of a kind; empty if nothing is."""
    write_files(emission, "gpu", folder, {})
    if RUNTIME not in sys.modules:
        sys.path.insert(0, str(folder))
    local, worker = (import_module(f"{RUNTIME}.{name}") for name in ("threads", "worker"))
    (path,) = folder.glob("*.py")
    try:
        module = load(path)
        wishes = worker.RunOptions(results=folder / "made")

        def work(comm: Any) -> Any:
            return worker.Worker(module.main, module.PROGRAM, comm, wishes).work()

        local.run_threads(module.PROGRAM.devices, [kind] * emission.mesh.size, work)
    except Exception:
        return traceback.format_exc()
    return compared(emission, folder / "made")


def suite(kind: str, chosen: list[str]) -> int:
    """Run all programs, or those chosen; tells of each, and returns how many went wrong."""
    failed = 0
    with TemporaryDirectory() as root, sd.cpu_devices(4):
        for name, make in PROGRAMS.items():
            if chosen and name not in chosen:
                continue
            lowered = make()
            emissions = [lowered.emission("gpu", selftest=True)]
            single = with_one_device(lowered.module)
            if single is not None:
                emissions.append(make_emission(single, "gpu", lowered.naming, samples=True))
            for emission in emissions:
                folder = Path(root) / f"{name}_{emission.mesh.size}"
                told = wrong(emission, folder, kind)
                failed += bool(told)
                print(f"{'WRONG' if told else 'ok   '} {name} on {emission.mesh.size}", told or "")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="what torch calls the device")
    parser.add_argument("programs", nargs="*", help="names of programs; otherwise all")
    options = parser.parse_args()
    import torch

    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU on this machine; run this on one with a GPU")
    os.environ.pop("TRITON_INTERPRET", None)
    if failed := suite(options.device, options.programs):
        raise SystemExit(f"{failed} programs went wrong")


if __name__ == "__main__":
    main()
