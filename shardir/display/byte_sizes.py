"""Formatting of byte counts."""


def show_bytes(count: float) -> str:
    """Return a byte count as text: `512 B`, `4.0 KiB`, `16.0 MiB`, ..."""
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} PiB"
