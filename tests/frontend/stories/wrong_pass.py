"""A registered pass that changes the results of programs."""

from collections.abc import Iterator
from contextlib import contextmanager

from shardir.ir.module import Module
from shardir.passes.pipeline import PASSES, Pass
from shardir.text.parser import parse


@contextmanager
def pass_that_replaces_exp() -> Iterator[None]:
    """Register the pass `replace-exp`, which makes `sin` of `exp`."""

    class ReplaceExp(Pass, name="replace-exp"):
        def __call__(self, module: Module) -> Module:
            return parse(str(module).replace("exp(", "sin("))

    try:
        yield
    finally:
        del PASSES[ReplaceExp.name]
