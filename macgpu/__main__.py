"""``python -m macgpu`` is the same program as ``macgpu``."""

from macgpu.cli import main

main()
