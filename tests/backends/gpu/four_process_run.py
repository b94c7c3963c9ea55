"""Runs emitted programs on four processes: `python -m tests.backends.gpu.four_process_run FOLDER`.

Every folder inside is a program with its self-test. Programs for four devices run on all processes
at once, through gloo; then each process takes its share of all programs and runs it with devices
that are threads. What goes wrong is written to `FOLDER/errors.json`, by program.
"""

import json
import sys
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from shardir.backends.gpu.vendored.device_mesh import Mesh
from tests.backends.gpu.gpu_op_restrictions import as_on_gpus

MESH = {"ranks": 4}
RUNTIME = "shardir_runtime"


def load(path: Path) -> Any:
    """The module of a program."""
    spec = spec_from_file_location(f"program_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(root: Path) -> None:
    from tests.backends.gpu.forked_ranks import fork_ranks

    places = sorted(path for path in root.glob("*/*.py"))
    # What all processes need is imported before they part.
    sys.path.insert(0, str(places[0].parent))
    import_module(RUNTIME)
    if not fork_ranks(Mesh(MESH), (), lambda comm: _work(places, root, comm.rank)):
        raise SystemExit(1)
    errors: dict[str, str] = {}
    for file in sorted(root.glob("errors.*.json")):
        errors.update(json.loads(file.read_text("utf-8")))
    (root / "errors.json").write_text(json.dumps(errors), "utf-8")


def _work(places: list[Path], root: Path, rank: int) -> None:
    distributed, local, worker = (
        import_module(f"{RUNTIME}.{name}") for name in ("distributed", "threads", "worker")
    )
    errors: dict[str, str] = {}
    modules = {path: load(path) for path in places}
    for path, module in modules.items():
        program = module.PROGRAM
        if program.devices.size == MESH["ranks"]:
            wishes = worker.RunOptions(results=path.parent / "gloo")
            comm = distributed.DistComm(program.devices, rank, "cpu", program.groups)
            with as_on_gpus(reads=bool(program.no_graph)):
                worker.Worker(module.main, program, comm, wishes).work()
    for path in places[rank :: MESH["ranks"]]:
        module = modules[path]
        wishes = worker.RunOptions(results=path.parent / "threads")
        mesh = module.PROGRAM.devices

        def work(comm: Any, module: Any = module, wishes: Any = wishes) -> Any:
            with as_on_gpus(reads=bool(module.PROGRAM.no_graph)):
                return worker.Worker(module.main, module.PROGRAM, comm, wishes).work()

        try:
            local.run_threads(mesh, ["cpu"] * mesh.size, work)
        except Exception:
            errors[path.parent.name] = traceback.format_exc()
    (root / f"errors.{rank}.json").write_text(json.dumps(errors), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
