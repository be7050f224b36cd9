"""The program of chapter 10, which torchrun starts in every process.

    python -m torch.distributed.run --nproc-per-node 2 -m macgpu.parallel.run exact --json out.json

The first rank writes the result. A fault ends every rank with one line, and the status is not 0.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback

from macgpu.errors import BookError
from macgpu.parallel.arguments import parse
from macgpu.parallel.checks import require_task, require_torchrun

BAD_INPUT, FAILED = 2, 1
"""Exit statuses."""
FIRST_RANKS_S = 10
"""For the first rank to refuse what another one has refused."""


def main() -> None:
    rank = int(os.environ.get("RANK", 0))
    try:
        asked = parse()
        require_torchrun()
        require_task(asked, int(os.environ["WORLD_SIZE"]))
        # Heavy, and of no use to a run that is refused.
        from macgpu.parallel.ranks import joined

        task = importlib.import_module(f"macgpu.parallel.tasks.{asked.task}")
        with joined(asked.device, asked.timeout) as joint:
            result = task.run(joint, asked)
    except BookError as error:
        if rank > 0:
            # torchrun ends all ranks once one has ended. The first is to say it before that, for
            # all; whoever is still here afterwards was refused alone.
            time.sleep(FIRST_RANKS_S)
        print(f"macgpu: {error}", file=sys.stderr, flush=True)
        sys.exit(BAD_INPUT)
    except Exception as error:
        # A rank that is gone is a RuntimeError of gloo's, about a connection that was closed; of
        # anything else the reader of the output may want the place.
        if not isinstance(error, RuntimeError):
            traceback.print_exc()
        first_line = (str(error) or type(error).__name__).splitlines()[0]
        print(f"macgpu: rank {rank} failed: {first_line}", file=sys.stderr, flush=True)
        # Without leaving the group: the other ranks may never come to meet.
        os._exit(FAILED)
    if rank == 0:
        asked.json.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
