# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Number of devices, memory, and the environment of child processes."""

import pytest

from accel_sim import settings
from accel_sim.errors import InvalidSetting


@pytest.mark.parametrize(
    ("text", "size"),
    [("1000", 1000), ("2KiB", 2048), ("3 MiB", 3 << 20), ("8GiB", 8 << 30), ("1gib", 1 << 30)],
)
def test_memory_is_given_in_bytes_or_binary_units(monkeypatch, text, size):
    monkeypatch.setenv("ACCEL_SIM_MEMORY", text)
    assert settings.read().memory == size


@pytest.mark.parametrize(
    ("name", "text"), [("ACCEL_SIM_MEMORY", "much"), ("ACCEL_SIM_DEVICES", "-1"), ("ACCEL_SIM_DEVICES", "65")]
)
def test_setting_without_a_meaning_is_refused_by_its_name(monkeypatch, name, text):
    monkeypatch.setenv(name, text)
    with pytest.raises(InvalidSetting, match=name):
        settings.read()


def test_device_of_a_set_size_runs_out_of_memory_and_recovers(python):
    source = """
import torch, torch_npu
kept = torch.empty(3 << 20, dtype=torch.uint8, device="npu")
try:
    torch.empty(2 << 20, dtype=torch.uint8, device="npu")
except torch.OutOfMemoryError as error:
    print("NPU out of memory" in str(error))
del kept
print(torch.empty(4 << 20, dtype=torch.uint8, device="npu").nbytes, torch.npu.mem_get_info(1))
"""
    done = python("npu", source, devices=2, memory="4MiB")
    assert done.stdout.splitlines() == ["True", "4194304 (4194304, 4194304)"], done.stderr


@pytest.mark.parametrize("key", ["npu", "xpu"])
def test_spawned_children_have_the_device(python, key):
    # npu comes with a stub package, xpu with torch itself.
    source = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(eval, ("str(__import__('torch').ones(2, device={key!r}))",)))
"""
    done = python(key, source.format(key=key))
    assert done.stdout.strip() == f"tensor([1., 1.], device='{key}:0')", done.stderr


def test_second_kind_of_device_in_one_process_is_refused(python):
    source = "import torch_npu; import accel_sim; accel_sim.activate('hpu')"
    assert "it already simulates npu" in python("npu", source).stderr
