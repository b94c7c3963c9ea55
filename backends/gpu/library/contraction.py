"""Matrix products of integers, and of 16-bit floats with f32 results.

The matrix units of GPUs do not multiply integers. Integers are split into 16-bit limbs; products of
limbs are summed in f64, which is exact, and recombined with the wrapping of the type.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from shardir.backends.gpu.library.integers import as_words


def multiply_widely(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y of 16-bit floats in f32; GPUs' matrix units take the 16-bit operands
    directly.
    """
    if x.is_cuda and y.dim() == 2:
        rows = torch.mm(x.reshape(-1, x.shape[-1]), y, out_dtype=torch.float32)
        return rows.reshape(*x.shape[:-1], y.shape[-1])
    if x.is_cuda and x.dim() == y.dim() == 3:
        return torch.bmm(x, y, out_dtype=torch.float32)
    return x.float() @ y.float()


def multiply_exactly(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y of integers (wrapping) or complex numbers."""
    if x.is_complex():
        return x @ y
    limbs = max(x.element_size() // 2, 1)
    a, b = as_words(x).to(torch.int64), as_words(y).to(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=x.device)
    most = 1 << 20
    for start in range(0, max(x.shape[-1], 1), most):
        left, right = a[..., start : start + most], b[..., start : start + most, :]
        for i in range(limbs):
            for j in range(limbs - i):
                part = limb(left, i) @ limb(right, j)
                total = total + (part.to(torch.int64) << (16 * (i + j)))
    return total.to(as_words(x).dtype).view(x.dtype)


def limb(x: Tensor, number: int) -> Tensor:
    """Return limb `number` (16 bits) of each integer, in f64."""
    return ((x >> (16 * number)) & 0xFFFF).to(torch.float64)


def contract_integers(dims: str, x: Tensor, y: Tensor) -> Tensor:
    """Return an einsum of two integer tensors."""
    return contract(dims, as_words(x), as_words(y), multiply_exactly).view(x.dtype)


def contract_widely(dims: str, x: Tensor, y: Tensor) -> Tensor:
    """Return an einsum of two tensors of 16-bit floats, in f32."""
    return contract(dims, x, y, multiply_widely)


def contract(
    dims: str, x: Tensor, y: Tensor, multiply: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Return an einsum of two tensors as a batched matrix product."""
    operands, output = dims.split("->")
    left, right = operands.split(",")
    size = dict(zip(left + right, (*x.shape, *y.shape), strict=True))
    x, left = without_others(x, left, right + output)
    y, right = without_others(y, right, left + output)
    both = [d for d in left if d in right and d in output]
    summed = [d for d in left if d in right and d not in output]
    rows = [d for d in left if d not in right]
    columns = [d for d in right if d not in left]

    def matrices(of: Tensor, letters: str, *groups: list[str]) -> Tensor:
        shape = [math.prod(size[d] for d in group) for group in groups]
        return of.permute([letters.index(d) for group in groups for d in group]).reshape(shape)

    made = multiply(
        matrices(x, left, both, rows, summed), matrices(y, right, both, summed, columns)
    )
    order = both + rows + columns
    made = made.reshape([size[d] for d in order])
    return made.permute([order.index(d) for d in output])


def without_others(x: Tensor, letters: str, kept: str) -> tuple[Tensor, str]:
    """Sum a tensor over the dimensions whose letters are not in `kept`."""
    for letter in letters:
        if letter not in kept:
            x = x.sum(letters.index(letter), dtype=x.dtype)
            letters = letters.replace(letter, "")
    return x, letters
