# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Small changes to DeepSpeed: who gets the CPU's maker at once, and what is said of a checkpoint on NVMe."""

import importlib.util
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accel_core.errors import UnloadableCheckpoint
from accel_core.upstream import contract, patches

REAL = {"arch": "X86_64", "vendor_id_raw": "Maker of py-cpuinfo"}


@pytest.mark.parametrize(
    ("caller", "text", "answer"),
    [
        ("deepspeed.ops.adam.cpu_adam", "vendor_id\t: GenuineIntel\nvendor_id: Other\n", "GenuineIntel"),
        ("deepspeed.ops.lion.cpu_lion", "vendor_id :\nvendor : HiSilicon: yes\n", "HiSilicon: yes"),
        ("deepspeed.ops.adam.cpu_adam", "processor: 0\nBogoMIPS: 1\n", None),
        ("deepspeed.ops.adam.cpu_adam", None, None),
        ("deepspeed.ops.op_builder.builder", "vendor_id: GenuineIntel\n", None),
        ("__main__", "vendor_id: GenuineIntel\n", None),
    ],
)
def test_the_cpu_optimizers_get_the_maker_and_everybody_else_the_whole_answer(
    caller: str, text: str | None, answer: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contract, "is_registered", lambda: True)
    monkeypatch.setattr(patches, "_PROC", tmp_path / "cpuinfo")
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    module: Any = types.ModuleType("cpuinfo")
    module.get_cpu_info = lambda: dict(REAL)
    patches.patch_cpu_info(module)
    names: dict[str, Callable[[Any], Any]] = {}
    exec("def ask(cpuinfo): return cpuinfo.get_cpu_info()", {"__name__": caller}, names)
    assert names["ask"](module) == (REAL if answer is None else {"vendor_id_raw": answer})


_CONSTRUCT = """
    import json, cpuinfo, torch, subprocess
    {first}
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    started = []
    popen = subprocess.Popen.__init__
    def watched(self, command, *arguments, **options):
        started.append("cpuinfo" in str(command))
        popen(self, command, *arguments, **options)
    subprocess.Popen.__init__ = watched
    optimizer = DeepSpeedCPUAdam([torch.nn.Parameter(torch.ones(4))])
    print(json.dumps([any(started), optimizer.cpu_vendor == cpuinfo.get_cpu_info()["vendor_id_raw"].lower()]))
"""


@pytest.mark.upstream
@pytest.mark.parametrize("first", ["", "import deepspeed"])
def test_deepspeed_constructs_its_optimizer_without_py_cpuinfo_s_process(children: Any, first: str) -> None:
    assert children.run(_CONSTRUCT.format(first=first), DS_ACCELERATOR="cpu").report == [False, True]


@pytest.mark.parametrize(
    ("path", "swaps", "warned"), [("folder", True, True), (None, True, False), ("folder", False, False)]
)
def test_optimizer_states_that_are_not_restored_are_a_warning(
    path: str | None, swaps: bool, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    class Engine:
        optimizer = SimpleNamespace(swap_optimizer=swaps)

        def load_checkpoint(self) -> Any:
            return path, {}

        def _load_zero_checkpoint(self) -> None: ...

    patches.patch_engine(SimpleNamespace(DeepSpeedEngine=Engine))  # type: ignore[arg-type]
    assert Engine().load_checkpoint() == (path, {})
    assert bool(caplog.records) is warned


@pytest.mark.parametrize(
    ("groups", "universal", "refused"),
    [([1, None], False, True), ([1, None], True, False), ([1, 2], False, False)],
)
def test_parameters_outside_of_memory_are_refused_ahead_of_loading(
    groups: list[Any], universal: bool, refused: bool
) -> None:
    class Engine:
        optimizer = SimpleNamespace(fp16_partitioned_groups_flat=groups)

        def load_checkpoint(self) -> None: ...

        def load_universal_checkpoint(self) -> bool:
            return universal

        def _load_zero_checkpoint(self) -> str:
            return "loaded"

    patches.patch_engine(SimpleNamespace(DeepSpeedEngine=Engine))  # type: ignore[arg-type]
    if refused:
        with pytest.raises(UnloadableCheckpoint, match="1 of 2 groups"):
            Engine()._load_zero_checkpoint()
    else:
        assert Engine()._load_zero_checkpoint() == "loaded"


_SAVE_AND_LOAD = """
import json, logging, torch, deepspeed
from accel_core.errors import UnloadableCheckpoint
logged = []
logging.getLogger("accel_core").addFilter(lambda record: logged.append(record.getMessage()) or True)
model = torch.nn.Sequential(torch.nn.Linear(768, 768), torch.nn.Linear(768, 768))  # each larger than 1 MiB
nvme = {"device": "nvme", "nvme_path": FOLDER, "buffer_count": 8, "pin_memory": True}
zero = {
    "stage": 3, "sub_group_size": 768 * 800, "stage3_param_persistence_threshold": 0,
    "offload_param": nvme | {"buffer_size": 600_000, "max_in_cpu": 0},
    "offload_optimizer": nvme if OPTIMIZER == "nvme" else {"device": OPTIMIZER},
}
config = {
    "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "zero_optimization": zero,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
}
engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
loss = engine(torch.ones(2, 768, dtype=torch.bfloat16)).float().sum()
engine.backward(loss)
engine.step()
assert engine.load_checkpoint(FOLDER + "/none")[0] is None
engine.save_checkpoint(FOLDER + "/saved")
try:
    engine.load_checkpoint(FOLDER + "/saved")
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
def test_deepspeed_s_engine_says_what_it_cannot_load(
    children: Any, tmp_path: Path, optimizer: str, said: str
) -> None:
    program = f"FOLDER, OPTIMIZER = {str(tmp_path)!r}, {optimizer!r}\n{_SAVE_AND_LOAD}"
    (line,) = children.run(program, [], DS_ACCELERATOR="cpu").report
    assert said in line
