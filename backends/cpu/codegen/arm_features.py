"""The features of an Arm processor that LLVM does not detect, from the operating system.

Sources: Linux, `arch/arm64/include/uapi/asm/hwcap.h`; Apple, "Determining Instruction Set
Characteristics".
"""

import ctypes

AT_HWCAP2 = 26
"""The entry of the auxiliary vector with further capabilities of the processor."""
HWCAP2_BITS = {"i8mm": 13, "bf16": 14}
"""The bit of each feature, by LLVM's name, in that entry."""
SYSCTL_NAMES = {"i8mm": b"hw.optional.arm.FEAT_I8MM", "bf16": b"hw.optional.arm.FEAT_BF16"}
"""The name of each feature in macOS."""


def detect_matrix_features(system: str) -> list[str]:
    """Return the features with matrix instructions that this Arm processor has, by LLVM's names.

    `system` is `linux` or `darwin`. The result is empty if the system does not report them.
    """
    libc = ctypes.CDLL(None)
    if system == "darwin":
        return [name for name, key in SYSCTL_NAMES.items() if _read_sysctl(libc, key)]
    getauxval = getattr(libc, "getauxval", None)
    if getauxval is None:  # A system that is neither Linux nor macOS.
        return []
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    capabilities = getauxval(AT_HWCAP2)
    return [name for name, bit in HWCAP2_BITS.items() if capabilities >> bit & 1]


def _read_sysctl(libc: ctypes.CDLL, name: bytes) -> int:
    """Return the 32-bit value of a name, or 0 if the system does not know it."""
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    status = libc.sysctlbyname(name, ctypes.byref(value), ctypes.byref(size), None, 0)
    return 0 if status else value.value
