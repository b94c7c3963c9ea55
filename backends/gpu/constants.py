"""Constant arrays of a program: short arrays in its text, long ones in files.

The program creates each array once per device, in a cached function.
"""

import io
from collections.abc import Mapping

import numpy as np

from shardir.backends.gpu.dtypes import SIGNED_WORD_DTYPES, TORCH_DTYPES
from shardir.backends.gpu.torch_text import list_text, number_text, word_text
from shardir.ir.dtypes import DTYPE_INFO
from shardir.ir.types import NumpyArray

FOLDER = "constants"
MAX_INLINE_ELEMENTS = 64
"""Arrays with more elements are written to files."""
MAX_LINE_CHARACTERS = 96

Constants = Mapping[str, tuple[NumpyArray, str]]
"""Arrays and their element types, keyed by the names of their functions."""


def constants_text(constants: Constants) -> str:
    """Return the text of the functions that create the arrays."""
    texts = (_function_text(name, array, dtype) for name, (array, dtype) in constants.items())
    return "\n\n\n".join(texts)


def constant_files(constants: Constants) -> dict[str, bytes]:
    """Return the `.npy` files of long arrays; dtypes that NumPy lacks are stored as integers."""
    files = {}
    for name, (array, dtype) in constants.items():
        if array.size > MAX_INLINE_ELEMENTS:
            file = io.BytesIO()
            np.save(file, _storable(array, dtype), allow_pickle=False)
            files[f"{FOLDER}/{name}.npy"] = file.getvalue()
    return files


def _storable(array: NumpyArray, dtype: str) -> NumpyArray:
    """Return the array, viewed as integers if NumPy's files cannot state its dtype."""
    info = DTYPE_INFO[dtype]
    return array.view(f"i{info.memory_bits // 8}") if info.is_extension else array


def _function_text(name: str, array: NumpyArray, dtype: str) -> str:
    head = f'@cache\ndef {name}(device):\n    """{dtype}{list_text(array.shape)}"""\n'
    if array.size > MAX_INLINE_ELEMENTS:
        seen = f".view({TORCH_DTYPES[dtype]})" if DTYPE_INFO[dtype].is_extension else ""
        place = f'Path(__file__).with_name("{FOLDER}") / "{name}.npy"'
        return (
            f"{head}    numbers = np.load({place})\n"
            f"    return torch.from_numpy(numbers){seen}.to(device)"
        )
    spell = word_text if dtype in SIGNED_WORD_DTYPES else number_text
    numbers = [f"{spell(number, dtype)}," for number in array.reshape(-1)]
    shape = f".reshape({list_text(array.shape)})" if array.ndim != 1 else ""
    back = f".view({TORCH_DTYPES[dtype]})" if dtype in SIGNED_WORD_DTYPES else ""
    made = (
        f"dtype={SIGNED_WORD_DTYPES.get(dtype, TORCH_DTYPES[dtype])}, device=device){shape}{back}"
    )
    short = f"    return torch.tensor([{' '.join(numbers).rstrip(',')}], {made}"
    if len(short) <= MAX_LINE_CHARACTERS:
        return head + short
    lines = [""]
    for number in numbers:
        if len(lines[-1]) + len(number) > MAX_LINE_CHARACTERS - 8:
            lines.append("")
        lines[-1] += f" {number}" if lines[-1] else number
    body = "\n".join(f"        {line}" for line in lines)
    listing = f"    numbers = [\n{body}\n    ]  # fmt: skip\n"
    return f"{head}{listing}    return torch.tensor(numbers, {made}"
