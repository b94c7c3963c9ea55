"""What the Array API standard asks a namespace to say of itself.

https://data-apis.org/array-api/2024.12/API_specification/inspection.html
"""

from importlib import import_module
from typing import Any

import numpy as np

from shardir.frontend.devices import Device, devices
from shardir.frontend.errors import ArgumentError
from shardir.frontend.locations import point
from shardir.frontend.numpy.dtypes import isdtype
from shardir.frontend.promotion import canonical
from shardir.frontend.running import uncommitted_device
from shardir.types import NUMPY_DTYPES

__array_api_version__ = "2024.12"
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
_DEFAULTS = {
    "real floating": "f64",
    "complex floating": "c128",
    "integral": "i64",
    "indexing": "i64",
}
_MOST_DIMENSIONS = 50
"""An einsum has as many letters."""


def namespace(version: str | None) -> Any:
    """`shardir.numpy`; raises `ArgumentError` for a version of the standard it does not follow."""
    if version not in (None, *VERSIONS):
        told = ", ".join(VERSIONS)
        raise ArgumentError(
            point(f"version {version!r} of the Array API is not known; the versions are {told}")
        )
    return import_module("shardir.numpy")


class Info:
    """Devices, element types and abilities."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """What is optional in the standard. Shapes depend on data outside of traces only."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MOST_DIMENSIONS,
        }

    def default_device(self) -> Device:
        """Where new arrays are."""
        return uncommitted_device()

    def devices(self) -> list[Device]:
        """All devices."""
        return list(devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The element types of new arrays, by kind; the same on all devices."""
        return {kind: NUMPY_DTYPES[canonical(name)] for kind, name in _DEFAULTS.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """The element types of the standard that are enabled, by name; those of a kind, or all."""
        known = [
            dtype
            for name, dtype in NUMPY_DTYPES.items()
            if name not in ("key", "f16", "bf16") and canonical(name) == name
        ]
        return {d.name: d for d in known if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> Info:
    """Devices, element types and abilities of this namespace."""
    return Info()
