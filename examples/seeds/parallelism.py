"""From NumPy to eight devices: the programs of the notebook "Parallelism" on shardir.

The file contains every program of the notebook, in its order: a batch of matrix products with
NumPy, on one device and with `pmap` on eight, collective operations by the name of the mapped axis,
and the names that its last cell imports. Matrices are 256 by 256 instead of 4096 by 4096. Times,
which depend on the machine, are printed but not asserted.

    python examples/seeds/parallelism.py
    mpiexec -n 2 python examples/seeds/parallelism.py
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

import shardir as sd
import shardir.numpy as snp
from shardir import lax, pmap
from shardir.experimental.maps import Mesh
from shardir.experimental.mesh_utils import create_device_mesh
from shardir.experimental.pjit import PartitionSpec as P, pjit

SIZE = 256


def timed(compute: Callable[[], Any], runs: int = 5) -> None:
    """Print how long the fastest of some runs takes."""
    compute()
    best = float("inf")
    for _ in range(runs):
        start = perf_counter()
        compute()
        best = min(best, perf_counter() - start)
    print(f"best of {runs} runs: {best * 1e3:.2f} ms")


def numpy_baseline() -> None:
    x = np.ones((8, SIZE, SIZE))
    assert np.matmul(x, x).shape == (8, SIZE, SIZE)
    timed(lambda: np.matmul(x, x))


def one_device() -> None:
    print(sd.devices())
    assert len(sd.devices()) == 8
    x = snp.ones((8, SIZE, SIZE))
    assert snp.matmul(x, x).shape == (8, SIZE, SIZE)
    timed(lambda: snp.matmul(x, x).block_until_ready())


def mapped() -> None:
    # The argument only states how often the function runs; each run makes a matrix on its device.
    xd = pmap(lambda i: snp.ones((SIZE, SIZE)))(np.arange(8))
    print(xd.shape, type(xd).__name__)
    assert xd.shape == (8, SIZE, SIZE)
    assert isinstance(xd, sd.Array)
    assert xd.devices() == set(sd.devices())

    # Eight products, each of the matrices that its device already has.
    yd = pmap(snp.matmul)(xd, xd)
    print(yd.shape, type(yd).__name__)
    assert yd.shape == (8, SIZE, SIZE)
    assert yd.sharding == xd.sharding
    assert {piece.data.shape for piece in yd.addressable_shards} == {(1, SIZE, SIZE)}

    print(repr(yd[0]))
    np.testing.assert_array_equal(np.asarray(yd[0]), np.full((SIZE, SIZE), SIZE, np.float32))
    timed(lambda: pmap(snp.matmul)(xd, xd).block_until_ready())


def normalize(x: Any) -> Any:
    return x / lax.psum(x, axis_name="p")


def collectives() -> None:
    shares = pmap(normalize, axis_name="p")(snp.arange(8))
    print(shares.shape, shares, shares.sum(), sep="\n")
    assert shares.shape == (8,)
    # The notebook's TPUs divide to within a unit in the last place of this.
    np.testing.assert_array_equal(np.asarray(shares), np.arange(8, dtype=np.float32) / 28)
    assert float(shares.sum()) == 1.0

    # The library converts NumPy's f64 to f32.
    total = pmap(lambda x: lax.psum(x, axis_name="i"), axis_name="i")(np.ones(8))
    print(repr(total))
    assert repr(total) == "Array([8., 8., 8., 8., 8., 8., 8., 8.], dtype=float32)"


def partitioned() -> None:
    # The notebook ends with these imports. `pjit` is the former name of `jit`, and a bare spec
    # refers to the mesh of the `with` block.
    with Mesh(create_device_mesh((4, 2)), ("x", "y")):
        product = pjit(
            snp.matmul,
            in_axis_resources=(P("x", None), P(None, "y")),
            out_axis_resources=P("x", "y"),
        )
        x = snp.ones((SIZE, SIZE))
        y = product(x, x)
    sd.debug.visualize_array_sharding(y)
    assert y.sharding.spec == P("x", "y")
    assert float(y[0, 0]) == SIZE


def main() -> None:
    sd.distributed.initialize(gather=True)  # under mpiexec, of several processes
    for part in (numpy_baseline, one_device, mapped, collectives, partitioned):
        print(f"== {part.__name__.replace('_', ' ')}")
        part()


if __name__ == "__main__":
    main()
