"""Completion of commands, options, passes, targets and files in bash, fish and zsh."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardir.passes import PASSES

COMMAND = Path(sys.executable).with_name("shardir")
INSTALLED = pytest.mark.skipif(not COMMAND.exists(), reason="the command shardir is not installed")

BASH = """
eval "$(_SHARDIR_COMPLETE=source_bash shardir)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shardir_completion shardir
printf '%s\\n' "${COMPREPLY[@]}"
complete -p shardir
"""
FISH = """
_SHARDIR_COMPLETE=source_fish shardir | source
complete -C (string join ' ' -- $argv)
"""
ZSH = """
compdef() { }
_arguments() { print -r -- "$@" }
_files() { print -l -- * }
eval "$(_SHARDIR_COMPLETE=source_zsh shardir)"
words=("$@")
CURRENT=$#
_shardir_completion
"""
SCRIPTS = {
    "bash": ("--norc", "-c", BASH, "bash"),
    "fish": ("--no-config", "-c", FISH),
    "zsh": ("-f", "-c", ZSH, "zsh"),
}

CASES = [
    (["shardir", "ru"], ["run"]),
    (["shardir", "opt", "f.ir", "--ver"], ["--verify"]),
    (["shardir", "passes", "resh"], ["reshard"]),
    (["shardir", "opt", "f.ir", "--passes", "cse,resh"], ["cse,reshard"]),
    (["shardir", "opt", "f.ir", "--passes", "def"], ["default"]),
    (["shardir", "opt", "f.ir", "--to", "st"], ["stablehlo"]),
    (["shardir", "emit", "f.ir", "--target", ""], ["gpu", "ipu"]),
    (["shardir", "simulate", "f.ir", "--machine", "h100x"], ["h100x8"]),
]


def completed(protocol: dict[str, str]) -> tuple[list[str], int]:
    """Return the lines that the command prints in a protocol of completion, and its status."""
    code = "import sys; from shardir.cli import main; sys.argv = ['shardir']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **protocol},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines(), done.returncode


@INSTALLED
@pytest.mark.parametrize("shell", SCRIPTS)
@pytest.mark.parametrize(("words", "expected"), CASES, ids=lambda x: " ".join(x))
def test_shells_complete_words(shell: str, words: list[str], expected: list[str]) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [program, *SCRIPTS[shell], *words],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )

    assert done.stderr == ""
    for each in expected:
        assert each in done.stdout
    if shell == "bash":  # Where no word fits, `-o default` completes files.
        assert done.stdout.splitlines() == [
            *expected,
            "complete -o default -F _shardir_completion shardir",
        ]


def test_passes_are_those_that_shardir_passes_lists() -> None:
    words = {"COMP_WORDS": "shardir passes ", "COMP_CWORD": "2"}
    lines, status = completed({"_SHARDIR_COMPLETE": "complete_bash", **words})

    assert (lines, status) == (PASSES.names(), 0)


def test_words_that_no_command_defines_are_files() -> None:
    words = {"_TYPER_COMPLETE_ARGS": "shardir run f"}
    assert completed({"_SHARDIR_COMPLETE": "complete_zsh", **words}) == (["_files"], 0)

    action = {"_TYPER_COMPLETE_FISH_ACTION": "is-args"}
    assert completed({"_SHARDIR_COMPLETE": "complete_fish", **action, **words}) == ([], 1)


def test_the_help_of_an_option_is_one_line() -> None:
    words = {"_TYPER_COMPLETE_ARGS": "shardir opt --pas", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    lines, status = completed({"_SHARDIR_COMPLETE": "complete_fish", **words})
    assert [line.partition("\t")[0] for line in lines] == ["--passes"]
    assert status == 0
