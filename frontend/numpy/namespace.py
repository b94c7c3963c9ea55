"""The inspection functions of the Array API standard."""

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
"""The number of letters of an einsum."""


def namespace(version: str | None) -> Any:
    """Return `shardir.numpy`; raise `ArgumentError` for an unsupported version of the standard."""
    if version not in (None, *VERSIONS):
        versions = ", ".join(VERSIONS)
        raise ArgumentError(
            point(f"version {version!r} of the Array API is not known; the versions are {versions}")
        )
    return import_module("shardir.numpy")


class Info:
    """Devices, element types and capabilities of the namespace."""

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Return the optional capabilities. Data-dependent shapes are supported outside of
        traces.
        """
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MOST_DIMENSIONS,
        }

    def default_device(self) -> Device:
        """Return the device of new arrays."""
        return uncommitted_device()

    def devices(self) -> list[Device]:
        """Return all devices."""
        return list(devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the element types of new arrays by kind; they are equal on all devices."""
        return {kind: NUMPY_DTYPES[canonical(name)] for kind, name in _DEFAULTS.items()}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype[Any]]:
        """Return the enabled element types of the standard by name; those of a kind, or all."""
        known = [
            dtype
            for name, dtype in NUMPY_DTYPES.items()
            if name not in ("key", "f16", "bf16") and canonical(name) == name
        ]
        return {d.name: d for d in known if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> Info:
    """Return the devices, element types and capabilities of this namespace."""
    return Info()
