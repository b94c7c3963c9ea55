"""Wrong calls, and the words that refuse them."""

from collections.abc import Callable
from typing import Any

import pytest

from shardir.errors import ShardirError


def assert_refused(wrong: Callable[[], Any], kind: type[ShardirError], text: str) -> None:
    """The call raises an error of exactly this kind, whose first line is exactly this text."""
    with pytest.raises(ShardirError) as caught:
        wrong()
    assert type(caught.value) is kind
    assert str(caught.value).split("\n")[0] == text
