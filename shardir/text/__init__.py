"""The text form of the IR.

Input: text (`.ir` files), or modules. Output: modules with source locations, or text; the text of a
module parses to an equal module. Start with `parser.py` (text to module) and `printer.py` (module
to text); `grammar.lark` is the grammar, `resolver.py` resolves names and reports errors.
"""
