"""Element types, global arrays and shards, and `.npy` files.

The bits of elements of types that NumPy lacks are stored as words, such as `V2` for bf16, as NumPy
stores unknown types.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from shardir.backends.gpu.vendored.device_mesh import Mesh
from shardir.backends.gpu.vendored.program_description import Tensor
from shardir.backends.gpu.vendored.reduction import identity_element, reduce_tensors, view_as_words

Array: TypeAlias = npt.NDArray[Any]

DTYPES: dict[str, torch.dtype] = {
    "bool": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "key": torch.uint64,
    "i2": torch.uint8,
    "i4": torch.uint8,
    "u2": torch.uint8,
    "u4": torch.uint8,
    "f4e2m1fn": torch.uint8,
    "f8e3m4": torch.uint8,
    "f8e4m3": torch.uint8,
    "f8e4m3fn": torch.uint8,
    "f8e4m3b11fnuz": torch.uint8,
    "f8e4m3fnuz": torch.uint8,
    "f8e5m2": torch.uint8,
    "f8e5m2fnuz": torch.uint8,
    "f8e8m0fnu": torch.uint8,
}
"""The torch dtype of each element type; a key is one 64-bit word, and elements of at most 8 bits
that NumPy lacks are bytes."""
MAX_RELATIVE_ERROR = {
    "f16": 4e-3,
    "bf16": 4e-2,
    "f32": 2e-4,
    "f64": 1e-9,
    "c64": 2e-4,
    "c128": 1e-9,
    "f4e2m1fn": 1.0,
    "f8e3m4": 0.125,
    "f8e4m3": 0.25,
    "f8e4m3fn": 0.25,
    "f8e4m3b11fnuz": 0.25,
    "f8e4m3fnuz": 0.25,
    "f8e5m2": 0.5,
    "f8e5m2fnuz": 0.5,
    "f8e8m0fnu": 2.0,
}
"""Maximum error of results relative to the largest element of the reference."""
_WORD_DTYPES = {torch.bfloat16: torch.int16}
"""Integers that represent elements of types that NumPy lacks."""


class DataError(Exception):
    """Raised for arrays that do not match the program's arguments or results."""


def to_torch(values: npt.ArrayLike, dtype: str) -> torch.Tensor:
    """Return a NumPy array of the element type `dtype` as a tensor."""
    array = np.ascontiguousarray(values).reshape(np.shape(values))
    if DTYPES[dtype] == torch.uint8 and array.dtype.itemsize == 1:
        array = array.view(np.uint8)
    word = _WORD_DTYPES.get(DTYPES[dtype])
    if word is not None:
        return torch.from_numpy(array.view(f"i{word.itemsize}").copy()).view(DTYPES[dtype])
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a tensor as a NumPy array on the host; types that NumPy lacks as `V` words."""
    tensor = tensor.detach().cpu().contiguous()
    word = _WORD_DTYPES.get(tensor.dtype)
    array: Array = (tensor if word is None else tensor.view(word)).numpy()
    return array if word is None else array.view(f"V{word.itemsize}")


def read_array(path: Path, tensor: Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the tensor in a `.npy` file; raise `DataError` if its type or shape differs."""
    return to_torch(np.asarray(_open_array(path, tensor, shape)), tensor.dtype)


def read_shard(path: Path, tensor: Tensor, mesh: Mesh, device: int) -> torch.Tensor:
    """Return a device's shard of the array in a `.npy` file; only that part is read."""
    whole = _open_array(path, tensor, tensor.shape)
    part = to_torch(np.asarray(whole[tensor.window(mesh, device)]), tensor.dtype)
    return _pad_shard(part, tensor, mesh, device)


def _open_array(path: Path, tensor: Tensor, shape: tuple[int, ...]) -> Array:
    try:
        array: Array = np.load(path, mmap_mode="r" if np.prod(shape) else None, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{tensor} is read from {path}, which does not exist") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{tensor} cannot be read from {path}: {error}") from None
    check_array(array, tensor, shape, f"in {path}")
    return array


def check_array(array: Array, tensor: Tensor, shape: tuple[int, ...], where: str) -> None:
    """Raise `DataError` unless a NumPy array has this element type and shape."""
    of_type = to_numpy(torch.empty(0, dtype=DTYPES[tensor.dtype])).dtype
    fits = array.dtype == of_type
    if tensor.dtype != "u8" and of_type == np.uint8:
        # NumPy's files state elements of these types as bytes or as an unknown type.
        fits = array.dtype.itemsize == 1
    expected = str(of_type)
    if of_type.kind == "V":
        size = of_type.itemsize
        fits = array.dtype.itemsize == size and array.dtype.kind in "Vu"
        expected = f"{tensor.dtype} (V{size})"
    if not fits or array.shape != shape:
        given = f"{array.dtype}{list(array.shape)}"
        raise DataError(
            f"{tensor} must be {expected}{list(shape)}, but the array {where} is {given}"
        )


def write_array(path: Path, tensor: torch.Tensor) -> None:
    """Write a tensor to a `.npy` file; create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, to_numpy(tensor), allow_pickle=False)


def _pad_shard(part: torch.Tensor, tensor: Tensor, mesh: Mesh, device: int) -> torch.Tensor:
    """Return a shard padded to the common length, or the identity element if another
    device has it.
    """
    shape = tensor.shard_shape(mesh)
    if tuple(part.shape) != shape:
        longer = torch.zeros(shape, dtype=part.dtype, device=part.device)
        view_as_words(longer)[tuple(map(slice, part.shape))] = view_as_words(part)
        part = longer
    if tensor.unreduced and mesh.position(device, tensor.unreduced):
        return torch.full_like(part, identity_element(tensor.reduction, part.dtype))
    return part


def join_shards(parts: Sequence[torch.Tensor], tensor: Tensor, mesh: Mesh) -> torch.Tensor:
    """Return the global array of all devices' shards, on the first one's device,
    without padding.
    """
    first = parts[0]
    whole = torch.empty(tensor.shape, dtype=view_as_words(first).dtype, device=first.device)
    for device, part in enumerate(parts):
        if tensor.unreduced:
            if mesh.position(device, tensor.unreduced):
                continue
            group = mesh.group(device, tensor.unreduced)
            part = reduce_tensors(
                [parts[each].to(first.device) for each in group], tensor.reduction
            )
        place = tensor.window(mesh, device)
        own = view_as_words(part)[tuple(slice(s.stop - s.start) for s in place)]
        whole[place] = own.to(first.device)
    return whole.view(first.dtype)
