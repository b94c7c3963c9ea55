"""`shardir explain` of folders and files that XLA wrote with `--xla_dump_to`."""

from pathlib import Path

import pytest

from tests.frontend.cli.command import run

BEFORE = """\
HloModule jit_f, num_partitions=4, frontend_attributes={xla.sdy.meshes={mesh = \
#sdy.mesh<["data"=2, "model"=2]>}}

ENTRY main.1 {
  x = f32[8,16] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  zero = f32[] constant(0)
  ROOT y = f32[8] reduce(x, zero), dimensions={1}, to_apply=add
}
"""
PARTITIONED = """\
HloModule jit_f, num_partitions=4

ENTRY main.1_spmd {
  x = f32[4,8] parameter(0)
  a = f32[4] all-reduce(x), channel_id=1, replica_groups=[2,2]<=[4], use_global_device_ids=true
  ROOT b = f32[4] all-reduce(a), channel_id=2, replica_groups=[2,2]<=[4], use_global_device_ids=true
}
"""
AFTER = """\
HloModule jit_f, is_scheduled=true, num_partitions=4

ENTRY main.1_spmd {
  x = f32[4,8]{1,0:T(8,128)(2,1)S(1)} parameter(0)
  a = (f32[4]{0}, f32[4]{0}) all-reduce-start(x, x), channel_id=1, replica_groups=[2,2]<=[4], \
use_global_device_ids=true, metadata={op_name="jit(f)/reduce_sum" source_file="train.py" \
source_line=4}, backend_config={"flag_configs":[],"used_scoped_memory_configs":[{"a":"1"}]}
  b = (f32[4]{0}, f32[4]{0}) all-reduce-done(a)
  ROOT c = f32[4]{0} custom-fancy-unknown(b), kind=kNew, window={size=3 pad=1_1}
}
"""
SINGLE = "HloModule jit_one\n\nENTRY main {\n  ROOT x = f32[] parameter(0)\n}\n"
REPORT = """\
jit_f, partitioned by XLA: 1 collective, 32 B sent by each device in one run; XLA combined 2 \
arrays into them

                       count  result  sent
  after partitioning   2      32 B    32 B
  after optimizations  1      32 B    32 B

by kind       count  result  sent
  all-reduce  1      32 B    32 B

over     count  result  sent
  model  1      32 B    32 B

by line       count  result  sent
  train.py:4  1      32 B    32 B

value  collective               result  why                line
  %a   all-reduce over model    32 B    jit(f)/reduce_sum  train.py:4

causes
  train.py:4
    all-reduce over model, 32 B sent
      reduce_sum sums over a sharded dimension: each device has a partial result
"""


@pytest.fixture
def dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "dump"
    folder.mkdir()
    stem = "module_0003.jit_f"
    texts = {
        f"{stem}.before_optimizations.txt": BEFORE,
        f"{stem}.0002.spmd.after_spmd-partitioning.before_dce.txt": PARTITIONED,
        f"{stem}.sm_9.0_gpu_after_optimizations.txt": AFTER,
        f"{stem}.sm_9.0_gpu_after_optimizations-buffer-assignment.txt": "BufferAssignment:",
        "module_0001.jit_one.cpu_after_optimizations.txt": SINGLE,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_a_folder_is_explained_with_counts_before_and_after_combining(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("explain", "dump") == 0
    assert capsys.readouterr().out == REPORT


def error_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run("explain", *words) == 1
    return capsys.readouterr().err


def test_a_module_before_partitioning_is_refused(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = "dump/module_0003.jit_f.before_optimizations.txt"
    assert error_of(capsys, file) == (
        "error: the module jit_f is the one before partitioning, so XLA has not inserted "
        "collectives yet; use the text after optimizations of the same folder, "
        "module_*.after_optimizations.txt\n"
    )


def test_folders_without_partitioned_modules_are_named(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in dump.glob("module_0003*"):
        path.unlink()
    assert run("explain", "dump") == 0
    assert capsys.readouterr().out == "dump: no module of 1 runs on several devices\n"
    for path in dump.iterdir():
        path.unlink()
    assert error_of(capsys, "dump") == (
        "error: 'dump' has no file module_*.after_optimizations.txt; name a folder that XLA wrote "
        "with XLA_FLAGS=--xla_dump_to=dump\n"
    )


def test_a_program_is_compared_with_one_module(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = dump / "module_0004.jit_g.gpu_after_optimizations.txt"
    other.write_text(AFTER, encoding="utf-8")
    assert error_of(capsys, "dump", "--program", "f.mlir") == (
        "error: 'dump' has 2 modules for several devices, and --program compares one; name its "
        "file: module_0003.jit_f.sm_9.0_gpu_after_optimizations.txt, "
        "module_0004.jit_g.gpu_after_optimizations.txt\n"
    )


def test_a_truncated_module_is_refused_with_its_line(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cut.txt").write_text(AFTER.rpartition("  ROOT")[0], encoding="utf-8")
    assert "the computation main.1_spmd has no end; the text may be truncated" in error_of(
        capsys, "cut.txt"
    )


def test_protocol_buffers_are_refused_with_the_way_to_text(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("f.hlo.pb").write_bytes(b"\n\x05jit_f\xff")
    assert error_of(capsys, "f.hlo.pb") == (
        "error: 'f.hlo.pb' is a protocol buffer; this command reads HLO text: add "
        "--xla_dump_hlo_as_text to XLA_FLAGS and compile again, or write compiled.as_text() of JAX "
        "to a file\n"
    )


def test_other_options_are_refused_for_a_folder(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert error_of(capsys, "dump", "--order") == (
        "error: --order is for programs of shardir, and 'dump' is a folder; only --mesh, --program "
        "and --rule apply to it\n"
    )
