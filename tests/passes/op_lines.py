"""Operations of a module as lines of text, and the reasons of its collectives."""

from shardir.ir.module import Module


def body(module: Module) -> list[str]:
    """Return the operations of the function, one per line."""
    return [line.strip() for line in str(module).splitlines() if " = " in line and "@m" not in line]


def reasons(module: Module) -> list[str]:
    """Return the reason that each `reshard` states."""
    return [op.why for op in module.main.body.walk() if op.name == "reshard"]
