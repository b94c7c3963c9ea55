"""The backend `pjrt`: tests on eight devices in another process, and errors without jaxlib."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import shardir as sd
from shardir.backends.pjrt import runtime
from shardir.backends.pjrt.runtime import PJRTError

TESTS = Path(__file__).with_name("eight_devices.py")


def run_on_eight_devices(*options: str) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", str(TESTS), *options]
    done = subprocess.run(
        command, env=environment, cwd=TESTS.parents[3], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("jax")
def test_programs_on_eight_devices() -> None:
    run_on_eight_devices()


@pytest.mark.long
@pytest.mark.needs("jax")
def test_more_programs_on_eight_devices() -> None:
    run_on_eight_devices("--long")


@pytest.mark.parametrize("name", ["jax", "jaxlib"])
def test_a_missing_jax_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        """Finds no JAX."""

        def find_spec(self, module: str, *rest: object) -> None:
            if module == "jax":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    runtime._load_devices.cache_clear()
    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.raises(PJRTError) as caught:
        sd.devices("pjrt")
    assert str(caught.value).split("\n")[0] == (
        f"devices of kind 'pjrt' need JAX, and {name} is not installed; pip install 'shardir[jax]'"
    )
