"""A target of shardir: pointwise programs of one device as functions of GNU Octave."""

from collections.abc import Callable, Mapping

from shardir.extend import Emission, EmissionError, RuleTable, Target, register_target

RULES: RuleTable[Callable[..., str]] = RuleTable("octave", "@RULES.rule({0!r}) of octave_target")
"""The Octave expression of each operation, as a function of the names of its operands."""

for name, expression in {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} .* {}",
    "neg": "-{}",
    "exp": "exp({})",
    "tanh": "tanh({})",
}.items():
    RULES.rule(name)(expression.format)


class Octave(Target):
    """Writes one function file."""

    name = "octave"
    pipeline = "cse,dce"

    def emit(self, emission: Emission, options: Mapping[str, str]) -> dict[str, str | bytes]:
        if emission.mesh.axes:
            raise EmissionError("target 'octave' has one device; remove the mesh of the program")
        body = emission.module.main.body
        params = ", ".join(value.name for value in body.params)
        results = ", ".join(value.name for value in body.returns)
        lines = [f"function [{results}] = {emission.title}({params})"]
        for op in body.ops:
            names = [value.name for value in op.operands]
            lines.append(f"  {op.result.name} = {RULES.of(op)(*names)};  % {op.result.type}")
        return {f"{emission.title}.m": "\n".join([*lines, "end", ""])}


TARGET = register_target(Octave())
