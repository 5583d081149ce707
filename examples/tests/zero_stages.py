# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every ZeRO stage one after the other in one process: a whole run, and the same run resumed half way.

    torchrun --nproc-per-node 2 zero_stages.py <steps> <flags of train_lm.py>

Results go to <variant>/whole and <variant>/resumed. A program, because a test cannot be two ranks.
"""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from byte_lm import ranks
from byte_lm.job import read_job
from byte_lm.run import leave, run
from deepspeed import comm

VARIANTS = {f"stage{stage}": ["--stage", f"{stage}"] for stage in range(4)}
VARIANTS["stage2_bf16"] = ["--stage", "2", "--dtype", "bf16"]


def main(steps: int, flags: list[str]) -> None:
    """Run all variants."""
    ranks.prepare()
    half = steps // 2
    for name, change in VARIANTS.items():
        both = [*flags, *change, "--steps", str(steps), "--save_every", str(half)]
        run(read_job([*both, "--out", f"{name}/whole"]))
        if ranks.speaks():
            tag = f"step{half:06d}"
            shutil.copytree(f"{name}/whole/checkpoint/{tag}", f"{name}/resumed/checkpoint/{tag}")
            Path(name, "resumed/checkpoint/latest").write_text(tag)
        comm.barrier()
        run(read_job([*both, "--out", f"{name}/resumed", "--resume"]))
    # Ranks whose clocks disagree, in a run that only the clock ends: they must stop at the same step.
    minutes = "0.06" if ranks.speaks() else "0.10"
    run(read_job([*flags, "--steps", "1000000", "--minutes", minutes, "--out", "in_a_hurry"]))
    leave()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
