"""The code that calls the command line, such as the script that an installation makes for it.

This code may be in any folder and is no line of the user's program, so errors do not show it.
"""

from types import CodeType

command_callers: set[CodeType] = set()
