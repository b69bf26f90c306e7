"""Starting and ending the service and its simulated fleet as separate processes on loopback.

Used by the demo, the trace replay and the integration tests, so that all of them start the product alike."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

HOST = "127.0.0.1"
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PROGRAMS = ("xllm_master_serving", "xllm_engine_sim")

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1


class StartError(Exception):
    """A process could not be started; the text says which, why, and what to change."""


class Interrupts:
    """From its making on, the first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt in the main thread. Later ones
    are ignored: whoever signals a process group often signals its members too, and that must not cut the clean-up."""

    def __init__(self):
        self.number = None  # of the signal that came
        self._cancel = None
        for number in ENDING_SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number, _):
        if self.number is not None:
            return
        self.number = number
        if self._cancel is None:
            raise KeyboardInterrupt
        self._cancel()

    def run(self, coroutine):
        """asyncio.run(); the signal cancels the coroutine first."""
        async def cancellable():
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            try:
                return await coroutine
            finally:
                self._cancel = None
        try:
            return asyncio.run(cancellable())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


@contextlib.contextmanager
def signals_held():
    """What would end this process waits until the block is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stdout_is_gone(program):
    """After a BrokenPipeError: says so, and lets the interpreter end without a second one. Returns the status."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        print(f"{program}: nobody reads the output any more, so it ends", file=sys.stderr)
    except OSError:  # the same pipe
        os.dup2(nowhere, sys.stderr.fileno())
    return 128 + signal.SIGPIPE


def check_programs(bin_dir):
    for name in PROGRAMS:
        path = Path(bin_dir) / name
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise StartError(f"no program {path}: build it with `make build`, or say where it is with XMS_BIN_DIR")


def port_is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def wait_for(what, condition, seconds, alive=lambda: None):
    """Polls until condition() is true; StartError naming `what` when it does not come. `alive` may raise earlier."""
    deadline = time.monotonic() + seconds
    while not condition():
        alive()
        if time.monotonic() > deadline:
            raise StartError(f"waited {seconds:.0f} s in vain for: {what}")
        time.sleep(0.02)


def http_get(url, timeout=5.0):
    """(status, body) of a GET; (0, b"") when nothing answers."""
    try:
        with urllib.request.urlopen(url, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except OSError:
        return 0, b""


class Process:
    """One child process in a session of its own, its output in a file. It does not outlive this process, however
    that ends."""

    def __init__(self, name, command, log_path):
        self.name, self.command, self.log_path = name, command, Path(log_path)
        self._log = open(log_path, "wb")
        parent = os.getpid()

        def before_exec():
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # died before it could be watched
                os._exit(1)
            for number in ENDING_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING_SIGNALS)
        with signals_held():
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=subprocess.STDOUT,
                                           start_new_session=True, preexec_fn=before_exec)

    @property
    def pid(self):
        return self._child.pid

    def returncode(self):
        return self._child.poll()

    def output(self):
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def check_alive(self):
        if self._child.poll() is not None:
            tail = "\n".join(self.output().strip().splitlines()[-5:])
            raise StartError(f"{self.name} ended by itself with status {self._child.returncode}:\n{tail}")

    def signal(self, number):
        self._child.send_signal(number)

    def stop(self, seconds=10.0):
        """Asks it to end, insists after `seconds`; returns its status."""
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(seconds)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        self._log.close()
        return self._child.returncode


class Fleet:
    """A service with the embedded registry and one simulator process. A context manager: leaving it ends both."""

    def __init__(self, bin_dir, policy="CAR", http_port=0, rpc_port=0, service_flags=(), sim_flags=(),
                 block_size=128, event_port_offset=1000, replay_port_offset=2000, topic="xllm-kv"):
        check_programs(bin_dir)
        self.bin_dir = Path(bin_dir)
        self.policy = policy
        self._want_http, self._want_rpc = http_port, rpc_port
        self._service_flags, self._sim_flags = list(service_flags), list(sim_flags)
        self.block_size = block_size
        self._event_offset, self._replay_offset, self._topic = event_port_offset, replay_port_offset, topic
        self._folder = tempfile.TemporaryDirectory(prefix="xms-fleet-")
        self.service = self.sim = None
        self.http_port = self.rpc_port = None
        self.engines = []

    def __enter__(self):
        try:
            self.start_service()
            self.start_sim()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def http_url(self):
        return f"http://{HOST}:{self.http_port}"

    @property
    def rpc_url(self):
        return f"http://{HOST}:{self.rpc_port}"

    def start_service(self):
        config = Path(self._folder.name) / "kv_events.json"
        config.write_text(json.dumps({"discovery": {
            "enabled": True, "block_size": self.block_size, "topic": self._topic,
            "event_port_offset": self._event_offset, "replay_port_offset": self._replay_offset,
            "refresh_interval_ms": 200}}))
        self.service = Process("xllm_master_serving", [
            str(self.bin_dir / "xllm_master_serving"), f"--server_host={HOST}",
            f"--http_server_port={self._want_http}", f"--rpc_server_port={self._want_rpc}",
            f"--load_balance_policy={self.policy}", f"--kv_events_config_file={config}",
            *self._service_flags], Path(self._folder.name) / "service.log")
        wait_for("the service's first log lines with its ports", self._ports_known, 10, self.service.check_alive)

    def _ports_known(self):
        for line in self.service.output().splitlines():
            if "listening:" in line:
                words = dict(word.split("=", 1) for word in line.split() if "=" in word)
                self.rpc_port, self.http_port = int(words["rpc_port"]), int(words["http_port"])
                return True
        return False

    def start_sim(self):
        self.sim = Process("xllm_engine_sim", [
            str(self.bin_dir / "xllm_engine_sim"), f"--service_rpc={HOST}:{self.rpc_port}",
            f"--block_size={self.block_size}", f"--event_port_offset={self._event_offset}",
            f"--replay_port_offset={self._replay_offset}", f"--topic={self._topic}",
            *self._sim_flags], Path(self._folder.name) / "sim.log")
        wait_for("the simulator's list of engines", self._engines_known, 20, self.sim.check_alive)

    def _engines_known(self):
        for line in self.sim.output().splitlines():
            if line.startswith('{"engines"'):
                self.engines = json.loads(line)["engines"]
                return True
        return False

    def wait_ready(self, seconds=20):
        """Every engine registered, every stream synchronized, the client port open."""
        def ready():
            if http_get(f"{self.rpc_url}/ready")[0] != 200:
                return False
            listed = json.loads(http_get(f"{self.rpc_url}/v1/internal/instances")[1] or b"{}")
            known = [i for i in listed.get("instances", []) if i["schedulable"] and i["load"]]
            if len(known) < len(self.engines):
                return False
            request = urllib.request.Request(f"{self.http_url}/v1/internal/kv-cache/query",
                                             data=b'{"token_ids":[]}', method="POST")
            try:
                with urllib.request.urlopen(request, timeout=5) as answer:
                    body = json.load(answer)
            except (OSError, ValueError):
                return False
            streams = sum(engine["dp_size"] for engine in self.engines)
            return sum(match["synchronized"] for match in body["matches"]) == streams

        def alive():
            self.service.check_alive()
            self.sim.check_alive()
        wait_for("the fleet to be ready", ready, seconds, alive)

    def stop(self):
        """Ends the simulator first, so that it can deregister. Returns both statuses, None where not started."""
        with signals_held():
            statuses = [process.stop() if process else None for process in (self.sim, self.service)]
            self._folder.cleanup()
        return statuses


def default_bin_dir():
    """XMS_BIN_DIR, else the release build of this checkout."""
    return Path(os.environ.get("XMS_BIN_DIR") or Path(__file__).resolve().parents[2] / "out" / "release" / "bin")
