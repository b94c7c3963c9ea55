"""choose on 4 devices, in torch and Triton.

Each device of the mesh [data=2, model=2] runs it on its part:

    argument  whole                 on each device
    x         f32[4@data, 6@model]  f32[2, 3]
    choice    i32[]                 i32[]

    result      whole                 on each device
    result.0    f32[4@data, 6@model]  f32[2, 3]
    result.1.0  i32[]                 i32[]
    result.1.1  f32[4@data, 6@model]  f32[2, 3]

Run it:

    python choose.py --arguments DIR --results DIR

with the devices as threads of one process, or with a process for each:

    torchrun --nproc-per-node=4 choose.py --arguments DIR --results DIR
    srun --ntasks=4 python choose.py --arguments DIR --results DIR
    mpiexec -n 4 python choose.py --arguments DIR --results DIR

It needs torch 2.11, Triton 3.6, or later ones, and the files beside it.
`python choose.py --help` tells the rest; it is written by shardir.
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
def maximum(x, y):
    """The larger; NaN if either is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def compute_v19_part_kernel(carry_1_ptr, v19_part_ptr, BLOCK: tl.constexpr):
    """abs, max over 2x3

    %33 = abs(%carry.1) : f32[2, 3]
    %19.part = max(%33, dims=[0, 1]) : f32[]
    yield %19.part
    """
    at = tl.arange(0, BLOCK)
    mask = at < 6
    carry_1 = tl.load(carry_1_ptr + at, mask)
    v33 = tl.abs(carry_1)
    v19_part = tl.reduce(tl.where(mask, v33, float("-inf")), 0, maximum)
    tl.store(v19_part_ptr, v19_part)


def compute_v19_part_reference(carry_1):
    """The same in plain torch."""
    v33 = torch.abs(carry_1)  # abs: f32[2, 3]
    v19_part = v33.amax((0, 1))  # max: f32[]
    return v19_part


def compute_v19_part(carry_1):
    if not (carry_1.is_cuda or INTERPRETED):
        return compute_v19_part_reference(carry_1)
    carry_1 = carry_1.contiguous()
    v19_part = torch.empty((), dtype=torch.float32, device=carry_1.device)
    compute_v19_part_kernel[(1,)](carry_1, v19_part, BLOCK=8, num_warps=1, enable_fp_fusion=False)
    return v19_part


# The program of one device


def main(comm, x, choice):
    device = comm.device
    v1 = torch.full((), 0, dtype=torch.int32, device=device)  # constant: i32[]
    v2 = choice.clamp(0, 2)  # clamp: i32[]
    branch = v2.item()  # case: which branch
    if branch == 0:
        picked = torch.sin(x)  # sin: f32[2, 3]
    elif branch == 1:
        picked = x * x  # mul: f32[2, 3]
    else:
        v4_part = x.sum((0, 1))  # sum: f32[]
        v4 = comm.all_reduce(v4_part, op="add", axes=("data", "model"))  # all-reduce: f32[]
        v26 = torch.full((), 24.0, dtype=torch.float32, device=device)  # constant: f32[]
        v6 = v4 / v26  # div: f32[]
        v29 = v6.expand(2, 3)  # broadcast: f32[2, 3]
        picked = x - v29  # sub: f32[2, 3]
    v9_part = x.sum((0, 1))  # sum: f32[]
    v9 = comm.all_reduce(v9_part, op="add", axes=("data", "model"))  # all-reduce: f32[]
    v11 = v9 > 0.0  # gt: bool[]
    if not v11.item():
        flipped = -picked  # neg: f32[2, 3]
    else:
        flipped = picked + 1.0  # add: f32[2, 3]
    v16, v17 = v1, picked  # while: i32[], f32[2, 3]
    while True:
        v19_part = compute_v19_part(v17)  # fused: f32[]
        v19 = comm.all_reduce(v19_part, op="max", axes=("data", "model"))  # all-reduce: f32[]
        v21 = v19 > 0.1  # gt: bool[]
        if not v21.item():
            break
        v23 = v16 + 1  # add: i32[]
        v25 = v17 * 0.5  # mul: f32[2, 3]
        v16, v17 = v23, v25
    return (flipped, v16, v17)


# What it takes and returns


PROGRAM = Program(
    title="choose",
    mesh={"data": 2, "model": 2},
    arguments=(
        Tensor("x", "f32", (4, 6), (("data",), ("model",))),
        Tensor("choice", "i32", ()),
    ),
    results=(
        Tensor("result.0", "f32", (4, 6), (("data",), ("model",))),
        Tensor("result.1.0", "i32", ()),
        Tensor("result.1.1", "f32", (4, 6), (("data",), ("model",))),
    ),
    groups=(("data", "model"),),
    file=__file__,
    no_graph="case (%picked) makes the host read what the device has computed",
)


if __name__ == "__main__":
    run(main, PROGRAM)
