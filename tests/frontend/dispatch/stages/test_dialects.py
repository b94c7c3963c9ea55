"""`as_text(dialect=...)` of lowered functions."""

from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.errors import PipelineError
from shardir.frontend.errors import ArgumentError
from shardir.interop.in_place_of_jax import shardir_as_jax
from shardir.interop.jax_shim.program import Program
from shardir.interpret.interpreter import run
from shardir.stablehlo.reader import read

X = np.arange(4, dtype="float32")


def lower() -> Any:
    return sd.jit(lambda x: snp.sin(x) + 1).lower(X)


def test_stablehlo_text_computes_the_same() -> None:
    lowered = lower()
    text = lowered.as_text(dialect="stablehlo")
    assert '"stablehlo.sine"(%x)' in text
    assert "loc(" not in text
    assert text == lowered.as_text("stablehlo")
    np.testing.assert_allclose(run(read(text), [X])[0], np.sin(X) + 1, 1e-6)
    assert 'test_dialects.py":' in lowered.as_text(dialect="stablehlo", debug_info=True)
    assert 'test_dialects.py":' in lowered.as_text(dialect="stablehlo", locations=True)


def test_stablehlo_text_states_shardings_after_a_pass() -> None:
    mesh = sd.make_mesh((8,), ("x",))
    sharded = sd.NamedSharding(mesh, sd.P("x"))
    lowered = sd.jit(lambda x: x + 1, in_shardings=(sharded,)).lower(np.ones(8, "float32"))
    text = lowered.as_text("propagate", dialect="stablehlo")
    before = lowered.as_text(dialect="stablehlo")
    assert text.count('[<@mesh, [{"x"}]>]') > before.count('[<@mesh, [{"x"}]>]') == 0


def test_stablehlo_text_has_no_operations_of_shardir() -> None:
    for implementation in ("threefry2x32", "rbg"):
        key = sd.random.key(0, impl=implementation)
        text = sd.jit(lambda key: sd.random.bits(key, (3,))).lower(key).as_text("stablehlo")
        assert "custom_call" not in text
        assert "key" not in text.replace("%key", "")


def test_a_dialect_as_first_argument_is_a_pass_beside_another_dialect() -> None:
    with pytest.raises(PipelineError, match=r" has no pass called 'stablehlo'; it has "):
        lower().as_text("stablehlo", dialect="shardir")


def test_shardir_is_the_default_dialect() -> None:
    lowered = lower()
    assert lowered.as_text() == lowered.as_text(dialect="shardir") == lowered.as_text("shardir")
    assert lowered.as_text(debug_info=True) == lowered.as_text(locations=True) != lowered.as_text()
    names: dict[str, Any] = {}
    with shardir_as_jax():
        Program().execute(
            "import jax, jax.numpy as jnp\n"
            "lowered = jax.jit(jnp.sin).lower(jnp.ones(2))\n"
            "texts = lowered.as_text(), lowered.as_text(dialect='stablehlo')\n",
            names,
        )
    assert "sin(%" in names["texts"][0]
    assert "stablehlo.sine" in names["texts"][1]


@pytest.mark.parametrize(
    ("dialect", "reason"),
    [
        (
            "hlo",
            "XLA makes the text 'hlo' from StableHLO; read that of a JAX program with explain_xla",
        ),
        ("mhlo", "the dialects are 'shardir', which is the default, and 'stablehlo'"),
    ],
)
def test_other_dialects_are_refused(dialect: str, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        lower().as_text(dialect=dialect)
    assert str(caught.value).partition("\n")[0] == f"as_text has no dialect {dialect!r}: {reason}"


def test_a_dialect_must_be_a_string() -> None:
    wrong: Any = np.ones(2)
    with pytest.raises(ArgumentError) as caught:
        lower().as_text(dialect=wrong)
    assert str(caught.value).partition("\n")[0] == (
        "as_text has no dialect float64[2]: the dialects are 'shardir', which is the default, and "
        "'stablehlo'"
    )


def test_the_dialect_hlo_is_refused_as_the_first_argument() -> None:
    with pytest.raises(ArgumentError, match="as_text has no dialect 'hlo'"):
        lower().as_text("hlo")
