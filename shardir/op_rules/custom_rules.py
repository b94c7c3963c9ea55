"""Factor rules that users register for operations by name.

    register_rule("my_op", "i j, j k -> i k", reduction="j")      # for the whole process
    with rules({"my_op": "i j, j k -> i k reduction={j}"}):       # in this block
        ...

The name is that of an opaque operation (for a custom call: its target) or of an operation of this
IR. Installed packages state rules of opaque operations with entry points of the group
`shardir.sharding_rules`. Blocks use context variables: each thread and each task has its own rules,
and the end of a block restores the previous ones. Propagation reads `rules_in_force` once when it
starts.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import MappingProxyType

from shardir.errors import RuleError
from shardir.ir.module import Block, Function, Module, Op
from shardir.ir.operation import OPS
from shardir.op_rules.factors import FactorRule
from shardir.op_rules.rule_notation import FactorNames, ShardingRule, sharding_rule
from shardir.ops.opaque import add_rule, has_rule_in_text, opaque
from shardir.plugins.registry import Registry

PACKAGE_RULES: Registry[ShardingRule] = Registry(
    "sharding rule",
    "shardir.sharding_rules",
    expected="a result of shardir.sharding_rule",
    accepts=lambda entry: isinstance(entry, ShardingRule),
)
"""The rules of installed packages for opaque operations, by operation or target of a custom call;
registered and block rules take precedence."""
_process: dict[str, ShardingRule] = {}
_block: ContextVar[Mapping[str, ShardingRule]] = ContextVar(
    "shardir_rules", default=MappingProxyType({})
)


def register_rule(
    name: str,
    rule: str | ShardingRule,
    *,
    reduction: FactorNames = (),
    need_replication: FactorNames = (),
    permutation: FactorNames = (),
    blocked: FactorNames = (),
    sizes: Mapping[str, int] | None = None,
    replace: bool = False,
) -> None:
    """Register the factor rule of the operation `name` for the rest of the process.

    `rule` is written as for `sharding_rule`, which receives the other arguments. Raises `RuleError`
    if the rule cannot be parsed, or if the operation already has a different rule and `replace` is
    false.
    """
    if isinstance(rule, str):
        rule = sharding_rule(
            rule,
            reduction=reduction,
            need_replication=need_replication,
            permutation=permutation,
            blocked=blocked,
            sizes=sizes,
        )
    _check(name, rule)
    old_rule = _process.get(name, rule)
    if old_rule != rule and not replace:
        raise RuleError(
            f"{name!r} has the rule {str(old_rule)!r} already; pass replace=True, or use the "
            "new rule in a block of shardir.rules"
        )
    _process[name] = rule


def rules(stated: Mapping[str, str | ShardingRule]) -> AbstractContextManager[None]:
    """Use the given rules, keyed by operation name, in a block; inner blocks take precedence."""
    if not isinstance(stated, Mapping):
        raise RuleError(f"rules takes a dictionary from names to rules, got {stated!r}")
    read = {name: sharding_rule(r) if isinstance(r, str) else r for name, r in stated.items()}
    for name, rule in read.items():
        _check(name, rule)
    return _use_rules(read)


@contextmanager
def _use_rules(added: Mapping[str, ShardingRule]) -> Iterator[None]:
    token = _block.set({**_block.get(), **added})
    try:
        yield
    finally:
        _block.reset(token)


def _check(name: str, rule: object) -> None:
    if not isinstance(name, str):
        raise RuleError(f"a rule is stated for the name of an operation, got {name!r}")
    if not isinstance(rule, ShardingRule):
        raise RuleError(f"the rule of {name!r} is a text such as 'i j -> j i', got {rule!r}")
    if (spec := OPS.get(name)) and spec.blocks and spec.edges:
        raise RuleError(
            f"{name!r} has no factors of its own: shardings pass between its operands, its "
            "blocks and its results; state rules for the operations in its blocks"
        )


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules in force, by operation name."""

    entries: tuple[tuple[str, ShardingRule], ...] = ()

    def bind(self, module: Module) -> Module:
        """Return the module with the rules attached to its opaque operations.

        A rule that the operation already states takes precedence.
        """
        rules = dict(self.entries)
        bound: dict[Op, Op] = {}
        for function in module.functions:
            for op in function.body.walk():
                if op.spec is opaque and not has_rule_in_text(op.attrs):
                    operation = op.attrs["operation"]
                    target = operation.rpartition("@")[2]
                    rule = rules.get(operation) or rules.get(target) or _package_rule(target)
                    if rule is not None:
                        attrs = add_rule(op.attrs, _fit_rule(op, operation, rule))
                        bound[op] = replace(op, attrs=attrs)
        if not bound:
            return module

        def rebuild_block(old: Block) -> Block:
            return Block(old.params, tuple(map(rebuild_op, old.ops)), old.returns)

        def rebuild_op(op: Op) -> Op:
            op = bound.get(op, op)
            return replace(op, blocks=tuple(map(rebuild_block, op.blocks))) if op.blocks else op

        def rebuild_function(function: Function) -> Function:
            return replace(function, body=rebuild_block(function.body))

        return replace(module, functions=tuple(map(rebuild_function, module.functions)))

    def factors_of(self, op: Op) -> FactorRule | None:
        """Return the factor rule of an operation: the registered rule or its own."""
        for name, rule in self.entries:
            if name == op.name:
                return _fit_rule(op, name, rule)
        return op.factors()


def _package_rule(name: str) -> ShardingRule | None:
    """Return the rule that an installed package or a file of `SHARDIR_LOAD` has."""
    # The search may load a file that registers the rule.
    return PACKAGE_RULES.find(name) or _process.get(name)


def _fit_rule(op: Op, name: str, rule: ShardingRule) -> FactorRule:
    """Return the factor rule for the tensors of an operation; errors name the operation."""
    try:
        return rule.for_shapes(
            [value.type.shape for value in op.operands], [value.type.shape for value in op.results]
        )
    except RuleError as error:
        names = ", ".join(f"%{value.name}" for value in op.results)
        at = f", {op.loc}" if op.loc else ""
        raise RuleError(f"{error} (stated for {name!r}, at {names}{at})") from None


NO_RULES = RuleSet()


def rules_in_force() -> RuleSet:
    """Return the rules in force; every cache of propagated programs has them in its key."""
    block = _block.get()
    return RuleSet(tuple({**_process, **block}.items())) if _process or block else NO_RULES
