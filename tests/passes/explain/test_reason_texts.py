"""The text of each reason of an absent axis."""

import pytest

from shardir.passes import Propagate
from shardir.passes.explain import explain
from shardir.passes.propagation.record import RefusalReason
from shardir.text.parser import parse
from tests.passes.explain.test_reasons import MESHES, PROGRAMS

TEXTS = {
    RefusalReason.NO_RULE: """\
a does not shard it
  it stops earlier: the operation has no factor rule
    %x at %v = reshard""",
    RefusalReason.MESHES: """\
a does not shard it
  the tensors are on different meshes
    %x at %v = add""",
    RefusalReason.SINGLE_DEVICE: """\
propagation does not shard it over a
  the tensors are on a single device
    %x at %v = add""",
    RefusalReason.BLOCKED: """\
a does not shard it
  dimension 1: the operation does not propagate axes along this factor
    %v at %v, %i = top_k""",
    RefusalReason.DISAGREE: """\
propagation does not shard it over a
  dimension 0: the tensors are sharded differently along this factor
    %y at %v = add
    %x along a; %y along c

propagation does not shard it over c
  dimension 0: the tensors are sharded differently along this factor
    %x at %v = add
    %x along a; %y along c""",
    RefusalReason.USED: """\
a could also shard
  dimension 0: the axis already shards the tensor along another factor
    %v at %v = dot
    the axis shards dimension 1 for value %v: f32[8, 8@a?]""",
    RefusalReason.LOST: """\
a could also shard
  dimension 0: another factor took the axis in the same step
    %v at %v = dot
    'j' of %y against 'i' of %x: 64 elements against 32""",
    RefusalReason.REPLICATED: """\
a does not shard it
  the tensor is explicitly replicated over the axis
    value %v: f32[8] replicated(a)""",
    RefusalReason.UNREDUCED: """\
a does not shard it
  the tensor is unreduced over the axis
    value %v: f32[8] unreduced(a)""",
    RefusalReason.CLOSED: """\
a does not shard it
  dimension 0: the dimension is closed
    %v at %v = neg
    value %v: f32[8@-]

b does not shard it
  the dimension is closed
    value %v: f32[8@-]

c does not shard it
  the dimension is closed
    value %v: f32[8@-]""",
    RefusalReason.OVERFLOW: """\
b does not shard it
  dimension 0: an axis before it shards the dimension unevenly
    %v at %v = reshape
    value %v: f32[6@a?]""",
    RefusalReason.SPILL: """\
a does not shard it
  dimension 0: the axis shards a dimension across the boundary of two factors
    %x at %v = reshape""",
    RefusalReason.UNEVEN: """\
a does not shard it
  dimension 0: the axis does not divide the factor, which is not the last of its dimension
    %v at %v = reshape""",
    RefusalReason.RESULT: """\
c does not shard it
  dimension 0: the result does not take the axis, and the operation is elementwise
    %v at %z = add""",
    RefusalReason.STRIDED: """\
a does not shard it
  dimension 0: a factor before it in the dimension is not fully sharded
    %v at %v = reshape""",
    RefusalReason.BEHIND: """\
c does not shard it
  dimension 0: an axis before it in the list was refused
    %v at %v = neg
    a: the tensor is explicitly replicated over the axis""",
    RefusalReason.INDIVISIBLE: """\
c:(2)2 does not shard it
  dimension 0: the axis does not divide a dimension of an argument or a result
    6 is not divisible by 4""",
    RefusalReason.SPLIT: """\
propagation does not shard it over c
  dimension 0: only a part of the axis can propagate, and propagation is conservative
    %v at %v = reshape
  dimension 1: only a part of the axis can propagate, and propagation is conservative
    %v at %v = reshape""",
    RefusalReason.PART: """\
c does not shard it
  dimension 0: open dimensions of arguments and results are sharded over complete axes only""",
    RefusalReason.MANUAL: """\
a does not shard it
  the axis is manual in the enclosing computation, where tensors are local along it
    %r = manual_computation""",
    RefusalReason.UNIT: """\
one does not shard it
  the axis has size 1 and shards nothing""",
    RefusalReason.SCALAR: """\
a does not shard it
  the tensor is a scalar

b does not shard it
  the tensor is a scalar

c does not shard it
  the tensor is a scalar""",
    RefusalReason.UNSTATED: """\
a does not shard it
  no annotation states the axis

b does not shard it
  no annotation states the axis

c does not shard it
  no annotation states the axis""",
    RefusalReason.PRIORITY: """\
a could also shard
  dimension 0: the dimension has a later priority
    %v at %v = add
    the axis shards dimension 1 for argument %y: f32[8, 4@a], since round 0""",
    RefusalReason.DIRECTION: """\
a could also shard
  dimension 0: axes do not propagate in this direction in this round
    %v at %v = dot
    the axis shards dimension 1 for argument %z: f32[8, 8@a], since round 0""",
    RefusalReason.UNCONNECTED: """\
a does not shard it
  no factor connects the value with a dimension that the axis shards
    %x at %v = sum
    the axis shards dimension 0 of %x""",
}
"""For each reason the paragraphs that state it about the value %v of its program."""


@pytest.mark.parametrize("reason", TEXTS, ids=lambda reason: reason.name)
def test_the_text_of_each_reason(reason: RefusalReason) -> None:
    propagate = Propagate(conservative=reason is RefusalReason.SPLIT)
    text = str(explain(parse(MESHES + PROGRAMS[reason]), "v", propagate=propagate))
    paragraphs = [each for each in text.split("\n\n") if reason.value in each]
    assert "\n\n".join(paragraphs) == TEXTS[reason]


def test_each_reason_has_a_text() -> None:
    assert TEXTS.keys() == PROGRAMS.keys()
