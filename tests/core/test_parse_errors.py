"""Parse errors state the fault, its location, and valid alternatives.

Each table entry is invalid text with the error below the line that it points at.
"""

import re

import pytest
from hypothesis import given, strategies as st

from shardir.errors import ParseError
from shardir.text.parser import parse
from shardir.text.printer import print_module
from tests.programs.strategies import any_modules

FUNCTION = """\
mesh @m = [data=4, model=2]

func @f(
  %x: f32[8, 4],
) -> (f32[8, 4]) {
  LINES
  return %x
}
"""


OPERATIONS = r"""
%y = expp(%x) : f32[8, 4]
     ^^^^ no operation is called 'expp'; did you mean 'exp'?

%y = wobble(%x) : f32[8, 4]
     ^^^^^^ no operation is called 'wobble'

%y = exp(%x, foo=1) : f32[8, 4]
             ^^^ exp: has no attribute 'foo'; it has none

%y = transpose(%x, prm=[1, 0]) : f32[4, 8]
                   ^^^ transpose: has no attribute 'prm'; did you mean 'perm'?

%y = transpose(%x) : f32[4, 8]
     ^^^^^^^^^ transpose: needs the attribute 'perm'

%y = transpose(%x, perm=1) : f32[4, 8]
                   ^^^^ transpose: perm must be a list of integers

%y = iota(dim=0, dim=1) : f32[8, 4]
                 ^^^ attribute 'dim' is given twice

%y = transpose(perm=[1, 0], %x) : f32[4, 8]
                            ^^ operands come before attributes

%y = add(%x) : f32[8, 4]
     ^^^ add: takes 2 operands, got 1

%a, %b = exp(%x) : f32[8, 4], f32[8, 4]
    ^^ exp has 1 result, not 2

%a, %b = exp(%x) : f32[8, 4]
    ^^ exp names 2 results, but states 1 type

%a = exp(%x) : f32[8, 4], f32[8, 4]
                          ^^^^^^^^^ exp names 1 result, but states 2 types

exp(%x)
^^^ exp has 1 result, not 0

%y = exp(%x) : f32[8, 5]
               ^^^^^^^^^ the result of exp is f32[8, 4], not f32[8, 5]

%y = dot(%x, %x, dims="ij,jk->ik") : f32[8, 4]
     ^^^ dot: 'j' of dims='ij,jk->ik' is both 4 and 8 in f32[8, 4] and f32[8, 4]

%y = exp(%x) : f32[8, 4] {
     ^^^ exp: takes no blocks, got 1
    yield
  }
"""


VALUES = r"""
%y = add(%x, %z) : f32[8, 4]
             ^^ %z is not defined

%y = add(%x, %xx) : f32[8, 4]
             ^^^ %xx is not defined; did you mean '%x'?

%y = exp(%z) : f32[8, 4]
         ^^ %z is used before it is defined
  %z = exp(%x) : f32[8, 4]

%x = exp(%x) : f32[8, 4]
^^ %x is defined twice, first on line 4

%y = scan(%x, carries=1, length=3) : f32[8, 4] {
    (%c: f32[8, 4]) =>
    yield %y
          ^^ %y is used before it is defined
  }

%y = scan(%x, carries=1, length=3) : f32[8, 4] {
    (%c: f32[8, 4]) =>
    yield %c
  }
  %z = exp(%c) : f32[8, 4]
           ^^ %c is defined in a block that has ended; let the block yield it
"""

TYPES = r"""
%y = exp(%x) : f33[8, 4]
               ^^^ no element type is called 'f33'; did you mean 'f32'?

%y = exp(%x) : f32[8, -4]
                      ^^ a dimension has 0 or more elements

%y = exp(%x) : f32[8@dta, 4]
                     ^^^ mesh @m has no axis called 'dta'; did you mean 'data'?

%y = exp(%x) : f32[8, 4@(data, z)]
                               ^ mesh @m has no axis called 'z'; it has data, model

%y = exp(%x) : f32[8@data:(3)2, 4]
                     ^^^^ axis 'data' of size 4 has no sub-axis (3)2; 3 * 2 must divide 4

%y = exp(%x) : f32[8, 4] on @n
                            ^^ no mesh is called 'n'; there is @m

%y = exp(%x) : f32[8, 4] replicated(modl)
                                    ^^^^ mesh @m has no axis called 'modl'; did you mean 'model'?

%y = exp(%x) : f32[8, 4] unreduced[mean](data)
                         ^^^^^^^^^^^^^^^ partial values combine by add, max, min, mul, not by 'mean'

%y = exp(%x) : f32[8, 4] replicated(data) replicated(data)
                                          ^^^^^^^^^^ 'replicated' is stated twice

%y = all-reduce(%x, axes=[dta], op=add) : f32[8, 4]
                          ^^^ no mesh has an axis called 'dta'; did you mean 'data'?
"""

LITERALS = r"""
%y = constant(value="\q") : f32[8, 4]
                    ^^^^ this string has an unknown escape; there are \" \\ \/ \b \f \n \r \t \uXXXX

%y = constant(value=dense(i8, [1, 300])) : i8[2]
                    ^^^^^^ 300 does not fit in i8

%y = constant(value=dense(i8, [[1], [1, 2]])) : i8[2]
                    ^^^^^^ the rows of an array have one shape

%y = constant(value=dense(i8, [1.5])) : i8[1]
                    ^^^^^^ 1.5 is not an element of i8

%y = constant(value=dense(i8[3], "A")) : i8[3]
                    ^^^^^^ the data of an array is base64

%y = constant(value=dense(i8[3], "AAA=")) : i8[3]
                    ^^^^^^ i8[3] has 3 bytes, but the data has 2

%y = constant(value=dense(key, [1])) : key[1]
                    ^^^^^^ no array has the element type 'key'; keys are stored as u64
"""

SYNTAX = r"""
%y exp(%x) : f32[8, 4]
   ^^^ unexpected 'exp', expected ',' or '='

%y = exp(%x) :
  %z = exp(%x) : f32[8, 4]
  ^^ unexpected '%z', expected a type such as f32[64, 128]

%y = exp(%x) : f32
               ^^^ unexpected 'f32', expected a type such as f32[64, 128]

%y = exp(%x) : f32[8 4]
                     ^ unexpected '4', expected '@' or ',' or ']'

%y = exp(%x) : f32[8@, 4]
                     ^ unexpected ',', expected '(' or '-' or a name or '?' or a string

%y = exp(%x) : f32[8, 4] ;
                         ^ unexpected ';'

%y = exp(x) : f32[8, 4]
          ^ unexpected ')', expected '='
"""

UNCLOSED_IN_LINES = r"""
%y = exp(%x : f32[8, 4]
        ^ '(' is not closed; write ')' before ':'

%y = exp(%x] : f32[8, 4]
        ^ '(' is not closed; write ')' before ']'

%y = exp(%x, ] : f32[8, 4]
        ^ '(' is not closed; write ')' before ','

%y = exp(%x)) : f32[8, 4]
            ^ unexpected ')'

%y = exp %x) : f32[8, 4]
         ^^ unexpected '%x', expected '('

%y = add(%x %x) : f32[8, 4]
            ^^ unexpected '%x', expected ',' or ')'

%y = exp(%x) : f32[8, 4
                  ^ '[' is not closed; write ']' before 'return'

%y = exp(%x) : f32[8@(data, 4]
                     ^ '(' is not closed; write ')' before ','

%y = exp(%x) : f32[8@data:(2 2]
                          ^ '(' is not closed; write ')' before '2'

%y = exp(%x) : f32[8@"data, 4]
                     ^ '"' is not closed; write '"' before the end of the line

%y = exp(%x) : f32[8, 4] replicated(data
                                   ^ '(' is not closed; write ')' before 'return'

%y = exp(%x) : f32[8, 4] loc("a.py":1:2
                            ^ '(' is not closed; write ')' before 'return'

%y = exp(%x) : f32[8, 4] why("a reason)
                             ^ '"' is not closed; write '"' before the end of the line

%y = exp(%"x) : f32[8, 4]
          ^ '"' is not closed; write '"' before the end of the line

%y = sum(%x, axes=[0) : f32[4]
                  ^ '[' is not closed; write ']' before ')'

%y = sum(%x, axes=0]) : f32[4]
                   ^ unexpected ']', expected ',' or ')'

%y = dot(%x, %x, dims="ij, b="c") : f32[8]
                               ^ '"' is not closed; write '"' before the end of the line

%y = constant(value=dense(f32, [[1.0, 2.0])) : f32[1, 2]
                               ^ '[' is not closed; write ']' before ')'

%y = constant(value=dense(f32, [1.0, 2.0]) : f32[2]
             ^ '(' is not closed; write ')' before ':'

%y = constant(value=complex(1.0, 2.0) : c64[]
             ^ '(' is not closed; write ')' before ':'

%y = scan(%x, carries=1, length=3) : f32[8, 4] {
                                               ^ '{' is not closed; write '}' before 'return'
    (%c: f32[8, 4]) =>
    yield %c
"""

UNCLOSED_IN_MODULES = r"""
mesh @m = [data=8
          ^ '[' is not closed; write ']' before 'func'
func @f() -> () {
  return
}

mesh @m = [data=8] devices=[1, 0
                           ^ '[' is not closed; write ']' before the end of the text

func @f(
       ^ '(' is not closed; write ')' before the end of the text

func @f(%x: f32[6, 64@data) -> (f32[6, 64@data]) {
               ^ '[' is not closed; write ']' before ')'
  return %x
}

func @f(%x: f32[6, 64@data, %y: f32[2]) -> (f32[6, 64@data]) {
               ^ '[' is not closed; write ']' before ','
  return %x
}

func @f(%x: f32[2] -> (f32[2]) {
       ^ '(' is not closed; write ')' before '->'
  return %x
}

func @f(%x: f32[2]) -> (f32[2 {
                           ^ '[' is not closed; write ']' before '{'
  return %x
}

func @f(%x: f32[2]) -> (f32[2] {
                       ^ '(' is not closed; write ')' before '{'
  return %x
}

func @"f(%x: f32[2]) -> (f32[2]) {
      ^ '"' is not closed; write '"' before the end of the line
  return %x
}

func @f(%x: f32[2]) -> (f32[2]) {
                                ^ '{' is not closed; write '}' before 'func'
  return %x
func @g(%x: f32[2]) -> (f32[2]) {
  return %x
}
"""

MODULES = r"""
$
^ unexpected '$', expected 'func' or 'mesh' or 'spmd'

func @f(
  %x: f32[8@data],
      ^^^^^^^^^^^ there is no mesh to shard this over; declare one first, as mesh @grid = [data=4]
) -> () {
  return
}

mesh @m = [x=2]
mesh @m = [x=2]
     ^^ two meshes are called @m

mesh @m = [x=2, x=2]
                ^ mesh @m has two axes called 'x'

mesh @m = [x=0]
             ^ axis 'x' has size 0; a mesh axis has at least size 1

mesh @m = [x=2] devices=[1, 1]
     ^^ mesh @m needs the ids 0 to 1 in some order

mesh @m = [] devices=[1, 2]
     ^^ mesh @m needs one device id

func @f() -> () {
  return
}
mesh @m = [x=2]
     ^^ meshes come before functions

func @f() -> () {
  return
}
func @f() -> () {
     ^^ two functions are called @f
  return
}

func @f(%x: f32[2]) -> (f32[2]) {
  return %x, %x
  ^^^^^^ @f returns 2 values, but states 1 result
}

func @f(%x: f32[2]) -> (f32[3]) {
                        ^^^^^^ @f returns %x of type f32[2], not f32[3]
  return %x
}

mesh @m = [x=2]
func @f(%x: f32[2] of f32[4@x]) -> () {
                      ^^^^^^^^ only the parameters and results of an spmd function are shards
  return
}

mesh @m = [x=2]
spmd func @f(%x: f32[2]) -> () {
             ^^ an spmd function states global tensor types; write f32[16] of f32[64@data]
  return
}
"""


def cases(*tables: str) -> list[str]:
    return [case for table in tables for case in table.strip("\n").split("\n\n")]


def check(case: str, frame: str) -> None:
    """Insert the lines of a case into a frame, and check the exact error."""
    lines = case.split("\n")
    at = next(i for i, line in enumerate(lines) if re.match(r" *\^", line))
    indent, carets, message = re.split(r"(\^+) ", lines.pop(at), maxsplit=1)
    text = frame.replace("LINES", "\n".join(lines))
    number = frame[: frame.index("LINES")].count("\n") + at
    source = text.split("\n")[number - 1]
    column = len(indent) + 1 + source.index(lines[at - 1])
    gutter = " " * len(str(number))
    with pytest.raises(ParseError) as caught:
        parse(text, "f.ir")
    assert str(caught.value) == (
        f"{message}\n{gutter}--> f.ir:{number}:{column}\n{gutter} |\n"
        f"{number} | {source}\n{gutter} | {' ' * (column - 1)}{carets}"
    )


@pytest.mark.parametrize(
    "case", cases(OPERATIONS, VALUES, TYPES, LITERALS, SYNTAX, UNCLOSED_IN_LINES)
)
def test_an_invalid_line_of_a_function_has_an_exact_error(case: str) -> None:
    check(case, FUNCTION)


@pytest.mark.parametrize("case", cases(MODULES, UNCLOSED_IN_MODULES))
def test_an_invalid_module_has_an_exact_error(case: str) -> None:
    check(case, "LINES")


def test_the_complete_error() -> None:
    with pytest.raises(ParseError) as error:
        parse(FUNCTION.replace("LINES", "%y = expp(%x) : f32[8, 4]"), "f.ir")

    assert (
        str(error.value)
        == """\
no operation is called 'expp'; did you mean 'exp'?
 --> f.ir:6:8
  |
6 |   %y = expp(%x) : f32[8, 4]
  |        ^^^^"""
    )


def test_the_caret_is_below_tab_indented_text() -> None:
    with pytest.raises(ParseError) as error:
        parse("func @f() -> () {\n\t%y = expp() : f32[]\nreturn }", "f.ir")

    assert str(error.value).endswith("2 | \t%y = expp() : f32[]\n  | \t     ^^^^")


def test_an_unknown_dtype_is_an_error() -> None:
    with pytest.raises(ParseError) as error:
        parse("func @f(%x: double[2]) -> () { return }", "f.ir")

    assert str(error.value).split("\n")[0] == (
        "no element type is called 'double'; the element types are bool, i2, i4, i8, i16, i32, "
        "i64, u2, u4, u8, u16, u32, u64, f4e2m1fn, f8e3m4, f8e4m3, f8e4m3fn, f8e4m3b11fnuz, "
        "f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu, f16, bf16, f32, f64, c64, c128, key, "
        "key_rbg, key_urbg"
    )


@pytest.mark.parametrize("text", ["[" * 5000 + "]" * 5000, "9" * 5000])
def test_limits_of_python_are_parse_errors(text: str) -> None:
    with pytest.raises(ParseError, match=r"nested too deeply|too large"):
        parse(FUNCTION.replace("LINES", f"%y = constant(value={text}) : f32[]"))


TOKENS = re.compile(
    r'"(?:[^"\
]|\.)*"|[\w.%@-]+|\s+|.',
    re.DOTALL,
)
WORDS = """
%x @m f32[3] 1 -1 1e9 inf nan ( ) [ ] { } , : = @ - ? p1 yield return of on replicated true
unreduced[max] dense( complex( " "a" => -> data 99999999999999999999 add while // x:(1)2 axes
dims spmd func mesh devices loc why é
"""
PIECES = WORDS.split()


@st.composite
def mutate_tokens(draw: st.DrawFn) -> str:
    """Return the text of a module with a few tokens lost, replaced, added, swapped or reversed."""
    tokens: list[str] = TOKENS.findall(print_module(draw(any_modules()), locations=True))
    for _ in range(draw(st.integers(1, 3))):
        if not tokens:
            break
        at, other = (draw(st.integers(0, len(tokens) - 1)) for _ in range(2))
        match draw(st.sampled_from(["lose", "replace", "add", "swap", "reverse"])):
            case "lose":
                del tokens[at]
            case "replace":
                tokens[at] = draw(st.sampled_from(PIECES))
            case "add":
                tokens.insert(at, draw(st.sampled_from(PIECES)))
            case "swap":
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case "reverse":
                tokens[at] = tokens[at][::-1]
    return "".join(tokens)


@given(st.one_of(mutate_tokens(), st.text()))
def test_only_parse_errors_are_raised(text: str) -> None:
    try:
        module = parse(text)
    except ParseError:
        return
    again = print_module(module, locations=True)
    assert print_module(parse(again), locations=True) == again
