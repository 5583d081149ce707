# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the class answers where there is no device: on a login node, and to a launcher."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.cpp_extension import BuildExtension

from accel_xpu import XPU_Accelerator

BINDINGS = """
import torch.distributed
torch.distributed.Backend.register_backend("ccl", lambda *args: None, devices={devices})
"""
ASK = """
import json
from accel_xpu import XPU_Accelerator, collectives
print(json.dumps([XPU_Accelerator().communication_backend_name(), collectives.choose().reason]))
"""


def test_half_types_train_also_where_there_is_no_device_to_ask() -> None:
    xpu = XPU_Accelerator()
    assert xpu.supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]
    assert xpu.is_fp64_supported()


def test_launcher_sets_the_affinity_mask_and_sends_no_mask_to_other_nodes() -> None:
    xpu = XPU_Accelerator()
    environment: dict[str, str] = {}
    xpu.set_visible_devices_envs(environment, [1, 3])
    assert environment == {"ZE_AFFINITY_MASK": "1,3"}
    for variable in ("CCL_ATL_TRANSPORT", "FI_PROVIDER", "SYCL_CACHE_PERSISTENT", "ZE_FLAT_DEVICE_HIERARCHY"):
        assert variable.startswith(tuple(xpu.export_envs())), variable
    assert not "ZE_AFFINITY_MASK".startswith(tuple(xpu.export_envs()))


def test_without_ipex_events_tell_the_time_and_torch_builds_extensions() -> None:
    xpu = XPU_Accelerator()
    assert not xpu.use_host_timers()
    assert xpu.build_extension() is BuildExtension
    assert xpu.get_compile_backend() == "inductor"


def test_torch_without_graphs_is_a_trait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.xpu, "XPUGraph")
    xpu = XPU_Accelerator()
    assert xpu.create_graph() is None
    assert "graphs" in xpu.traits
    monkeypatch.undo()
    assert "graphs" not in XPU_Accelerator().traits


@pytest.mark.parametrize(
    ("devices", "backend", "reported"),
    [
        (["xpu"], "ccl", "serves this torch"),
        (["cpu"], "xccl", "for cpu, not for xpu"),
        (None, "xccl", "oneccl_bindings_for_pytorch is not installed"),
    ],
)
def test_oneccl_is_used_where_its_bindings_serve_xpu(
    devices: list[str] | None, backend: str, reported: str, tmp_path: Path
) -> None:
    if devices:
        (tmp_path / "oneccl_bindings_for_pytorch.py").write_text(BINDINGS.format(devices=devices))
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    name, reason = json.loads(done.stdout)
    assert name == backend
    assert reported in reason
