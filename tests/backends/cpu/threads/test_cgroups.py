"""Limits of control groups, versions 1 and 2, including those of enclosing groups."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardir.backends.cpu.threads import cgroups


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a folder of cgroup trees, and the file `own` beside it, which names the group of the
    process."""
    monkeypatch.setattr(cgroups, "CGROUP_ROOT", str(tmp_path / "trees"))
    monkeypatch.setattr(cgroups, "OWN_CGROUP_FILE", str(tmp_path / "own"))
    cgroups.core_limit.cache_clear()
    yield tmp_path / "trees"
    cgroups.core_limit.cache_clear()


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def write_own_group(trees: Path, text: str) -> None:
    write(trees.parent / "own", text)


def test_without_cgroups_there_are_no_limits(trees: Path) -> None:
    assert cgroups.core_limit() is None
    assert cgroups.memory_limit_bytes() is None
    assert cgroups.available_memory_bytes() > 1 << 20


@pytest.mark.parametrize(
    ("text", "count"),
    [("150000 100000", 2), ("50000 100000", 1), ("max 100000", None), ("", None), ("x y", None)],
)
def test_fractional_cores_are_rounded_up(trees: Path, text: str, count: int | None) -> None:
    write_own_group(trees, "0::/\n")
    write(trees / "cpu.max", text)
    assert cgroups.core_limit() == count


def test_the_smallest_limit_of_all_enclosing_groups_applies(trees: Path) -> None:
    write_own_group(trees, "0::/slurm/job_7/step_0\n")
    write(trees / "slurm/job_7/step_0/memory.max", "max\n")
    write(trees / "slurm/job_7/memory.max", "1048576\n")
    write(trees / "slurm/memory.max", "2097152\n")
    write(trees / "slurm/job_7/step_0/cpu.max", "400000 100000\n")
    write(trees / "slurm/cpu.max", "300000 100000\n")
    write(trees / "other/cpu.max", "100000 100000\n")
    assert cgroups.memory_limit_bytes() == 1 << 20
    assert cgroups.available_memory_bytes() == 1 << 20
    assert cgroups.core_limit() == 3


def test_version_1_has_a_tree_for_each_controller(trees: Path) -> None:
    write_own_group(trees, "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n")
    write(trees / "memory/job/memory.limit_in_bytes", "1048576\n")
    write(trees / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(trees / "cpu/job/cpu.cfs_quota_us", "250000\n")
    write(trees / "cpu/job/cpu.cfs_period_us", "100000\n")
    write(trees / "cpu/cpu.cfs_quota_us", "-1\n")
    write(trees / "cpu/cpu.cfs_period_us", "100000\n")
    assert cgroups.memory_limit_bytes() == 1 << 20
    assert cgroups.core_limit() == 3


def test_a_container_sees_its_group_as_the_root(trees: Path) -> None:
    write_own_group(trees, "4:memory:/docker/abc\n0::/../host\n")
    write(trees / "memory/memory.limit_in_bytes", "1048576\n")
    assert cgroups.memory_limit_bytes() == 1 << 20
