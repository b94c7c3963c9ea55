"""Environment variables of JAX in a script that runs under the JAX shim."""

from pathlib import Path
from typing import Any

import pytest

from shardir.frontend.errors import SettingError
from shardir.interop.jax_shim import jax_config, script_runner

SCRIPT = """
import jax
import jax.numpy as jnp

count = jax.device_count()
dtype = str(jnp.arange(3).dtype)
partitionable = jax.config.jax_threefry_partitionable
precision = jax.config.jax_default_matmul_precision
platform = jax.devices()[0].platform
traced = []


@jax.jit
def f(x):
    traced.append(isinstance(x, jax.core.Tracer))
    return x


f(jnp.ones(2))
"""


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Any]:
    for name in (*jax_config.ENVIRONMENT_SETTINGS, "JAX_DISABLE_JIT", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    monkeypatch.setattr(jax_config, "_reported_variables", set())
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, "utf-8")
    return script_runner.run_script(path)


def test_supported_variables_have_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(
        tmp_path,
        monkeypatch,
        JAX_ENABLE_X64="true",
        JAX_NUM_CPU_DEVICES="3",
        JAX_DEFAULT_MATMUL_PRECISION="F16_F16_F16",
        JAX_DEFAULT_PRNG_IMPL="threefry2x32",
        JAX_THREEFRY_PARTITIONABLE="0",
        JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=5",
    )
    assert (found["count"], found["dtype"], found["partitionable"]) == (3, "int64", False)
    assert (found["platform"], found["precision"]) == ("cpu", "F16_F16_F16")
    assert found["traced"] == [True]
    assert run(tmp_path, monkeypatch, JAX_ENABLE_X64="0")["dtype"] == "int32"
    assert run(tmp_path, monkeypatch, JAX_DISABLE_JIT="1")["traced"] == [False]


def test_ignored_variables_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, monkeypatch, JAX_DEBUG_NANS="1", JAX_LOG_COMPILES="1", JAX_ENABLE_X64="0")
    line = "shardir ignores environment variables of JAX: JAX_DEBUG_NANS, JAX_LOG_COMPILES\n"
    assert capsys.readouterr().err == line
    jax_config.apply_environment()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("JAX_ENABLE_X64", "maybe", "it must be true or false"),
        ("JAX_NUM_CPU_DEVICES", "many", "it must be an integer of at least 1"),
        (
            "JAX_DEFAULT_PRNG_IMPL",
            "philox",
            "it must be 'threefry2x32', 'rbg' or 'unsafe_rbg'",
        ),
        ("JAX_PLATFORMS", "abacus", "it must be 'cpu', 'gpu', 'tpu' or 'ipu'"),
    ],
)
def test_invalid_values_are_errors(
    name: str, text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingError) as caught:
        run(tmp_path, monkeypatch, **{name: text})
    assert str(caught.value) == f"the environment variable {name} is {text!r}; {says}"
