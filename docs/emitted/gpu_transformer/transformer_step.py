"""transformer_step on 4 devices, in torch and Triton.

Each device of the mesh [data=2, model=2] runs it on its part:

    argument      whole               on each device
    params.down   f32[16@model, 8]    f32[8, 8]
    params.embed  f32[16, 8]          f32[16, 8]
    params.k      f32[8, 4@model, 4]  f32[8, 2, 4]
    params.o      f32[4@model, 4, 8]  f32[2, 4, 8]
    params.q      f32[8, 4@model, 4]  f32[8, 2, 4]
    params.scale  f32[8]              f32[8]
    params.up     f32[8, 16@model]    f32[8, 8]
    params.v      f32[8, 4@model, 4]  f32[8, 2, 4]
    tokens        i32[4@data, 6]      i32[2, 6]
    targets       i32[4@data, 6]      i32[2, 6]

    result          whole               on each device
    result.0.down   f32[16@model, 8]    f32[8, 8]
    result.0.embed  f32[16, 8]          f32[16, 8]
    result.0.k      f32[8, 4@model, 4]  f32[8, 2, 4]
    result.0.o      f32[4@model, 4, 8]  f32[2, 4, 8]
    result.0.q      f32[8, 4@model, 4]  f32[8, 2, 4]
    result.0.scale  f32[8]              f32[8]
    result.0.up     f32[8, 16@model]    f32[8, 8]
    result.0.v      f32[8, 4@model, 4]  f32[8, 2, 4]
    result.1        f32[]               f32[]

Run it:

    python transformer_step.py --arguments DIR --results DIR

with the devices as threads of one process, or with a process for each:

    torchrun --nproc-per-node=4 transformer_step.py --arguments DIR --results DIR
    srun --ntasks=4 python transformer_step.py --arguments DIR --results DIR
    mpiexec -n 4 python transformer_step.py --arguments DIR --results DIR

It needs torch 2.11, Triton 3.6, or later ones, and the files beside it.
`python transformer_step.py --help` tells the rest; it is written by shardir.
"""

import math
import os
from functools import cache

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


# Arrays


@cache
def constant_0(device):
    """i32[1]"""
    return torch.tensor([16], dtype=torch.int32, device=device)


# Functions that torch lacks


SIGNED_WORDS = {
    torch.uint16: torch.int16,
    torch.uint32: torch.int32,
    torch.uint64: torch.int64,
}


def whole_numbers(indices: torch.Tensor) -> torch.Tensor:
    """Indices in i64, cut off far outside."""
    far = 1 << 62
    if indices.dtype == torch.uint64:
        word = indices.view(torch.int64)
        return torch.where((word < 0) | (word > far), far, word)
    return indices.to(torch.int64).clamp(-far, far)


def window_places(
    shape: list[int],
    indices: torch.Tensor,
    slices: list[int],
    windows: dict[int, int],
    index_map: list[int],
    batching: dict[int, int],
    clamp: bool,
) -> list[torch.Tensor]:
    """For each dimension of an operand of `shape`, where each element of the slices lies in it.

    Each place broadcasts to the shape `slices`. `clamp` moves windows that reach outside back in.
    """
    vectors = whole_numbers(indices)
    batch = [d for d in range(len(slices)) if d not in windows]
    along = {operand: window for window, operand in windows.items()}

    def spread(places: torch.Tensor, dims: list[int]) -> torch.Tensor:
        sizes = dict(zip(dims, places.shape, strict=True))
        return places.reshape([sizes.get(d, 1) for d in range(len(slices))])

    found = []
    for dim, extent in enumerate(shape):
        if dim in batching:
            counted = torch.arange(extent, device=indices.device)
            found.append(spread(counted, [batch[batching[dim]]]))
            continue
        start = vectors.new_zeros([1] * len(slices))
        size = slices[along[dim]] if dim in along else 1
        if dim in index_map:
            start = spread(vectors[..., index_map.index(dim)], batch)
            if clamp:
                start = start.clamp(0, max(extent - size, 0))
        if dim in along:
            start = start + spread(torch.arange(size, device=indices.device), [along[dim]])
        found.append(start)
    return found


def take_rows(x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The rows of `x` that `rows` names, the nearest one where there is none."""
    places = whole_numbers(rows).clamp(0, x.shape[0] - 1)
    return as_words(x)[places].view(x.dtype)


def take_along(x: torch.Tensor, places: torch.Tensor, dim: int) -> torch.Tensor:
    """The elements of `x` at places along `dim`, the nearest one where there is none."""
    index = whole_numbers(places).clamp(0, x.shape[dim] - 1)
    return as_words(x).gather(dim, index).view(x.dtype)


def scatter_windows(
    x: torch.Tensor,
    indices: torch.Tensor,
    updates: torch.Tensor,
    op: str,
    windows: dict[int, int],
    index_map: list[int],
    batching: dict[int, int],
) -> torch.Tensor:
    """Updates combined into a copy of `x`; elements that fall outside are dropped.

    With `set` the last of several updates of one element stays.
    """
    if not updates.numel() or not x.numel():
        return x
    whole = [
        window
        for window, dim in windows.items()
        if updates.shape[window] == x.shape[dim] and dim not in index_map
    ]
    led = [d for d in range(updates.dim()) if d not in whole]
    rest = [windows[window] for window in whole]
    lead = [d for d in range(x.dim()) if d not in rest]
    slices = [1 if d in whole else size for d, size in enumerate(updates.shape)]
    places = window_places(list(x.shape), indices, slices, windows, index_map, batching, False)
    extents = [x.shape[d] for d in lead]
    row = torch.zeros(slices, dtype=torch.int64, device=x.device)
    inside = torch.ones(slices, dtype=torch.bool, device=x.device)
    for dim, extent in zip(lead, extents, strict=True):
        inside = inside & (places[dim] >= 0) & (places[dim] < extent)
        row = row * extent + places[dim].clamp(0, extent - 1)
    count = math.prod(extents)
    row = torch.where(inside, row, count).reshape(-1)
    order = lead + rest
    rows = x.permute(order).reshape(count, -1)
    news = updates.permute(led + whole).reshape(row.numel(), -1)
    made = combine_rows(rows, row, news, op).reshape([x.shape[d] for d in order])
    return made.permute([order.index(d) for d in range(x.dim())])


def combine_rows(
    x: torch.Tensor, row: torch.Tensor, updates: torch.Tensor, op: str
) -> torch.Tensor:
    """Rows of `updates` combined into those of `x` that `row` names, if there are such."""
    narrow = x.dtype in (torch.float16, torch.bfloat16) and op in ("add", "mul")
    if narrow:
        return combine_rows(x.float(), row, updates.float(), op).to(x.dtype)
    every = row[:, None].expand_as(updates)
    if op in ("min", "max") or (op == "add" and x.dtype == torch.bool):
        words = in_order(x)
        words = torch.cat([words, words[:1]])
        made = words.scatter_reduce(0, every, in_order(updates), "amin" if op == "min" else "amax")
        return out_of_order(made[:-1], x.dtype)
    words, news = as_words(x), as_words(updates)
    words = torch.cat([words, words[:1]])
    if op == "add":
        return words.index_put([row], news, accumulate=True)[:-1].view(x.dtype)
    if op == "mul":
        return words.scatter_reduce(0, every, news, "prod")[:-1].view(x.dtype)
    order = torch.arange(row.numel(), device=row.device)
    last = row.new_full([words.shape[0]], -1).scatter_reduce(0, row, order, "amax")
    chosen = torch.where((last < 0)[:, None], words, news[last.clamp(min=0)])
    return chosen[:-1].view(x.dtype)


def as_words(x: torch.Tensor) -> torch.Tensor:
    """The same bits in a type that torch computes in."""
    return x.view(SIGNED_WORDS[x.dtype]) if x.dtype in SIGNED_WORDS else x


def in_order(x: torch.Tensor) -> torch.Tensor:
    """Numbers that compare as `x` does, in a type that torch compares in."""
    if x.dtype == torch.uint64:
        return x.view(torch.int64) ^ torch.iinfo(torch.int64).min
    if x.dtype in (torch.uint16, torch.uint32):
        return x.to(torch.int64)
    return x.to(torch.uint8) if x.dtype == torch.bool else x


def out_of_order(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Back from `in_order` to numbers of type `dtype`."""
    if dtype == torch.uint64:
        return (x ^ torch.iinfo(torch.int64).min).view(torch.uint64)
    return x.to(dtype)


# Groups: a Triton kernel, the same in torch, and the launch


@triton.jit
def maximum(x, y):
    """The larger; NaN if either is."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def logistic_f32(x):
    """1 / (1 + exp(-x)), from whichever exponential is small."""
    small = libdevice.exp(-tl.abs(x))
    return tl.div_rn(tl.where(x < 0, small, 1.0), 1.0 + small)


@triton.jit
def compute_v4_kernel(tokens_ptr, v4_ptr, BLOCK: tl.constexpr):
    """lt, add, select over 2x6

    %14 = constant(value=0) : i32[2, 6]
    %45 = lt(%tokens, %14) : bool[2, 6]
    %51 = constant(value=16) : i32[2, 6]
    %53 = add(%tokens, %51) : i32[2, 6]
    %4 = select(%45, %53, %tokens) : i32[2, 6]
    yield %4
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 12
    tokens = tl.load(tokens_ptr + at, mask)
    v45 = tokens < 0
    v53 = tokens + 16
    v4 = tl.where(v45, v53, tokens)
    tl.store(v4_ptr + at, v4, mask)


def compute_v4_reference(tokens):
    """The same in plain torch."""
    v45 = tokens < 0  # lt: bool[2, 6]
    v53 = tokens + 16  # add: i32[2, 6]
    v4 = torch.where(v45, v53, tokens)  # select: i32[2, 6]
    return v4


def compute_v4(tokens):
    if not (tokens.is_cuda or INTERPRETED):
        return compute_v4_reference(tokens)
    tokens = tokens.contiguous()
    v4 = torch.empty((2, 6), dtype=torch.int32, device=tokens.device)
    compute_v4_kernel[(1,)](tokens, v4, BLOCK=16, num_warps=1, enable_fp_fusion=False)
    return v4


@triton.jit
def compute_v9_kernel(x_ptr, params_scale_ptr, v9_ptr, v18_ptr, h_ptr, COLUMNS: tl.constexpr):
    """sum, div, sub, mul, add, sqrt over 2x6x8

    %108 = sum(%x, dims=[2]) : f32[2, 6]
    %117 = reshape(%108) : f32[2, 6, 1]
    %118 = constant(value=8.0) : f32[2, 6, 1]
    %9 = div(%117, %118) : f32[2, 6, 1]
    %125 = broadcast(%9, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred = sub(%x, %125) : f32[2, 6, 8]
    %128 = mul(%centred, %centred) : f32[2, 6, 8]
    %144 = sum(%128, dims=[2]) : f32[2, 6]
    %147 = reshape(%144) : f32[2, 6, 1]
    %156 = div(%147, %118) : f32[2, 6, 1]
    %159 = constant(value=1e-05) : f32[2, 6, 1]
    %160 = add(%156, %159) : f32[2, 6, 1]
    %18 = sqrt(%160) : f32[2, 6, 1]
    %162 = broadcast(%18, dims=[0, 1, 2]) : f32[2, 6, 8]
    %163 = div(%centred, %162) : f32[2, 6, 8]
    %164 = broadcast(%params.scale, dims=[2]) : f32[2, 6, 8]
    %h = mul(%163, %164) : f32[2, 6, 8]
    yield %9, %18, %h
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * 8 + column)
    v108 = tl.sum(x, 0)
    v9 = tl.div_rn(v108, 8.0)
    centred = x - v9
    v128 = centred * centred
    v144 = tl.sum(v128, 0)
    v156 = tl.div_rn(v144, 8.0)
    v160 = v156 + 1e-05
    v18 = tl.sqrt_rn(v160)
    v163 = tl.div_rn(centred, v18)
    params_scale = tl.load(params_scale_ptr + column)
    h = v163 * params_scale
    tl.store(v9_ptr + row, v9)
    tl.store(v18_ptr + row, v18)
    tl.store(h_ptr + row * 8 + column, h)


def compute_v9_reference(x, params_scale):
    """The same in plain torch."""
    v108 = x.sum(2)  # sum: f32[2, 6]
    v117 = v108.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v9 = v117 / 8.0  # div: f32[2, 6, 1]
    v125 = v9.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred = x - v125  # sub: f32[2, 6, 8]
    v128 = centred * centred  # mul: f32[2, 6, 8]
    v144 = v128.sum(2)  # sum: f32[2, 6]
    v147 = v144.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v156 = v147 / 8.0  # div: f32[2, 6, 1]
    v160 = v156 + 1e-05  # add: f32[2, 6, 1]
    v18 = torch.sqrt(v160)  # sqrt: f32[2, 6, 1]
    v162 = v18.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v163 = centred / v162  # div: f32[2, 6, 8]
    v164 = params_scale.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    h = v163 * v164  # mul: f32[2, 6, 8]
    return v9, v18, h


def compute_v9(x, params_scale):
    if not (x.is_cuda or INTERPRETED):
        return compute_v9_reference(x, params_scale)
    x = x.contiguous()
    params_scale = params_scale.contiguous()
    v9 = torch.empty((2, 6, 1), dtype=torch.float32, device=x.device)
    v18 = torch.empty((2, 6, 1), dtype=torch.float32, device=x.device)
    h = torch.empty((2, 6, 8), dtype=torch.float32, device=x.device)
    compute_v9_kernel[(12,)](
        x, params_scale, v9, v18, h, COLUMNS=8, num_warps=1, enable_fp_fusion=False
    )
    return v9, v18, h


@triton.jit
def compute_v39_kernel(v25_ptr, mask_ptr, v39_ptr, v40_ptr, attention_ptr, COLUMNS: tl.constexpr):
    """div, select, max, stop_gradient, sub, exp and 1 more over 2x2x6x6

    %166 = constant(value=2.0) : f32[2, 2, 6, 6]
    %scores = div(%25, %166) : f32[2, 2, 6, 6]
    %167 = broadcast(%mask, dims=[2, 3]) : bool[2, 2, 6, 6]
    %168 = constant(value=-1000000000.0) : f32[2, 2, 6, 6]
    %169 = select(%167, %scores, %168) : f32[2, 2, 6, 6]
    %170 = max(%169, dims=[3]) : f32[2, 2, 6]
    %171 = stop_gradient(%170) : f32[2, 2, 6]
    %172 = broadcast(%171, dims=[0, 1, 2]) : f32[2, 2, 6, 6]
    %173 = sub(%169, %172) : f32[2, 2, 6, 6]
    %39 = exp(%173) : f32[2, 2, 6, 6]
    %40 = sum(%39, dims=[3]) : f32[2, 2, 6]
    %176 = broadcast(%40, dims=[0, 1, 2]) : f32[2, 2, 6, 6]
    %attention = div(%39, %176) : f32[2, 2, 6, 6]
    yield %39, %40, %attention
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    column_mask = column < 6
    v25 = tl.load(v25_ptr + row * 6 + column, column_mask)
    scores = tl.div_rn(v25, 2.0)
    i = row % 6
    mask = tl.load(mask_ptr + i * 6 + column, column_mask)
    v169 = tl.where(mask, scores, -1e+09)
    v170 = tl.reduce(tl.where(column_mask, v169, float("-inf")), 0, maximum)
    v173 = v169 - v170
    v39 = libdevice.exp(v173)
    v40 = tl.sum(tl.where(column_mask, v39, 0.0), 0)
    attention = tl.div_rn(v39, v40)
    tl.store(v39_ptr + row * 6 + column, v39, column_mask)
    tl.store(v40_ptr + row, v40)
    tl.store(attention_ptr + row * 6 + column, attention, column_mask)


def compute_v39_reference(v25, mask):
    """The same in plain torch."""
    scores = v25 / 2.0  # div: f32[2, 2, 6, 6]
    v167 = mask.expand(2, 2, 6, 6)  # broadcast: bool[2, 2, 6, 6]
    v169 = torch.where(v167, scores, -1000000000.0)  # select: f32[2, 2, 6, 6]
    v170 = v169.amax(3)  # max: f32[2, 2, 6]
    v172 = v170.reshape(2, 2, 6, 1).expand(2, 2, 6, 6)  # broadcast: f32[2, 2, 6, 6]
    v173 = v169 - v172  # sub: f32[2, 2, 6, 6]
    v39 = torch.exp(v173)  # exp: f32[2, 2, 6, 6]
    v40 = v39.sum(3)  # sum: f32[2, 2, 6]
    v176 = v40.reshape(2, 2, 6, 1).expand(2, 2, 6, 6)  # broadcast: f32[2, 2, 6, 6]
    attention = v39 / v176  # div: f32[2, 2, 6, 6]
    return v39, v40, attention


def compute_v39(v25, mask):
    if not (v25.is_cuda or INTERPRETED):
        return compute_v39_reference(v25, mask)
    v25 = v25.contiguous()
    mask = mask.contiguous()
    v39 = torch.empty((2, 2, 6, 6), dtype=torch.float32, device=v25.device)
    v40 = torch.empty((2, 2, 6), dtype=torch.float32, device=v25.device)
    attention = torch.empty((2, 2, 6, 6), dtype=torch.float32, device=v25.device)
    compute_v39_kernel[(24,)](
        v25,
        mask,
        v39,
        v40,
        attention,
        COLUMNS=8,
        num_warps=1,
        enable_fp_fusion=False,
        enable_reflect_ftz=False,
    )
    return v39, v40, attention


@triton.jit
def compute_x_1_kernel(
    x_ptr,
    v42_ptr,
    params_scale_ptr,
    x_1_ptr,
    v46_ptr,
    v55_ptr,
    v59_ptr,
    COLUMNS: tl.constexpr,
):
    """add, sum, div, sub, mul, sqrt over 2x6x8

    %x.1 = add(%x, %42) : f32[2, 6, 8]
    %183 = sum(%x.1, dims=[2]) : f32[2, 6]
    %184 = reshape(%183) : f32[2, 6, 1]
    %185 = constant(value=8.0) : f32[2, 6, 1]
    %46 = div(%184, %185) : f32[2, 6, 1]
    %187 = broadcast(%46, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred.1 = sub(%x.1, %187) : f32[2, 6, 8]
    %188 = mul(%centred.1, %centred.1) : f32[2, 6, 8]
    %189 = sum(%188, dims=[2]) : f32[2, 6]
    %190 = reshape(%189) : f32[2, 6, 1]
    %191 = div(%190, %185) : f32[2, 6, 1]
    %192 = constant(value=1e-05) : f32[2, 6, 1]
    %193 = add(%191, %192) : f32[2, 6, 1]
    %55 = sqrt(%193) : f32[2, 6, 1]
    %199 = broadcast(%55, dims=[0, 1, 2]) : f32[2, 6, 8]
    %201 = div(%centred.1, %199) : f32[2, 6, 8]
    %205 = broadcast(%params.scale, dims=[2]) : f32[2, 6, 8]
    %59 = mul(%201, %205) : f32[2, 6, 8]
    yield %x.1, %46, %55, %59
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * 8 + column)
    v42 = tl.load(v42_ptr + row * 8 + column)
    x_1 = x + v42
    v183 = tl.sum(x_1, 0)
    v46 = tl.div_rn(v183, 8.0)
    centred_1 = x_1 - v46
    v188 = centred_1 * centred_1
    v189 = tl.sum(v188, 0)
    v191 = tl.div_rn(v189, 8.0)
    v193 = v191 + 1e-05
    v55 = tl.sqrt_rn(v193)
    v201 = tl.div_rn(centred_1, v55)
    params_scale = tl.load(params_scale_ptr + column)
    v59 = v201 * params_scale
    tl.store(x_1_ptr + row * 8 + column, x_1)
    tl.store(v46_ptr + row, v46)
    tl.store(v55_ptr + row, v55)
    tl.store(v59_ptr + row * 8 + column, v59)


def compute_x_1_reference(x, v42, params_scale):
    """The same in plain torch."""
    x_1 = x + v42  # add: f32[2, 6, 8]
    v183 = x_1.sum(2)  # sum: f32[2, 6]
    v184 = v183.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v46 = v184 / 8.0  # div: f32[2, 6, 1]
    v187 = v46.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred_1 = x_1 - v187  # sub: f32[2, 6, 8]
    v188 = centred_1 * centred_1  # mul: f32[2, 6, 8]
    v189 = v188.sum(2)  # sum: f32[2, 6]
    v190 = v189.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v191 = v190 / 8.0  # div: f32[2, 6, 1]
    v193 = v191 + 1e-05  # add: f32[2, 6, 1]
    v55 = torch.sqrt(v193)  # sqrt: f32[2, 6, 1]
    v199 = v55.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v201 = centred_1 / v199  # div: f32[2, 6, 8]
    v205 = params_scale.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v59 = v201 * v205  # mul: f32[2, 6, 8]
    return x_1, v46, v55, v59


def compute_x_1(x, v42, params_scale):
    if not (x.is_cuda or INTERPRETED):
        return compute_x_1_reference(x, v42, params_scale)
    x, v42, params_scale = (x.contiguous() for x in (x, v42, params_scale))
    x_1 = torch.empty((2, 6, 8), dtype=torch.float32, device=x.device)
    v46 = torch.empty((2, 6, 1), dtype=torch.float32, device=x.device)
    v55 = torch.empty((2, 6, 1), dtype=torch.float32, device=x.device)
    v59 = torch.empty((2, 6, 8), dtype=torch.float32, device=x.device)
    compute_x_1_kernel[(12,)](
        x, v42, params_scale, x_1, v46, v55, v59, COLUMNS=8, num_warps=1, enable_fp_fusion=False
    )
    return x_1, v46, v55, v59


@triton.jit
def compute_v77_kernel(targets_ptr, v80_ptr, v77_ptr, v85_ptr, BLOCK: tl.constexpr):
    """lt, add, select, ge, and over 2x6

    %218 = reshape(%targets) : i32[2, 6, 1]
    %219 = constant(value=0) : i32[2, 6, 1]
    %220 = lt(%218, %219) : bool[2, 6, 1]
    %221 = constant(value=16) : i32[2, 6, 1]
    %222 = add(%218, %221) : i32[2, 6, 1]
    %77 = select(%220, %222, %218) : i32[2, 6, 1]
    %224 = reshape(%77) : i32[2, 6, 1, 1]
    %225 = constant(value=0) : i32[2, 6, 1, 1]
    %226 = ge(%224, %225) : bool[2, 6, 1, 1]
    %228 = broadcast(%80, dims=[3]) : i32[2, 6, 1, 1]
    %229 = lt(%224, %228) : bool[2, 6, 1, 1]
    %85 = and(%226, %229) : bool[2, 6, 1, 1]
    yield %77, %85
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 12
    targets = tl.load(targets_ptr + at, mask)
    v80 = tl.load(v80_ptr)
    v220 = targets < 0
    v222 = targets + 16
    v77 = tl.where(v220, v222, targets)
    v226 = v77 >= 0
    v229 = v77 < v80
    v85 = v226 & v229
    tl.store(v77_ptr + at, v77, mask)
    tl.store(v85_ptr + at, v85, mask)


def compute_v77_reference(targets, v80):
    """The same in plain torch."""
    v218 = targets.reshape(2, 6, 1)  # reshape: i32[2, 6, 1]
    v220 = v218 < 0  # lt: bool[2, 6, 1]
    v222 = v218 + 16  # add: i32[2, 6, 1]
    v77 = torch.where(v220, v222, v218)  # select: i32[2, 6, 1]
    v224 = v77.reshape(2, 6, 1, 1)  # reshape: i32[2, 6, 1, 1]
    v226 = v224 >= 0  # ge: bool[2, 6, 1, 1]
    v228 = v80.expand(2, 6, 1, 1)  # broadcast: i32[2, 6, 1, 1]
    v229 = v224 < v228  # lt: bool[2, 6, 1, 1]
    v85 = v226 & v229  # and: bool[2, 6, 1, 1]
    return v77, v85


def compute_v77(targets, v80):
    if not (targets.is_cuda or INTERPRETED):
        return compute_v77_reference(targets, v80)
    targets = targets.contiguous()
    v80 = v80.contiguous()
    v77 = torch.empty((2, 6, 1), dtype=torch.int32, device=targets.device)
    v85 = torch.empty((2, 6, 1, 1), dtype=torch.bool, device=targets.device)
    compute_v77_kernel[(1,)](targets, v80, v77, v85, BLOCK=16, num_warps=1, enable_fp_fusion=False)
    return v77, v85


@triton.jit
def compute_v61_kernel(v60_ptr, v61_ptr, h_1_ptr, BLOCK: tl.constexpr):
    """logistic, mul over 2x6x8

    %61 = logistic(%60) : f32[2, 6, 8]
    %h.1 = mul(%60, %61) : f32[2, 6, 8]
    yield %61, %h.1
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 96
    v60 = tl.load(v60_ptr + at, mask)
    v61 = logistic_f32(v60)
    h_1 = v60 * v61
    tl.store(v61_ptr + at, v61, mask)
    tl.store(h_1_ptr + at, h_1, mask)


def compute_v61_reference(v60):
    """The same in plain torch."""
    v61 = torch.sigmoid(v60)  # logistic: f32[2, 6, 8]
    h_1 = v60 * v61  # mul: f32[2, 6, 8]
    return v61, h_1


def compute_v61(v60):
    if not (v60.is_cuda or INTERPRETED):
        return compute_v61_reference(v60)
    v60 = v60.contiguous()
    v61 = torch.empty((2, 6, 8), dtype=torch.float32, device=v60.device)
    h_1 = torch.empty((2, 6, 8), dtype=torch.float32, device=v60.device)
    compute_v61_kernel[(1,)](
        v60, v61, h_1, BLOCK=128, num_warps=1, enable_fp_fusion=False, enable_reflect_ftz=False
    )
    return v61, h_1


@triton.jit
def compute_logs_kernel(logits_ptr, logs_grad_ptr, logs_ptr, v67_grad_ptr, COLUMNS: tl.constexpr):
    """max, stop_gradient, sub, exp, sum, log and 4 more over 2x6x16

    %209 = max(%logits, dims=[2]) : f32[2, 6]
    %210 = stop_gradient(%209) : f32[2, 6]
    %211 = broadcast(%210, dims=[0, 1]) : f32[2, 6, 16]
    %212 = sub(%logits, %211) : f32[2, 6, 16]
    %213 = exp(%212) : f32[2, 6, 16]
    %214 = sum(%213, dims=[2]) : f32[2, 6]
    %215 = log(%214) : f32[2, 6]
    %216 = broadcast(%215, dims=[0, 1]) : f32[2, 6, 16]
    %logs = sub(%212, %216) : f32[2, 6, 16]
    %71.grad = neg(%logs.grad) : f32[2, 6, 16]
    %70.grad = sum(%71.grad, dims=[2]) : f32[2, 6]
    %69.grad = div(%70.grad, %214) : f32[2, 6]
    %68.grad = broadcast(%69.grad, dims=[0, 1]) : f32[2, 6, 16]
    %217 = mul(%68.grad, %213) : f32[2, 6, 16]
    %67.grad = add(%logs.grad, %217) : f32[2, 6, 16]
    yield %logs, %67.grad
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    logits = tl.load(logits_ptr + row * 16 + column)
    logs_grad = tl.load(logs_grad_ptr + row * 16 + column)
    v209 = tl.reduce(logits, 0, maximum)
    v212 = logits - v209
    v213 = libdevice.exp(v212)
    v214 = tl.sum(v213, 0)
    v215 = libdevice.log(v214)
    logs = v212 - v215
    v71_grad = -logs_grad
    v70_grad = tl.sum(v71_grad, 0)
    v69_grad = tl.div_rn(v70_grad, v214)
    v217 = v69_grad * v213
    v67_grad = logs_grad + v217
    tl.store(logs_ptr + row * 16 + column, logs)
    tl.store(v67_grad_ptr + row * 16 + column, v67_grad)


def compute_logs_reference(logits, logs_grad):
    """The same in plain torch."""
    v209 = logits.amax(2)  # max: f32[2, 6]
    v211 = v209.reshape(2, 6, 1).expand(2, 6, 16)  # broadcast: f32[2, 6, 16]
    v212 = logits - v211  # sub: f32[2, 6, 16]
    v213 = torch.exp(v212)  # exp: f32[2, 6, 16]
    v214 = v213.sum(2)  # sum: f32[2, 6]
    v215 = torch.log(v214)  # log: f32[2, 6]
    v216 = v215.reshape(2, 6, 1).expand(2, 6, 16)  # broadcast: f32[2, 6, 16]
    logs = v212 - v216  # sub: f32[2, 6, 16]
    v71_grad = -logs_grad  # neg: f32[2, 6, 16]
    v70_grad = v71_grad.sum(2)  # sum: f32[2, 6]
    v69_grad = v70_grad / v214  # div: f32[2, 6]
    v68_grad = v69_grad.reshape(2, 6, 1).expand(2, 6, 16)  # broadcast: f32[2, 6, 16]
    v217 = v68_grad * v213  # mul: f32[2, 6, 16]
    v67_grad = logs_grad + v217  # add: f32[2, 6, 16]
    return logs, v67_grad


def compute_logs(logits, logs_grad):
    if not (logits.is_cuda or INTERPRETED):
        return compute_logs_reference(logits, logs_grad)
    logits = logits.contiguous()
    logs_grad = logs_grad.contiguous()
    logs = torch.empty((2, 6, 16), dtype=torch.float32, device=logits.device)
    v67_grad = torch.empty((2, 6, 16), dtype=torch.float32, device=logits.device)
    compute_logs_kernel[(12,)](
        logits,
        logs_grad,
        logs,
        v67_grad,
        COLUMNS=16,
        num_warps=1,
        enable_fp_fusion=False,
        enable_reflect_ftz=False,
    )
    return logs, v67_grad


@triton.jit
def compute_v88_part_kernel(v86_ptr, v79_ptr, v88_part_ptr, BLOCK: tl.constexpr):
    """select, sum over 2x6

    %233 = constant(value=nan) : f32[2, 6, 1]
    %chosen = select(%86, %79, %233) : f32[2, 6, 1]
    %88.part = sum(%chosen, dims=[0, 1, 2]) : f32[]
    yield %88.part
    """
    at = tl.arange(0, BLOCK)
    mask = at < 12
    v86 = tl.load(v86_ptr + at, mask)
    v79 = tl.load(v79_ptr + at, mask)
    chosen = tl.where(v86, v79, float("nan"))
    v88_part = tl.sum(tl.where(mask, chosen, 0.0), 0)
    tl.store(v88_part_ptr, v88_part)


def compute_v88_part_reference(v86, v79):
    """The same in plain torch."""
    chosen = torch.where(v86, v79, math.nan)  # select: f32[2, 6, 1]
    v88_part = chosen.sum((0, 1, 2))  # sum: f32[]
    return v88_part


def compute_v88_part(v86, v79):
    if not (v86.is_cuda or INTERPRETED):
        return compute_v88_part_reference(v86, v79)
    v86 = v86.contiguous()
    v79 = v79.contiguous()
    v88_part = torch.empty((), dtype=torch.float32, device=v86.device)
    compute_v88_part_kernel[(1,)](v86, v79, v88_part, BLOCK=16, num_warps=1, enable_fp_fusion=False)
    return v88_part


@triton.jit
def compute_v91_kernel(v88_ptr, v91_ptr):
    """div, neg over one element

    %235 = constant(value=24.0) : f32[]
    %236 = div(%88, %235) : f32[]
    %91 = neg(%236) : f32[]
    yield %91
    """
    v88 = tl.load(v88_ptr)
    v236 = tl.div_rn(v88, 24.0)
    v91 = -v236
    tl.store(v91_ptr, v91)


def compute_v91_reference(v88):
    """The same in plain torch."""
    device = v88.device
    v235 = torch.full((), 24.0, dtype=torch.float32, device=device)  # constant: f32[]
    v236 = v88 / v235  # div: f32[]
    v91 = -v236  # neg: f32[]
    return v91


def compute_v91(v88):
    if not (v88.is_cuda or INTERPRETED):
        return compute_v91_reference(v88)
    v88 = v88.contiguous()
    v91 = torch.empty((), dtype=torch.float32, device=v88.device)
    compute_v91_kernel[(1,)](v88, v91, num_warps=1, enable_fp_fusion=False)
    return v91


@triton.jit
def compute_v60_grad_kernel(h_1_grad_ptr, v61_ptr, v60_ptr, v60_grad_ptr, BLOCK: tl.constexpr):
    """mul, sub, add over 2x6x8

    %241 = mul(%h.1.grad, %61) : f32[2, 6, 8]
    %61.grad = mul(%h.1.grad, %60) : f32[2, 6, 8]
    %243 = constant(value=1) : f32[2, 6, 8]
    %244 = sub(%243, %61) : f32[2, 6, 8]
    %245 = mul(%61, %244) : f32[2, 6, 8]
    %246 = mul(%61.grad, %245) : f32[2, 6, 8]
    %60.grad = add(%241, %246) : f32[2, 6, 8]
    yield %60.grad
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 96
    h_1_grad = tl.load(h_1_grad_ptr + at, mask)
    v61 = tl.load(v61_ptr + at, mask)
    v60 = tl.load(v60_ptr + at, mask)
    v241 = h_1_grad * v61
    v61_grad = h_1_grad * v60
    v244 = 1.0 - v61
    v245 = v61 * v244
    v246 = v61_grad * v245
    v60_grad = v241 + v246
    tl.store(v60_grad_ptr + at, v60_grad, mask)


def compute_v60_grad_reference(h_1_grad, v61, v60):
    """The same in plain torch."""
    v241 = h_1_grad * v61  # mul: f32[2, 6, 8]
    v61_grad = h_1_grad * v60  # mul: f32[2, 6, 8]
    v244 = 1.0 - v61  # sub: f32[2, 6, 8]
    v245 = v61 * v244  # mul: f32[2, 6, 8]
    v246 = v61_grad * v245  # mul: f32[2, 6, 8]
    v60_grad = v241 + v246  # add: f32[2, 6, 8]
    return v60_grad


def compute_v60_grad(h_1_grad, v61, v60):
    if not (h_1_grad.is_cuda or INTERPRETED):
        return compute_v60_grad_reference(h_1_grad, v61, v60)
    h_1_grad, v61, v60 = (x.contiguous() for x in (h_1_grad, v61, v60))
    v60_grad = torch.empty((2, 6, 8), dtype=torch.float32, device=h_1_grad.device)
    compute_v60_grad_kernel[(1,)](
        h_1_grad, v61, v60, v60_grad, BLOCK=128, num_warps=1, enable_fp_fusion=False
    )
    return v60_grad


@triton.jit
def compute_v101_part_kernel(
    x_1_ptr,
    v46_ptr,
    v55_ptr,
    v59_grad_ptr,
    v101_part_ptr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sub, div, mul, sum over 2x6x8

    %265 = broadcast(%46, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred.1 = sub(%x.1, %265) : f32[2, 6, 8]
    %267 = broadcast(%55, dims=[0, 1, 2]) : f32[2, 6, 8]
    %268 = div(%centred.1, %267) : f32[2, 6, 8]
    %58.grad = mul(%59.grad, %268) : f32[2, 6, 8]
    %101.part = sum(%58.grad, dims=[0, 1]) : f32[8]
    yield %101.part
    """
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    row = tl.arange(0, ROWS)[:, None]
    row_mask = row < 12
    x_1 = tl.load(x_1_ptr + row * 8 + column, row_mask)
    v59_grad = tl.load(v59_grad_ptr + row * 8 + column, row_mask)
    v46 = tl.load(v46_ptr + row, row_mask)
    centred_1 = x_1 - v46
    v55 = tl.load(v55_ptr + row, row_mask)
    v268 = tl.div_rn(centred_1, v55)
    v58_grad = v59_grad * v268
    v101_part = tl.sum(tl.where(row_mask, v58_grad, 0.0), 0, keep_dims=True)
    tl.store(v101_part_ptr + column, v101_part)


def compute_v101_part_reference(x_1, v46, v55, v59_grad):
    """The same in plain torch."""
    v265 = v46.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred_1 = x_1 - v265  # sub: f32[2, 6, 8]
    v267 = v55.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v268 = centred_1 / v267  # div: f32[2, 6, 8]
    v58_grad = v59_grad * v268  # mul: f32[2, 6, 8]
    v101_part = v58_grad.sum((0, 1))  # sum: f32[8]
    return v101_part


def compute_v101_part(x_1, v46, v55, v59_grad):
    if not (x_1.is_cuda or INTERPRETED):
        return compute_v101_part_reference(x_1, v46, v55, v59_grad)
    x_1, v46, v55, v59_grad = (x.contiguous() for x in (x_1, v46, v55, v59_grad))
    v101_part = torch.empty((8,), dtype=torch.float32, device=x_1.device)
    compute_v101_part_kernel[(1,)](
        x_1, v46, v55, v59_grad, v101_part, ROWS=16, COLUMNS=8, num_warps=1, enable_fp_fusion=False
    )
    return v101_part


@triton.jit
def compute_x_1_grad_kernel(
    x_1_ptr,
    v46_ptr,
    v55_ptr,
    v59_grad_ptr,
    params_scale_ptr,
    x_2_grad_ptr,
    x_1_grad_ptr,
    COLUMNS: tl.constexpr,
):
    """sub, div, mul, neg, sum, add over 2x6x8

    %248 = broadcast(%46, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred.1 = sub(%x.1, %248) : f32[2, 6, 8]
    %250 = broadcast(%55, dims=[0, 1, 2]) : f32[2, 6, 8]
    %251 = div(%centred.1, %250) : f32[2, 6, 8]
    %252 = broadcast(%params.scale, dims=[2]) : f32[2, 6, 8]
    %57.grad = mul(%59.grad, %252) : f32[2, 6, 8]
    %253 = div(%57.grad, %250) : f32[2, 6, 8]
    %254 = mul(%253, %251) : f32[2, 6, 8]
    %56.grad = neg(%254) : f32[2, 6, 8]
    %255 = sum(%56.grad, dims=[2]) : f32[2, 6]
    %55.grad = reshape(%255) : f32[2, 6, 1]
    %256 = constant(value=0.5) : f32[2, 6, 1]
    %257 = mul(%55.grad, %256) : f32[2, 6, 1]
    %54.grad = div(%257, %55) : f32[2, 6, 1]
    %258 = constant(value=8.0) : f32[2, 6, 1]
    %50.grad = div(%54.grad, %258) : f32[2, 6, 1]
    %49.grad = reshape(%50.grad) : f32[2, 6]
    %48.grad = broadcast(%49.grad, dims=[0, 1]) : f32[2, 6, 8]
    %259 = mul(%48.grad, %centred.1) : f32[2, 6, 8]
    %260 = add(%253, %259) : f32[2, 6, 8]
    %centred.1.grad = add(%260, %259) : f32[2, 6, 8]
    %47.grad = neg(%centred.1.grad) : f32[2, 6, 8]
    %261 = add(%x.2.grad, %centred.1.grad) : f32[2, 6, 8]
    %262 = sum(%47.grad, dims=[2]) : f32[2, 6]
    %46.grad = reshape(%262) : f32[2, 6, 1]
    %44.grad = div(%46.grad, %258) : f32[2, 6, 1]
    %43.grad = reshape(%44.grad) : f32[2, 6]
    %263 = broadcast(%43.grad, dims=[0, 1]) : f32[2, 6, 8]
    %x.1.grad = add(%261, %263) : f32[2, 6, 8]
    yield %x.1.grad
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    x_1 = tl.load(x_1_ptr + row * 8 + column)
    v59_grad = tl.load(v59_grad_ptr + row * 8 + column)
    x_2_grad = tl.load(x_2_grad_ptr + row * 8 + column)
    v46 = tl.load(v46_ptr + row)
    centred_1 = x_1 - v46
    v55 = tl.load(v55_ptr + row)
    v251 = tl.div_rn(centred_1, v55)
    params_scale = tl.load(params_scale_ptr + column)
    v57_grad = v59_grad * params_scale
    v253 = tl.div_rn(v57_grad, v55)
    v254 = v253 * v251
    v56_grad = -v254
    v255 = tl.sum(v56_grad, 0)
    v257 = v255 * 0.5
    v54_grad = tl.div_rn(v257, v55)
    v50_grad = tl.div_rn(v54_grad, 8.0)
    v259 = v50_grad * centred_1
    v260 = v253 + v259
    centred_1_grad = v260 + v259
    v47_grad = -centred_1_grad
    v261 = x_2_grad + centred_1_grad
    v262 = tl.sum(v47_grad, 0)
    v44_grad = tl.div_rn(v262, 8.0)
    x_1_grad = v261 + v44_grad
    tl.store(x_1_grad_ptr + row * 8 + column, x_1_grad)


def compute_x_1_grad_reference(x_1, v46, v55, v59_grad, params_scale, x_2_grad):
    """The same in plain torch."""
    v248 = v46.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred_1 = x_1 - v248  # sub: f32[2, 6, 8]
    v250 = v55.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v251 = centred_1 / v250  # div: f32[2, 6, 8]
    v252 = params_scale.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v57_grad = v59_grad * v252  # mul: f32[2, 6, 8]
    v253 = v57_grad / v250  # div: f32[2, 6, 8]
    v254 = v253 * v251  # mul: f32[2, 6, 8]
    v56_grad = -v254  # neg: f32[2, 6, 8]
    v255 = v56_grad.sum(2)  # sum: f32[2, 6]
    v55_grad = v255.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v257 = v55_grad * 0.5  # mul: f32[2, 6, 1]
    v54_grad = v257 / v55  # div: f32[2, 6, 1]
    v50_grad = v54_grad / 8.0  # div: f32[2, 6, 1]
    v49_grad = v50_grad.reshape(2, 6)  # reshape: f32[2, 6]
    v48_grad = v49_grad.reshape(2, 6, 1).expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v259 = v48_grad * centred_1  # mul: f32[2, 6, 8]
    v260 = v253 + v259  # add: f32[2, 6, 8]
    centred_1_grad = v260 + v259  # add: f32[2, 6, 8]
    v47_grad = -centred_1_grad  # neg: f32[2, 6, 8]
    v261 = x_2_grad + centred_1_grad  # add: f32[2, 6, 8]
    v262 = v47_grad.sum(2)  # sum: f32[2, 6]
    v46_grad = v262.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v44_grad = v46_grad / 8.0  # div: f32[2, 6, 1]
    v43_grad = v44_grad.reshape(2, 6)  # reshape: f32[2, 6]
    v263 = v43_grad.reshape(2, 6, 1).expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    x_1_grad = v261 + v263  # add: f32[2, 6, 8]
    return x_1_grad


def compute_x_1_grad(x_1, v46, v55, v59_grad, params_scale, x_2_grad):
    if not (x_1.is_cuda or INTERPRETED):
        return compute_x_1_grad_reference(x_1, v46, v55, v59_grad, params_scale, x_2_grad)
    x_1, v46, v55, v59_grad, params_scale, x_2_grad = (
        x.contiguous() for x in (x_1, v46, v55, v59_grad, params_scale, x_2_grad)
    )
    x_1_grad = torch.empty((2, 6, 8), dtype=torch.float32, device=x_1.device)
    compute_x_1_grad_kernel[(12,)](
        x_1,
        v46,
        v55,
        v59_grad,
        params_scale,
        x_2_grad,
        x_1_grad,
        COLUMNS=8,
        num_warps=1,
        enable_fp_fusion=False,
    )
    return x_1_grad


@triton.jit
def compute_v25_grad_kernel(
    attention_grad_ptr,
    v40_ptr,
    attention_ptr,
    v39_ptr,
    mask_ptr,
    v25_grad_ptr,
    COLUMNS: tl.constexpr,
):
    """div, mul, neg, sum, add, select over 2x2x6x6

    %270 = broadcast(%40, dims=[0, 1, 2]) : f32[2, 2, 6, 6]
    %271 = div(%attention.grad, %270) : f32[2, 2, 6, 6]
    %272 = mul(%271, %attention) : f32[2, 2, 6, 6]
    %41.grad = neg(%272) : f32[2, 2, 6, 6]
    %40.grad = sum(%41.grad, dims=[3]) : f32[2, 2, 6]
    %273 = broadcast(%40.grad, dims=[0, 1, 2]) : f32[2, 2, 6, 6]
    %39.grad = add(%271, %273) : f32[2, 2, 6, 6]
    %38.grad = mul(%39.grad, %39) : f32[2, 2, 6, 6]
    %275 = broadcast(%mask, dims=[2, 3]) : bool[2, 2, 6, 6]
    %276 = constant(value=0) : f32[2, 2, 6, 6]
    %scores.grad = select(%275, %38.grad, %276) : f32[2, 2, 6, 6]
    %277 = constant(value=2.0) : f32[2, 2, 6, 6]
    %25.grad = div(%scores.grad, %277) : f32[2, 2, 6, 6]
    yield %25.grad
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    column_mask = column < 6
    attention_grad = tl.load(attention_grad_ptr + row * 6 + column, column_mask)
    attention = tl.load(attention_ptr + row * 6 + column, column_mask)
    v39 = tl.load(v39_ptr + row * 6 + column, column_mask)
    v40 = tl.load(v40_ptr + row)
    v271 = tl.div_rn(attention_grad, v40)
    v272 = v271 * attention
    v41_grad = -v272
    v40_grad = tl.sum(tl.where(column_mask, v41_grad, 0.0), 0)
    v39_grad = v271 + v40_grad
    v38_grad = v39_grad * v39
    i = row % 6
    mask = tl.load(mask_ptr + i * 6 + column, column_mask)
    scores_grad = tl.where(mask, v38_grad, 0.0)
    v25_grad = tl.div_rn(scores_grad, 2.0)
    tl.store(v25_grad_ptr + row * 6 + column, v25_grad, column_mask)


def compute_v25_grad_reference(attention_grad, v40, attention, v39, mask):
    """The same in plain torch."""
    v270 = v40.reshape(2, 2, 6, 1).expand(2, 2, 6, 6)  # broadcast: f32[2, 2, 6, 6]
    v271 = attention_grad / v270  # div: f32[2, 2, 6, 6]
    v272 = v271 * attention  # mul: f32[2, 2, 6, 6]
    v41_grad = -v272  # neg: f32[2, 2, 6, 6]
    v40_grad = v41_grad.sum(3)  # sum: f32[2, 2, 6]
    v273 = v40_grad.reshape(2, 2, 6, 1).expand(2, 2, 6, 6)  # broadcast: f32[2, 2, 6, 6]
    v39_grad = v271 + v273  # add: f32[2, 2, 6, 6]
    v38_grad = v39_grad * v39  # mul: f32[2, 2, 6, 6]
    v275 = mask.expand(2, 2, 6, 6)  # broadcast: bool[2, 2, 6, 6]
    scores_grad = torch.where(v275, v38_grad, 0.0)  # select: f32[2, 2, 6, 6]
    v25_grad = scores_grad / 2.0  # div: f32[2, 2, 6, 6]
    return v25_grad


def compute_v25_grad(attention_grad, v40, attention, v39, mask):
    if not (attention_grad.is_cuda or INTERPRETED):
        return compute_v25_grad_reference(attention_grad, v40, attention, v39, mask)
    attention_grad, v40, attention, v39, mask = (
        x.contiguous() for x in (attention_grad, v40, attention, v39, mask)
    )
    v25_grad = torch.empty((2, 2, 6, 6), dtype=torch.float32, device=attention_grad.device)
    compute_v25_grad_kernel[(24,)](
        attention_grad,
        v40,
        attention,
        v39,
        mask,
        v25_grad,
        COLUMNS=8,
        num_warps=1,
        enable_fp_fusion=False,
    )
    return v25_grad


@triton.jit
def compute_v121_part_kernel(
    x_ptr,
    v9_ptr,
    v18_ptr,
    v117_part_ptr,
    v118_part_ptr,
    v120_part_ptr,
    v121_part_ptr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sub, div, add, mul, sum over 2x6x8

    %279 = broadcast(%9, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred = sub(%x, %279) : f32[2, 6, 8]
    %281 = broadcast(%18, dims=[0, 1, 2]) : f32[2, 6, 8]
    %282 = div(%centred, %281) : f32[2, 6, 8]
    %283 = add(%117.part, %118.part) : f32[2, 6, 8]
    %h.grad = add(%283, %120.part) : f32[2, 6, 8]
    %21.grad = mul(%h.grad, %282) : f32[2, 6, 8]
    %121.part = sum(%21.grad, dims=[0, 1]) : f32[8]
    yield %121.part
    """
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    row = tl.arange(0, ROWS)[:, None]
    row_mask = row < 12
    x = tl.load(x_ptr + row * 8 + column, row_mask)
    v117_part = tl.load(v117_part_ptr + row * 8 + column, row_mask)
    v118_part = tl.load(v118_part_ptr + row * 8 + column, row_mask)
    v120_part = tl.load(v120_part_ptr + row * 8 + column, row_mask)
    v9 = tl.load(v9_ptr + row, row_mask)
    centred = x - v9
    v18 = tl.load(v18_ptr + row, row_mask)
    v282 = tl.div_rn(centred, v18)
    v283 = v117_part + v118_part
    h_grad = v283 + v120_part
    v21_grad = h_grad * v282
    v121_part = tl.sum(tl.where(row_mask, v21_grad, 0.0), 0, keep_dims=True)
    tl.store(v121_part_ptr + column, v121_part)


def compute_v121_part_reference(x, v9, v18, v117_part, v118_part, v120_part):
    """The same in plain torch."""
    v279 = v9.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred = x - v279  # sub: f32[2, 6, 8]
    v281 = v18.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v282 = centred / v281  # div: f32[2, 6, 8]
    v283 = v117_part + v118_part  # add: f32[2, 6, 8]
    h_grad = v283 + v120_part  # add: f32[2, 6, 8]
    v21_grad = h_grad * v282  # mul: f32[2, 6, 8]
    v121_part = v21_grad.sum((0, 1))  # sum: f32[8]
    return v121_part


def compute_v121_part(x, v9, v18, v117_part, v118_part, v120_part):
    if not (x.is_cuda or INTERPRETED):
        return compute_v121_part_reference(x, v9, v18, v117_part, v118_part, v120_part)
    x, v9, v18, v117_part, v118_part, v120_part = (
        x.contiguous() for x in (x, v9, v18, v117_part, v118_part, v120_part)
    )
    v121_part = torch.empty((8,), dtype=torch.float32, device=x.device)
    compute_v121_part_kernel[(1,)](
        x,
        v9,
        v18,
        v117_part,
        v118_part,
        v120_part,
        v121_part,
        ROWS=16,
        COLUMNS=8,
        num_warps=1,
        enable_fp_fusion=False,
    )
    return v121_part


@triton.jit
def compute_x_grad_kernel(
    x_ptr,
    v9_ptr,
    v18_ptr,
    v117_part_ptr,
    v118_part_ptr,
    v120_part_ptr,
    params_scale_ptr,
    v197_ptr,
    x_1_grad_ptr,
    x_grad_ptr,
    COLUMNS: tl.constexpr,
):
    """sub, div, add, mul, neg, sum and 1 more over 2x6x8

    %290 = broadcast(%9, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred = sub(%x, %290) : f32[2, 6, 8]
    %292 = broadcast(%18, dims=[0, 1, 2]) : f32[2, 6, 8]
    %293 = div(%centred, %292) : f32[2, 6, 8]
    %294 = add(%117.part, %118.part) : f32[2, 6, 8]
    %h.grad = add(%294, %120.part) : f32[2, 6, 8]
    %295 = broadcast(%params.scale, dims=[2]) : f32[2, 6, 8]
    %20.grad = mul(%h.grad, %295) : f32[2, 6, 8]
    %296 = div(%20.grad, %292) : f32[2, 6, 8]
    %297 = mul(%296, %293) : f32[2, 6, 8]
    %19.grad = neg(%297) : f32[2, 6, 8]
    %298 = sum(%19.grad, dims=[2]) : f32[2, 6]
    %18.grad = reshape(%298) : f32[2, 6, 1]
    %299 = constant(value=0.5) : f32[2, 6, 1]
    %300 = mul(%18.grad, %299) : f32[2, 6, 1]
    %17.grad = div(%300, %18) : f32[2, 6, 1]
    %301 = constant(value=8.0) : f32[2, 6, 1]
    %13.grad = div(%17.grad, %301) : f32[2, 6, 1]
    %12.grad = reshape(%13.grad) : f32[2, 6]
    %11.grad = broadcast(%12.grad, dims=[0, 1]) : f32[2, 6, 8]
    %302 = mul(%11.grad, %centred) : f32[2, 6, 8]
    %303 = add(%296, %302) : f32[2, 6, 8]
    %centred.grad = add(%303, %302) : f32[2, 6, 8]
    %10.grad = neg(%centred.grad) : f32[2, 6, 8]
    %305 = constant(value=-0.0) : f32[2, 6, 8]
    %x.1.grad.part = select(%197, %x.1.grad, %305) : f32[2, 6, 8]
    %306 = add(%x.1.grad.part, %centred.grad) : f32[2, 6, 8]
    %307 = sum(%10.grad, dims=[2]) : f32[2, 6]
    %9.grad = reshape(%307) : f32[2, 6, 1]
    %7.grad = div(%9.grad, %301) : f32[2, 6, 1]
    %6.grad = reshape(%7.grad) : f32[2, 6]
    %308 = broadcast(%6.grad, dims=[0, 1]) : f32[2, 6, 8]
    %x.grad = add(%306, %308) : f32[2, 6, 8]
    yield %x.grad
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * 8 + column)
    v117_part = tl.load(v117_part_ptr + row * 8 + column)
    v118_part = tl.load(v118_part_ptr + row * 8 + column)
    v120_part = tl.load(v120_part_ptr + row * 8 + column)
    x_1_grad = tl.load(x_1_grad_ptr + row * 8 + column)
    v9 = tl.load(v9_ptr + row)
    centred = x - v9
    v18 = tl.load(v18_ptr + row)
    v293 = tl.div_rn(centred, v18)
    v294 = v117_part + v118_part
    h_grad = v294 + v120_part
    params_scale = tl.load(params_scale_ptr + column)
    v20_grad = h_grad * params_scale
    v296 = tl.div_rn(v20_grad, v18)
    v297 = v296 * v293
    v19_grad = -v297
    v298 = tl.sum(v19_grad, 0)
    v300 = v298 * 0.5
    v17_grad = tl.div_rn(v300, v18)
    v13_grad = tl.div_rn(v17_grad, 8.0)
    v302 = v13_grad * centred
    v303 = v296 + v302
    centred_grad = v303 + v302
    v10_grad = -centred_grad
    v197 = tl.load(v197_ptr)
    x_1_grad_part = tl.where(v197, x_1_grad, -0.0)
    v306 = x_1_grad_part + centred_grad
    v307 = tl.sum(v10_grad, 0)
    v7_grad = tl.div_rn(v307, 8.0)
    x_grad = v306 + v7_grad
    tl.store(x_grad_ptr + row * 8 + column, x_grad)


def compute_x_grad_reference(
    x, v9, v18, v117_part, v118_part, v120_part, params_scale, v197, x_1_grad
):
    """The same in plain torch."""
    v290 = v9.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred = x - v290  # sub: f32[2, 6, 8]
    v292 = v18.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v293 = centred / v292  # div: f32[2, 6, 8]
    v294 = v117_part + v118_part  # add: f32[2, 6, 8]
    h_grad = v294 + v120_part  # add: f32[2, 6, 8]
    v295 = params_scale.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v20_grad = h_grad * v295  # mul: f32[2, 6, 8]
    v296 = v20_grad / v292  # div: f32[2, 6, 8]
    v297 = v296 * v293  # mul: f32[2, 6, 8]
    v19_grad = -v297  # neg: f32[2, 6, 8]
    v298 = v19_grad.sum(2)  # sum: f32[2, 6]
    v18_grad = v298.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v300 = v18_grad * 0.5  # mul: f32[2, 6, 1]
    v17_grad = v300 / v18  # div: f32[2, 6, 1]
    v13_grad = v17_grad / 8.0  # div: f32[2, 6, 1]
    v12_grad = v13_grad.reshape(2, 6)  # reshape: f32[2, 6]
    v11_grad = v12_grad.reshape(2, 6, 1).expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v302 = v11_grad * centred  # mul: f32[2, 6, 8]
    v303 = v296 + v302  # add: f32[2, 6, 8]
    centred_grad = v303 + v302  # add: f32[2, 6, 8]
    v10_grad = -centred_grad  # neg: f32[2, 6, 8]
    x_1_grad_part = torch.where(v197, x_1_grad, -0.0)  # select: f32[2, 6, 8]
    v306 = x_1_grad_part + centred_grad  # add: f32[2, 6, 8]
    v307 = v10_grad.sum(2)  # sum: f32[2, 6]
    v9_grad = v307.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v7_grad = v9_grad / 8.0  # div: f32[2, 6, 1]
    v6_grad = v7_grad.reshape(2, 6)  # reshape: f32[2, 6]
    v308 = v6_grad.reshape(2, 6, 1).expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    x_grad = v306 + v308  # add: f32[2, 6, 8]
    return x_grad


def compute_x_grad(x, v9, v18, v117_part, v118_part, v120_part, params_scale, v197, x_1_grad):
    if not (x.is_cuda or INTERPRETED):
        return compute_x_grad_reference(
            x, v9, v18, v117_part, v118_part, v120_part, params_scale, v197, x_1_grad
        )
    x, v9, v18, v117_part, v118_part, v120_part, params_scale, v197, x_1_grad = (
        x.contiguous()
        for x in (x, v9, v18, v117_part, v118_part, v120_part, params_scale, v197, x_1_grad)
    )
    x_grad = torch.empty((2, 6, 8), dtype=torch.float32, device=x.device)
    compute_x_grad_kernel[(12,)](
        x,
        v9,
        v18,
        v117_part,
        v118_part,
        v120_part,
        params_scale,
        v197,
        x_1_grad,
        x_grad,
        COLUMNS=8,
        num_warps=1,
        enable_fp_fusion=False,
    )
    return x_grad


@triton.jit
def compute_v137_kernel(v95_ptr, v134_ptr, params_embed_ptr, v137_ptr, BLOCK: tl.constexpr):
    """add, mul, sub over 16x8

    %params.embed.grad = add(%95, %134) : f32[16, 8]
    %321 = constant(value=0.1) : f32[16, 8]
    %322 = mul(%321, %params.embed.grad) : f32[16, 8]
    %137 = sub(%params.embed, %322) : f32[16, 8]
    yield %137
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v95 = tl.load(v95_ptr + at)
    v134 = tl.load(v134_ptr + at)
    params_embed = tl.load(params_embed_ptr + at)
    params_embed_grad = v95 + v134
    v322 = 0.1 * params_embed_grad
    v137 = params_embed - v322
    tl.store(v137_ptr + at, v137)


def compute_v137_reference(v95, v134, params_embed):
    """The same in plain torch."""
    params_embed_grad = v95 + v134  # add: f32[16, 8]
    v322 = 0.1 * params_embed_grad  # mul: f32[16, 8]
    v137 = params_embed - v322  # sub: f32[16, 8]
    return v137


def compute_v137(v95, v134, params_embed):
    if not (v95.is_cuda or INTERPRETED):
        return compute_v137_reference(v95, v134, params_embed)
    v95, v134, params_embed = (x.contiguous() for x in (v95, v134, params_embed))
    v137 = torch.empty((16, 8), dtype=torch.float32, device=v95.device)
    compute_v137_kernel[(1,)](
        v95, v134, params_embed, v137, BLOCK=128, num_warps=1, enable_fp_fusion=False
    )
    return v137


@triton.jit
def compute_v140_kernel(v101_row_ptr, v121_ptr, params_scale_ptr, v140_ptr, BLOCK: tl.constexpr):
    """add, mul, sub over 8

    %284 = reshape(%101.row) : f32[8]
    %params.scale.grad = add(%284, %121) : f32[8]
    %286 = constant(value=0.1) : f32[8]
    %287 = mul(%286, %params.scale.grad) : f32[8]
    %140 = sub(%params.scale, %287) : f32[8]
    yield %140
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v101_row = tl.load(v101_row_ptr + at)
    v121 = tl.load(v121_ptr + at)
    params_scale = tl.load(params_scale_ptr + at)
    params_scale_grad = v101_row + v121
    v287 = 0.1 * params_scale_grad
    v140 = params_scale - v287
    tl.store(v140_ptr + at, v140)


def compute_v140_reference(v101_row, v121, params_scale):
    """The same in plain torch."""
    v284 = v101_row.reshape(8)  # reshape: f32[8]
    params_scale_grad = v284 + v121  # add: f32[8]
    v287 = 0.1 * params_scale_grad  # mul: f32[8]
    v140 = params_scale - v287  # sub: f32[8]
    return v140


def compute_v140(v101_row, v121, params_scale):
    if not (v101_row.is_cuda or INTERPRETED):
        return compute_v140_reference(v101_row, v121, params_scale)
    v101_row, v121, params_scale = (x.contiguous() for x in (v101_row, v121, params_scale))
    v140 = torch.empty((8,), dtype=torch.float32, device=v101_row.device)
    compute_v140_kernel[(1,)](
        v101_row, v121, params_scale, v140, BLOCK=8, num_warps=1, enable_fp_fusion=False
    )
    return v140


@triton.jit
def compute_v143_kernel(params_q_grad_ptr, params_q_ptr, v143_ptr, BLOCK: tl.constexpr):
    """mul, sub over 8x2x4

    %324 = constant(value=0.1) : f32[8, 2, 4]
    %325 = mul(%324, %params.q.grad) : f32[8, 2, 4]
    %143 = sub(%params.q, %325) : f32[8, 2, 4]
    yield %143
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_q_grad = tl.load(params_q_grad_ptr + at)
    params_q = tl.load(params_q_ptr + at)
    v325 = 0.1 * params_q_grad
    v143 = params_q - v325
    tl.store(v143_ptr + at, v143)


def compute_v143_reference(params_q_grad, params_q):
    """The same in plain torch."""
    v325 = 0.1 * params_q_grad  # mul: f32[8, 2, 4]
    v143 = params_q - v325  # sub: f32[8, 2, 4]
    return v143


def compute_v143(params_q_grad, params_q):
    if not (params_q_grad.is_cuda or INTERPRETED):
        return compute_v143_reference(params_q_grad, params_q)
    params_q_grad = params_q_grad.contiguous()
    params_q = params_q.contiguous()
    v143 = torch.empty((8, 2, 4), dtype=torch.float32, device=params_q_grad.device)
    compute_v143_kernel[(1,)](
        params_q_grad, params_q, v143, BLOCK=64, num_warps=1, enable_fp_fusion=False
    )
    return v143


@triton.jit
def compute_v152_kernel(params_o_grad_ptr, params_o_ptr, v152_ptr, BLOCK: tl.constexpr):
    """mul, sub over 2x4x8

    %333 = constant(value=0.1) : f32[2, 4, 8]
    %334 = mul(%333, %params.o.grad) : f32[2, 4, 8]
    %152 = sub(%params.o, %334) : f32[2, 4, 8]
    yield %152
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_o_grad = tl.load(params_o_grad_ptr + at)
    params_o = tl.load(params_o_ptr + at)
    v334 = 0.1 * params_o_grad
    v152 = params_o - v334
    tl.store(v152_ptr + at, v152)


def compute_v152_reference(params_o_grad, params_o):
    """The same in plain torch."""
    v334 = 0.1 * params_o_grad  # mul: f32[2, 4, 8]
    v152 = params_o - v334  # sub: f32[2, 4, 8]
    return v152


def compute_v152(params_o_grad, params_o):
    if not (params_o_grad.is_cuda or INTERPRETED):
        return compute_v152_reference(params_o_grad, params_o)
    params_o_grad = params_o_grad.contiguous()
    params_o = params_o.contiguous()
    v152 = torch.empty((2, 4, 8), dtype=torch.float32, device=params_o_grad.device)
    compute_v152_kernel[(1,)](
        params_o_grad, params_o, v152, BLOCK=64, num_warps=1, enable_fp_fusion=False
    )
    return v152


@triton.jit
def compute_v155_kernel(params_up_grad_ptr, params_up_ptr, v155_ptr, BLOCK: tl.constexpr):
    """mul, sub over 8x8

    %336 = constant(value=0.1) : f32[8, 8]
    %337 = mul(%336, %params.up.grad) : f32[8, 8]
    %155 = sub(%params.up, %337) : f32[8, 8]
    yield %155
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_up_grad = tl.load(params_up_grad_ptr + at)
    params_up = tl.load(params_up_ptr + at)
    v337 = 0.1 * params_up_grad
    v155 = params_up - v337
    tl.store(v155_ptr + at, v155)


def compute_v155_reference(params_up_grad, params_up):
    """The same in plain torch."""
    v337 = 0.1 * params_up_grad  # mul: f32[8, 8]
    v155 = params_up - v337  # sub: f32[8, 8]
    return v155


def compute_v155(params_up_grad, params_up):
    if not (params_up_grad.is_cuda or INTERPRETED):
        return compute_v155_reference(params_up_grad, params_up)
    params_up_grad = params_up_grad.contiguous()
    params_up = params_up.contiguous()
    v155 = torch.empty((8, 8), dtype=torch.float32, device=params_up_grad.device)
    compute_v155_kernel[(1,)](
        params_up_grad, params_up, v155, BLOCK=64, num_warps=1, enable_fp_fusion=False
    )
    return v155


# The program of one device


def main(
    comm,
    params_down,
    params_embed,
    params_k,
    params_o,
    params_q,
    params_scale,
    params_up,
    params_v,
    tokens,
    targets,
):
    device = comm.device
    v4 = compute_v4(tokens)  # fused: i32[2, 6]
    v5 = v4.reshape(2, 6, 1)  # reshape: i32[2, 6, 1]
    x = take_rows(params_embed, v5[..., 0])  # gather: f32[2, 6, 8]
    v9, v18, h = compute_v9(x, params_scale)  # fused: f32[2, 6, 1], f32[2, 6, 1], f32[2, 6, 8]
    v22 = torch.einsum("btd,dhk->bthk", h, params_q)  # dot: f32[2, 6, 2, 4]
    v23 = torch.einsum("btd,dhk->bthk", h, params_k)  # dot: f32[2, 6, 2, 4]
    v24 = torch.einsum("btd,dhk->bthk", h, params_v)  # dot: f32[2, 6, 2, 4]
    v25 = torch.einsum("bthk,bshk->bhts", v22, v23)  # dot: f32[2, 2, 6, 6]
    # iota: i32[6, 6]
    v177 = torch.arange(6, dtype=torch.int32, device=device)[:, None].expand(6, 6)
    v178 = torch.arange(6, dtype=torch.int32, device=device).expand(6, 6)  # iota: i32[6, 6]
    v179 = v177 >= v178  # ge: bool[6, 6]
    v180 = torch.full((6, 6), True, dtype=torch.bool, device=device)  # constant: bool[6, 6]
    mask = torch.where(v179, v180, False)  # select: bool[6, 6]
    # fused: f32[2, 2, 6, 6], f32[2, 2, 6], f32[2, 2, 6, 6]
    v39, v40, attention = compute_v39(v25, mask)
    mixed = torch.einsum("bhts,bshk->bthk", attention, v24)  # dot: f32[2, 6, 2, 4]
    v42_part = torch.einsum("bthk,hkd->btd", mixed, params_o)  # dot: f32[2, 6, 8]
    v42 = comm.all_reduce(v42_part, op="add", axes=("model",))  # all-reduce: f32[2, 6, 8]
    # fused: f32[2, 6, 8], f32[2, 6, 1], f32[2, 6, 1], f32[2, 6, 8]
    x_1, v46, v55, v59 = compute_x_1(x, v42, params_scale)
    v60 = v59 @ params_up  # dot: f32[2, 6, 8]
    v63 = params_embed.T  # transpose: f32[8, 16]
    v80 = constant_0(device)  # constant: i32[1]
    v77, v85 = compute_v77(targets, v80)  # fused: i32[2, 6, 1], bool[2, 6, 1, 1]
    v78 = v77.reshape(2, 6, 1, 1)  # reshape: i32[2, 6, 1, 1]
    v86 = v85.all(3)  # all: bool[2, 6, 1]
    # constant: f32[2, 6, 1]
    chosen_grad_1 = torch.full((2, 6, 1), -0.041666668, dtype=torch.float32, device=device)
    v79_grad = torch.where(v86, chosen_grad_1, 0.0)  # select: f32[2, 6, 1]
    v93 = torch.full((2, 6, 16), 0.0, dtype=torch.float32, device=device)  # constant: f32[2, 6, 16]
    # scatter: f32[2, 6, 16]
    logs_grad = scatter_windows(v93, v78, v79_grad, "add", {}, [2], {0: 0, 1: 1})
    v61, h_1 = compute_v61(v60)  # fused: f32[2, 6, 8], f32[2, 6, 8]
    v62_part = h_1 @ params_down  # dot: f32[2, 6, 8]
    v62 = comm.all_reduce(v62_part, op="add", axes=("model",))  # all-reduce: f32[2, 6, 8]
    x_2 = x_1 + v62  # add: f32[2, 6, 8]
    logits = x_2 @ v63  # dot: f32[2, 6, 16]
    logs, v67_grad = compute_logs(logits, logs_grad)  # fused: f32[2, 6, 16], f32[2, 6, 16]
    v79 = take_along(logs, v78[..., 0], 2)  # gather: f32[2, 6, 1]
    v88_part = compute_v88_part(v86, v79)  # fused: f32[]
    v88 = comm.all_reduce(v88_part, op="add", axes=("data",))  # all-reduce: f32[]
    v91 = compute_v91(v88)  # fused: f32[]
    x_2_grad = v67_grad @ v63.T  # dot: f32[2, 6, 8]
    v63_grad_part = torch.einsum("abi,abh->ih", x_2, v67_grad)  # dot: f32[8, 16]
    v63_grad = comm.all_reduce(v63_grad_part, op="add", axes=("data",))  # all-reduce: f32[8, 16]
    v95 = v63_grad.T  # transpose: f32[16, 8]
    h_1_grad = x_2_grad @ params_down.T  # dot: f32[2, 6, 8]
    params_down_grad_part = torch.einsum("abi,abh->ih", h_1, x_2_grad)  # dot: f32[8, 8]
    v60_grad = compute_v60_grad(h_1_grad, v61, v60)  # fused: f32[2, 6, 8]
    v59_grad_part = v60_grad @ params_up.T  # dot: f32[2, 6, 8]
    params_up_grad_part = torch.einsum("abi,abh->ih", v59, v60_grad)  # dot: f32[8, 8]
    v59_grad = comm.all_reduce(v59_grad_part, op="add", axes=("model",))  # all-reduce: f32[2, 6, 8]
    v101_part = compute_v101_part(x_1, v46, v55, v59_grad)  # fused: f32[8]
    params_down_grad_part_row = params_down_grad_part.reshape(1, 64)  # reshape: f32[1, 64]
    params_up_grad_part_row = params_up_grad_part.reshape(1, 64)  # reshape: f32[1, 64]
    v101_part_row = v101_part.reshape(1, 8)  # reshape: f32[1, 8]
    v195 = comm.axis_index(("model",))  # axis-index: i32[]
    v197 = v195 == 0  # eq: bool[]
    # fused: f32[2, 6, 8]
    x_1_grad = compute_x_1_grad(x_1, v46, v55, v59_grad, params_scale, x_2_grad)
    mixed_grad = torch.einsum("btd,hkd->bthk", x_1_grad, params_o)  # dot: f32[2, 6, 2, 4]
    params_o_grad_part = torch.einsum("bthk,btd->hkd", mixed, x_1_grad)  # dot: f32[2, 4, 8]
    attention_grad = torch.einsum("bthk,bshk->bhts", mixed_grad, v24)  # dot: f32[2, 2, 6, 6]
    v24_grad = torch.einsum("bhts,bthk->bshk", attention, mixed_grad)  # dot: f32[2, 6, 2, 4]
    v25_grad = compute_v25_grad(attention_grad, v40, attention, v39, mask)  # fused: f32[2, 2, 6, 6]
    v22_grad = torch.einsum("bhts,bshk->bthk", v25_grad, v23)  # dot: f32[2, 6, 2, 4]
    v23_grad = torch.einsum("bhts,bthk->bshk", v25_grad, v22)  # dot: f32[2, 6, 2, 4]
    v117_part = torch.einsum("bthk,dhk->btd", v24_grad, params_v)  # dot: f32[2, 6, 8]
    params_v_grad_part = torch.einsum("btd,bthk->dhk", h, v24_grad)  # dot: f32[8, 2, 4]
    v118_part = torch.einsum("bthk,dhk->btd", v23_grad, params_k)  # dot: f32[2, 6, 8]
    params_k_grad_part = torch.einsum("btd,bthk->dhk", h, v23_grad)  # dot: f32[8, 2, 4]
    v120_part = torch.einsum("bthk,dhk->btd", v22_grad, params_q)  # dot: f32[2, 6, 8]
    params_q_grad_part = torch.einsum("btd,bthk->dhk", h, v22_grad)  # dot: f32[8, 2, 4]
    params_o_grad_part_row = params_o_grad_part.reshape(1, 64)  # reshape: f32[1, 64]
    params_v_grad_part_row = params_v_grad_part.reshape(1, 64)  # reshape: f32[1, 64]
    params_k_grad_part_row = params_k_grad_part.reshape(1, 64)  # reshape: f32[1, 64]
    params_q_grad_part_row = params_q_grad_part.reshape(1, 64)  # reshape: f32[1, 64]
    # concatenate: f32[1, 392]
    params_down_grad_joined = torch.cat(
        [
            params_down_grad_part_row,
            params_up_grad_part_row,
            v101_part_row,
            params_o_grad_part_row,
            params_v_grad_part_row,
            params_k_grad_part_row,
            params_q_grad_part_row,
        ],
        dim=1,
    )
    # all-reduce: f32[1, 392]
    params_down_grad_together = comm.all_reduce(params_down_grad_joined, op="add", axes=("data",))
    params_down_grad_row = params_down_grad_together[:, :64]  # slice: f32[1, 64]
    params_down_grad = params_down_grad_row.reshape(8, 8)  # reshape: f32[8, 8]
    params_up_grad_row = params_down_grad_together[:, 64:128]  # slice: f32[1, 64]
    params_up_grad = params_up_grad_row.reshape(8, 8)  # reshape: f32[8, 8]
    v101_row = params_down_grad_together[:, 128:136]  # slice: f32[1, 8]
    params_o_grad_row = params_down_grad_together[:, 136:200]  # slice: f32[1, 64]
    params_o_grad = params_o_grad_row.reshape(2, 4, 8)  # reshape: f32[2, 4, 8]
    params_v_grad_row = params_down_grad_together[:, 200:264]  # slice: f32[1, 64]
    params_v_grad = params_v_grad_row.reshape(8, 2, 4)  # reshape: f32[8, 2, 4]
    params_k_grad_row = params_down_grad_together[:, 264:328]  # slice: f32[1, 64]
    params_k_grad = params_k_grad_row.reshape(8, 2, 4)  # reshape: f32[8, 2, 4]
    params_q_grad_row = params_down_grad_together[:, 328:]  # slice: f32[1, 64]
    params_q_grad = params_q_grad_row.reshape(8, 2, 4)  # reshape: f32[8, 2, 4]
    v121_part = compute_v121_part(x, v9, v18, v117_part, v118_part, v120_part)  # fused: f32[8]
    v121 = comm.all_reduce(v121_part, op="add", axes=("data", "model"))  # all-reduce: f32[8]
    # fused: f32[2, 6, 8]
    x_grad = compute_x_grad(
        x, v9, v18, v117_part, v118_part, v120_part, params_scale, v197, x_1_grad
    )
    v200 = comm.axis_index(("data", "model"))  # axis-index: i32[]
    v202 = v200 == 0  # eq: bool[]
    v316 = torch.full((16, 8), 0.0, dtype=torch.float32, device=device)  # constant: f32[16, 8]
    v204 = torch.where(v202, v316, -0.0)  # select: f32[16, 8]
    v134_part = scatter_windows(v204, v5, x_grad, "add", {2: 1}, [0], {})  # scatter: f32[16, 8]
    v134 = comm.all_reduce(v134_part, op="add", axes=("data", "model"))  # all-reduce: f32[16, 8]
    v137 = compute_v137(v95, v134, params_embed)  # fused: f32[16, 8]
    v140 = compute_v140(v101_row, v121, params_scale)  # fused: f32[8]
    v143 = compute_v143(params_q_grad, params_q)  # fused: f32[8, 2, 4]
    v146 = compute_v143(params_k_grad, params_k)  # fused: f32[8, 2, 4]
    v149 = compute_v143(params_v_grad, params_v)  # fused: f32[8, 2, 4]
    v152 = compute_v152(params_o_grad, params_o)  # fused: f32[2, 4, 8]
    v155 = compute_v155(params_up_grad, params_up)  # fused: f32[8, 8]
    v158 = compute_v155(params_down_grad, params_down)  # fused: f32[8, 8]
    return (v158, v137, v146, v152, v143, v140, v155, v149, v91)


# What it takes and returns


PROGRAM = Program(
    title="transformer_step",
    mesh={"data": 2, "model": 2},
    arguments=(
        Tensor("params.down", "f32", (16, 8), (("model",), ())),
        Tensor("params.embed", "f32", (16, 8)),
        Tensor("params.k", "f32", (8, 4, 4), ((), ("model",), ())),
        Tensor("params.o", "f32", (4, 4, 8), (("model",), (), ())),
        Tensor("params.q", "f32", (8, 4, 4), ((), ("model",), ())),
        Tensor("params.scale", "f32", (8,)),
        Tensor("params.up", "f32", (8, 16), ((), ("model",))),
        Tensor("params.v", "f32", (8, 4, 4), ((), ("model",), ())),
        Tensor("tokens", "i32", (4, 6), (("data",), ())),
        Tensor("targets", "i32", (4, 6), (("data",), ())),
    ),
    results=(
        Tensor("result.0.down", "f32", (16, 8), (("model",), ())),
        Tensor("result.0.embed", "f32", (16, 8)),
        Tensor("result.0.k", "f32", (8, 4, 4), ((), ("model",), ())),
        Tensor("result.0.o", "f32", (4, 4, 8), (("model",), (), ())),
        Tensor("result.0.q", "f32", (8, 4, 4), ((), ("model",), ())),
        Tensor("result.0.scale", "f32", (8,)),
        Tensor("result.0.up", "f32", (8, 16), ((), ("model",))),
        Tensor("result.0.v", "f32", (8, 4, 4), ((), ("model",), ())),
        Tensor("result.1", "f32", ()),
    ),
    groups=(("model",), ("data",), ("data", "model")),
    file=__file__,
)


if __name__ == "__main__":
    run(main, PROGRAM)
