"""Source locations of the definitions in a text, including those inside of regions."""

from shardir.text.definition_locations import find_definition_locations

TEXT = """\
mesh @m = [a=2]

func @f(
  %x: f32[8@a],
  %i: i32[],
) -> (f32[8], f32[4] replicated(a)) {
  %a, %b = case(%i) : f32[8], f32[8] {
    yield %x, %x
  } {
    %n = neg(%x) : f32[8]
    yield %n, %n
  }
  %s = slice(%a, starts=[0], strides=[2]) : f32[4]
  return %b, %s
}
"""


def test_every_definition_has_a_location() -> None:
    found = find_definition_locations(TEXT, "f.ir")

    assert {name: (loc.line, loc.column) for (_, name), loc in found.items()} == {
        "%x": (4, 3),
        "%i": (5, 3),
        "%a": (7, 3),
        "%b": (7, 7),
        "%n": (10, 5),
        "%s": (13, 3),
        "result 0": (6, 7),
        "result 1": (6, 15),
    }
    assert {function for function, _ in found} == {"f"}
    assert {loc.file for loc in found.values()} == {"f.ir"}
