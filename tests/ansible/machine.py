"""A machine to install on: Debian with a systemd that was really booted, by systemd-nspawn.

It shares this machine's network, so each has ports of its own. Needs root, and the packages that
`TEST_MACHINES=install make slow` installs.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.ansible.supplies import Supplies
from tests.support.servers.s3_server import NotInstalledError, free_port, need

BOOTED_S_MAX = 60
_PR_SET_PDEATHSIG = 1
REBOOT = 133  # how nspawn says, with --keep-unit, that the machine wants to be started again
SSH_OPTIONS = (
    "-oStrictHostKeyChecking=no",
    "-oUserKnownHostsFile=/dev/null",
    "-oLogLevel=ERROR",
    "-oConnectTimeout=5",
)


def _stop_with_parent() -> None:
    """SIGTERM, which switches the machine off: it would outlive a killed systemd-nspawn."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Machine:
    """`folder` holds its disk, its ssh key and the log of its console."""

    def __init__(self, folder: Path, supplies: Supplies) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.key = folder / "ssh-key"
        self.ssh_port = free_port()
        self._supplies = supplies
        self._nspawn: subprocess.Popen[bytes] | None = None

    def unpack(self) -> None:
        """A disk on which nothing was ever installed."""
        with tarfile.open(self._supplies.root) as archive:
            archive.extractall(self.root, filter="fully_trusted")
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)]
        subprocess.run(keygen, check=True)
        ssh = self.root / "root" / ".ssh"
        ssh.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(self.key.with_suffix(".pub"), ssh / "authorized_keys")
        config = self.root / "etc" / "ssh" / "sshd_config.d" / "test.conf"
        config.write_text(f"Port {self.ssh_port}\nListenAddress 127.0.0.1\n")
        (self.root / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        (self.root / "etc" / "machine-id").write_text("")
        # An image is as old as its making: its lists of packages are to be fetched anew.
        os.utime(self.root / "var" / "lib" / "apt" / "lists", (0, 0))

    def boot(self, within_s: float = BOOTED_S_MAX) -> None:
        """Returns when systemd says that everything was started."""
        with (self.folder / "console.log").open("ab") as console:
            self._nspawn = subprocess.Popen(
                [
                    "systemd-nspawn",
                    f"--directory={self.root}",
                    "--register=no",
                    "--keep-unit",
                    "--console=pipe",
                    "--resolv-conf=copy-host",
                    f"--bind-ro={self._supplies.wheels}:/wheels",
                    f"--bind={self._supplies.packages}:/var/cache/apt/archives",
                    "--boot",
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                preexec_fn=_stop_with_parent,
            )
        self.wait_until(["systemctl", "is-system-running"], within_s)

    def reboot(self) -> None:
        assert self._nspawn is not None
        self.ask("systemctl", "reboot")
        assert self._nspawn.wait(BOOTED_S_MAX) == REBOOT
        self.boot()

    def burn(self) -> None:
        """The machine is gone at once, and its disk with it."""
        assert self._nspawn is not None
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children")
        (init,) = map(int, children.read_text().split())
        os.kill(init, signal.SIGKILL)  # the machine's first process: all of its others go with it
        self._nspawn.wait(BOOTED_S_MAX)
        shutil.rmtree(self.root)

    def stop(self) -> None:
        """Switch it off, as its power button does."""
        if self._nspawn is not None and self._nspawn.poll() is None:
            self._nspawn.send_signal(signal.SIGTERM)
            try:
                self._nspawn.wait(BOOTED_S_MAX)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait()
        self._nspawn = None

    def ask(self, *command: str) -> str:
        """What a command on it prints; raises CalledProcessError if it fails."""
        return self._ssh(command).stdout

    def answers(self, *command: str) -> bool:
        """Whether a command on it succeeds."""
        try:
            self._ssh(command)
        except subprocess.CalledProcessError:
            return False
        return True

    def wait_until(self, command: Sequence[str], within_s: float) -> None:
        """Ask until the command succeeds."""
        deadline_s = time.monotonic() + within_s
        while not self.answers(*command):
            assert time.monotonic() < deadline_s, f"{' '.join(command)}: not within {within_s} s"
            time.sleep(0.2)

    def _ssh(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        ssh = ["ssh", *SSH_OPTIONS, "-i", str(self.key), "-p", str(self.ssh_port)]
        return subprocess.run(
            [*ssh, "root@127.0.0.1", *command],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        )


@contextlib.contextmanager
def running_machine(
    folder: Path,
    supplies: Supplies,
    prepare: Callable[[Machine], None] = lambda _: None,
    booted_within_s: float = BOOTED_S_MAX,
) -> Iterator[Machine]:
    """A machine on which nothing was ever installed, booted; gone when the block ends. `prepare`
    may change its disk before."""
    need("systemd-nspawn", "ssh", "ssh-keygen")
    if os.geteuid() != 0:
        raise NotInstalledError("systemd-nspawn needs root")
    machine = Machine(folder, supplies)
    with _one_at_a_time():
        try:
            machine.unpack()
            prepare(machine)
            machine.boot(booted_within_s)
            yield machine
        finally:
            machine.stop()
            shutil.rmtree(machine.root, ignore_errors=True)


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Machines share the control groups of the one that they are on: a second one's systemd would
    take those of the first one's services away."""
    with Path(tempfile.gettempdir(), "seb-test-machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
