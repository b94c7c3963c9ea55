"""The memory that `memory_analysis` predicts and the memory that the process takes, by program.

Each program runs in a process of its own on CPU devices. The executed peak is the resident memory
that Linux records (VmHWM) during the run, beyond the memory before the arguments existed. It
includes what no analysis counts: the memory of NumPy, stacks, and code. The processes use pages of
4 KiB, because the rest of the last page of a block is not counted either. `each device` is
`peak_memory_in_bytes`, `simulated` the peak that `simulate` predicts for a device of a100x8.

    python benchmarks/memory.py [part of a name ...]
"""

import ctypes
import gc
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends.cpu.kernel_api import SCRATCH_BYTES_PER_WORKER
from shardir.backends.cpu.threads import memory
from shardir.backends.cpu.threads.workers import worker_pool
from shardir.sharding import NamedSharding, PartitionSpec as P

MAX_ERROR = 0.01
"""The largest accepted relative difference."""
PR_SET_THP_DISABLE = 41
"""The option of `prctl` in Linux's header `linux/prctl.h`."""
MIB = 1 << 20
REPLICATED = P()


@dataclass(frozen=True)
class Argument:
    """An array of waves, or of integers below 100, and the mesh axes of its dimensions."""

    shape: tuple[int, ...]
    spec: P = REPLICATED
    dtype: str = "float32"

    def make(self, mesh: sd.Mesh) -> Any:
        """Return the array on the devices of a mesh."""

        def waves() -> Any:
            numbers = snp.arange(prod(self.shape)).reshape(self.shape)
            if self.dtype == "int32":
                return numbers % 100
            return (0.01 * snp.cos(numbers.astype("float32"))).astype(self.dtype)

        return sd.block_until_ready(sd.jit(waves, out_shardings=NamedSharding(mesh, self.spec))())


@dataclass(frozen=True)
class Program:
    """A program on a mesh of the axes `data` and `model`; `donated` arguments end with the run."""

    name: str
    mesh: tuple[int, int]
    function: Callable[..., Any]
    arguments: tuple[Argument, ...]
    donated: tuple[int, ...] = ()
    mapped: bool = False
    """Whether `pmap` runs the function, over the first dimension of each argument."""


def mlp(ws: Any, x: Any) -> Any:
    for w in ws:
        x = snp.tanh(x @ w)
    return x


def mlp_loss(w1: Any, w2: Any, w3: Any, x: Any) -> Any:
    return snp.mean(mlp((w1, w2, w3), x) ** 2)


def momentum_step(w: Any, m: Any, x: Any) -> Any:
    gradient = sd.grad(lambda w: snp.mean(snp.tanh(x @ w) ** 2))(w)
    m = 0.9 * m + gradient
    return w - 0.1 * m, m


def attention(q: Any, k: Any, v: Any) -> Any:
    return sd.nn.dot_product_attention(q, k, v, is_causal=True)


def explicit_attention(q: Any, k: Any, v: Any) -> Any:
    scores = snp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    return snp.einsum("bhqk,bkhd->bqhd", sd.nn.softmax(scores, axis=-1), v)


def transformer_layer(wqkv: Any, wo: Any, up: Any, down: Any, x: Any) -> Any:
    def normalized(x: Any) -> Any:
        mean = snp.mean(x, axis=-1, keepdims=True)
        return (x - mean) * lax.rsqrt(snp.var(x, axis=-1, keepdims=True) + 1e-5)

    q, k, v = snp.einsum("bsd,dchk->cbshk", normalized(x), wqkv)
    x = x + snp.einsum("bshk,hkd->bsd", explicit_attention(q, k, v), wo)
    return x + sd.nn.gelu(normalized(x) @ up) @ down


def transformer_gradient(*arguments: Any) -> Any:
    return sd.grad(lambda *a: snp.mean(transformer_layer(*a) ** 2), argnums=(0, 1, 2, 3))(
        *arguments
    )


def convolve(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def convolution_gradient(w1: Any, w2: Any, x: Any) -> Any:
    def loss(w1: Any, w2: Any) -> Any:
        return snp.mean(convolve(snp.maximum(convolve(x, w1), 0), w2) ** 2)

    return sd.grad(loss, argnums=(0, 1))(w1, w2)


def pool(x: Any) -> Any:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def rnn(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = snp.tanh(h @ w + x)
        return h, h

    return lax.scan(step, xs[0], xs)


def rnn_gradient(w: Any, xs: Any) -> Any:
    return sd.grad(lambda w: snp.mean(rnn(w, xs)[1] ** 2))(w)


def experts(gate: Any, up: Any, down: Any, x: Any) -> Any:
    chosen = sd.nn.one_hot(snp.argmax(x @ gate, axis=-1), gate.shape[-1])
    grouped = snp.einsum("te,td->etd", chosen, x)
    hidden = sd.nn.relu(snp.einsum("etd,edf->etf", grouped, up))
    return snp.einsum("etf,efd,te->td", hidden, down, chosen)


def branch(flag: Any, x: Any) -> Any:
    return lax.cond(flag > 0, lambda x: snp.sort(x, axis=1), lambda x: x[::-1] * 2, x)


def power_iteration(a: Any, x: Any) -> Any:
    def body(state: Any) -> Any:
        i, x = state
        y = a @ x
        return i + 1, y / snp.sqrt(snp.sum(y * y))

    return lax.while_loop(lambda state: state[0] < 5, body, (0, x))[1]


def summed(x: Any) -> Any:
    mesh = sd.make_mesh((8, 1), ("data", "model"))
    return sd.shard_map(
        lambda x: lax.psum(x * 2, "data"), mesh=mesh, in_specs=P("data"), out_specs=P()
    )(x)


def gathered(x: Any) -> Any:
    mesh = sd.make_mesh((8, 1), ("data", "model"))
    return sd.shard_map(
        lambda x: lax.all_gather(x, "data", tiled=True) * 2,
        mesh=mesh, in_specs=P("data"), out_specs=P(None), check_vma=False,
    )(x)  # fmt: skip


def exchanged(x: Any) -> Any:
    mesh = sd.make_mesh((8, 1), ("data", "model"))
    return sd.shard_map(
        lambda x: lax.all_to_all(x, "data", 1, 0, tiled=True) + 1,
        mesh=mesh, in_specs=P("data"), out_specs=P(None, "data"),
    )(x)  # fmt: skip


def programs() -> list[Program]:
    """Return all programs."""
    square = Argument((4096, 4096))
    tall = Argument((8192, 4096), P("data"))
    weights = tuple(Argument((128, 128)) for _ in range(3))
    by_columns, by_rows = (Argument((128, 128), spec) for spec in (P(None, "model"), P("model")))
    batch = Argument((65536, 128), P("data"))
    wide = Argument((4096, 4096)), Argument((4096, 4096)), Argument((64, 4096), P("data"))
    heads = Argument((2, 1024, 16, 32), P("data", None, "model"))
    layer = (
        Argument((128, 3, 8, 16), P(None, None, "model")),
        Argument((8, 16, 128), P("model")),
        Argument((128, 512), P(None, "model")),
        Argument((512, 128), P("model")),
        Argument((16, 512, 128), P("data")),
    )
    image = Argument((32, 128, 128, 16), P("data"))
    filters = Argument((3, 3, 16, 16))
    moe = (
        Argument((128, 8)),
        Argument((8, 128, 256), P("data")),
        Argument((8, 256, 128), P("data")),
        Argument((16384, 128)),
    )
    recurrent = Argument((128, 128)), Argument((256, 1024, 128), P(None, "data"))
    return [
        Program("add", (1, 1), lambda x: x + 1, (square,)),
        Program("add, donated", (1, 1), lambda x: x + 1, (square,), (0,)),
        Program("add, 8 devices", (8, 1), lambda x: x + 1, (tall,)),
        Program("add, replicated", (2, 1), lambda x: x + 1, (square,)),
        Program("chain of products", (1, 1), lambda x: x @ x @ x @ x, (Argument((2048, 2048)),)),
        Program("MLP", (1, 1), lambda *a: mlp(a[:3], a[3]), (*weights, batch)),
        Program("MLP gradient", (1, 1), sd.grad(mlp_loss, argnums=(0, 1, 2)), (*weights, batch)),
        Program("MLP gradient, 8 data", (8, 1), sd.grad(mlp_loss, argnums=(0, 1, 2)),
                (*weights, batch)),
        Program("MLP gradient, 4 x 2", (4, 2), sd.grad(mlp_loss, argnums=(0, 1, 2)),
                (by_columns, by_rows, by_columns, batch)),
        Program("momentum, donated", (1, 1), momentum_step, wide, (0, 1)),
        Program("momentum, 2 devices, donated", (2, 1), momentum_step, wide, (0, 1)),
        Program("attention", (1, 1), attention, (heads,) * 3),
        Program("explicit attention", (1, 1), explicit_attention, (heads,) * 3),
        Program("explicit attention, 2 x 4", (2, 4), explicit_attention, (heads,) * 3),
        Program("transformer layer", (1, 1), transformer_layer, layer),
        Program("transformer gradient", (1, 1), transformer_gradient, layer),
        Program("transformer gradient, 4 x 2", (4, 2), transformer_gradient, layer),
        Program("convolution", (1, 1), convolve, (image, filters)),
        Program("convolution gradient", (1, 1), convolution_gradient, (filters, filters, image)),
        Program("convolution gradient, 2 devices", (2, 1), convolution_gradient,
                (filters, filters, image)),
        Program("max pooling", (1, 1), pool, (image,)),
        Program("RNN", (1, 1), rnn, recurrent),
        Program("RNN gradient", (1, 1), rnn_gradient,
                recurrent),
        Program("RNN gradient, 2 devices", (2, 1), rnn_gradient,
                recurrent),
        Program("mixture of experts", (1, 1), experts, moe),
        Program("mixture of experts, 8 devices", (8, 1), experts, moe),
        Program("FFT", (1, 1), lambda x: snp.fft.fft(x, axis=1), (Argument((4096, 4096)),)),
        Program("real FFT and back", (2, 1), lambda x: snp.fft.irfft(snp.fft.rfft(x, axis=1)),
                (Argument((4096, 4096), P("data")),)),
        Program("sort", (1, 1), lambda x: snp.sort(x, axis=1), (square,)),
        Program("argsort", (2, 1), lambda x: snp.argsort(x, axis=1),
                (Argument((4096, 4096), P("data")),)),
        Program("cumsum", (1, 1), lambda x: snp.cumsum(x, axis=0), (square,)),
        Program("cond", (1, 1), branch, (Argument((), P(), "int32"), square)),
        Program("while", (1, 1), power_iteration, (Argument((6144, 6144)), Argument((6144, 64)))),
        Program("gather", (1, 1), lambda x, i: x[i] + 1, (square, Argument((8192,), P(), "int32"))),
        Program("scatter-add", (1, 1), lambda x, i: x.at[i].add(1),
                (square, Argument((8192,), P(), "int32"))),
        Program("update in place, donated", (1, 1), lambda x: x.at[5:500].set(1), (square,), (0,)),
        Program("solve", (1, 1), snp.linalg.solve,
                (Argument((512, 128, 128)), Argument((512, 128, 128)))),
        Program("Cholesky", (1, 1), lambda x: snp.linalg.cholesky(x + 200 * snp.eye(128)),
                (Argument((1024, 128, 128)),)),
        Program("reshard rows to columns", (8, 1),
                lambda x: lax.with_sharding_constraint(x * 2, P(None, "data")), (tall,)),
        Program("shard_map psum", (8, 1), summed, (tall,)),
        Program("shard_map all_gather", (8, 1), gathered, (tall,)),
        Program("shard_map all_to_all", (8, 1), exchanged, (tall,)),
        Program("pmap", (8, 1), lambda x: snp.tanh(x @ x) + lax.psum(x, "i"),
                (Argument((8, 1024, 1024), P("data")),), (), True),
        Program("bf16 product", (1, 1), lambda x, w: snp.tanh(x @ w) + x,
                tuple(Argument((n, 128), P(), "bfloat16") for n in (131072, 128))),
        Program("gradient with checkpoint", (1, 1),
                sd.grad(lambda w, x: snp.mean(mlp((w,) * 2, sd.checkpoint(
                    lambda x: mlp((w,) * 4, x))(x)) ** 2)),
                (weights[0], batch)),
    ]  # fmt: skip


def resident_bytes(field: str) -> int:
    """Return a field of the process's memory: `VmRSS`, or the largest value so far, `VmHWM`."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text("utf-8"))
    assert found is not None
    return int(found[1]) << 10


def release_idle_memory() -> None:
    """Return the memory that nothing uses to the operating system."""
    gc.collect()
    memory.MEMORY_POOL.trim()
    ctypes.CDLL(None).malloc_trim(0)


def disable_huge_pages() -> None:
    """Make the system use pages of 4 KiB for this process and its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl(PR_SET_THP_DISABLE): {os.strerror(error)}")


def touch_scratch_memory() -> None:
    """Access all scratch memory of the threads, which belongs to the process, not to a run."""
    pool = worker_pool()
    ctypes.memset(pool._scratch, 0, pool.count * SCRATCH_BYTES_PER_WORKER)


def measure(program: Program) -> dict[str, int]:
    """Return predicted and measured bytes of one run in this process."""
    mesh = sd.make_mesh(program.mesh, ("data", "model"))
    if program.mapped:
        function = sd.pmap(program.function, axis_name="i", donate_argnums=program.donated)
    else:
        function = sd.jit(program.function, donate_argnums=program.donated)
    structs = [
        sd.ShapeDtypeStruct(each.shape, each.dtype, sharding=NamedSharding(mesh, each.spec))
        for each in program.arguments
    ]
    with sd.set_mesh(mesh):
        compiled = function.lower(*structs).compile()
    # Starts the threads, and the memory of small blocks.
    sd.block_until_ready(sd.jit(lambda x: snp.tanh(x @ x))(snp.ones((256, 256))))
    touch_scratch_memory()
    for each in program.arguments:
        each.make(mesh)
    release_idle_memory()
    start, idle = resident_bytes("VmRSS"), memory.statistics().idle
    arguments = [each.make(mesh) for each in program.arguments]
    release_idle_memory()
    # Small blocks stay resident while they are idle, so those that arguments reuse were counted.
    start -= idle - memory.statistics().idle
    Path("/proc/self/clear_refs").write_text("5", "utf-8")
    result = sd.block_until_ready(compiled(*arguments))
    peak = resident_bytes("VmHWM")
    del result
    found = compiled.memory_analysis()
    return {
        "executed": peak - start,
        "predicted": found.host_peak_memory_in_bytes,
        "device": found.peak_memory_in_bytes,
        "simulated": compiled.simulate("a100x8").memory.peak,
    }


def measure_in_child(program: Program) -> dict[str, int] | None:
    """Return predicted and measured bytes of one run in a new process; `None` if it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(measure(program)).encode())
        except Exception:
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def main(wanted: Sequence[str]) -> int:
    chosen = [
        program
        for program in programs()
        if not wanted or any(part in program.name for part in wanted)
    ]
    if not chosen:
        print(f"no name of a program contains {' or '.join(wanted)}", file=sys.stderr)
        return 2
    disable_huge_pages()
    errors = []
    for program in chosen:
        found = measure_in_child(program)
        if found is None:
            print(f"{program.name:34} failed")
            errors.append(inf)
            continue
        error = found["predicted"] / found["executed"] - 1
        errors.append(abs(error))
        print(
            f"{program.name:34} executed {found['executed'] / MIB:6.1f} MiB, predicted "
            f"{found['predicted'] / MIB:6.1f} MiB ({error:+.1%}); each device "
            f"{found['device'] / MIB:6.1f} MiB, simulated {found['simulated'] / MIB:6.1f} MiB",
            flush=True,
        )
    accepted = sum(each <= MAX_ERROR for each in errors)
    print(f"{accepted} of {len(errors)} programs differ by at most {MAX_ERROR:.0%}")
    return int(accepted < len(errors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
