# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is particular about a vendor's runtime, and how real ones fail."""

import pytest

from accel_sim import behaviours, vendors


def test_torch_itself_fails_to_import_when_cann_is_missing(python):
    done = python("npu", "import torch", behaviour=["npu.no-cann"])
    assert "RuntimeError: Failed to load the backend extension: torch_npu" in done.stderr
    assert "ImportError: libhccl.so: cannot open shared object file" in done.stderr


@pytest.mark.parametrize(
    "behaviour",
    [b for b in behaviours.BEHAVIOURS if b.error and b.module != "torch_npu"],
    ids=lambda b: b.name,
)
def test_import_fails_as_the_real_one(python, behaviour):
    source = f"""
import torch
try:
    import {behaviour.module}
except BaseException as error:
    print(type(error).__name__, error)
"""
    done = python(behaviour.name.partition(".")[0], source, behaviour=[behaviour.name])
    assert done.stdout.strip() == f"{behaviour.error.__name__} {behaviour.text}", done.stderr


@pytest.mark.parametrize(
    ("ids", "count"), [("0,1,3", 3), ("3,1", 1), ("", 0), ("a", 0), ("0,9", 1), ("1,1", 1), ("0", 1)]
)
def test_ids_of_visible_ascend_devices_ascend(ids, count):
    assert len(vendors.visible_devices(vendors.find("npu"), 4, {"ASCEND_RT_VISIBLE_DEVICES": ids})) == count


def test_npu_has_no_capability_unless_it_is_set(python):
    source = """
import os, torch, torch_npu
print(torch.npu.get_device_capability(), torch.npu.default_generators)
os.environ["TORCH_NPU_DEVICE_CAPABILITY"] = "9.1"
torch.ones(1, device="npu")
print(torch.npu.get_device_capability(), len(torch.npu.default_generators))
"""
    done = python("npu", source)
    assert done.stdout.splitlines() == ["None ()", "(9, 1) 2"], done.stderr


def test_hpu_is_one_device_a_process(python):
    source = """
import torch, habana_frameworks.torch.hpu as hpu
hpu.set_device(3)
torch.ones(1, device="hpu")
print(hpu.device_count(), hpu.current_device(), len(hpu.random.default_generators))
print(hasattr(hpu, "default_generators"))
stats = hpu.memory_stats()
print(sorted(stats)[:3], hpu.memory_reserved() == stats["Limit"], hasattr(hpu, "reset_max_memory_allocated"))
for call in (lambda: hpu.set_rng_state(hpu.get_rng_state(), 1), lambda: hpu.set_device(9)):
    try:
        call()
    except (RuntimeError, AssertionError) as error:
        print(type(error).__name__)
"""
    done = python("hpu", source, devices=4)
    stats = "['ActiveAllocs', 'InUse', 'Limit'] True False"
    expected = ["4 0 1", "False", stats, "RuntimeError", "AssertionError"]
    assert done.stdout.splitlines() == expected, done.stderr


@pytest.mark.parametrize(("lazy", "expected"), [("1", "True True"), ("0", "False False")])
def test_hpu_graphs_exist_in_lazy_mode_only(python, lazy, expected):
    source = "import habana_frameworks.torch.hpu as h; print(hasattr(h, 'HPUGraph'), hasattr(h, 'graph'))"
    done = python("hpu", source, env={"PT_HPU_LAZY_MODE": lazy})
    assert done.stdout.strip() == expected, done.stderr


def test_xpu_capability_is_a_dictionary_and_its_peak_resets_are_missing(python):
    source = """
import torch
print(type(torch.xpu.get_device_capability()).__name__, hasattr(torch.xpu, "reset_max_memory_allocated"))
"""
    done = python("xpu", source)
    assert done.stdout.split() == ["dict", "False"], done.stderr
