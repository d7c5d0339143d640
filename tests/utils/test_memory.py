"""What a process may still take."""

import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="limits of a process are those of Unix")

ASKED = """
import resource, torch
from evenhand.utils.memory import available_bytes
before = available_bytes(torch.device("cpu"))
resource.setrlimit(resource.RLIMIT_DATA, (2 * 10**9, -1))
held = bytearray(10**9)
print(before, available_bytes(torch.device("cpu")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a process holds is read from /proc")
def test_ulimit_is_a_limit_of_what_a_process_holds() -> None:
    ended = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    before, after = map(int, ended.stdout.split())
    assert 0 <= after < min(before, 10**9)
