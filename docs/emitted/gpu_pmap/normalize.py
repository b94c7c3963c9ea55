"""normalize on 4 devices, in torch and Triton.

Each device of the mesh [i=4] runs it on its part:

    argument  whole        on each device
    x         f32[4@i, 6]  f32[1, 6]

    result    whole        on each device
    result.0  f32[4@i, 6]  f32[1, 6]
    result.1  f32[4@i, 6]  f32[1, 6]
    result.2  i32[4@i]     i32[1]

Run it:

    python normalize.py --arguments DIR --results DIR

with the devices as threads of one process, or with a process for each:

    torchrun --nproc-per-node=4 normalize.py --arguments DIR --results DIR
    srun --ntasks=4 python normalize.py --arguments DIR --results DIR
    mpiexec -n 4 python normalize.py --arguments DIR --results DIR

It needs torch 2.11, Triton 3.6, or later ones, and the files beside it.
`python normalize.py --help` tells the rest; it is written by shardir.
"""

import os

try:
    import torch
    import triton
    import triton.language as tl

    from shardir_runtime import Program, Tensor, run
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    raise SystemExit(
        f"error: {error.name} is not installed; this program needs torch, triton and numpy "
        "(pip install torch triton numpy), and the folder shardir_runtime beside it"
    ) from None

torch.backends.cuda.matmul.fp32_precision = "ieee"
torch.backends.cudnn.conv.fp32_precision = "ieee"

# On CPUs groups are computed by their references, unless Triton interprets kernels.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


# Groups: a Triton kernel, the same in torch, and the launch


@triton.jit
def compute_v3_kernel(x_ptr, v3_ptr, BLOCK: tl.constexpr):
    """mul, sum over 6

    %0 = reshape(%x) : f32[6]
    %9 = mul(%0, %0) : f32[6]
    %3 = sum(%9, dims=[0]) : f32[]
    yield %3
    """
    at = tl.arange(0, BLOCK)
    mask = at < 6
    x = tl.load(x_ptr + at, mask)
    v9 = x * x
    v3 = tl.sum(tl.where(mask, v9, 0.0), 0)
    tl.store(v3_ptr, v3)


def compute_v3_reference(x):
    """The same in plain torch."""
    v0 = x.reshape(6)  # reshape: f32[6]
    v9 = v0 * v0  # mul: f32[6]
    v3 = v9.sum(0)  # sum: f32[]
    return v3


def compute_v3(x):
    if not (x.is_cuda or INTERPRETED):
        return compute_v3_reference(x)
    x = x.contiguous()
    v3 = torch.empty((), dtype=torch.float32, device=x.device)
    compute_v3_kernel[(1,)](x, v3, BLOCK=8, num_warps=1, enable_fp_fusion=False)
    return v3


# The program of one device


def main(comm, x):
    v1 = x.reshape(6)  # reshape: f32[6]
    v3 = compute_v3(x)  # fused: f32[]
    v4 = comm.all_reduce(v3, op="add", axes=("i",))  # all-reduce: f32[]
    v11 = x.reshape(6)  # reshape: f32[6]
    v16 = v4.expand(6)  # broadcast: f32[6]
    v6 = v11 / v16  # div: f32[6]
    v8 = comm.axis_index(("i",))  # axis-index: i32[]
    v12 = v6.reshape(1, 6)  # reshape: f32[1, 6]
    v7 = comm.all_reduce(v1, op="max", axes=("i",))  # all-reduce: f32[6]
    v13 = v7.reshape(1, 6)  # reshape: f32[1, 6]
    v14 = v8.reshape(1)  # reshape: i32[1]
    return (v12, v13, v14)


# What it takes and returns


PROGRAM = Program(
    title="normalize",
    mesh={"i": 4},
    arguments=(
        Tensor("x", "f32", (4, 6), (("i",), ())),
    ),
    results=(
        Tensor("result.0", "f32", (4, 6), (("i",), ())),
        Tensor("result.1", "f32", (4, 6), (("i",), ())),
        Tensor("result.2", "i32", (4,), (("i",),)),
    ),
    groups=(("i",),),
    file=__file__,
)


if __name__ == "__main__":
    run(main, PROGRAM)
