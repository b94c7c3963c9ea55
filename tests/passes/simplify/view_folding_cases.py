"""Programs on which tests run `fold-views`, and the comparison of its results."""

from shardir.interpret.interpreter import run
from shardir.interpret.numeric_comparison import are_close, tolerance_of
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.verify.verifier import verify


def program(params: str, result: str, operations: str) -> str:
    """Return the text of a program that returns %y."""
    return f"func @main({params}) -> ({result}) {{\n{operations}\n  return %y\n}}\n"


def check_folded(module: Module, after: list[str]) -> None:
    """Check the names of the operations after the pass, and that the results stay."""
    made = Pipeline.parse("fold-views,cse,dce")(module, lambda step, old, new, _: verify(new))
    assert [op.name for op in made.main.body.ops] == after, str(made)
    arguments = random_arguments(module, whole=True)
    assert are_close(run(module, arguments), run(made, arguments), tolerance_of(module))
