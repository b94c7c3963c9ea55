"""Rebuild the blocks of a program with views deferred.

Views are recorded, and materialized only where an operation needs the value. Operations that are
independent of the layout of their operands run on the bases of views, in dimensions that their
operands agree on, and their results are views in turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from shardir.ir.builder import Builder
from shardir.ir.module import Block, Op, Value
from shardir.ir.operation import Attr
from shardir.ir.types import TensorType
from shardir.passes.simplify.view_folding import views
from shardir.passes.simplify.view_folding.views import View, ViewDims, view_in_base_of
from shardir.passes.whole_program.dim_arrangement import reshape_if_needed

FoldingRule = Callable[["ViewFolder", Op, Sequence[View]], Sequence[View] | None]
"""Appends the replacement of an operation, given its operands; `None` if these must be
materialized."""


class ViewFolder:
    """Emits the folded program into the builder `b`. `view_of` has the view that replaces each
    value of the program."""

    def __init__(
        self, b: Builder, rules: dict[str, FoldingRule], outer: "ViewFolder | None" = None
    ) -> None:
        self.b, self.rules, self.outer = b, rules, outer
        self.view_of: dict[Value, View] = outer.view_of if outer else {}
        self.splats: dict[Value, Attr] = outer.splats if outer else {}
        self.contracted: set[Value] = outer.contracted if outer else set()
        self.values: dict[tuple[Value, ViewDims], Value] = {}
        self.defined: set[Value] = set()

    def inner(self) -> "ViewFolder":
        """Return the folder of a nested block."""
        return ViewFolder(self.b.inner(), self.rules, self)

    def get(self, value: Value) -> View:
        view = self.view_of.get(value)
        return views.identity_view(value) if view is None else view

    def defining_folder(self, base: Value) -> "ViewFolder":
        """Return the folder of the block that defines a base."""
        if self.outer is None or base in self.defined:
            return self
        return self.outer.defining_folder(base)

    def split_by_kind(self, view: View, kinds: Sequence[int]) -> tuple[View, list[int]]:
        """Apply `views.split_by_kind` in the block that defines the base of the view."""
        home = self.defining_folder(view.base)
        result = views.split_by_kind(home.b, view, kinds)
        home.defined.add(result[0].base)
        return result

    def reshape_base(self, base: Value, shape: Sequence[int]) -> Value:
        """Return a base reshaped, in the block that defines it."""
        home = self.defining_folder(base)
        result = reshape_if_needed(home.b, base, shape)
        home.defined.add(result)
        return result

    def materialize(self, view: View) -> Value:
        """Return the view as a value; materialized outside of a block if its base is defined
        there."""
        outer = self.outer
        if outer and view.base not in self.defined and view.base not in self.splats:
            return outer.materialize(view)
        key = (view.base, view.dims)
        result = self.values.get(key)
        if result is None:
            number = self.splats.get(view.base)
            if number is not None:
                type = view.base.type.with_shape(view.shape)
                result = self.b.constant(value=number, result=type)
            else:
                result = views.materialize_view(self.b, view)
            self.values[key] = result
            self.defined.add(result)
        return result

    def materialize_value(self, old: Value) -> Value:
        """Return the materialized replacement of a value."""
        view = self.get(old)
        return (
            view.base
            if view.is_identity and view.base not in self.splats
            else self.materialize(view)
        )

    def param(self, old: Value, like: View | None = None) -> Value:
        """Return a parameter that replaces one of the program, with its own layout or that of
        `like`."""
        view = like or views.identity_view(old)
        result = Value(old.type.with_shape(view.base.type.shape), old.name) if like else old
        self.defined.add(result)
        self.view_of[old] = View(result, view.dims)
        return result

    def materialize_like(self, old: Value, like: View) -> Value:
        """Return the replacement of a value with the layout of the base of `like`, a view of its
        shape."""
        view = self.get(old)
        dims = view_in_base_of(view.dims, like)
        if dims is None:
            view = views.identity_view(self.materialize(view))
            dims = view_in_base_of(view.dims, like)
            assert dims is not None
        return self.materialize(View(view.base, dims))

    def run(self, ops: Sequence[Op]) -> None:
        """Append the replacements of `ops`."""
        b, rules = self.b, self.rules
        outside = b.loc, b.why
        for op in ops:
            b.loc, b.why = op.loc, op.why
            rule = rules.get("elementwise" if op.spec.elementwise else op.name)
            new_views = None
            if rule is not None and all(value.type.size for value in op.tensors):
                new_views = rule(self, op, [self.get(value) for value in op.operands])
            if new_views is None:
                self.append_materialized(op)
                continue
            for old, view in zip(op.results, new_views, strict=True):
                self.view_of[old] = view
        b.loc, b.why = outside

    def append_materialized(self, op: Op) -> None:
        """Append the operation on materialized operands."""
        operands = tuple(self.materialize_value(value) for value in op.operands)
        if op.blocks:
            op = replace(op, blocks=tuple(map(self.block, op.blocks)))
        self.append(op if operands == op.operands else replace(op, operands=operands))
        for value in op.results:
            self.view_of.pop(value, None)

    def append(self, op: Op) -> None:
        self.b.append(op)
        self.defined.update(op.results)

    def rename_results(self, values: Sequence[Value], names: Sequence[str]) -> list[Value]:
        """Rename the results of the last operation."""
        results = tuple(Value(value.type, name) for value, name in zip(values, names, strict=True))
        self.b.ops[-1] = replace(self.b.ops[-1], results=results)
        self.defined.update(results)
        return list(results)

    def block(self, block: Block) -> Block:
        """Return a nested block with the same parameters and results."""
        inner = self.inner()
        for param in block.params:
            inner.param(param)
        inner.run(block.ops)
        return inner.b.block(
            block.params, [inner.materialize_value(value) for value in block.returns]
        )

    def emit(
        self, op: Op, operands: Sequence[Value], type: TensorType, attrs: Mapping[str, Attr]
    ) -> Value:
        """Append the replacement of the only result of `op`, of the given type and under its
        name."""
        result = Value(type, op.results[0].name)
        new_op = replace(op, operands=tuple(operands), results=(result,), attrs=attrs)
        self.append(new_op)
        return result
