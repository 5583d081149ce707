# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The device kernels of Adam and Lion, on the host, a fiber a thread: within 2 eps of float64."""

import ctypes
import random
from typing import Any

import pytest
import torch

from accel_ops import fused_optimizers, step_kernels
from accel_ops.fused_optimizers import AdamStep
from accel_ops.kernel_builders import packed_arguments
from accel_ops.step_kernels import ARGUMENTS, TENSORS, KernelSteps, tables
from accel_sim.driver import HostKernels
from accel_sim.driver.trials import with_any_threads

from .step_cases import CASES, KINDS

HALF = torch.bfloat16
ADAM = AdamStep(torch.zeros(1), 0.1, 0.9, 0.99, 1e-8, 3, 1, 1, 0.1)


@pytest.fixture(scope="module")
def kernels() -> HostKernels:
    return HostKernels(packed_arguments)


@pytest.fixture
def steps(kernels: HostKernels) -> KernelSteps:
    kernels.launched.clear()
    return KernelSteps("cpu", kernels.launch)


def some(shape: Any = (5, 3), *kinds: torch.dtype) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [
        [torch.rand(shape, generator=generator).to(kind)]
        for kind in kinds or (HALF, HALF, *[torch.float32] * 2)
    ]


@pytest.mark.parametrize("chunk", [8, 32, 4096])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_random_steps_are_within_two_eps_of_float64(kernels: HostKernels, case: Any, chunk: int) -> None:
    kernels.launched.clear()
    steps = KernelSteps("cpu", with_any_threads(kernels), chunk=chunk)
    draw = random.Random(f"{case.__name__} {chunk}")
    for _ in range(50):
        case(steps, draw)
    assert len(set(kernels.launched)) == len(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_thousands_of_random_steps_are_within_two_eps_of_float64(kernels: HostKernels, case: Any) -> None:
    kernels.launched.clear()
    draw = random.Random(f"more {case.__name__}")
    for _ in range(1250):
        case(KernelSteps("cpu", with_any_threads(kernels), chunk=draw.choice([8, 32, 4096])), draw)
    assert len(kernels.launched) >= 1000


def test_argument_sizes_are_below_what_every_driver_takes(kernels: HostKernels) -> None:
    sizes = {name: [ctypes.sizeof(kind) for kind in kinds] for name, kinds in ARGUMENTS.items()}
    assert {name: kernels.arguments()[name] for name in ARGUMENTS} == sizes
    assert max(map(sum, sizes.values())) <= 2048


def test_large_tensors_take_many_blocks(steps: KernelSteps, kernels: HostKernels) -> None:
    lists = some((3 * 4096 + 5,))
    wanted = [[tensor.clone() for tensor in column] for column in lists]
    steps.adam(lists, ADAM)
    fused_optimizers.adam_step(wanted, ADAM)
    assert kernels.launched == ["accel_adam_bf16_bf16_f32"]
    torch.testing.assert_close(lists[1:], wanted[1:], rtol=1e-2, atol=1e-3)


def test_all_tensors_of_a_type_are_started_together(steps: KernelSteps, kernels: HostKernels) -> None:
    rows = [some((7,)) for _ in range(TENSORS + 1)] + [some((7,), *[torch.float32] * 4)]
    steps.adam([[row[place][0] for row in rows] for place in range(4)], ADAM)
    assert kernels.launched == ["accel_adam_bf16_bf16_f32"] * 2 + ["accel_adam_f32_f32_f32"]


class Other(torch.Tensor):
    """A tensor whose memory is nobody's business."""


#: What kernels do not take: the lists.
NOT_TAKEN: dict[str, Any] = {
    "strided": lambda: [[column[0].t()] for column in some()],
    "expanded gradients": lambda: [[torch.ones(1).expand(6)], *some((6,), *[torch.float32] * 3)],
    "float64": lambda: some((5, 3), *[torch.float64] * 4),
    "moments of two types": lambda: some((5, 3), HALF, HALF, torch.float32, HALF),
    "a subclass": lambda: [[column[0].as_subclass(Other)] for column in some()],
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_other_tensors_go_to_plain_torch(name: str, steps: KernelSteps, kernels: HostKernels) -> None:
    lists, wanted = NOT_TAKEN[name](), NOT_TAKEN[name]()
    steps.adam(lists, ADAM)
    fused_optimizers.adam_step(wanted, ADAM)
    assert not kernels.launched
    for ours, theirs in zip(lists[1:], wanted[1:], strict=True):
        assert torch.equal(ours[0], theirs[0])


def test_tensors_of_other_devices_go_to_plain_torch(kernels: HostKernels) -> None:
    kernels.launched.clear()
    steps, lists = KernelSteps("cuda", kernels.launch), some()
    wanted = [[tensor.clone() for tensor in column] for column in lists]
    steps.adam(lists, ADAM)
    fused_optimizers.adam_step(wanted, ADAM)
    assert not kernels.launched
    assert torch.equal(lists[1][0], wanted[1][0])


def test_shapes_that_differ_are_the_error_of_plain_torch(steps: KernelSteps, kernels: HostKernels) -> None:
    with pytest.raises(RuntimeError):
        steps.adam([some((6,))[0], *some((5,))[1:]], ADAM)
    assert not kernels.launched


def test_nothing_is_started_for_empty_tensors(steps: KernelSteps, kernels: HostKernels) -> None:
    steps.adam([[], [], [], []], ADAM)
    steps.adam(some((0, 3)), ADAM)
    assert not kernels.launched


def test_views_that_are_not_aligned_are_taken(steps: KernelSteps, kernels: HostKernels) -> None:
    lists = [[column[0].view(-1)[1:14]] for column in some()]
    whole = [column[0]._base.clone() for column in lists]
    wanted = [[column[0].clone()] for column in lists]
    steps.adam(lists, ADAM)
    fused_optimizers.adam_step(wanted, ADAM)
    assert len(kernels.launched) == 1
    for ours, theirs, before in zip(lists[1:], wanted[1:], whole[1:], strict=True):
        torch.testing.assert_close(ours[0], theirs[0], rtol=1e-2, atol=1e-6)
        assert ours[0]._base[0, 0] == before[0, 0]
        assert torch.equal(ours[0]._base.view(-1)[14:], before.view(-1)[14:])


def test_sizes_beyond_32_bits_reach_the_kernels_whole() -> None:
    started: list[Any] = []
    steps = KernelSteps("meta", lambda *launch: started.append(launch))
    kinds = HALF, HALF, torch.float32
    lists = [[torch.empty(2**33 + 1, dtype=kind, device="meta")] for kind in kinds]
    steps.multi_tensor_lion(2048, torch.zeros(1), lists, 0.1, 0.9, 0.99, 1, 0.0)
    ((name, blocks, _threads, (table, _values)),) = started
    assert (name, blocks, table.size[0], table.end[0]) == (
        "accel_lion_bf16_bf16_f32",
        2**21 + 1,
        2**33 + 1,
        2**21 + 1,
    )


def test_more_blocks_than_a_launch_has_are_two_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_kernels, "_MOST_BLOCKS", 5)
    row = [torch.empty(24)]
    assert [(blocks, list(table.end[:2])) for table, blocks in tables([row] * 3, chunk=8)] == [
        (3, [3, 0]), (3, [3, 0]), (3, [3, 0])
    ]  # fmt: skip
    assert "elements in a tensor" in KernelSteps("cpu", lambda *launch: None, chunk=4)._lack(
        row, row[0].device, "f32"
    )


def test_device_can_say_why_plain_torch_computes(
    kernels: HostKernels, caplog: pytest.LogCaptureFixture
) -> None:
    kernels.launched.clear()
    steps = KernelSteps("cpu", kernels.launch, lambda tensor: "it rests")
    with caplog.at_level("INFO", "accel_core"):
        for _ in range(3):
            steps.adam(some(), ADAM)
    assert not kernels.launched
    assert [record.message for record in caplog.records] == [
        "optimizer steps: plain torch for some tensors: it rests"
    ]


@pytest.mark.parametrize("one_by_one", [False, True], ids=["lists", "torch 2.5"])
def test_autograd_sees_that_parameters_have_changed(
    steps: KernelSteps, one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    increment = torch.autograd.graph.increment_version

    def of_one_tensor(tensor: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError
        increment(tensor)

    if one_by_one:
        monkeypatch.setattr(torch.autograd.graph, "increment_version", of_one_tensor)
    parameter = torch.nn.Parameter(torch.ones(3))
    loss = (parameter * parameter).sum()
    steps.multi_tensor_lion(
        2048, torch.zeros(1), [[torch.ones(3)], [parameter], [torch.zeros(3)]], 0.1, 0.9, 0.99, 1, 0.0
    )
    assert parameter.tolist() == pytest.approx([0.9] * 3)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()  # type: ignore[no-untyped-call]
