"""This machine, as LLVM sees it."""

from functools import cache
from typing import NamedTuple

import llvmlite
import llvmlite.binding as binding


class Machine(NamedTuple):
    """What code is compiled for.

    `vector_bytes` is how wide the registers are that kernels should use: 64 with AVX-512, 32 with
    AVX2, 16 on ARM. `fma` says whether a fused multiply-add is an instruction here.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    fma: bool
    version: str

    def lanes(self, item_bytes: int) -> int:
        """How many elements of a size fill a register."""
        return max(1, self.vector_bytes // item_bytes)


@cache
def host() -> Machine:
    """The machine this process runs on."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    triple = binding.get_process_triple()
    features = binding.get_host_cpu_features()
    arm = triple.startswith(("aarch64", "arm64"))
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Machine(
        triple,
        binding.get_host_cpu_name(),
        features.flatten(),
        16 if arm else width,
        arm or bool(features.get("fma")),
        f"{llvmlite.__version__} {'.'.join(map(str, binding.llvm_version_info))}",
    )
