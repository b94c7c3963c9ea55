"""The inspection functions of the Array API standard."""

from importlib import import_module
from types import ModuleType

from shardir.frontend.dispatch.execution_context import default_array_device
from shardir.frontend.errors import ArgumentError
from shardir.frontend.numpy.dtypes import isdtype
from shardir.frontend.shardings.devices import Device, devices
from shardir.frontend.shardings.requested_sharding import ShardingRequest
from shardir.frontend.source_locations import with_location
from shardir.frontend.tracing.promotion import canonical_dtype
from shardir.ir.dtypes import KEYS, NARROW_FLOATS, SMALL_DTYPES
from shardir.ir.types import NUMPY_DTYPES, NumpyDType

__array_api_version__ = "2024.12"
"""The version of the Array API standard that the namespace implements."""
ARRAY_API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
_DEFAULT_DTYPES = {
    "real floating": "f64",
    "complex floating": "c128",
    "integral": "i64",
    "indexing": "i64",
}
_MAX_DIMENSIONS = 50
"""The number of letters of an einsum."""


def array_namespace(version: str | None) -> ModuleType:
    """Return `shardir.numpy`; raise `ArgumentError` for an unsupported version of the standard."""
    if version not in (None, *ARRAY_API_VERSIONS):
        versions = ", ".join(ARRAY_API_VERSIONS)
        raise ArgumentError(
            with_location(
                f"version {version!r} of the Array API is not known; the versions are {versions}"
            )
        )
    return import_module("shardir.numpy")


class NamespaceInfo:
    """Devices, element types and capabilities of the namespace."""

    __slots__ = ()

    def capabilities(self) -> dict[str, bool | int]:
        """Return the optional capabilities. Data-dependent shapes are supported outside of
        traces.
        """
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": _MAX_DIMENSIONS,
        }

    def default_device(self) -> Device:
        """Return the device of new arrays."""
        return default_array_device()

    def devices(self) -> list[Device]:
        """Return all devices."""
        return list(devices())

    def default_dtypes(self, *, device: ShardingRequest = None) -> dict[str, NumpyDType]:
        """Return the element types of new arrays by kind; they are equal on all devices."""
        return {kind: NUMPY_DTYPES[canonical_dtype(name)] for kind, name in _DEFAULT_DTYPES.items()}

    def dtypes(
        self, *, device: ShardingRequest = None, kind: object = None
    ) -> dict[str, NumpyDType]:
        """Return the enabled element types of the standard by name; those of a kind, or all."""
        known = [
            dtype
            for name, dtype in NUMPY_DTYPES.items()
            if name not in (*KEYS, *NARROW_FLOATS, *SMALL_DTYPES) and canonical_dtype(name) == name
        ]
        return {d.name: d for d in known if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> NamespaceInfo:
    """Return the devices, element types and capabilities of this namespace."""
    return NamespaceInfo()
