"""The workloads of `cpu.py`: each once for shardir and JAX, and in NumPy where that can do it.

`cpu_torch.py` has the same workloads in torch, by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cpu_library import Library
from cpu_models import convolution_step, mlp_gradient, transformer_step

Run = Callable[[], Any]
ATTENTION_SHAPE = (1, 1024, 8, 64)
"""Batch, length, heads and size of a head of queries, keys and values."""
IMAGE_SHAPE = (16, 56, 56, 64)
"""Batch, height, width and channels."""
N = 4096
SQUARE = N * N
PIECE = 4 << 20
"""Elements of a device's shard in collectives: 16 MB."""


@dataclass(frozen=True)
class Workload:
    """A program: `make` returns the function that is timed.

    The argument of `numpy` states whether numba compiles it. `moved` bytes and `flops` determine
    the shortest possible time on the machine.
    """

    name: str
    make: Callable[[Library], Run]
    numpy: Callable[[bool], Run] | None = None
    moved: float = 0
    flops: float = 0


def blocked(library: Library, function: Callable[..., Any], *arguments: Any) -> Run:
    """Return a call that waits for its results."""
    wait = library.top.block_until_ready
    return lambda: wait(function(*arguments))


def grid(library: Library) -> Any:
    return library.mesh_of((4, 2), ("x", "y"))


def line(library: Library) -> Any:
    return library.mesh_of((8,), ("d",))


def sharded(function: Callable[[Library, Any], Any], *spec: Any, positive: bool = False) -> Any:
    """Return a jitted function of a 4096 x 4096 matrix on eight devices."""

    def make(library: Library) -> Run:
        x = library.draw((N, N), grid(library), *(spec or ("x", "y")))
        if positive:
            x = library.top.jit(lambda x: library.numpy.abs(x) + 0.01)(x)
        return blocked(library, library.top.jit(lambda x: function(library, x)), x)

    return make


def in_numpy(
    function: Callable[[Any], Any], positive: bool = False, compiles: bool = True
) -> Callable[[bool], Run]:
    """Return a function of such a matrix in NumPy, or compiled by numba for all cores."""

    def make(by_numba: bool) -> Run:
        x = np.random.default_rng(0).standard_normal((N, N), np.float32)
        x = np.abs(x) + np.float32(0.01) if positive else x
        if not by_numba:
            return lambda: function(x)
        if not compiles:
            raise NotImplementedError("numba does not compile it")
        from numba import njit

        compiled = njit(parallel=True, fastmath=True)(function)
        return lambda: compiled(x)

    return make


def unaligned(array: Any) -> Any:
    """Return a copy 16 bytes behind a cache line, where large arrays of NumPy mostly are.

    JAX takes an array over without a copy where it happens to be aligned to 64 bytes.
    """
    whole = np.empty(array.nbytes + 128, np.uint8)
    start = -whole.ctypes.data % 64 + 16
    made = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[:] = array
    return made


def softmax(library: Library, x: Any) -> Any:
    snp = library.numpy
    raised = snp.exp(x - snp.max(x, axis=-1, keepdims=True))
    return raised / snp.sum(raised, axis=-1, keepdims=True)


def layer_norm(library: Library, x: Any) -> Any:
    snp = library.numpy
    mean = snp.mean(x, axis=-1, keepdims=True)
    variance = snp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) / snp.sqrt(variance + 1e-5)


def elementwise() -> list[Workload]:
    moved = 8 * SQUARE
    return [
        Workload("x + 1", sharded(lambda lib, x: x + 1), in_numpy(lambda x: x + np.float32(1)),
                 moved),
        Workload(
            "tanh(2x + 1) exp(-x^2)",
            sharded(lambda lib, x: lib.numpy.tanh(2 * x + 1) * lib.numpy.exp(-x * x)),
            in_numpy(lambda x: np.tanh(2 * x + 1) * np.exp(-x * x)), moved,
        ),
        Workload("sin", sharded(lambda lib, x: lib.numpy.sin(x)),
                 in_numpy(lambda x: np.sin(x)), moved),
        Workload("erf", sharded(lambda lib, x: lib.lax.erf(x)), None, moved),
        Workload("log", sharded(lambda lib, x: lib.numpy.log(x), positive=True),
                 in_numpy(lambda x: np.log(x), True), moved),
        Workload("pow", sharded(lambda lib, x: x**1.7, positive=True),
                 in_numpy(lambda x: x ** np.float32(1.7), True), moved),
    ]  # fmt: skip


def reductions() -> list[Workload]:
    rows = ("x", "y"), None
    return [
        Workload("sum", sharded(lambda lib, x: lib.numpy.sum(x)),
                 in_numpy(lambda x: np.sum(x)), 4 * SQUARE),
        Workload("softmax", sharded(softmax), None, 8 * SQUARE),
        Workload("layer norm", sharded(layer_norm), None, 8 * SQUARE),
        Workload("transpose", sharded(lambda lib, x: x.T),
                 in_numpy(lambda x: np.ascontiguousarray(x.T)), 8 * SQUARE),
        Workload("cumsum along rows",
                 sharded(lambda lib, x: lib.numpy.cumsum(x, axis=1), *rows),
                 in_numpy(lambda x: np.cumsum(x, axis=1), compiles=False), 8 * SQUARE),
        Workload("sort along rows", sharded(lambda lib, x: lib.numpy.sort(x, axis=1), *rows),
                 in_numpy(lambda x: np.sort(x, axis=1), compiles=False), 8 * SQUARE),
        Workload("vdot of 10M x 3", vdot, None, 24e7),
    ]  # fmt: skip


def vdot(library: Library) -> Run:
    x = library.draw((10_000_000, 3))
    return blocked(library, library.top.jit(lambda v: library.numpy.vdot(v, v)), x)


def contractions() -> list[Workload]:
    def dot(left: Any, right: Any) -> Callable[[Library], Run]:
        def make(library: Library) -> Run:
            mesh = grid(library)
            a, b = (library.draw((2048, 2048), mesh, *spec) for spec in (left, right))
            return blocked(library, library.top.jit(lambda a, b: a @ b), a, b)

        return make

    def batched(by: str) -> Callable[[Library], Run]:
        def make(library: Library) -> Run:
            a = library.draw((8, 512, 512), line(library), "d")
            mapped = library.top.pmap if by == "pmap" else library.top.jit
            return blocked(library, mapped(lambda a, b: a @ b), a, a)

        return make

    def product(*shape: int) -> Callable[[bool], Run]:
        def make(by_numba: bool) -> Run:
            if by_numba:
                raise NotImplementedError("it would call the same BLAS")
            a = np.random.default_rng(0).standard_normal(shape, np.float32)
            return lambda: a @ a

        return make

    def bfloat16(library: Library) -> Run:
        a = library.top.jit(lambda a: a.astype(library.numpy.bfloat16))(library.draw((1024, 1024)))
        return blocked(library, library.top.jit(lambda a: a @ a), a)

    flops = 2 * 2048**3
    both = ("x", "y")
    return [
        Workload("dot, free dims sharded", dot(("x", None), (None, "y")),
                 product(2048, 2048), 0, flops),
        Workload("dot, contracting dim sharded", dot((None, both), (both, None)), None, 0,
                 flops),
        Workload("8 x 512^2 by pmap", batched("pmap"), product(8, 512, 512), 0,
                 16 * 512**3),
        Workload("8 x 512^2 by jit", batched("jit"), None, 0, 16 * 512**3),
        Workload("dot of bf16", bfloat16, None, 0, 2 * 1024**3),
    ]  # fmt: skip


def layers() -> list[Workload]:
    """Return single layers of networks on one device."""

    def convolution(library: Library) -> Run:
        x, channels = library.draw(IMAGE_SHAPE), IMAGE_SHAPE[-1]
        filters = library.draw((3, 3, channels, channels))

        def function(x: Any, filters: Any) -> Any:
            return library.lax.conv_general_dilated(
                x, filters, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )

        return blocked(library, library.top.jit(function), x, filters)

    def attention(is_causal: bool, is_gradient: bool = False) -> Callable[[Library], Run]:
        def make(library: Library) -> Run:
            def function(*arrays: Any) -> Any:
                return library.nn.dot_product_attention(*arrays, is_causal=is_causal)

            def loss(arrays: Any) -> Any:
                return library.numpy.sum(function(*arrays) ** 2)

            arrays = [library.draw(ATTENTION_SHAPE) for _ in range(3)]
            if is_gradient:
                return blocked(library, library.top.jit(library.top.grad(loss)), arrays)
            return blocked(library, library.top.jit(function), *arrays)

        return make

    batch, height, width, channels = IMAGE_SHAPE
    _, length, heads, size = ATTENTION_SHAPE
    flops = 4 * length * length * heads * size
    return [
        Workload("convolution", convolution, None, 0,
                 2 * 9 * batch * height * width * channels**2),
        Workload("attention", attention(False), None, 0, flops),
        Workload("attention, causal", attention(True), None, 0, flops / 2),
        Workload("attention gradient, causal", attention(True, True), None, 0,
                 flops / 2 * 3.5),
    ]  # fmt: skip


def training() -> list[Workload]:
    return [
        Workload("MLP gradient, 1 device", mlp_gradient(None), None, 0, 16.24e9),
        Workload("MLP gradient, 8 data", mlp_gradient((8, 1)), None, 0, 16.24e9),
        Workload("MLP gradient, 4 x 2", mlp_gradient((4, 2)), None, 0, 16.24e9),
        Workload("transformer step, 1 device", transformer_step(None)),
        Workload("transformer step, 4 x 2", transformer_step((4, 2))),
        Workload("convolution step, batch sharded", convolution_step("batch")),
        Workload("convolution step, space sharded", convolution_step("space")),
    ]


def collectives() -> list[Workload]:
    def mapped(function: Callable[[Any, Any], Any], out: str | None) -> Callable[[Library], Run]:
        def make(library: Library) -> Run:
            mesh, spec = line(library), library.spec
            x = library.draw((8, PIECE), mesh, "d")
            inner = library.mapped(
                lambda x: function(library.lax, x), mesh, spec("d"), spec(out) if out else spec()
            )
            return blocked(library, inner, x)

        return make

    def turned(lax: Any, x: Any) -> Any:
        return lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)])

    def exchanged(lax: Any, x: Any) -> Any:
        return lax.all_to_all(x, "d", 1, 0, tiled=True)

    def scattered(lax: Any, x: Any) -> Any:
        return lax.psum_scatter(x, "d", scatter_dimension=1, tiled=True)

    whole = 8 * PIECE * 4
    return [
        Workload("all-reduce", mapped(lambda lax, x: lax.psum(x, "d"), None), None,
                 whole + whole // 8),
        Workload("all-gather",
                 mapped(lambda lax, x: lax.all_gather(x, "d", tiled=True), None), None, whole),
        Workload("all-to-all",
                 mapped(exchanged, "d"), None, 2 * whole),
        Workload("reduce-scatter", mapped(scattered, "d"), None, whole + whole // 8),
        Workload("permute", mapped(turned, "d"), None, 2 * whole),
    ]  # fmt: skip


def placement() -> list[Workload]:
    def resharded(before: Any, after: Any) -> Callable[[Library], Run]:
        def make(library: Library) -> Run:
            mesh = library.mesh_of((4, 2), ("a", "b"))
            x, to = library.draw((N, N), mesh, *before), library.sharding(mesh, *after)
            return blocked(library, lambda x: library.top.device_put(x, to), x)

        return make

    def put(library: Library) -> Run:
        numbers = unaligned(np.ones((N, N), np.float32))
        to = library.sharding(grid(library))
        return blocked(library, lambda x: library.top.device_put(x, to), numbers)

    def taken(library: Library) -> Run:
        """Each call makes a new array, because JAX caches the converted array."""
        x = library.draw((N, N), grid(library), "x", "y")
        add = library.top.jit(lambda x: x + 1)
        wait = library.top.block_until_ready
        return lambda: np.asarray(wait(add(x)))

    both = ("a", "b")
    return [
        Workload("reshard P(a, b) -> P(b, a)", resharded(both, ("b", "a")), None, 8 * SQUARE),
        Workload("reshard rows -> columns", resharded((both, None), (None, both)), None,
                 8 * SQUARE),
        Workload("reshard -> replicated", resharded(both, ()), None, 8 * SQUARE),
        Workload("device_put replicated", put, None, 8 * SQUARE),
        Workload("np.asarray (of x + 1)", taken, None, 16 * SQUARE),
    ]  # fmt: skip


def calls() -> list[Workload]:
    def add(devices: int) -> Callable[[Library], Run]:
        def make(library: Library) -> Run:
            mesh = line(library) if devices == 8 else None
            x = library.draw((8,), mesh, *(("d",) if mesh else ()))
            return blocked(library, library.top.jit(lambda x: x + 1), x)

        return make

    def tree(library: Library) -> Run:
        leaf = library.draw((8,))
        nested = {f"layer{i}": {"w": leaf, "b": {"inner": leaf}} for i in range(10)}
        each = library.top.tree_util.tree_map if library.name == "jax" else library.top.tree.map
        return blocked(library, library.top.jit(lambda t: each(lambda x: x + 1, t)), nested)

    def rule_30(library: Library) -> Run:
        lax, snp = library.lax, library.numpy

        def step(cells: Any) -> Any:
            right = lax.ppermute(cells[:1], "i", [(i, (i - 1) % 8) for i in range(8)])
            left = lax.ppermute(cells[-1:], "i", [(i, (i + 1) % 8) for i in range(8)])
            wider = snp.concatenate([left, cells, right])
            return wider[:-2] ^ (wider[1:-1] | wider[2:])

        board = np.zeros((8, 10), np.bool_)
        board[4, 0] = True
        mapped = library.top.pmap(step, axis_name="i")
        return blocked(library, mapped, mapped(board))

    return [
        Workload("rule 30 by pmap", rule_30),
        Workload("call of x + 1, 1 device", add(1)),
        Workload("call of x + 1, 8 devices", add(8)),
        Workload("call on a tree of 20 arrays", tree),
    ]


def workloads() -> list[Workload]:
    return [
        *elementwise(), *reductions(), *contractions(), *layers(), *training(),
        *collectives(), *placement(), *calls(),
    ]  # fmt: skip
