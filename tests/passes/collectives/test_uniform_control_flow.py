"""`uniform-control-flow`: control flow becomes uniform over devices, with equal results."""

import numpy as np
import pytest

from shardir.errors import MergeError
from shardir.interpret.interpreter import run
from shardir.ir.module import Module
from shardir.passes import Pipeline
from shardir.text.parser import parse
from shardir.verify.divergence import find_differing
from shardir.verify.verifier import verify

HEAD = """\
mesh @m = [x=4]

spmd func @f(
  %s: f32[2] of f32[8@x],
  %n: i32[] of i32[],
) -> (f32[2] of f32[8@x]) {
"""
LIMIT = "  %zero = constant(value=0.0) : f32[]\n  %t = sum(%s, dims=[0]) : f32[]\n"
PICK = LIMIT + "  %p = gt(%t, %zero) : bool[]\n"
HERE = "  %h = axis-index(axes=[x]) : i32[]\n"

BRANCH = (
    PICK
    + """\
  %y = case(%p) : f32[2] {
    %a = neg(%s) : f32[2]
    yield %a
  } {
    yield %s
  }
"""
)
SWITCH = (
    HERE
    + """\
  %y = case(%h) : f32[2] {
    yield %s
  } {
    %a = neg(%s) : f32[2]
    yield %a
  } {
    %b = exp(%s) : f32[2]
    yield %b
  }
"""
)
LOOP = """\
  %y, %k = while(%s, %h) : f32[2], i32[] {
    (%c: f32[2], %j: i32[]) =>
    %z = constant(value=0) : i32[]
    %q = gt(%j, %z) : bool[]
    yield %q
  } {
    (%d: f32[2], %l: i32[]) =>
    %one = constant(value=1) : i32[]
    %e = add(%d, %s) : f32[2]
    %m = sub(%l, %one) : i32[]
    yield %e, %m
  }
"""
GUARDED = (
    PICK
    + """\
  %five = constant(value=5.0) : f32[]
  %y = case(%p) : f32[2] {
    %w = while(%s) : f32[2] {
      (%c: f32[2]) =>
      %u = sum(%c, dims=[0]) : f32[]
      %o = lt(%u, %five) : bool[]
      yield %o
    } {
      (%d: f32[2]) =>
      %e = sub(%d, %s) : f32[2]
      yield %e
    }
    yield %w
  } {
    %r = while(%s) : f32[2] {
      (%g: f32[2]) =>
      %a = sum(%g, dims=[0]) : f32[]
      %b = lt(%a, %five) : bool[]
      yield %b
    } {
      (%k: f32[2]) =>
      %l = add(%k, %s) : f32[2]
      yield %l
    }
    yield %r
  }
"""
)
"""Each loop ends on devices that take its branch, and would go on for ever on the others."""
NESTED = (
    HERE
    + """\
  %y, %k = while(%s, %h) : f32[2], i32[] {
    (%c: f32[2], %j: i32[]) =>
    %z = constant(value=0) : i32[]
    %q = gt(%j, %z) : bool[]
    yield %q
  } {
    (%d: f32[2], %l: i32[]) =>
    %one = constant(value=1) : i32[]
    %two = constant(value=2) : i32[]
    %odd = gt(%l, %two) : bool[]
    %in = case(%odd) : f32[2] {
      yield %d
    } {
      %u, %v = while(%d, %n) : f32[2], i32[] {
        (%ca: f32[2], %cb: i32[]) =>
        %lower = lt(%cb, %l) : bool[]
        yield %lower
      } {
        (%da: f32[2], %db: i32[]) =>
        %ea = mul(%da, %da) : f32[2]
        %eb = add(%db, %one) : i32[]
        yield %ea, %eb
      }
      yield %u
    }
    %m = sub(%l, %one) : i32[]
    yield %in, %m
  }
"""
)
IN_SCAN = (
    HERE
    + """\
  %y = scan(%s, carries=1, length=3) : f32[2] {
    (%c: f32[2]) =>
    %two = constant(value=2) : i32[]
    %p = lt(%h, %two) : bool[]
    %e = case(%p) : f32[2] {
      %a = add(%c, %c) : f32[2]
      yield %a
    } {
      %b = neg(%c) : f32[2]
      yield %b
    }
    yield %e
  }
"""
)
ONE_BRANCH = (
    HERE
    + """\
  %five = constant(value=5.0) : f32[]
  %y = case(%h) : f32[2] {
    %w = while(%s) : f32[2] {
      (%c: f32[2]) =>
      %u = sum(%c, dims=[0]) : f32[]
      %o = gt(%u, %five) : bool[]
      yield %o
    } {
      (%d: f32[2]) =>
      %e = sub(%d, %s) : f32[2]
      yield %e
    }
    yield %w
  }
"""
)
UNIFORM_PARTS = (
    PICK
    + """\
  %z = constant(value=0) : i32[]
  %counted, %left = case(%p) : f32[2], i32[] {
    %w, %k = while(%s, %n) : f32[2], i32[] {
      (%c: f32[2], %j: i32[]) =>
      %q = ne(%j, %z) : bool[]
      yield %q
    } {
      (%d: f32[2], %l: i32[]) =>
      %one = constant(value=1) : i32[]
      %m = sub(%l, %one) : i32[]
      yield %s, %m
    }
    yield %w, %k
  } {
    yield %s, %n
  }
  %b = lt(%n, %z) : bool[]
  %never = ne(%n, %n) : bool[]
  %y = case(%b) : f32[2] {
    yield %counted
  } {
    %o = while(%counted) : f32[2] {
      (%g: f32[2]) =>
      yield %never
    } {
      (%v: f32[2]) =>
      yield %v
    }
    yield %o
  }
"""
)
"""The first loop ends on no device if %n is negative, and then no device may take its branch. The
devices take the same path through the second branch and the second loop."""
PROGRAMS = {
    "branch": BRANCH,
    "switch": SWITCH,
    "loop": HERE + LOOP,
    "guarded": GUARDED,
    "nested": NESTED,
    "in a scan": IN_SCAN,
    "one branch": ONE_BRANCH,
    "uniform parts": UNIFORM_PARTS,
}


def program(body: str) -> Module:
    return parse(f"{HEAD}{body}  return %y\n}}\n")


def uniform(module: Module) -> Module:
    verify(module)
    made = Pipeline.parse("uniform-control-flow")(module)
    verify(made)
    return made


def body(module: Module) -> str:
    return str(module).removeprefix(HEAD).removesuffix("}\n")


def test_a_divergent_branch_becomes_both_branches_and_a_select() -> None:
    assert body(uniform(program(BRANCH))) == (
        PICK
        + "  %a = neg(%s) : f32[2]\n"
        + "  %y = select(%p, %s, %a) : f32[2]\n"
        + "  return %y\n"
    )


def test_a_divergent_loop_iterates_until_all_devices_have_finished() -> None:
    assert (
        body(uniform(program(HERE + LOOP)))
        == """\
  %h = axis-index(axes=[x]) : i32[]
  %z.1 = constant(value=0) : i32[]
  %q.1 = gt(%h, %z.1) : bool[]
  %q.local.2, %y, %k = while(%q.1, %s, %h) : bool[], f32[2], i32[] {
    (%q.local: bool[], %c.1: f32[2], %j.1: i32[]) =>
    %0 = all-reduce(%q.local, axes=[x], op="or") : bool[]
    yield %0
  } {
    (%q.local.1: bool[], %d: f32[2], %l: i32[]) =>
    %one = constant(value=1) : i32[]
    %e = add(%d, %s) : f32[2]
    %m = sub(%l, %one) : i32[]
    %1 = select(%q.local.1, %e, %d) : f32[2]
    %2 = select(%q.local.1, %m, %l) : i32[]
    %z.2 = constant(value=0) : i32[]
    %q.2 = gt(%2, %z.2) : bool[]
    %3 = and(%q.local.1, %q.2) : bool[]
    yield %3, %1, %2
  }
  return %y
"""
    )


def test_a_uniform_program_is_not_changed() -> None:
    module = program(BRANCH.replace("gt(%t, %zero)", "gt(%n, %n)"))
    assert Pipeline.parse("uniform-control-flow")(module) is module


def test_uniform_parts_of_a_program_are_not_changed() -> None:
    module = program(UNIFORM_PARTS)
    end = str(module).partition("  %b = lt(")[2]
    assert str(uniform(module)).endswith(f"  %b = lt({end}")


def test_a_uniform_loop_in_a_divergent_branch_runs_if_a_device_takes_the_branch() -> None:
    x = np.ones(8, np.float32)
    (result,) = run(uniform(program(UNIFORM_PARTS)), [x, np.int32(-1)], seconds=10)
    np.testing.assert_array_equal(result, x)


def test_programs_without_other_devices_are_not_changed() -> None:
    on_one_device = str(program(SWITCH)).replace("x=4", "x=1").replace("8@x", "2@x")
    module = parse(on_one_device)
    assert uniform(module) is module
    head = "func @f(%s: f32[2], %h: i32[]) -> (f32[2]) {\n"
    module = parse(f"{head}{SWITCH.removeprefix(HERE)}  return %y\n}}\n")
    assert uniform(module) is module


def test_effects_in_divergent_control_flow_are_errors() -> None:
    text = BRANCH.replace("    yield %s\n", '    callback(%s, function="shout")\n    yield %s\n')
    with pytest.raises(MergeError) as caught:
        uniform(program(text))
    assert str(caught.value) == (
        "callback is executed by some devices only, because the decision of case differs between "
        "devices, and devices of this target execute all branches; move it out of the case"
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_equal_and_control_flow_is_uniform(name: str) -> None:
    module = program(PROGRAMS[name])
    made = uniform(module)
    differs = find_differing(made.main)
    for op in made.main.body.walk():
        if op.name == "while":
            assert not differs.get(op.blocks[0].returns[0])
        assert op.name != "case" or not differs.get(op.operands[0])
    x = np.asarray([1, 2, -3, 1, 0.5, 0.25, -1, 0], np.float32)
    n = np.int32(1)
    np.testing.assert_array_equal(run(made, [x, n])[0], run(module, [x, n])[0])
