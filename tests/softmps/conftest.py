"""The tests of the software MPS device. Those in `device/` run on it: in a process of their own,
which `test_on_device.py` starts, or by hand:

    macgpu softmps run -- -m pytest tests/softmps/device
"""

from __future__ import annotations

from macgpu.softmps import is_active

# There is no mps device to test in a process that was not started for it.
collect_ignore = [] if is_active() else ["device"]
