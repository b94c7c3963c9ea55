"""Array files that commands read and write."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from shardir.errors import count_noun, os_error_reason
from shardir.frontend.cli.options import CommandError
from shardir.interpret.random_arguments import parameter_types
from shardir.ir.module import Module
from shardir.ir.npy_types import has_npy_name, to_npy, untyped_bytes
from shardir.ir.types import NumpyArray

NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK"
"""The first bytes of a file of one array, and of a file of several (`.npz`)."""


def load_arguments(
    module: Module, inputs: list[Path], count: int | None = None
) -> list[NumpyArray]:
    """Return the arrays of `.npy` files for the parameters of the main function, or the first
    `count`."""
    types = parameter_types(module)[:count]
    names = [param.name for param in module.main.body.params][:count]
    if len(inputs) != len(types):
        raise CommandError(
            f"@{module.main.name} takes {count_noun(len(types), 'argument')} "
            f"({', '.join(names)}), got {count_noun(len(inputs), 'file')}"
        )
    arrays = []
    for name, type, path in zip(names, types, inputs, strict=True):
        try:
            array = np.load(path, allow_pickle=False)
        # NumPy evaluates the header of a file, which may raise any exception.
        except Exception as error:
            is_readable = not isinstance(error, OSError)
            reason = (_unpickled_reason(path) if is_readable else "") or os_error_reason(error)
            raise CommandError(f"cannot read %{name} from {str(path)!r}: {reason}") from None
        if not isinstance(array, np.ndarray):
            raise CommandError(
                f"cannot read %{name} from {str(path)!r}: it holds several arrays; write one with "
                "np.save"
            )
        if not has_npy_name(type.numpy) and array.dtype == untyped_bytes(type.numpy):
            array = array.view(type.numpy)
        if array.shape != type.shape or array.dtype != type.numpy:
            raise CommandError(
                f"%{name} is {type}, but {str(path)!r} holds {array.dtype}{list(array.shape)}"
            )
        arrays.append(array)
    return arrays


def _unpickled_reason(path: Path) -> str:
    """Return why a file would have to be unpickled, as NumPy's error proposes, or `""`."""
    with path.open("rb") as file:
        start = file.read(len(NPY_MAGIC))
        if start and not start.startswith((NPY_MAGIC, ZIP_MAGIC)):
            return "it is not a .npy file; write one with np.save"
        file.seek(0)
        is_object_array = start == NPY_MAGIC and b"'descr': '|O'" in file.read(128)
    return "it holds Python objects; write an array of numbers" if is_object_array else ""


def make_folder(folder: Path) -> None:
    """Make a folder for arrays if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None


def save_array(path: Path, array: npt.ArrayLike) -> None:
    """Write an array to a `.npy` file."""
    try:
        np.save(path, to_npy(np.asarray(array)))
    except OSError as error:
        raise CommandError(f"cannot write {str(path)!r}: {os_error_reason(error)}") from None
