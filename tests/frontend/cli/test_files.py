"""The format of a text: its beginning determines it before the ending of its file does."""

import pytest

from shardir.errors import ParseError
from shardir.frontend.cli.files import definition_locations

IR = "func @main(%x: f32[2]) -> (f32[2]) {\n  %y = neg(%x) : f32[2]\n  return %y\n}\n"
STABLEHLO = """\
module {
  func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    return %x : tensor<2xf32>
  }
}
"""


@pytest.mark.parametrize("name", ["program.ir", "program.mlir", "program.mlirbc"])
def test_the_beginning_of_a_text_is_that_of_its_format(name: str) -> None:
    for begin in ("", "\n", "// A comment\n"):
        assert definition_locations(begin + STABLEHLO, name) is None
        assert definition_locations(begin + IR, name) is not None


def test_other_texts_have_the_format_of_their_file() -> None:
    assert definition_locations("?" + IR, "program.mlir") is None
    assert definition_locations("?" + IR, "program.mlirbc") is None
    with pytest.raises(
        ParseError, match=r"^unexpected '\?', expected 'func' or 'mesh' or 'spmd'\n"
    ):
        definition_locations("?" + IR, "program.ir")
