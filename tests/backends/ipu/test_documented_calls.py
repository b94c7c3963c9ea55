"""Emitted programs call only functions on the list of documented calls."""

import re

from shardir.backends.ipu.helpers.helper_table import HELPERS, helper_texts
from shardir.backends.ipu.program import SDK_HEADERS
from tests.backends.ipu import documented_calls
from tests.backends.ipu.collective_programs import collective_cases
from tests.backends.ipu.operation_cases import emittable_samples
from tests.backends.ipu.training_steps import perceptron_cases, transformer_cases

POPLAR_TYPES = (
    "poplar::Graph", "poplar::Tensor", "poplar::Type", "pe::UnaryOpType", "pe::Expr",
    "popops::Operation", "popops::SortOrder", "gcl::CommGroupType", "gcl::CollectiveOperator",
)  # fmt: skip
"""Names of Poplar types and enumerations, which are not calls."""
RUNNER_METHODS = ("argument", "result")
STANDARD_METHODS = (
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
"""Methods of the standard library, and shape queries of tensors."""


def unlisted_calls(text: str) -> set[str]:
    """Return the Poplar calls of a program that are not on the list."""
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
            and name not in POPLAR_TYPES
        ):
            found.add(name)
    for name in re.findall(r"\bpe::(\w+)\s*\(", code):
        if name not in documented_calls.EXPRESSIONS:
            found.add(f"pe::{name}")
    for name in re.findall(r"[\w)\]]\.(\w+)\s*(?:<[\w ]+>)?\(", code):
        if name not in (*documented_calls.METHODS, *RUNNER_METHODS, *STANDARD_METHODS):
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


def test_programs_of_the_suite_use_only_documented_calls() -> None:
    texts = [case.text for _, case in emittable_samples()]
    texts += [case.text for _, case in (*perceptron_cases(), *transformer_cases())]
    texts += [
        case.text for strided in ("ring", "gcl") for case in collective_cases(strided).values()
    ]
    assert {name for text in texts for name in unlisted_calls(text)} == set()


def test_helper_functions_use_only_documented_calls() -> None:
    assert {name: unlisted_calls(helper.text) for name, helper in HELPERS.items()
            if unlisted_calls(helper.text)} == {}  # fmt: skip


def test_undocumented_calls_are_found() -> None:
    text = 'Tensor a = popops::cumsum(graph, x.dimRoll(1), step, "popops::other()");'
    assert unlisted_calls(text) == {"popops::cumsum", ".dimRoll"}


def test_helper_functions_follow_the_functions_that_they_use() -> None:
    texts = helper_texts(HELPERS)
    assert len(texts) == len(HELPERS)
    for name, helper in HELPERS.items():
        order = [i for i, text in enumerate(texts) if text == helper.text.strip("\n")]
        for used in helper.uses:
            before = [i for i, t in enumerate(texts) if t == HELPERS[used].text.strip("\n")]
            assert before < order, (name, used)


def test_every_poplibs_function_has_a_header() -> None:
    for name in documented_calls.FUNCTIONS:
        if name.startswith("poplar::"):
            continue
        assert any(name.startswith(start) for start in SDK_HEADERS), name
