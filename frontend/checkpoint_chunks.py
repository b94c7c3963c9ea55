"""Checksums of arrays in files, in chunks of rows: what reads some rows verifies no others.

A chunk has as many whole rows (elements along the first dimension) as fit into `CHUNK_BYTES`, at
least one; an array without dimensions is one chunk. Its checksum is the CRC-32 of its elements in
row-major order, little-endian. Any change within 32 neighbouring bits changes a CRC-32, and another
change is missed once in 2**32 times.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import prod
from zlib import crc32

import numpy as np

from shardir.frontend.buffers import Buffer
from shardir.types import NUMPY_DTYPES

CHUNK_BYTES = 4 << 20
"""Part of the format: another number needs another format."""
MAX_THREADS = 8
"""Threads that compute checksums: together they are faster than most disks."""


def rows_of_chunk(shape: tuple[int, ...], dtype: str) -> int:
    """Return how many rows a chunk of an array has."""
    row_bytes = prod(shape[1:]) * NUMPY_DTYPES[dtype].itemsize
    return max(1, CHUNK_BYTES // max(row_bytes, 1))


def chunk_count(shape: tuple[int, ...], dtype: str) -> int:
    """Return how many chunks an array has; none where it is empty."""
    if 0 in shape:
        return 0
    return -(-shape[0] // rows_of_chunk(shape, dtype)) if shape else 1


def checksums_of(
    arrays: Iterable[tuple[Buffer, tuple[int, ...], str]],
) -> list[str]:
    """Return the checksums of arrays, each as it is stored, with its shape and element type.

    Chunks are shared among threads: `crc32` lets others run, and is slower than some disks.
    """
    divided = [_divided(*each) for each in arrays]
    count = sum(map(len, divided))
    threads = min(MAX_THREADS, os.cpu_count() or 1, count)
    if threads < 2 or sum(chunk.nbytes for each in divided for chunk in each) < CHUNK_BYTES:
        return ["".join(map(checksum_of, each)) for each in divided]
    chunks = [chunk for each in divided for chunk in each]
    found: Iterator[str]
    try:
        with ThreadPoolExecutor(threads, "shardir-checksums") as pool:
            found = iter(list(pool.map(checksum_of, chunks)))
    except RuntimeError:  # No thread can be started.
        found = map(checksum_of, chunks)
    return ["".join(islice(found, len(each))) for each in divided]


def _divided(array: Buffer, shape: tuple[int, ...], dtype: str) -> list[Buffer]:
    """Return the chunks of an array."""
    if not shape:
        return [array]
    rows = rows_of_chunk(shape, dtype)
    return [array[at : at + rows] for at in range(0, chunk_count(shape, dtype) * rows, rows)]


def checksum_of(chunk: Buffer) -> str:
    """Return the checksum of one chunk: eight hexadecimal digits."""
    numbers = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
    return f"{crc32(numbers.data):08x}"


def chunks_of_rows(shape: tuple[int, ...], dtype: str, rows: range) -> Iterator[tuple[int, range]]:
    """Return the number and the rows of each chunk that has some of `rows`."""
    size = rows_of_chunk(shape, dtype)
    for number in range(rows.start // size, -(-rows.stop // size)):
        yield number, range(number * size, min((number + 1) * size, shape[0]))
