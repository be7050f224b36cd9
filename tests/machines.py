"""Two machines to judge: a Mac in order, and a Linux computer."""

from dataclasses import replace

from macgpu.machine import Machine

MAC = Machine(
    system="Darwin",
    os_version="15.5",
    os_build="24F74",
    architecture="arm64",
    chip="Apple M2 Pro",
    apple_silicon=True,
    translated=False,
    virtual=False,
    cores=12,
    performance_cores=8,
    efficiency_cores=4,
    memory_bytes=32 * 2**30,
    python="3.12.4",
)

LINUX = replace(
    MAC,
    system="Linux",
    os_version="6.1",
    os_build=None,
    architecture="x86_64",
    chip="A processor",
    apple_silicon=False,
    performance_cores=None,
    efficiency_cores=None,
)
