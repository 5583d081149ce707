# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fixes of the engine, its collectives and devices, and the maker of the CPU."""

import inspect
import os
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from deepspeed.runtime import utils

from accel_zero import backward_hooks, cpu_maker, engine_fixes
from accel_zero.errors import UnsupportedConfiguration

REAL = {"arch": "X86_64", "vendor_id_raw": "Maker of py-cpuinfo"}


@pytest.mark.parametrize(
    ("caller", "text", "answer"),
    [
        ("deepspeed.ops.adam.cpu_adam", "vendor_id\t: GenuineIntel\nvendor_id: Other\n", "GenuineIntel"),
        ("deepspeed.ops.lion.cpu_lion", "vendor_id :\nvendor : HiSilicon: yes\n", "HiSilicon: yes"),
        ("deepspeed.ops.op_builder.builder", "vendor_id: GenuineIntel\n", None),
        ("__main__", "vendor_id: GenuineIntel\n", None),
    ],
)
def test_the_cpu_optimizers_get_the_maker_and_everybody_else_the_whole_answer(
    caller, text, answer, tmp_path, monkeypatch
):
    monkeypatch.setattr(cpu_maker, "_PROC", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(text)
    module = SimpleNamespace(get_cpu_info=cpu_maker._answering(lambda: dict(REAL)))
    ask = eval("lambda cpuinfo: cpuinfo.get_cpu_info()", {"__name__": caller})
    assert ask(module) == (REAL if answer is None else {"vendor_id_raw": answer})


_CONSTRUCT = """
    import json, cpuinfo, torch, subprocess
    {first}
    from unittest.mock import MagicMock
    from deepspeed.ops.adam import DeepSpeedCPUAdam, cpu_adam
    cpu_adam.CPUAdamBuilder = MagicMock()  # without accel-cpu, DeepSpeed compiles the op for minutes
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
@pytest.mark.sample("import*")
def test_deepspeed_constructs_its_optimizer_without_py_cpuinfo_s_process(children, first):
    assert children.run(_CONSTRUCT.format(first=first), DS_ACCELERATOR="cpu").report == [False, True]


_NAMES_CUDA = """
    import json, types, deepspeed, torch
    from deepspeed.nvme import torch_io
    from deepspeed.runtime import compiler, torch_autocast
    torch_autocast._WARNED_NESTED_AUTOCAST = True
    engine = types.SimpleNamespace(torch_autocast_enabled=lambda: False)
    with torch.autocast("cpu"), torch_autocast.autocast_if_enabled(engine):
        inside = torch.is_autocast_enabled("cpu")
    made = torch_io.torch.randint(high=128, size=(1,), device="cuda:0")
    graphs = []
    torch._dynamo.register_backend(lambda graph, _: graphs.append(graph) or graph.forward, "seen")
    deepspeed.get_accelerator().set_compile_backend("seen")
    compiler.compile()(lambda tensor: tensor + 1)(torch.ones(1))
    print(json.dumps([inside, made.device.type, torch_io.torch.Tensor is torch.Tensor, len(graphs)]))
"""


@pytest.mark.upstream
def test_modules_that_name_cuda_use_the_accelerator(children):
    assert children.run(_NAMES_CUDA, DS_ACCELERATOR="cpu").report == [False, "cpu", True, 1]


@pytest.mark.parametrize(
    ("path", "swaps", "warned"), [("folder", True, True), (None, True, False), ("folder", False, False)]
)
def test_optimizer_states_that_are_not_restored_are_a_warning(path, swaps, warned, caplog):
    engine = SimpleNamespace(optimizer=SimpleNamespace(swap_optimizer=swaps))
    assert engine_fixes.load_checkpoint(lambda _: (path, {}), engine) == (path, {})
    assert bool(caplog.records) is warned


@pytest.mark.parametrize(
    ("groups", "universal", "refused"),
    [([1, None], False, True), ([1, None], True, False), ([1, 2], False, False)],
)
def test_parameters_outside_of_memory_are_refused_ahead_of_loading(groups, universal, refused):
    optimizer = SimpleNamespace(fp16_partitioned_groups_flat=groups)
    engine = SimpleNamespace(optimizer=optimizer, load_universal_checkpoint=lambda: universal)
    with pytest.raises(UnsupportedConfiguration, match="1 of 2 groups") if refused else nullcontext():
        assert engine_fixes.load_zero_checkpoint(lambda _: "loaded", engine) == "loaded"


_SAVE_AND_LOAD = """
import json, logging, torch, deepspeed
from accel_zero.errors import UnsupportedConfiguration
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
except UnsupportedConfiguration as error:
    logged.append(str(error))
print(json.dumps([line for line in logged if "NVMe" in line]))
"""


@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.parametrize(
    ("optimizer", "said"), [("cpu", "cannot load a checkpoint"), ("nvme", "has not restored")]
)
def test_deepspeed_s_engine_says_what_it_cannot_load(children, tmp_path, optimizer, said):
    program = f"FOLDER, OPTIMIZER = {str(tmp_path)!r}, {optimizer!r}\n{_SAVE_AND_LOAD}"
    (line,) = children.run(program, DS_ACCELERATOR="cpu").report
    assert said in line


def test_local_rank_of_open_mpi_hidden(monkeypatch):
    name, seen = "OMPI_COMM_WORLD_LOCAL_RANK", list[str | None]()
    monkeypatch.setenv(name, "0")
    for local_rank in ("", "1"):
        monkeypatch.setenv("LOCAL_RANK", local_rank)
        engine_fixes.configure(lambda: seen.append(os.environ.get(name)))
    assert seen == ["0", None]
    assert os.environ[name] == "0"


def test_a_tensor_of_any_shape_is_gathered_into_a_vector():
    matrix = torch.ones(2, 1)
    flat, same = (
        engine_fixes.all_gather(lambda _, output, tensor: tensor, None, torch.empty(shape), matrix)
        for shape in ((4,), (4, 1))
    )
    assert (flat.shape, same.shape) == ((2,), (2, 1))
    assert flat.data_ptr() == matrix.data_ptr()


@pytest.mark.parametrize("replaced", [False, True])
def test_parameters_of_a_backward_pass_are_counted_and_a_replaced_helper_of_torch_is_asked(
    replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, unused = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    asked, counts, node_of = [], [], torch.autograd.graph._get_grad_fn_or_grad_acc
    if replaced:
        helper = "_get_grad_fn_or_grad_acc"
        monkeypatch.setattr(torch.autograd.graph, helper, lambda param: asked.append(param) or node_of(param))

    def hook(grad: torch.Tensor) -> None:
        stock = inspect.unwrap(utils.count_used_parameters_in_backward)
        counts.append(backward_hooks.count_used(stock, [used, unused, torch.ones(2)]))

    used.register_hook(hook)
    (used * 2).sum().backward()
    assert (counts, len(asked)) == ([1], 2 * replaced)
