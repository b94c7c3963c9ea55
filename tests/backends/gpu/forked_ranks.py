"""Processes that speak through gloo: forked after torch is imported, so that they start quickly.

`python -m tests.backends.gpu.forked_ranks` does all exchanges on four of them, and checks each.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch._dynamo  # Dispatch modes import it when they are first used: not in every process.
import torch.distributed as dist

from shardir.backends.gpu.vendored.device_mesh import Axes, Mesh
from shardir.backends.gpu.vendored.distributed import DistComm

SECONDS = 120


def fork_ranks(mesh: Mesh, groups: Sequence[Axes], work: Callable[[DistComm], None]) -> bool:
    """Do `work` on a process for each device of the mesh; whether none of them failed.

    To be called in a process that has not used torch's threads yet.
    """
    with tempfile.TemporaryDirectory() as folder:
        children = [_fork(rank, mesh, groups, work, f"{folder}/store") for rank in range(mesh.size)]
        codes = [os.waitpid(child, 0)[1] for child in children]
    return not any(codes)


def _fork(
    rank: int, mesh: Mesh, groups: Sequence[Axes], work: Callable[[DistComm], None], store: str
) -> int:
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, mesh.size),
            rank=rank,
            world_size=mesh.size,
            timeout=timedelta(seconds=SECONDS),
        )
        work(DistComm(mesh, rank, "cpu", groups))
        dist.barrier()
    except BaseException:
        print(f"process {rank}:\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    from shardir.backends.gpu.vendored.arrays import to_numpy, to_torch
    from tests.backends.gpu.collective_cases import CASES, MESH, check_one, part_of
    from tests.backends.gpu.gpu_op_restrictions import as_on_gpus

    groups = (("a",), ("b",), ("a", "b"))

    def work(comm: DistComm) -> None:
        for comm.staged in (False, True):
            for case in CASES:
                x = to_torch(part_of(case, comm.rank), case.dtype)
                kept = to_numpy(x).tobytes()
                try:
                    with as_on_gpus():
                        made = case.call(comm, x)
                    check_one(case, comm.rank, made)
                    assert kept == to_numpy(x).tobytes(), "the operand changed"
                except Exception as error:
                    raise AssertionError(f"{case}: {error!r}") from error

    if not fork_ranks(Mesh(dict(MESH.axes)), groups, work):
        raise SystemExit(1)
    print(f"{len(CASES)} exchanges")


if __name__ == "__main__":
    main()
