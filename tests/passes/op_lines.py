"""Operations of a module as lines of text, and the reasons of its collectives."""

from shardir.ir.module import Module


def body(module: Module) -> list[str]:
    """The operations of the function, one a line."""
    return [line.strip() for line in str(module).splitlines() if " = " in line and "@m" not in line]


def reasons(module: Module) -> list[str]:
    """What each `reshard` says that it is for."""
    return [op.why for op in module.main.body.walk() if op.name == "reshard"]
