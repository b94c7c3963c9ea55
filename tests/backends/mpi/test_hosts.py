"""Several hosts, where this machine can be several: as root, in `make test-long`."""

import pytest
from hypothesis import settings

from tests.backends.mpi import hosts

LONG = settings().max_examples > 200

if LONG and hosts.can_be_several():

    def test_two_hosts(capsys: pytest.CaptureFixture[str]) -> None:
        hosts.main()
        assert capsys.readouterr().out.count("\n") == len(hosts.PARTS)
