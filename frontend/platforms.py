"""Platforms: how devices describe themselves where they stand for those of another kind.

Programs and documents written for accelerators print their devices and draw arrays on them.
"""

TRAY = (0, 1, 2, 3, 6, 7, 4, 5)
"""Eight TPU cores, two on each of two by two chips, along the ring that joins neighbours."""


def described(platform: str, id: int) -> str:
    """The device `id` of `platform`, as JAX prints one."""
    if platform == "gpu":
        return f"CudaDevice(id={id})"
    if platform == "tpu":
        chip, core = divmod(id, 2)
        place = f"({chip % 2},{chip // 2},0)"
        return f"TpuDevice(id={id}, process_index=0, coords={place}, core_on_chip={core})"
    if platform == "ipu":
        return f"IpuDevice(id={id}, num_tiles=1472, version=ipu2)"
    return f"CpuDevice(id={id})"
