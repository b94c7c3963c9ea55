"""Array files that commands read and write."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from shardir.errors import count_noun, os_error_reason
from shardir.frontend.cli.options import CommandError
from shardir.interpret.random_arguments import parameter_types
from shardir.ir.module import Module
from shardir.ir.types import NumpyArray


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
            reason = os_error_reason(error)
            raise CommandError(f"cannot read %{name} from {str(path)!r}: {reason}") from None
        if not isinstance(array, np.ndarray):
            raise CommandError(
                f"cannot read %{name} from {str(path)!r}: it holds several arrays; write one with "
                "np.save"
            )
        if array.shape != type.shape or array.dtype != type.numpy:
            raise CommandError(
                f"%{name} is {type}, but {str(path)!r} holds {array.dtype}{list(array.shape)}"
            )
        arrays.append(array)
    return arrays


def make_folder(folder: Path) -> None:
    """Make a folder for arrays if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None


def save_array(path: Path, array: npt.ArrayLike) -> None:
    """Write an array to a `.npy` file."""
    try:
        np.save(path, array)
    except OSError as error:
        raise CommandError(f"cannot write {str(path)!r}: {os_error_reason(error)}") from None
