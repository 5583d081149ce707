# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of examples/generate.py with each backend, two ranks, beside one process; the same tokens from all.

Each launch generates the same text a few times; the launches take turns.
"""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from accel_core.processes import run
from accel_testkit import timing
from benchmarks import results

EXAMPLE = results.FOLDER.parent.parent / "examples" / "generate.py"
LAUNCH = ("-m", "accel_launch", "--num_accelerators", "2", "--bind_cores_to_rank")
#: {row: (launcher, flags of the example, threads of each process)}.
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {
    "shm": (LAUNCH, ("--backend", "shm"), 1),
    "gloo": (LAUNCH, ("--backend", "gloo"), 1),
    "ccl": (LAUNCH, ("--backend", "ccl"), 1),
    "undivided": ((), (), 2),
}
TOKENS, REPEAT = 24, 3
TEXT = ("--prompt", "def main(arguments):\n    ", "--tokens", str(TOKENS), "--repeat", str(REPEAT))
MODEL = ("--layers", "12", "--width", "512", "--heads", "8")
#: Seconds: a launch takes about 15 on an idle machine.
TURNS, LONGEST = 2, 120.0


def texts(case: str) -> list[dict[str, Any]] | str:
    """Return what one launch generated, without the first text, which warms up; the last error line if it failed."""
    launcher, flags, threads = CASES[case]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.json")
        command = [sys.executable, *launcher, str(EXAMPLE), *flags, *TEXT, *MODEL, "--json", str(made)]
        done = run(command, LONGEST, env=environment)
        if done.returncode:
            lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["no output"]
            found = next((line for line in lines if line.startswith("found:")), lines[-1])
            return f"not run: {found.removeprefix('found:').strip()}"
        generated: list[dict[str, Any]] = json.loads(made.read_text(encoding="utf-8"))["texts"]
        return generated[1:]


def row(case: str, launches: Sequence[list[dict[str, Any]] | str], wanted: list[int]) -> dict[str, Any]:
    """Return a line of the table."""
    empty = {
        "backend": case,
        "tokens/s": "",
        "first token ms": "",
        "time in collectives": "",
        "same tokens": "",
    }
    made: list[dict[str, Any]] = []
    for launch in launches:
        if isinstance(launch, str):
            return empty | {"tokens/s": launch}
        made += launch

    def median(figure: str) -> float:
        return statistics.median(text[figure] for text in made)

    return empty | {
        "tokens/s": f"{median('tokens_per_second'):.1f}",
        "first token ms": f"{1000 * median('first_token_seconds'):.0f}",
        "time in collectives": f"{median('share_in_collectives'):.0%}",
        "same tokens": "yes" if all(text["token_ids"] == wanted for text in made) else "no",
    }


def main() -> int:
    """Measure and write docs/results/generate.{md,json}; 1 if a backend made other tokens."""
    options = results.parser(__doc__).parse_args()
    found = timing.turns({case: partial(texts, case) for case in CASES}, TURNS)
    undivided = found["undivided"][0]
    if isinstance(undivided, str):
        raise SystemExit(undivided)
    rows = [row(case, launches, undivided[0]["token_ids"]) for case, launches in found.items()]
    text = (
        "`examples/generate.py`: a Llama of 12 layers of 512 channels with random weights, float32, divided by "
        "DeepSpeed's AutoTP between two ranks of one thread and one CPU each; undivided: one process with two threads. "
        f"{TOKENS} tokens after a prompt of 25; medians of {(REPEAT - 1) * TURNS} texts from {TURNS} launches of each, "
        "which took turns. Same tokens: as the undivided model's, in every text; the benchmark fails otherwise. A "
        "reduction waits for the other rank, so the time in collectives includes what the ranks differ by."
    )
    results.write("generate", "Tensor-parallel generation on two CPU ranks", text, rows, options.out)
    return 0 if all(line["same tokens"] in ("yes", "") for line in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
