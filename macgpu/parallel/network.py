"""Variables that tell gloo and NCCL which way to reach the other ranks."""

from __future__ import annotations

import psutil

LOCAL = "127.0.0.1"

MULTICAST_OFF = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
"""NVLink multicast is left off: a program that fails while it is in use can harm its neighbours on
a shared host."""


def through(address: str) -> dict[str, str]:
    """Keep to the network interface of this address.

    Else gloo and NCCL look this machine's own name up, which fails on machines without a network,
    and on Macs with some routers.
    """
    for name, addresses in psutil.net_if_addrs().items():
        if any(one.address == address for one in addresses):
            return {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": name}
    return {}
