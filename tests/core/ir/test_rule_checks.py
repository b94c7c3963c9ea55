"""Mistakes in the rules of operations of other packages: each has an error that names the rule."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import sharding_rule
from shardir.errors import DifferentiateError, RuleError, ShardirError, VectorizeError
from shardir.extend import FLOAT, PluginError, define_op, define_unary, operation_function
from shardir.sharding import NamedSharding, PartitionSpec as P
from tests.registries import restored_registries

X = np.arange(6, dtype=np.float32).reshape(2, 3)
FACTORS = sharding_rule("i j -> i, i", need_replication="j")
RULES: dict[str, Any] = {
    "type": lambda x, *, result, dim: (x.with_shape(x.shape[:1]),) * 2,
    "factors": lambda x, *, result, dim: FACTORS.for_shapes([x.shape], [r.shape for r in result]),
    "reference": lambda x, *, result, dim: (x.min(dim), x.max(dim)),
}


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    with restored_registries():
        yield


def extremes(**rules: Any) -> Callable[..., Any]:
    define_op("extremes", **{**RULES, **rules})
    return operation_function("extremes", "the extremes of rows")


def test_a_function_takes_attributes_and_returns_several_results_outside_of_jit() -> None:
    least, most = extremes()(X, dim=1)
    assert (np.asarray(least).tolist(), np.asarray(most).tolist()) == ([0, 3], [2, 5])


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"type": lambda x, *, result, dim: None},
            "the rule 'type' of operation 'extremes' returned None; return a TensorType, or a "
            "tuple of them",
        ),
        (
            {"factors": lambda x, *, result, dim: x.missing},
            r"the rule 'factors' of operation 'extremes' raised AttributeError at \S+:\d+: "
            "'TensorType' object has no attribute 'missing'",
        ),
        (
            {"factors": lambda x, *, result, dim: "i j -> i, i"},
            "the rule 'factors' of operation 'extremes' returned 'i j -> i, i'; return the result "
            "of sharding_rule(...).for_shapes(operand shapes, result shapes)",
        ),
        (
            {"factors": lambda x, *, result, dim: FACTORS.for_shapes([x.shape], [(2,), (2,)])}
            | {"type": lambda x, *, result, dim: (x, x)},
            "the rule 'factors' of operation 'extremes' describes result 0 with shape (2,), and "
            "it is f32[2, 3]",
        ),
        (
            {"reference": lambda x, *, result, dim: x.min(dim)},
            "the rule 'reference' of operation 'extremes' returned one array, and the operation "
            "has 2 results; return a tuple of arrays",
        ),
        (
            {"reference": lambda x, *, result, dim: (x.min(dim), x)},
            "the rule 'reference' of operation 'extremes' returned an array of shape (1, 3) as "
            "result 1 for f32[1]",
        ),
        (
            {"reference": lambda x, *, result, dim: (x.min(dim), x.max(dim) + 0j)},
            "the rule 'reference' of operation 'extremes' returned an array of complex64 as result "
            "1 for f32[1]; convert it with astype",
        ),
        (
            {"reference": lambda x, *, result, dim: (x.min(dim), [[1], [2, 3]])},
            "the rule 'reference' of operation 'extremes' returned no array as result 1 for "
            "f32[1]: setting an array element with a sequence. The requested array has an "
            "inhomogeneous shape after 1 dimensions. The detected shape was (2,) + inhomogeneous "
            "part.",
        ),
        (
            {"reference": lambda x, *, result, dim: (np.negative(x, out=x), x)},
            r"the rule 'reference' of operation 'extremes' raised ValueError at \S+:\d+: output "
            "array is read-only",
        ),
        (
            {"type": lambda x, *, result, dim: (x.with_dtype("f31"),) * 2},
            "the rule 'type' of operation 'extremes' returned the element type 'f31', which does "
            "not exist; did you mean 'f32'?",
        ),
    ],
)
def test_a_wrong_rule_is_named(rules: dict[str, Any], message: str) -> None:
    rows = sd.device_put(X, NamedSharding(sd.make_mesh((2,), ("a",)), P("a")))
    pattern = message if r"\S" in message else re.escape(message)
    with pytest.raises(RuleError, match=f"^{pattern}(\n|$)"):
        extremes(**rules)(rows, dim=1)


@pytest.mark.parametrize(
    ("name", "rules", "message"),
    [
        (
            "extremes",
            {**RULES, "referenc": None},
            "define_op has no rule 'referenc' for operation 'extremes'; did you mean 'reference'?",
        ),
        (
            "extremes",
            {},
            "the rule 'type' of operation 'extremes' is None; define_op('extremes', type=...) "
            "takes a function",
        ),
        (
            "extremes",
            {**RULES, "elementwise": "yes"},
            "the rule 'elementwise' of operation 'extremes' is 'yes'; define_op('extremes', "
            "elementwise=...) takes an object of type bool",
        ),
        (
            "extremes",
            {**RULES, "attributes": int},
            "the rule 'attributes' of operation 'extremes' is <class 'int'>; define_op('extremes', "
            "attributes=...) takes a subclass of Attributes or None",
        ),
        (
            "extremes",
            {**RULES, "arithmetic": "none"},
            "the rule 'arithmetic' of operation 'extremes' is 'none'; define_op('extremes', "
            "arithmetic=...) takes an object of type Arithmetic or a function or None",
        ),
        (
            "my extremes",
            RULES,
            "no operation can have the name 'my extremes'; use letters, digits, _ and -, with a "
            "letter at the beginning",
        ),
        (
            5,
            RULES,
            "no operation can have the name 5; use letters, digits, _ and -, with a letter at the "
            "beginning",
        ),
    ],
)
def test_a_wrong_declaration_is_refused(name: Any, rules: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError) as caught:
        define_op(name, **rules)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda f: sd.grad(lambda x: snp.sum(f(x, dim=1)[0]))(X),
            DifferentiateError,
            "%0 = extremes has no derivative; add the rule: define_op('extremes', ..., vjp=f)",
        ),
        (
            lambda f: sd.vmap(lambda x: f(x, dim=1)[0])(X[None]),
            VectorizeError,
            "%0 = extremes has no batching rule; add the rule: define_op('extremes', ..., batch=f)",
        ),
    ],
)
def test_a_missing_rule_is_named(
    call: Callable[[Any], Any], kind: type[ShardirError], message: str
) -> None:
    with pytest.raises(kind) as caught:
        call(extremes())
    assert str(caught.value).split("\n")[0] == message


def test_missing_reference_semantics_are_named() -> None:
    with pytest.raises(RuleError) as caught:
        extremes(reference=None)(X, dim=1)
    assert str(caught.value) == (
        "extremes has neither a kernel of CPUs nor reference semantics; add the rule: "
        "define_op('extremes', ..., reference=f)"
    )


def test_a_cotangent_is_required_for_each_operand() -> None:
    define_op(
        "twice",
        type=lambda x, *, result: x,
        reference=lambda x, *, result: x + x,
        vjp=lambda b, g, x, y: b.add(g, g),
    )
    twice = operation_function("twice", "2 x")
    with pytest.raises(RuleError) as caught:
        sd.grad(lambda x: snp.sum(twice(x)))(X)
    assert str(caught.value) == (
        "the rule 'vjp' of operation 'twice' returned %3: f32[2, 3]; return a tuple of 1 "
        "cotangent, one for each operand, None where it is zero"
    )


def test_a_pointwise_operation_without_a_formula_has_no_derivative() -> None:
    define_unary("thrice", FLOAT, lambda x: 3 * x)
    thrice = operation_function("thrice", "3 x")
    with pytest.raises(DifferentiateError, match=r"^%0 = thrice has no derivative; add the rule"):
        sd.grad(lambda x: snp.sum(thrice(x)))(X)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            {"takes": "float"},
            "the rule 'takes' of operation 'thrice' is 'float'; define_unary('thrice', takes=...) "
            "takes an object of type DtypeDomain",
        ),
        (
            {"formula": None},
            "define_unary has no rule 'formula' for operation 'thrice'; the rules are takes, "
            "numpy, cotangents, to, jvp, linear, divides, selection, holomorphic, arithmetic",
        ),
        (
            {"numpy": lambda x: x.astype(complex)},
            "the rule 'reference' of operation 'thrice' raised TypeError: the elements are "
            "complex128, which float32 cannot represent",
        ),
    ],
)
def test_a_wrong_pointwise_operation_is_refused(rules: dict[str, Any], message: str) -> None:
    def run() -> None:
        define_unary("thrice", **{"takes": FLOAT, "numpy": lambda x: 3 * x, **rules})
        operation_function("thrice", "3 x")(X)

    with pytest.raises(RuleError) as caught:
        run()
    assert str(caught.value).split("\n")[0] == message


@pytest.mark.parametrize("name", ["extremse", 5])
def test_the_function_of_an_unknown_operation_is_refused(name: Any) -> None:
    with pytest.raises(PluginError) as caught:
        operation_function(name, "")
    assert str(caught.value) == (
        f"no operation is called {name!r}; define it before with define_op"
    )
