"""Settings: sources, scope, and errors."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir.errors import ShardirError
from shardir.frontend.config import (
    Config,
    config,
    cpu_devices,
    dump_dir,
    enable_x64,
    set_cpu_devices,
    threefry_partitionable,
    uneven,
    verify,
)
from shardir.frontend.dispatch.programs.runnable import default_pipeline
from shardir.frontend.errors import SettingError, UnknownSetting
from shardir.frontend.settings import SETTINGS, read_environment
from tests.error_assertions import first_line

KNOWN = (
    "num_cpu_devices, enable_x64, threefry_partitionable, random_seed_offset, "
    "default_matmul_precision, default_prng_impl, legacy_prng_key, "
    "enable_custom_prng, dump_dir, "
    "verify, uneven, on_fallback, grad_reduce_dtype, explicit_sharding, "
    "check_static_indices, shardy_exact, passes, machine, isolated, gather, "
    "check_replicated_inputs, shown_platform, "
    "num_gpu_devices, log_compiles, check_tracer_leaks, debug_nans, debug_infs, "
    "traceback, native_dispatch"
)


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS.values():
        if setting.variable is not None:
            monkeypatch.delenv(setting.variable, raising=False)


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardir.frontend.config._process_scopes", [])  # Read the environment.
    assert repr(config) == (
        "config(num_cpu_devices=8, enable_x64=False, threefry_partitionable=True, "
        "random_seed_offset=0, default_matmul_precision=None, default_prng_impl='threefry2x32', "
        "legacy_prng_key='allow', enable_custom_prng=False, "
        "dump_dir=None, verify=False, uneven=None, "
        "on_fallback='replicate', grad_reduce_dtype=None, explicit_sharding='strict', "
        "check_static_indices=True, shardy_exact=False, passes=None, machine=None, "
        "isolated=False, gather=False, check_replicated_inputs=True, "
        "shown_platform='cpu', num_gpu_devices=None, "
        "log_compiles=False, check_tracer_leaks=False, debug_nans=False, debug_infs=False, "
        "traceback='short', native_dispatch=True)"
    )


def test_environment_variables_override_defaults() -> None:
    program = "from shardir import config; print(config)"
    environment = {
        **os.environ,
        "SHARDIR_CPU_DEVICES": "3",
        "SHARDIR_ENABLE_X64": "1",
        "SHARDIR_DUMP": "out",
        "SHARDIR_VERIFY": "on",
    }
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert told.startswith("config(num_cpu_devices=3, enable_x64=True, threefry_partitionable=True")
    assert "dump_dir='out', verify=True" in told


def test_an_empty_environment_variable_is_ignored() -> None:
    assert read_environment({"SHARDIR_DUMP": "", "SHARDIR_VERIFY": "1"}) == {"verify": True}


def test_a_block_overrides_the_outer_block_and_restores() -> None:
    with config(num_cpu_devices=3):
        with config(num_cpu_devices=2, jax_enable_x64=True):
            assert (config.num_cpu_devices, config.enable_x64) == (2, True)
            with config(num_cpu_devices=1):
                assert (config.num_cpu_devices, config.enable_x64) == (1, True)
            assert config.num_cpu_devices == 2
        assert (config.num_cpu_devices, config.enable_x64) == (3, False)


def test_a_block_restores_after_an_error() -> None:
    with pytest.raises(KeyError), config(verify=True):
        raise KeyError
    assert not config.verify


def test_update_inside_a_block_ends_with_the_block() -> None:
    with config():
        config.update("jax_threefry_partitionable", False)
        set_cpu_devices(5)
        assert (config.threefry_partitionable, config.num_cpu_devices) == (False, 5)
        assert config.jax_threefry_partitionable is False
    assert (config.threefry_partitionable, config.num_cpu_devices) == (True, 8)


def test_update_outside_of_blocks_applies_to_every_thread() -> None:
    # The test runs in a separate process, because such an update cannot be undone.
    program = """\
import threading
from shardir.frontend.config import config
config.update("jax_num_cpu_devices", 4)
thread = threading.Thread(target=lambda: print(config.num_cpu_devices))
thread.start()
thread.join()
with config(num_cpu_devices=5):
    print(config.num_cpu_devices)
print(config.num_cpu_devices)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "4\n5\n4\n"


def test_a_block_applies_to_its_own_thread_only() -> None:
    seen = []
    with enable_x64():
        thread = threading.Thread(target=lambda: seen.append(config.enable_x64))
        thread.start()
        thread.join()
        assert config.enable_x64
    assert seen == [False]


def test_every_setting_has_a_context_manager(tmp_path: Path) -> None:
    with enable_x64(True), cpu_devices(2), threefry_partitionable(False), verify(), dump_dir("d"):
        assert config.snapshot() == (
            ("num_cpu_devices", 2),
            ("enable_x64", True),
            ("threefry_partitionable", False),
            ("random_seed_offset", 0),
            ("default_matmul_precision", None),
            ("default_prng_impl", "threefry2x32"),
            ("legacy_prng_key", "allow"),
            ("enable_custom_prng", False),
            ("dump_dir", "d"),
            ("verify", True),
            ("uneven", None),
            ("on_fallback", "replicate"),
            ("grad_reduce_dtype", None),
            ("explicit_sharding", "strict"),
            ("check_static_indices", True),
            ("shardy_exact", False),
            ("passes", None),
            ("machine", None),
            ("isolated", False),
            ("gather", False),
            ("check_replicated_inputs", True),
            ("shown_platform", "cpu"),
            ("num_gpu_devices", None),
            ("check_tracer_leaks", False),
            ("debug_nans", False),
            ("debug_infs", False),
        )
    with dump_dir(tmp_path):
        assert config.dump_dir == str(tmp_path)
    with uneven("pad"):
        assert config.uneven == "pad"
    with verify(True), verify(False):
        assert not config.verify


@pytest.mark.parametrize("use", [lambda: config.update("jax_x64", 1), lambda: config(jax_x64=1)])
def test_an_unknown_setting_is_an_error(use: object) -> None:
    assert callable(use)
    with pytest.raises(UnknownSetting) as caught:
        use()
    assert first_line(caught) == f"no setting is named 'jax_x64'; the settings are {KNOWN}"
    assert isinstance(caught.value, ShardirError)


def test_reading_an_unknown_setting_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = config.x64
    assert first_line(caught) == f"no setting is named 'x64'; the settings are {KNOWN}"
    assert not hasattr(config, "x64")


def test_assignment_to_a_setting_is_an_error() -> None:
    with pytest.raises(UnknownSetting) as caught:
        Config.__setattr__(config, "verify", True)
    assert first_line(caught) == (
        "config.verify cannot be assigned; write config.update('verify', True)"
    )


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "num_cpu_devices",
            0,
            "the setting num_cpu_devices is 0; it must be an integer of at least 1",
        ),
        (
            "num_cpu_devices",
            True,
            "the setting num_cpu_devices is True; it must be an integer of at least 1",
        ),
        (
            "enable_x64",
            1,
            "the setting enable_x64 is 1; it must be True or False (in the environment: 1 or 0)",
        ),
        ("dump_dir", 3, "the setting dump_dir is 3; it must be the path of a folder, or None"),
    ],
)
def test_an_invalid_value_of_a_setting_is_an_error(name: str, value: object, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        config.update(name, value)
    assert first_line(caught) == message
    with pytest.raises(ValueError, match="must be"):
        config(**{name: value})


NAMES: list[tuple[str, list[str | None], str]] = [
    ("legacy_prng_key", ["allow", "error"], "'allow', 'warn' or 'error'"),
    ("default_prng_impl", ["rbg"], "'threefry2x32', 'rbg' or 'unsafe_rbg'"),
    ("uneven", ["pad", None], "'pad', 'replicate', 'error' or None"),
    ("on_fallback", ["error"], "'replicate' or 'error'"),
    ("grad_reduce_dtype", ["float64", None], "'float32', 'float64' or None"),
    ("explicit_sharding", ["lenient"], "'strict' or 'lenient'"),
    ("shown_platform", ["gpu", "tpu"], "'cpu', 'gpu', 'tpu' or 'ipu'"),
    ("traceback", ["full"], "'short' or 'full'"),
]


@pytest.mark.parametrize(("name", "accepted", "requirement"), NAMES, ids=[n for n, *_ in NAMES])
def test_a_setting_is_one_of_its_names(
    name: str, accepted: list[str | None], requirement: str
) -> None:
    for value in accepted:
        with config(**{name: value}):
            assert getattr(config, name) == value
    for wrong in ("other", 3, ["error"], np.array(["full", "error"])):
        with pytest.raises(SettingError) as caught:
            config(**{name: wrong})
        text, _, location = str(caught.value).partition("\n   --> ")
        assert text == f"the setting {name} is {wrong!r}; it must be {requirement}"
        assert location.startswith("tests/frontend/test_config.py:")


def test_the_error_of_an_environment_variable_names_it() -> None:
    with pytest.raises(SettingError) as caught:
        read_environment({"SHARDIR_CPU_DEVICES": "many"})
    assert str(caught.value) == (
        "the environment variable SHARDIR_CPU_DEVICES is 'many'; it must be an integer of at least "
        "1"
    )


def test_the_setting_of_the_native_tier_cannot_change() -> None:
    message = (
        "the setting native_dispatch cannot change after the import of shardir; set the "
        "environment variable SHARDIR_NATIVE_DISPATCH before Python starts"
    )
    with pytest.raises(SettingError) as updated:
        config.update("native_dispatch", False)
    with pytest.raises(SettingError) as entered:
        config(native_dispatch=True)
    assert [first_line(updated), first_line(entered)] == [message, message]


@pytest.mark.parametrize("word", ["off", "No"])
def test_the_words_of_switches_turn_the_native_tier_off(word: str) -> None:
    program = (
        "from shardir import config\n"
        "from shardir.backends.native import native\n"
        "print(native, config.native_dispatch)"
    )
    environment = {**os.environ, "SHARDIR_NATIVE_DISPATCH": word}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "None False\n"


def test_another_word_for_the_native_tier_is_an_error() -> None:
    with pytest.raises(SettingError) as caught:
        read_environment({"SHARDIR_NATIVE_DISPATCH": "maybe"})
    assert str(caught.value) == (
        "the environment variable SHARDIR_NATIVE_DISPATCH is 'maybe'; it must be True or False (in "
        "the environment: 1 or 0)"
    )


def test_shardy_exact_selects_the_reshards_of_shardy() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"))

    def placed(value: Any, *spec: str | None) -> Any:
        return sd.device_put(value, sd.NamedSharding(mesh, sd.P(*spec)))

    args = placed(snp.ones((8, 64), bool), "x"), placed(snp.ones((8, 64)), None, "y")
    out = sd.NamedSharding(mesh, sd.P(None, "y"))

    def chosen(p: Any, x: Any) -> Any:
        return snp.where(p, x, 2 * x)

    received = []
    for exact in (False, True):
        with config(shardy_exact=exact):
            compiled = sd.jit(chosen, out_shardings=out).lower(*args).compile()
            assert (compiled(*args) == 1).all()
            assert ("insert-explicit-reshards" in str(default_pipeline())) is exact
        received.append(sum(each.nbytes for each in compiled.collectives()))
    assert received[0] <= received[1]


def test_on_fallback_error_rejects_operations_without_a_rule() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"))
    x = sd.device_put(snp.ones((8, 8)), sd.NamedSharding(mesh, sd.P("x")))

    def doubled(x: Any) -> Any:
        return sd.pure_callback(lambda a: a * 2, sd.ShapeDtypeStruct((8, 8), np.float32), x)

    assert (sd.jit(doubled)(x) == 2).all()
    with config(on_fallback="error"), pytest.raises(sd.ShardirError) as error:
        sd.jit(doubled)(x)
    assert "each device would receive 192 bytes of %x, which is sharded [x, -]" in str(error.value)
    with pytest.raises(SettingError, match="'replicate' or 'error'"):
        config.update("on_fallback", "gather")


def test_shardy_exact_programs_accept_uneven_arguments() -> None:
    mesh = sd.make_mesh((4, 2), ("x", "y"))
    x = sd.device_put(snp.arange(5.0), sd.NamedSharding(mesh, sd.P("x")), uneven="pad")
    with config(shardy_exact=True):
        assert (sd.jit(lambda x: 2 * x)(x) == 2 * snp.arange(5.0)).all()
