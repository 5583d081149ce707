# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel_ops.optim` behaves as torch's optimizers do, or raises; also for DTensors, as of FSDP2."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_ops import optim
from accel_ops.errors import InvalidTensors
from accel_ops.optimizers import cpu_steps
from shared.children import ranks

TWINS = [(optim.AdamW, torch.optim.AdamW), (optim.Adagrad, torch.optim.Adagrad)]


def parameter(grad: float = 1.0) -> torch.nn.Parameter:
    """Four ones, with a gradient."""
    made = torch.nn.Parameter(torch.ones(4))
    made.grad = torch.full((4,), grad)
    return made


def test_state_dicts_are_exchanged_with_torch_in_both_directions() -> None:
    for ours, torchs in TWINS:
        param = parameter()
        mine = ours([param])
        mine.step()
        saved = copy.deepcopy(mine.state_dict())
        theirs = torchs([torch.nn.Parameter(param.detach().clone())])
        theirs.load_state_dict(mine.state_dict())
        twin = theirs.param_groups[0]["params"][0]
        twin.grad = torch.ones(4)
        theirs.step()
        again = ours([torch.nn.Parameter(param.detach().clone())])
        again.load_state_dict(saved)
        other = again.param_groups[0]["params"][0]
        other.grad = torch.ones(4)
        again.step()
        assert torch.allclose(twin, other, atol=1e-6)
        assert theirs.state_dict()["state"][0].keys() == again.state_dict()["state"][0].keys()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 0]])
@pytest.mark.parametrize("twins", TWINS, ids=["AdamW", "Adagrad"])
def test_parameters_keep_their_states_whatever_the_order_of_their_first_steps(
    twins: Any, order: list[int]
) -> None:
    results = []
    for cls in twins:
        params = [torch.nn.Parameter(torch.arange(4.0) + index) for index in range(3)]
        optimizer = cls([{"params": params[:1]}, {"params": params[1:], "lr": 0.3}], lr=0.1)
        for step in range(5):
            for index, param in enumerate(params):
                turn = order.index(index) if index in order else 9
                param.grad = torch.full((4,), step + index - 2.5) if turn <= step else None
            optimizer.step()
        results.append(torch.stack([param.detach() for param in params]))
    assert torch.allclose(*results, atol=1e-6)


@pytest.mark.parametrize(
    ("ours", "torchs", "options"),
    [
        (optim.AdamW, torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
        (optim.AdamW, torch.optim.AdamW, {"lr": 1e-2, "maximize": True}),
        (optim.AdamW, torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1, "decoupled_weight_decay": False}),
        (
            optim.Adagrad,
            torch.optim.Adagrad,
            {"lr": 1e-2, "lr_decay": 0.01, "initial_accumulator_value": 0.1},
        ),
    ],
)
def test_a_hundred_steps_track_torch_in_float64(ours: Any, torchs: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    mine = [torch.nn.Parameter(torch.randn(5, 7)), torch.nn.Parameter(torch.randn(3))]
    exact = [torch.nn.Parameter(parameter.detach().double()) for parameter in mine]
    own = {name: options[name] for name in options if name == "decoupled_weight_decay"}  # of a group alone
    options = {name: options[name] for name in options if name not in own}
    one, other = ours([{"params": mine, **own}], **options), torchs([{"params": exact, **own}], **options)
    for _ in range(100):
        for parameter, twin in zip(mine, exact, strict=True):
            parameter.grad = torch.randn_like(parameter)
            twin.grad = parameter.grad.double()
        one.step()
        other.step()
    for parameter, twin in zip(mine, exact, strict=True):
        assert (parameter.double() - twin).abs().max() < 2e-5


def test_a_state_that_was_replaced_is_used() -> None:
    params = [parameter(), parameter(2.0)]
    optimizer = optim.AdamW(params)
    optimizer.step()
    optimizer.state[params[1]] = new = copy.deepcopy(optimizer.state[params[0]])
    old = optimizer.state[params[0]]
    optimizer.step()
    assert old["step"] == new["step"] == 2
    assert torch.all(new["exp_avg"] > old["exp_avg"])
    optimizer.param_groups[0]["params"].reverse()  # no longer the order of the states
    before = new["exp_avg"].clone()
    optimizer.step()
    assert torch.all(new["exp_avg"] > before)
    assert torch.all(new["exp_avg"] > old["exp_avg"])


def test_a_sparse_gradient_in_a_later_step_is_refused_and_nothing_is_written() -> None:
    params = [torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2)]
    optimizer = optim.AdamW(params)
    for param in params:
        param.grad = torch.ones(2, 2)
    optimizer.step()
    before = params[0].detach().clone()
    params[1].grad = torch.eye(2).to_sparse()
    with pytest.raises(InvalidTensors, match="a sparse gradient"):
        optimizer.step()
    assert torch.equal(params[0], before)
    assert [optimizer.state[param]["step"] for param in params] == [1, 1]


@pytest.mark.parametrize("option", ["amsgrad", "differentiable", "capturable"])
def test_an_option_that_the_kernels_lack_is_refused_wherever_it_comes_from(option: str) -> None:
    message = f"no {option}"
    with pytest.raises(InvalidTensors, match=message):
        optim.AdamW([parameter()], **{option: True})
    with pytest.raises(InvalidTensors, match="no amsgrad"):
        optim.AdamW([parameter()], 1e-3, (0.9, 0.999), 1e-8, 1e-2, True)
    optimizer = optim.AdamW([parameter()])
    with pytest.raises(ValueError, match=message):
        optimizer.add_param_group({"params": [parameter()], option: True})
    theirs = torch.optim.AdamW([parameter()], **{option: True})
    with pytest.raises(InvalidTensors, match=message):
        optimizer.load_state_dict(theirs.state_dict())
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("twins", TWINS, ids=["AdamW", "Adagrad"])
@pytest.mark.parametrize("grad", [1024.0, float("inf")])
def test_a_gradient_scaler_unscales_and_skips_also_with_fused(twins: Any, grad: float) -> None:
    results = []
    for cls in twins:
        param = parameter()
        optimizer = cls([param], lr=0.1, fused=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        scaler.scale(torch.zeros(()))
        param.grad = torch.full((4,), grad)
        scaler.step(optimizer)
        scaler.update()
        results.append(param.detach().clone())
    assert torch.allclose(*results)
    assert torch.equal(results[0], torch.ones(4)) == (grad == float("inf"))


@pytest.mark.parametrize("cls", [optim.AdamW, optim.Adagrad, optim.Lion])
def test_a_second_backward_through_the_values_before_the_step_is_an_error(cls: Any) -> None:
    weight, other = torch.nn.Parameter(torch.ones(4)), torch.nn.Parameter(torch.ones(4))
    loss = (weight * other).sum()
    loss.backward(retain_graph=True)
    cls([weight]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("form", ["channels_last", "transposed", "with gaps"])
def test_a_parameter_in_another_memory_format_is_updated_as_torch_does(form: str) -> None:
    torch.manual_seed(0)
    results = []
    start, grad = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    for cls in (optim.AdamW, torch.optim.AdamW):
        if form == "channels_last":
            data = start.contiguous(memory_format=torch.channels_last)
        elif form == "transposed":
            data = start.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
        else:
            data = torch.zeros(2, 3, 4, 10)[..., ::2].copy_(start)
        param = torch.nn.Parameter(data)
        assert param.stride() == data.stride()
        optimizer = cls([param], lr=0.1)
        for _ in range(3):
            param.grad = torch.empty_like(param).copy_(grad)
            optimizer.step()
        results.append(param.detach())
    assert torch.allclose(*results, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_new_states_are_zero_to_the_last_element(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of all sizes, filled by two threads; float64, which no kernel supports, by torch."""
    monkeypatch.setattr(torch, "empty_like", lambda like: torch.full_like(like, float("nan")))
    for zeros in cpu_steps.zeros_like([torch.ones(size, dtype=dtype) for size in (1, 70_001, 0, 5)]):
        assert torch.equal(zeros, torch.zeros_like(zeros))


@pytest.mark.parametrize("kind", [optim.AdamW, optim.Adagrad, optim.Lion])
def test_a_step_under_another_default_device_is_the_same(kind: Any) -> None:
    here, there = parameter(), parameter()
    kind([here]).step()
    optimizer = kind([there])
    with torch.device("meta"):
        optimizer.step()
    assert torch.equal(here, there)


@pytest.mark.parametrize("kind", [optim.AdamW, optim.Adagrad, optim.Lion])
def test_a_compiled_function_with_a_step_is_compiled_once(kind: Any) -> None:
    param, twin = parameter(), parameter()
    optimizer, same = kind([param]), kind([twin])
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def train(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        optimizer.step()
        return y + 1

    counts = []
    for _ in range(12):
        train(torch.ones(3))
        same.step()
        counts.append(len(graphs))
    assert counts == [counts[0]] * 12
    assert torch.equal(param, twin)
    torch.compiler.reset()


# --- DTensors, as of FSDP2


_TRAIN = """
import sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from accel_core.vendor import torch_threads
from accel_ops import optim
from accel_ops.errors import InvalidTensors
torch_threads.finish_at_exit()
rank, world, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4]
dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(path, world))
mesh = init_device_mesh("cpu", (world,))

def trained(kind, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2))  # 3 rows on 2 ranks: uneven
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    optimizer = kind(model.parameters(), lr=0.1, **options)
    for step in range(4):
        model(torch.full((2, 5), rank + step + 1.0)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor() for p in model.parameters()], optimizer

for ours, theirs, options in (
    (optim.AdamW, torch.optim.AdamW, {"fused": True}), (optim.Adagrad, torch.optim.Adagrad, {})):
    mine, optimizer = trained(ours)
    state = optimizer.state[optimizer.param_groups[0]["params"][0]]
    assert all(isinstance(v, DTensor) for k, v in state.items() if k != "step"), state
    for one, other in zip(mine, trained(theirs, **options)[0]):
        torch.testing.assert_close(one, other)
trained(optim.Lion)

# A gradient that is still a sum of parts is summed first.
param = torch.nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
param.grad = distribute_tensor(torch.ones(4), mesh, [Replicate()])
optim.Lion([param], lr=0.5).step()
assert torch.equal(param.full_tensor(), torch.full((4,), 0.5)), param.full_tensor()

param = torch.nn.Parameter(DTensor.from_local(torch.ones(4), mesh, [Partial()]))
param.grad = param.detach().clone()
try:
    optim.AdamW([param]).step()
except InvalidTensors as error:
    assert "partial sum" in str(error)
else:
    raise AssertionError("not refused")
"""


@pytest.mark.more
@pytest.mark.skipif(not torch.distributed.is_available(), reason="not run: torch without distributed")
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.sample("2")
def test_sharded_parameters_step_as_with_torch(world: int, tmp_path: Path) -> None:
    ranks(_TRAIN, world, tmp_path)
