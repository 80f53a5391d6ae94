"""Python's own start hook: the clock of a process runs as many seconds ahead as the file HARNESS_SKEW says (less than 0: behind).

Put on PYTHONPATH by `Node.skewed`. The file is looked at each tenth of a second, so a running process sees its clock jump.
"""

import os
import time

_file = os.environ.get("HARNESS_SKEW", "")
_real, _real_ns, _steady = time.time, time.time_ns, time.monotonic
_last = [0.0, 0.0]  # looked at, seconds


def _ahead() -> float:
    now = _steady()
    if now - _last[0] > 0.1:
        _last[0] = now
        try:
            with open(_file) as file:
                _last[1] = float(file.read() or 0)
        except (OSError, ValueError):
            pass
    return _last[1]


if _file:
    time.time = lambda: _real() + _ahead()
    time.time_ns = lambda: _real_ns() + int(_ahead() * 1e9)
