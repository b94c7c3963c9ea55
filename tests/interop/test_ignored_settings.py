"""Settings of JAX without effect in shardir, and the reports of those that a program relies on."""

import re
from typing import Any

import pytest

from shardir.frontend.dispatch.execution_context import DEFAULT_CONTEXT, execution_context
from shardir.frontend.errors import ArgumentError, SettingError
from shardir.frontend.settings import SETTINGS
from shardir.interop.in_place_of_jax import shardir_as_jax
from shardir.interop.jax_shim import ignored_settings
from shardir.interop.jax_shim.jax_config import CONTEXT_SETTINGS, RENAMED_SETTINGS, UncoveredSetting
from shardir.interop.jax_shim.program import Program
from shardir.interop.jax_shim.renamed import IGNORED_SETTING_CONTEXTS
from tests.optional_dependencies import require


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignored_settings, "_reported_settings", set())


def run(source: str) -> None:
    Program().execute(f"import jax\n{source}", {})


@pytest.mark.parametrize(
    ("source", "setting"),
    [
        ("jax.config.update('jax_debug_key_reuse', True)", "jax_debug_key_reuse=True"),
        ("with jax.debug_key_reuse(True): pass", "jax_debug_key_reuse=True"),
        ("with jax.transfer_guard('disallow'): pass", "jax_transfer_guard='disallow'"),
        (
            "jax.config.update('jax_transfer_guard_host_to_device', 'log')",
            "jax_transfer_guard_host_to_device='log'",
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
    for name in ignored_settings.IMPLEMENTATION_SETTINGS:
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


OTHER_PARTS = (
    r"jax_(pallas|mosaic|mock|tpu|cuda|rocm|oneapi|gpu|xla_backend|backend_target|mutable_array"
    r"|disable_(bwd|vmap))_?"
)
"""Settings of accelerators, of kernels that are written in JAX, and of its internal checks."""


def test_each_setting_of_jax_is_known() -> None:
    require("jax")
    import jax

    known = {*ignored_settings.CHECKS, *ignored_settings.IMPLEMENTATION_SETTINGS}
    known |= {*ignored_settings.REFUSED_SETTINGS}
    known |= {*RENAMED_SETTINGS, *CONTEXT_SETTINGS, *(f"jax_{name}" for name in SETTINGS)}
    names = [name for name in jax.config.values if name.startswith("jax_")]
    assert {name for name in names if not re.match(OTHER_PARTS, name)} <= known
    # JAX reads `x64_enabled` only as an attribute.
    assert known - set(names) - {f"jax_{name}" for name in SETTINGS} == {"x64_enabled"}
    other = next(name for name in names if re.match(OTHER_PARTS, name))
    with pytest.raises(UncoveredSetting):
        run(f"jax.config.update({other!r}, True)")


def test_the_values_of_the_tables_are_those_of_jax() -> None:
    require("jax")
    import jax

    update: Any = jax.config.update
    for name, check in ignored_settings.CHECKS.items():
        default = jax.config.values[name]
        assert default in (*check.inactive[:1], None), name
        try:
            for value in (*check.inactive, *check.active):
                update(name, value)
            if isinstance(check.inactive[0], str):
                with pytest.raises(ValueError, match="anything else"):
                    update(name, "anything else")
        finally:
            update(name, default)
    for name, fixed in ignored_settings.REFUSED_SETTINGS.items():
        default = jax.config.values[name]
        assert getattr(default, "name", default) in (fixed.value, str(fixed.value).upper()), name
        ignored_settings.refuse_setting(name, default)


@pytest.mark.parametrize(
    ("name", "default", "other", "alternative"),
    [
        (
            "jax_auto_pcast", True, False,
            "operations make invariant operands varying; call lax.pcast where it must be explicit",
        ),
        (
            "jax_explicit_x64_dtypes", "warn", "allow",
            "jax_enable_x64 decides whether dtypes of 64 bits are kept; set it to True",
        ),
        (
            "jax_high_dynamic_range_gumbel", False, True,
            "random.gumbel and random.categorical draw more bits with mode='high'",
        ),
        (
            "jax_remove_size_one_mesh_axis_from_type", False, True,
            "types state the axes of size 1 by which arrays are sharded; make the mesh without "
            "axes of size 1",
        ),
    ],
)  # fmt: skip
def test_settings_that_change_results_or_types_keep_their_value(
    name: str, default: object, other: object, alternative: str
) -> None:
    run(f"jax.config.update({name!r}, {default!r})\nassert jax.config.{name} == {default!r}")
    with pytest.raises(SettingError) as caught:
        run(f"jax.config.update({name!r}, {other!r})")
    assert str(caught.value).partition("\n")[0] == (
        f"the setting {name} of JAX must be {default!r} in shardir: {alternative}"
    )


def test_settings_of_the_execution_context_last_until_the_end_of_the_program() -> None:
    names: dict[str, Any] = {}
    with shardir_as_jax(num_cpu_devices=2):
        Program().execute(
            "import jax, jax.numpy as jnp\n"
            "kinds, seen = [], []\n"
            "def look(x):\n    kinds.append(isinstance(x, jax.core.Tracer))\n    return x\n"
            "for disabled in (True, False):\n"
            "    jax.config.update('jax_disable_jit', disabled)\n"
            "    seen.append(jax.config.jax_disable_jit)\n"
            "    jax.jit(look)(1.0)\n"
            "jax.config.update('jax_default_device', jax.devices()[1])\n"
            "seen.append(jax.config.jax_default_device.id)\n"
            "device = jnp.ones(2).device\n"
            "jax.config.update('jax_disable_jit', True)\n",
            names,
        )
    assert names["kinds"] == [False, True]
    assert names["seen"] == [True, False, 1]
    assert names["device"].id == 1
    assert execution_context() == DEFAULT_CONTEXT
    with pytest.raises(ArgumentError):
        run("jax.config.update('jax_default_device', 3)")
    with pytest.raises(SettingError) as caught:
        run("jax.config.update('jax_disable_jit', 1)")
    assert str(caught.value).partition("\n")[0] == (
        "the setting jax_disable_jit of JAX is 1; it must be True or False"
    )
