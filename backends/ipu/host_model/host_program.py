"""Call an emitted program in a loaded library."""

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shardir.backends.ipu.host_model.compiler import HostModelError
from shardir.errors import count_noun
from shardir.ir.types import NumpyArray, NumpyDType

Array = NumpyArray

_MAX_MESSAGE_BYTES = 4096
"""Maximum bytes of a message; longer ones are truncated."""


class _Call(ctypes.Structure):
    """`shardir_ipu::Call` of the runner."""

    _fields_ = (
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("arguments_sharded", ctypes.POINTER(ctypes.c_int)),
        ("results", ctypes.POINTER(ctypes.c_void_p)),
        ("steps", ctypes.c_uint),
        ("results_sharded", ctypes.c_int),
        ("message", ctypes.c_char_p),
        ("room", ctypes.c_size_t),
    )


@dataclass(frozen=True)
class Port:
    """An argument or result: `whole` is its global shape, `part` the shape of a replica's shard."""

    name: str
    label: str
    dtype: NumpyDType
    whole: tuple[int, ...]
    part: tuple[int, ...]

    @classmethod
    def read(cls, facts: dict[str, Any]) -> "Port":
        """Return a port from the runner's description."""
        dtype = np.dtype(facts["dtype"])
        return cls(
            facts["name"], facts["label"], dtype, tuple(facts["whole"]), tuple(facts["part"])
        )


class HostProgram:
    """An emitted program. The first call creates its engine, which later calls reuse."""

    def __init__(self, library: ctypes.CDLL, run: str, describe: str) -> None:
        self._run = getattr(library, run)
        describing = getattr(library, describe)
        describing.restype = ctypes.c_char_p
        contract = json.loads(describing().decode())
        self.title: str = contract["title"]
        self.replicas: int = contract["replicas"]
        self.arguments = tuple(map(Port.read, contract["arguments"]))
        self.results = tuple(map(Port.read, contract["results"]))

    def __call__(
        self, *arguments: npt.ArrayLike, steps: int = 1, sharded: bool = False
    ) -> tuple[Array, ...]:
        """Return the results after `steps` steps.

        An argument is the global array, or the shards of all replicas, with one more dimension.
        With `sharded` the results are shards, `[replicas, ...part]`; otherwise a replicated result
        is the first replica's. Raises `HostModelError` for wrong arguments, and for calls that the
        model refuses while the program is built or runs.
        """
        if len(arguments) != len(self.arguments):
            raise HostModelError(
                f"{self.title} takes {count_noun(len(self.arguments), 'argument')}, "
                f"{len(arguments)} are given"
            )
        given = [
            self._check_argument(port, value)
            for port, value in zip(self.arguments, arguments, strict=True)
        ]
        marks = [
            int(array.shape != port.whole)
            for port, array in zip(self.arguments, given, strict=True)
        ]
        results = [
            np.zeros((self.replicas, *port.part) if sharded else port.whole, port.dtype)
            for port in self.results
        ]
        message = ctypes.create_string_buffer(_MAX_MESSAGE_BYTES)
        call = _Call(
            _pointers(given),
            (ctypes.c_int * len(marks))(*marks),
            _pointers(results),
            steps,
            int(sharded),
            ctypes.cast(message, ctypes.c_char_p),
            _MAX_MESSAGE_BYTES,
        )
        if self._run(ctypes.byref(call)) != 0:
            raise HostModelError(message.value.decode())
        return tuple(results)

    def _check_argument(self, port: Port, value: npt.ArrayLike) -> Array:
        array = np.asarray(value)
        if array.dtype != port.dtype:
            raise HostModelError(
                f"the argument {port.label} of {self.title} is {array.dtype}, not {port.dtype}; "
                f"convert it with astype"
            )
        parts = (self.replicas, *port.part)
        if array.shape not in (port.whole, parts):
            raise HostModelError(
                f"the argument {port.label} of {self.title} has shape {array.shape}, not "
                f"{port.whole}, or {parts} as the shards of all replicas"
            )
        return np.ascontiguousarray(array).reshape(array.shape)


def _pointers(arrays: Sequence[Array]) -> object:
    return (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
