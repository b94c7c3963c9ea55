"""The command `shardir calibrate`."""

import tomllib
from pathlib import Path

import pytest

from shardir import ShapeDtypeStruct, jit, numpy
from shardir.frontend.profiling import machine_calibration, operation_benchmarks
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
            "--output is an option of --local and --program; this fit is printed",
        ),
        (
            [str(table), "--machine", "a100x8"],
            "--program and --machine belong together, with a table of steps",
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
    monkeypatch.setattr(machine_calibration, "MAX_GROUP_DEVICES", 2)
    monkeypatch.setattr(machine_calibration, "ROUND_COUNT", 1)
    for name, sizes in (
        ("UNARY", ("exp",)),
        ("BINARY", ()),
        ("READ_BYTES", (65536, 262144)),
        ("CUMULATED_ROWS", (16,)),
        ("TRANSPOSED_SIZES", (64, 128)),
        ("SORTED_LENGTHS", (16, 64)),
        ("SORTED_ELEMENTS", 4096),
    ):
        monkeypatch.setattr(operation_benchmarks, name, sizes)
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path / "cache"))
    assert run("calibrate", "--local") == 0
    printed = capsys.readouterr().out
    path = tmp_path / "cache" / "local.toml"
    assert printed.splitlines()[-1] == f"wrote {path}; use it as the machine local"
    machine = load_machine("local", axes={"d": 2})
    assert machine.description.is_shared
    assert machine.matmul_seconds(2 * 64**3, 3 * 4 * 64**2, "f32") < 1
    assert 0 < machine.collective_seconds("all-reduce", 100_000, ("d",)) < 1
    operations = machine.description.operations
    assert set(operations) == {"exp", "sum", "max", "min", "cumsum", "transpose", "sort"}
    assert all(set(times) == {"default", "f64"} for times in operations.values())
    assert [size for size, _ in operations["sort"]["f64"].points] == [16, 64]
    assert machine.call_seconds(2) > 0
    assert machine.description.backend is not None
    assert machine.description.backend.name == "cpu"
    lowered = jit(lambda x: numpy.sort(x, axis=0)).lower(ShapeDtypeStruct((64, 2), "float32"))
    assert 0 < lowered.simulate("local").step_seconds < 1
    assert all("assumed" not in source for source in machine.description.sources().values())


def test_an_output_that_cannot_be_written_is_an_error_before_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class MeasuredError(Exception):
        """The measurements began."""

    def measure(progress: object) -> None:
        raise MeasuredError

    monkeypatch.setattr(machine_calibration, "measure_local_machine", measure)
    assert run("calibrate", "--local", "--output", str(tmp_path)) == 1
    assert capsys.readouterr().err == f"error: cannot write {str(tmp_path)!r}: Is a directory\n"
    old, new = tmp_path / "old.toml", tmp_path / "folder" / "new.toml"
    old.write_text("# A comment", "utf-8")
    for path in (old, new):
        with pytest.raises(MeasuredError):
            run("calibrate", "--local", "--output", str(path))
    assert (old.read_text("utf-8"), new.exists()) == ("# A comment", False)


STEPS = """
import numpy as np
from shardir.machine import load_machine


class Step:
    def __init__(self, gpus, batch):
        self.gpus, self.batch = gpus, batch

    def simulate(self, machine):
        machine = load_machine(machine, axes={"data": self.gpus})
        self.step_seconds = machine.matmul_seconds(self.batch * 1e12, 1.0, "bf16")
        self.step_seconds += machine.collective_seconds("all-reduce", 1e9, ("data",))
        return self
"""


def test_measured_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "measured_steps.py").write_text(STEPS, encoding="utf-8")
    rows = ["# GPUs,batch,iteration time (ms)"]
    for gpus in (8, 32):
        machine = load_machine("a100x8", axes={"data": gpus})
        for batch in (1, 8, 32):
            seconds = machine.matmul_seconds(batch * 1e12, 1.0, "bf16") / 0.8
            seconds += machine.collective_seconds("all-reduce", 1e9, ("data",))
            rows.append(f"{gpus},{batch},{seconds * 1e3}")
    (tmp_path / "steps.csv").write_text("\n".join(rows), encoding="utf-8")
    words = ("calibrate", "steps.csv", "--program", "measured_steps:Step", "--machine", "a100x8")
    assert run(*words, "--fit", "matmul", "--output", "fitted.toml") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("a100x8, 6 steps\nmatmul     times 0.8\nerror      0.0")
    assert printed.endswith(" mean (5-fold cross-validation)\n\nwrote fitted.toml\n")
    fitted = load_machine("fitted.toml").matmul_seconds(1e12, 1.0, "bf16")
    plain = load_machine("a100x8").matmul_seconds(1e12, 1.0, "bf16")
    assert fitted == pytest.approx(plain / 0.8, rel=1e-3)
    assert run(*words, "--fit", "matmul") == 0
    assert "[matmul.bf16]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "batch,gpus\n1,2\n",
            "steps.csv has 0 columns of times; measured steps have one column, seconds or a name "
            "that ends in (s), (ms) or (us)",
        ),
        ("batch,seconds\n1,fast\n", "steps.csv: row 2 is '1,fast'; it has no time"),
        (
            "gpus,seconds\n8,1\n",
            "measured_steps:Step makes no program for step 1 of steps.csv: TypeError: "
            "Step.__init__() missing 1 required positional argument: 'batch'",
        ),
    ],
)
def test_wrong_steps(
    text: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "measured_steps.py").write_text(STEPS, encoding="utf-8")
    (tmp_path / "steps.csv").write_text(text, encoding="utf-8")
    words = ("calibrate", "steps.csv", "--program", "measured_steps:Step", "--machine", "a100x8")
    assert run(*words) == 1
    assert capsys.readouterr().err.partition("\n")[0] == f"error: {message}"
