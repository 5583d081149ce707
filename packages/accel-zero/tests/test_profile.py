# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel zero profile` runs a script as python would, and accounts for the time of its iterations."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from accel_zero import profile

_SCRIPT = """
import sys
import torch, deepspeed
assert __name__ == "__main__"
from neighbour import WIDTH
model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH))
config = {
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
}
engine = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())[0]
for _ in range(2 * int(sys.argv[sys.argv.index("--steps") + 1])):
    loss = engine(torch.randn(1, WIDTH)).pow(2).mean()
    engine.backward(loss)
    engine.step()
sys.exit(int(sys.argv[-1]))
"""


def _profile(folder: Path, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(_SCRIPT, encoding="utf-8")
    (folder / "neighbour.py").write_text("WIDTH = 64\n", encoding="utf-8")
    variables = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
    }
    environment = os.environ | variables | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "accel_core.cli", command, "profile", *arguments]
    return subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.upstream
@pytest.mark.parametrize(
    ("steps", "status"),
    [(4, 5), pytest.param(2, 0, marks=pytest.mark.slow), pytest.param(2, 5, marks=pytest.mark.slow)],
)
def test_the_parts_of_the_iterations_after_the_first_two(tmp_path, steps, status):
    ended = _profile(
        tmp_path, "zero" if status else "ops", "--json", "train.py", "--steps", str(steps), str(status)
    )
    assert ended.returncode == (status or 1), ended.stderr
    assert ("ACC-701" in ended.stderr) is (status == 0)
    if steps == 2:
        assert ("2 optimizer steps" in ended.stderr) is (status == 0)
    else:
        report = json.loads(ended.stdout.splitlines()[-1])
        assert report["iterations"] == 2
        parts = report["milliseconds"]
        assert {"forward", "backward: model", "backward: norm", "step: optimizer"} <= parts.keys()
        assert min(parts.values()) > 0


def test_a_part_has_its_own_time_only(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(profile, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    made = profile.Profile()
    with contextlib.suppress(KeyError), made.running("outer"):  # 0
        with made.running("inner"), made.running("inmost"):  # 1, 2; they end at 3, 4
            pass
        raise KeyError  # 5
    next(now)
    with made.running("outer"):  # 7 to 8: what was between is nobody's
        pass
    made.close_iteration()
    assert made.iterations == [{"outer": 3, "inner": 2, "inmost": 1}]


def test_the_mean_leaves_out_the_first_and_keeps_the_order():
    iterations = [{profile.STEP: 9.0}, {profile.STEP: 1.0, profile.FORWARD: 2.0}, {profile.STEP: 3.0}]
    made = profile.Profile(iterations).mean(1)
    assert list(made.items()) == [(profile.FORWARD, 1.0), (profile.STEP, 2.0)]
