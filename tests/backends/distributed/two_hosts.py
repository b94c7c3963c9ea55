"""Two hosts simulated on one machine, with an interruptible network between them; needs root.

    python -m tests.backends.distributed.two_hosts

A host is a network namespace with an address on a bridge and its own shared memory, so that
processes of two hosts communicate only through the network. A replacement for ssh enters a
namespace. The checks of distributed arrays must pass across the hosts. Then the network is
interrupted during a run, or a process never joins, and the other processes must end with a message.
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

from tests.backends.distributed.launched_job import MPIEXEC, ROOT

BRIDGE, NETWORK = "shardir0", "10.77.0"
HOSTS = {f"{NETWORK}.10": "shardir-a", f"{NETWORK}.11": "shardir-b"}
SSH_REPLACEMENT = """\
#!/bin/sh
# ssh -x HOST COMMAND...: the command in the namespace of the host.
while [ "${1#-}" != "$1" ]; do shift; done
case "$1" in CASES esac
shift
exec ip netns exec "$host" unshare --uts --ipc --mount sh -c \\
  "hostname $host && mount -t tmpfs tmpfs /dev/shm && exec $*"
"""
SCENARIOS = ROOT / "tests" / "backends" / "distributed" / "failure_scenarios.py"
TIMEOUT_SECONDS = 4


def run(*words: str) -> None:
    subprocess.run(words, check=True)


@contextmanager
def namespaces() -> Iterator[None]:
    """Create namespaces on a bridge, and delete them afterwards."""
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


def can_create_namespaces() -> bool:
    """Return whether this process can create namespaces; other processes may try concurrently."""
    if not hasattr(os, "geteuid") or os.geteuid() or not which("ip"):
        return False
    tries = (("netns", "add"), ("netns", "delete"), ("link", "add"), ("link", "delete"))
    name, done = f"shardir-{os.getpid()}", []
    for kind, verb in tries:
        more = ("type", "bridge") if (kind, verb) == ("link", "add") else ()
        command = ["ip", kind, verb, name, *more]
        done.append(subprocess.run(command, check=False, capture_output=True).returncode)
    return not any(done)


def start_job(
    folder: Path, *command: str, seconds: float = TIMEOUT_SECONDS
) -> subprocess.Popen[str]:
    """Start a job of two processes on each host."""
    ssh_replacement = folder / "enter"
    cases = " ".join(f"{address}) host={name};;" for address, name in HOSTS.items())
    ssh_replacement.write_text(SSH_REPLACEMENT.replace("CASES", cases), "utf-8")
    ssh_replacement.chmod(0o755)
    addresses = ("-hosts", ",".join(HOSTS), "-localhost", f"{NETWORK}.1")
    return subprocess.Popen(
        [
            *(str(MPIEXEC), "-launcher", "ssh", "-launcher-exec", str(ssh_replacement), *addresses),
            *("-ppn", "2", "-n", "4", sys.executable, *command),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SHARDIR_COMM_TIMEOUT": str(seconds)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check_distributed_arrays(folder: Path) -> None:
    """Check distributed arrays in four processes on two hosts."""
    process = start_job(folder, "-m", "tests.backends.distributed.distributed_arrays", str(folder))
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    print("four processes on two hosts:", *sorted(set(out.splitlines())))


def start_endless_job(folder: Path) -> subprocess.Popen[str]:
    """Start an endless job and wait until it runs."""
    path = folder / "begun"
    path.unlink(missing_ok=True)
    process = start_job(folder, str(SCENARIOS), "runs_forever", str(path))
    while not path.exists() and process.poll() is None:
        time.sleep(0.1)
    return process


def first_timeout_message(out: str) -> str:
    """Return the first message of a process that timed out."""
    assert f"timed out after {TIMEOUT_SECONDS} s, waiting for process" in out, out
    return next(line for line in out.splitlines() if line.startswith("shardir: "))


def interrupt_network_between_hosts(folder: Path) -> None:
    """Interrupt the network between the hosts; the launcher still reaches both."""
    process = start_endless_job(folder)
    for (_, name), other in zip(HOSTS.items(), reversed(HOSTS), strict=True):
        run("ip", "-n", name, "route", "add", "blackhole", f"{other}/32")
    out, _ = process.communicate(timeout=60)
    assert process.returncode in (13, signal.SIGALRM), out
    print("cut between the hosts:", first_timeout_message(out))


def disconnect_one_host(folder: Path) -> None:
    """Disconnect one host. The processes end; only mpiexec still waits for the TCP timeout of the
    host."""
    process = start_endless_job(folder)
    run("ip", "link", "set", list(HOSTS.values())[1], "down")
    limit = time.monotonic() + 60
    while any(pids(name) for name in HOSTS.values()):
        assert time.monotonic() < limit
        time.sleep(0.2)
    process.kill()
    print("a host cut off:", first_timeout_message(process.communicate()[0]))


def end_before_initialization(folder: Path) -> None:
    """A process on the second host never joins; its neighbour on the host reports that."""
    process = start_job(folder, str(SCENARIOS), "ends_before_it_joins", seconds=60)
    out, _ = process.communicate(timeout=50)
    assert process.returncode != 0, out  # 14, or another code if the launcher fails
    line = next(line for line in out.splitlines() if "would wait forever" in line)
    assert "another process of this host ended before calling it" in line
    print("one that never joins:", line)


def pids(name: str) -> list[str]:
    """Return the process ids on a host."""
    command = ["ip", "netns", "pids", name]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


SCENARIO_CHECKS = (
    check_distributed_arrays,
    interrupt_network_between_hosts,
    disconnect_one_host,
    end_before_initialization,
)


def main() -> None:
    for part in SCENARIO_CHECKS:
        with namespaces(), tempfile.TemporaryDirectory() as name:
            part(Path(name))


if __name__ == "__main__":
    main()
