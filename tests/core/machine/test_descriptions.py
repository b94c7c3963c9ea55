"""Machine descriptions: every number has a source, and files with faults are refused."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardir.errors import MachineError
from shardir.machine import load_machine
from shardir.machine.description_files import DESCRIPTIONS, list_descriptions, read_description
from shardir.machine.toml_text import format_toml

SMALL: dict[str, Any] = {
    "description": "a small machine",
    "memory": {"capacity": 1000, "bandwidth": 1e9, "efficiency": 0.5, "source": "data sheet"},
    "launch": {"seconds": 1e-6, "source": "data sheet"},
    "matmul": {
        "f32": {
            "flops_per_second": 1e12,
            "efficiency": [[1e6, 0.25], [1e9, 0.5]],
            "source": "data sheet",
        }
    },
    "pointwise": {"default": {"flops_per_second": 1e11, "efficiency": 1.0, "source": "data sheet"}},
    "host": {"bandwidth": 1e9, "efficiency": 0.5, "latency": 1e-5, "source": "data sheet"},
    "links": {
        "bus": {
            "topology": "switch",
            "group_size": 4,
            "bandwidth": 1e9,
            "efficiency": 1.0,
            "latency": 1e-5,
            "hop_latency": 1e-6,
            "source": "data sheet",
        }
    },
}


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the small machine with another value at a path of keys; `None` removes the key."""
    content = tomllib.loads(format_toml(SMALL))
    *parents, last = path.split(".")
    table = content
    for parent in parents:
        table = table.setdefault(parent, {})
    if value is None:
        del table[last]
    else:
        table[last] = value
    return content


def write(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "small.toml"
    path.write_text(format_toml(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", list_descriptions())
def test_every_table_of_every_description_has_a_source(name: str) -> None:
    description = read_description(name)
    sources = description.sources()
    assert {"memory", "launch", "pointwise.default"} <= set(sources)
    assert all(len(text) > 10 for text in sources.values())
    machine = load_machine(name)
    assert machine.name == name
    assert machine.memory_bytes >= 2**34
    assert machine.peak_flops("f32") > 1e12
    assert description.text


def test_the_issue_names_these_machines() -> None:
    names = {"a100x8", "ethernet-cpu", "h100x8", "tpu-v4", "tpu-v5p", "tpu-v6e", "tpu-v7", "v100x8"}
    assert names <= set(list_descriptions())


def test_assumed_numbers_are_listed() -> None:
    assert "matmul.f32" in read_description("a100x8").assumptions()
    assert "matmul.bf16" not in read_description("a100x8").assumptions()


def test_a_description_is_read(tmp_path: Path) -> None:
    machine = load_machine(write(tmp_path, SMALL), axes={"data": 4})
    assert machine.name == "small"
    assert machine.memory_bytes == 1000
    assert machine.peak_flops("f32") == 1e12
    assert machine.launch_seconds == 1e-6
    assert machine.host_seconds(1e6) == pytest.approx(2e-3 + 1e-5)
    assert machine.matmul_seconds(1e9, 0, "f32") == pytest.approx(2e-3 + 1e-6)
    assert machine.matmul_seconds(10**7.5, 0, "f32") == pytest.approx(
        10**7.5 / (1e12 * 0.25 * 2**0.5) + 1e-6
    )
    assert machine.pointwise_seconds(0, 1e6, "i32") == pytest.approx(2e-3 + 1e-6)
    assert machine.pointwise_seconds(1e9, 1e6, "i32") == pytest.approx(10e-3 + 1e-6)


def test_a_description_changes_another(tmp_path: Path) -> None:
    path = write(tmp_path, {"base": "a100x8", "launch": {"seconds": 5e-6, "source": "measured"}})
    machine, base = load_machine(path, axes={"d": 8}), load_machine("a100x8", axes={"d": 8})
    assert machine.launch_seconds == 5e-6
    assert machine.peak_flops("bf16") == base.peak_flops("bf16")
    seconds = machine.collective_seconds("all-reduce", 1e8, ("d",))
    assert seconds == base.collective_seconds("all-reduce", 1e8, ("d",))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("memory.bandwidth", "fast", "memory.bandwidth is 'fast'; it must be a number"),
        ("memory.bandwidth", 0, "memory.bandwidth is 0; it must be a positive number"),
        ("memory.bandwidth", 1e-320, "memory.bandwidth is 1e-320; it must be a positive number"),
        (
            "memory.bandwidth",
            10**400,
            "memory.bandwidth is too large; it must be a positive number",
        ),
        (
            "memory.efficiency",
            [[10**400, 0.5]],
            "memory.efficiency has the pair [inf, 0.5]; sizes are positive, fractions in (0, 1]",
        ),
        (
            "links.bus.collectives",
            3,
            "links.bus.collectives must be tables; write [[links.bus.collectives]]",
        ),
        (
            "matmul.f32.efficiency",
            None,
            "matmul.f32.efficiency is missing; write the achieved fraction of the peak, such as "
            "0.8, or pairs of a size and a fraction, such as [[1e6, 0.5], [1e9, 0.8]]",
        ),
        (
            "matmul.f32.efficiency",
            1.5,
            "matmul.f32.efficiency has the pair [1.0, 1.5]; sizes are positive, fractions in "
            "(0, 1]",
        ),
        (
            "matmul.f32.efficiency",
            [[1e6, 0.1], [2e6, 0.9]],
            "matmul.f32.efficiency rises so fast before [2000000.0, 0.9] that a larger call would "
            "take less time; the fraction may grow at most as fast as the size",
        ),
        (
            "matmul.f32.efficiency",
            [[2e6, 0.1], [1e6, 0.2]],
            "matmul.f32.efficiency must be a fraction, or pairs of a size and a fraction in order "
            "of size",
        ),
        (
            "launch.source",
            None,
            "launch.source is missing; state where the numbers of this table come from: a data "
            'sheet, a publication, or "fitted to ..."',
        ),
        (
            "links.bus.latency",
            None,
            "links.bus.latency is missing; add the number, and its source to the table",
        ),
        (
            "links.bus.topology",
            "mesh",
            "links.bus.topology is 'mesh'; it must be one of ('switch', 'ring', 'torus', 'tree')",
        ),
        (
            "links.bus.topology",
            "torus",
            "links.bus.shape must be stated for a torus, and only for a torus",
        ),
        (
            "links.bus.bandwith",
            1e9,
            "links.bus.bandwith is unknown; did you mean 'bandwidth'? keys are bandwidth, "
            "collectives, efficiency, group_size, hop_latency, latency, rings_across, shape, "
            "source, topology, "
            "wrap_multiple",
        ),
        (
            "links.bus.collectives",
            [{"kind": "gather", "group": 2, "source": "x"}],
            "links.bus.collectives[0].kind: 'gather' is not a collective; the collectives are "
            "all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute",
        ),
        (
            "links.bus.collectives",
            [{"kind": "all-reduce", "group": 1, "source": "x"}],
            "links.bus.collectives[0].group is 1; it must be a number of devices, at least 2",
        ),
        (
            "links.bus.collectives",
            [{"kind": "all-reduce", "group": 2, "source": "x", "table": [[2.0, 1.0], [1.0, 2.0]]}],
            "links.bus.collectives[0].table must be at least two pairs of bytes and seconds, in "
            "order of bytes",
        ),
        (
            "host",
            {"bandwidth": 1e9, "efficiency": 1.0, "source": "data sheet"},
            "host.latency is missing; add the number, and its source to the table",
        ),
        (
            "host",
            {"bandwidth": 1e9, "efficiency": 1.0, "latency": 0.0},
            "host.source is missing; state where the numbers of this table come from: a data "
            'sheet, a publication, or "fitted to ..."',
        ),
        (
            "host",
            {"bandwidth": 1e9, "efficency": 1.0},
            "host.efficency is unknown; did you mean 'efficiency'? keys are bandwidth, efficiency, "
            "latency, source",
        ),
        ("devices_share_processor", 1, "devices_share_processor must be true or false"),
        ("launch.each_operation", 0, "launch.each_operation must be true or false"),
        ("links.bus.rings_across", "x", "links.bus.rings_across must be true or false"),
        (
            "base",
            "a101",
            "base is 'a101'; it must be one of "
            + ", ".join(list_descriptions())
            + ", or a file that ends in .toml",
        ),
        ("base", "small.toml", "base is 'small.toml'; more than 8 files change others"),
    ],
)
def test_faults_name_file_and_key(tmp_path: Path, path: str, value: object, message: str) -> None:
    file = write(tmp_path, changed(path, value))
    with pytest.raises(MachineError) as caught:
        load_machine(file)
    assert str(caught.value) == f"{file}: {message}"


@pytest.mark.parametrize(
    ("section", "key", "text"),
    [
        ("memory", "memory.capacity", '[memory]\ncapacity = 80e9  # bytes\nsource = "..."'),
        ("launch", "launch.seconds", '[launch]\nseconds = 5e-6\nsource = "..."'),
        (
            "host",
            "host.bandwidth",
            "[host]\nbandwidth = 32e9  # bytes per second in one direction\nefficiency = 0.8\n"
            'latency = 1e-5\nsource = "..."',
        ),
        (
            "matmul",
            "matmul.f32.flops_per_second",
            '[matmul.f32]\nflops_per_second = 1e12\nefficiency = 0.8\nsource = "..."',
        ),
    ],
)
def test_numbers_that_a_file_lacks_are_refused(
    tmp_path: Path, section: str, key: str, text: str
) -> None:
    file = write(tmp_path, changed(section, None))
    machine = load_machine(file)
    uses: dict[str, Callable[[], object]] = {
        "memory": lambda: machine.memory_bytes,
        "launch": lambda: machine.launch_seconds,
        "host": lambda: machine.host_seconds(1.0),
        "matmul": lambda: machine.matmul_seconds(1.0, 1.0, "f32"),
    }
    with pytest.raises(MachineError) as caught:
        uses[section]()
    assert str(caught.value) == (
        f"machine 'small' has no {key}; add it to {file} with its source:\n{text}"
    )


def test_a_missing_bandwidth_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, changed("memory", None))
    with pytest.raises(MachineError) as caught:
        load_machine(file).pointwise_seconds(1.0, 1.0, "f32")
    assert str(caught.value) == (
        f"machine 'small' has no memory.bandwidth; add it to {file} with its source:\n"
        "[memory]\nbandwidth = 2e12  # bytes per second\nefficiency = 0.8\n"
        'source = "..."'
    )


def test_unknown_machines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MachineError) as caught:
        load_machine("a100x9")
    assert str(caught.value) == (
        "there is no machine 'a100x9'; did you mean 'a100x8'? machines are "
        f"{', '.join(list_descriptions())}, local, or a path that ends in .toml"
    )
    missing = tmp_path / "missing.toml"
    with pytest.raises(MachineError) as caught:
        load_machine(missing)
    assert str(caught.value) == (
        f"cannot read the machine description {str(missing)!r}: No such file or directory"
    )
    missing.write_text("memory = [", encoding="utf-8")
    with pytest.raises(MachineError, match=r"missing\.toml is not valid TOML: "):
        load_machine(missing)
    monkeypatch.setenv("SHARDIR_CACHE_DIR", str(tmp_path))
    with pytest.raises(MachineError) as caught:
        load_machine("local")
    assert str(caught.value) == (
        "this machine has not been measured; run: shardir calibrate --local (it writes "
        f"{tmp_path / 'local.toml'})"
    )


def test_the_machine_local_needs_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SHARDIR_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(MachineError) as caught:
        load_machine("local")
    assert str(caught.value) == (
        "the folder with the description of the machine 'local' is unknown, because the user has "
        "no home folder; set SHARDIR_CACHE_DIR to a folder"
    )


def test_text_round_trip() -> None:
    content = {
        "text": 'quotes " and \\ and\nlines',
        "empty": {},
        "numbers": [1, 2.5, float("inf"), True],
        "table": {"a b": {"x": 1e-7}, "rows": [{"k": 1}, {"k": [[1, 2.0], [3, 4.0]]}]},
    }
    assert tomllib.loads(format_toml(content, "a comment\nof two lines")) == content
    for path in DESCRIPTIONS.glob("*.toml"):
        read = tomllib.loads(path.read_text(encoding="utf-8"))
        assert tomllib.loads(format_toml(read)) == read
