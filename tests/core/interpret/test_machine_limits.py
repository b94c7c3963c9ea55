"""Programs that exceed the limits of the machine are errors before anything is allocated."""

import pytest

from shardir.errors import InterpretError
from shardir.interpret.machine_limits import check_runnable
from shardir.text.parser import parse

TEXT = """\
mesh @m = [x=SIZE]

func @f(
  %a: f32[LENGTH@x],
) -> (f32[LENGTH]) {
  %b = exp(%a) : f32[LENGTH]
  return %b
}
"""


def refusal(text: str, memory: int = 2**30) -> str:
    with pytest.raises(InterpretError) as caught:
        check_runnable(parse(text), memory)
    return str(caught.value)


def test_too_many_devices() -> None:
    assert refusal(TEXT.replace("SIZE", "1000000000").replace("LENGTH", "8")) == (
        "mesh @m has 1000000000 devices, and one process runs programs for at most 4096; use a "
        "smaller mesh"
    )


def test_too_much_memory() -> None:
    small = parse(TEXT.replace("SIZE", "2").replace("LENGTH", "1024"))
    check_runnable(small, 8192)
    assert refusal(TEXT.replace("SIZE", "2").replace("LENGTH", "1024"), 8191) == (
        "@f needs 8.0 KiB of memory, and this machine has 8.0 KiB; run it on smaller arrays"
    )
    assert "and this machine has 1.0 GiB; run it on smaller arrays" in refusal(
        TEXT.replace("SIZE", "2").replace("LENGTH", "9" * 18)
    )


def test_too_many_dimensions() -> None:
    text = TEXT.replace("SIZE", "1").replace("LENGTH", ", ".join(["1"] * 65))
    assert refusal(text) == (
        "%a has 65 dimensions, and arrays have at most 64 when a program runs; merge some by "
        "reshape"
    )
