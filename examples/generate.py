# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Generate text with a Llama-style model that DeepSpeed divides among the ranks, on whatever accelerator is here.

accel launch --num_accelerators 2 --bind_cores_to_rank examples/generate.py --check
accel launch --num_accelerators 2 --bind_cores_to_rank examples/generate.py --model PATH --interactive
python examples/generate.py --prompt "def "
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from byte_lm import ranks
from byte_lm.errors import has_advice
from byte_lm.progress import working
from sharded_lm.options import parse

INTERRUPTED = 130  # the exit status of a program that Ctrl-C has ended


def main(arguments: Sequence[str]) -> int:
    """Exit status of one run: 0, 2 if its input was refused, 130 after Ctrl-C."""
    ranks.prepare()
    try:
        options = parse(arguments)
        with working("importing torch, DeepSpeed and transformers"):
            # Not before the input is known to be good: these take seconds.
            from sharded_lm.run import run

        run(options)
    except KeyboardInterrupt:
        if ranks.speaks():
            print("\ninterrupted", file=sys.stderr, flush=True)
        return INTERRUPTED
    except Exception as error:
        if not has_advice(error):
            raise
        ranks.wait_for_launcher()  # which stops the other ranks when rank 0 has said it and left
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
