"""The text form of the IR: `parser` reads it, `printer` writes it."""
