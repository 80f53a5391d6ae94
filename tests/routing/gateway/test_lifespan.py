"""What the gateway does to its own process when it starts."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

ALLOW = """
import resource
from routing.gateway.lifespan import _allow_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))
_allow_files(1000)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("hard", "soft"), [(4096, 3024), (2000, 2000)])
def test_files_for_all_connections_are_allowed_as_far_as_the_system_lets_us(hard: int, soft: int) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4096:
        pytest.skip("this machine allows too few files to try it")
    done = subprocess.run([sys.executable, "-c", ALLOW.format(hard=hard)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(soft), str(hard)]
