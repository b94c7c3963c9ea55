"""Checksums of arrays in files, in chunks of rows: what reads some rows verifies no others.

A chunk has as many whole rows (elements along the first dimension) as fit into `CHUNK_BYTES`, at
least one; an array without dimensions is one chunk. Its checksum is the CRC-32 of its elements in
row-major order, little-endian. Any change within 32 neighbouring bits changes a CRC-32, and another
change is missed once in 2**32 times.
"""

from collections.abc import Iterator
from math import prod
from zlib import crc32

import numpy as np

from shardir.frontend.buffers import Buffer
from shardir.types import NUMPY_DTYPES

CHUNK_BYTES = 4 << 20
"""Part of the format: another number needs another format."""


def rows_of_chunk(shape: tuple[int, ...], dtype: str) -> int:
    """Return how many rows a chunk of an array has."""
    row_bytes = prod(shape[1:]) * NUMPY_DTYPES[dtype].itemsize
    return max(1, CHUNK_BYTES // max(row_bytes, 1))


def chunk_count(shape: tuple[int, ...], dtype: str) -> int:
    """Return how many chunks an array has; none where it is empty."""
    if 0 in shape:
        return 0
    return -(-shape[0] // rows_of_chunk(shape, dtype)) if shape else 1


def checksums_of(array: Buffer, shape: tuple[int, ...], dtype: str) -> str:
    """Return the checksums of an array of this shape and element type, as it is stored."""
    if not shape:
        return checksum_of(array)
    rows = rows_of_chunk(shape, dtype)
    starts = range(0, chunk_count(shape, dtype) * rows, rows)
    return "".join(checksum_of(array[start : start + rows]) for start in starts)


def checksum_of(chunk: Buffer) -> str:
    """Return the checksum of one chunk: eight hexadecimal digits."""
    numbers = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
    return f"{crc32(numbers.data):08x}"


def chunks(shape: tuple[int, ...], dtype: str, rows: range) -> Iterator[tuple[int, range]]:
    """Return the number and the rows of each chunk that has some of `rows`."""
    size = rows_of_chunk(shape, dtype)
    for number in range(rows.start // size, -(-rows.stop // size)):
        yield number, range(number * size, min((number + 1) * size, shape[0]))
