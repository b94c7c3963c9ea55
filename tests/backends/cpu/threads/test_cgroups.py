"""Limits of control groups: of both versions, and of the groups around the own one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardir.backends.cpu.threads import cgroups, memory_limits


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of trees of groups, and beside it `own`, which says what the process is in."""
    monkeypatch.setattr(cgroups, "CGROUP_ROOT", str(tmp_path / "trees"))
    monkeypatch.setattr(cgroups, "OWN_CGROUP_FILE", str(tmp_path / "own"))
    cgroups.core_limit.cache_clear()
    yield tmp_path / "trees"
    cgroups.core_limit.cache_clear()


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def own(trees: Path, text: str) -> None:
    write(trees.parent / "own", text)


def test_where_there_are_no_groups_there_are_no_limits(trees: Path) -> None:
    assert cgroups.core_limit() is None
    assert cgroups.memory_limit_bytes() is None
    assert memory_limits.available_memory_bytes() > 1 << 20


@pytest.mark.parametrize(
    ("text", "count"),
    [("150000 100000", 2), ("50000 100000", 1), ("max 100000", None), ("", None), ("x y", None)],
)
def test_a_part_of_a_core_is_one(trees: Path, text: str, count: int | None) -> None:
    own(trees, "0::/\n")
    write(trees / "cpu.max", text)
    assert cgroups.core_limit() == count


def test_the_least_of_all_groups_around_counts(trees: Path) -> None:
    own(trees, "0::/slurm/job_7/step_0\n")
    write(trees / "slurm/job_7/step_0/memory.max", "max\n")
    write(trees / "slurm/job_7/memory.max", "1048576\n")
    write(trees / "slurm/memory.max", "2097152\n")
    write(trees / "slurm/job_7/step_0/cpu.max", "400000 100000\n")
    write(trees / "slurm/cpu.max", "300000 100000\n")
    write(trees / "other/cpu.max", "100000 100000\n")
    assert cgroups.memory_limit_bytes() == 1 << 20
    assert memory_limits.available_memory_bytes() == 1 << 20
    assert cgroups.core_limit() == 3


def test_the_first_version_has_a_tree_for_each_kind(trees: Path) -> None:
    own(trees, "4:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/\n0::/\n")
    write(trees / "memory/job/memory.limit_in_bytes", "1048576\n")
    write(trees / "memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(trees / "cpu/job/cpu.cfs_quota_us", "250000\n")
    write(trees / "cpu/job/cpu.cfs_period_us", "100000\n")
    write(trees / "cpu/cpu.cfs_quota_us", "-1\n")
    write(trees / "cpu/cpu.cfs_period_us", "100000\n")
    assert cgroups.memory_limit_bytes() == 1 << 20
    assert cgroups.core_limit() == 3


def test_a_container_shows_its_group_as_the_root(trees: Path) -> None:
    own(trees, "4:memory:/docker/abc\n0::/../host\n")
    write(trees / "memory/memory.limit_in_bytes", "1048576\n")
    assert cgroups.memory_limit_bytes() == 1 << 20
