"""Both programs take as many descriptors as they may have, whatever the shell that started them said."""

import resource
import subprocess
from pathlib import Path

import pytest

from fleet import processes


def lower_soft_limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@pytest.mark.parametrize("program, arguments", [
    ("xllm_master_serving", ["--server_host=127.0.0.1", "--http_server_port=0", "--rpc_server_port=0"]),
    ("xllm_engine_sim", ["--engines=1"]),
])
def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(program, arguments):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with subprocess.Popen([str(processes.default_bin_dir() / program), *arguments], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, preexec_fn=lower_soft_limit) as child:
        try:
            line = next(line for line in child.stderr if "open files" in line)
            assert f"limit raised from 256 to {hard}" in line
            limits = Path(f"/proc/{child.pid}/limits").read_text(encoding="utf-8")
            row = next(line for line in limits.splitlines() if line.startswith("Max open files"))
            assert row.split()[3:5] == [str(hard), str(hard)]
        finally:
            child.terminate()
            child.stderr.read()
            assert child.wait(20) == 0
