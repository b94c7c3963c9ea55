"""`emit`: the module and values that a target receives, the written files, and the errors."""

import operator
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import shardir as sd
import shardir.numpy as snp
from shardir import lax
from shardir.backends import emission as emissions
from shardir.backends.emission import Emission, EmissionError, Target, get_target
from shardir.frontend.dispatch.stages.emission import make_emission
from shardir.frontend.errors import ArgumentError
from shardir.passes.pipeline import DEFAULT_PIPELINE, Pipeline
from shardir.sharding import PartitionSpec as P
from shardir.text.parser import parse
from tests.error_assertions import raw
from tests.frontend.cli.command import run


class RecordingTarget(Target):
    """A target that records its arguments."""

    name = "paper"
    pipeline = "fuse"
    options: ClassVar = {"ink": "its colour"}

    def __init__(self) -> None:
        self.seen: list[Emission] = []

    def emit(self, emission: Emission, options: Mapping[str, str]) -> dict[str, str | bytes]:
        self.seen.append(emission)
        return {"program.txt": str(emission.module), "data/ink": str(dict(options)).encode()}


@pytest.fixture(autouse=True)
def recording_target(monkeypatch: pytest.MonkeyPatch) -> RecordingTarget:
    target = RecordingTarget()
    monkeypatch.setitem(emissions.TARGETS, "paper", target)
    return target


PROGRAM = """\
mesh @m = [x=2]

func @f(
  %a: f32[4@x, 3],
  %b: f32[3, 2],
) -> (f32[4, 2]) {
  %c = dot(%a, %b, dims="ik,kj->ij") : f32[4, 2]
  %d = exp(%c) : f32[4, 2]
  %e = neg(%d) : f32[4, 2]
  return %e
}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("f.ir").write_text(PROGRAM, encoding="utf-8")
    return "f.ir"


def step(params: Any, x: Any) -> Any:
    return {"w": params["w"] * 2, "loss": snp.sum(x @ params["w"])}


def lower_step(function: Any = step) -> Any:
    mesh = sd.sharding.AbstractMesh((2,), ("data",))
    rows = sd.sharding.NamedSharding(mesh, P("data"))
    x = sd.ShapeDtypeStruct((4, 3), np.float32, sharding=rows)
    params = {"w": sd.ShapeDtypeStruct((3, 2), np.float32)}
    return sd.jit(function, donate_argnums=0).lower(params, x)


def test_the_files_of_the_target_are_written(tmp_path: Path) -> None:
    paths = lower_step().emit("paper", tmp_path / "out", ink=True)

    assert paths == [tmp_path / "out" / "program.txt", tmp_path / "out" / "data" / "ink"]
    assert "all-reduce" in paths[0].read_text("utf-8")
    assert paths[1].read_bytes() == b"{'ink': 'true'}"


def test_a_target_receives_the_names_of_arguments_and_results(
    tmp_path: Path, recording_target: RecordingTarget
) -> None:
    lower_step().emit("paper", tmp_path)

    (emission,) = recording_target.seen
    assert [
        (b.label, str(b.unsharded_type), str(b.shard_type), b.donated) for b in emission.arguments
    ] == [
        ("params.w", "f32[3, 2]", "f32[3, 2]", True),
        ("x", "f32[4, 3]", "f32[2, 3]", False),
    ]
    assert [(b.label, str(b.unsharded_type)) for b in emission.results] == [
        ("result.loss", "f32[]"),
        ("result.w", "f32[3, 2]"),
    ]
    assert emission.title == "step"
    assert emission.mesh.axes == (("data", 2),)
    assert emission.samples is None


def test_captured_arrays_are_arguments_with_values(
    tmp_path: Path, recording_target: RecordingTarget
) -> None:
    table = snp.arange(3.0)
    lower_step(lambda params, x: x * table + params["w"][0, 0]).emit(
        "paper", tmp_path, selftest=True
    )

    (emission,) = recording_target.seen
    last = emission.arguments[-1]
    assert last.label == last.name
    assert last.value is not None
    np.testing.assert_array_equal(last.value, np.arange(3.0, dtype=np.float32))
    assert emission.samples is not None
    np.testing.assert_array_equal(emission.samples.arguments[-1], last.value)


def test_samples_are_global_arguments_and_their_results(recording_target: RecordingTarget) -> None:
    emission = lower_step().emission("paper", selftest=True, seed=3)

    assert emission.samples is not None
    w, x = emission.samples.arguments
    loss, doubled = emission.samples.results
    np.testing.assert_allclose(loss, (x @ w).sum(), rtol=1e-5)
    np.testing.assert_array_equal(doubled, w * 2)
    again = lower_step().emission("paper", selftest=True, seed=3)
    np.testing.assert_array_equal(again.samples.arguments[0], w)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a\0b", "embedded null (byte|character in path)"), ("\ud800", "surrogates not allowed")],
)
def test_an_invalid_folder_is_an_error(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(EmissionError) as caught:
        lower_step().emit("paper", tmp_path / name)
    assert str(caught.value).startswith("cannot write ")
    assert re.search(f"{reason}$", str(caught.value))


def until(x: Any, n: Any, *, by: Any) -> Any:
    return lax.while_loop(lambda c: c[0] != n, lambda c: (c[0] + 1, c[1] * by), (n * 0, x))[1]


def test_arguments_of_a_call_are_samples(recording_target: RecordingTarget) -> None:
    program = sd.jit(until).lower(np.ones(3, np.float32), 2, by=np.float32(2))
    x = sd.device_put(np.arange(3, dtype=np.float32), sd.devices()[1])
    emission = program.emission("paper", arguments=(x, 3), keywords={"by": np.float32(2)})

    assert emission.samples is not None
    given = emission.samples.arguments
    np.testing.assert_array_equal(given[0], [0, 1, 2])
    assert [array.tolist() for array in given[1:]] == [3, 2.0]
    np.testing.assert_array_equal(emission.samples.results[0], [0, 8, 16])


def test_keyword_arguments_of_a_call_are_samples(recording_target: RecordingTarget) -> None:
    def scale(*, by: sd.Array) -> sd.Array:
        return by * 2

    emission = sd.jit(scale).lower(by=np.float32(0)).emission("paper", keywords={"by": 3.0})
    assert emission.samples is not None
    assert [array.tolist() for array in emission.samples.arguments] == [3.0]


def test_a_function_without_a_definition_has_no_locations() -> None:
    lowered = sd.jit(operator.neg).lower(np.zeros(3, np.float32))
    assert lowered.user_locations == {}


def test_a_self_test_that_exceeds_its_time_is_an_error(recording_target: RecordingTarget) -> None:
    program = sd.jit(until).lower(np.ones(3, np.float32), 2, by=np.float32(2))
    arguments: dict[str, Any] = {"arguments": (np.ones(3, np.float32), -1)}
    with pytest.raises(EmissionError) as caught:
        program.emission(
            "paper", **arguments, keywords={"by": np.float32(2)}, selftest_seconds=0.05
        )
    assert re.fullmatch(
        r"the reference interpreter does not finish the self-test of @until: the program has not "
        r"ended after 0\.05 seconds, and is at \w+ %\d+.* \(.*test_emission\.py:\d+\); pass "
        r"arguments= for which it ends, or more seconds as selftest_seconds=",
        str(caught.value),
    )


def test_arguments_of_a_self_test_must_have_the_types_of_the_program(
    recording_target: RecordingTarget,
) -> None:
    program = sd.jit(lambda x: x + 1).lower(np.ones(3, np.float32))
    with pytest.raises(EmissionError) as caught:
        program.emission("paper", arguments=(np.ones(4, np.float32),))
    assert str(caught.value) == "argument 'x' is f32[3], got float32[4] for the self-test"
    for arguments in ((np.ones(3, np.int32),), (np.ones(3, np.int8),)):
        with pytest.raises(EmissionError) as caught:
            program.emission("paper", arguments=arguments)
        assert str(caught.value) == (
            f"argument 'x' is f32[3], got {arguments[0].dtype}[3] for the self-test"
        )
    with pytest.raises(EmissionError) as caught:
        make_emission(program.module, "paper", samples=True, arguments=[])
    assert str(caught.value) == "@lambda takes 1 argument, got 0 for its self-test"
    for seconds in (0, -1.0, float("nan")):
        with pytest.raises(EmissionError) as caught:
            program.emission("paper", selftest=True, selftest_seconds=seconds)
        assert str(caught.value) == (
            f"a self-test takes a positive number of seconds, got {seconds}"
        )
    for seed in (-1, -7, raw(1.5)):
        with pytest.raises(EmissionError) as caught:
            program.emission("paper", selftest=True, seed=seed)
        assert str(caught.value) == (
            f"the seed of arguments is an integer of at least 0, got {seed}"
        )
    with pytest.raises(ArgumentError):
        program.emission("paper", arguments=(np.ones(3, np.float32), 1))


def test_passes_of_the_target_run_last(recording_target: RecordingTarget) -> None:
    emission = make_emission(parse(PROGRAM), "paper")

    assert emission.module.main.spmd is not None
    assert [op.name for op in emission.module.main.body.ops][-1] == "fused"


SAME_TWICE = """\
func @f(
  %a: f32[4],
) -> (f32[4]) {
  %b = exp(%a) : f32[4]
  %c = exp(%a) : f32[4]
  %d = add(%b, %c) : f32[4]
  return %d
}
"""


@pytest.mark.parametrize(
    ("text", "passes", "expected"),
    [
        (SAME_TWICE, None, 2),
        (SAME_TWICE, "dce", 2),
        (SAME_TWICE, "cse", 1),
        (f"mesh @m = [x=2]\n\n{SAME_TWICE}", None, 1),
        (f"mesh @m = [x=2]\n\n{SAME_TWICE}", "propagate,reshard,partition", 2),
    ],
)
def test_a_program_without_a_mesh_runs_through_stated_passes_only(
    text: str, passes: str | None, expected: int
) -> None:
    pipeline = None if passes is None else Pipeline.parse(passes)
    emission = make_emission(parse(text), "paper", pipeline=pipeline)
    assert str(emission.module).count("exp(") == expected
    parted = Pipeline.parse("propagate,reshard,partition")(parse(text))
    unchanged = make_emission(parted, "paper", pipeline=Pipeline.parse("cse"))
    assert str(unchanged.module).count("exp(") == (2 if text.startswith("mesh") else 1)


PIPELINE = """\
mesh @m = [pipe=2]

func @step(
  %v: f32[4, 8],
  %x: f32[16, 4],
) -> (f32[]) {
  %loss = pipeline(%v, %x, microbatches=2, schedule="gpipe", axis="pipe", batched=[1], wrt=[]) : \
f32[] {
    (%v.1: f32[4, 8], %x.1: f32[8, 4]) =>
    %x.2 = pipeline-stage(%x.1, stage=0) : f32[8, 4]
    %a = dot(%x.2, %v.1, dims="bi,ih->bh") : f32[8, 8]
    %b = pipeline-stage(%a, stage=1) : f32[8, 8]
    %e = sum(%b, dims=[0, 1]) : f32[]
    yield %e
  }
  return %loss
}
"""


@pytest.mark.parametrize("emits_pipelines", [False, True])
def test_a_target_that_emits_pipelines_receives_their_schedules(
    emits_pipelines: bool, recording_target: RecordingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordingTarget, "emits_pipelines", emits_pipelines)
    monkeypatch.setattr(recording_target, "pipeline", "dce")
    names = [op.name for op in make_emission(parse(PIPELINE), "paper").module.main.body.ops]
    assert ("pipeline-call" in names, "pipeline" in names) == (emits_pipelines, not emits_pipelines)


def test_a_partitioned_program_is_not_partitioned_again() -> None:
    parted = Pipeline.parse(DEFAULT_PIPELINE)(parse(PROGRAM))
    emission = make_emission(parted, "paper", samples=True)

    assert emission.samples is not None
    a, b = emission.samples.arguments
    assert a.shape == (4, 3)
    np.testing.assert_allclose(emission.samples.results[0], -np.exp(a @ b), rtol=1e-5)
    assert [str(each.shard_type) for each in emission.arguments] == ["f32[2, 3]", "f32[3, 2]"]
    assert [each.label for each in (*emission.arguments, *emission.results)] == ["a", "b", "result"]


def test_a_program_for_one_device_has_a_mesh_without_axes() -> None:
    emission = sd.jit(lambda x: x + 1).lower(np.zeros(3, np.float32)).emission("paper")

    assert emission.mesh.size == 1
    assert emission.arguments[0].sharding.axes == ((),)


def test_the_error_of_an_unknown_target_lists_the_targets() -> None:
    with pytest.raises(EmissionError) as caught:
        get_target("tpu")
    assert str(caught.value) == "no target is called 'tpu'; the targets are gpu, ipu, paper"


@pytest.mark.parametrize(
    ("option", "told"), [("inc", "did you mean 'ink'?"), ("size", "it has ink")]
)
def test_unknown_options_are_errors(tmp_path: Path, option: str, told: str) -> None:
    with pytest.raises(EmissionError) as caught:
        lower_step().emit("paper", tmp_path, **{option: 1})
    assert str(caught.value) == f"target 'paper' has no option {option!r}; {told}"
    assert not list(tmp_path.iterdir())


def test_an_error_of_a_target_names_the_value_and_the_line() -> None:
    op = make_emission(parse(PROGRAM), "paper").module.main.body.ops[0]
    error = EmissionError.of(op, "paper has no ink for f32", "cast to f16")
    assert str(error) == "dot %c: paper has no ink for f32; cast to f16"


def test_the_command_writes_a_file(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("emit", file, "--target", "paper", "-o", "out", "--option", "ink=red") == 0

    assert capsys.readouterr().out == "out/program.txt\nout/data/ink\n"
    assert Path("out/data/ink").read_text(encoding="utf-8") == "{'ink': 'red'}"


def test_the_command_writes_a_function(
    file: str, recording_target: RecordingTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("emitted_example.py").write_text(
        "import numpy as np\nimport shardir.numpy as snp\n"
        "from shardir.sharding import PartitionSpec as P\n"
        "def total(x): return snp.sum(x)\n"
        "example_args = np.zeros((32, 4), 'float32')\nexample_specs = P('data')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(".")
    try:
        words = ("--mesh", "data=4", "--target", "paper", "-o", "out", "--selftest")
        assert run("emit", "emitted_example:total", *words) == 0
    finally:
        sys.modules.pop("emitted_example", None)

    (emission,) = recording_target.seen
    assert [(b.label, str(b.shard_type)) for b in emission.arguments] == [("x", "f32[8, 4]")]
    assert emission.samples is not None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--target", "tpu"), "no target is called 'tpu'; the targets are gpu, ipu, paper"),
        (
            ("--target", "paper", "--option", "ink"),
            "'ink' is not an option of a target; write it as name=value",
        ),
    ],
)
def test_the_command_prints_errors(
    file: str, words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("emit", file, "-o", "out", *words) == 1

    assert capsys.readouterr().err == f"error: {told}\n"


def test_the_folder_must_be_a_path() -> None:
    lowered = sd.jit(snp.sin).lower(np.ones(4, np.float32))
    five: Any = 5
    with pytest.raises(EmissionError) as error:
        lowered.emit("gpu", five)
    assert str(error.value) == "programs are written into a folder, given as a path, got 5"
