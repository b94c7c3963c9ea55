"""`print_environment_info`: versions and devices, for reports of errors."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from shardir.frontend.argument_errors import with_argument_errors
from shardir.frontend.distributed.processes import process_count
from shardir.frontend.shardings.devices import devices, local_device_count

PACKAGES = ("shardir", "numpy", "llvmlite", "jax", "jaxlib", "torch", "triton", "mpi4py")
"""The packages whose versions are listed if they are installed."""


@with_argument_errors
def print_environment_info(return_string: bool = False) -> str | None:
    """Print the versions of the library, of Python and of packages, and the devices.

    With `return_string`, return the text instead.
    """
    rows = []
    for package in PACKAGES:
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            continue
    first = devices()[0]
    rows += [
        ("python", sys.version.replace("\n", " ")),
        ("devices", f"{first.platform}, {local_device_count()} local devices"),
        ("processes", str(process_count())),
        ("platform", platform.platform()),
    ]
    text = "\n".join(f"{name}: {value}" for name, value in rows)
    if return_string:
        return text
    print(text)
    return None
