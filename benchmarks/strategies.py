"""Measure the gain of each strategy of products and convolutions over the next best and a library.

    python benchmarks/strategies.py [--rounds N] [--strategy NAME ...] [--removed NAME ...]
                                    [--case PART ...] [--dtype f32|bf16]

Each row is a shape of a network or of `namespace.py`. For each strategy that lowering selects for
it, the row is lowered again without that strategy, so that the next best one computes it. A gain is
the time without the strategy, divided by the time with it. The library is PyTorch on one thread
(NumPy for one-dimensional arrays). All times are minima of processor time of one worker, and runs
take turns, so that other load on the machine has little influence.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

from contraction import NONE, Bench, Case, image

from shardir.backends.cpu.kernels.conv import (
    channel_pairs,
    depthwise,
    implicit_gemm_lhs,
    indirect_lhs,
    layout_transform,
    nchw_layout,
    padded_nhwc,
    patch_inner_product,
    row_selection,
)
from shardir.backends.cpu.kernels.gemm import (
    grouped_steps,
    operand_copies,
    product_dispatch,
    skinny_dispatch,
)
from shardir.backends.cpu.threads.workers import workers

ROUND_NANOSECONDS = 30_000_000
RELATIVE_ERRORS = {"f32": 1e-3, "bf16": 1e-2}
"""Maximum difference between two strategies, relative to the largest element."""

STRATEGIES: dict[str, tuple[tuple[Callable[..., Any], object], ...]] = {
    "depthwise": ((depthwise.lower_depthwise, []),),
    "features_last": ((layout_transform.plan_features_last, None),),
    "patch_inner_product": ((patch_inner_product.lower_patch_inner_product, []),),
    "channel_pairs": ((channel_pairs.lower_channel_pairs, []),),
    "nchw": (
        (nchw_layout.lower_nchw, []),
        (nchw_layout.find_nchw_layout, None),
    ),
    "padded_nhwc": ((padded_nhwc.lower_padded_nhwc, []),),
    "implicit_lhs": ((implicit_gemm_lhs.is_lhs_readable_in_place, False),),
    "indirect_lhs": ((indirect_lhs.is_lhs_indirect, False),),
    "row_selection": ((row_selection.steps_of_selected_rows, 0),),
    "unrolled_batched": ((skinny_dispatch._lower_unrolled, []),),
    "inner_product": ((skinny_dispatch._lower_inner_product, []),),
    "rhs_copy": ((operand_copies.lower_with_rhs_copy, []),),
    "result_copy": ((operand_copies.lower_with_result_copy, []),),
    "unpacked": ((skinny_dispatch._lower_unpacked, []),),
    "skinny": ((skinny_dispatch.is_streamed, False),),
    "tiles": ((grouped_steps.amortizes_tiles, False),),
    "grouped_steps": (
        (grouped_steps.has_grouped_steps, False),
        (grouped_steps.can_pack_groups, False),
    ),
    "split_k": ((product_dispatch._count_parts, 1),),
}
"""The functions of each strategy, and the result that rejects a product."""

DENSE = {"padding": NONE}
WIDE = {"strides": (2, 2)}


def network_cases() -> Iterator[Case]:
    """Yield shapes of ResNet-50, MobileNet, patch embeddings, audio networks and transformers."""
    for rows, channels in ((56, 64), (28, 128), (14, 256), (7, 512)):
        yield image(f"ResNet 3x3 NHWC {rows}", "b01f,01io->b01f",
                    (2, rows, rows, channels), (3, 3, channels, channels))  # fmt: skip
        yield image(f"ResNet 3x3 NCHW {rows}", "bf01,oi01->bf01",
                    (2, channels, rows, rows), (channels, channels, 3, 3))  # fmt: skip
        yield image(f"ResNet 3x3 NHWC image gradient {rows}", "b01f,01oi->b01f",
                    (2, rows, rows, channels), (3, 3, channels, channels))  # fmt: skip
        yield image(f"ResNet 3x3 NCHW image gradient {rows}", "bf01,io01->bf01",
                    (2, channels, rows, rows), (channels, channels, 3, 3))  # fmt: skip
        yield image(f"ResNet 3x3 NHWC filter gradient {rows}", "f01b,i01o->01bf",
                    (2, rows, rows, channels), (2, rows, rows, channels))  # fmt: skip
        yield image(f"ResNet 3x3 NCHW filter gradient {rows}", "fb01,io01->bf01",
                    (2, channels, rows, rows), (2, channels, rows, rows))  # fmt: skip
    yield image("ResNet 7x7 NHWC", "b01f,01io->b01f", (1, 224, 224, 3), (7, 7, 3, 64),
                strides=(2, 2), padding=((3, 3), (3, 3)))  # fmt: skip
    yield image("ResNet 7x7 NCHW", "bf01,oi01->bf01", (1, 3, 224, 224), (64, 3, 7, 7),
                strides=(2, 2), padding=((3, 3), (3, 3)))  # fmt: skip
    yield image("ResNet 3x3 stride 2 NHWC", "b01f,01io->b01f", (2, 56, 56, 128), (3, 3, 128, 128),
                **WIDE)  # fmt: skip
    yield image("ResNet 3x3 stride 2 NCHW", "bf01,oi01->bf01", (2, 128, 56, 56), (128, 128, 3, 3),
                **WIDE)  # fmt: skip
    for layout, dims, shape, filter_shape in (
        ("NHWC", "b01f,01oi->b01f", (2, 28, 28, 128), (3, 3, 128, 128)),
        ("NCHW", "bf01,io01->bf01", (2, 128, 28, 28), (128, 128, 3, 3)),
    ):
        yield image(f"ResNet 3x3 stride 2 {layout} image gradient", dims, shape, filter_shape,
                    lhs_dilation=(2, 2), padding=((1, 2), (1, 2)))  # fmt: skip
    yield image("ResNet 1x1 NHWC", "b01f,01io->b01f", (2, 28, 28, 512), (1, 1, 512, 128), **DENSE)
    yield image("ResNet 1x1 NCHW", "bf01,oi01->bf01", (2, 512, 28, 28), (128, 512, 1, 1), **DENSE)
    yield image("ResNet 1x1 stride 2 NHWC", "b01f,01io->b01f", (2, 56, 56, 256), (1, 1, 256, 512),
                **WIDE, **DENSE)  # fmt: skip
    yield image("ResNet 1x1 stride 2 NCHW", "bf01,oi01->bf01", (2, 256, 56, 56), (512, 256, 1, 1),
                **WIDE, **DENSE)  # fmt: skip
    for rows, channels in ((112, 32), (28, 192), (14, 576)):
        yield image(f"MobileNet depthwise NHWC {rows}", "b01f,01io->b01f",
                    (2, rows, rows, channels), (3, 3, 1, channels), groups=channels)  # fmt: skip
        yield image(f"MobileNet depthwise NCHW {rows}", "bf01,oi01->bf01",
                    (2, channels, rows, rows), (channels, 1, 3, 3), groups=channels)  # fmt: skip
        yield image(f"MobileNet depthwise NHWC filter gradient {rows}", "f01b,i01o->01bf",
                    (2, rows, rows, channels), (2, rows, rows, channels),
                    batch_groups=channels)  # fmt: skip
        yield image(f"MobileNet depthwise NCHW filter gradient {rows}", "fb01,io01->bf01",
                    (2, channels, rows, rows), (2, channels, rows, rows),
                    batch_groups=channels)  # fmt: skip
    yield image("ViT patches NHWC", "b01f,01io->b01f", (2, 224, 224, 3), (16, 16, 3, 768),
                strides=(16, 16), **DENSE)  # fmt: skip
    yield image("ViT patches NCHW", "bf01,oi01->bf01", (2, 3, 224, 224), (768, 3, 16, 16),
                strides=(16, 16), **DENSE)  # fmt: skip
    yield image("CIFAR 3 features NHWC", "b01f,01io->b01f", (16, 32, 32, 3), (3, 3, 3, 32))
    yield image("CIFAR 3 features NCHW", "bf01,oi01->bf01", (16, 3, 32, 32), (32, 3, 3, 3))
    yield image("CIFAR 3 features filter gradient", "f01b,i01o->01bf", (16, 32, 32, 3),
                (16, 32, 32, 32))  # fmt: skip
    for layout, dims, shape, filter_shape in (
        ("NHWC", "b01f,01io->b01f", (8, 4, 4, 512), (3, 3, 512, 512)),
        ("NCHW", "bf01,oi01->bf01", (8, 512, 4, 4), (512, 512, 3, 3)),
    ):
        yield image(f"CIFAR 4 rows {layout}", dims, shape, filter_shape)
    yield image("MNIST 5x5 NHWC", "b01f,01io->b01f", (16, 28, 28, 1), (5, 5, 1, 32),
                padding=((2, 2), (2, 2)))  # fmt: skip
    yield image("U-Net to 3 features NHWC", "b01f,01io->b01f", (2, 64, 64, 64), (3, 3, 64, 3))
    yield image("U-Net to 3 features NCHW", "bf01,oi01->bf01", (2, 64, 64, 64), (3, 64, 3, 3))
    yield image("ResNeXt 32 groups NCHW", "bf01,oi01->bf01", (2, 128, 56, 56), (128, 4, 3, 3),
                groups=32)  # fmt: skip
    yield image("upsampling 3x3 NHWC", "b01f,01oi->b01f", (4, 16, 16, 64), (3, 3, 32, 64),
                lhs_dilation=(2, 2), padding=((2, 1), (2, 1)))  # fmt: skip
    line: dict[str, Any] = {"lhs_dilation": (1,), "rhs_dilation": (1,)}
    yield image("Whisper", "bf0,oi0->bf0", (1, 80, 3000), (384, 80, 3), strides=(1,),
                padding=((1, 1),), **line)  # fmt: skip
    yield image("wav2vec", "bf0,oi0->bf0", (1, 1, 16000), (512, 1, 10), strides=(5,),
                padding=((0, 0),), **line)  # fmt: skip
    for taps in (3, 8, 1001):
        yield image(f"convolve with {taps} taps", "bf0,oi0->bf0", (1, 1, 100_000), (1, 1, taps),
                    strides=(1,), padding=((taps - 1, taps - 1),), **line)  # fmt: skip


def product_cases() -> Iterator[Case]:
    """Yield products of transformers and of `namespace.py`."""
    yield Case("feed-forward", "mk,kn->mn", (256, 768), (768, 3072))
    yield Case("feed-forward, weight gradient", "km,kn->mn", (256, 768), (256, 3072))
    yield Case("feed-forward, input gradient", "mk,nk->mn", (256, 3072), (768, 3072))
    yield Case("decoding, one token", "mk,kn->mn", (1, 2048), (2048, 4096))
    yield Case("decoding, 4 tokens", "mk,kn->mn", (4, 2048), (2048, 4096))
    yield Case("decoding, 16 tokens", "mk,kn->mn", (16, 2048), (2048, 4096))
    yield Case("decoding, weights transposed", "mk,nk->mn", (1, 2048), (4096, 2048))
    yield Case("attention scores", "zmk,znk->zmn", (24, 128, 64), (24, 128, 64))
    yield Case("attention values", "zmk,zkn->zmn", (24, 128, 128), (24, 128, 64))
    yield Case("attention scores, heads inside", "bmhk,bnhk->bhmn", (2, 128, 12, 64),
               (2, 128, 12, 64))  # fmt: skip
    yield Case("attention values, heads inside", "bhmn,bnhk->bmhk", (2, 12, 128, 128),
               (2, 128, 12, 64))  # fmt: skip
    yield Case("attention scores, one token", "zk,znk->zn", (24, 64), (24, 1024, 64))
    yield Case("attention values, one token", "zn,znk->zk", (24, 1024), (24, 1024, 64))
    yield Case("classifier", "mk,kn->mn", (64, 2048), (2048, 10))
    yield Case("classifier, weight gradient", "km,kn->mn", (64, 2048), (64, 10))
    yield Case("regression on 5, weight gradient", "km,kn->mn", (256, 2048), (256, 5))
    yield Case("regression on 5", "mk,kn->mn", (256, 2048), (2048, 5))
    yield Case("covariance of 3", "km,kn->mn", (100_000, 3), (100_000, 3))
    yield Case("covariance of 64", "km,kn->mn", (20_000, 64), (20_000, 64))
    yield Case("square 512 of bf16", "mk,kn->mn", (512, 512), (512, 512), dtype="bf16")
    yield Case("attention scores of bf16", "zmk,znk->zmn", (24, 128, 64), (24, 128, 64),
               dtype="bf16")  # fmt: skip
    for rows in (32, 128, 512):
        yield Case(f"square {rows}", "mk,kn->mn", (rows, rows), (rows, rows))
        yield Case(f"square {rows}, transposed", "ij,kj->ik", (rows, rows), (rows, rows))
        yield Case(f"square {rows} by vector", "mk,k->m", (rows, rows), (rows,))
    yield Case("vector by square 1024", "k,kn->n", (1024,), (1024, 1024))
    yield Case("outer product", "i,j->ij", (1024,), (1024,))
    yield Case("dot product", "i,i->", (1_000_000,), (1_000_000,))
    for rows in (3, 4, 8, 16):
        yield Case(f"batch of {rows}x{rows}", "zmk,zkn->zmn", (4096, rows, rows),
                   (4096, rows, rows))  # fmt: skip
    yield Case("batch of 4x4 by vector", "zmk,zk->zm", (16384, 4, 4), (16384, 4))


@contextmanager
def record_selected(selected: set[str], without: Collection[str] = ()) -> Iterator[None]:
    """Record the strategies that accept a product; reject all products for some of them."""
    undo: list[tuple[Any, str, Any]] = []
    modules = [module for name, module in sys.modules.items() if name.startswith("shardir.")]
    for name, functions in STRATEGIES.items():
        for function, rejection in functions:

            def call(*a: Any, name: str = name, f: Any = function, no: Any = rejection) -> Any:
                found = no if name in without else f(*a)
                if found != no:
                    selected.add(name)
                return found

            attribute: str = function.__name__
            for module in modules:
                if getattr(module, attribute, None) is function:
                    undo.append((module, attribute, function))
                    setattr(module, attribute, call)
    try:
        yield
    finally:
        for module, attribute, function in undo:
            setattr(module, attribute, function)


def signature(bench: Bench) -> tuple[object, ...]:
    """Return what distinguishes the phases of two lowerings."""
    return tuple((phase.kernel.name, tuple(phase.record)) for phase in bench.phases)


def tensor_of(array: Any) -> torch.Tensor:
    """Return a tensor with the elements of an array of f32 or bf16."""
    if array.dtype == np.float32:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def library_call(case: Case, arrays: Sequence[Any]) -> Callable[[], object] | None:
    """Return the same operation in PyTorch, or in NumPy; `None` if there is no direct one."""
    x, y = map(tensor_of, arrays)
    if not case.attrs:
        if case.lhs == case.rhs and len(case.lhs) == 1:
            return partial(np.dot if case.dims.endswith(">") else np.outer, *arrays)
        return partial(torch.einsum, case.dims, x, y)
    source, filter_dims = case.dims.partition("->")[0].split(",")
    # The tensors have the layout of the case in memory, and that of PyTorch in their dimensions.
    spatial = "".join(c for c in source if c.isdigit())
    x = x.permute(*[source.index(c) for c in "bf" + spatial])
    y = y.permute(*[filter_dims.index(c) for c in "oi" + spatial])
    before, after = zip(*case.attrs["padding"], strict=True)
    if "gradient" in case.name:
        return gradient_call(case, x, y, before)
    if before != after or max(*case.attrs["lhs_dilation"], *case.attrs["rhs_dilation"]) > 1:
        return None
    function = torch.conv1d if len(spatial) == 1 else torch.conv2d
    return partial(function, x, y, stride=case.attrs["strides"], padding=before,
                   groups=case.attrs.get("groups", 1))  # fmt: skip


def gradient_call(
    case: Case, x: torch.Tensor, y: torch.Tensor, before: Sequence[int]
) -> Callable[[], object]:
    """Return the gradient that a case computes, in PyTorch. The operands of the case are in the
    order of a forward convolution with this result."""
    out = case.op.result.type.shape
    result = case.dims.partition("->")[2]
    sizes = [out[result.index(c)] for c in result if c.isdigit()]
    is_filter = "filter gradient" in case.name
    groups = case.attrs.get("batch_groups", 1)
    y = y.transpose(0, 1)
    if is_filter:  # The features of the case are the images of the forward convolution.
        image, grad, padding = x.transpose(0, 1), y, before
        weight = torch.empty(y.shape[1], x.shape[0] // groups, *sizes, dtype=x.dtype)
        if x.stride(0) == 1:
            weight = weight.contiguous(memory_format=torch.channels_last)
    else:
        image = torch.empty(x.shape[0], y.shape[1], *sizes, dtype=x.dtype)
        grad, weight = x, y
        if x.stride(1) == 1:
            image = image.contiguous(memory_format=torch.channels_last)
        padding = [n - 1 - p for n, p in zip(y.shape[2:], before, strict=True)]
    stride = case.attrs["rhs_dilation" if is_filter else "lhs_dilation"]
    return partial(
        torch.ops.aten.convolution_backward, grad, image, weight, None, stride, padding,
        [1] * len(sizes), False, [0] * len(sizes), groups, [not is_filter, is_filter, False],
    )  # fmt: skip


def fastest(runs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the minimum nanoseconds of processor time of each; they alternate."""
    best = [float("inf")] * len(runs)
    for run in runs:
        run()
    for _ in range(rounds):
        for i, run in enumerate(runs):
            end = time.process_time_ns() + ROUND_NANOSECONDS
            start = 0
            while start < end:
                start = time.process_time_ns()
                run()
                best[i] = min(best[i], time.process_time_ns() - start)
                start = time.process_time_ns()
    return best


def measure(case: Case, rounds: int, wanted: Sequence[str], removed: Sequence[str]) -> None:
    """Print a row: the time, and the gain of each strategy that lowering selects."""
    selected: set[str] = set()
    with record_selected(selected, removed):
        first = Bench(case)
    first.run()  # type: ignore[no-untyped-call]
    others: dict[str, Bench] = {}
    for name in sorted(selected.intersection(wanted)):
        with record_selected(set(), [*removed, name]):
            other = Bench(case)
        if signature(other) == signature(first):
            continue
        other.run()  # type: ignore[no-untyped-call]
        dtype = case.op.result.type.numpy
        results = [
            bench.buffers[len(bench.arrays)].view(dtype).astype(np.float32)
            for bench in (first, other)
        ]
        error = float(np.abs(results[0] - results[1]).max() / max(np.abs(results[0]).max(), 1e-9))
        if not error < RELATIVE_ERRORS[case.dtype]:
            raise SystemExit(f"{case.name}: results without {name} differ by {error:.2g}")
        others[name] = other
    library = library_call(case, first.arrays)
    if not others and wanted and wanted != list(STRATEGIES):
        return
    runs = [first.run, *(other.run for other in others.values()), *([library] if library else [])]
    ours, *rest = fastest(runs, rounds)
    gains = [f"{name} {t / ours:.2f}" for name, t in zip(others, rest, strict=False)]
    beyond = f"{rest[-1] / ours:.2f}" if library else "-"
    kernel = "+".join(dict.fromkeys(phase.kernel.name for phase in first.phases))
    print(f"| {case.name} | {ours / 1e3:.1f} | {beyond} | {', '.join(gains)} | {kernel} |",
          flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--strategy", nargs="*", default=list(STRATEGIES), choices=STRATEGIES)
    parser.add_argument("--removed", nargs="*", default=[], choices=STRATEGIES,
                        help="strategies that no row uses")  # fmt: skip
    parser.add_argument("--case", nargs="*", default=[""], help="parts of names of rows")
    parser.add_argument("--dtype", choices=("f32", "bf16"), help="the element type of all rows")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print("| shape | us | gain over library | gain of each strategy | kernels |")
    print("|---|---|---|---|---|")
    with workers(1):
        for case in (*network_cases(), *product_cases()):
            if any(part in case.name for part in given.case):
                case = replace(case, dtype=given.dtype or case.dtype)
                measure(case, given.rounds, given.strategy, given.removed)


if __name__ == "__main__":
    main()
