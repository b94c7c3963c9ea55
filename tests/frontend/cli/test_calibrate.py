"""The command `shardir calibrate`."""

import tomllib
from pathlib import Path

import pytest

from shardir.frontend.profiling import machine_calibration
from shardir.machine import load_machine
from tests.frontend.cli.command import run

VTRAIN = Path(__file__).parents[2] / "data/vtrain"


def test_a_table_of_vtrain(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("calibrate", str(VTRAIN / "AR_GPU8_1M_1024M_LUT")) == 0
    printed = capsys.readouterr().out
    summary, _, entry = printed.partition("\n\n")
    assert summary == (
        "all-reduce over 8 devices, 256 sizes\n"
        "latency    79.1 us\n"
        "bandwidth  227.5 GB/s\n"
        "error      1.78% mean, 17.6% worst\n"
        "validated  1.80% mean (5-fold cross-validation)"
    )
    ((fit,),) = (link["collectives"] for link in tomllib.loads(entry)["links"].values())
    assert (fit["kind"], fit["group"]) == ("all-reduce", 8)


def test_invalid_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text("bytes,seconds\n1000,1\n2000,2\n", encoding="utf-8")
    for words, message in (
        ([], "name a table of a collective, or --local to measure this machine"),
        (
            [str(table), "--local"],
            "name a table of a collective, or --local to measure this machine",
        ),
        (
            [str(table), "--output", "x.toml"],
            "--output is an option of --local; a fit is printed",
        ),
        (
            [str(table)],
            f"the number of devices is not known for {str(table)!r}; state it with --group",
        ),
    ):
        assert run("calibrate", *words) == 1
        assert capsys.readouterr().err == f"error: {message}\n"
    assert run("calibrate", str(table), "--group", "2", "--kind", "all_gather") == 0
    assert capsys.readouterr().out.startswith("all-gather over 2 devices, 2 sizes\n")


def test_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_calibration, "MATMUL_SIZES", (32, 64, 128))
    monkeypatch.setattr(machine_calibration, "MATMUL_DTYPES", ("f32",))
    monkeypatch.setattr(machine_calibration, "COPY_BYTES", (65536, 131072, 262144))
    monkeypatch.setattr(machine_calibration, "COLLECTIVE_BYTES", (65536, 262144))
    monkeypatch.setattr(machine_calibration, "LARGEST_GROUP", 2)
    monkeypatch.setattr(machine_calibration, "ROUND_COUNT", 1)
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "cache"))
    assert run("calibrate", "--local") == 0
    printed = capsys.readouterr().out
    path = tmp_path / "cache" / "local.toml"
    assert printed.splitlines()[-1] == f"wrote {path}; use it as the machine local"
    machine = load_machine("local", axes={"d": 2})
    assert machine.description.is_shared
    assert machine.matmul_seconds(2 * 64**3, 3 * 4 * 64**2, "f32") < 1
    assert 0 < machine.collective_seconds("all-reduce", 100_000, ("d",)) < 1
    assert all("assumed" not in source for source in machine.description.sources().values())
    assert run("calibrate", "--local", "--output", str(tmp_path)) == 1
    assert capsys.readouterr().err == f"error: cannot write {str(tmp_path)!r}: Is a directory\n"
