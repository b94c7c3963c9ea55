"""Which values fit the annotation of a parameter, and what errors say about the others."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import IO, Any, AnyStr, Generic, Literal, SupportsIndex, TypeVar

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.frontend.arrays.array_types import ArrayLike, AxisLike, DTypeLike, ShapeLike
from shardir.frontend.declared_types import find_misfit, parameter_annotations
from shardir.frontend.numpy.tracer_helpers.array_annotations import ArraySequence
from shardir.frontend.tracing.tracer import Tracer
from shardir.ir.types import NumpyArray
from shardir.sharding import Mesh

X = np.ones((2, 3), np.float32)
COUNTS = np.arange(3)
STRUCT = sd.ShapeDtypeStruct((2,), np.float32)
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


class Level(Enum):
    LOW = "low"


class Index:
    def __index__(self) -> int:
        return 3


class Foreign:
    def __array__(self) -> np.ndarray[Any, Any]:
        return np.ones(2)


class Box(Generic[AnyStr]):
    pass


Name = TypeVar("Name", bound=str)
Free = TypeVar("Free")

FITTING: list[tuple[Any, list[Any]]] = [
    (int, [3, True, np.int8(3), np.array(3), snp.int32(3)]),
    (SupportsIndex, [3, np.int8(3)]),
    (float, [3, 1.5, np.float32(1.5), np.array(1.5), snp.float32(2), Index()]),
    (complex, [1j, 2.5, np.complex64(1j), snp.complex64(1j)]),
    (bool, [True, 0, np.True_, "text", np.array([1]), snp.ones(1)]),
    (str, ["a"]),
    (bytes, [b"a", bytearray(b"a")]),
    (type[int], [int]),
    (int | None, [None, 3]),
    (Callable[..., int], [len, int]),
    (Literal["a", 1], ["a", 1]),
    (Level, [Level.LOW]),
    (Name, ["a"]),
    (Free, [object()]),
    (Any, [object()]),
    (object, [None]),
    (IO[bytes], [open(os.devnull, "rb")]),  # noqa: SIM115
    (Sequence[int], [(1, 2), [1], COUNTS, snp.arange(3), range(3), iter([1])]),
    (Sequence[int], [snp.arange(3, dtype="int4")]),
    (Sequence[str], ["ab", ["a"]]),
    (Sequence[float], [X]),
    (Collection[str], [{"a"}, ["a"]]),
    (tuple[int, str], [(1, "a"), [1, "a"]]),
    (tuple[int, ...], [(), (1, 2, 3)]),
    (Mapping[str, int], [{"a": 1}]),
    (Sequence[Any], [[object()]]),
    (ArrayLike, [X, 3, 1j, [1, 2], [[1], [2]], [], snp.ones(2), np.float32(1)]),
    (ArrayLike | None, [None, X]),
    (ArrayLike, [Foreign(), [1, Index()]]),
    (ArraySequence, [X, [1, X], snp.ones(2)]),
    (DTypeLike, [None]),
    (DTypeLike | None, [None, np.float32, "f4", np.dtype(int), snp.float32]),
    (ShapeLike, [3, (3,), COUNTS]),
    (AxisLike, [None, 3, (0, 1)]),
    (int | Tracer, [snp.ones(2), 3]),
]

MISFITS: list[tuple[Any, Any, str, str]] = [
    (int, 1.5, "", "an integer"),
    (int, snp.ones(()), "", "an integer"),
    (int, snp.arange(3), "", "an integer"),
    (float, "1", "", "a real number"),
    (float, 1j, "", "a real number"),
    (float, snp.complex64(1j), "", "a real number"),
    (float, np.complex64(1j), "", "a real number"),
    (float, X, "", "a real number"),
    (float, snp.ones(2), "", "a real number"),
    (float, np.float16, "", "a real number"),
    (complex, "1", "", "a number"),
    (bool, X, "", "True or False"),
    (bool | None, snp.ones(2), "", "True, False or None"),
    (str, b"a", "", "a string"),
    (bytes, "a", "", "bytes"),
    (type[int], 3, "", "a class"),
    (type[int], [3], "", "a class"),
    (Callable[..., int] | None, 3, "", "a function or None"),
    (Literal["a", "b"], "c", "", "'a' or 'b'"),
    (Literal[1], True, "", "1"),
    (Level, "low", "", "a member of Level"),
    (Name, 3, "", "a string"),
    (Mesh, 3, "", "a Mesh"),
    (Sequence[Mesh], 3, "", "a sequence of Mesh objects"),
    (Sequence[Level], 3, "", "a sequence of members of Level"),
    (IO[bytes] | os.PathLike[str], 3, "", "an open file or a path"),
    (Sequence[int], 3, "", "a sequence of integers"),
    (Sequence[int], "ab", "", "a sequence of integers"),
    (Sequence[int], b"ab", "", "a sequence of integers"),
    (Sequence[int], {1}, "", "a sequence of integers"),
    (Sequence[int], {1: 2}, "", "a sequence of integers"),
    (Sequence[int], X, "", "a sequence of integers"),
    (Sequence[int], COUNTS.reshape(1, 3), "", "a sequence of integers"),
    (Sequence[int], snp.ones(3), "", "a sequence of integers"),
    (Sequence[int], np.ones(3), "", "a sequence of integers"),
    (Sequence[int], snp.ones((2, 2), int), "", "a sequence of integers"),
    (Sequence[int], [1, 2.5], ".1", "an integer"),
    (Sequence[Sequence[int]], [[1], [2, "a"]], ".1.1", "an integer"),
    (Sequence[Sequence[int]] | None, 3, "", "a sequence of sequences of integers or None"),
    (Collection[str], {1}, "", "a sequence of strings"),
    (Iterable[Any], 3, "", "a sequence"),
    (tuple[int, int], (1, 2, 3), "", "a pair of integers"),
    (tuple[int, int], 3, "", "a pair of integers"),
    (tuple[int, int], ("a", 1), ".0", "an integer"),
    (tuple[int, str], 3, "", "a pair"),
    (tuple[int, int, int], 3, "", "a tuple of 3 items"),
    (Sequence[tuple[int, int]], 3, "", "a sequence of pairs of integers"),
    (Sequence[tuple[int, int, int]], 3, "", "a sequence of tuples"),
    (tuple[int, ...], 3, "", "a sequence of integers"),
    (Mapping[str, int], 3, "", "a dictionary"),
    (Sequence[Mapping[str, int]], 3, "", "a sequence of dictionaries"),
    (dict, 3, "", "a dictionary"),
    (Box[str], 3, "", "a Box"),
    (ArrayLike, None, "", "an array"),
    (ArrayLike, "a", "", "an array"),
    (ArrayLike, np.float16, "", "an array"),
    (ArrayLike, np.array("a"), "", "an array"),
    (ArrayLike, [[1], [2, 3]], "", "an array"),
    (ArrayLike, [snp.ones(2), snp.ones(3)], "", "an array"),
    (ArrayLike | Sequence[Mesh], "a", "", "an array or a sequence of Mesh objects"),
    (ArrayLike, [1, None], "", "an array"),
    (ArrayLike, STRUCT, "", "an array"),
    (ArrayLike, CYCLE, "", "an array"),
    (ArrayLike | None, "a", "", "an array or None"),
    (ArraySequence, 1.5, "", "a sequence of arrays or an array"),
    (NumpyArray, 1.5, "", "an array"),
    (Sequence[ArrayLike], [1, None], ".1", "an array"),
    (DTypeLike, 3, "", "an element type"),
    (DTypeLike | None, X, "", "an element type or None"),
    (DTypeLike | None, snp.ones(2), "", "an element type or None"),
    (ShapeLike, 1.5, "", "an integer or a sequence of integers"),
    (AxisLike, "a", "", "an integer, a sequence of integers or None"),
    (int | Tracer, 1.5, "", "an integer or an array"),
]


@pytest.mark.parametrize(("annotation", "values"), FITTING, ids=[str(a)[:60] for a, _ in FITTING])
def test_values_that_a_function_may_accept_fit(annotation: Any, values: list[Any]) -> None:
    for value in values:
        assert find_misfit(annotation, value) is None


@pytest.mark.parametrize(
    ("annotation", "value", "path", "requirement"),
    MISFITS,
    ids=[f"{number}-{text}" for number, (*_, text) in enumerate(MISFITS)],
)
def test_a_misfit_has_its_path_and_the_requirement(
    annotation: Any, value: Any, path: str, requirement: str
) -> None:
    found = find_misfit(annotation, value)
    assert found is not None
    assert (found.path, found.requirement) == (path, requirement)
    part = value
    for step in path.split(".")[1:]:
        part = part[int(step)]
    assert found.value is part


def test_annotations_that_name_unknown_types_state_nothing() -> None:
    def unknown(x: "Missing") -> None:  # type: ignore[name-defined]  # noqa: F821
        pass

    assert parameter_annotations(unknown) == {}
    assert parameter_annotations(len) == {}
    assert parameter_annotations(snp.sum)["axis"] == AxisLike
