"""Descriptions of the machine that code is compiled for, and of this host."""

import os
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as binding

from shardir.backends.cpu.codegen.arm_features import detect_matrix_features
from shardir.backends.cpu.codegen.llvm_threads import run_on_llvm_threads
from shardir.backends.cpu.codegen.tile_permission import request_tile_registers
from shardir.backends.cpu.errors import SettingError

ISAS = ("sse", "avx2", "avx512", "amx")
"""Instruction sets of x86 that `SHARDIR_MAX_CPU_ISA` accepts, each a superset of the one before."""
VECTOR_BYTES = {"sse": 16, "avx2": 32, "avx512": 64, "amx": 64}
"""The bytes of the widest vector register of each instruction set."""
GENERIC_CPUS = ("x86-64", "generic", "")
"""Names of processors that have the features of every processor of their architecture only."""
AVX_FEATURES = frozenset(
    {"avx", "avx2", "avxifma", "avxneconvert", "avxvnni", "avxvnniint16", "avxvnniint8", "f16c",
     "fma", "fma4", "gfni", "sha512", "sm3", "sm4", "vaes", "vpclmulqdq", "xop"}
)  # fmt: skip
"""Features that require 32-byte registers."""
CACHE_LINE_BYTES = 64
"""Bytes of a cache line of x86 processors and most ARM processors."""
PAGE_BYTES = 4096
"""Minimum bytes of a page of memory."""


@dataclass(frozen=True)
class HostDescription:
    """The description of a host: the machine that kernels are selected and compiled for.

    `vector_bytes` is the register width that kernels should use: 64 with AVX-512, 32 with AVX2, 16
    on ARM. `fma` says whether the machine has a fused multiply-add instruction. `l1_bytes` and
    `l2_bytes` are the sizes of the first two data caches of a core, and `shared_cache_bytes` is the
    part of the last-level cache that one process may count on.
    """

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    fma: bool
    version: str
    l1_bytes: int
    l2_bytes: int
    shared_cache_bytes: int

    def lanes(self, item_bytes: int) -> int:
        """Return how many elements of `item_bytes` fill a register."""
        return max(1, self.vector_bytes // item_bytes)

    def has(self, feature: str) -> bool:
        """Return whether the processor has a feature, by LLVM's name for it."""
        return f"+{feature}" in self.features.split(",")

    @property
    def has_many_registers(self) -> bool:
        """Return whether there are 32 vector registers (AVX-512, ARM) instead of 16."""
        return self.vector_bytes == 64 or architecture(self.triple) == "aarch64"

    def words(self) -> tuple[str, ...]:
        """Return the whole description as text, for cache keys."""
        return tuple(f"{each.name}={getattr(self, each.name)}" for each in fields(self))

    def limited_to(self, isa: str) -> "HostDescription":
        """Return the description without features beyond an instruction set of `ISAS`.

        A machine that is not x86, or has no such features, is returned unchanged.
        """
        if architecture(self.triple) != "x86_64":
            return self
        features = ",".join(
            f"-{each[1:]}" if _is_beyond(each[1:], isa) else each
            for each in self.features.split(",")
        )
        if VECTOR_BYTES[isa] == 64:
            return replace(self, features=features)
        width = min(self.vector_bytes, VECTOR_BYTES[isa])
        fma = self.fma and isa == "avx2"
        return replace(self, cpu="x86-64", features=features, vector_bytes=width, fma=fma)


def _is_beyond(feature: str, isa: str) -> bool:
    """Return whether an x86 feature requires wider registers than an instruction set has, or
    tiles."""
    if feature.startswith("amx"):
        return isa != "amx"
    if feature.startswith(("avx512", "avx10", "evex512")):
        return VECTOR_BYTES[isa] < 64
    return isa == "sse" and feature in AVX_FEATURES


@cache
def host_machine() -> HostDescription:
    """Return the description of the machine that this process runs on.

    The environment variable `SHARDIR_MAX_CPU_ISA` (`sse`, `avx2`, `avx512` or `amx`) limits the
    instructions that are used. Raises `SettingError` if it has another value. If the system does
    not grant the tile registers of AMX to this process, the machine lacks AMX.
    """
    (found,) = run_on_llvm_threads([_detect_host])
    limit = os.environ.get("SHARDIR_MAX_CPU_ISA", "")
    if limit and limit not in ISAS:
        raise SettingError(
            f"SHARDIR_MAX_CPU_ISA is {limit!r}, which is not an instruction set; "
            f"set it to one of {', '.join(ISAS)}, "
            "or unset it to use all instructions of the processor"
        )
    machine = found.limited_to(limit or ISAS[-1])
    if machine.has("amx-tile") and not request_tile_registers():
        return machine.limited_to("avx512")
    return machine


def check_runs_here(machine: HostDescription) -> None:
    """Raise `SettingError` if this host may lack instructions of a machine, and `TypeError` for
    another object."""
    if not isinstance(machine, HostDescription):
        raise TypeError(
            f"the machine of a native backend is a HostDescription, got {machine!r}; "
            "leave it out to compile for this host"
        )
    host = host_machine()
    if machine.triple != host.triple:
        raise SettingError(
            f"this host runs programs for {host.triple}, not for {machine.triple}; derive the "
            "machine from host_machine()"
        )
    # LLVM uses all features of a processor that has a name of its own.
    if machine.cpu not in (host.cpu, *GENERIC_CPUS):
        raise SettingError(
            f"this host, {host.cpu!r}, may lack instructions of {machine.cpu!r}; set the cpu of "
            f"the machine to {GENERIC_CPUS[0]!r} and list its features"
        )
    features = (each for each in machine.features.split(",") if each.startswith("+"))
    missing = [each[1:] for each in features if not host.has(each[1:])]
    if missing:
        raise SettingError(
            f"this host, {host.cpu!r}, lacks the features {', '.join(missing)} of the machine; "
            "remove them, or derive the machine from host_machine()"
        )


def _detect_host() -> HostDescription:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    triple = binding.get_process_triple()
    features = binding.get_host_cpu_features()
    arm = architecture(triple) == "aarch64"
    if arm:
        features.update(dict.fromkeys(detect_matrix_features(system_name(triple)), True))
    width = 64 if features.get("avx512f") else 32 if features.get("avx2") else 16
    return HostDescription(
        triple,
        binding.get_host_cpu_name(),
        features.flatten(),
        16 if arm else width,
        arm or bool(features.get("fma")),
        f"{llvmlite.__version__} {'.'.join(map(str, binding.llvm_version_info))}",
        _cache_bytes(1, 32 << 10),
        _cache_bytes(2, 1 << 20),
        min(_cache_bytes(3, 32 << 20), 64 << 20),
    )


def _cache_bytes(level: int, usual: int) -> int:
    """Return the bytes of a level of the data cache that Linux reports; `usual` if it reports
    none."""
    for number in range(8):
        folder = Path(f"/sys/devices/system/cpu/cpu0/cache/index{number}")
        try:
            kind, its_level, size = (
                (folder / name).read_text("utf-8").strip() for name in ("type", "level", "size")
            )
            if its_level == str(level) and kind in ("Data", "Unified"):
                return int(size.removesuffix("K")) << 10
        except (OSError, ValueError):
            return usual
    return usual


def system_name(triple: str) -> str:
    """Return `linux` or `darwin`."""
    return "darwin" if "darwin" in triple or "macos" in triple else "linux"


def architecture(triple: str) -> str:
    """Return `x86_64` or `aarch64`."""
    return "aarch64" if triple.startswith(("aarch64", "arm64")) else "x86_64"
