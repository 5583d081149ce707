# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Names of a vendor's packages: mixed precision, graphs, fused operators, events and streams, what is not simulated."""

import pytest

from accel_sim import surface


def lines(python, key: str, source: str, **options) -> list[str]:
    done = python(key, source, **options)
    assert not done.returncode, done.stderr
    found: list[str] = done.stdout.splitlines()
    return found


AMP = """
import torch, torch_{key}
from torch_{key}.{key}.amp import autocast, GradScaler
with torch.{key}.amp.autocast(dtype=torch.bfloat16):
    print((torch.ones(2, 2, device="{key}") @ torch.ones(2, 2, device="{key}")).dtype)
print(GradScaler(init_scale=4.0).scale(torch.ones((), device="{key}")).item(), autocast is torch.{key}.amp.autocast)
"""


@pytest.mark.parametrize("key", ["npu", "mlu"])
def test_amp_of_the_vendor_is_torchs(python, key):
    assert lines(python, key, AMP.format(key=key)) == ["torch.bfloat16", "4.0 True"]


def test_events_and_streams_have_the_attributes_of_the_real_ones(python):
    source = """
import ctypes, torch, torch_npu
stream = torch.npu.Stream(priority=-9)
first, last = torch.npu.Event(enable_timing=True), torch.npu.Event(enable_timing=True)
first.record(stream)
last.record(stream)
print(0 <= last.recorded_time() - first.recorded_time() < 10**7, stream.priority, torch.npu.Stream.priority_range())
print(isinstance(stream._as_parameter_, ctypes.c_void_p), stream._as_parameter_.value == stream.npu_stream)
print(first.npu_event == first._as_parameter_.value, stream)
try:
    first.reset()
except NotImplementedError as error:
    print(str(error).splitlines()[0])
"""
    assert lines(python, "npu", source) == [
        "True -1 (0, -1)",
        "True True",
        "True <torch.npu.Stream device=npu:0 npu_stream=0x1>",
        "[ACC-704] torch.npu.Event.reset is not simulated",
    ]


def test_options_of_npu_are_checked_as_by_the_real_ones(python):
    source = """
import torch, torch_npu
torch.npu.set_compile_mode(jit_compile=False)
torch.npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "enable"})
torch.npu.matmul.allow_hf32 = True
torch.npu.conv.allow_hf32 = False
print(torch.npu.matmul.allow_hf32, torch.npu.conv.allow_hf32)
for call in (lambda: torch.npu.set_option({"ACL_OP_COMPILER_CACHE_MODE": "often"}), lambda: torch.npu.set_option("x"),
             lambda: setattr(torch.npu.matmul, "allow_hf32", 1), lambda: torch_npu.profiler.profile()):
    try:
        call()
    except (TypeError, ValueError, NotImplementedError) as error:
        print(type(error).__name__)
"""
    errors = ["ValueError", "TypeError", "TypeError", "NotSimulated"]
    assert lines(python, "npu", source) == ["True False", *errors]


def test_program_for_cuda_runs_on_npu_after_the_transfer(python):
    source = """
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu
layer = torch.nn.Linear(2, 2).cuda()
x = torch.ones(1, 2, device="cuda").to("cuda:0")
with torch.autocast("cuda", dtype=torch.bfloat16):
    print(layer(x).device, layer(x).dtype, x.is_cuda)
print(torch.cuda.is_available(), torch.cuda.current_device())
print(torch.cuda.memory_allocated() == torch.npu.memory_allocated())
"""
    assert lines(python, "npu", source) == ["npu:0 torch.bfloat16 True", "True 0", "True"]


def test_wrapped_module_of_hpu_is_captured_and_replayed(python):
    source = """
import torch, habana_frameworks.torch as htorch
layer = torch.nn.Linear(3, 3).to("hpu")
x = [torch.randn(2, 3).to("hpu") for _ in range(3)]
with torch.no_grad():
    plain = [layer(each).clone() for each in x]
    wrapped = htorch.hpu.wrap_in_hpu_graph(layer)
    print([torch.equal(wrapped(each), wanted) for each, wanted in zip(x, plain)])
    double = htorch.hpu.wrap_in_hpu_graph_func(lambda t: 2 * t)
    print([torch.equal(double(each), 2 * each) for each in x])
"""
    assert lines(python, "hpu", source) == ["[True, True, True]"] * 2


def test_memory_of_a_process_can_be_limited_and_nccl_has_a_version(python):
    source = """
import torch
torch.cuda.set_per_process_memory_fraction(0.25)
print(torch.cuda.get_per_process_memory_fraction(), torch.cuda.memory.memory_allocated())
kept = torch.empty(200 << 10, dtype=torch.uint8, device="cuda")
try:
    torch.empty(100 << 10, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("out of memory")
print(torch.cuda.nccl.version()[0])
"""
    assert lines(python, "cuda", source, memory="1MiB") == ["0.25 0", "out of memory", "2"]


REFUSED = {
    "cuda": (
        "torch.cuda.memory.memory_snapshot()",
        "torch.cuda.memory_snapshot()",
        "torch.cuda.MemPool()",
        "torch.cuda.ExternalStream(0)",
        "torch.cuda.cudart().cudaMemGetAttribute()",
    ),
    "xpu": ("torch.xpu.get_stream_from_external(1)", "torch.xpu.MemPool()"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_is_not_simulated_of_torchs_own_modules_is_named(python, key):
    source = """
import torch
for call in {calls}:
    try:
        eval(call)
    except NotImplementedError as error:
        print(str(error).splitlines()[0])
print(hasattr(torch._C, "_cuda_getDeviceCount"), hasattr(torch._C, "no_such_name"))
"""
    *refusals, there = lines(python, key, source.format(calls=REFUSED[key]))
    assert len(refusals) == len(REFUSED[key])
    for text in refusals:
        assert text.startswith("[ACC-704] torch.")
        assert text.endswith("is not simulated")
    assert there == "False False"


def test_hpu_runs_what_it_captures_unless_it_is_a_dry_run(python):
    source = """
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
"""
    done = python("hpu", source, env={"PT_HPU_LAZY_MODE": "1"})
    assert done.stdout.splitlines() == ["False [6.0, 6.0]", "True [6.0, 6.0]"], done.stderr


def test_graph_of_torch_accelerator_is_there_where_torch_has_one(python):
    source = """
import torch
x = torch.ones(2, device="xpu")
graph = torch.accelerator.Graph()
with torch.Stream("xpu"), graph:
    y = x + 1
graph.replay()
print(y.tolist())
"""
    done = python("xpu", source)
    assert done.stdout.strip() == "[2.0, 2.0]", done.stderr


@pytest.mark.parametrize(("key", "method"), [("npu", "update"), ("cuda", "raw_cuda_graph")])
def test_methods_that_are_not_simulated_say_so(python, key, method):
    source = f"import torch; torch.{key}.{key.upper()}Graph().{method}()"
    done = python(key, source)
    assert f"{key.upper()}Graph.{method} is not simulated" in done.stderr


def test_collectives_are_refused_in_a_capture(python):
    source = """
import os, torch, torch_npu, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(2, device="npu")
with torch.npu.graph(torch.npu.NPUGraph()):
    try:
        dist.all_reduce(x)
    except RuntimeError as error:
        print(error)
dist.destroy_process_group()
"""
    done = python("npu", source)
    assert "Cannot call a collective during NPU graph capture." in done.stdout, done.stderr


def test_torch_npu_offers_them_under_its_own_name_with_the_real_schema(python):
    done = python(
        "npu",
        """
import torch, torch_npu
print(torch_npu.npu_rms_norm is torch.ops.npu.npu_rms_norm, hasattr(torch.ops.npu, "npu_grouped_matmul"))
print(torch.ops.npu.npu_apply_adam_w.default._schema, torch.ops.npu.npu_apply_adam_w.out._schema, sep="; ")
torch_npu.npu_grouped_matmul()
""",
    )
    first, second = done.stdout.splitlines()
    assert first == "True False"
    assert second == surface.load("npu").names["torch.ops.npu.npu_apply_adam_w"].signature
    assert "torch_npu.npu_grouped_matmul is not simulated" in done.stderr


def test_another_vendors_ops_are_not_there(python):
    done = python("mlu", "import torch, torch_mlu; print(hasattr(torch.ops.npu, 'npu_rms_norm'))")
    assert done.stdout.strip() == "False", done.stderr


def test_parameters_that_are_not_simulated_say_so(python):
    source = """
import torch, torch_npu
x = torch.ones(1, 1, 2, 4, device="npu")
torch_npu.npu_fusion_attention(x, x, x, 1, "BNSD", sparse_mode=4)
"""
    done = python("npu", source)
    assert "torch.ops.npu.npu_fusion_attention with sparse_mode 4" in done.stderr
