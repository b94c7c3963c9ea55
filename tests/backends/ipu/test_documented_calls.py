"""Emitted programs make no call that is not on the list of documented ones."""

import re

from shardir.backends.ipu import documented_calls
from shardir.backends.ipu.helpers.helper_table import HELPERS, helper_texts
from shardir.backends.ipu.program import SDK_HEADERS
from tests.backends.ipu.collective_programs import collectives
from tests.backends.ipu.operation_cases import cases
from tests.backends.ipu.training_steps import perceptrons, transformers

TYPES = (
    "poplar::Graph", "poplar::Tensor", "poplar::Type", "pe::UnaryOpType", "pe::Expr",
    "popops::Operation", "popops::SortOrder", "gcl::CommGroupType", "gcl::CollectiveOperator",
)  # fmt: skip
"""Names of Poplar that are no calls: types and enumerations."""
RUNNER = ("argument", "result")
STANDARD = (
    "back",
    "begin",
    "data",
    "front",
    "insert",
    "push_back",
    "rank",
    "numElements",
    "shape",
    "size",
)
"""Methods of the standard library, and of tensors those that ask what they are."""


def unlisted(text: str) -> set[str]:
    """What a program calls of Poplar that is not on the list."""
    code = re.sub(r'"(?:[^"\\]|\\.)*"', '""', re.sub(r"//[^\n]*", "", text))
    code = re.sub(r"#include[^\n]*", "", code)
    found = set()
    for name in re.findall(
        r"\b((?:poplar|poplin|popops|poputil|gcl)::\w+(?:::\w+)*)\s*(?:<|\()", code
    ):
        last = name.rpartition("::")[2]
        if (
            name not in documented_calls.FUNCTIONS
            and last not in documented_calls.PROGRAMS
            and name not in TYPES
        ):
            found.add(name)
    for name in re.findall(r"\bpe::(\w+)\s*\(", code):
        if name not in documented_calls.EXPRESSIONS:
            found.add(f"pe::{name}")
    for name in re.findall(r"[\w)\]]\.(\w+)\s*(?:<[\w ]+>)?\(", code):
        if name not in (*documented_calls.METHODS, *RUNNER, *STANDARD):
            found.add(f".{name}")
    for name in re.findall(r"\b([A-Z][A-Za-z]+)\(", code):
        known = (
            *documented_calls.PROGRAMS,
            *documented_calls.EXPRESSIONS,
            "Shape",
            "CommGroup",
            "TopKParams",
        )
        if name not in known and not name.isupper():
            found.add(name)
    return found


def test_no_program_of_the_suite_makes_another_call() -> None:
    texts = [case.text for _, case in cases()]
    texts += [case.text for _, case in (*perceptrons(), *transformers())]
    texts += [case.text for how in ("ring", "gcl") for case in collectives(how).values()]
    assert {name for text in texts for name in unlisted(text)} == set()


def test_no_function_that_programs_carry_makes_another_call() -> None:
    assert {name: unlisted(helper.text) for name, helper in HELPERS.items()
            if unlisted(helper.text)} == {}  # fmt: skip


def test_a_call_that_is_not_documented_is_found() -> None:
    text = 'Tensor a = popops::cumsum(graph, x.dimRoll(1), step, "popops::other()");'
    assert unlisted(text) == {"popops::cumsum", ".dimRoll"}


def test_every_function_comes_after_those_it_uses() -> None:
    texts = helper_texts(HELPERS)
    assert len(texts) == len(HELPERS)
    for name, helper in HELPERS.items():
        order = [i for i, text in enumerate(texts) if text == helper.text.strip("\n")]
        for used in helper.uses:
            before = [i for i, t in enumerate(texts) if t == HELPERS[used].text.strip("\n")]
            assert before < order, (name, used)


def test_every_function_of_poplibs_has_its_header() -> None:
    for name in documented_calls.FUNCTIONS:
        if name.startswith("poplar::"):
            continue
        assert any(name.startswith(start) for start in SDK_HEADERS), name
