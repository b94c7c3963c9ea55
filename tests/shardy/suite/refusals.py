"""Comparison of whole parts of a file: programs that are refused, and that are printed and read.

A part with an `expected-error` comment must be refused by the reader, the verifier or the pass of
its suite; any other part must be accepted. Texts of errors are ours and are not compared.
"""

import re
from collections.abc import Callable

from shardir.errors import ShardirError
from shardir.ir.equality import find_difference
from shardir.ir.module import Module
from shardir.stablehlo.printer import show
from shardir.stablehlo.reader import read_described, split_modules
from shardir.verify.verifier import verify
from tests.shardy.suite.check_files import Case

Passes = Callable[[Module], Module]
_EXPECTED = re.compile(r"expected-error(?:-re)?\s*@?(?:[+-]\d+|below|above)?\s*\{\{(.*)\}\}")
_FUNCTION = re.compile(r"^func\.func\s", re.MULTILINE)
_NAME = re.compile(r"func\.func\s+(?:private |public )?@([\w$.-]+)")


def parts_of(text: str, file: str) -> list[Case]:
    """Return one case per part, named by its first function and its number."""
    runs = [line for line in text.splitlines() if line.startswith("// RUN:")]
    splits = any("-split-input-file" in run for run in runs)
    parts = split_modules(text) if splits else [text]
    cases = []
    for number, part in enumerate(parts):
        name = next(iter(_NAME.findall(part)), file)
        cases.append(Case(file, f"{name}#{number}", part))
    return cases


def functions_of(text: str, file: str) -> list[Case]:
    """Return one case per function, with all meshes of the file; one case if it has none."""
    meshes = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("sdy.mesh"))
    starts = [match.start() for match in _FUNCTION.finditer(text)]
    if not starts:
        return [Case(file, file.removesuffix(".mlir"), text)]
    cases = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        function = re.sub(r"^sdy\.mesh.*\n", "", text[start:end], flags=re.MULTILINE)
        match = _NAME.match(function)
        assert match is not None
        cases.append(Case(file, match[1], meshes + function))
    return cases


def compare_refusal(case: Case, passes: Passes) -> list[str]:
    """Return the difference between our refusal of a part and Shardy's."""
    expected = _EXPECTED.findall(case.part)
    try:
        module = read_described(case.part, case.file).module
        verify(module)
        passes(module)
    except ShardirError as error:
        message = str(error).splitlines()[0]
        return [] if expected else [f"refused, but Shardy accepts it: {message}"]
    return [f"accepted, but Shardy says: {expected[0]}"] if expected else []


def compare_printed(case: Case, passes: Passes) -> list[str]:
    """Return the differences after a part is printed as StableHLO and read again."""
    try:
        described = read_described(case.part, case.file)
        module = passes(described.module)
        verify(module)
        text = show(module, debug=described.attributes_of(module))
        again = read_described(text, case.file)
    except ShardirError as error:
        return [f"{type(error).__name__}: {str(error).splitlines()[0]}"]
    difference = find_difference(module, again.module)
    if difference is None and show(again.module, debug=again.debug) != text:
        difference = "the debug attributes differ"
    return [] if difference is None else [f"printed and read again: {difference}"]
