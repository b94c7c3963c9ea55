"""Run the tests of the C extension with AddressSanitizer and UBSan, and with ThreadSanitizer.

    python -m tests.sanitizers [address | thread ...]

The extension is built once more with the compiler's instrumentation, outside of the checkout.
As a plug-in of pytest, this module loads that build in place of the installed one. AddressSanitizer
checks all objects, because Python then allocates each of them with `malloc`. ThreadSanitizer runs
the tests with several threads. Processes that a test starts run the installed extension.
"""

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
EXTENSION = "shardir.backends._native"
BUILD_VARIABLE = "SHARDIR_SANITIZED_EXTENSION"
"""The environment variable that contains the path of the instrumented build."""

TESTS = (
    "tests/backends/test_native.py",
    "tests/frontend/dispatch/test_call_cache_lifetime.py",
    "tests/frontend/dispatch/test_native_call_cache.py",
    "tests/frontend/dispatch/test_native_dispatch.py",
    "tests/frontend/dispatch/test_native_donation.py",
    "tests/frontend/dispatch/test_numpy_arguments.py",
    "tests/frontend/dispatch/test_placed_calls.py",
    "tests/frontend/dispatch/test_scalar_arguments.py",
)
COMPILER_FLAGS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "thread": ("-fsanitize=thread",),
}
# Arrays that another thread writes during a call are read in any case; their tests race themselves.
SELECTED_TESTS = {"address": "", "thread": "(thread or concurrent) and not written"}
OPTIONS = {
    # CPython keeps interned objects until the process ends, which are no leaks of the extension.
    "address": {"ASAN_OPTIONS": "detect_leaks=0", "PYTHONMALLOC": "malloc"},
    "thread": {"TSAN_OPTIONS": "halt_on_error=1"},
}


def build(sanitizer: str, folder: Path) -> Path:
    """Compile the extension with the instrumentation of a sanitizer, and return its path."""
    path = folder / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    includes = [f"-I{sysconfig.get_path('include')}", f"-I{np.get_include()}"]
    flags = ["-shared", "-fPIC", "-std=c11", "-O1", "-g", "-fno-omit-frame-pointer"]
    source = str(ROOT / "backends/_native.c")
    command = ["gcc", *flags, *COMPILER_FLAGS[sanitizer], *includes, source, "-o", str(path)]
    subprocess.run(command, check=True)
    return path


def run_tests(sanitizer: str) -> int:
    """Run the tests of the extension with a sanitizer, and return the exit status of pytest."""
    with TemporaryDirectory() as folder:
        libraries = ["libasan.so", "libubsan.so"] if sanitizer == "address" else ["libtsan.so"]
        paths = [
            subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip()
            for name in libraries
        ]
        environment = {
            **os.environ,
            **OPTIONS[sanitizer],
            "LD_PRELOAD": " ".join(paths),
            BUILD_VARIABLE: str(build(sanitizer, Path(folder))),
        }
        # ThreadSanitizer reserves fixed addresses, which random ones of libraries may overlap.
        fixed_addresses = ["setarch", "--addr-no-randomize"] if sanitizer == "thread" else []
        # Sanitizers write their reports to the file descriptor that pytest captures by default.
        options = ["-p", "tests.sanitizers", "-p", "no:xdist", "-p", "no:cacheprovider", "-q"]
        options += ["--capture=sys"]
        selection = ["-k", SELECTED_TESTS[sanitizer]]
        pytest = [sys.executable, "-m", "pytest", *options, *selection, *TESTS]
        return subprocess.run([*fixed_addresses, *pytest], env=environment, cwd=ROOT).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sanitizers",
        description="Run the tests of the C extension with sanitizers of gcc.",
    )
    parser.add_argument(
        "sanitizers", nargs="*", metavar="SANITIZER", help="address or thread (default: both)"
    )
    chosen = parser.parse_args().sanitizers or list(COMPILER_FLAGS)
    if unknown := sorted(set(chosen) - set(COMPILER_FLAGS)):
        parser.error(f"unknown sanitizer {unknown[0]!r}; choose from {', '.join(COMPILER_FLAGS)}")
    if not sys.platform.startswith("linux") or shutil.which("gcc") is None:
        parser.error("sanitizers need Linux and gcc")
    return max(run_tests(sanitizer) for sanitizer in chosen)


def _load(path: str) -> None:
    specification = importlib.util.spec_from_file_location(EXTENSION, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    sys.modules[EXTENSION] = module
    package, _, name = EXTENSION.rpartition(".")
    setattr(importlib.import_module(package), name, module)


if path := os.environ.get(BUILD_VARIABLE):
    _load(path)

if __name__ == "__main__":
    raise SystemExit(main())
