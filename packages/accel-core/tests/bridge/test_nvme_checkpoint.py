# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with ZeRO-Infinity: what DeepSpeed fails to load is refused, what it does not restore is a warning."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.errors import UnloadableCheckpoint
from accel_core.upstream import nvme_checkpoint


def _engine(universal: bool = False, **optimizer: Any) -> Any:
    return SimpleNamespace(
        optimizer=SimpleNamespace(**optimizer), load_universal_checkpoint=lambda: universal
    )


@pytest.mark.parametrize(
    ("engine", "refused"),
    [
        (_engine(fp16_partitioned_groups_flat=[1, None]), True),
        (_engine(fp16_partitioned_groups_flat=[1, None], universal=True), False),
        (_engine(fp16_partitioned_groups_flat=[1, 2]), False),
        (_engine(), False),
    ],
)
def test_parameters_outside_of_memory_are_refused_ahead_of_loading(engine: Any, refused: bool) -> None:
    calls: list[Any] = []
    load = nvme_checkpoint.refusing(lambda engine, folder: calls.append(folder))
    if refused:
        with pytest.raises(UnloadableCheckpoint, match="1 of 2 groups"):
            load(engine, "folder")
    else:
        load(engine, "folder")
    assert bool(calls) is not refused


@pytest.mark.parametrize(
    ("path", "swaps", "warned"), [("folder", True, True), (None, True, False), ("folder", False, False)]
)
def test_optimizer_states_that_are_not_restored_are_a_warning(
    path: str | None, swaps: bool, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    load = nvme_checkpoint.warning(lambda engine: (path, {}))
    assert load(_engine(swap_optimizer=swaps)) == (path, {})
    assert bool(caplog.records) is warned


_SAVE_AND_LOAD = """
import json, logging, sys, torch, deepspeed
from accel_core.errors import UnloadableCheckpoint
folder, optimizer = sys.argv[1:]
logged = []
logging.getLogger("accel_core").addFilter(lambda record: logged.append(record.getMessage()) or True)
model = torch.nn.Sequential(torch.nn.Linear(768, 768), torch.nn.Linear(768, 768))  # each larger than 1 MiB
nvme = {"device": "nvme", "nvme_path": folder, "buffer_count": 8, "pin_memory": True}
zero = {
    "stage": 3, "sub_group_size": 768 * 800, "stage3_param_persistence_threshold": 0,
    "offload_param": nvme | {"buffer_size": 600_000, "max_in_cpu": 0},
    "offload_optimizer": nvme if optimizer == "nvme" else {"device": optimizer},
}
config = {
    "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": zero,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
}
engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
loss = engine(torch.ones(2, 768, dtype=torch.bfloat16)).float().sum()
engine.backward(loss)
engine.step()
assert engine.load_checkpoint(folder + "/none")[0] is None
engine.save_checkpoint(folder + "/saved")
try:
    engine.load_checkpoint(folder + "/saved")
except UnloadableCheckpoint as error:
    logged.append(str(error))
print(json.dumps([line for line in logged if "NVMe" in line]))
"""


@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.skipif(importlib.util.find_spec("accel_cpu") is None, reason="not run: package accel-cpu")
@pytest.mark.parametrize(
    ("optimizer", "said"), [("cpu", "cannot load a checkpoint"), ("nvme", "has not restored")]
)
def test_deepspeed_says_what_it_cannot_load(children: Any, tmp_path: Path, optimizer: str, said: str) -> None:
    program = f"import sys; sys.argv[1:] = [{str(tmp_path)!r}, {optimizer!r}]\n{_SAVE_AND_LOAD}"
    (line,) = children.run(program, [], DS_ACCELERATOR="cpu").report
    assert said in line
