"""`Dump`: a numbered file for every stage, each of which can be read back."""

import re
from pathlib import Path

import pytest

from shardir.passes import Pipeline
from shardir.passes.dump import Dump, program_folder
from shardir.passes.pipeline import watches
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
    assert files[0].read_text() == f"// as traced\n\n{TEXT}"
    header, text = files[-1].read_text().split("\n\n", 1)
    assert re.fullmatch(r"// after dce, \d+\.\d ms", header)
    assert text == str(final)
    for file in files:
        assert str(parse(file.read_text(), file.name)) in file.read_text()


def test_the_header_spells_out_options(tmp_path: Path) -> None:
    Pipeline.parse("propagate{level=basic}")(parse(TEXT), Dump(tmp_path))
    assert (tmp_path / "01-propagate.ir").read_text().startswith("// after propagate{level=basic},")


def test_locations_and_reasons_are_shown_on_request(tmp_path: Path) -> None:
    pipeline = Pipeline.parse("propagate,reshard,partition")
    pipeline(parse(TEXT), Dump(tmp_path, locations=True))
    text = (tmp_path / "03-partition.ir").read_text()
    assert 'why("sum over dimension 0 of %a of %s = sum")' in text


def test_dumps_of_an_earlier_program_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("00-traced.ir", "07-dce.ir", "notes.txt", "mlp.ir"):
        (tmp_path / name).write_text("old")
    Dump(tmp_path, parse(TEXT))
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "00-traced.ir", "mlp.ir", "notes.txt",
    ]  # fmt: skip
    assert (tmp_path / "00-traced.ir").read_text() != "old"


def test_programs_of_one_name_have_folders_of_their_own(tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        folder = program_folder(tmp_path, "step <lambda>")
        Dump(folder)
        names.append(folder.name)
    assert names == ["step__lambda_", "step__lambda_.1", "step__lambda_.2"]


def test_several_watches_are_called_in_order(tmp_path: Path) -> None:
    seen = []
    watch = watches(Dump(tmp_path), lambda step, before, after, seconds: seen.append(step.name))
    Pipeline.parse("cse,dce")(parse(TEXT), watch)
    assert seen == ["cse", "dce"]
    assert (tmp_path / "02-dce.ir").exists()
    with pytest.raises(FileNotFoundError):
        (tmp_path / "03-dce.ir").read_text()
