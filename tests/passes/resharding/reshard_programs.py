"""Programs on one mesh after the `reshard` pass."""

from shardir.ir.module import Module
from shardir.passes import Reshard
from shardir.text.parser import parse
from shardir.verify.verifier import verify

MESH = "mesh @m = [x=4, y=2]\n\n"


def run_reshard(text: str) -> Module:
    module = Reshard()(parse(MESH + text))
    verify(module)
    return module
