"""The functions of the core that programs call: their errors show the user's line."""

from functools import wraps

from shardir.display import compilation_progress
from shardir.frontend.argument_errors import locate_errors
from shardir.frontend.errors import ArgumentError
from shardir.frontend.quoting import brief
from shardir.ir.module import Module
from shardir.op_rules import custom_rules, rule_notation
from shardir.text import parser

progress = locate_errors(compilation_progress.progress)
register_rule = locate_errors(custom_rules.register_rule)
rules = locate_errors(custom_rules.rules)
sharding_rule = locate_errors(rule_notation.sharding_rule)


@locate_errors
@wraps(parser.parse)
def parse(text: str, file: str = "<text>") -> Module:
    if not isinstance(text, str):
        raise ArgumentError(f"a program is text, got {brief(text)}")
    return parser.parse(text, file)
