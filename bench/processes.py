"""The programs that are measured: started here, stopped by their own process id."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.client import BenchError

ROOT = Path(__file__).resolve().parents[1]
SEED = 7


class Child:
    """A program that runs. ``port`` is where it listens."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, folder: Path | None = None) -> None:
        self.pid = process.pid
        self.port = port
        self.folder = folder

    @property
    def cpu_ns(self) -> int:
        """The processor time that all its threads have used so far, to the nanosecond (Linux only)."""
        # clock_getcpuclockid(3): the clock of a process is its id's complement, shifted, with CPUCLOCK_SCHED.
        return time.clock_gettime_ns((~self.pid << 3) | 2)

    @property
    def rss_bytes(self) -> int:
        """Its resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text("ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise BenchError(f"process {self.pid} has no memory any more")


def program(name: str) -> str:
    """The path of a command of this environment."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise BenchError(f"{name} is not installed here: run make setup")
    return found


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(folder: Path) -> dict[str, str]:
    """The environment of what is measured; its caches go to ``folder``."""
    same = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    # An installed program finds its modules compiled.
    return same | {
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONPYCACHEPREFIX": str(ROOT / ".bench" / "compiled"),
        "PYTHONUNBUFFERED": "1",
    }


@contextlib.contextmanager
def running(
    command: Sequence[str], folder: Path, port: int | None = None, *, at: Path = ROOT
) -> Iterator[Child]:
    """Runs ``command`` in ``at`` until the block is left. Without ``port`` its first line says its own.

    What it says goes to files in ``folder``; so do the caches that it makes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "stderr.txt").open("wb") as errors, (folder / "stdout.txt").open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=at,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if port is None else out,
            stderr=errors,
        )
        try:
            if port is None:
                said = process.stdout.readline() if process.stdout else b""
                if not said.strip().isdigit():
                    raise BenchError(_last_words(command, folder))
                port = int(said)
            await_port(process, command, folder, port)
            yield Child(process, port, folder)
        finally:
            stop(process)


def await_port(process: subprocess.Popen[bytes], command: Sequence[str], folder: Path, port: int) -> None:
    """Returns as soon as ``port`` takes a connection."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.002)
    raise BenchError(_last_words(command, folder))


def _last_words(command: Sequence[str], folder: Path) -> str:
    words = b"".join((folder / name).read_bytes()[-600:] for name in ("stdout.txt", "stderr.txt"))
    return f"{Path(command[0]).name} did not start: {words.decode(errors='replace').strip()}"


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends one process: asked first, made to after ten seconds."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """A folder for everything that a measurement writes."""
    with tempfile.TemporaryDirectory(prefix="chaosproxy-bench-") as name:
        yield Path(name)


def endpoint(folder: Path) -> contextlib.AbstractContextManager[Child]:
    """The cheap model endpoint, in a process of its own."""
    return running([sys.executable, "-m", "bench.endpoint"], folder / "endpoint")


def bare_proxy_command(upstream: int, port: int, folder: Path) -> list[str]:
    """mitmproxy's own command as a reverse proxy, and nothing else."""
    return [
        program("mitmdump"), "-q", "--mode", f"reverse:http://127.0.0.1:{upstream}",
        "--listen-host", "127.0.0.1", "--listen-port", str(port), "--set", f"confdir={folder}/conf",
    ]  # fmt: skip


def bare_proxy(upstream: int, folder: Path) -> contextlib.AbstractContextManager[Child]:
    port = free_port()
    place = folder / "mitmdump"
    return running(bare_proxy_command(upstream, port, place), place, port)


def chaosproxy_command(upstream: int, port: int, folder: Path, profile: str = "moderate") -> list[str]:
    return [
        program("chaosproxy"), "--seed", str(SEED), "--profile", profile, "--port", str(port),
        "--upstream", f"http://127.0.0.1:{upstream}", "--log", str(folder / "decisions.jsonl"),
    ]  # fmt: skip


def chaosproxy(
    upstream: int, folder: Path, profile: str = "moderate"
) -> contextlib.AbstractContextManager[Child]:
    port = free_port()
    place = folder / "chaosproxy"
    return running(chaosproxy_command(upstream, port, place, profile), place, port)
