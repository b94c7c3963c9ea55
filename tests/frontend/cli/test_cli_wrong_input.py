"""Commands end with one message and an exit status for invalid input, never with a traceback."""

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.frontend.cli.command import run
from tests.programs.mutations import ODD

TEXT = """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x],
) -> (f32[4]) {
  %b = exp(%a) : f32[4]
  return %b
}
"""
ENDLESS = """\
func @f(
  %a: f32[],
) -> (f32[]) {
  %w = while(%a) : f32[] {
    (%b: f32[]) =>
    %t = constant(value=true) : bool[]
    yield %t
  } {
    (%c: f32[]) =>
    yield %c
  }
  return %w
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current directory, which has a program and files that are no programs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.ir").write_text(TEXT, "utf-8")
    (tmp_path / "mesh.ir").write_text(TEXT.replace("x=2", "x=1000000000"), "utf-8")
    (tmp_path / "huge.ir").write_text(TEXT.replace("f32[4", f"f32[{10**17}"), "utf-8")
    (tmp_path / "loop.ir").write_text(ENDLESS, "utf-8")
    (tmp_path / "binary.ir").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "cut.npy").write_bytes(b"\x93NUMPY\x01\x00\xff\xff{")
    np.savez(tmp_path / "several.npz", a=np.ones(4))
    np.save(tmp_path / "pickled.npy", np.array([{}], object))
    (tmp_path / "folder").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("run f.ir empty.npy", "cannot read %a from 'empty.npy': No data left in file"),
        ("run f.ir cut.npy", "cannot read %a from 'cut.npy': "),
        ("run f.ir folder", "cannot read %a from 'folder': Is a directory"),
        ("run f.ir none.npy", "cannot read %a from 'none.npy': No such file or directory"),
        (
            "run f.ir pickled.npy",
            "cannot read %a from 'pickled.npy': it holds Python objects; write an array of numbers",
        ),
        (
            "run f.ir f.ir",
            "cannot read %a from 'f.ir': it is not a .npy file; write one with np.save",
        ),
        (
            "run f.ir several.npz",
            "cannot read %a from 'several.npz': it holds several arrays; write one with np.save",
        ),
        ("run f.ir --save f.ir", "cannot make the folder 'f.ir': File exists"),
        ("run f.ir --save f.ir/x", "cannot make the folder 'f.ir/x': Not a directory"),
        (
            "run mesh.ir",
            "mesh @m has 1000000000 devices, and one process runs programs for at most 4096; use "
            "a smaller mesh",
        ),
        ("run huge.ir", "@f needs 710.5 PiB of memory, and this machine has "),
        ("opt huge.ir --verify", "@f needs 710.5 PiB of memory, and this machine has "),
        ("opt mesh.ir --verify", "mesh @m has 1000000000 devices, and one process runs "),
        (
            "opt mesh.ir --to stablehlo --passes propagate,reshard,partition",
            "StableHLO lists the devices of every collective, and mesh @m has 1000000000; export "
            "programs for at most 65536",
        ),
        ("emit mesh.ir --target gpu -o out --selftest", "mesh @m has 1000000000 devices, and "),
        (
            "emit loop.ir --target ipu -o out --selftest --selftest-seconds 0.05",
            "the reference interpreter does not finish the self-test of @f: the program has not "
            "ended after 0.05 seconds, and is at ",
        ),
        ("emit f.ir --target ipu -o f.ir", "cannot write 'f.ir/f.cpp': File exists"),
        ("emit f.ir --target ipu -o out --input empty.npy", "cannot read %a from 'empty.npy': "),
        ("opt binary.ir", "cannot read 'binary.ir': it is not UTF-8 text"),
        ("solve binary.ir", "cannot read 'binary.ir': it is not UTF-8 text"),
        ("calibrate binary.ir", "cannot read the table 'binary.ir': it is not UTF-8 text"),
        (
            "simulate f.ir --machine binary.toml",
            "cannot read the machine description 'binary.toml': it is not UTF-8 text",
        ),
        ("opt folder", "cannot read 'folder': Is a directory"),
        (
            "explain step.py",
            "'step.py' is a Python file; name a function of it, such as step:function",
        ),
        ("opt f.ir --dump-dir f.ir", "cannot write the program into 'f.ir': File exists"),
        ("explain f.ir --without result²", "@f has no "),
        ("emit os:getcwd --target gpu -o out --mesh x=²", "'x=²' is not a mesh; write it as "),
    ],
)
def test_invalid_input_prints_one_message(
    words: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words.split()) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {said}")
    assert len(said) < 60 or said.endswith((" ", "; ")) or error.splitlines()[0] == f"error: {said}"


LONG_NAME = "a" * 300
"""More characters than a name in a file system may have."""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("explain NAME", "cannot read 'NAME': File name too long"),
        ("simulate NAME:f --machine a100x8", "there is no module 'NAME'"),
        ("test NAME", "cannot read 'NAME': File name too long"),
        ("opt f.ir --load NAME", "cannot load 'NAME': ModuleNotFoundError: No module named 'NAME'"),
        ("opt f.ir --load NAME.py", "cannot load 'NAME.py': the folder 'HERE' has no such file"),
    ],
)
def test_a_name_that_is_too_long_for_a_file_is_an_error(
    words: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words.replace("NAME", LONG_NAME).split()) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "error: " + said.replace("NAME", LONG_NAME).replace("HERE", os.getcwd())
    )


def test_a_folder_that_cannot_be_read_is_an_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)  # The superuser can read every folder.
    assert run("explain", "folder") == 1
    assert capsys.readouterr().err == "error: cannot read 'folder': Permission denied\n"


@pytest.mark.parametrize("words", ["run f.ir --seed -1", "emit f.ir --target gpu -o o --seed -1"])
def test_negative_seeds_are_errors(
    words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words.split()) == 2
    assert "Invalid value for '--seed'" in capsys.readouterr().err


WORDS = (
    "opt f.ir --passes propagate --to stablehlo --locations --rule op:i->i",
    "run f.ir --seed 3 --save out --passes propagate,reshard,partition",
    "explain f.ir --value %b --what-if %a:f32[4@x] --without %a --order --function f",
    "emit f.ir --target ipu -o out --selftest --seed 1 --option strided=gcl",
)


def test_misspelled_words_have_suggestions(
    folder: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    for seed in range(2000 if request.config.getoption("--long") else 25):
        rng = random.Random(seed)
        words = rng.choice(WORDS).split()
        at = rng.randrange(1, len(words))
        match rng.randrange(3):
            case 0:
                del words[at]
            case 1:
                words[at] = rng.choice([odd for odd in ODD if "\x00" not in odd])
            case _:
                words[at], words[-1] = words[-1], words[at]
        try:
            assert run(*words) in (0, 1, 2), words
        except Exception as error:
            raise AssertionError(f"seed {seed}: {words}") from error
        assert len(capsys.readouterr().err) < 20_000


def command(*words: str, stdin: bytes = b"", stdout: str | None = None) -> tuple[int, str]:
    """Return the exit status and the standard error of the command in a separate process."""
    with open(stdout or "/dev/null", "wb") as output:
        ended = subprocess.run(
            [sys.executable, "-m", "shardir", *words],
            input=stdin,
            stdout=output,
            stderr=subprocess.PIPE,
        )
    return ended.returncode, ended.stderr.decode()


def test_errors_do_not_show_the_script_that_runs_the_command(folder: Path) -> None:
    script = folder / "bin" / "shardir"
    script.parent.mkdir()
    script.write_text("import sys\nfrom shardir.cli import main\n\nsys.exit(main())\n")
    words = ("explain", "json:dumps", "--mesh", "data=4,data=2")
    ended = subprocess.run([sys.executable, script, *words], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == (
        "error: the axes of a Mesh are ('data', 'data'); every name may occur only once; rename "
        "one axis\n"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_an_unwritable_output_is_an_error(folder: Path) -> None:
    assert command("opt", "f.ir", stdout="/dev/full") == (
        1, "error: cannot write the output: No space left on device\n",
    )  # fmt: skip


def test_standard_input_that_is_no_text_is_an_error(folder: Path) -> None:
    assert command("opt", "-", stdin=b"\xff\xfe") == (
        1, "error: cannot read '<stdin>': it is not UTF-8 text\n",
    )  # fmt: skip


def test_errors_of_commands_have_no_note_on_their_traceback(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("simulate", "f.ir", "--machine", "a100x9") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: there is no machine 'a100x9'; did you mean 'a100x8'?")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("explain", "f.ir", "--to", "svg"),
            "Invalid value for '--to': 'svg' is not one of 'text', 'json', 'trace-events', "
            "'model-explorer'.",
        ),
        (
            ("plan", "f.ir", "--mesh", "2", "--export", "svg"),
            "Invalid value for '--export': 'svg' is not one of 'jax', 'ir', 'sdy'.",
        ),
    ],
)
def test_an_unknown_format_is_an_error_with_the_known_ones(
    folder: Path, words: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    assert capfd.readouterr().err.endswith(f"Error: {message}\n")
