"""Every kernel of the suite of emitted programs compiles."""

from collections.abc import Iterator

import pytest

import shardir as sd
from shardir import ops
from shardir.backends.gpu.kernels import KernelText, write_kernel, write_random_kernel
from shardir.backends.gpu.kernels.compiling import compile_ahead
from shardir.ops.control_flow.fused import fused
from shardir.ops.control_flow.fused_products import fused_products
from tests.backends.gpu.programs import PROGRAMS

DEFAULT_PROGRAMS = ("mlp_dp_tp", "random_numbers")
RANDOM_OPERATIONS = (ops.random_bits, ops.random_bits_at, ops.random_split, ops.random_split_at)
CAPABILITIES = (80, 90, 100)


def kernels(name: str) -> Iterator[KernelText]:
    """Yield the distinct kernels of a program."""
    known: set[str] = set()
    with sd.cpu_devices(4):
        module = PROGRAMS[name]().emission("gpu").module
    for op in module.main.body.walk():
        if op.spec in (fused, fused_products, *RANDOM_OPERATIONS):
            write = write_random_kernel if op.spec in RANDOM_OPERATIONS else write_kernel
            kernel = write(op, f"compute_{len(known)}")
            if isinstance(kernel, KernelText) and kernel.text not in known:
                known.add(kernel.text)
                yield kernel


def test_the_kernels_of_emitted_programs_compile(request: pytest.FixtureRequest) -> None:
    long = request.config.getoption("--long")
    for name in PROGRAMS if long else DEFAULT_PROGRAMS:
        for kernel in kernels(name):
            for capability in CAPABILITIES if long else (90,):
                assert all(compile_ahead(kernel, capability).values()), name
