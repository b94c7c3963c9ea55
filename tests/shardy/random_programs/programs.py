"""Random programs with random shardings that are difficult for propagation.

Shapes are small and share divisors, values have several uses, and shardings are open, closed,
prioritised, of sub-axes, explicitly replicated, on parameters, results, operations and constraints.
A program is a function of its seed. No operation is dead: Shardy erases dead operations while it
propagates, and our propagation does not.
"""

from dataclasses import replace
from random import Random

from shardir import ops as ops  # declares the operations
from shardir.frontend.random_programs.reduction import remove_dead_operations
from shardir.ir.mesh import Mesh
from shardir.ir.module import Block, Function, Module
from tests.shardy.random_programs import annotations, calls, custom_calls, operations, regions
from tests.shardy.random_programs.program_builder import KINDS, MESHES, Options, ProgramBuilder

KINDS.update(
    {
        "manual": regions.manual,
        "unary": operations.unary,
        "binary": operations.binary,
        "select": operations.select,
        "clamp": operations.clamp,
        "convert": operations.convert,
        "broadcast": operations.broadcast,
        "reshape": operations.reshape,
        "transpose": operations.transpose,
        "reverse": operations.reverse_,
        "slice": operations.slice_,
        "pad": operations.pad,
        "concatenate": operations.concatenate,
        "dynamic_slice": operations.dynamic_slice,
        "dynamic_update_slice": operations.dynamic_update_slice,
        "dot": operations.dot,
        "reduce": operations.reduce,
        "cumulative": operations.cumulative,
        "sort": operations.sort_,
        "top_k": operations.top_k,
        "gather": operations.gather,
        "scatter": operations.scatter,
        "reduce_window": operations.reduce_window,
        "convolution": operations.convolution,
        "complex": operations.complex_,
        "barrier": operations.barrier,
        "propagation_barrier": annotations.propagation_barrier,
        "reshard": annotations.reshard,
        "transfer": annotations.transfer,
        "custom": custom_calls.custom_call,
        "call": calls.call,
        "while": regions.while_,
        "case": regions.case_,
    }
)


def program(seed: int | str, options: Options | None = None) -> Module:
    """Return the program of a seed."""
    random = Random(seed)
    options = options or Options()
    meshes = tuple(Mesh(f"m{i or ''}", random.choice(MESHES)) for i in range(options.meshes))
    if options.meshes > 2 and random.random() < 0.5:
        meshes = (*meshes[:-1], replace(meshes[0], name=meshes[-1].name))
    m = ProgramBuilder(random, options, meshes)
    if options.maximal:
        m.single = Mesh("single", (), (0,))
        meshes = (*meshes, m.single)
    m.run()
    made = [v for op in m.b.ops for v in op.results]
    used = {v for op in m.b.ops for v in op.uses()}
    dangling = {op.result for op in m.b.ops if op.name == "sharding_constraint"}
    returns = [v for v in made if v not in used and (v not in dangling or m.chance(0.3))]
    returns = [v for v in returns if m.chance(0.7)] or made[-1:]
    if m.params and m.chance(0.2):
        returns.append(m.random.choice(m.params))
    body = remove_dead_operations(m.b.block((), returns))
    live = {v for op in body.walk() for v in op.uses()} | set(returns)
    params = tuple(p for p in m.params if p in live)
    results = tuple(m.sharding(v.type.shape) if m.chance(0.3) else None for v in returns)
    block = Block(params, body.ops, body.returns)
    return Module(meshes, (Function("main", block, results), *m.functions))
