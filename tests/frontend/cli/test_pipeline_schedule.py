"""`shardir pipeline-schedule`: its output, the files that it reads and writes, and its errors."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shardir.frontend.cli.main import app

TEXT = """\
rank 0:   0F0 0F1 0I0 0W0 0I1 0W1
rank 1:   1F0 1I0 1F1 1I1 1W0 1W1

cost         7
bubble rate  14.29%

rank      computes        idle   peak memory
0                6           1             2
1                6           0             2
"""


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["pipeline-schedule", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_schedule_is_printed_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "schedule.csv"
    words = ("--ranks", "2", "--microbatches", "2")
    assert run("zb-h1", *words, "--output", str(path)) == TEXT
    assert path.read_text("utf-8") == "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"
    assert run(str(path)) == TEXT


def test_times_and_memory_are_used() -> None:
    words = ("--ranks", "2", "--microbatches", "2", "--times", "2,3,1", "--transfer", "0.5")
    text = run("search", *words, "--memory", "1,0.5", "--memory-limit", "2")
    assert text.splitlines()[3:] == [
        "cost         17",
        "bubble rate  29.41%",
        "",
        "rank      computes        idle   peak memory",
        "0               12           5             2",
        "1               12           0           1.5",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["1f1b"], "1f1b needs --ranks and --microbatches"),
        (
            ["search", "--ranks", "2", "--microbatches", "2"],
            "search needs --memory-limit, the most activations of a rank",
        ),
        (
            ["1f1b", "--ranks", "2", "--microbatches", "2", "--memory-limit", "2"],
            "--memory-limit applies to `search` only",
        ),
        (
            [
                "search",
                *[
                    "--ranks",
                    "2",
                    "--microbatches",
                    "2",
                    "--memory-limit",
                    "2",
                    "--stages-per-rank",
                    "2",
                ],
            ],
            "search finds schedules with one stage on each rank",
        ),
        (
            ["1f1b.csv"],
            "'1f1b.csv' is neither a file nor a schedule; the schedules are gpipe, 1f1b, "
            "interleaved-1f1b, looped-bfs, interleaved-zero-bubble, zb-h1, zb-h2, zbv, dualpipev "
            "and search",
        ),
        (
            ["1f1b.csv", "--ranks", "2"],
            "--ranks does not apply to the file '1f1b.csv', which states all actions",
        ),
        (
            ["1f1b", *["--ranks", "2", "--microbatches", "2", "--times", "1,2"]],
            "--times is '1,2'; it must be 3 numbers with commas",
        ),
        (
            ["1f1b", *["--ranks", "2", "--microbatches", "2", "--times", "1,2,x"]],
            "--times is '1,2,x'; 'x' is not a number",
        ),
        (
            ["1f1b", *["--ranks", "2", "--microbatches", "2", "--transfer", "nan"]],
            "--transfer is nan; it must be a number that is not negative",
        ),
        (
            ["1f1b", *["--ranks", "2", "--microbatches", "2", "--sends", "later"]],
            "--sends is 'later'; use buffered or rendezvous",
        ),
        (["."], "cannot read '.': Is a directory"),
        (["empty.csv"], "empty.csv: the text has no action; write one line for each rank"),
        (["binary.csv"], "cannot read 'binary.csv': it is not UTF-8 text"),
    ],
)
def test_errors(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from shardir.errors import ShardirError

    monkeypatch.chdir(tmp_path)
    Path("empty.csv").touch()
    Path("binary.csv").write_bytes(b"\xff")
    result = CliRunner().invoke(app, ["pipeline-schedule", *words])
    assert isinstance(result.exception, ShardirError)
    assert str(result.exception) == message
