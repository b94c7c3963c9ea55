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
def minimum(x, y):
    """The smaller; NaN if either is."""
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def logistic_f32(x):
    """1 / (1 + exp(-x)), from whichever exponential is small."""
    small = libdevice.exp(-tl.abs(x))
    return tl.div_rn(tl.where(x < 0, small, 1.0), 1.0 + small)


@triton.jit
def compute_v77_kernel(targets_ptr, v80_ptr, v77_ptr, v85_ptr, v95_ptr, BLOCK: tl.constexpr):
    """lt, add, select, ge, and, clamp over 2x6

    %225 = reshape(%targets) : i32[2, 6, 1]
    %226 = constant(value=0) : i32[2, 6, 1]
    %227 = lt(%225, %226) : bool[2, 6, 1]
    %228 = constant(value=16) : i32[2, 6, 1]
    %229 = add(%225, %228) : i32[2, 6, 1]
    %77 = select(%227, %229, %225) : i32[2, 6, 1]
    %231 = reshape(%77) : i32[2, 6, 1, 1]
    %232 = constant(value=0) : i32[2, 6, 1, 1]
    %233 = ge(%231, %232) : bool[2, 6, 1, 1]
    %235 = broadcast(%80, dims=[3]) : i32[2, 6, 1, 1]
    %236 = lt(%231, %235) : bool[2, 6, 1, 1]
    %85 = and(%233, %236) : bool[2, 6, 1, 1]
    %238 = constant(value=0) : i32[]
    %239 = constant(value=15) : i32[]
    %95 = clamp(%238, %231, %239) : i32[2, 6, 1, 1]
    yield %77, %85, %95
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 12
    targets = tl.load(targets_ptr + at, mask)
    v80 = tl.load(v80_ptr)
    v227 = targets < 0
    v229 = targets + 16
    v77 = tl.where(v227, v229, targets)
    v233 = v77 >= 0
    v236 = v77 < v80
    v85 = v233 & v236
    v95 = minimum(maximum(v77, 0), 15)
    tl.store(v77_ptr + at, v77, mask)
    tl.store(v85_ptr + at, v85, mask)
    tl.store(v95_ptr + at, v95, mask)


def compute_v77_reference(targets, v80):
    """The same in plain torch."""
    v225 = targets.reshape(2, 6, 1)  # reshape: i32[2, 6, 1]
    v227 = v225 < 0  # lt: bool[2, 6, 1]
    v229 = v225 + 16  # add: i32[2, 6, 1]
    v77 = torch.where(v227, v229, v225)  # select: i32[2, 6, 1]
    v231 = v77.reshape(2, 6, 1, 1)  # reshape: i32[2, 6, 1, 1]
    v233 = v231 >= 0  # ge: bool[2, 6, 1, 1]
    v235 = v80.expand(2, 6, 1, 1)  # broadcast: i32[2, 6, 1, 1]
    v236 = v231 < v235  # lt: bool[2, 6, 1, 1]
    v85 = v233 & v236  # and: bool[2, 6, 1, 1]
    v95 = v231.clamp(0, 15)  # clamp: i32[2, 6, 1, 1]
    return v77, v85, v95


def compute_v77(targets, v80):
    if not (targets.is_cuda or INTERPRETED):
        return compute_v77_reference(targets, v80)
    targets = targets.contiguous()
    v80 = v80.contiguous()
    v77 = torch.empty((2, 6, 1), dtype=torch.int32, device=targets.device)
    v85 = torch.empty((2, 6, 1, 1), dtype=torch.bool, device=targets.device)
    v95 = torch.empty((2, 6, 1, 1), dtype=torch.int32, device=targets.device)
    compute_v77_kernel[(1,)](
        targets, v80, v77, v85, v95, BLOCK=16, num_warps=1, enable_fp_fusion=False
    )
    return v77, v85, v95


@triton.jit
def compute_v4_kernel(tokens_ptr, v4_ptr, v138_ptr, BLOCK: tl.constexpr):
    """lt, add, select, clamp over 2x6

    %14 = constant(value=0) : i32[2, 6]
    %45 = lt(%tokens, %14) : bool[2, 6]
    %51 = constant(value=16) : i32[2, 6]
    %53 = add(%tokens, %51) : i32[2, 6]
    %4 = select(%45, %53, %tokens) : i32[2, 6]
    %111 = constant(value=0) : i32[]
    %120 = reshape(%4) : i32[2, 6, 1]
    %121 = constant(value=15) : i32[]
    %138 = clamp(%111, %120, %121) : i32[2, 6, 1]
    yield %4, %138
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 12
    tokens = tl.load(tokens_ptr + at, mask)
    v45 = tokens < 0
    v53 = tokens + 16
    v4 = tl.where(v45, v53, tokens)
    v138 = minimum(maximum(v4, 0), 15)
    tl.store(v4_ptr + at, v4, mask)
    tl.store(v138_ptr + at, v138, mask)


def compute_v4_reference(tokens):
    """The same in plain torch."""
    v45 = tokens < 0  # lt: bool[2, 6]
    v53 = tokens + 16  # add: i32[2, 6]
    v4 = torch.where(v45, v53, tokens)  # select: i32[2, 6]
    v120 = v4.reshape(2, 6, 1)  # reshape: i32[2, 6, 1]
    v138 = v120.clamp(0, 15)  # clamp: i32[2, 6, 1]
    return v4, v138


def compute_v4(tokens):
    if not (tokens.is_cuda or INTERPRETED):
        return compute_v4_reference(tokens)
    tokens = tokens.contiguous()
    v4 = torch.empty((2, 6), dtype=torch.int32, device=tokens.device)
    v138 = torch.empty((2, 6, 1), dtype=torch.int32, device=tokens.device)
    compute_v4_kernel[(1,)](tokens, v4, v138, BLOCK=16, num_warps=1, enable_fp_fusion=False)
    return v4, v138


@triton.jit
def compute_v9_kernel(x_ptr, params_scale_ptr, v9_ptr, v18_ptr, h_ptr, COLUMNS: tl.constexpr):
    """sum, div, sub, mul, add, sqrt over 2x6x8

    %128 = sum(%x, dims=[2]) : f32[2, 6]
    %131 = reshape(%128) : f32[2, 6, 1]
    %136 = constant(value=8.0) : f32[2, 6, 1]
    %9 = div(%131, %136) : f32[2, 6, 1]
    %150 = broadcast(%9, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred = sub(%x, %150) : f32[2, 6, 8]
    %153 = mul(%centred, %centred) : f32[2, 6, 8]
    %162 = sum(%153, dims=[2]) : f32[2, 6]
    %165 = reshape(%162) : f32[2, 6, 1]
    %166 = div(%165, %136) : f32[2, 6, 1]
    %167 = constant(value=1e-05) : f32[2, 6, 1]
    %168 = add(%166, %167) : f32[2, 6, 1]
    %18 = sqrt(%168) : f32[2, 6, 1]
    %170 = broadcast(%18, dims=[0, 1, 2]) : f32[2, 6, 8]
    %171 = div(%centred, %170) : f32[2, 6, 8]
    %172 = broadcast(%params.scale, dims=[2]) : f32[2, 6, 8]
    %h = mul(%171, %172) : f32[2, 6, 8]
    yield %9, %18, %h
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * 8 + column)
    v128 = tl.sum(x, 0)
    v9 = tl.div_rn(v128, 8.0)
    centred = x - v9
    v153 = centred * centred
    v162 = tl.sum(v153, 0)
    v166 = tl.div_rn(v162, 8.0)
    v168 = v166 + 1e-05
    v18 = tl.sqrt_rn(v168)
    v171 = tl.div_rn(centred, v18)
    params_scale = tl.load(params_scale_ptr + column)
    h = v171 * params_scale
    tl.store(v9_ptr + row, v9)
    tl.store(v18_ptr + row, v18)
    tl.store(h_ptr + row * 8 + column, h)


def compute_v9_reference(x, params_scale):
    """The same in plain torch."""
    v128 = x.sum(2)  # sum: f32[2, 6]
    v131 = v128.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v9 = v131 / 8.0  # div: f32[2, 6, 1]
    v150 = v9.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred = x - v150  # sub: f32[2, 6, 8]
    v153 = centred * centred  # mul: f32[2, 6, 8]
    v162 = v153.sum(2)  # sum: f32[2, 6]
    v165 = v162.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v166 = v165 / 8.0  # div: f32[2, 6, 1]
    v168 = v166 + 1e-05  # add: f32[2, 6, 1]
    v18 = torch.sqrt(v168)  # sqrt: f32[2, 6, 1]
    v170 = v18.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v171 = centred / v170  # div: f32[2, 6, 8]
    v172 = params_scale.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    h = v171 * v172  # mul: f32[2, 6, 8]
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

    %174 = constant(value=2.0) : f32[2, 2, 6, 6]
    %scores = div(%25, %174) : f32[2, 2, 6, 6]
    %175 = broadcast(%mask, dims=[2, 3]) : bool[2, 2, 6, 6]
    %176 = constant(value=-1000000000.0) : f32[2, 2, 6, 6]
    %177 = select(%175, %scores, %176) : f32[2, 2, 6, 6]
    %178 = max(%177, dims=[3]) : f32[2, 2, 6]
    %179 = stop_gradient(%178) : f32[2, 2, 6]
    %180 = broadcast(%179, dims=[0, 1, 2]) : f32[2, 2, 6, 6]
    %181 = sub(%177, %180) : f32[2, 2, 6, 6]
    %39 = exp(%181) : f32[2, 2, 6, 6]
    %40 = sum(%39, dims=[3]) : f32[2, 2, 6]
    %184 = broadcast(%40, dims=[0, 1, 2]) : f32[2, 2, 6, 6]
    %attention = div(%39, %184) : f32[2, 2, 6, 6]
    yield %39, %40, %attention
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    column_mask = column < 6
    v25 = tl.load(v25_ptr + row * 6 + column, column_mask)
    scores = tl.div_rn(v25, 2.0)
    i = row % 6
    mask = tl.load(mask_ptr + i * 6 + column, column_mask)
    v177 = tl.where(mask, scores, -1e+09)
    v178 = tl.reduce(tl.where(column_mask, v177, float("-inf")), 0, maximum)
    v181 = v177 - v178
    v39 = libdevice.exp(v181)
    v40 = tl.sum(tl.where(column_mask, v39, 0.0), 0)
    attention = tl.div_rn(v39, v40)
    tl.store(v39_ptr + row * 6 + column, v39, column_mask)
    tl.store(v40_ptr + row, v40)
    tl.store(attention_ptr + row * 6 + column, attention, column_mask)


def compute_v39_reference(v25, mask):
    """The same in plain torch."""
    scores = v25 / 2.0  # div: f32[2, 2, 6, 6]
    v175 = mask.expand(2, 2, 6, 6)  # broadcast: bool[2, 2, 6, 6]
    v177 = torch.where(v175, scores, -1000000000.0)  # select: f32[2, 2, 6, 6]
    v178 = v177.amax(3)  # max: f32[2, 2, 6]
    v180 = v178.reshape(2, 2, 6, 1).expand(2, 2, 6, 6)  # broadcast: f32[2, 2, 6, 6]
    v181 = v177 - v180  # sub: f32[2, 2, 6, 6]
    v39 = torch.exp(v181)  # exp: f32[2, 2, 6, 6]
    v40 = v39.sum(3)  # sum: f32[2, 2, 6]
    v184 = v40.reshape(2, 2, 6, 1).expand(2, 2, 6, 6)  # broadcast: f32[2, 2, 6, 6]
    attention = v39 / v184  # div: f32[2, 2, 6, 6]
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
    %191 = sum(%x.1, dims=[2]) : f32[2, 6]
    %192 = reshape(%191) : f32[2, 6, 1]
    %193 = constant(value=8.0) : f32[2, 6, 1]
    %46 = div(%192, %193) : f32[2, 6, 1]
    %195 = broadcast(%46, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred.1 = sub(%x.1, %195) : f32[2, 6, 8]
    %196 = mul(%centred.1, %centred.1) : f32[2, 6, 8]
    %197 = sum(%196, dims=[2]) : f32[2, 6]
    %198 = reshape(%197) : f32[2, 6, 1]
    %199 = div(%198, %193) : f32[2, 6, 1]
    %200 = constant(value=1e-05) : f32[2, 6, 1]
    %202 = add(%199, %200) : f32[2, 6, 1]
    %55 = sqrt(%202) : f32[2, 6, 1]
    %207 = broadcast(%55, dims=[0, 1, 2]) : f32[2, 6, 8]
    %211 = div(%centred.1, %207) : f32[2, 6, 8]
    %212 = broadcast(%params.scale, dims=[2]) : f32[2, 6, 8]
    %59 = mul(%211, %212) : f32[2, 6, 8]
    yield %x.1, %46, %55, %59
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * 8 + column)
    v42 = tl.load(v42_ptr + row * 8 + column)
    x_1 = x + v42
    v191 = tl.sum(x_1, 0)
    v46 = tl.div_rn(v191, 8.0)
    centred_1 = x_1 - v46
    v196 = centred_1 * centred_1
    v197 = tl.sum(v196, 0)
    v199 = tl.div_rn(v197, 8.0)
    v202 = v199 + 1e-05
    v55 = tl.sqrt_rn(v202)
    v211 = tl.div_rn(centred_1, v55)
    params_scale = tl.load(params_scale_ptr + column)
    v59 = v211 * params_scale
    tl.store(x_1_ptr + row * 8 + column, x_1)
    tl.store(v46_ptr + row, v46)
    tl.store(v55_ptr + row, v55)
    tl.store(v59_ptr + row * 8 + column, v59)


def compute_x_1_reference(x, v42, params_scale):
    """The same in plain torch."""
    x_1 = x + v42  # add: f32[2, 6, 8]
    v191 = x_1.sum(2)  # sum: f32[2, 6]
    v192 = v191.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v46 = v192 / 8.0  # div: f32[2, 6, 1]
    v195 = v46.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred_1 = x_1 - v195  # sub: f32[2, 6, 8]
    v196 = centred_1 * centred_1  # mul: f32[2, 6, 8]
    v197 = v196.sum(2)  # sum: f32[2, 6]
    v198 = v197.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v199 = v198 / 8.0  # div: f32[2, 6, 1]
    v202 = v199 + 1e-05  # add: f32[2, 6, 1]
    v55 = torch.sqrt(v202)  # sqrt: f32[2, 6, 1]
    v207 = v55.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v211 = centred_1 / v207  # div: f32[2, 6, 8]
    v212 = params_scale.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v59 = v211 * v212  # mul: f32[2, 6, 8]
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

    %216 = max(%logits, dims=[2]) : f32[2, 6]
    %217 = stop_gradient(%216) : f32[2, 6]
    %218 = broadcast(%217, dims=[0, 1]) : f32[2, 6, 16]
    %219 = sub(%logits, %218) : f32[2, 6, 16]
    %220 = exp(%219) : f32[2, 6, 16]
    %221 = sum(%220, dims=[2]) : f32[2, 6]
    %222 = log(%221) : f32[2, 6]
    %223 = broadcast(%222, dims=[0, 1]) : f32[2, 6, 16]
    %logs = sub(%219, %223) : f32[2, 6, 16]
    %71.grad = neg(%logs.grad) : f32[2, 6, 16]
    %70.grad = sum(%71.grad, dims=[2]) : f32[2, 6]
    %69.grad = div(%70.grad, %221) : f32[2, 6]
    %68.grad = broadcast(%69.grad, dims=[0, 1]) : f32[2, 6, 16]
    %224 = mul(%68.grad, %220) : f32[2, 6, 16]
    %67.grad = add(%logs.grad, %224) : f32[2, 6, 16]
    yield %logs, %67.grad
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    logits = tl.load(logits_ptr + row * 16 + column)
    logs_grad = tl.load(logs_grad_ptr + row * 16 + column)
    v216 = tl.reduce(logits, 0, maximum)
    v219 = logits - v216
    v220 = libdevice.exp(v219)
    v221 = tl.sum(v220, 0)
    v222 = libdevice.log(v221)
    logs = v219 - v222
    v71_grad = -logs_grad
    v70_grad = tl.sum(v71_grad, 0)
    v69_grad = tl.div_rn(v70_grad, v221)
    v224 = v69_grad * v220
    v67_grad = logs_grad + v224
    tl.store(logs_ptr + row * 16 + column, logs)
    tl.store(v67_grad_ptr + row * 16 + column, v67_grad)


def compute_logs_reference(logits, logs_grad):
    """The same in plain torch."""
    v216 = logits.amax(2)  # max: f32[2, 6]
    v218 = v216.reshape(2, 6, 1).expand(2, 6, 16)  # broadcast: f32[2, 6, 16]
    v219 = logits - v218  # sub: f32[2, 6, 16]
    v220 = torch.exp(v219)  # exp: f32[2, 6, 16]
    v221 = v220.sum(2)  # sum: f32[2, 6]
    v222 = torch.log(v221)  # log: f32[2, 6]
    v223 = v222.reshape(2, 6, 1).expand(2, 6, 16)  # broadcast: f32[2, 6, 16]
    logs = v219 - v223  # sub: f32[2, 6, 16]
    v71_grad = -logs_grad  # neg: f32[2, 6, 16]
    v70_grad = v71_grad.sum(2)  # sum: f32[2, 6]
    v69_grad = v70_grad / v221  # div: f32[2, 6]
    v68_grad = v69_grad.reshape(2, 6, 1).expand(2, 6, 16)  # broadcast: f32[2, 6, 16]
    v224 = v68_grad * v220  # mul: f32[2, 6, 16]
    v67_grad = logs_grad + v224  # add: f32[2, 6, 16]
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

    %243 = constant(value=nan) : f32[2, 6, 1]
    %chosen = select(%86, %79, %243) : f32[2, 6, 1]
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

    %245 = constant(value=24.0) : f32[]
    %246 = div(%88, %245) : f32[]
    %91 = neg(%246) : f32[]
    yield %91
    """
    v88 = tl.load(v88_ptr)
    v246 = tl.div_rn(v88, 24.0)
    v91 = -v246
    tl.store(v91_ptr, v91)


def compute_v91_reference(v88):
    """The same in plain torch."""
    device = v88.device
    v245 = torch.full((), 24.0, dtype=torch.float32, device=device)  # constant: f32[]
    v246 = v88 / v245  # div: f32[]
    v91 = -v246  # neg: f32[]
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

    %251 = mul(%h.1.grad, %61) : f32[2, 6, 8]
    %61.grad = mul(%h.1.grad, %60) : f32[2, 6, 8]
    %253 = constant(value=1) : f32[2, 6, 8]
    %254 = sub(%253, %61) : f32[2, 6, 8]
    %255 = mul(%61, %254) : f32[2, 6, 8]
    %256 = mul(%61.grad, %255) : f32[2, 6, 8]
    %60.grad = add(%251, %256) : f32[2, 6, 8]
    yield %60.grad
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < 96
    h_1_grad = tl.load(h_1_grad_ptr + at, mask)
    v61 = tl.load(v61_ptr + at, mask)
    v60 = tl.load(v60_ptr + at, mask)
    v251 = h_1_grad * v61
    v61_grad = h_1_grad * v60
    v254 = 1.0 - v61
    v255 = v61 * v254
    v256 = v61_grad * v255
    v60_grad = v251 + v256
    tl.store(v60_grad_ptr + at, v60_grad, mask)


def compute_v60_grad_reference(h_1_grad, v61, v60):
    """The same in plain torch."""
    v251 = h_1_grad * v61  # mul: f32[2, 6, 8]
    v61_grad = h_1_grad * v60  # mul: f32[2, 6, 8]
    v254 = 1.0 - v61  # sub: f32[2, 6, 8]
    v255 = v61 * v254  # mul: f32[2, 6, 8]
    v256 = v61_grad * v255  # mul: f32[2, 6, 8]
    v60_grad = v251 + v256  # add: f32[2, 6, 8]
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
def compute_v104_part_kernel(
    x_1_ptr,
    v46_ptr,
    v55_ptr,
    v59_grad_ptr,
    v104_part_ptr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sub, div, mul, sum over 2x6x8

    %275 = broadcast(%46, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred.1 = sub(%x.1, %275) : f32[2, 6, 8]
    %277 = broadcast(%55, dims=[0, 1, 2]) : f32[2, 6, 8]
    %278 = div(%centred.1, %277) : f32[2, 6, 8]
    %58.grad = mul(%59.grad, %278) : f32[2, 6, 8]
    %104.part = sum(%58.grad, dims=[0, 1]) : f32[8]
    yield %104.part
    """
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    row = tl.arange(0, ROWS)[:, None]
    row_mask = row < 12
    x_1 = tl.load(x_1_ptr + row * 8 + column, row_mask)
    v59_grad = tl.load(v59_grad_ptr + row * 8 + column, row_mask)
    v46 = tl.load(v46_ptr + row, row_mask)
    centred_1 = x_1 - v46
    v55 = tl.load(v55_ptr + row, row_mask)
    v278 = tl.div_rn(centred_1, v55)
    v58_grad = v59_grad * v278
    v104_part = tl.sum(tl.where(row_mask, v58_grad, 0.0), 0, keep_dims=True)
    tl.store(v104_part_ptr + column, v104_part)


def compute_v104_part_reference(x_1, v46, v55, v59_grad):
    """The same in plain torch."""
    v275 = v46.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred_1 = x_1 - v275  # sub: f32[2, 6, 8]
    v277 = v55.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v278 = centred_1 / v277  # div: f32[2, 6, 8]
    v58_grad = v59_grad * v278  # mul: f32[2, 6, 8]
    v104_part = v58_grad.sum((0, 1))  # sum: f32[8]
    return v104_part


def compute_v104_part(x_1, v46, v55, v59_grad):
    if not (x_1.is_cuda or INTERPRETED):
        return compute_v104_part_reference(x_1, v46, v55, v59_grad)
    x_1, v46, v55, v59_grad = (x.contiguous() for x in (x_1, v46, v55, v59_grad))
    v104_part = torch.empty((8,), dtype=torch.float32, device=x_1.device)
    compute_v104_part_kernel[(1,)](
        x_1, v46, v55, v59_grad, v104_part, ROWS=16, COLUMNS=8, num_warps=1, enable_fp_fusion=False
    )
    return v104_part


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

    %258 = broadcast(%46, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred.1 = sub(%x.1, %258) : f32[2, 6, 8]
    %260 = broadcast(%55, dims=[0, 1, 2]) : f32[2, 6, 8]
    %261 = div(%centred.1, %260) : f32[2, 6, 8]
    %262 = broadcast(%params.scale, dims=[2]) : f32[2, 6, 8]
    %57.grad = mul(%59.grad, %262) : f32[2, 6, 8]
    %263 = div(%57.grad, %260) : f32[2, 6, 8]
    %264 = mul(%263, %261) : f32[2, 6, 8]
    %56.grad = neg(%264) : f32[2, 6, 8]
    %265 = sum(%56.grad, dims=[2]) : f32[2, 6]
    %55.grad = reshape(%265) : f32[2, 6, 1]
    %266 = constant(value=0.5) : f32[2, 6, 1]
    %267 = mul(%55.grad, %266) : f32[2, 6, 1]
    %54.grad = div(%267, %55) : f32[2, 6, 1]
    %268 = constant(value=8.0) : f32[2, 6, 1]
    %50.grad = div(%54.grad, %268) : f32[2, 6, 1]
    %49.grad = reshape(%50.grad) : f32[2, 6]
    %48.grad = broadcast(%49.grad, dims=[0, 1]) : f32[2, 6, 8]
    %269 = mul(%48.grad, %centred.1) : f32[2, 6, 8]
    %270 = add(%263, %269) : f32[2, 6, 8]
    %centred.1.grad = add(%270, %269) : f32[2, 6, 8]
    %47.grad = neg(%centred.1.grad) : f32[2, 6, 8]
    %271 = add(%x.2.grad, %centred.1.grad) : f32[2, 6, 8]
    %272 = sum(%47.grad, dims=[2]) : f32[2, 6]
    %46.grad = reshape(%272) : f32[2, 6, 1]
    %44.grad = div(%46.grad, %268) : f32[2, 6, 1]
    %43.grad = reshape(%44.grad) : f32[2, 6]
    %273 = broadcast(%43.grad, dims=[0, 1]) : f32[2, 6, 8]
    %x.1.grad = add(%271, %273) : f32[2, 6, 8]
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
    v261 = tl.div_rn(centred_1, v55)
    params_scale = tl.load(params_scale_ptr + column)
    v57_grad = v59_grad * params_scale
    v263 = tl.div_rn(v57_grad, v55)
    v264 = v263 * v261
    v56_grad = -v264
    v265 = tl.sum(v56_grad, 0)
    v267 = v265 * 0.5
    v54_grad = tl.div_rn(v267, v55)
    v50_grad = tl.div_rn(v54_grad, 8.0)
    v269 = v50_grad * centred_1
    v270 = v263 + v269
    centred_1_grad = v270 + v269
    v47_grad = -centred_1_grad
    v271 = x_2_grad + centred_1_grad
    v272 = tl.sum(v47_grad, 0)
    v44_grad = tl.div_rn(v272, 8.0)
    x_1_grad = v271 + v44_grad
    tl.store(x_1_grad_ptr + row * 8 + column, x_1_grad)


def compute_x_1_grad_reference(x_1, v46, v55, v59_grad, params_scale, x_2_grad):
    """The same in plain torch."""
    v258 = v46.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred_1 = x_1 - v258  # sub: f32[2, 6, 8]
    v260 = v55.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v261 = centred_1 / v260  # div: f32[2, 6, 8]
    v262 = params_scale.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v57_grad = v59_grad * v262  # mul: f32[2, 6, 8]
    v263 = v57_grad / v260  # div: f32[2, 6, 8]
    v264 = v263 * v261  # mul: f32[2, 6, 8]
    v56_grad = -v264  # neg: f32[2, 6, 8]
    v265 = v56_grad.sum(2)  # sum: f32[2, 6]
    v55_grad = v265.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v267 = v55_grad * 0.5  # mul: f32[2, 6, 1]
    v54_grad = v267 / v55  # div: f32[2, 6, 1]
    v50_grad = v54_grad / 8.0  # div: f32[2, 6, 1]
    v49_grad = v50_grad.reshape(2, 6)  # reshape: f32[2, 6]
    v48_grad = v49_grad.reshape(2, 6, 1).expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v269 = v48_grad * centred_1  # mul: f32[2, 6, 8]
    v270 = v263 + v269  # add: f32[2, 6, 8]
    centred_1_grad = v270 + v269  # add: f32[2, 6, 8]
    v47_grad = -centred_1_grad  # neg: f32[2, 6, 8]
    v271 = x_2_grad + centred_1_grad  # add: f32[2, 6, 8]
    v272 = v47_grad.sum(2)  # sum: f32[2, 6]
    v46_grad = v272.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v44_grad = v46_grad / 8.0  # div: f32[2, 6, 1]
    v43_grad = v44_grad.reshape(2, 6)  # reshape: f32[2, 6]
    v273 = v43_grad.reshape(2, 6, 1).expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    x_1_grad = v271 + v273  # add: f32[2, 6, 8]
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

    %280 = broadcast(%40, dims=[0, 1, 2]) : f32[2, 2, 6, 6]
    %281 = div(%attention.grad, %280) : f32[2, 2, 6, 6]
    %282 = mul(%281, %attention) : f32[2, 2, 6, 6]
    %41.grad = neg(%282) : f32[2, 2, 6, 6]
    %40.grad = sum(%41.grad, dims=[3]) : f32[2, 2, 6]
    %283 = broadcast(%40.grad, dims=[0, 1, 2]) : f32[2, 2, 6, 6]
    %39.grad = add(%281, %283) : f32[2, 2, 6, 6]
    %38.grad = mul(%39.grad, %39) : f32[2, 2, 6, 6]
    %285 = broadcast(%mask, dims=[2, 3]) : bool[2, 2, 6, 6]
    %286 = constant(value=0) : f32[2, 2, 6, 6]
    %scores.grad = select(%285, %38.grad, %286) : f32[2, 2, 6, 6]
    %287 = constant(value=2.0) : f32[2, 2, 6, 6]
    %25.grad = div(%scores.grad, %287) : f32[2, 2, 6, 6]
    yield %25.grad
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    column_mask = column < 6
    attention_grad = tl.load(attention_grad_ptr + row * 6 + column, column_mask)
    attention = tl.load(attention_ptr + row * 6 + column, column_mask)
    v39 = tl.load(v39_ptr + row * 6 + column, column_mask)
    v40 = tl.load(v40_ptr + row)
    v281 = tl.div_rn(attention_grad, v40)
    v282 = v281 * attention
    v41_grad = -v282
    v40_grad = tl.sum(tl.where(column_mask, v41_grad, 0.0), 0)
    v39_grad = v281 + v40_grad
    v38_grad = v39_grad * v39
    i = row % 6
    mask = tl.load(mask_ptr + i * 6 + column, column_mask)
    scores_grad = tl.where(mask, v38_grad, 0.0)
    v25_grad = tl.div_rn(scores_grad, 2.0)
    tl.store(v25_grad_ptr + row * 6 + column, v25_grad, column_mask)


def compute_v25_grad_reference(attention_grad, v40, attention, v39, mask):
    """The same in plain torch."""
    v280 = v40.reshape(2, 2, 6, 1).expand(2, 2, 6, 6)  # broadcast: f32[2, 2, 6, 6]
    v281 = attention_grad / v280  # div: f32[2, 2, 6, 6]
    v282 = v281 * attention  # mul: f32[2, 2, 6, 6]
    v41_grad = -v282  # neg: f32[2, 2, 6, 6]
    v40_grad = v41_grad.sum(3)  # sum: f32[2, 2, 6]
    v283 = v40_grad.reshape(2, 2, 6, 1).expand(2, 2, 6, 6)  # broadcast: f32[2, 2, 6, 6]
    v39_grad = v281 + v283  # add: f32[2, 2, 6, 6]
    v38_grad = v39_grad * v39  # mul: f32[2, 2, 6, 6]
    v285 = mask.expand(2, 2, 6, 6)  # broadcast: bool[2, 2, 6, 6]
    scores_grad = torch.where(v285, v38_grad, 0.0)  # select: f32[2, 2, 6, 6]
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
def compute_v124_part_kernel(
    x_ptr,
    v9_ptr,
    v18_ptr,
    v120_part_ptr,
    v121_part_ptr,
    v123_part_ptr,
    v124_part_ptr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """sub, div, add, mul, sum over 2x6x8

    %289 = broadcast(%9, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred = sub(%x, %289) : f32[2, 6, 8]
    %291 = broadcast(%18, dims=[0, 1, 2]) : f32[2, 6, 8]
    %292 = div(%centred, %291) : f32[2, 6, 8]
    %293 = add(%120.part, %121.part) : f32[2, 6, 8]
    %h.grad = add(%293, %123.part) : f32[2, 6, 8]
    %21.grad = mul(%h.grad, %292) : f32[2, 6, 8]
    %124.part = sum(%21.grad, dims=[0, 1]) : f32[8]
    yield %124.part
    """
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    row = tl.arange(0, ROWS)[:, None]
    row_mask = row < 12
    x = tl.load(x_ptr + row * 8 + column, row_mask)
    v120_part = tl.load(v120_part_ptr + row * 8 + column, row_mask)
    v121_part = tl.load(v121_part_ptr + row * 8 + column, row_mask)
    v123_part = tl.load(v123_part_ptr + row * 8 + column, row_mask)
    v9 = tl.load(v9_ptr + row, row_mask)
    centred = x - v9
    v18 = tl.load(v18_ptr + row, row_mask)
    v292 = tl.div_rn(centred, v18)
    v293 = v120_part + v121_part
    h_grad = v293 + v123_part
    v21_grad = h_grad * v292
    v124_part = tl.sum(tl.where(row_mask, v21_grad, 0.0), 0, keep_dims=True)
    tl.store(v124_part_ptr + column, v124_part)


def compute_v124_part_reference(x, v9, v18, v120_part, v121_part, v123_part):
    """The same in plain torch."""
    v289 = v9.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred = x - v289  # sub: f32[2, 6, 8]
    v291 = v18.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v292 = centred / v291  # div: f32[2, 6, 8]
    v293 = v120_part + v121_part  # add: f32[2, 6, 8]
    h_grad = v293 + v123_part  # add: f32[2, 6, 8]
    v21_grad = h_grad * v292  # mul: f32[2, 6, 8]
    v124_part = v21_grad.sum((0, 1))  # sum: f32[8]
    return v124_part


def compute_v124_part(x, v9, v18, v120_part, v121_part, v123_part):
    if not (x.is_cuda or INTERPRETED):
        return compute_v124_part_reference(x, v9, v18, v120_part, v121_part, v123_part)
    x, v9, v18, v120_part, v121_part, v123_part = (
        x.contiguous() for x in (x, v9, v18, v120_part, v121_part, v123_part)
    )
    v124_part = torch.empty((8,), dtype=torch.float32, device=x.device)
    compute_v124_part_kernel[(1,)](
        x,
        v9,
        v18,
        v120_part,
        v121_part,
        v123_part,
        v124_part,
        ROWS=16,
        COLUMNS=8,
        num_warps=1,
        enable_fp_fusion=False,
    )
    return v124_part


@triton.jit
def compute_x_grad_kernel(
    x_ptr,
    v9_ptr,
    v18_ptr,
    v120_part_ptr,
    v121_part_ptr,
    v123_part_ptr,
    params_scale_ptr,
    v203_ptr,
    x_1_grad_ptr,
    x_grad_ptr,
    COLUMNS: tl.constexpr,
):
    """sub, div, add, mul, neg, sum and 1 more over 2x6x8

    %300 = broadcast(%9, dims=[0, 1, 2]) : f32[2, 6, 8]
    %centred = sub(%x, %300) : f32[2, 6, 8]
    %302 = broadcast(%18, dims=[0, 1, 2]) : f32[2, 6, 8]
    %303 = div(%centred, %302) : f32[2, 6, 8]
    %304 = add(%120.part, %121.part) : f32[2, 6, 8]
    %h.grad = add(%304, %123.part) : f32[2, 6, 8]
    %305 = broadcast(%params.scale, dims=[2]) : f32[2, 6, 8]
    %20.grad = mul(%h.grad, %305) : f32[2, 6, 8]
    %306 = div(%20.grad, %302) : f32[2, 6, 8]
    %307 = mul(%306, %303) : f32[2, 6, 8]
    %19.grad = neg(%307) : f32[2, 6, 8]
    %308 = sum(%19.grad, dims=[2]) : f32[2, 6]
    %18.grad = reshape(%308) : f32[2, 6, 1]
    %309 = constant(value=0.5) : f32[2, 6, 1]
    %310 = mul(%18.grad, %309) : f32[2, 6, 1]
    %17.grad = div(%310, %18) : f32[2, 6, 1]
    %311 = constant(value=8.0) : f32[2, 6, 1]
    %13.grad = div(%17.grad, %311) : f32[2, 6, 1]
    %12.grad = reshape(%13.grad) : f32[2, 6]
    %11.grad = broadcast(%12.grad, dims=[0, 1]) : f32[2, 6, 8]
    %312 = mul(%11.grad, %centred) : f32[2, 6, 8]
    %313 = add(%306, %312) : f32[2, 6, 8]
    %centred.grad = add(%313, %312) : f32[2, 6, 8]
    %10.grad = neg(%centred.grad) : f32[2, 6, 8]
    %315 = constant(value=-0.0) : f32[2, 6, 8]
    %x.1.grad.part = select(%203, %x.1.grad, %315) : f32[2, 6, 8]
    %316 = add(%x.1.grad.part, %centred.grad) : f32[2, 6, 8]
    %317 = sum(%10.grad, dims=[2]) : f32[2, 6]
    %9.grad = reshape(%317) : f32[2, 6, 1]
    %7.grad = div(%9.grad, %311) : f32[2, 6, 1]
    %6.grad = reshape(%7.grad) : f32[2, 6]
    %318 = broadcast(%6.grad, dims=[0, 1]) : f32[2, 6, 8]
    %x.grad = add(%316, %318) : f32[2, 6, 8]
    yield %x.grad
    """
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * 8 + column)
    v120_part = tl.load(v120_part_ptr + row * 8 + column)
    v121_part = tl.load(v121_part_ptr + row * 8 + column)
    v123_part = tl.load(v123_part_ptr + row * 8 + column)
    x_1_grad = tl.load(x_1_grad_ptr + row * 8 + column)
    v9 = tl.load(v9_ptr + row)
    centred = x - v9
    v18 = tl.load(v18_ptr + row)
    v303 = tl.div_rn(centred, v18)
    v304 = v120_part + v121_part
    h_grad = v304 + v123_part
    params_scale = tl.load(params_scale_ptr + column)
    v20_grad = h_grad * params_scale
    v306 = tl.div_rn(v20_grad, v18)
    v307 = v306 * v303
    v19_grad = -v307
    v308 = tl.sum(v19_grad, 0)
    v310 = v308 * 0.5
    v17_grad = tl.div_rn(v310, v18)
    v13_grad = tl.div_rn(v17_grad, 8.0)
    v312 = v13_grad * centred
    v313 = v306 + v312
    centred_grad = v313 + v312
    v10_grad = -centred_grad
    v203 = tl.load(v203_ptr)
    x_1_grad_part = tl.where(v203, x_1_grad, -0.0)
    v316 = x_1_grad_part + centred_grad
    v317 = tl.sum(v10_grad, 0)
    v7_grad = tl.div_rn(v317, 8.0)
    x_grad = v316 + v7_grad
    tl.store(x_grad_ptr + row * 8 + column, x_grad)


def compute_x_grad_reference(
    x, v9, v18, v120_part, v121_part, v123_part, params_scale, v203, x_1_grad
):
    """The same in plain torch."""
    v300 = v9.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    centred = x - v300  # sub: f32[2, 6, 8]
    v302 = v18.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v303 = centred / v302  # div: f32[2, 6, 8]
    v304 = v120_part + v121_part  # add: f32[2, 6, 8]
    h_grad = v304 + v123_part  # add: f32[2, 6, 8]
    v305 = params_scale.expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v20_grad = h_grad * v305  # mul: f32[2, 6, 8]
    v306 = v20_grad / v302  # div: f32[2, 6, 8]
    v307 = v306 * v303  # mul: f32[2, 6, 8]
    v19_grad = -v307  # neg: f32[2, 6, 8]
    v308 = v19_grad.sum(2)  # sum: f32[2, 6]
    v18_grad = v308.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v310 = v18_grad * 0.5  # mul: f32[2, 6, 1]
    v17_grad = v310 / v18  # div: f32[2, 6, 1]
    v13_grad = v17_grad / 8.0  # div: f32[2, 6, 1]
    v12_grad = v13_grad.reshape(2, 6)  # reshape: f32[2, 6]
    v11_grad = v12_grad.reshape(2, 6, 1).expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    v312 = v11_grad * centred  # mul: f32[2, 6, 8]
    v313 = v306 + v312  # add: f32[2, 6, 8]
    centred_grad = v313 + v312  # add: f32[2, 6, 8]
    v10_grad = -centred_grad  # neg: f32[2, 6, 8]
    x_1_grad_part = torch.where(v203, x_1_grad, -0.0)  # select: f32[2, 6, 8]
    v316 = x_1_grad_part + centred_grad  # add: f32[2, 6, 8]
    v317 = v10_grad.sum(2)  # sum: f32[2, 6]
    v9_grad = v317.reshape(2, 6, 1)  # reshape: f32[2, 6, 1]
    v7_grad = v9_grad / 8.0  # div: f32[2, 6, 1]
    v6_grad = v7_grad.reshape(2, 6)  # reshape: f32[2, 6]
    v318 = v6_grad.reshape(2, 6, 1).expand(2, 6, 8)  # broadcast: f32[2, 6, 8]
    x_grad = v316 + v318  # add: f32[2, 6, 8]
    return x_grad


def compute_x_grad(x, v9, v18, v120_part, v121_part, v123_part, params_scale, v203, x_1_grad):
    if not (x.is_cuda or INTERPRETED):
        return compute_x_grad_reference(
            x, v9, v18, v120_part, v121_part, v123_part, params_scale, v203, x_1_grad
        )
    x, v9, v18, v120_part, v121_part, v123_part, params_scale, v203, x_1_grad = (
        x.contiguous()
        for x in (x, v9, v18, v120_part, v121_part, v123_part, params_scale, v203, x_1_grad)
    )
    x_grad = torch.empty((2, 6, 8), dtype=torch.float32, device=x.device)
    compute_x_grad_kernel[(12,)](
        x,
        v9,
        v18,
        v120_part,
        v121_part,
        v123_part,
        params_scale,
        v203,
        x_1_grad,
        x_grad,
        COLUMNS=8,
        num_warps=1,
        enable_fp_fusion=False,
    )
    return x_grad


@triton.jit
def compute_v143_kernel(v98_ptr, v140_ptr, params_embed_ptr, v143_ptr, BLOCK: tl.constexpr):
    """add, mul, sub over 16x8

    %params.embed.grad = add(%98, %140) : f32[16, 8]
    %331 = constant(value=0.1) : f32[16, 8]
    %332 = mul(%331, %params.embed.grad) : f32[16, 8]
    %143 = sub(%params.embed, %332) : f32[16, 8]
    yield %143
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v98 = tl.load(v98_ptr + at)
    v140 = tl.load(v140_ptr + at)
    params_embed = tl.load(params_embed_ptr + at)
    params_embed_grad = v98 + v140
    v332 = 0.1 * params_embed_grad
    v143 = params_embed - v332
    tl.store(v143_ptr + at, v143)


def compute_v143_reference(v98, v140, params_embed):
    """The same in plain torch."""
    params_embed_grad = v98 + v140  # add: f32[16, 8]
    v332 = 0.1 * params_embed_grad  # mul: f32[16, 8]
    v143 = params_embed - v332  # sub: f32[16, 8]
    return v143


def compute_v143(v98, v140, params_embed):
    if not (v98.is_cuda or INTERPRETED):
        return compute_v143_reference(v98, v140, params_embed)
    v98, v140, params_embed = (x.contiguous() for x in (v98, v140, params_embed))
    v143 = torch.empty((16, 8), dtype=torch.float32, device=v98.device)
    compute_v143_kernel[(1,)](
        v98, v140, params_embed, v143, BLOCK=128, num_warps=1, enable_fp_fusion=False
    )
    return v143


@triton.jit
def compute_v146_kernel(v104_row_ptr, v124_ptr, params_scale_ptr, v146_ptr, BLOCK: tl.constexpr):
    """add, mul, sub over 8

    %294 = reshape(%104.row) : f32[8]
    %params.scale.grad = add(%294, %124) : f32[8]
    %296 = constant(value=0.1) : f32[8]
    %297 = mul(%296, %params.scale.grad) : f32[8]
    %146 = sub(%params.scale, %297) : f32[8]
    yield %146
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v104_row = tl.load(v104_row_ptr + at)
    v124 = tl.load(v124_ptr + at)
    params_scale = tl.load(params_scale_ptr + at)
    params_scale_grad = v104_row + v124
    v297 = 0.1 * params_scale_grad
    v146 = params_scale - v297
    tl.store(v146_ptr + at, v146)


def compute_v146_reference(v104_row, v124, params_scale):
    """The same in plain torch."""
    v294 = v104_row.reshape(8)  # reshape: f32[8]
    params_scale_grad = v294 + v124  # add: f32[8]
    v297 = 0.1 * params_scale_grad  # mul: f32[8]
    v146 = params_scale - v297  # sub: f32[8]
    return v146


def compute_v146(v104_row, v124, params_scale):
    if not (v104_row.is_cuda or INTERPRETED):
        return compute_v146_reference(v104_row, v124, params_scale)
    v104_row, v124, params_scale = (x.contiguous() for x in (v104_row, v124, params_scale))
    v146 = torch.empty((8,), dtype=torch.float32, device=v104_row.device)
    compute_v146_kernel[(1,)](
        v104_row, v124, params_scale, v146, BLOCK=8, num_warps=1, enable_fp_fusion=False
    )
    return v146


@triton.jit
def compute_v149_kernel(params_q_grad_ptr, params_q_ptr, v149_ptr, BLOCK: tl.constexpr):
    """mul, sub over 8x2x4

    %334 = constant(value=0.1) : f32[8, 2, 4]
    %335 = mul(%334, %params.q.grad) : f32[8, 2, 4]
    %149 = sub(%params.q, %335) : f32[8, 2, 4]
    yield %149
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_q_grad = tl.load(params_q_grad_ptr + at)
    params_q = tl.load(params_q_ptr + at)
    v335 = 0.1 * params_q_grad
    v149 = params_q - v335
    tl.store(v149_ptr + at, v149)


def compute_v149_reference(params_q_grad, params_q):
    """The same in plain torch."""
    v335 = 0.1 * params_q_grad  # mul: f32[8, 2, 4]
    v149 = params_q - v335  # sub: f32[8, 2, 4]
    return v149


def compute_v149(params_q_grad, params_q):
    if not (params_q_grad.is_cuda or INTERPRETED):
        return compute_v149_reference(params_q_grad, params_q)
    params_q_grad = params_q_grad.contiguous()
    params_q = params_q.contiguous()
    v149 = torch.empty((8, 2, 4), dtype=torch.float32, device=params_q_grad.device)
    compute_v149_kernel[(1,)](
        params_q_grad, params_q, v149, BLOCK=64, num_warps=1, enable_fp_fusion=False
    )
    return v149


@triton.jit
def compute_v158_kernel(params_o_grad_ptr, params_o_ptr, v158_ptr, BLOCK: tl.constexpr):
    """mul, sub over 2x4x8

    %343 = constant(value=0.1) : f32[2, 4, 8]
    %344 = mul(%343, %params.o.grad) : f32[2, 4, 8]
    %158 = sub(%params.o, %344) : f32[2, 4, 8]
    yield %158
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_o_grad = tl.load(params_o_grad_ptr + at)
    params_o = tl.load(params_o_ptr + at)
    v344 = 0.1 * params_o_grad
    v158 = params_o - v344
    tl.store(v158_ptr + at, v158)


def compute_v158_reference(params_o_grad, params_o):
    """The same in plain torch."""
    v344 = 0.1 * params_o_grad  # mul: f32[2, 4, 8]
    v158 = params_o - v344  # sub: f32[2, 4, 8]
    return v158


def compute_v158(params_o_grad, params_o):
    if not (params_o_grad.is_cuda or INTERPRETED):
        return compute_v158_reference(params_o_grad, params_o)
    params_o_grad = params_o_grad.contiguous()
    params_o = params_o.contiguous()
    v158 = torch.empty((2, 4, 8), dtype=torch.float32, device=params_o_grad.device)
    compute_v158_kernel[(1,)](
        params_o_grad, params_o, v158, BLOCK=64, num_warps=1, enable_fp_fusion=False
    )
    return v158


@triton.jit
def compute_v161_kernel(params_up_grad_ptr, params_up_ptr, v161_ptr, BLOCK: tl.constexpr):
    """mul, sub over 8x8

    %346 = constant(value=0.1) : f32[8, 8]
    %347 = mul(%346, %params.up.grad) : f32[8, 8]
    %161 = sub(%params.up, %347) : f32[8, 8]
    yield %161
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    params_up_grad = tl.load(params_up_grad_ptr + at)
    params_up = tl.load(params_up_ptr + at)
    v347 = 0.1 * params_up_grad
    v161 = params_up - v347
    tl.store(v161_ptr + at, v161)


def compute_v161_reference(params_up_grad, params_up):
    """The same in plain torch."""
    v347 = 0.1 * params_up_grad  # mul: f32[8, 8]
    v161 = params_up - v347  # sub: f32[8, 8]
    return v161


def compute_v161(params_up_grad, params_up):
    if not (params_up_grad.is_cuda or INTERPRETED):
        return compute_v161_reference(params_up_grad, params_up)
    params_up_grad = params_up_grad.contiguous()
    params_up = params_up.contiguous()
    v161 = torch.empty((8, 8), dtype=torch.float32, device=params_up_grad.device)
    compute_v161_kernel[(1,)](
        params_up_grad, params_up, v161, BLOCK=64, num_warps=1, enable_fp_fusion=False
    )
    return v161


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
    # iota: i32[6, 6]
    v185 = torch.arange(6, dtype=torch.int32, device=device)[:, None].expand(6, 6)
    v186 = torch.arange(6, dtype=torch.int32, device=device).expand(6, 6)  # iota: i32[6, 6]
    v187 = v185 >= v186  # ge: bool[6, 6]
    v188 = torch.full((6, 6), True, dtype=torch.bool, device=device)  # constant: bool[6, 6]
    mask = torch.where(v187, v188, False)  # select: bool[6, 6]
    v63 = params_embed.T  # transpose: f32[8, 16]
    v80 = constant_0(device)  # constant: i32[1]
    # fused: i32[2, 6, 1], bool[2, 6, 1, 1], i32[2, 6, 1, 1]
    v77, v85, v95 = compute_v77(targets, v80)
    v78 = v77.reshape(2, 6, 1, 1)  # reshape: i32[2, 6, 1, 1]
    v86 = v85.all(3)  # all: bool[2, 6, 1]
    # constant: f32[2, 6, 1]
    chosen_grad_1 = torch.full((2, 6, 1), -0.041666668, dtype=torch.float32, device=device)
    v79_grad = torch.where(v86, chosen_grad_1, 0.0)  # select: f32[2, 6, 1]
    v96 = torch.full((2, 6, 16), 0.0, dtype=torch.float32, device=device)  # constant: f32[2, 6, 16]
    # scatter: f32[2, 6, 16]
    logs_grad = scatter_windows(v96, v95, v79_grad, "add", {}, [2], {0: 0, 1: 1})
    v201 = comm.axis_index(("model",))  # axis-index: i32[]
    v203 = v201 == 0  # eq: bool[]
    v4, v138 = compute_v4(tokens)  # fused: i32[2, 6], i32[2, 6, 1]
    v5 = v4.reshape(2, 6, 1)  # reshape: i32[2, 6, 1]
    x = take_rows(params_embed, v5[..., 0])  # gather: f32[2, 6, 8]
    v9, v18, h = compute_v9(x, params_scale)  # fused: f32[2, 6, 1], f32[2, 6, 1], f32[2, 6, 8]
    v22 = torch.einsum("btd,dhk->bthk", h, params_q)  # dot: f32[2, 6, 2, 4]
    v23 = torch.einsum("btd,dhk->bthk", h, params_k)  # dot: f32[2, 6, 2, 4]
    v24 = torch.einsum("btd,dhk->bthk", h, params_v)  # dot: f32[2, 6, 2, 4]
    v25 = torch.einsum("bthk,bshk->bhts", v22, v23)  # dot: f32[2, 2, 6, 6]
    # fused: f32[2, 2, 6, 6], f32[2, 2, 6], f32[2, 2, 6, 6]
    v39, v40, attention = compute_v39(v25, mask)
    mixed = torch.einsum("bhts,bshk->bthk", attention, v24)  # dot: f32[2, 6, 2, 4]
    v42_part = torch.einsum("bthk,hkd->btd", mixed, params_o)  # dot: f32[2, 6, 8]
    v42 = comm.all_reduce(v42_part, op="add", axes=("model",))  # all-reduce: f32[2, 6, 8]
    # fused: f32[2, 6, 8], f32[2, 6, 1], f32[2, 6, 1], f32[2, 6, 8]
    x_1, v46, v55, v59 = compute_x_1(x, v42, params_scale)
    v60 = v59 @ params_up  # dot: f32[2, 6, 8]
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
    v98 = v63_grad.T  # transpose: f32[16, 8]
    h_1_grad = x_2_grad @ params_down.T  # dot: f32[2, 6, 8]
    params_down_grad_part = torch.einsum("abi,abh->ih", h_1, x_2_grad)  # dot: f32[8, 8]
    v60_grad = compute_v60_grad(h_1_grad, v61, v60)  # fused: f32[2, 6, 8]
    v59_grad_part = v60_grad @ params_up.T  # dot: f32[2, 6, 8]
    params_up_grad_part = torch.einsum("abi,abh->ih", v59, v60_grad)  # dot: f32[8, 8]
    v59_grad = comm.all_reduce(v59_grad_part, op="add", axes=("model",))  # all-reduce: f32[2, 6, 8]
    v104_part = compute_v104_part(x_1, v46, v55, v59_grad)  # fused: f32[8]
    params_down_grad_part_row = params_down_grad_part.reshape(1, 64)  # reshape: f32[1, 64]
    params_up_grad_part_row = params_up_grad_part.reshape(1, 64)  # reshape: f32[1, 64]
    v104_part_row = v104_part.reshape(1, 8)  # reshape: f32[1, 8]
    # fused: f32[2, 6, 8]
    x_1_grad = compute_x_1_grad(x_1, v46, v55, v59_grad, params_scale, x_2_grad)
    mixed_grad = torch.einsum("btd,hkd->bthk", x_1_grad, params_o)  # dot: f32[2, 6, 2, 4]
    params_o_grad_part = torch.einsum("bthk,btd->hkd", mixed, x_1_grad)  # dot: f32[2, 4, 8]
    attention_grad = torch.einsum("bthk,bshk->bhts", mixed_grad, v24)  # dot: f32[2, 2, 6, 6]
    v24_grad = torch.einsum("bhts,bthk->bshk", attention, mixed_grad)  # dot: f32[2, 6, 2, 4]
    v25_grad = compute_v25_grad(attention_grad, v40, attention, v39, mask)  # fused: f32[2, 2, 6, 6]
    v22_grad = torch.einsum("bhts,bshk->bthk", v25_grad, v23)  # dot: f32[2, 6, 2, 4]
    v23_grad = torch.einsum("bhts,bthk->bshk", v25_grad, v22)  # dot: f32[2, 6, 2, 4]
    v120_part = torch.einsum("bthk,dhk->btd", v24_grad, params_v)  # dot: f32[2, 6, 8]
    params_v_grad_part = torch.einsum("btd,bthk->dhk", h, v24_grad)  # dot: f32[8, 2, 4]
    v121_part = torch.einsum("bthk,dhk->btd", v23_grad, params_k)  # dot: f32[2, 6, 8]
    params_k_grad_part = torch.einsum("btd,bthk->dhk", h, v23_grad)  # dot: f32[8, 2, 4]
    v123_part = torch.einsum("bthk,dhk->btd", v22_grad, params_q)  # dot: f32[2, 6, 8]
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
            v104_part_row,
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
    v104_row = params_down_grad_together[:, 128:136]  # slice: f32[1, 8]
    params_o_grad_row = params_down_grad_together[:, 136:200]  # slice: f32[1, 64]
    params_o_grad = params_o_grad_row.reshape(2, 4, 8)  # reshape: f32[2, 4, 8]
    params_v_grad_row = params_down_grad_together[:, 200:264]  # slice: f32[1, 64]
    params_v_grad = params_v_grad_row.reshape(8, 2, 4)  # reshape: f32[8, 2, 4]
    params_k_grad_row = params_down_grad_together[:, 264:328]  # slice: f32[1, 64]
    params_k_grad = params_k_grad_row.reshape(8, 2, 4)  # reshape: f32[8, 2, 4]
    params_q_grad_row = params_down_grad_together[:, 328:]  # slice: f32[1, 64]
    params_q_grad = params_q_grad_row.reshape(8, 2, 4)  # reshape: f32[8, 2, 4]
    v124_part = compute_v124_part(x, v9, v18, v120_part, v121_part, v123_part)  # fused: f32[8]
    v124 = comm.all_reduce(v124_part, op="add", axes=("data", "model"))  # all-reduce: f32[8]
    # fused: f32[2, 6, 8]
    x_grad = compute_x_grad(
        x, v9, v18, v120_part, v121_part, v123_part, params_scale, v203, x_1_grad
    )
    v206 = comm.axis_index(("data", "model"))  # axis-index: i32[]
    v208 = v206 == 0  # eq: bool[]
    v326 = torch.full((16, 8), 0.0, dtype=torch.float32, device=device)  # constant: f32[16, 8]
    v210 = torch.where(v208, v326, -0.0)  # select: f32[16, 8]
    v140_part = scatter_windows(v210, v138, x_grad, "add", {2: 1}, [0], {})  # scatter: f32[16, 8]
    v140 = comm.all_reduce(v140_part, op="add", axes=("data", "model"))  # all-reduce: f32[16, 8]
    v143 = compute_v143(v98, v140, params_embed)  # fused: f32[16, 8]
    v146 = compute_v146(v104_row, v124, params_scale)  # fused: f32[8]
    v149 = compute_v149(params_q_grad, params_q)  # fused: f32[8, 2, 4]
    v152 = compute_v149(params_k_grad, params_k)  # fused: f32[8, 2, 4]
    v155 = compute_v149(params_v_grad, params_v)  # fused: f32[8, 2, 4]
    v158 = compute_v158(params_o_grad, params_o)  # fused: f32[2, 4, 8]
    v161 = compute_v161(params_up_grad, params_up)  # fused: f32[8, 8]
    v164 = compute_v161(params_down_grad, params_down)  # fused: f32[8, 8]
    return (v164, v143, v152, v158, v149, v146, v161, v155, v91)


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
