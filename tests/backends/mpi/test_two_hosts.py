"""Several hosts, where this machine can be several: as root, in `make test-long`."""

import pytest
from hypothesis import settings

from tests.backends.mpi import two_hosts

LONG = settings().max_examples > 200

if LONG and two_hosts.can_be_several():

    def test_two_hosts(capsys: pytest.CaptureFixture[str]) -> None:
        two_hosts.main()
        assert capsys.readouterr().out.count("\n") == len(two_hosts.PARTS)
