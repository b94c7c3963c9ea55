"""Error messages have a bounded length and no control characters."""

import pytest

from shardir.errors import (
    MAX_LINE_CHARACTERS,
    MAX_MESSAGE_CHARACTERS,
    ParseError,
    ShardirError,
    VerifyError,
    bound_message,
    suggest_name,
)
from shardir.text.parser import parse

HEAD = "func @f(%x: f32[2]) -> (f32[2]) {\n"
END = "\n  return %y\n}\n"


@pytest.mark.parametrize(
    "line",
    [
        f"  %y = {'neg' * 10**5}(%x) : f32[2]",
        f"  %y = neg(%{'x' * 10**5}) : f32[2]",
        f"  %y = neg(%x) : f32[{', '.join(['2'] * 10**4)}]",
        f"  %y = neg({', '.join(['%x'] * 10**5)}) : f32[2]",
        f"  %y = neg(%x, {'a' * 10**5}=1) : f32[2]",
        f"  %y = constant(value={'9' * 10**5}) : i32[2]",
        " " * 10**5 + "%y = negx(%x) : f32[2]" + " " * 10**5,
    ],
)
def test_messages_about_long_text_are_short(line: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(HEAD + line + END)
    assert len(str(caught.value)) < 2 * MAX_LINE_CHARACTERS


def test_a_long_line_is_abbreviated_around_the_location() -> None:
    with pytest.raises(ParseError) as caught:
        parse(HEAD + " " * 1000 + "%y = negx(%x) : f32[2]" + " " * 1000 + END)
    message, place, _, source, caret = str(caught.value).splitlines()
    assert message == "no operation is called 'negx'; did you mean 'neg'?"
    assert place == " --> <text>:2:1006"
    assert len(source) < 200
    assert source[caret.index("^") :].startswith("negx(%x)")


def test_control_characters_are_escaped() -> None:
    with pytest.raises(ParseError) as caught:
        parse(HEAD + "\t%y = \x1b[31mneg(%x) : f32[2]" + END)
    assert str(caught.value) == (
        "unexpected '\\x1b', expected a name\n"
        " --> <text>:2:7\n"
        "  |\n"
        "2 | \t%y = \\x1b[31mneg(%x) : f32[2]\n"
        "  | \t     ^^^^"
    )


def test_every_error_class_has_bounded_messages() -> None:
    assert str(ShardirError("a\x00b\x7f\u202e\ud800\n\tc")) == "a\\x00b\\x7f\\u202e\\ud800\n\tc"
    long = str(VerifyError("x" * 10**6))
    assert len(long) < MAX_LINE_CHARACTERS + 100
    assert "[... 999084 characters ...]" in long
    assert len(bound_message("fault\n" * 10**5)) < MAX_MESSAGE_CHARACTERS + 100
    assert bound_message("plain\ntext") == "plain\ntext"


def test_long_names_have_no_suggestions() -> None:
    assert suggest_name("nega", ["neg"]) == "did you mean 'neg'?"
    assert suggest_name("neg" * 10**6, ["neg" * 10**6 + "x"]) == ""
