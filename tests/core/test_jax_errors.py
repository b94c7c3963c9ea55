"""Errors have the classes of `jax.errors` that JAX raises for the same programs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import errors

ONES = np.ones(3, "float32")


def use_after_the_trace() -> Any:
    kept: list[Any] = []
    sd.jit(lambda x: kept.append(x))(1.0)
    return kept[0] + 1


def use_deleted_array() -> Any:
    x = snp.ones(3)
    x.delete()
    return x + 1


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("ConcretizationTypeError", lambda: sd.jit(float)(1.0)),
        ("ConcretizationTypeError", lambda: sd.jit(lambda x: 1 if x else 2)(1.0)),
        ("JAXIndexError", lambda: sd.jit(lambda x: x[x > 2])(ONES)),
        ("JAXTypeError", use_after_the_trace),
        ("JaxRuntimeError", use_deleted_array),
        ("NonConcreteBooleanIndexError", lambda: sd.jit(lambda x: x[x > 2])(ONES)),
        ("TracerArrayConversionError", lambda: sd.jit(lambda x: np.sin(np.asarray(x)))(ONES)),
        ("TracerBoolConversionError", lambda: sd.jit(lambda x: 1 if x else 2)(1.0)),
        ("TracerBoolConversionError", lambda: sd.jit(lambda x: 1 if x else 2)(ONES)),
        ("TracerIntegerConversionError", lambda: sd.jit(lambda i: [1, 2][i])(0)),
        ("UnexpectedTracerError", use_after_the_trace),
    ],
)
def test_an_error_has_the_class_of_jax(name: str, wrong: Callable[[], Any]) -> None:
    with pytest.raises(getattr(errors, name)):
        wrong()


def test_invalid_programs_and_exhausted_memory_have_classes_of_jax() -> None:
    assert issubclass(errors.VerifyError, errors.JaxprTypeError)
    assert issubclass(errors.OutOfMemoryError, errors.JaxRuntimeError)
