"""Descriptions of machines for which tests select kernels, independent of the host."""

from dataclasses import replace

from shardir.backends.cpu.codegen.target import HostDescription

_X86 = HostDescription(
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64",
    features="+sse,+sse2",
    vector_bytes=16,
    fma=False,
    version="",
    l1_bytes=32 << 10,
    l2_bytes=256 << 10,
    shared_cache_bytes=8 << 20,
)
_AVX2 = "+sse,+sse2,+avx,+avx2,+f16c,+fma"
_AVX512 = f"{_AVX2},+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vbmi2,+avx512vnni,+avx512bf16"

SSE_ONLY = _X86
HASWELL = replace(_X86, cpu="haswell", features=_AVX2, vector_bytes=32, fma=True)
ZEN_3 = replace(HASWELL, cpu="znver3", l2_bytes=512 << 10, shared_cache_bytes=32 << 20)
SMALL_CACHES = replace(HASWELL, l1_bytes=16 << 10, l2_bytes=128 << 10, shared_cache_bytes=1 << 20)
SAPPHIRE_RAPIDS = replace(
    _X86, cpu="sapphirerapids", features=f"{_AVX512},+amx-tile,+amx-bf16,+amx-int8",
    vector_bytes=64, fma=True,
    l1_bytes=48 << 10, l2_bytes=2 << 20, shared_cache_bytes=64 << 20,
)  # fmt: skip
ZEN_5 = replace(
    SAPPHIRE_RAPIDS, cpu="znver5", features=_AVX512, l2_bytes=1 << 20, shared_cache_bytes=32 << 20
)
NEOVERSE = replace(
    _X86, triple="aarch64-unknown-linux-gnu", cpu="neoverse-n1", features="+neon", fma=True,
    l1_bytes=64 << 10, l2_bytes=1 << 20, shared_cache_bytes=32 << 20,
)  # fmt: skip
NEOVERSE_V1 = replace(NEOVERSE, cpu="neoverse-v1", features="+neon,+bf16,+i8mm")
MACHINES = {
    "Zen 5": ZEN_5, "Zen 3": ZEN_3, "Sapphire Rapids": SAPPHIRE_RAPIDS, "Haswell": HASWELL,
    "SSE only": SSE_ONLY, "small caches": SMALL_CACHES, "Neoverse": NEOVERSE,
    "Neoverse V1": NEOVERSE_V1,
}  # fmt: skip
"""All descriptions by name."""
