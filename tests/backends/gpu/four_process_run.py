"""Run emitted programs on four processes: `python -m tests.backends.gpu.four_process_run FOLDER`.

Every subfolder contains one program with its self-test. All four processes run each program for
four devices together through gloo; then the programs are divided between the processes, and each
process runs its programs with devices as threads. `FOLDER/errors.json` receives the errors by
program.
"""

import json
import sys
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from shardir.backends.gpu.vendored.device_mesh import Mesh
from tests.backends.gpu.gpu_op_restrictions import restrict_to_gpu_kernels

MESH = {"ranks": 4}
RUNTIME = "shardir_runtime"


def load(path: Path) -> Any:
    """Return the module of a program."""
    spec = spec_from_file_location(f"program_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(root: Path) -> None:
    from tests.backends.gpu.forked_ranks import fork_ranks

    paths = sorted(path for path in root.glob("*/*.py"))
    # Import shared modules once, before the fork.
    sys.path.insert(0, str(paths[0].parent))
    import_module(RUNTIME)
    if not fork_ranks(Mesh(MESH), (), lambda comm: _run_programs(paths, root, comm.rank)):
        raise SystemExit(1)
    errors: dict[str, str] = {}
    for file in sorted(root.glob("errors.*.json")):
        errors.update(json.loads(file.read_text("utf-8")))
    (root / "errors.json").write_text(json.dumps(errors), "utf-8")


def _run_programs(paths: list[Path], root: Path, rank: int) -> None:
    distributed, local, worker = (
        import_module(f"{RUNTIME}.{name}") for name in ("distributed", "threads", "worker")
    )
    errors: dict[str, str] = {}
    modules = {path: load(path) for path in paths}
    for path, module in modules.items():
        program = module.PROGRAM
        if program.devices.size == MESH["ranks"]:
            run_options = worker.RunOptions(results=path.parent / "gloo")
            comm = distributed.DistComm(program.devices, rank, "cpu", program.groups)
            with restrict_to_gpu_kernels(allow_host_reads=bool(program.no_graph)):
                worker.Worker(module.main, program, comm, run_options).work()
    for path in paths[rank :: MESH["ranks"]]:
        module = modules[path]
        run_options = worker.RunOptions(results=path.parent / "threads")
        mesh = module.PROGRAM.devices

        def work(comm: Any, module: Any = module, run_options: Any = run_options) -> Any:
            with restrict_to_gpu_kernels(allow_host_reads=bool(module.PROGRAM.no_graph)):
                return worker.Worker(module.main, module.PROGRAM, comm, run_options).work()

        try:
            local.run_threads(mesh, ["cpu"] * mesh.size, work)
        except Exception:
            errors[path.parent.name] = traceback.format_exc()
    (root / f"errors.{rank}.json").write_text(json.dumps(errors), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
