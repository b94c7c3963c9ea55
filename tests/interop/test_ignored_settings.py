"""Settings of JAX without effect in shardir, and the reports of those that a program relies on."""

import pytest

from shardir.frontend.errors import SettingError
from shardir.interop.jax_shim import ignored_settings
from shardir.interop.jax_shim.program import Program
from shardir.interop.jax_shim.renamed import IGNORED_SETTING_CONTEXTS


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignored_settings, "_reported_settings", set())


def run(source: str) -> None:
    Program().execute(f"import jax\n{source}", {})


@pytest.mark.parametrize(
    ("source", "setting"),
    [
        ("jax.config.update('jax_debug_infs', True)", "jax_debug_infs=True"),
        ("with jax.debug_infs(True): pass", "jax_debug_infs=True"),
        ("with jax.transfer_guard('disallow'): pass", "jax_transfer_guard='disallow'"),
        (
            "jax.config.update('jax_transfer_guard_host_to_device', 'log')",
            "jax_transfer_guard_host_to_device='log'",
        ),
        (
            "with jax.default_matmul_precision('bfloat16'): pass",
            "jax_default_matmul_precision='bfloat16'",
        ),
        (
            "@jax.numpy_rank_promotion('raise')\ndef f(): pass\nf()",
            "jax_numpy_rank_promotion='raise'",
        ),
    ],
)
def test_active_checks_are_reported_once(
    source: str, setting: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(f"for _ in range(2):\n  {source}" if "\n" not in source else source)
    assert capsys.readouterr().err == f"shardir ignores settings of JAX: {setting}\n"


def test_values_that_hold_in_shardir_are_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for name, check in ignored_settings.CHECKS.items():
        for value in (*check.inactive, None):
            run(f"jax.config.update({name!r}, {value!r})")
    for name in ignored_settings.SPEED_SETTINGS:
        run(f"jax.config.update({name!r}, 1)")
    assert capsys.readouterr().err == ""
    assert {name for name, *_ in IGNORED_SETTING_CONTEXTS.values()} <= set(ignored_settings.CHECKS)


def test_values_that_jax_refuses_are_errors() -> None:
    with pytest.raises(SettingError) as caught:
        run("jax.numpy_rank_promotion('error')")
    assert str(caught.value).partition("\n")[0] == (
        "the setting jax_numpy_rank_promotion of JAX is 'error'; it must be one of 'allow', "
        "'warn', 'raise'"
    )
