"""Jobs on two hosts, which need root: part of `make test-long`."""

import pytest
from hypothesis import settings

from tests.backends.distributed import two_hosts

IS_LONG_RUN = settings().max_examples > 200

if IS_LONG_RUN and two_hosts.can_create_namespaces():

    def test_jobs_on_two_hosts(capsys: pytest.CaptureFixture[str]) -> None:
        two_hosts.main()
        assert capsys.readouterr().out.count("\n") == len(two_hosts.SCENARIO_CHECKS)
