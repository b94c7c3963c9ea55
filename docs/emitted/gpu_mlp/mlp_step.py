"""mlp_step on 4 devices, in torch and Triton.

Each device of the mesh [data=2, model=2] runs it on its part:

    argument   whole              on each device
    params.b1  f32[32@model]      f32[16]
    params.b2  f32[8]             f32[8]
    params.w1  f32[16, 32@model]  f32[16, 16]
    params.w2  f32[32@model, 8]   f32[16, 8]
    x          f32[8@data, 16]    f32[4, 16]
    y          f32[8@data, 8]     f32[4, 8]

    result       whole              on each device
    result.0.b1  f32[32@model]      f32[16]
    result.0.b2  f32[8]             f32[8]
    result.0.w1  f32[16, 32@model]  f32[16, 16]
    result.0.w2  f32[32@model, 8]   f32[16, 8]
    result.1     f32[]              f32[]

Run it:

    python mlp_step.py --arguments DIR --results DIR

with the devices as threads of one process, or with a process for each:

    torchrun --nproc-per-node=4 mlp_step.py --arguments DIR --results DIR
    srun --ntasks=4 python mlp_step.py --arguments DIR --results DIR
    mpiexec -n 4 python mlp_step.py --arguments DIR --results DIR

It needs torch 2.11, Triton 3.6, or later ones, and the files beside it.
`python mlp_step.py --help` tells the rest; it is written by shardir.
"""

import os

try:
    import torch
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

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
def compute_v12_kernel(v0_ptr, params_b1_ptr, v12_ptr, h_ptr, BLOCK: tl.constexpr):
    """add, mul, tanh over 4x16

    %32 = broadcast(%params.b1, dims=[1]) : f32[4, 16]
    %46 = add(%0, %32) : f32[4, 16]
    %47 = mul(%46, %46) : f32[4, 16]
    %48 = mul(%47, %46) : f32[4, 16]
    %49 = constant(value=0.044715) : f32[4, 16]
    %50 = mul(%48, %49) : f32[4, 16]
    %51 = add(%46, %50) : f32[4, 16]
    %52 = constant(value=0.7978845608028654) : f32[4, 16]
    %53 = mul(%51, %52) : f32[4, 16]
    %54 = constant(value=0.5) : f32[4, 16]
    %55 = mul(%46, %54) : f32[4, 16]
    %12 = tanh(%53) : f32[4, 16]
    %57 = constant(value=1.0) : f32[4, 16]
    %58 = add(%12, %57) : f32[4, 16]
    %h = mul(%55, %58) : f32[4, 16]
    yield %12, %h
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v0 = tl.load(v0_ptr + at)
    i = at % 16
    params_b1 = tl.load(params_b1_ptr + i)
    v46 = v0 + params_b1
    v47 = v46 * v46
    v48 = v47 * v46
    v50 = v48 * 0.044715
    v51 = v46 + v50
    v53 = v51 * 0.7978846
    v55 = v46 * 0.5
    v12 = libdevice.tanh(v53)
    v58 = v12 + 1.0
    h = v55 * v58
    tl.store(v12_ptr + at, v12)
    tl.store(h_ptr + at, h)


def compute_v12_reference(v0, params_b1):
    """The same in plain torch."""
    v32 = params_b1.expand(4, 16)  # broadcast: f32[4, 16]
    v46 = v0 + v32  # add: f32[4, 16]
    v47 = v46 * v46  # mul: f32[4, 16]
    v48 = v47 * v46  # mul: f32[4, 16]
    v50 = v48 * 0.044715  # mul: f32[4, 16]
    v51 = v46 + v50  # add: f32[4, 16]
    v53 = v51 * 0.7978846  # mul: f32[4, 16]
    v55 = v46 * 0.5  # mul: f32[4, 16]
    v12 = torch.tanh(v53)  # tanh: f32[4, 16]
    v58 = v12 + 1.0  # add: f32[4, 16]
    h = v55 * v58  # mul: f32[4, 16]
    return v12, h


def compute_v12(v0, params_b1):
    if not (v0.is_cuda or INTERPRETED):
        return compute_v12_reference(v0, params_b1)
    v0 = v0.contiguous()
    params_b1 = params_b1.contiguous()
    v12 = torch.empty((4, 16), dtype=torch.float32, device=v0.device)
    h = torch.empty((4, 16), dtype=torch.float32, device=v0.device)
    compute_v12_kernel[(1,)](
        v0,
        params_b1,
        v12,
        h,
        BLOCK=64,
        num_warps=1,
        enable_fp_fusion=False,
        enable_reflect_ftz=False,
    )
    return v12, h


@triton.jit
def compute_v19_part_kernel(
    v15_ptr,
    params_b2_ptr,
    y_ptr,
    v19_part_ptr,
    v17_grad_ptr,
    BLOCK: tl.constexpr,
):
    """add, sub, mul, sum over 4x8

    %60 = broadcast(%params.b2, dims=[1]) : f32[4, 8]
    %out = add(%15, %60) : f32[4, 8]
    %61 = sub(%out, %y) : f32[4, 8]
    %62 = mul(%61, %61) : f32[4, 8]
    %19.part = sum(%62, dims=[0, 1]) : f32[]
    %18.grad = constant(value=0.015625) : f32[4, 8]
    %63 = mul(%18.grad, %61) : f32[4, 8]
    %17.grad = add(%63, %63) : f32[4, 8]
    yield %19.part, %17.grad
    """
    at = tl.arange(0, BLOCK)
    v15 = tl.load(v15_ptr + at)
    y = tl.load(y_ptr + at)
    i = at % 8
    params_b2 = tl.load(params_b2_ptr + i)
    out = v15 + params_b2
    v61 = out - y
    v62 = v61 * v61
    v19_part = tl.sum(v62, 0)
    v63 = 0.015625 * v61
    v17_grad = v63 + v63
    tl.store(v19_part_ptr, v19_part)
    tl.store(v17_grad_ptr + at, v17_grad)


def compute_v19_part_reference(v15, params_b2, y):
    """The same in plain torch."""
    v60 = params_b2.expand(4, 8)  # broadcast: f32[4, 8]
    out = v15 + v60  # add: f32[4, 8]
    v61 = out - y  # sub: f32[4, 8]
    v62 = v61 * v61  # mul: f32[4, 8]
    v19_part = v62.sum((0, 1))  # sum: f32[]
    v63 = 0.015625 * v61  # mul: f32[4, 8]
    v17_grad = v63 + v63  # add: f32[4, 8]
    return v19_part, v17_grad


def compute_v19_part(v15, params_b2, y):
    if not (v15.is_cuda or INTERPRETED):
        return compute_v19_part_reference(v15, params_b2, y)
    v15, params_b2, y = (x.contiguous() for x in (v15, params_b2, y))
    v19_part = torch.empty((), dtype=torch.float32, device=v15.device)
    v17_grad = torch.empty((4, 8), dtype=torch.float32, device=v15.device)
    compute_v19_part_kernel[(1,)](
        v15, params_b2, y, v19_part, v17_grad, BLOCK=32, num_warps=1, enable_fp_fusion=False
    )
    return v19_part, v17_grad


@triton.jit
def compute_v2_grad_kernel(
    v0_ptr,
    params_b1_ptr,
    v12_ptr,
    h_grad_ptr,
    v2_grad_ptr,
    params_b1_grad_part_ptr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """add, mul, sub, sum over 4x16

    %68 = broadcast(%params.b1, dims=[1]) : f32[4, 16]
    %69 = add(%0, %68) : f32[4, 16]
    %70 = mul(%69, %69) : f32[4, 16]
    %71 = constant(value=0.5) : f32[4, 16]
    %72 = mul(%69, %71) : f32[4, 16]
    %74 = constant(value=1.0) : f32[4, 16]
    %75 = add(%12, %74) : f32[4, 16]
    %11.grad = mul(%h.grad, %75) : f32[4, 16]
    %14.grad = mul(%h.grad, %72) : f32[4, 16]
    %76 = mul(%12, %12) : f32[4, 16]
    %77 = constant(value=1) : f32[4, 16]
    %78 = sub(%77, %76) : f32[4, 16]
    %9.grad = mul(%14.grad, %78) : f32[4, 16]
    %79 = mul(%11.grad, %71) : f32[4, 16]
    %80 = constant(value=0.7978845608028654) : f32[4, 16]
    %7.grad = mul(%9.grad, %80) : f32[4, 16]
    %81 = add(%79, %7.grad) : f32[4, 16]
    %82 = constant(value=0.044715) : f32[4, 16]
    %4.grad = mul(%7.grad, %82) : f32[4, 16]
    %3.grad = mul(%4.grad, %69) : f32[4, 16]
    %83 = mul(%4.grad, %70) : f32[4, 16]
    %84 = add(%81, %83) : f32[4, 16]
    %85 = mul(%3.grad, %69) : f32[4, 16]
    %86 = add(%84, %85) : f32[4, 16]
    %2.grad = add(%86, %85) : f32[4, 16]
    %params.b1.grad.part = sum(%2.grad, dims=[0]) : f32[16]
    yield %2.grad, %params.b1.grad.part
    """
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    row = tl.arange(0, ROWS)[:, None]
    v0 = tl.load(v0_ptr + row * 16 + column)
    v12 = tl.load(v12_ptr + row * 16 + column)
    h_grad = tl.load(h_grad_ptr + row * 16 + column)
    params_b1 = tl.load(params_b1_ptr + column)
    v69 = v0 + params_b1
    v70 = v69 * v69
    v72 = v69 * 0.5
    v75 = v12 + 1.0
    v11_grad = h_grad * v75
    v14_grad = h_grad * v72
    v76 = v12 * v12
    v78 = 1.0 - v76
    v9_grad = v14_grad * v78
    v79 = v11_grad * 0.5
    v7_grad = v9_grad * 0.7978846
    v81 = v79 + v7_grad
    v4_grad = v7_grad * 0.044715
    v3_grad = v4_grad * v69
    v83 = v4_grad * v70
    v84 = v81 + v83
    v85 = v3_grad * v69
    v86 = v84 + v85
    v2_grad = v86 + v85
    params_b1_grad_part = tl.sum(v2_grad, 0, keep_dims=True)
    tl.store(v2_grad_ptr + row * 16 + column, v2_grad)
    tl.store(params_b1_grad_part_ptr + column, params_b1_grad_part)


def compute_v2_grad_reference(v0, params_b1, v12, h_grad):
    """The same in plain torch."""
    v68 = params_b1.expand(4, 16)  # broadcast: f32[4, 16]
    v69 = v0 + v68  # add: f32[4, 16]
    v70 = v69 * v69  # mul: f32[4, 16]
    v72 = v69 * 0.5  # mul: f32[4, 16]
    v75 = v12 + 1.0  # add: f32[4, 16]
    v11_grad = h_grad * v75  # mul: f32[4, 16]
    v14_grad = h_grad * v72  # mul: f32[4, 16]
    v76 = v12 * v12  # mul: f32[4, 16]
    v78 = 1.0 - v76  # sub: f32[4, 16]
    v9_grad = v14_grad * v78  # mul: f32[4, 16]
    v79 = v11_grad * 0.5  # mul: f32[4, 16]
    v7_grad = v9_grad * 0.7978846  # mul: f32[4, 16]
    v81 = v79 + v7_grad  # add: f32[4, 16]
    v4_grad = v7_grad * 0.044715  # mul: f32[4, 16]
    v3_grad = v4_grad * v69  # mul: f32[4, 16]
    v83 = v4_grad * v70  # mul: f32[4, 16]
    v84 = v81 + v83  # add: f32[4, 16]
    v85 = v3_grad * v69  # mul: f32[4, 16]
    v86 = v84 + v85  # add: f32[4, 16]
    v2_grad = v86 + v85  # add: f32[4, 16]
    params_b1_grad_part = v2_grad.sum(0)  # sum: f32[16]
    return v2_grad, params_b1_grad_part


def compute_v2_grad(v0, params_b1, v12, h_grad):
    if not (v0.is_cuda or INTERPRETED):
        return compute_v2_grad_reference(v0, params_b1, v12, h_grad)
    v0, params_b1, v12, h_grad = (x.contiguous() for x in (v0, params_b1, v12, h_grad))
    v2_grad = torch.empty((4, 16), dtype=torch.float32, device=v0.device)
    params_b1_grad_part = torch.empty((16,), dtype=torch.float32, device=v0.device)
    compute_v2_grad_kernel[(1,)](
        v0,
        params_b1,
        v12,
        h_grad,
        v2_grad,
        params_b1_grad_part,
        ROWS=4,
        COLUMNS=16,
        num_warps=1,
        enable_fp_fusion=False,
    )
    return v2_grad, params_b1_grad_part


@triton.jit
def compute_v36_kernel(params_w1_grad_ptr, params_w1_ptr, v36_ptr, BLOCK: tl.constexpr):
    """mul, sub over 16x16

    %87 = constant(value=0.1) : f32[16, 16]
    %88 = mul(%87, %params.w1.grad) : f32[16, 16]
    %36 = sub(%params.w1, %88) : f32[16, 16]
    yield %36
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_w1_grad = tl.load(params_w1_grad_ptr + at)
    params_w1 = tl.load(params_w1_ptr + at)
    v88 = 0.1 * params_w1_grad
    v36 = params_w1 - v88
    tl.store(v36_ptr + at, v36)


def compute_v36_reference(params_w1_grad, params_w1):
    """The same in plain torch."""
    v88 = 0.1 * params_w1_grad  # mul: f32[16, 16]
    v36 = params_w1 - v88  # sub: f32[16, 16]
    return v36


def compute_v36(params_w1_grad, params_w1):
    if not (params_w1_grad.is_cuda or INTERPRETED):
        return compute_v36_reference(params_w1_grad, params_w1)
    params_w1_grad = params_w1_grad.contiguous()
    params_w1 = params_w1.contiguous()
    v36 = torch.empty((16, 16), dtype=torch.float32, device=params_w1_grad.device)
    compute_v36_kernel[(1,)](
        params_w1_grad, params_w1, v36, BLOCK=256, num_warps=1, enable_fp_fusion=False
    )
    return v36


@triton.jit
def compute_v39_kernel(params_b1_grad_row_ptr, params_b1_ptr, v39_ptr, BLOCK: tl.constexpr):
    """mul, sub over 16

    %90 = constant(value=0.1) : f32[16]
    %params.b1.grad = reshape(%params.b1.grad.row) : f32[16]
    %91 = mul(%90, %params.b1.grad) : f32[16]
    %39 = sub(%params.b1, %91) : f32[16]
    yield %39
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_b1_grad_row = tl.load(params_b1_grad_row_ptr + at)
    params_b1 = tl.load(params_b1_ptr + at)
    v91 = 0.1 * params_b1_grad_row
    v39 = params_b1 - v91
    tl.store(v39_ptr + at, v39)


def compute_v39_reference(params_b1_grad_row, params_b1):
    """The same in plain torch."""
    params_b1_grad = params_b1_grad_row.reshape(16)  # reshape: f32[16]
    v91 = 0.1 * params_b1_grad  # mul: f32[16]
    v39 = params_b1 - v91  # sub: f32[16]
    return v39


def compute_v39(params_b1_grad_row, params_b1):
    if not (params_b1_grad_row.is_cuda or INTERPRETED):
        return compute_v39_reference(params_b1_grad_row, params_b1)
    params_b1_grad_row = params_b1_grad_row.contiguous()
    params_b1 = params_b1.contiguous()
    v39 = torch.empty((16,), dtype=torch.float32, device=params_b1_grad_row.device)
    compute_v39_kernel[(1,)](
        params_b1_grad_row, params_b1, v39, BLOCK=16, num_warps=1, enable_fp_fusion=False
    )
    return v39


@triton.jit
def compute_v42_kernel(params_w2_grad_ptr, params_w2_ptr, v42_ptr, BLOCK: tl.constexpr):
    """mul, sub over 16x8

    %93 = constant(value=0.1) : f32[16, 8]
    %94 = mul(%93, %params.w2.grad) : f32[16, 8]
    %42 = sub(%params.w2, %94) : f32[16, 8]
    yield %42
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_w2_grad = tl.load(params_w2_grad_ptr + at)
    params_w2 = tl.load(params_w2_ptr + at)
    v94 = 0.1 * params_w2_grad
    v42 = params_w2 - v94
    tl.store(v42_ptr + at, v42)


def compute_v42_reference(params_w2_grad, params_w2):
    """The same in plain torch."""
    v94 = 0.1 * params_w2_grad  # mul: f32[16, 8]
    v42 = params_w2 - v94  # sub: f32[16, 8]
    return v42


def compute_v42(params_w2_grad, params_w2):
    if not (params_w2_grad.is_cuda or INTERPRETED):
        return compute_v42_reference(params_w2_grad, params_w2)
    params_w2_grad = params_w2_grad.contiguous()
    params_w2 = params_w2.contiguous()
    v42 = torch.empty((16, 8), dtype=torch.float32, device=params_w2_grad.device)
    compute_v42_kernel[(1,)](
        params_w2_grad, params_w2, v42, BLOCK=128, num_warps=1, enable_fp_fusion=False
    )
    return v42


@triton.jit
def compute_v45_kernel(params_b2_grad_row_ptr, params_b2_ptr, v45_ptr, BLOCK: tl.constexpr):
    """mul, sub over 8

    %96 = constant(value=0.1) : f32[8]
    %params.b2.grad = reshape(%params.b2.grad.row) : f32[8]
    %97 = mul(%96, %params.b2.grad) : f32[8]
    %45 = sub(%params.b2, %97) : f32[8]
    yield %45
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_b2_grad_row = tl.load(params_b2_grad_row_ptr + at)
    params_b2 = tl.load(params_b2_ptr + at)
    v97 = 0.1 * params_b2_grad_row
    v45 = params_b2 - v97
    tl.store(v45_ptr + at, v45)


def compute_v45_reference(params_b2_grad_row, params_b2):
    """The same in plain torch."""
    params_b2_grad = params_b2_grad_row.reshape(8)  # reshape: f32[8]
    v97 = 0.1 * params_b2_grad  # mul: f32[8]
    v45 = params_b2 - v97  # sub: f32[8]
    return v45


def compute_v45(params_b2_grad_row, params_b2):
    if not (params_b2_grad_row.is_cuda or INTERPRETED):
        return compute_v45_reference(params_b2_grad_row, params_b2)
    params_b2_grad_row = params_b2_grad_row.contiguous()
    params_b2 = params_b2.contiguous()
    v45 = torch.empty((8,), dtype=torch.float32, device=params_b2_grad_row.device)
    compute_v45_kernel[(1,)](
        params_b2_grad_row, params_b2, v45, BLOCK=8, num_warps=1, enable_fp_fusion=False
    )
    return v45


# The program of one device


def main(comm, params_b1, params_b2, params_w1, params_w2, x, y):
    v0 = x @ params_w1  # dot: f32[4, 16]
    v12, h = compute_v12(v0, params_b1)  # fused: f32[4, 16], f32[4, 16]
    v15_part = h @ params_w2  # dot: f32[4, 8]
    v15 = comm.all_reduce(v15_part, op="add", axes=("model",))  # all-reduce: f32[4, 8]
    v19_part, v17_grad = compute_v19_part(v15, params_b2, y)  # fused: f32[], f32[4, 8]
    v19 = comm.all_reduce(v19_part, op="add", axes=("data",))  # all-reduce: f32[]
    v21 = v19 / 64.0  # div: f32[]
    params_b2_grad_part = v17_grad.sum(0)  # sum: f32[8]
    h_grad = v17_grad @ params_w2.T  # dot: f32[4, 16]
    params_w2_grad_part = h.T @ v17_grad  # dot: f32[16, 8]
    # fused: f32[4, 16], f32[16]
    v2_grad, params_b1_grad_part = compute_v2_grad(v0, params_b1, v12, h_grad)
    params_w1_grad_part = x.T @ v2_grad  # dot: f32[16, 16]
    params_b2_grad_part_row = params_b2_grad_part.reshape(1, 8)  # reshape: f32[1, 8]
    params_w2_grad_part_row = params_w2_grad_part.reshape(1, 128)  # reshape: f32[1, 128]
    params_b1_grad_part_row = params_b1_grad_part.reshape(1, 16)  # reshape: f32[1, 16]
    params_w1_grad_part_row = params_w1_grad_part.reshape(1, 256)  # reshape: f32[1, 256]
    # concatenate: f32[1, 408]
    params_b2_grad_joined = torch.cat(
        [
            params_b2_grad_part_row,
            params_w2_grad_part_row,
            params_b1_grad_part_row,
            params_w1_grad_part_row,
        ],
        dim=1,
    )
    # all-reduce: f32[1, 408]
    params_b2_grad_together = comm.all_reduce(params_b2_grad_joined, op="add", axes=("data",))
    params_b2_grad_row = params_b2_grad_together[:, :8]  # slice: f32[1, 8]
    params_w2_grad_row = params_b2_grad_together[:, 8:136]  # slice: f32[1, 128]
    params_w2_grad = params_w2_grad_row.reshape(16, 8)  # reshape: f32[16, 8]
    params_b1_grad_row = params_b2_grad_together[:, 136:152]  # slice: f32[1, 16]
    params_w1_grad_row = params_b2_grad_together[:, 152:]  # slice: f32[1, 256]
    params_w1_grad = params_w1_grad_row.reshape(16, 16)  # reshape: f32[16, 16]
    v36 = compute_v36(params_w1_grad, params_w1)  # fused: f32[16, 16]
    v39 = compute_v39(params_b1_grad_row, params_b1)  # fused: f32[16]
    v42 = compute_v42(params_w2_grad, params_w2)  # fused: f32[16, 8]
    v45 = compute_v45(params_b2_grad_row, params_b2)  # fused: f32[8]
    return (v39, v45, v36, v42, v21)


# What it takes and returns


PROGRAM = Program(
    title="mlp_step",
    mesh={"data": 2, "model": 2},
    arguments=(
        Tensor("params.b1", "f32", (32,), (("model",),)),
        Tensor("params.b2", "f32", (8,)),
        Tensor("params.w1", "f32", (16, 32), ((), ("model",))),
        Tensor("params.w2", "f32", (32, 8), (("model",), ())),
        Tensor("x", "f32", (8, 16), (("data",), ())),
        Tensor("y", "f32", (8, 8), (("data",), ())),
    ),
    results=(
        Tensor("result.0.b1", "f32", (32,), (("model",),)),
        Tensor("result.0.b2", "f32", (8,)),
        Tensor("result.0.w1", "f32", (16, 32), ((), ("model",))),
        Tensor("result.0.w2", "f32", (32, 8), (("model",), ())),
        Tensor("result.1", "f32", ()),
    ),
    groups=(("model",), ("data",)),
    file=__file__,
)


if __name__ == "__main__":
    run(main, PROGRAM)
