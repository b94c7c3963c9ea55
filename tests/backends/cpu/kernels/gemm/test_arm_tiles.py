"""Matrix products with the register tiles of ARM, run on the host.

`tests.backends.cpu.codegen.test_instruction_sets` runs the code of narrower x86 instruction sets.
ARM has 32 registers of 16 bytes.
"""

import subprocess
import sys

import pytest

SCRIPT = """
from dataclasses import replace
from shardir.backends.cpu.codegen import target

from tests.backends.cpu import phase_runner

here = target.host_machine()
machine = replace(here, vector_bytes=16, triple="aarch64-linux-gnu", fma=False)
phase_runner.host_machine = lambda: machine

from tests.backends.cpu.kernels.conv import test_convolution
from tests.backends.cpu.kernels.gemm import test_dot
for dims, left, right in test_dot.SHAPES:
    test_dot.test_products_of_many_shapes_match_the_reference(dims, left, right, "f32")
for dtype in ("f64", "bf16", "i32", "c64"):
    test_dot.test_products_of_all_element_types_match_the_reference(dtype)
    for dims in ("ak,k->a", "ka,k->a", "zak,zk->za"):
        test_dot.test_narrow_products_do_not_pack(dims, dtype)
for dims, left, right, given in test_convolution.LARGE:
    test_convolution.test_convolutions_of_many_shapes_match_the_reference(
        dims, left, right, given, "f32"
    )
"""


@pytest.mark.long
def test_products_with_arm_tiles_match_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
