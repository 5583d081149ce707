# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Train a small byte-level language model through DeepSpeed, on whatever accelerator this machine has.

accel launch --num_accelerators 2 --bind_cores_to_rank examples/train_lm.py
torchrun --nproc-per-node 2 examples/train_lm.py
deepspeed --num_accelerators 2 examples/train_lm.py --stage 2
python examples/train_lm.py --data my_texts/
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from byte_lm import ranks
from byte_lm.errors import has_advice
from byte_lm.job import read_job
from byte_lm.progress import working


def main(arguments: Sequence[str]) -> int:
    """Exit status of one run: 0 when it trained, 2 when its input was refused."""
    ranks.prepare()
    try:
        job = read_job(arguments)
        with working("importing torch and DeepSpeed"):
            # Not before the input is known to be good: torch and DeepSpeed take seconds.
            from byte_lm.run import run

        run(job)
    except Exception as error:
        if not has_advice(error):
            raise
        if ranks.speaks():
            print(f"error: {error}", file=sys.stderr, flush=True)
        ranks.wait_for_launcher()
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
