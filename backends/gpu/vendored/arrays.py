"""Arrays: element types, whole arrays and the parts that devices hold, and `.npy` files.

NumPy has no bf16: its bits are stored as 16-bit words, as NumPy stores any type it lacks.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shardir.backends.gpu.vendored.combining import combined, identity, words
from shardir.backends.gpu.vendored.layout import Mesh
from shardir.backends.gpu.vendored.program import Tensor

DTYPES: dict[str, Any] = {
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
}
"""The torch type of each element type; a key is one 64-bit word."""
_BITS = np.dtype("V2")


class DataError(Exception):
    """Arrays that a program was not written for."""


def to_torch(array: Any, dtype: str) -> Any:
    """A NumPy array as a tensor of the element type, which its elements are of."""
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    if dtype == "bf16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)


def to_numpy(tensor: Any) -> Any:
    """A tensor as a NumPy array on the host; bf16 as its bits (`V2`)."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(_BITS)
    return tensor.numpy()


def read(path: Path, wanted: Tensor, shape: tuple[int, ...]) -> Any:
    """The tensor in a `.npy` file; raises `DataError` unless it is of this type and shape."""
    return to_torch(np.asarray(_opened(path, wanted, shape)), wanted.dtype)


def read_part(path: Path, wanted: Tensor, mesh: Mesh, device: int) -> Any:
    """The part that a device holds of the whole in a `.npy` file, of which no more is read."""
    whole = _opened(path, wanted, wanted.shape)
    part = to_torch(np.asarray(whole[wanted.window(mesh, device)]), wanted.dtype)
    return _own(part, wanted, mesh, device)


def _opened(path: Path, wanted: Tensor, shape: tuple[int, ...]) -> Any:
    try:
        array = np.load(path, mmap_mode="r" if np.prod(shape) else None, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{wanted} is read from {path}, which does not exist") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{wanted} cannot be read from {path}: {error}") from None
    check(array, wanted, shape, f"in {path}")
    return array


def check(array: Any, wanted: Tensor, shape: tuple[int, ...], where: str) -> None:
    """Raises `DataError` unless an array of NumPy's is of an element type and of a shape."""
    of_type = to_numpy(torch.empty(0, dtype=DTYPES[wanted.dtype])).dtype
    fits = array.dtype == of_type
    if wanted.dtype == "bf16":
        fits = array.dtype.itemsize == 2 and (array.dtype.kind == "V" or array.dtype == np.uint16)
    if not fits or array.shape != shape:
        given = f"{array.dtype}{list(array.shape)}"
        told = "bf16 (V2)" if wanted.dtype == "bf16" else of_type
        raise DataError(f"{wanted} is to be {told}{list(shape)}, and {where} is {given}")


def write(path: Path, tensor: Any) -> None:
    """Write a tensor into a `.npy` file, whose folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, to_numpy(tensor), allow_pickle=False)


def cut(whole: Any, tensor: Tensor, mesh: Mesh, device: int) -> Any:
    """The part of a whole that a device holds, a tensor of its own.

    A part that is shorter than the others has zeros at its end. Of what is unreduced the first
    device along those axes holds all there is.
    """
    part = whole[tensor.window(mesh, device)].clone(memory_format=torch.contiguous_format)
    return _own(part, tensor, mesh, device)


def _own(part: Any, tensor: Tensor, mesh: Mesh, device: int) -> Any:
    """A part as long as all parts are."""
    shape = tensor.part_shape(mesh)
    if tuple(part.shape) != shape:
        longer = torch.zeros(shape, dtype=part.dtype, device=part.device)
        words(longer)[tuple(map(slice, part.shape))] = words(part)
        part = longer
    if tensor.unreduced and mesh.position(device, tensor.unreduced):
        return torch.full_like(part, identity(tensor.reduction, part.dtype))
    return part


def join(parts: Sequence[Any], tensor: Tensor, mesh: Mesh) -> Any:
    """The whole whose parts the devices hold, on the device of the first, without padding."""
    first = parts[0]
    whole = torch.empty(tensor.shape, dtype=words(first).dtype, device=first.device)
    for device, part in enumerate(parts):
        if tensor.unreduced:
            if mesh.position(device, tensor.unreduced):
                continue
            group = mesh.group(device, tensor.unreduced)
            part = combined([parts[each].to(first.device) for each in group], tensor.reduction)
        place = tensor.window(mesh, device)
        own = words(part)[tuple(slice(s.stop - s.start) for s in place)]
        whole[place] = own.to(first.device)
    return whole.view(first.dtype)
