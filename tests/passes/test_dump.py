"""`Dump`: one numbered file per stage, each of which is parseable."""

import re
from pathlib import Path
from typing import Any

import pytest

from shardir.passes import Pipeline
from shardir.passes.dump import Dump, DumpError, DumpWarning, program_folder, warning_dump
from shardir.passes.pipeline import combine_observers
from shardir.text.parser import parse

TEXT = """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x],
) -> (f32[]) {
  %s = sum(%a, dims=[0]) : f32[]
  return %s
}
"""


def test_every_stage_has_a_numbered_file(tmp_path: Path) -> None:
    module = parse(TEXT)
    pipeline = Pipeline.parse("propagate,reshard,partition,cse,dce")
    final = pipeline(module, Dump(tmp_path / "deep" / "dumps"))
    files = sorted((tmp_path / "deep" / "dumps").iterdir())
    assert [file.name for file in files] == [
        "00-traced.ir", "01-propagate.ir", "02-reshard.ir", "03-partition.ir", "04-cse.ir",
        "05-dce.ir",
    ]  # fmt: skip
    assert files[0].read_text("utf-8") == f"// as traced\n\n{TEXT}"
    header, text = files[-1].read_text("utf-8").split("\n\n", 1)
    assert re.fullmatch(r"// after dce, \d+\.\d ms", header)
    assert text == str(final)
    for file in files:
        assert str(parse(file.read_text("utf-8"), file.name)) in file.read_text("utf-8")


def test_the_header_states_options(tmp_path: Path) -> None:
    Pipeline.parse("propagate{level=basic}")(parse(TEXT), Dump(tmp_path))
    assert (
        (tmp_path / "01-propagate.ir")
        .read_text("utf-8")
        .startswith("// after propagate{level=basic},")
    )


def test_locations_and_reasons_are_shown_on_request(tmp_path: Path) -> None:
    pipeline = Pipeline.parse("propagate,reshard,partition")
    pipeline(parse(TEXT), Dump(tmp_path, locations=True))
    text = (tmp_path / "03-partition.ir").read_text("utf-8")
    assert 'why("sum over dimension 0 of %a of %s = sum")' in text


def test_dumps_of_an_earlier_program_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("00-traced.ir", "07-dce.ir", "notes.txt", "mlp.ir"):
        (tmp_path / name).write_text("old", "utf-8")
    Dump(tmp_path, parse(TEXT))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "00-traced.ir", "mlp.ir", "notes.txt",
    ]  # fmt: skip
    assert (tmp_path / "00-traced.ir").read_text("utf-8") != "old"


def test_programs_of_one_name_have_folders_of_their_own(tmp_path: Path) -> None:
    names = [program_folder(tmp_path / "dump", "step <lambda>").name for _ in range(3)]
    assert names == ["step__lambda_", "step__lambda_.1", "step__lambda_.2"]


def test_another_process_may_make_the_folder_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = Path.mkdir

    def make_after_another(path: Path, *args: Any, **options: Any) -> None:
        if path.name == "f":
            make(path, exist_ok=True)
        make(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", make_after_another)
    assert program_folder(tmp_path, "f") == tmp_path / "f.1"


def test_several_observers_are_called_in_order(tmp_path: Path) -> None:
    seen = []
    watch = combine_observers(
        Dump(tmp_path), lambda step, before, after, seconds: seen.append(step.name)
    )
    Pipeline.parse("cse,dce")(parse(TEXT), watch)
    assert seen == ["cse", "dce"]
    assert (tmp_path / "02-dce.ir").exists()
    with pytest.raises(FileNotFoundError):
        (tmp_path / "03-dce.ir").read_text("utf-8")


def test_a_dump_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(DumpError) as caught:
        Dump(tmp_path / "file")
    assert str(caught.value) == (
        f"cannot write the program into {str(tmp_path / 'file')!r}: File exists"
    )


def test_a_failed_dump_of_a_running_program_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    pipeline = Pipeline.parse("cse,dce")
    with pytest.warns(DumpWarning) as caught:
        pipeline(parse(TEXT), warning_dump(tmp_path / "file", "f"))
    assert [warning.filename for warning in caught] == [__file__]
    assert [str(warning.message) for warning in caught] == [
        f"cannot write the program into {str(tmp_path / 'file' / 'f')!r}: File exists; the "
        "program continues without the dump"
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_a_full_disk_does_not_end_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_text

    def full(path: Path, *args: Any, **options: Any) -> int:
        return write(Path("/dev/full"), *args, **options)

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.warns(DumpWarning, match="No space left on device; the program continues"):
        Pipeline.parse("cse,dce")(parse(TEXT), warning_dump(tmp_path, "f"))


def test_a_program_without_a_name_has_a_folder(tmp_path: Path) -> None:
    assert program_folder(tmp_path, "") == tmp_path / "program"


def test_no_observer_observes_nothing() -> None:
    assert combine_observers() is None
