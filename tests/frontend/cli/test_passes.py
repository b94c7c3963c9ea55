"""`shardir passes` describes every registered pass, and `--version` prints the version."""

from importlib.metadata import version

import pytest
from typer.testing import CliRunner

import shardir
from shardir.errors import ShardirError
from shardir.frontend.cli.main import app
from shardir.passes import PASSES, Pipeline


def output_of(*words: str) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_has_every_pass_with_its_options() -> None:
    lines = output_of("passes").splitlines()
    assert [line.partition(":")[0] for line in lines if line and line[0] != " "][:-2] == sorted(
        PASSES
    )
    at = lines.index("partition: Replace every value by the shard that one device holds.")
    assert lines[at + 1] == "    planner=<optimal|greedy>  default: optimal"


def test_the_line_of_a_pass_is_a_complete_sentence() -> None:
    lines = output_of("passes").partition("\ndefault pipeline")[0].splitlines()
    passes = [line for line in lines if line and not line.startswith(" ")]
    assert [line for line in passes if not line.endswith(".")] == []


def test_every_listed_default_is_a_valid_option() -> None:
    name, options = "", []
    for line in output_of("passes").partition("\ndefault pipeline")[0].splitlines():
        if not line.startswith(" "):
            name = line.partition(":")[0]
        elif "default: " in line:
            option, default = line.strip().partition("=")[0], line.partition("default: ")[2]
            assert str(Pipeline.parse(f"{name}{{{option}={default}}}")) == name
            options.append(f"{name}.{option}")
    assert {"combine-collectives.limit", "partition.planner", "propagate.level"} <= set(options)


def test_one_pass_is_described_completely() -> None:
    text = output_of("passes", "combine-collectives")
    assert text == (
        "combine-collectives: Combine collectives of each kind up to `limit` bytes.\n"
        "\n"
        "Bytes are those of the results on one device. A collective of `limit` bytes or more is "
        "not\n"
        "combined.\n"
        "\n"
        "options\n"
        "    limit=<int>  default: 4194304\n"
    )


def test_unknown_pass_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ShardirError) as caught:
        CliRunner().invoke(app, ["passes", "reshardd"], catch_exceptions=False)
    assert str(caught.value) == "no pass is called 'reshardd'; did you mean 'reshard'?"
    with pytest.raises(ShardirError) as caught:
        CliRunner().invoke(app, ["passes", "double-negation"], catch_exceptions=False)
    assert str(caught.value) == (
        "no pass is called 'double-negation'; `shardir passes` lists all, and --load mypass.py "
        "loads the passes of a file"
    )


def test_version_is_that_of_the_installed_package() -> None:
    assert output_of("--version") == f"shardir {version('shardir')}\n"
    assert shardir.__version__ == version("shardir")
