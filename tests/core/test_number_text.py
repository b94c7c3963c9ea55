"""Long lists of numbers are parsed without the grammar, with the same result."""

import random
from typing import Any

import numpy as np
import pytest

import shardir.stablehlo.reading.types as stablehlo_types
import shardir.text.resolver as meanings
from shardir.errors import ParseError
from shardir.ir.module import Module
from shardir.stablehlo.reader import read
from shardir.text.number_text import parse_number_list
from shardir.text.parser import parse


def ours(dtype: str, items: str, shape: str) -> str:
    type = f"{dtype}[{shape}]"
    return (
        f"func @f() -> ({type}) {{\n  %c = constant(value=dense({dtype}, {items})) : {type}\n"
        "  return %c\n}\n"
    )


def theirs(element: str, items: str, shape: str) -> str:
    type = f"tensor<{shape}{element}>"
    return (
        f"module {{\nfunc.func public @main() -> {type} {{\n"
        f"%c = stablehlo.constant dense<{items}> : {type}\nreturn %c : {type}\n}}\n}}\n"
    )


def outcome(reader: Any, text: str) -> tuple[str, Any]:
    """Return the bytes of the constant, or the error."""
    try:
        module: Module = reader(text)
    except ParseError as error:
        return "error", str(error)
    value = module.main.body.ops[0].attrs["value"]
    array = getattr(value, "array", None)
    return ("number", repr(value)) if array is None else (str(array.dtype), array.tobytes())


NUMBERS = (
    "0", "1", "-1", "-0", "-0.0", "007", "1.", "1.5", "-2.5e-3", "1.0E+05", "1e5", "9" * 25, "255",
    "-129", "1.0e999", "true", "false", "inf", "-inf", "nan", "-nan", "0x7FC00000", "0x7f", "0x",
    "(1.0, -2.0)", "(1, -0)", "complex(1.0, 2.0)", "null", "NaN", "Infinity", "[1]", "[]", "",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_both_parsers_agree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    texts = []
    for _ in range(40):
        some = rng.sample(NUMBERS, 2)
        items = [rng.choice(("1", "2.5", *some)) for _ in range(4)]
        rows = f"[[{items[0]}, {items[1]}], [{items[2]}, {items[3]}]]"
        flat = f"[{', '.join(items)}]"
        dtype = rng.choice(("f32", "f64", "bf16", "i8", "u8", "i32", "u64", "bool", "c64"))
        element = {"u8": "ui8", "u64": "ui64", "bool": "i1", "c64": "complex<f32>"}
        texts += [
            (parse, ours(dtype, flat, "4")),
            (parse, ours(dtype, rows, "2, 2")),
            (read, theirs(element.get(dtype, dtype), flat, "4x")),
            (read, theirs(element.get(dtype, dtype), rows, "2x2x")),
        ]
    fast = [outcome(*each) for each in texts]
    monkeypatch.setattr(meanings, "parse_number_list", lambda text, words: None)
    monkeypatch.setattr(stablehlo_types, "parse_number_list", lambda text: None)
    assert fast == [outcome(*each) for each in texts]


def test_which_lists_the_fast_parser_accepts() -> None:
    assert parse_number_list("[[1, 2.5], [-3e1, 4]]") == ((2, 2), [1, 2.5, -30.0, 4])
    assert parse_number_list("[true, false]") == ((2,), [True, False])
    assert parse_number_list("[[], []]") == ((2, 0), [])
    assert parse_number_list("[inf, -inf]", words=True) == ((2,), [float("inf"), float("-inf")])
    for text in ("[inf]", "[1, [2]]", "[[1], [2, 3]]", "1", '["a"]', "[null]", "[1", "[٣]"):
        assert parse_number_list(text) is None


@pytest.mark.parametrize("kind", ["ours", "theirs", "bits among numbers", "bytes"])
def test_a_long_list_is_not_parsed_by_the_grammar(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    listed = [f"{number:.8e}" for number in array.tolist()]
    texts = {
        "ours": (parse, ours("f32", f"[{', '.join(listed)}]", "1000")),
        "theirs": (read, theirs("f32", f"[{', '.join(listed)}]", "1000x")),
        "bits among numbers": (
            read,
            theirs("f32", f"[{', '.join([*listed[:-1], hex_of(array[-1])])}]", "1000x"),
        ),
        "bytes": (read, theirs("f32", f'"0x{array.tobytes().hex().upper()}"', "1000x")),
    }

    def refuse(*args: Any) -> None:
        raise AssertionError("the grammar reads numbers one by one")

    monkeypatch.setattr("shardir.text.syntax.IrSource.list", refuse)
    monkeypatch.setattr("shardir.stablehlo.reading.types.TypeParser._flat", refuse)
    assert outcome(*texts[kind]) == ("float32", array.tobytes())


def hex_of(number: np.float32) -> str:
    return f"0x{int(number.view(np.uint32)):08X}"
