"""The mark of tests that need the C extension."""

import pytest

from shardir.backends.native import native

needs_native = pytest.mark.skipif(native is None, reason="the C extension is not installed")
