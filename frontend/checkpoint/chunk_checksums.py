"""Checksums of arrays in files, per chunk of rows, so that reading some rows verifies only those.

A chunk has as many complete rows (elements along the first dimension) as fit into `CHUNK_BYTES`, at
least one; an array of rank 0 is one chunk. Its checksum is the CRC-32 of its elements in row-major
order, little-endian. A CRC-32 detects any change within 32 adjacent bits, and misses any other
change with probability 2**-32.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import prod
from zlib import crc32

import numpy as np

from shardir.frontend.arrays.shard_buffers import Buffer
from shardir.ir.types import NUMPY_DTYPES

CHUNK_BYTES = 4 << 20
"""Chunk size in bytes. It is part of the file format, so another size needs another format."""
MAX_CHECKSUM_THREADS = 8
"""Maximum number of checksum threads; together they are faster than most disks."""


def rows_per_chunk(shape: tuple[int, ...], dtype: str) -> int:
    """Return the number of rows in a chunk of an array."""
    row_bytes = prod(shape[1:]) * NUMPY_DTYPES[dtype].itemsize
    return max(1, CHUNK_BYTES // max(row_bytes, 1))


def chunk_count(shape: tuple[int, ...], dtype: str) -> int:
    """Return the number of chunks of an array; 0 if it is empty."""
    if 0 in shape:
        return 0
    return -(-shape[0] // rows_per_chunk(shape, dtype)) if shape else 1


def compute_checksums(
    arrays: Iterable[tuple[Buffer, tuple[int, ...], str]],
) -> list[str]:
    """Return the checksums of arrays; each item is the stored array, its shape and its element
    type.

    Threads share the chunks, because `crc32` releases the GIL and is slower than some disks.
    """
    divided = [_split_into_chunks(*each) for each in arrays]
    count = sum(map(len, divided))
    threads = min(MAX_CHECKSUM_THREADS, os.cpu_count() or 1, count)
    if threads < 2 or sum(chunk.nbytes for each in divided for chunk in each) < CHUNK_BYTES:
        return ["".join(map(chunk_checksum, each)) for each in divided]
    chunks = [chunk for each in divided for chunk in each]
    found: Iterator[str]
    try:
        with ThreadPoolExecutor(threads, "shardir-checksums") as pool:
            found = iter(list(pool.map(chunk_checksum, chunks)))
    except RuntimeError:  # No thread can be started.
        found = map(chunk_checksum, chunks)
    return ["".join(islice(found, len(each))) for each in divided]


def _split_into_chunks(array: Buffer, shape: tuple[int, ...], dtype: str) -> list[Buffer]:
    """Return the chunks of an array."""
    if not shape:
        return [array]
    rows = rows_per_chunk(shape, dtype)
    return [array[at : at + rows] for at in range(0, chunk_count(shape, dtype) * rows, rows)]


def chunk_checksum(chunk: Buffer) -> str:
    """Return the checksum of one chunk as eight hexadecimal digits."""
    numbers = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
    return f"{crc32(numbers.data):08x}"


def overlapping_chunks(
    shape: tuple[int, ...], dtype: str, rows: range
) -> Iterator[tuple[int, range]]:
    """Yield the number and the rows of each chunk that overlaps `rows`."""
    size = rows_per_chunk(shape, dtype)
    for number in range(rows.start // size, -(-rows.stop // size)):
        yield number, range(number * size, min((number + 1) * size, shape[0]))
