# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One rank as a program of its own: `shm_hosts.py STORE RANK RANKS USER`. Writes what it found as JSON.

USER: number of the user that the rank becomes; -1 to stay.
"""

import ctypes
import json
import os
import sys

PR_SET_DUMPABLE = 4


def main(path: str, rank: int, ranks: int, user: int) -> None:
    import torch
    import torch.distributed as dist

    from accel_cpu import register_backend
    from accel_cpu.shm import library, process_group  # noqa: F401 - another user may not read the environment

    torch.set_num_threads(1)
    library.load()  # the cache belongs to the first user
    register_backend()
    if user >= 0:
        os.setuid(user)
        # A process that has changed its user would hide its descriptors from its peers.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    dist.init_process_group("shm", init_method=f"file://{path}", rank=rank, world_size=ranks)
    found = []
    for size in (1, 3_000_000):
        tensor = torch.full((size,), float(rank + 1 + max(user, 0)))
        dist.all_reduce(tensor)
        found += [tensor[0].item(), tensor[-1].item()]
    names = [name for name in os.listdir("/dev/shm") if "accel" in name] if os.path.isdir("/dev/shm") else []
    group = dist.group.WORLD
    print(json.dumps({"reason": group.reason, "sums": found, "names": names}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
