"""Starting a thread, where one can be had."""

import sys
from threading import Thread


def started(thread: Thread) -> bool:
    """Start a thread; false where the system has none to give, or Python is ending.

    Before Python 3.12 one that is started while Python ends would be waited for in vain.
    """
    if sys.is_finalizing():
        return False
    try:
        thread.start()
    except RuntimeError:
        return False
    except KeyError as error:
        # CPython's `start` stumbles over what the handler of a signal raises in there.
        raise error.__context__ or error from None
    return True
