# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tokens per second of examples/generate.py with each backend, two ranks, beside one process; the same tokens from all.

Each launch generates the same text a few times; the launches take turns.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

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


class Failed(Exception):
    """A backend that cannot run here; the text says why."""


def texts(case: str) -> list[dict[str, Any]]:
    """What one launch of the example made; raises Failed."""
    launcher, flags, threads = CASES[case]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made.json")
        command = [sys.executable, *launcher, str(EXAMPLE), *flags, *TEXT, *MODEL, "--json", str(made)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end within {LONGEST:.0f} s") from None
        if done.returncode == 0:
            found: list[dict[str, Any]] = json.loads(made.read_text(encoding="utf-8"))["texts"]
            return found
    raise Failed(reason(done.stderr))


def reason(errors: str) -> str:
    """The part of an error that says what was found, or its last line."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()] or ["no output"]
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("found:")]
    return found[0] if found else lines[-1]


def measured() -> dict[str, list[dict[str, Any]] | str]:
    """Texts of each case but the first of each launch, which warms up; a sentence where a case could not run.

    Says how each launch went: together they take minutes.
    """
    kept: dict[str, list[dict[str, Any]] | str] = {}
    for turn in range(TURNS):
        for case in CASES:
            before, began = kept.get(case, []), time.perf_counter()
            if isinstance(before, str):
                continue
            try:
                made = texts(case)[1:]
                kept[case] = before + made
                said = f"{median(made, 'tokens_per_second'):.1f} tokens/s"
            except Failed as error:
                kept[case] = said = f"not run: {error}"
            seconds = time.perf_counter() - began
            print(
                f"{case}, launch {turn + 1} of {TURNS}: {said}; {seconds:.0f} s", file=sys.stderr, flush=True
            )
    return kept


def median(made: list[dict[str, Any]], figure: str) -> float:
    """The median of a figure over texts."""
    return statistics.median(text[figure] for text in made)


def row(case: str, found: list[dict[str, Any]] | str, wanted: list[int]) -> dict[str, Any]:
    """A line of the table."""
    if isinstance(found, str):
        return {
            "backend": case,
            "tokens/s": found,
            "first token ms": "",
            "time in collectives": "",
            "same tokens": "",
        }
    same = all(text["token_ids"] == wanted for text in found)
    return {
        "backend": case,
        "tokens/s": f"{median(found, 'tokens_per_second'):.1f}",
        "first token ms": f"{1000 * median(found, 'first_token_seconds'):.0f}",
        "time in collectives": f"{median(found, 'share_in_collectives'):.0%}",
        "same tokens": "yes" if same else "no",
    }


def main() -> int:
    """Measure and write docs/results/generate.{md,json}; 1 if a backend made other tokens."""
    options = results.parser(__doc__).parse_args()
    found = measured()
    undivided = found["undivided"]
    if isinstance(undivided, str):
        print(undivided, file=sys.stderr)
        return 1
    wanted = undivided[0]["token_ids"]
    rows = [row(case, found[case], wanted) for case in CASES]
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
