# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is the CPU's own: its record and its probe, devices that launchers and NUMA nodes count, and no streams.

The conformance suite has what holds for every accelerator.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import accel_cpu
from accel_cpu.accelerator import CPU_Accelerator
from accel_cpu.vendor import VENDOR
from shared.topologies import build


def test_the_package_exports_the_class_and_the_registration_of_its_backend() -> None:
    assert accel_cpu.CPU_Accelerator is CPU_Accelerator
    assert accel_cpu.__all__ == ["CPU_Accelerator", "register_backend"]
    with pytest.raises(AttributeError, match="no attribute 'GPU_Accelerator'"):
        _ = accel_cpu.GPU_Accelerator


def test_evidence_and_count_import_no_torch() -> None:
    ask = (
        "import sys; from accel_cpu.vendor import VENDOR; VENDOR.evidence(); VENDOR.confirm();"
        "assert not {'torch', 'psutil', 'accel_cpu.accelerator'} & set(sys.modules), 'too much is imported'"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_current_device_is_the_local_rank_until_one_is_set(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cpu.current_device() == 0
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert cpu.current_device() == 3
    for named in ("cpu", torch.device("cpu")):  # which name no index
        cpu.set_device(named)  # type: ignore[arg-type]
    assert cpu.current_device() == 3
    cpu.set_device(1)
    assert cpu.current_device() == 1
    assert type(cpu.current_device()) is int


@pytest.mark.parametrize("name", ["LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE"])
@pytest.mark.parametrize("value", ["two", "-1", "1.5", " 1"])
def test_a_mangled_launcher_variable_is_named(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"(?s){name}={value!r}.*expected.*do:"):
        cpu.current_device() if name == "LOCAL_RANK" else cpu.device_count()


@pytest.mark.parametrize("index", [None, 0, 1])
def test_every_index_is_torch_s_one_cpu_device(cpu: CPU_Accelerator, index: int | None) -> None:
    assert cpu.device(index) == torch.device("cpu")
    assert (cpu.device_name(index), cpu.current_device_name()) == ("cpu", "cpu")


@pytest.mark.parametrize(
    ("machine", "count"), [("two-sockets", 2), ("hbm-flat", 2), ("snc4-two-sockets", 8), ("cxl-memory", 1)]
)
def test_devices_are_numa_nodes_with_cpus_or_ranks_of_a_launcher(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, machine: str, count: int
) -> None:
    monkeypatch.setenv("ACCEL_SYSROOT", str(build.write(machine, tmp_path)))
    assert cpu.device_count() == count
    assert VENDOR.confirm().reason.startswith(f"NUMA nodes with usable CPUs: {count} (")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    for passed_over in ("", "0"):
        monkeypatch.setenv("LOCAL_SIZE", passed_over)
        assert cpu.device_count() == 3
    monkeypatch.setenv("LOCAL_SIZE", "5")
    assert cpu.device_count() == 5
    assert "launcher" in VENDOR.confirm().reason


@pytest.mark.parametrize(
    "answer", [True, False, None, AttributeError("no such op"), RuntimeError("built without oneDNN")]
)
def test_fp16_is_what_onednn_says_as_a_bool(
    cpu: CPU_Accelerator, monkeypatch: pytest.MonkeyPatch, answer: bool | Exception | None
) -> None:
    def ask() -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_fp16_supported", ask, raising=False)
    assert cpu.is_fp16_supported() is (answer is True)
    assert (torch.float16 in cpu.supported_dtypes()) is (answer is True)


def test_what_launchers_are_told(cpu: CPU_Accelerator) -> None:
    assert cpu.visible_devices_envs() == ["ACCEL_CPU_VISIBLE_DEVICES"]
    assert not "CUDA_VISIBLE_DEVICES".startswith(tuple(cpu.export_envs())), "it belongs to one machine"
