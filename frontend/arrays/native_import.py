"""Import of NumPy arrays as arrays in one native call."""

from typing import TYPE_CHECKING, Any

from shardir._imports.lazy_import import lazy_import
from shardir.backends.base import Launch
from shardir.backends.cpu import is_available
from shardir.backends.native import native
from shardir.frontend.arrays.signature import ArraySignature
from shardir.frontend.shardings.sharding import Sharding
from shardir.ir.types import NumpyArray, NumpyDType

if TYPE_CHECKING:
    from shardir.backends.cpu.dispatch import launch
else:
    launch = lazy_import("shardir.backends.cpu.dispatch.launch")

MAX_CACHED_IMPORTS = 4096
"""Maximum number of cached launches."""

_import_launches: dict[object, Launch | None] = {}


def import_natively(
    array: NumpyArray, signature: ArraySignature, sharding: Sharding, kind: type
) -> Any:
    """Return a copy of a NumPy array in one allocation, or `None` if Python code must make it.

    `kind` is the class of the result. The result is `None` without the native tier, for large
    arrays, and for integers that do not fit.
    """
    key = array.shape, array.dtype, signature, sharding
    launch = _import_launches.get(key)
    if launch is None:
        if key in _import_launches or native is None or not is_available():
            return None
        if len(_import_launches) >= MAX_CACHED_IMPORTS:
            _import_launches.clear()
        launch = _import_launches[key] = _make_import_launch(
            array.shape, array.dtype, signature, sharding, kind
        )
    result = None if launch is None else launch([array])
    return None if result is None else result[0]


def _make_import_launch(
    shape: tuple[int, ...],
    given: NumpyDType,
    signature: ArraySignature,
    sharding: Sharding,
    kind: type,
) -> Launch | None:
    kept = signature.abstract.type.numpy
    return launch.make_launch(
        program=None,
        kind=kind,
        template=(),
        arguments=[launch.LaunchArgument(-1, entry=launch.ArrayImport(shape, given, kept))],
        places=(),
        sizes=(),
        results=[launch.LaunchResult(-1, 0, shape, kept, signature, sharding)],
        keep=None,
    )
