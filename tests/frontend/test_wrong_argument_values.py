"""Every public function accepts a wrong value of each argument, or raises an error of this package.

Such an error shows the line of the caller, and does not repeat a message of Python about objects
inside of the package. The values replace one argument of a call that succeeds, if one of a few
calls does; the functions are called inside of a trace, which compiles nothing.
"""

import contextlib
import inspect
import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import numpy as snp
from shardir.errors import ShardirError
from tests.namespace import words

MODULES = words("""
    numpy numpy.linalg numpy.fft lax lax.linalg nn nn.initializers random scipy.linalg scipy.fft
    scipy.special scipy.stats scipy.signal scipy.ndimage scipy.integrate scipy.cluster.vq
    scipy.sparse.linalg tree tree_util image dlpack export optim
""")
SKIPPED = {"numpy.set_printoptions", "numpy.printoptions", "numpy.ScalarType"}
"""NumPy's own functions."""
MAX_BASE_CALLS = 24
MATRIX = np.array([[4, 1, 0, 0.5], [1, 5, 0.25, 0], [0, 0.25, 6, 1], [0.5, 0, 1, 7]], np.float32)
VECTOR = np.array([0.25, 0.5, 0.75, 1.0], np.float32)
leaked: list[Any] = []


class Unregistered:
    """A class that is no container."""


@sd.jit
def leak(x: Any) -> Any:
    leaked.append(x)
    return x


def first_argument(*args: Any, **_: Any) -> Any:
    return args[0] if args else 0.0


OBJECT = object()
VALUES: Mapping[str, Callable[[], Any]] = {
    "None": lambda: None,
    "object": lambda: OBJECT,
    "list of object": lambda: [OBJECT],
    "string": lambda: "x",
    "bytes": lambda: b"x",
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "-7": lambda: -7,
    "10**30": lambda: 10**30,
    "True": lambda: True,
    "()": lambda: (),
    "ragged": lambda: [[1], [2, 3]],
    "set": lambda: {1},
    "dict": lambda: {"a": 1},
    "scalar array": lambda: snp.float32(2),
    "vector": lambda: snp.arange(3.0),
    "rank 3": lambda: np.ones((2, 3, 4), np.float32),
    "complex": lambda: np.full((4, 4), 1 + 2j, np.complex64),
    "function": lambda: first_argument,
    "class": lambda: Unregistered,
    "scalar type": lambda: np.float16,
    "struct": lambda: sd.ShapeDtypeStruct((4, 4), np.float32),
    "leaked tracer": lambda: leaked[0],
}
"""Values that few parameters accept."""

BY_NAME: Mapping[str, list[Any]] = {
    "shape newshape new_sizes sizes": [(4, 4), 4],
    "axis dimension axis1 dim source": [0],
    "axis2 destination": [1],
    "axes dimensions": [(0, 1), (0,)],
    "dtype new_dtype": [np.float32],
    "indices idx ind index": [np.arange(4), 1],
    "n k num N M repeats shift order length size": [2],
    "f fun func function true_fun body_fun cond_fun computation": [first_argument],
}
"""The first values to try for parameters of these names."""

OTHER_VALUES = [MATRIX, VECTOR, 2, (4, 4), first_argument, [MATRIX, MATRIX], "x"]
INTERNAL_TEXT = re.compile(
    r"object has no attribute|' object is not|object cannot be|unhashable|not supported between|"
    r"index out of range|unsupported operand|takes \d+ positional|keyword argument|to unpack|"
    r"invalid literal|too large to convert|no len\(\)|only length-1|only integer|"
    r"only 0-dim|can only convert|maximum recursion|truth value of an array"
)
"""Messages of Python and NumPy that do not name an argument."""
CALLABLE = re.compile(r"\(\) takes no arguments|takes at most 1 argument")
"""Messages about the class or the scalar type that is called as a function of the user."""


def iterate_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for module in MODULES:
        names = import_module(f"shardir.{module}")
        for name in sorted(dir(names)):
            function = getattr(names, name)
            is_function = callable(function) and not inspect.isclass(function)
            is_tested = name[0] != "_" and f"{module}.{name}" not in SKIPPED
            if is_tested and is_function and has_signature(function):
                yield f"{module}.{name}", function


def has_signature(function: Callable[..., Any]) -> bool:
    return type(function).__name__ in ("function", "PublicFunction", "ComposedFunction")


FUNCTIONS = dict(iterate_functions())


def call(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call the function inside of a trace, with arguments by the names of the parameters."""
    known = inspect.signature(function)
    bound = known.bind_partial()
    bound.arguments = {name: given[name] for name in known.parameters if name in given}
    output = io.StringIO()
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sd.eval_shape(lambda: (function(*bound.args, **bound.kwargs), None)[1])


def base_arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Return arguments with which the call succeeds, or the last ones that were tried."""
    choices = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            first = next((v for names, v in BY_NAME.items() if name in names.split()), [])
            keys = [sd.random.key(0)] if name == "key" else []
            choices[name] = [*keys, *first, *OTHER_VALUES]
            if parameter.kind is parameter.VAR_POSITIONAL:
                choices[name] = [(value,) for value in choices[name]]
    given: dict[str, Any] = {}
    # Combinations near the first one come first, instead of all values of the last parameter.
    orders = sorted(product(*(range(min(4, len(each))) for each in choices.values())), key=sum)
    for order in islice(orders, MAX_BASE_CALLS):
        given = {name: choices[name][i] for name, i in zip(choices, order, strict=True)}
        with contextlib.suppress(Exception):
            call(function, given)
            break
    return given


def find_fault(function: Callable[..., Any], given: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the error of a call, or `None`."""
    try:
        call(function, given)
    except ShardirError as error:
        first, *rest = str(error).splitlines()
        if not any(Path(__file__).name in line for line in rest):
            return f"no line of the caller: {first}"
        is_internal = INTERNAL_TEXT.search(first) is not None and not CALLABLE.search(first)
        return f"text of Python: {first}" if is_internal else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.sample(20)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_value_of_an_argument_has_an_own_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Some functions write files.
    if not leaked:
        leak(VECTOR)
    function = FUNCTIONS[name]
    base = base_arguments(function)
    faults = []
    for parameter in inspect.signature(function).parameters.values():
        for label, make in VALUES.items():
            value = (make(),) if parameter.kind is parameter.VAR_POSITIONAL else make()
            if parameter.kind is not parameter.VAR_KEYWORD:
                fault = find_fault(function, {**base, parameter.name: value})
                faults += [f"{parameter.name}={label}: {fault}"] if fault else []
    assert not faults, "\n".join(faults)
