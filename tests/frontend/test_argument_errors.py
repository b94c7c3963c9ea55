"""Errors of unsupported values state the argument that has the value, and its position in
containers.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
from shardir import NamedSharding, PartitionSpec as P, lax, numpy as snp, optim, random
from shardir.errors import (
    OperationTypeError,
    PipelineError,
    ShardirError,
)
from shardir.frontend.argument_errors import (
    locate_errors,
    raise_argument_error,
    with_argument_errors,
)
from shardir.frontend.errors import (
    ArgumentError,
    DeviceError,
    MeshError,
    MissingFileError,
    NotAnArrayError,
    NumberRangeError,
    ShapeError,
    StructureError,
    UnknownMethod,
    UnknownSetting,
)
from shardir.passes import Pipeline
from shardir.sharding import AbstractMesh


def wrong_rule() -> Any:
    @sd.custom_jvp
    def same(x: Any) -> Any:
        return x

    same.defjvp(lambda primals: (primals[0], 1.0))
    return sd.grad(same)(1.0)


class Own:
    """A class that is not registered as a container."""


X = np.ones(3, np.float32)
ENDLESS: list[Any] = [1.0]
ENDLESS.append(ENDLESS)
LOOP: dict[str, Any] = {}
LOOP["a"] = LOOP
RULES: list[Any] = [len, len]
NO_CLASS: list[Any] = [3, *RULES]
WRONG: list[Any] = [4, len]
CASES: list[tuple[Callable[[], Any], type[ShardirError], str]] = [
    (
        lambda: snp.eye(3, k="a"),  # type: ignore[arg-type]
        ArgumentError,
        "argument k of eye is 'a', and must be an integer or an array",
    ),
    (
        lambda: snp.reshape(X, "ab"),  # type: ignore[arg-type]
        ArgumentError,
        "argument shape of reshape is 'ab', and must be an integer or a sequence of integers",
    ),
    (
        lambda: lax.dot_general(snp.ones((2, 3)), snp.ones((2, 3)), 3),  # type: ignore[arg-type]
        ArgumentError,
        "dimension_numbers of dot_general are ((lhs contracting, rhs contracting), "
        "(lhs batch, rhs batch)) dimensions, got 3",
    ),
    (
        lambda: random.dirichlet(random.key(0), snp.ones(())),
        ShapeError,
        "alpha of dirichlet has at least 1 dimension, got shape ()",
    ),
    (
        lambda: snp.linspace(0, 1, 2.5),  # type: ignore[arg-type]
        ArgumentError,
        "num of linspace is 2.5; it must be an integer",
    ),
    (
        lambda: snp.einsum(snp.ones(3)),
        ArgumentError,
        "einsum takes subscripts as text, or arrays that alternate with lists of axes",
    ),
    (
        lambda: snp.iinfo("float32"),
        ArgumentError,
        "iinfo takes integer types, got float32; use finfo for floats",
    ),
    (
        lambda: snp.finfo("int32"),
        ArgumentError,
        "finfo takes floating-point types, got int32; use iinfo",
    ),
    (
        lambda: snp.ones(3) + "a",
        NotAnArrayError,
        "unsupported operand type(s) for +: 'Array' and 'str'",
    ),
    (
        lambda: [1, 2, 3] - snp.ones(3),
        NotAnArrayError,
        "unsupported operand type(s) for -: 'list' and 'Array'; make it an array with snp.array",
    ),
    (
        lambda: snp.ones(3) < None,
        NotAnArrayError,
        "'<' not supported between instances of 'Array' and 'NoneType'",
    ),
    (
        lambda: sd.jit(lambda x: x**None)(X),
        NotAnArrayError,
        "unsupported operand type(s) for ** or pow(): 'Tracer' and 'NoneType'",
    ),
    (
        lambda: snp.ones(3).reshap(3),
        UnknownMethod,
        "'Array' object has no attribute 'reshap'; did you mean 'reshape'?",
    ),
    (lambda: lax.map(3, X), ArgumentError, "map takes a function, got 3"),  # type: ignore[arg-type]
    (
        lambda: lax.associative_scan("max", X),  # type: ignore[arg-type]
        ArgumentError,
        "the function of associative_scan must be a function, got 'max'",
    ),
    (
        lambda: sd.linearize(lambda x: x),
        ArgumentError,
        "lambda takes (x): missing a required argument: 'x'",
    ),
    (
        wrong_rule,
        ArgumentError,
        "the rule of same takes (primals): too many positional arguments",
    ),
    (
        lambda: sd.ShapeDtypeStruct("a", "float32"),  # type: ignore[arg-type]
        ShapeError,
        "shape ('a',) has a size that is not an integer",
    ),
    (
        lambda: sd.jit(lambda x: x)(sd.ShapeDtypeStruct((3,), "float32")),
        NotAnArrayError,
        "%x is ShapeDtypeStruct(shape=(3,), dtype=float32), which has no elements; pass an array, "
        "or inspect the program with .lower of the function",
    ),
    (
        lambda: sd.make_array_from_callback((8,), "x", lambda index: X),  # type: ignore[arg-type]
        ArgumentError,
        "the sharding of make_array_from_callback is 'x'; "
        "write NamedSharding(mesh, PartitionSpec(...))",
    ),
    (
        lambda: sd.make_array_from_callback(
            (8,),
            NamedSharding(sd.make_mesh((4, 2), ("x", "y")), P("x")),
            3,  # type: ignore[arg-type]
        ),
        ArgumentError,
        "make_array_from_callback takes a function, got 3",
    ),
    (
        lambda: lax.select(X, X, X),
        OperationTypeError,
        "select takes a condition of bools, got f32[3]; compare it, as x > 0",
    ),
    (
        lambda: lax.scan(lambda carry, x: (carry, x), 0, X, unroll=-1),
        ArgumentError,
        "unroll of scan is at least 0, got -1",
    ),
    (
        lambda: lax.fori_loop(0, 3, lambda i, x: x, 0, unroll="a"),  # type: ignore[arg-type]
        ArgumentError,
        "unroll of fori_loop must be an integer, got 'a'",
    ),
    (
        lambda: sd.ShapeDtypeStruct((3,), "float32", sharding="x"),  # type: ignore[arg-type]
        ArgumentError,
        "the sharding of a ShapeDtypeStruct is 'x'; write NamedSharding(mesh, PartitionSpec(...))",
    ),
    (
        lambda: random.key(2**70),
        NumberRangeError,
        "the seed 1180591620717411303424 does not fit into 64 bits; take the remainder, "
        "as seed % 2**63",
    ),
    (
        lambda: sd.default_device("x"),
        DeviceError,
        "no devices on platform 'x'; the platforms are cpu, gpu, pjrt",
    ),
    (
        lambda: snp.vectorize(3),  # type: ignore[arg-type]
        ArgumentError,
        "vectorize takes a function, got 3",
    ),
    (
        lambda: snp.unravel_index(7, (-2, 3)),
        ShapeError,
        "shape (-2, 3) has a negative size",
    ),
    (
        lambda: sd.pure_callback(3, X),  # type: ignore[arg-type]
        ArgumentError,
        "pure_callback takes a function, got 3",
    ),
    (
        lambda: sd.pure_callback(3),  # type: ignore[arg-type]
        ArgumentError,
        "pure_callback takes a function, got 3",
    ),
    (
        lambda: sd.io_callback(3, X),  # type: ignore[arg-type]
        ArgumentError,
        "io_callback takes a function, got 3",
    ),
    (
        lambda: snp.asarray(ENDLESS),
        StructureError,
        "the list [1.0, [...]] contains itself; a pytree must be finite",
    ),
    (
        lambda: sd.jit(lambda x: x)({"a": ENDLESS}),
        StructureError,
        "the list [1.0, [...]] contains itself; a pytree must be finite",
    ),
    (
        lambda: sd.tree.map(abs, {"a": LOOP}),
        StructureError,
        "the dict {'a': {...}} contains itself; a pytree must be finite",
    ),
    (
        lambda: snp.ones(3)[ENDLESS],
        StructureError,
        "the list [1.0, [...]] contains itself; a pytree must be finite",
    ),
    (
        lambda: snp.zeros(ENDLESS),
        StructureError,
        "the list [1.0, [...]] contains itself; a pytree must be finite",
    ),
    (
        lambda: snp.arange(ENDLESS),
        ArgumentError,
        "arange takes numbers, got [1.0, [...]]",
    ),
    (
        lambda: snp.arange("3"),
        ArgumentError,
        "arange takes numbers, got '3'",
    ),
    (
        lambda: snp.shape(ENDLESS),
        StructureError,
        "the list [1.0, [...]] contains itself; a pytree must be finite",
    ),
    (
        lambda: snp.result_type(ENDLESS),
        StructureError,
        "the list [1.0, [...]] contains itself; a pytree must be finite",
    ),
    (
        lambda: sd.tree_util.tree_leaves_with_path(LOOP),
        StructureError,
        "the dict {'a': {...}} contains itself; a pytree must be finite",
    ),
    (
        lambda: optim.adam("a"),  # type: ignore[arg-type]
        ArgumentError,
        "a learning rate is a number or a function of the step, got 'a'",
    ),
    (
        lambda: sd.tree_util.register_pytree_node(*NO_CLASS),
        StructureError,
        "register_pytree_node takes a class, got 3",
    ),
    (
        lambda: sd.tree_util.register_pytree_node(Own, *WRONG),
        StructureError,
        "flatten_func of Own must be a function, got 4",
    ),
    (
        lambda: sd.tree_util.register_pytree_with_keys(list, *RULES),
        StructureError,
        "the class list is a container already; register it once",
    ),
    (
        lambda: sd.tree_util.register_pytree_node_class(Own),
        StructureError,
        "tree_flatten of Own must be a function, got None",
    ),
    (
        lambda: AbstractMesh("x"),  # type: ignore[arg-type]
        MeshError,
        "a mesh has shape ('x',); every size must be an integer above 0",
    ),
    (
        lambda: AbstractMesh((4, 2)),
        MeshError,
        "an AbstractMesh has sizes (4, 2) and axes (); name every dimension",
    ),
    (
        lambda: AbstractMesh((4,), 3),  # type: ignore[arg-type]
        MeshError,
        "an axis of a Mesh is named 3; a name is a nonempty string",
    ),
    (
        lambda: snp.load("nowhere.npy"),
        MissingFileError,
        f"load cannot read 'nowhere.npy': the folder {os.getcwd()!r} has no such file",
    ),
    (
        lambda: snp.load(3),  # type: ignore[arg-type]
        ArgumentError,
        "load reads from a path or an open file, got 3 of type int",
    ),
    (
        lambda: snp.load("."),
        ArgumentError,
        "load cannot read '.': [Errno 21] Is a directory: '.'",
    ),
    (
        lambda: snp.add([1, 2.5], 1),
        NotAnArrayError,
        "argument x of add is [1, 2.5] of type list, which is not an array; make it one with "
        "snp.array",
    ),
    (
        lambda: snp.meshgrid(X, [1, "a"]),
        NotAnArrayError,
        "argument xi.1.1 of meshgrid is 'a' of type str, which is not an array",
    ),
    (
        lambda: snp.add([1] * 300, 1),
        NotAnArrayError,
        "argument x of add is [" + "1, " * 18 + "1,... of type list, which is not an array; make "
        "it one with snp.array",
    ),
    (
        lambda: snp.exp({"a": [X, None, 2], "b": ()}),  # type: ignore[arg-type]
        NotAnArrayError,
        "argument x of exp is {'a': [float32[3], None, 2], 'b': ()} of type dict, which is not an "
        "array",
    ),
    (
        lambda: sd.jit(lambda x: snp.add([(x,), x], x))(1.0),
        NotAnArrayError,
        "argument x of add is [(f32[],), f32[]] of type list, which is not an array; make it one "
        "with snp.array",
    ),
]


@pytest.mark.parametrize(("wrong", "kind", "text"), CASES, ids=[text[:30] for *_, text in CASES])
def test_an_error_names_the_argument_and_its_function(
    wrong: Callable[[], Any], kind: type[ShardirError], text: str
) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    first, _, where = str(caught.value).partition("\n")
    assert first == text
    assert "test_argument_errors.py:" in where


def test_errors_of_user_functions_propagate_unchanged() -> None:
    def broken(x: Any, y: Any) -> Any:
        return int("no number")

    with pytest.raises(ValueError, match="invalid literal") as caught:
        lax.associative_scan(broken, snp.ones(4))
    assert not isinstance(caught.value, ShardirError)


def test_errors_of_libraries_name_the_function() -> None:
    """NumPy raises the error in a function that is written in Python."""
    with pytest.raises(ArgumentError) as caught:
        with_argument_errors(np.broadcast_shapes)((2,), (3,))
    text = str(caught.value)
    assert text.startswith("broadcast_shapes does not accept ((2,), (3,)): shape mismatch: ")


def test_a_located_error_propagates_unchanged() -> None:
    error = ShapeError("the sizes differ\n --> model.py:7:1")

    def broken() -> None:
        raise error

    with pytest.raises(ShapeError) as caught:
        locate_errors(broken)()
    assert caught.value is error


def test_an_error_that_no_argument_causes_propagates_unchanged() -> None:
    error = KeyError("missing")

    def broken() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        locate_errors(broken)()
    assert caught.value is error
    repeated = ArgumentError("the sizes differ").repeat(ValueError("sizes"))
    raise_argument_error(scale, "scale", (3,), {}, repeated)


def scale(x: int) -> int:
    return x


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("a", ValueError("bad"), "argument x of scale is 'a', and must be an integer"),
        (
            2**70,
            OverflowError("wide"),
            "argument x of scale has 1180591620717411303424, which does not fit into 64 bits",
        ),
        (2**70, TypeError("bad"), "scale does not accept (1180591620717411303424): bad"),
    ],
)
def test_the_cause_of_an_error_is_a_misfit_or_a_wide_integer(
    value: Any, error: Exception, text: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        raise_argument_error(scale, "scale", (value,), {}, error)
    assert str(caught.value).partition("\n")[0] == text
    assert caught.value.__cause__ is error


def test_an_error_about_no_argument_keeps_its_text() -> None:
    def broken(x: object) -> None:
        raise NotAnArrayError("the result is no array")

    with pytest.raises(NotAnArrayError, match=r"^the result is no array"):
        with_argument_errors(broken)(X)


def test_errors_of_properties_propagate_unchanged() -> None:
    with pytest.raises(ShardirError, match="sharding"):
        sd.jit(lambda x: x.sharding)(X)
    assert not hasattr(snp.ones(3), "__cuda_array_interface__")
    assert not hasattr(snp.ones(3), "detach")


def test_a_repeated_list_is_no_cycle() -> None:
    shared: list[Any] = [1.0, 2.0]
    assert sd.tree.leaves([shared, {"a": (shared, shared)}]) == [1.0, 2.0] * 3
    deep = shared
    for _ in range(2000):
        deep = [deep, deep]
    with pytest.raises(RecursionError):
        sd.tree.leaves(deep)


def test_comparison_with_a_value_that_is_no_array_is_false() -> None:
    assert (snp.ones(3) == None) is False  # type: ignore[comparison-overlap]  # noqa: E711
    assert (snp.ones(3) != "a") is True  # type: ignore[comparison-overlap]
    assert [0] * snp.array(2) == [0, 0]


def test_parameters_for_text_require_strings() -> None:
    with pytest.raises(ArgumentError, match=r"^a program is text, got 3\n.*test_argument_errors"):
        sd.parse(3)  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match=r"^a pipeline is a string, got 3$"):
        Pipeline.parse(3)  # type: ignore[arg-type]
    with pytest.raises(UnknownSetting, match=r"^no setting is named 3;"):
        sd.config.update(3, 4)  # type: ignore[arg-type]
    with pytest.raises(ShardirError, match=r"^no memory for 4.0 PiB: "):
        snp.zeros(2**50)
