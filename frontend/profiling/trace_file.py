"""The files of traces, and the error of the profiler."""

from pathlib import Path

from shardir.errors import ShardirError, os_error_reason
from shardir.frontend.source_locations import with_location


class ProfilerError(ShardirError, RuntimeError):
    """A trace is started while another one is running, stopped while none is running, or cannot be
    written."""


def write_trace(path: Path, content: bytes, *, makes_folder: bool = False) -> None:
    """Write a trace to a file; raises `ProfilerError` if it cannot be written.

    `makes_folder` also makes the folder of the file.
    """
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except (OSError, ValueError) as error:  # A path with a NUL byte raises ValueError.
        raise ProfilerError(
            with_location(f"cannot write the trace to {str(path)!r}: {os_error_reason(error)}")
        ) from None
