"""Processes that communicate through gloo, forked after the import of torch for a short start-up.

`python -m tests.backends.gpu.forked_ranks` runs and checks all collective cases on four processes.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch._dynamo  # imported here once; dispatch modes import it at first use
import torch.distributed as dist

from shardir.backends.gpu.vendored.device_mesh import Axes, Mesh
from shardir.backends.gpu.vendored.distributed import DistComm

TIMEOUT_SECONDS = 120


def fork_ranks(mesh: Mesh, groups: Sequence[Axes], work: Callable[[DistComm], None]) -> bool:
    """Run `work` on one process per device of the mesh; return whether all processes succeeded.

    The calling process must not have used the threads of torch before.
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
            timeout=timedelta(seconds=TIMEOUT_SECONDS),
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
    from tests.backends.gpu.collective_cases import CASES, MESH, check_device, operand_of
    from tests.backends.gpu.gpu_op_restrictions import restrict_to_gpu_kernels

    groups = (("a",), ("b",), ("a", "b"))

    def work(comm: DistComm) -> None:
        for comm.staged in (False, True):
            for case in CASES:
                x = to_torch(operand_of(case, comm.rank), case.dtype)
                operand_bytes = to_numpy(x).tobytes()
                try:
                    with restrict_to_gpu_kernels():
                        result = case.call(comm, x)
                    check_device(case, comm.rank, result)
                    assert operand_bytes == to_numpy(x).tobytes(), "the operand changed"
                except Exception as error:
                    raise AssertionError(f"{case}: {error!r}") from error

    if not fork_ranks(Mesh(dict(MESH.axes)), groups, work):
        raise SystemExit(1)
    print(f"{len(CASES)} collective cases")


if __name__ == "__main__":
    main()
