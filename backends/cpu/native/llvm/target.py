"""This machine, as LLVM sees it."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import llvmlite
import llvmlite.binding as binding

from shardir.backends.cpu.native.llvm.threads import done_apart


class Machine(NamedTuple):
    """What code is compiled for.

    `vector_bytes` is how wide the registers are that kernels should use: 64 with AVX-512, 32 with
    AVX2, 16 on ARM. `fma` says whether a fused multiply-add is an instruction here. `caches` are
    the bytes of the nearest two that a core has for data.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    fma: bool
    version: str
    caches: tuple[int, int]

    def lanes(self, item_bytes: int) -> int:
        """How many elements of a size fill a register."""
        return max(1, self.vector_bytes // item_bytes)


@cache
def host() -> Machine:
    """The machine this process runs on."""
    (found,) = done_apart([_found])
    return found


def _found() -> Machine:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    triple = binding.get_process_triple()
    features = binding.get_host_cpu_features()
    arm = architecture(triple) == "aarch64"
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return Machine(
        triple,
        binding.get_host_cpu_name(),
        features.flatten(),
        16 if arm else width,
        arm or bool(features.get("fma")),
        f"{llvmlite.__version__} {'.'.join(map(str, binding.llvm_version_info))}",
        (_cache(1, 32 << 10), _cache(2, 1 << 20)),
    )


@cache
def shared_cache() -> int:
    """Bytes of the cache that cores share, as far as one process may count on it: 64 MB at most."""
    return min(_cache(3, 32 << 20), 64 << 20)


def _cache(level: int, usual: int) -> int:
    """Bytes of the data cache of a level, as Linux says; what is usual where nothing does."""
    for number in range(8):
        folder = Path(f"/sys/devices/system/cpu/cpu0/cache/index{number}")
        try:
            kind, its_level, size = (
                (folder / name).read_text().strip() for name in ("type", "level", "size")
            )
            if its_level == str(level) and kind in ("Data", "Unified"):
                return int(size.removesuffix("K")) << 10
        except (OSError, ValueError):
            return usual
    return usual


def system(triple: str) -> str:
    """`linux` or `darwin`."""
    return "darwin" if "darwin" in triple or "macos" in triple else "linux"


def architecture(triple: str) -> str:
    """`x86_64` or `aarch64`."""
    return "aarch64" if triple.startswith(("aarch64", "arm64")) else "x86_64"
