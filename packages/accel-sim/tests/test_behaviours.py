# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is particular about a vendor's runtime, how real ones fail, and that a forked process cannot use a device."""

import json

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
def test_import_fails_as_the_real_one(printed, behaviour):
    source = f"""
import torch
try:
    import {behaviour.module}
except BaseException as error:
    print(type(error).__name__, error)
"""
    found = printed(behaviour.name.partition(".")[0], source, behaviour=[behaviour.name])
    assert "\n".join(found) == f"{behaviour.error.__name__} {behaviour.text}"


def test_a_card_without_device_files_works(printed):
    source = """
import os, pathlib, torch
root = pathlib.Path(os.environ["ACCEL_SYSROOT"])
print(torch.cuda.device_count(), (root / "dev").exists(), torch.ones(2, device="cuda").sum().item())
"""
    assert printed("cuda", source, behaviour=["cuda.no-device-file"]) == ["2 False 2.0"]


@pytest.mark.parametrize(
    ("ids", "count"), [("0,1,3", 3), ("3,1", 1), ("", 0), ("a", 0), ("0,9", 1), ("1,1", 1), ("0", 1)]
)
def test_ids_of_visible_ascend_devices_ascend(ids, count):
    assert len(vendors.visible_devices(vendors.find("npu"), 4, {"ASCEND_RT_VISIBLE_DEVICES": ids})) == count


def test_npu_has_no_capability_unless_it_is_set(printed):
    source = """
import os, torch, torch_npu
print(torch.npu.get_device_capability(), torch.npu.default_generators)
os.environ["TORCH_NPU_DEVICE_CAPABILITY"] = "9.1"
torch.ones(1, device="npu")
print(torch.npu.get_device_capability(), len(torch.npu.default_generators))
"""
    assert printed("npu", source) == ["None ()", "(9, 1) 2"]


def test_hpu_is_one_device_a_process(printed):
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
    stats = "['ActiveAllocs', 'InUse', 'Limit'] True False"
    expected = ["4 0 1", "False", stats, "RuntimeError", "AssertionError"]
    assert printed("hpu", source, devices=4) == expected


@pytest.mark.parametrize(("lazy", "expected"), [("1", "True True"), ("0", "False False")])
def test_hpu_graphs_exist_in_lazy_mode_only(printed, lazy, expected):
    source = "import habana_frameworks.torch.hpu as h; print(hasattr(h, 'HPUGraph'), hasattr(h, 'graph'))"
    assert printed("hpu", source, env={"PT_HPU_LAZY_MODE": lazy}) == [expected]


def test_xpu_capability_is_a_dictionary_and_its_peak_resets_are_missing(printed):
    source = """
import torch
print(type(torch.xpu.get_device_capability()).__name__, hasattr(torch.xpu, "reset_max_memory_allocated"))
"""
    assert printed("xpu", source) == ["dict False"]


# Forked processes

REFUSED = (
    "Cannot re-initialize {name} in forked subprocess. To use {name} with multiprocessing, you must use the "
    "'spawn' start method"
)

#: Runs each line of `uses` in a forked child of its own, and prints what it raises.
FORKED = """
import json, os, torch
{first}
def outcome(use):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            exec(use)
            text = "nothing"
        except BaseException as error:
            text = f"{{type(error).__name__}}: {{error}}"
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    return os.read(read, 10000).decode()
print(json.dumps([outcome(use) for use in {uses!r}]))
"""


@pytest.fixture
def outcomes(printed):
    """What each use of a device raises in a forked process."""
    return lambda key, first, *uses: json.loads(printed(key, FORKED.format(first=first, uses=uses))[-1])


@pytest.mark.parametrize(
    "key",
    ["npu", *(pytest.param(key, marks=pytest.mark.slow) for key in ("mlu", "sdaa", "xpu", "mps", "cuda"))],
)
def test_device_is_refused_in_a_forked_process(outcomes, key):
    package = "" if key in ("xpu", "mps", "cuda") else f"import torch_{key}; "
    uses = [f"torch.ones(1, device={key!r})", "kept + 1", "kept.cpu()"]
    if key != "mps":
        uses += [f"torch.{key}.synchronize()", f"torch.{key}.set_device(0)"]
    found = outcomes(key, f"{package}kept = torch.ones(1, device={key!r})", *uses)
    assert set(found) == {"RuntimeError: " + REFUSED.format(name=key.upper())}


def test_what_needs_no_device_works_in_a_forked_process(outcomes):
    first = "import torch_npu; kept = torch.ones(1, device='npu')"
    uses = (
        "torch.manual_seed(1)",
        "globals().pop('kept')",
        "torch.ones(1) + 1",
        "assert not torch.npu.is_initialized()",
        "assert torch.npu._is_in_bad_fork()",
        "torch.npu.device_count()",
    )
    assert outcomes("npu", first, *uses) == ["nothing"] * len(uses)


def test_process_that_has_not_used_the_device_may_fork(outcomes):
    first = "import torch_npu; torch.npu.is_available(); torch.npu.device_count()"
    assert outcomes("npu", first, "torch.ones(1, device='npu') + 1") == ["nothing"]


def test_cuda_is_available_opens_the_driver(outcomes):
    use = "torch.ones(1, device='cuda')"
    # DeepSpeed's CUDA accelerator sets it, in whatever process imports that.
    first = "import os; os.environ.pop('PYTORCH_NVML_BASED_CUDA_CHECK', None); torch.cuda.is_available()"
    assert "Cannot re-initialize CUDA" in outcomes("cuda", first, use)[0]
    quiet = "import os; os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'] = '1'; torch.cuda.is_available()"
    assert outcomes("cuda", quiet, use) == ["nothing"]


def test_habana_does_not_check_it(outcomes):
    first = "import habana_frameworks.torch; kept = torch.ones(1, device='hpu')"
    assert outcomes("hpu", first, "kept + 1", "torch.ones(1, device='hpu')") == ["nothing"] * 2
