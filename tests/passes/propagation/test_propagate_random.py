"""Propagation of random programs is valid, reaches a fixed point, and preserves results."""

from hypothesis import assume, given, strategies as st

from shardir import ops
from shardir.interpret.interpreter import run
from shardir.interpret.random_arguments import random_arguments
from shardir.ir.module import Function, Module, Op
from shardir.passes import Propagate
from shardir.passes.propagation.draft import FunctionDraft
from shardir.passes.propagation.propagation_levels import PROPAGATION_LEVELS, WORKLIST_ORDERS
from shardir.passes.propagation.sharding_groups import merge_groups
from shardir.verify.verifier import verify
from tests.passes.sharded_evaluation import annotate_randomly
from tests.programs.strategies import modules, sharded_modules

passes = st.builds(
    Propagate, level=st.sampled_from(PROPAGATION_LEVELS), order=st.sampled_from(WORKLIST_ORDERS)
)


@given(sharded_modules(), passes)
def test_every_value_gets_a_sharding(module: Module, propagate: Propagate) -> None:
    new = propagate(module)
    verify(new)
    for function in new.functions:
        values = [*function.body.values(), *(v for op in function.body.walk() for v in op.results)]
        assert all(v.sharding and v.sharding.is_closed for v in values if v.type.rank)
        returned = zip(function.body.returns, function.result_shardings, strict=True)
        assert all(s and s.is_closed for v, s in returned if v.type.rank)


@given(sharded_modules(), passes)
def test_propagating_again_changes_nothing(module: Module, propagate: Propagate) -> None:
    # A replicated scalar has no sharding in the text, so that its constraint adds one again. A
    # data-flow edge of a scalar becomes a constraint, which applies to its operand the second time.
    assume(not any(_is_constrained_scalar(op) for f in module.functions for op in f.body.walk()))
    once = propagate(module)
    # A boundary has even shards. Trimming it can make the members of a sharding group differ, and
    # the second run treats them as members with conflicting annotations: it inserts constraints.
    assume(not any(_has_trimmed_member(function) for function in once.functions))
    # A result on a single device puts the results of its operation without a sharding there. In the
    # first run a scalar stated as replicated prevents this, which then has no sharding in the text,
    # or only a parameter of a block states the device, which shares an edge with the result.
    devices = {mesh.name for mesh in once.meshes if mesh.is_maximal}
    assume(not any(_has_lone_result(op, devices) for f in once.functions for op in f.body.walk()))
    assert str(propagate(once)) == str(once)


def _has_lone_result(op: Op, devices: set[str]) -> bool:
    """Return whether a result is on one of the single-device meshes, and another has no
    sharding.
    """
    stated = [value.sharding for value in op.results]
    return None in stated and any(each is not None and each.mesh in devices for each in stated)


def _is_constrained_scalar(op: Op) -> bool:
    """Return whether an operation states a replicated or unreduced sharding of a scalar."""
    if op.spec is not ops.sharding_constraint or op.result.type.rank:
        return False
    stated = (op.operands[0].sharding, op.result.sharding)
    return any(each is not None and (each.replicated or each.unreduced) for each in stated)


def _has_trimmed_member(function: Function) -> bool:
    """Return whether members of a group differ, of which only those at boundaries may differ."""
    boundary = set(function.body.params)
    for op in function.body.walk():
        if op.spec is ops.manual_computation:
            boundary.update(op.blocks[0].params, op.results)
    for group in merge_groups(FunctionDraft(function)):
        shardings = {value.sharding for value in group.members}
        inner = {value.sharding for value in group.members if value not in boundary}
        if len(inner) < 2 <= len(shardings):
            return True
    return False


@given(modules(), st.data())
def test_results_are_equal(module: Module, data: st.DataObject) -> None:
    """Propagation only adds copies of constants and replaces uses by constraints."""
    module = annotate_randomly(data, module, lambda _: data.draw(st.booleans()))
    arguments = random_arguments(module)
    before, after = run(module, arguments), run(Propagate()(module), arguments)
    for want, got in zip(before, after, strict=True):
        assert got.tobytes() == want.tobytes()


@given(sharded_modules())
def test_recording_of_origins_does_not_change_shardings(module: Module) -> None:
    new, _ = Propagate().run_recorded(module)
    assert str(new) == str(Propagate()(module))
