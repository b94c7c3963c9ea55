"""Fits of measured collectives, and the tables of vTrain."""

from pathlib import Path

import numpy as np
import pytest

from shardir.errors import MachineError
from shardir.machine import load_machine
from shardir.machine.alpha_beta import fit_alpha_beta, group_of_bus_bandwidth
from shardir.machine.collective_table import CollectiveTable, read_table

VTRAIN = Path(__file__).parents[2] / "data/vtrain"
MEAN_ERROR = 0.03


def test_a_fit_finds_latency_and_bandwidth() -> None:
    nbytes = np.geomspace(1e3, 1e9, 50)
    seconds = 2e-5 + 1.5 * nbytes / 1e11
    fit = fit_alpha_beta(CollectiveTable(tuple(nbytes), tuple(seconds)), "all-reduce", 4)
    assert fit.latency == pytest.approx(2e-5)
    assert fit.bandwidth == pytest.approx(1e11)
    assert fit.mean_error < 1e-9
    assert fit.validated_error < 1e-9


def test_the_latency_is_not_negative() -> None:
    table = CollectiveTable((1e6, 2e6, 3e6), (0.5e-3, 2e-3, 3e-3))
    fit = fit_alpha_beta(table, "all-gather", 2)
    assert fit.latency == 0.0
    assert 0.2e9 < fit.bandwidth < 1.5e9


@pytest.mark.parametrize("group", [4, 8])
def test_vtrain_all_reduces(group: int) -> None:
    table = read_table(VTRAIN / f"AR_GPU{group}_1M_1024M_LUT")
    assert group_of_bus_bandwidth(table) == group
    fit = fit_alpha_beta(table, "all-reduce", group)
    assert fit.mean_error < MEAN_ERROR
    assert fit.validated_error < MEAN_ERROR
    machine = load_machine("a100x8", axes={"x": group})
    predicted = [machine.collective_seconds("all-reduce", n, ("x",)) for n in table.nbytes]
    assert np.mean(np.abs(np.array(predicted) / table.seconds - 1)) < 0.01


@pytest.mark.parametrize(
    ("name", "group", "latency", "bandwidth"),
    [
        ("a100x8", 2, 46e-6, 193e9),
        ("v100x8", 2, 24e-6, 22.6e9),
        ("v100x8", 4, 45e-6, 85.8e9),
        ("v100x8", 8, 76e-6, 136e9),
    ],
)
def test_tables_agree_with_published_fits(
    name: str, group: int, latency: float, bandwidth: float
) -> None:
    machine = load_machine(name, axes={"x": group})
    nbytes = np.arange(1, 1025) * 2**20
    fitted = latency + 2 * (group - 1) / group * nbytes / bandwidth
    predicted = [machine.collective_seconds("all-reduce", n, ("x",)) for n in nbytes.tolist()]
    assert np.mean(np.abs(np.array(predicted) / fitted - 1)) < 0.02


@pytest.mark.parametrize(
    ("table", "kind", "group", "message"),
    [
        (
            CollectiveTable((1.0, 2.0), (1.0, 2.0)),
            "gather",
            2,
            "'gather' is not a collective; the collectives are all-reduce, all-gather, "
            "reduce-scatter, all-to-all, collective-permute",
        ),
        (
            CollectiveTable((1.0, 2.0), (1.0, 2.0)),
            "all-reduce",
            1,
            "the group has 1 device; a collective has at least 2",
        ),
        (
            CollectiveTable((1.0,), (1.0,)),
            "all-reduce",
            2,
            "a fit needs at least 2 sizes, got 1",
        ),
        (
            CollectiveTable((1.0, 2.0), (2.0, 1.0)),
            "all-reduce",
            2,
            "the times do not grow with the bytes; measure larger sizes",
        ),
    ],
)
def test_wrong_fits(table: CollectiveTable, kind: str, group: int, message: str) -> None:
    with pytest.raises(MachineError) as caught:
        fit_alpha_beta(table, kind, group)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a,b\n1,2\n",
            "PATH has the columns a, b; a table of a collective has a column bytes or size(B), and "
            "a column seconds or time(ms) or time(us) or time(ns)",
        ),
        (
            "",
            "PATH has the columns (none); a table of a collective has a column bytes or size(B), "
            "and a column seconds or time(ms) or time(us) or time(ns)",
        ),
        (
            "bytes,seconds\n1,2\nx,3\n",
            "PATH: row 3 is 'x,3'; bytes and time are positive numbers",
        ),
        ("bytes,seconds\n1,2\n1,3\n", "PATH has 1 size; a table has at least 2"),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MachineError) as caught:
        read_table(path)
    assert str(caught.value) == message.replace("PATH", str(path))


def test_a_missing_table(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    with pytest.raises(MachineError) as caught:
        read_table(path)
    assert str(caught.value) == f"cannot read the table {str(path)!r}: No such file or directory"
    assert group_of_bus_bandwidth(CollectiveTable((1.0, 2.0), (1.0, 2.0))) is None
