"""Attributes of JAX's programs that a module does not have."""

import copy

import pytest

from shardir.ir.module import Module
from shardir.text.parser import parse

MODULE = parse("func @f(%x: f32[2]) -> (f32[2]) {\n  %y = neg(%x) : f32[2]\n  return %y\n}\n")

EXPRESSIONS = {
    "eqns": "the operations are module.main.body.ops",
    "invars": "the parameters are module.main.body.params",
    "outvars": "the results are module.main.body.returns",
    "in_avals": "the types are [param.type for param in module.main.body.params]",
    "out_avals": "the types are [value.type for value in module.main.body.returns]",
    "consts": "constants are operations `constant` in module.main.body.ops",
    "literals": "constants are operations `constant` in module.main.body.ops",
    "jaxpr": "the module is the program itself",
    "effects": "operations with effects have op.spec.effect",
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_attribute_of_a_jaxpr_names_its_counterpart(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(MODULE, name)
    assert str(caught.value) == (
        f"a traced program is a module of shardir's IR, not a jaxpr with {name}; "
        f"{EXPRESSIONS[name]}"
    )


def test_the_counterparts_exist() -> None:
    for text in EXPRESSIONS.values():
        expression = text.partition(" are ")[2]
        if expression.startswith(("module", "[")):
            assert len(eval(expression, {"module": MODULE})) == 1
    assert not MODULE.main.body.ops[0].spec.effect


def test_other_attributes_are_missing_as_usual() -> None:
    with pytest.raises(AttributeError, match=r"^'Module' object has no attribute 'functons'"):
        getattr(MODULE, "functons")  # noqa: B009
    assert not hasattr(MODULE, "__array__")
    again = copy.copy(MODULE)
    assert isinstance(again, Module)
    assert str(again) == str(MODULE)
