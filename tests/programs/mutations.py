"""Mutations of valid texts, which simulate mistakes of users and damaged files.

`python -m tests.programs.mutations [first seed] [how many]` parses mutated texts until it is
stopped. It prints every text that raises an error of another library, or that exceeds `SECONDS`.
"""

import random
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count, islice

from shardir.errors import MAX_MESSAGE_CHARACTERS, ShardirError
from shardir.op_rules.factor_rule_text import parse_rule
from shardir.op_rules.rule_notation import sharding_rule
from shardir.passes import Pipeline
from shardir.passes.pipeline import DEFAULT_PIPELINE, SHARDY_PIPELINE
from shardir.stablehlo.printer import show as show_stablehlo
from shardir.stablehlo.reader import read
from shardir.text.parser import parse
from shardir.text.printer import print_module
from shardir.verify.verifier import verify
from tests.process_control.signals import Interrupted, alarm
from tests.samples import SAMPLES
from tests.stablehlo_text import MLP

SECONDS = 30
"""How long one text may take."""

TOKEN = re.compile(r"\s+|[A-Za-z_][\w.-]*|[0-9]+|[^\s\w]")
ODD = (
    "", "0", "-1", "1", "9" * 25, "9" * 5000, "1e999", "nan", "inf", "-0", "0x7F", "0x", "1_0",
    "٣", "²", "é", "\x00", "\x1b[31m", "\u202e", "\ud800", "\n", "\t", " ", '"', '"a\\nb"', '"\\q"',
    "%", "@", "#", "{", "}", "[", "]", "(", ")", "<", ">", "->", "=", ":", ",", ",,", ", ,", "?",
    "...", "...1", "x", "p1", "p" + "9" * 30, "[" * 200, "((" * 100, "a" * 3000, "//", "/*", "=>",
    "true", "none", "f32", "f32[4]", "tensor<4xf32>", "tensor<?xf32>", "dense<>", "dense<1>",
    "i64", "bool", "key", "unreduced(x)", "@x", "@(x, y)", "x:(2)2", "add", "loc(unknown)",
)  # fmt: skip
"""What takes the place of a token."""

SHARDED = """\
mesh @m = [x=4, y=2]

func @f(
  %a: f32[8@x, 4@y p1],
  %b: f32[4@-, 6@?] replicated(x),
  %n: i32[],
) -> (f32[8@x, 6]) {
  %d = dot(%a, %b, dims="ij,jk->ik") : f32[8, 6]
  %w, %i = while(%d, %n) : f32[8, 6], i32[] {
    (%c: f32[8, 6], %k: i32[]) =>
    %z = constant(value=3) : i32[]
    %p = lt(%k, %z) : bool[]
    yield %p
  } {
    (%c2: f32[8, 6], %k2: i32[]) =>
    %one = constant(value=dense(i32, 1)) : i32[]
    %k3 = add(%k2, %one) : i32[] loc("a.py":3:4) why("more")
    %c3 = exp(%c2) : f32[8@x, 6]
    yield %c3, %k3
  }
  return %w
}
"""
MANUAL = """\
module @jit_f attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["a"=4, "b"=2]>
  func.func public @main(%arg0: tensor<8x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}\
) -> (tensor<2x4xf32> {jax.result_info = "result"}) {
    %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{"a"}, {}]>] \
out_shardings=[<@mesh, [{}, {}]>] manual_axes={"a", "b"} (%arg1: tensor<2x4xf32>) {
      %1 = "stablehlo.all_reduce"(%arg1) <{channel_handle = #stablehlo.channel_handle<handle = 1, \
type = 1>, replica_groups = dense<[[0, 2, 4, 6], [1, 3, 5, 7]]> : tensor<2x4xi64>, \
use_global_device_ids}> ({
      ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
        %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
        stablehlo.return %2 : tensor<f32>
      }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
      sdy.return %1 : tensor<2x4xf32>
    } : (tensor<8x4xf32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>
  }
}
"""
RULES = (
    "b (h d), d k -> b h k {h=8} reduction={d}",
    "i j, j k -> i k reduction={j} permutation={i} blocked={k}",
    "... i, ...1 j -> ... i need_replication={j}",
    "-> i",
    "([i, jk])->([i]) {i=8, j=2, k=4} reduction={j} blocked_propagation={k}",
    "([z_1, z_2], [])->([z_2, z_1]) {z_1=3, z_2=5}",
)
PIPELINES = (
    DEFAULT_PIPELINE,
    SHARDY_PIPELINE,
    "inline,uniform-control-flow,cse,dce,fuse{most_operands=20,reductions=false,without=bitcast}",
    "propagate{level=aggressive,border=uneven},partition{planner=greedy},merge-devices,simplify",
    "hierarchical-collectives{across=x:2,small=0},combine-collectives,overlap,rematerialize-gathers,annotate-partial-sorts",
)


def _texts() -> tuple[list[str], list[str]]:
    """Return texts of the IR and of StableHLO: one of each operation that both have."""
    ours, theirs = [SHARDED], [MLP, MANUAL]
    for sample in {sample.spec.name: sample for sample in SAMPLES}.values():
        module = sample.module()
        ours.append(print_module(module))
        try:
            theirs.append(show_stablehlo(module))
        except ShardirError:
            continue
    return ours, theirs


def mutate(text: str, rng: random.Random) -> str:
    """Return the text with one or a few changes of tokens, most of which keep their kind."""
    tokens = TOKEN.findall(text) or [""]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(tokens))
        match rng.randrange(10):
            case 0:
                del tokens[at]
            case 1:
                tokens[at] = rng.choice(ODD)
            case 2:
                tokens.insert(at, rng.choice(ODD))
            case 3:
                tokens[at:at] = tokens[at : at + rng.randint(1, 30)] * rng.randint(1, 3)
            case 4 | 5 | 6:
                alike = [other for other in tokens if _kind(other) == _kind(tokens[at])]
                tokens[at] = rng.choice(alike)
            case _:
                numbers = [i for i, token in enumerate(tokens) if token.isdecimal()]
                if numbers:
                    some = (0, 1, 2, 3, 4, 6, 7, 8, 16, 10**9, 10**19)
                    tokens[rng.choice(numbers)] = str(rng.choice(some))
        if not tokens:
            return ""
    return "".join(tokens)


def _kind(token: str) -> str:
    """Return the kind of a token: number, word or punctuation."""
    return "0" if token.isdecimal() else "a" if token[:1].isalpha() else "."


def check_ours(text: str) -> None:
    """Parse a text of the IR; run passes on a valid module and print it."""
    module = parse(text)
    verify(module)
    if module.functions:
        show_stablehlo(Pipeline.parse(DEFAULT_PIPELINE)(module))
    print_module(module)


def check_theirs(text: str) -> None:
    """Parse a text of StableHLO; propagate and print a valid module."""
    module = read(text)
    verify(module)
    print_module(Pipeline.parse("propagate")(module) if module.functions else module)


def check_rule(text: str) -> None:
    """Parse a text as a factor rule in either notation."""
    with suppress(ValueError):
        parse_rule(text)
    rule = sharding_rule(text)
    str(rule)
    rule.for_shapes([(4, 8)] * len(rule.operands), [(4, 8)] * len(rule.results))


def check_pipeline(text: str) -> None:
    """Parse a pipeline, and run it on a small program."""
    Pipeline.parse(text)(parse(SHARDED))


OURS, THEIRS = _texts()
KINDS: dict[str, tuple[Callable[[str], None], Sequence[str]]] = {
    "IR": (check_ours, OURS),
    "StableHLO": (check_theirs, THEIRS),
    "rule": (check_rule, RULES),
    "pipeline": (check_pipeline, PIPELINES),
}


def fault(kind: str, text: str) -> str:
    """Return the fault of the outcome of a text; an empty string if there is none."""
    check, _ = KINDS[kind]
    try:
        with alarm(SECONDS):
            check(text)
    except ShardirError as error:
        said = str(error)
        if len(said) > MAX_MESSAGE_CHARACTERS + 100:
            return f"a message of {len(said)} characters"
        odd = [c for c in said if not (c.isprintable() or c in "\n\t")]
        # An unexpected exception of a pass is wrapped in an error of this package.
        inner = error.__cause__
        if inner is not None and not isinstance(inner, ShardirError):
            return "".join(traceback.format_exception(inner)[-4:])
        return f"unprintable characters {odd!r}" if odd else ""
    except Interrupted:
        return f"no end within {SECONDS} seconds"
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


def case(seed: int) -> tuple[str, str]:
    """Return the kind of a text and the text, which are equal for equal seeds."""
    rng = random.Random(seed)
    kind = rng.choice([*KINDS])
    return kind, mutate(rng.choice(KINDS[kind][1]), rng)


def main(first: int, number: int | None) -> None:
    for seed in islice(count(first), number):
        kind, text = case(seed)
        said = fault(kind, text)
        if said:
            print(f"--- seed {seed}, {kind}:\n{text[:1500]!r}\n{said}", flush=True)


if __name__ == "__main__":
    main(int((sys.argv[1:] or ["0"])[0]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
