"""Products as they are written for machines with other registers, run on this one.

Registers of 32 bytes are AVX2's, of 16 bytes ARM's: the masks and tiles are others there.
"""

import subprocess
import sys

import pytest

SCRIPT = """
import sys
from shardir.backends.cpu.native.llvm import target

here, width, triple = target.host(), int(sys.argv[1]), sys.argv[2]
machine = here._replace(vector_bytes=width, triple=triple or here.triple, fma=not triple)
target.host = lambda: machine
from shardir.backends.cpu.native.contraction import (
    direct, kernel, narrow, tile, vectors,
)
assert all(each.host() is machine for each in (direct, kernel, narrow, tile, vectors))
from shardir.backends.cpu.native.llvm import compiler, emission, naming
compiler.host = emission.host = naming.host = lambda: here

from tests.backends.cpu.native.contraction import test_convolution, test_dot
for dims, left, right in test_dot.SHAPES:
    test_dot.test_shapes(dims, left, right, "f32")
for dtype in ("f64", "bf16", "i32", "c64"):
    test_dot.test_element_types(dtype)
    for dims in ("ak,k->a", "ka,k->a", "zak,zk->za"):
        test_dot.test_narrow_products_pack_nothing(dims, dtype)
for dims, left, right, given in test_convolution.LARGE:
    test_convolution.test_shapes(dims, left, right, given, "f32")
"""


@pytest.mark.parametrize(("width", "triple"), [(32, ""), (16, "aarch64-linux-gnu")])
def test_other_registers(width: int, triple: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(width), triple], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
