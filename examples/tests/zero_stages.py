# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every ZeRO stage one after the other in one process: a whole run, and the same run resumed half way.

    torchrun --nproc-per-node 2 zero_stages.py <steps> <flags of train_lm.py>

Results go to stage0/whole, stage0/resumed, and so on. A program, because a test can not be two ranks.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from byte_lm import ranks
from byte_lm.job import read_job
from byte_lm.run import leave, run
from deepspeed import comm


def main(steps: int, flags: list[str]) -> None:
    """Run all stages."""
    ranks.prepare()
    half = steps // 2
    for stage in range(4):
        both = [*flags, "--stage", str(stage), "--steps", str(steps), "--save_every", str(half)]
        whole, resumed = f"stage{stage}/whole", f"stage{stage}/resumed"
        run(read_job([*both, "--out", whole]))
        if ranks.speaks():
            tag = f"step{half:06d}"
            shutil.copytree(f"{whole}/checkpoint/{tag}", f"{resumed}/checkpoint/{tag}")
            Path(resumed, "checkpoint/latest").write_text(tag)
        comm.barrier()
        run(read_job([*both, "--out", resumed, "--resume"]))
    leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
