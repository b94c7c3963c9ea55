"""Two hosts on one machine, and a network between them that is cut; for root alone.

    python -m tests.backends.mpi.two_hosts

A host is a network namespace with an address on a bridge and a shared memory of its own, so that
processes of two hosts reach each other through the network alone. What stands in for ssh enters
one. The claims about arrays hold across them; then the network is cut in the middle of a run, or a
process never joins, and the others end with a message.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from tests.backends.mpi.mpiexec_job import MPIEXEC, ROOT

BRIDGE, NETWORK = "shardir0", "10.77.0"
HOSTS = {f"{NETWORK}.10": "shardir-a", f"{NETWORK}.11": "shardir-b"}
STAND_IN = """\
#!/bin/sh
# ssh -x HOST COMMAND...: the command in the namespace of the host.
while [ "${1#-}" != "$1" ]; do shift; done
case "$1" in CASES esac
shift
exec ip netns exec "$host" unshare --uts --ipc --mount sh -c \\
  "hostname $host && mount -t tmpfs tmpfs /dev/shm && exec $*"
"""
SCENARIOS = ROOT / "tests" / "backends" / "mpi" / "failure_scenarios.py"
SECONDS = 4


def run(*words: str) -> None:
    subprocess.run(words, check=True)


@contextmanager
def hosts() -> Iterator[None]:
    """Namespaces on a bridge, gone afterwards."""
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    try:
        run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for address, name in HOSTS.items():
            run("ip", "netns", "add", name)
            run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", name, "master", BRIDGE, "up")
            inside = ("ip", "-n", name)
            run(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                run(*inside, "link", "set", device, "up")
        yield
    finally:
        for name in HOSTS.values():
            subprocess.run(["ip", "link", "delete", name], check=False)
            subprocess.run(["ip", "netns", "delete", name], check=False)
        run("ip", "link", "delete", BRIDGE)


def can_be_several() -> bool:
    """Whether this machine lets namespaces be made; other processes may try at the same time."""
    if not hasattr(os, "geteuid") or os.geteuid() or not which("ip"):
        return False
    tries = (("netns", "add"), ("netns", "delete"), ("link", "add"), ("link", "delete"))
    name, done = f"shardir-{os.getpid()}", []
    for kind, verb in tries:
        more = ("type", "bridge") if (kind, verb) == ("link", "add") else ()
        command = ["ip", kind, verb, name, *more]
        done.append(subprocess.run(command, check=False, capture_output=True).returncode)
    return not any(done)


def job(folder: Path, *command: str, seconds: float = SECONDS) -> subprocess.Popen[str]:
    """A job of two processes on each host."""
    stand_in = folder / "enter"
    cases = " ".join(f"{address}) host={name};;" for address, name in HOSTS.items())
    stand_in.write_text(STAND_IN.replace("CASES", cases), "utf-8")
    stand_in.chmod(0o755)
    addresses = ("-hosts", ",".join(HOSTS), "-localhost", f"{NETWORK}.1")
    return subprocess.Popen(
        [
            *(str(MPIEXEC), "-launcher", "ssh", "-launcher-exec", str(stand_in), *addresses),
            *("-ppn", "2", "-n", "4", sys.executable, *command),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SHARDIR_COMM_TIMEOUT": str(seconds)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def claims(folder: Path) -> None:
    """What arrays promise, four processes on two hosts."""
    process = job(folder, "-m", "tests.backends.mpi.distributed_arrays", str(folder))
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    print("four processes on two hosts:", *sorted(set(out.splitlines())))


def begun(folder: Path) -> subprocess.Popen[str]:
    """A job without an end, once it runs."""
    path = folder / "begun"
    path.unlink(missing_ok=True)
    process = job(folder, str(SCENARIOS), "runs_on", str(path))
    while not path.exists() and process.poll() is None:
        time.sleep(0.1)
    return process


def told(out: str) -> str:
    """The first message of a process that gave up."""
    assert f"timed out after {SECONDS} s, waiting for process" in out, out
    return next(line for line in out.splitlines() if line.startswith("shardir: "))


def cut_between_hosts(folder: Path) -> None:
    """No host reaches the other; the launcher reaches both."""
    process = begun(folder)
    for (_, name), other in zip(HOSTS.items(), reversed(HOSTS), strict=True):
        run("ip", "-n", name, "route", "add", "blackhole", f"{other}/32")
    out, _ = process.communicate(timeout=60)
    assert process.returncode in (13, signal.SIGALRM), out
    print("cut between the hosts:", told(out))


def cut_off(folder: Path) -> None:
    """Nobody reaches one host. The processes end; mpiexec alone waits for it, for TCP's time."""
    process = begun(folder)
    run("ip", "link", "set", list(HOSTS.values())[1], "down")
    limit = time.monotonic() + 60
    while any(pids(name) for name in HOSTS.values()):
        assert time.monotonic() < limit
        time.sleep(0.2)
    process.kill()
    print("a host cut off:", told(process.communicate()[0]))


def ends_before_it_joins(folder: Path) -> None:
    """A process on the second host never joins: who was started beside it notices."""
    process = job(folder, str(SCENARIOS), "ends_before_it_joins", seconds=60)
    out, _ = process.communicate(timeout=50)
    assert process.returncode != 0, out  # 14, unless the launcher stumbles over the other host
    line = next(line for line in out.splitlines() if "waits for ever" in line)
    assert "another process of this host ended before calling it" in line
    print("one that never joins:", line)


def pids(name: str) -> list[str]:
    """The processes on a host."""
    command = ["ip", "netns", "pids", name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


PARTS = (claims, cut_between_hosts, cut_off, ends_before_it_joins)


def main() -> None:
    for part in PARTS:
        with hosts(), tempfile.TemporaryDirectory() as name:
            part(Path(name))


if __name__ == "__main__":
    main()
