"""What torch calls at the end of `import torch`: the entry point of the group torch.backends."""

from __future__ import annotations

import json
import multiprocessing
import os
from typing import NoReturn

from macgpu.softmps import NAME, SoftMPSUnavailableError, is_active


def load() -> None:
    """Turns "mps" into the software device, if the process was started for it.

    Raises SoftMPSUnavailableError.
    """
    if not is_active():
        return
    import torch

    from macgpu.softmps.build import ensure_built

    build = ensure_built()
    if build.accelerator.name not in os.environ.get("LD_PRELOAD", ""):
        raise SoftMPSUnavailableError(
            "The software MPS device has to be started with `macgpu softmps run -- COMMAND`."
        )
    torch.ops.load_library(build.device)
    table = json.loads(build.operators.read_text())
    torch.ops.macgpu_softmps.register_operators(table["names"], table["elementwise"])
    _complete_python_side(torch)
    # As on a Mac, so that what a spawned worker cannot load fails here too.
    multiprocessing.set_start_method("spawn", force=True)


def _complete_python_side(torch) -> None:
    """What `torch.backends.mps` and `torch.mps` expect of a torch that was built with MPS."""
    native = torch._C
    native._has_mps = True
    native._mps_get_name = lambda: NAME
    native._mps_get_core_count = lambda: 0
    for name in ("_mps_compileShader", "_mps_loadMetalllib", "_mps_loadMetallibFromPath"):
        setattr(native, name, _refuse_metal)
    _let_storages_be_made(torch)
    # These remember their first answer, and torch may have asked while it was being imported.
    torch.backends.mps.is_available.cache_clear()


def _let_storages_be_made(torch) -> None:
    """`torch.load` makes storages by themselves, which a torch built without MPS cannot for mps."""
    make = torch.UntypedStorage.__new__

    def new(cls, *args, device=None, **options):
        if device is None or torch.device(device).type != "mps" or not isinstance(args[0], int):
            return make(cls, *args, **options, **({} if device is None else {"device": device}))
        return torch.empty(args[0], dtype=torch.uint8, device=device).untyped_storage()

    torch.UntypedStorage.__new__ = new


def _refuse_metal(_source: object) -> NoReturn:
    raise RuntimeError("The software MPS device cannot compile or run Metal shaders.")
