# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A simulated module offers exactly the real one's names, which take and refuse the real ones' arguments.

Programs show what is particular about a vendor's packages: mixed precision, graphs, fused operators, events.
"""

import json
from functools import cache
from pathlib import Path

import pytest

from accel_sim import surface, vendors

OWN_MODULE = [vendor.key for vendor in vendors.VENDORS if vendor.packages and not vendor.device_type]
KEYS = [vendor.key for vendor in vendors.VENDORS]
FACTS = Path(__file__).with_name("module_facts.py")


@pytest.fixture(scope="module")
def facts(printed):
    """What module_facts.py prints about a vendor's module, by its key."""

    @cache
    def of(key):
        package = "habana_frameworks.torch" if key == "hpu" else "".join(vendors.find(key).packages)
        return json.loads(printed(key, FACTS, package)[-1])

    return of


@pytest.mark.sample("npu", "cuda")
@pytest.mark.parametrize("key", OWN_MODULE)
def test_module_has_exactly_the_real_names(facts, key):
    vendor = vendors.find(key)
    entries = surface.load(vendor.surface).children(vendor.module)
    real = {name for name, entry in entries.items() if not entry.condition.startswith("never")}
    # torch itself asks every PrivateUse1 module for these two.
    names = set(facts(key)["names"])
    assert names - {"get_amp_supported_dtype", "_is_in_bad_fork"} <= real
    assert real <= names


# No public source has signatures of torch.sdaa.
@pytest.mark.sample("npu", "cuda")
@pytest.mark.parametrize("key", [key for key in KEYS if key != "sdaa"])
def test_simulated_functions_take_the_real_parameters(facts, key):
    taken = facts(key)["signatures"]
    assert {name: found for name, (found, real) in taken.items() if found != real} == {}
    assert "synchronize" in taken


DESCRIBED = ("get_device_name", "get_device_properties", "get_device_capability", "can_device_access_peer")
GENERATORS = ("get_rng_state", "set_rng_state")
#: Functions that return what they are given, or, as torch_npu's, ignore the device.
ANY = ("99", "cpu", "another type", "-5")
TAKES_ALL = {"_get_device_index": ("99", "-5"), "npu get_device_capability": ANY, "hpu Stream": ANY}
STREAMS = ("Stream", "SyncLaunchStream", "current_stream", "default_stream")
ONLY_NEGATIVE = ("set_device", "synchronize", "device", *STREAMS)


def raised(key: str, function: str, wrong: str) -> str:
    """The name of the exception that the real function raises, empty for none."""
    if wrong in TAKES_ALL.get(function, ()) or wrong in TAKES_ALL.get(f"{key} {function}", ()):
        return ""
    if function in GENERATORS:
        return _of_generator(key, wrong)
    if wrong in ("cpu", "another type"):
        return "ValueError"
    refused = key == "hpu" and function in ("set_device", "device")
    if wrong == "-5" and function in ONLY_NEGATIVE and not refused:
        return ""
    return _out_of_range(key, function)


def _of_generator(key: str, wrong: str) -> str:
    if key == "mps":
        return ""  # it has one generator, and does not look at the argument
    if wrong in ("cpu", "another type"):
        return "ValueError" if key in ("npu", "hpu") else ""
    return "RuntimeError" if key == "hpu" or wrong == "-5" else "IndexError"


def _out_of_range(key: str, function: str) -> str:
    if key == "hpu":
        streams = ("current_stream", "default_stream")
        return "RuntimeError" if function in streams else "AssertionError"
    if function in DESCRIBED:
        return "RuntimeError" if key == "xpu" else "AssertionError"
    if key == "npu" and function == "mem_get_info":
        return "AssertionError"
    driver = function in ("set_device", "synchronize", "device", "Stream", "mem_get_info")
    return "AcceleratorError" if key == "cuda" and driver else "RuntimeError"


@pytest.mark.sample("npu", "cuda")
@pytest.mark.parametrize("key", KEYS)
def test_wrong_device_raises_what_the_real_function_raises(facts, key):
    wrong, outcomes = [], facts(key)["outcomes"]
    assert "get_device_name" in {name.partition("(")[0] for name in outcomes} or key in ("sdaa", "mps")
    for name, by_device in outcomes.items():
        for device, error in by_device.items():
            wanted = raised(vendors.find(key).type, name.partition("(")[0], device)
            if error.partition(":")[0] not in (wanted, "not simulated"):
                wrong.append(f"{name}, {device}: {error or 'nothing'}, expected {wanted or 'nothing'}")
    assert wrong == []


@pytest.mark.parametrize("key", ["cuda", pytest.param("xpu", marks=pytest.mark.slow)])
def test_device_properties_are_those_of_torch(printed, key):
    source = f"""
import ast, json, pathlib, torch
stub = ast.parse(pathlib.Path(torch._C.__file__).with_name("_C").joinpath("__init__.pyi").read_text())
[found] = [each for each in stub.body if getattr(each, "name", "") == "_{key.capitalize()}DeviceProperties"]
print(json.dumps([sorted(line.target.id for line in found.body), sorted(vars(torch.{key}.get_device_properties(0)))]))
"""
    real, found = json.loads(printed(key, source)[-1])
    assert set(real) - set(found) == set()


#: Calls of what is not simulated, and how their errors name it.
NOT_SIMULATED = {
    "cuda": {
        "torch.cuda.memory.memory_snapshot()": "torch.cuda.memory.memory_snapshot",
        "torch.cuda.memory_snapshot()": "torch.cuda.memory.memory_snapshot",
        "torch.cuda.MemPool()": "torch.cuda.MemPool",
        "torch.cuda.ExternalStream(0)": "torch.cuda.ExternalStream",
        "torch.cuda.cudart().cudaMemGetAttribute()": "torch.cuda.cudart().cudaMemGetAttribute",
        "torch.cuda.CUDAGraph().raw_cuda_graph()": "CUDAGraph.raw_cuda_graph",
        "torch.cuda.Event(external=True)": "torch.cuda.Event(external=…)",
    },
    "xpu": {"torch.xpu.get_stream_from_external(1)": "torch.xpu.", "torch.xpu.MemPool()": "torch.xpu.MemPool"},
    "npu": {
        "torch.npu.NPUGraph().update()": "NPUGraph.update",
        "torch_npu.npu_grouped_matmul()": "torch_npu.npu_grouped_matmul",
        "torch_npu.npu_fusion_attention(*[torch.ones(1, 1, 2, 4, device='npu')] * 3, 1, 'BNSD', sparse_mode=4)":
            "torch.ops.npu.npu_fusion_attention with sparse_mode 4",
    },
}  # fmt: skip


@pytest.mark.sample("cuda")
@pytest.mark.parametrize("key", NOT_SIMULATED)
def test_what_is_not_simulated_is_named(printed, key):
    source = """
import torch{runtime}
for call in {calls}:
    print(outcome(lambda: eval(call)).partition(": a call")[0])
print(hasattr(torch._C, "_cuda_getDeviceCount"), hasattr(torch._C, "no_such_name"))
"""
    *refusals, there = printed(
        key, source.format(runtime=", torch_npu" * (key == "npu"), calls=list(NOT_SIMULATED[key]))
    )
    for text, words in zip(refusals, NOT_SIMULATED[key].values(), strict=True):
        assert f"NotSimulated: {words}" in text
        assert text.endswith("is not simulated")
    assert there == "False False"


INDEX = """
import torch, {package}
module = getattr(torch, {key!r})
module.set_device(1)
print(module.get_device_name({key!r}) != "", module.current_stream({key!r}).device_index)
print(outcome(lambda: module.set_device({key!r})), module.current_device())
"""
AMP = """
import torch, torch_{key}
from torch_{key}.{key}.amp import autocast, GradScaler
with torch.{key}.amp.autocast(dtype=torch.bfloat16):
    print((torch.ones(2, 2, device="{key}") @ torch.ones(2, 2, device="{key}")).dtype)
print(GradScaler(init_scale=4.0).scale(torch.ones((), device="{key}")).item(), autocast is torch.{key}.amp.autocast)
"""
SPAWN = """
import multiprocessing
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(eval, ("str(__import__('torch').ones(2, device={key!r}))",)))
"""
#: hpu alone orders the work of two streams on the same memory.
STREAMS = """
import torch
from {runtime} import {key} as module
source, target = torch.full((4,), 7.0).pin_memory("{key}"), torch.zeros(4, device="{key}")
module.synchronize()
with module.stream(module.Stream()):
    target.copy_(source, non_blocking=True)
print(target.sum().item())
"""
#: By what a program shows: the device, the settings, the program, the lines that it prints.
PRINTED = {
    "a parameter that the real function lacks is refused, and its own name taken": ("npu", {}, """
import torch, torch_npu
print(torch.npu.get_device_name(device_name=0), torch.npu.Event(enable_timing=True).timed)
for call in (lambda: torch.npu.get_device_name(device=0), lambda: torch.npu.Event(external=True)):
    print(outcome(call).partition(":")[0])
""", ["Ascend910B2 (simulated) True", "TypeError", "TypeError"]),
    "events and streams have the attributes of the real ones": ("npu", {}, """
import ctypes, torch, torch_npu
stream = torch.npu.Stream()
first, last = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
first.record(stream)
last.record(stream)
print(0 <= last.recorded_time() - first.recorded_time() < 10**7)
print(isinstance(stream._as_parameter_, ctypes.c_void_p), stream._as_parameter_.value == stream.npu_stream)
print(first.npu_event == first._as_parameter_.value, stream)
print(outcome(first.reset).partition(": a call")[0])
""", ["True", "True True", "True <torch_npu.npu.Stream device=npu:0 npu_stream=0x1>",
      "NotSimulated: torch.npu.Event.reset is not simulated"]),
    "options of npu are checked as by the real ones": ("npu", {}, """
import torch, torch_npu
torch.npu.set_compile_mode(jit_compile=False)
torch.npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "enable"})
torch.npu.matmul.allow_hf32 = True
torch.npu.conv.allow_hf32 = False
print(torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32)
for call in (lambda: torch.npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "often"}), lambda: torch.npu.set_option("x"),
             lambda: setattr(torch.npu.matmul, "allow_hf32", 1), lambda: torch_npu.profiler.profile()):
    print(outcome(call).partition(":")[0])
""", ["True False", "ValueError", "TypeError", "TypeError", "NotSimulated"]),
    "a program for cuda runs on npu after the transfer": pytest.param("npu", {}, """
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu
layer = torch.nn.Linear(2, 2).cuda()
x = torch.ones(1, 2, device="cuda").to("cuda:0")
with torch.autocast("cuda", dtype=torch.bfloat16):
    print(layer(x).device, layer(x).dtype, x.is_cuda)
print(torch.cuda.is_available(), torch.cuda.current_device())
print(torch.cuda.memory_allocated() == torch.npu.memory_allocated())
""", ["npu:0 torch.bfloat16 True", "True 0", "True"], marks=pytest.mark.slow),
    "a wrapped module of hpu is captured and replayed": pytest.param("hpu", {}, """
import torch, habana_frameworks.torch as htorch
layer = torch.nn.Linear(3, 3).to("hpu")
x = [torch.randn(2, 3).to("hpu") for _ in range(3)]
with torch.no_grad():
    plain = [layer(each).clone() for each in x]
    wrapped = htorch.hpu.wrap_in_hpu_graph(layer)
    print([torch.equal(wrapped(each), wanted) for each, wanted in zip(x, plain)])
    double = htorch.hpu.wrap_in_hpu_graph_func(lambda t: 2 * t)
    print([torch.equal(double(each), 2 * each) for each in x])
""", ["[True, True, True]"] * 2, marks=pytest.mark.slow),
    "torch.cuda takes no device without an index": ("cuda", {}, INDEX.format(key="cuda", package="os"), [
        "True 1", "ValueError: Expected a torch.device with a specified index or an integer, but got:cuda 1",
    ]),
    "torch.npu takes a device without an index as the current one": (
        "npu", {}, INDEX.format(key="npu", package="torch_npu"), ["True 1", "None 1"],
    ),
    **{f"amp of {key} is torch's": (key, {}, AMP.format(key=key), ["torch.bfloat16", "4.0 True"])
       for key in ("npu", "mlu")},
    # torch >= 2.15 calls ProcessGroupNCCL2, with the device as its fifth argument.
    "torch creates both NCCL classes": ("cuda", {}, """
import torch
from torch.distributed import HashStore, distributed_c10d as c10d
for name in ("ProcessGroupNCCL", "ProcessGroupNCCL2"):
    cls = getattr(c10d, name)
    group = cls(HashStore(), 0, 1, c10d.ProcessGroupNCCL.Options(), torch.device("cuda", 0))
    print(group.name(), isinstance(group, cls))
""", ["nccl True"] * 2),
    "memory of a process can be limited, and NCCL has a version": ("cuda", {"memory": "1MiB"}, """
import torch
torch.cuda.set_per_process_memory_fraction(0.25)
print(torch.cuda.get_per_process_memory_fraction(), torch.cuda.memory.memory_allocated())
kept = torch.empty(200 << 10, dtype=torch.uint8, device="cuda")
print(outcome(lambda: torch.empty(100 << 10, dtype=torch.uint8, device="cuda")).partition(":")[0])
print(torch.cuda.nccl.version()[0])
""", ["0.25 0", "OutOfMemoryError", "2"]),
    "hpu runs what it captures, unless it is a dry run": ("hpu", {"env": {"PT_HPU_LAZY_MODE": "1"}}, """
import torch, habana_frameworks.torch.hpu as hpu
x = torch.ones(2, device="hpu")
for dry_run in (False, True):
    graph = hpu.HPUGraph()
    with hpu.graph(graph, dry_run=dry_run):
        y = x * 2
    print((y + 0).isnan().any().item(), end=" ")
    x.fill_(3)
    graph.replay(asynchronous=True)
    print(y.tolist())
""", ["False [6.0, 6.0]", "True [6.0, 6.0]"]),
    "collectives are refused in a capture": ("npu", {}, """
import os, torch, torch_npu, torch.distributed as dist
dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(2, device="npu")
with torch.npu.graph(torch.npu.NPUGraph()):
    print("Cannot call a collective during NPU graph capture." in outcome(lambda: dist.all_reduce(x)))
dist.destroy_process_group()
""", ["True"]),
    "a card without device files works": ("cuda", {"behaviour": ["cuda.no-device-file"]}, """
import os, pathlib, torch
root = pathlib.Path(os.environ["ACCEL_SYSROOT"])
print(torch.cuda.device_count(), (root / "dev").exists(), torch.ones(2, device="cuda").sum().item())
""", ["2 False 2.0"]),
    "npu has no capability unless it is set": ("npu", {}, """
import os, torch, torch_npu
print(torch.npu.get_device_capability(), torch.npu.default_generators)
os.environ["TORCH_NPU_DEVICE_CAPABILITY"] = "9.1"
torch.ones(1, device="npu")
print(torch.npu.get_device_capability(), len(torch.npu.default_generators))
""", ["None ()", "(9, 1) 2"]),
    "hpu is one device a process": ("hpu", {"devices": 4}, """
import torch, habana_frameworks.torch.hpu as hpu
hpu.set_device(3)
torch.ones(1, device="hpu")
print(hpu.device_count(), hpu.current_device(), len(hpu.random.default_generators))
print(hasattr(hpu, "default_generators"))
stats = hpu.memory_stats()
print(sorted(stats)[:3], hpu.memory_reserved() == stats["Limit"], hasattr(hpu, "reset_max_memory_allocated"))
for call in (lambda: hpu.set_rng_state(hpu.get_rng_state(), 1), lambda: hpu.set_device(9)):
    print(outcome(call).partition(":")[0])
""", ["4 0 1", "False", "['ActiveAllocs', 'InUse', 'Limit'] True False", "RuntimeError", "AssertionError"]),
    "a device of a set size runs out of memory and recovers": ("npu", {"devices": 2, "memory": "4MiB"}, """
import torch, torch_npu
kept = torch.empty(3 << 20, dtype=torch.uint8, device="npu")
print(outcome(lambda: torch.empty(2 << 20, dtype=torch.uint8, device="npu")).partition(".")[0])
del kept
print(torch.empty(4 << 20, dtype=torch.uint8, device="npu").nbytes, torch.npu.mem_get_info(1))
""", ["OutOfMemoryError: NPU out of memory", "4194304 (4194304, 4194304)"]),
    # npu comes with a stub package, xpu with torch itself.
    **{f"spawned children have the {key}": (key, {}, SPAWN.format(key=key), [f"tensor([1., 1.], device='{key}:0')"])
       for key in ("npu", "xpu")},
    **{f"copies of two streams to {key}": (key, {"deferred": True}, STREAMS.format(key=key, runtime=runtime), [total])
       for key, runtime, total in (("hpu", "habana_frameworks.torch", "28.0"), ("npu", "torch_npu", "0.0"))},
    "deferred mode can be switched on for a block": ("npu", {}, """
import torch, torch_npu
from accel_sim import current, execution_modes

there, here = torch.ones(4, device="npu"), torch.zeros(4, pin_memory=True)
simulation = current()
for _ in range(2):
    here.zero_()
    with execution_modes.deferred(simulation.native, simulation.settings):
        there.add_(1)
        here.copy_(there, non_blocking=True)
        print(here[0].item())
    print(here[0].item())
here.zero_()
here.copy_(there, non_blocking=True)
print(here[0].item())
""", ["0.0", "2.0", "0.0", "3.0", "3.0"]),
}  # fmt: skip


@pytest.mark.parametrize(("key", "settings", "program", "lines"), PRINTED.values(), ids=PRINTED)
def test_program_prints_what_it_would_on_hardware(printed, key, settings, program, lines):
    assert printed(key, program, **settings) == lines
