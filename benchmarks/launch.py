# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Start-up of `accel launch` compared with torchrun and deepspeed, and throughput of the main job, bound and unbound.

    python -m benchmarks.launch

Start-up is the time from the command until the last of two ranks runs its first line. The launchers take turns.
"""

import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from accel_core.processes import run
from accel_testkit import timing
from benchmarks import results

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
#: Writes when a rank has started; the clock is that of all processes of the machine.
_RANK = "import os, sys, time; open(sys.argv[-1] + os.environ['RANK'], 'w').write(repr(time.time()))\n"
_STEPS = 60


def launchers(port: int) -> dict[str, list[str]]:
    """Return the command of each launcher for two ranks of this machine, without the program."""
    given = ("--num_accelerators", "2", "--master_port", str(port))
    return {
        "accel launch": [str(BIN / "accel"), "launch", *given],
        "accel launch, bound": [str(BIN / "accel"), "launch", *given, "--bind_cores_to_rank"],
        "torchrun": [str(BIN / "torchrun"), "--nproc-per-node", "2", "--master-port", str(port)],
        "deepspeed": [str(BIN / "deepspeed"), *given],
    }


def start_up(name: str, folder: Path) -> float:
    """Seconds until both ranks run."""
    script = folder / "rank.py"
    script.write_text(_RANK, encoding="utf-8")
    mark = folder / f"{name.replace(' ', '')}-{time.time_ns()}-"
    begin = time.time()
    _run([*launchers(free_port())[name], str(script), str(mark)], folder)
    return max(float(Path(f"{mark}{rank}").read_text(encoding="utf-8")) for rank in (0, 1)) - begin


def throughput(name: str, folder: Path) -> float:
    """Bytes (tokens) a second of a short run of the main job."""
    out = folder / f"job-{time.time_ns()}"
    program = ("examples/train_lm.py", "--steps", str(_STEPS), "--out", str(out))
    _run([*launchers(free_port())[name], *program], ROOT)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    return float(summary["bytes_trained_on"] / summary["training_seconds"])


def _run(command: Sequence[str], folder: Path) -> None:
    # DeepSpeed's launcher looks for its second part on PATH.
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    done = run(command, cwd=folder, env=environment)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


def main() -> None:
    given = results.parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        starts = timing.turns({one: partial(start_up, one, folder) for one in launchers(0)}, given.rounds)
        jobs = ["accel launch", "accel launch, bound", "torchrun"]
        runs = {one: partial(throughput, one, folder) for one in jobs}
        speeds = timing.turns(runs, max(1, given.rounds // 3))
    reference = statistics.median(starts["torchrun"])
    rows = [
        {
            "launcher": name,
            "start-up, s": statistics.median(values),
            "against torchrun, s": statistics.median(values) - reference,
            "tokens/s of the main job": f"{statistics.median(speeds[name]):,.0f}" if name in speeds else "",
        }
        for name, values in starts.items()
    ]
    text = (
        "Start-up: from the command until the last of two ranks runs its first line. Throughput: the main job "
        f"(`examples/train_lm.py`, {_STEPS} steps) on two ranks. Medians of {given.rounds} and "
        f"{max(1, given.rounds // 3)} interleaved rounds. "
        "Goals: start-up at most 0.3 s above torchrun's, and below deepspeed's."
    )
    results.write("launch", "Launchers", text, rows, given.out)


if __name__ == "__main__":
    main()
