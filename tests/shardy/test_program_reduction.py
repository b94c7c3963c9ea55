"""Program reduction also shrinks the functions that a failing program calls."""

import pytest

pytest.importorskip("jaxlib")

from shardir.frontend.random_programs.reduction import smallest_failure
from shardir.ir.module import Module
from tests.shardy.compare import read_calls
from tests.shardy.random_programs.calls import CALL
from tests.shardy.random_programs.program_builder import Options
from tests.shardy.random_programs.programs import program


def test_called_functions_are_kept_and_reduced() -> None:
    module = program("calls 8", Options(size=4, calls=True))

    def calls(part: Module) -> bool:
        """Return whether the program still calls a function, including all functions that it
        calls.
        """
        made = [op for op in part.main.body.ops if op.attrs.get("operation") == CALL]
        return bool(made) and bool(read_calls(part).main.body.ops)

    small = smallest_failure(module, calls)
    (call,) = [op for op in small.main.body.ops if op.attrs.get("operation") == CALL]
    (callee,) = (f for f in small.functions if f"@{f.name}(" in str(call.attrs["head"]))

    def size(part: Module) -> int:
        return sum(len(function.body.ops) for function in part.functions)

    assert callee.body.returns
    assert size(small) < size(module)
