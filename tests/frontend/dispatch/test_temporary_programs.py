"""The keys and the arguments of programs that are traced at every call."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.frontend.dispatch.temporary_programs import _attribute_key, module_fingerprint

TEXT = """\
func @f() -> (f32[]) {{
  %0 = constant(value={}) : f32[]
  return %0
}}
"""


def test_programs_with_the_same_text_have_the_same_key() -> None:
    texts = [TEXT.format(number) for number in ("0.0", "-0.0", "nan", "1.0")]
    keys = [module_fingerprint(sd.parse(text)) for text in texts]
    assert len(set(keys)) == 4
    assert keys == [module_fingerprint(sd.parse(text)) for text in texts]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: (x,), lambda x: (1, (x,))])
def test_keys_distinguish_signed_zeros_at_any_depth(wrap: Callable[[float], object]) -> None:
    assert _attribute_key(wrap(0.0)) != _attribute_key(wrap(-0.0))
    nan = float("nan")
    assert _attribute_key(wrap(nan)) == _attribute_key(wrap(-nan + 1))


def test_functions_that_write_into_their_arguments_are_applied_to_the_elements_before() -> None:
    numbers = np.ones(3, np.float32)

    def squares(x: Any) -> Any:
        total = snp.sum(x * x)
        numbers[:] = 50
        return total if total < 50 else 2 * total

    assert sd.grad(squares)(numbers).tolist() == [2, 2, 2]
    assert numbers.tolist() == [50, 50, 50]
