"""Device descriptions of other platforms, for the setting `shown_platform`.

Programs and documents written for accelerators print their devices and draw arrays on them.
"""

TPU_RING_ORDER = (0, 1, 2, 3, 6, 7, 4, 5)
"""Eight TPU cores, two on each of 2x2 chips, along the ring that connects adjacent chips."""


def describe_device(platform: str, id: int) -> str:
    """Return the text of device `id` of `platform`, in the format of JAX."""
    if platform == "gpu":
        return f"CudaDevice(id={id})"
    if platform == "tpu":
        chip, core = divmod(id, 2)
        place = f"({chip % 2},{chip // 2},0)"
        return f"TpuDevice(id={id}, process_index=0, coords={place}, core_on_chip={core})"
    if platform == "ipu":
        return f"IpuDevice(id={id}, num_tiles=1472, version=ipu2)"
    return f"CpuDevice(id={id})"
