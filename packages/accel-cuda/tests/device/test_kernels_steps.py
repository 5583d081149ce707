# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The optimizers' kernels from image to result, on the emulated driver of accel-sim."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from accel_cuda import CUDA_Accelerator
from accel_cuda.kernels import driver, images
from accel_ops.device_kernels import KernelNotStarted, KernelsUnusable
from accel_ops.step_kernels import ARGUMENTS, TYPES
from accel_testkit.optimizer_steps import HALVES, expect_steps_of_float64, take

from .machine import stand_ins, wheel

pytestmark = pytest.mark.skipif("ACCEL_SIM" not in os.environ, reason="not run: a real driver is here")


def load(name: str) -> tuple[Any, str]:
    builder = CUDA_Accelerator().create_op_builder(name)
    op = builder.load()
    builder.prepare()
    return op, builder.reason


@pytest.mark.parametrize("begin", [0, 1], ids=["aligned", "misaligned"])
@pytest.mark.parametrize("kinds", TYPES, ids=TYPES.values())
def test_adam_and_lion_are_those_of_float64(kinds: Any, begin: int, machine: Any) -> None:
    fused_adam, reason = load("FusedAdamBuilder")
    assert reason.endswith("; kernels (image sm_90) and plain torch for mixed types and strided tensors")
    before, launches = machine.accel_driver_launches(), 0 if len(set(kinds)) == 1 else 3
    expect_steps_of_float64(fused_adam, kinds, 2, "cuda", begin)
    assert machine.accel_driver_launches() - before == launches
    fused_lion, reason = load("FusedLionBuilder")
    assert reason == "image sm_90"
    before = machine.accel_driver_launches()
    expect_steps_of_float64(fused_lion, kinds, 1, "cuda", begin)
    assert machine.accel_driver_launches() - before == 3


def test_adam_s_kernels_are_looked_for_when_types_come_that_only_they_take(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = CUDA_Accelerator().create_op_builder("FusedAdamBuilder")
    before = machine.accel_driver_launches()
    op = builder.load()
    expect_steps_of_float64(op, (torch.float32,) * 3, 2, "cuda")
    assert builder.reason.endswith(
        "if they work when first needed, else plain torch for mixed types and strided tensors"
    )
    with monkeypatch.context() as capture:
        capture.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        expect_steps_of_float64(op, HALVES, 2, "cuda")
    assert machine.accel_driver_launches() == before
    expect_steps_of_float64(op, HALVES, 2, "cuda")
    assert machine.accel_driver_launches() - before == 2 * len(TYPES) + 3
    assert builder.reason.endswith(
        "; kernels (image sm_90) and plain torch for mixed types and strided tensors"
    )


@pytest.mark.parametrize("works", [True, False], ids=["kernels", "an install without them"])
def test_kernels_are_tried_once_a_process(works: bool, machine: Any, tmp_path: Path) -> None:
    if not works:
        (tmp_path / images.TABLE).unlink()
    _, reason = load("FusedLionBuilder")
    assert reason.startswith("image sm_90" if works else "plain torch: no images in this install")
    before = machine.accel_driver_launches()
    wheel(tmp_path, {} if works else stand_ins(90))
    for _ in range(2):
        assert load("FusedLionBuilder")[1] == reason
    assert machine.accel_driver_launches() == before


def test_kernels_run_on_the_current_stream_and_device(machine: Any) -> None:
    op, _ = load("FusedLionBuilder")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        lists = [[torch.ones(8, device="cuda")] for _ in range(3)]
        take(op, lists)
        assert (machine.accel_driver_last_stream() or 0) == stream.cuda_stream
    for index in range(torch.cuda.device_count()):
        expect_steps_of_float64(op, HALVES, 1, f"cuda:{index}")
        assert machine.accel_driver_last_device() == index


def test_parameters_of_two_devices_are_two_launches(machine: Any) -> None:
    op, _ = load("FusedLionBuilder")
    before = machine.accel_driver_launches()
    lists = [[torch.ones(8, device="cuda:0"), torch.ones(8, device="cuda:1")] for _ in range(3)]
    take(op, lists)
    assert machine.accel_driver_launches() - before == 2
    assert torch.equal(lists[1][0].cpu(), lists[1][1].cpu())


@pytest.mark.parametrize("version", [12080, 11080], ids=["one library", "a module a context"])
def test_threads_without_a_context_can_take_steps(version: int, machine: Any) -> None:
    machine.accel_driver_set(torch.cuda.device_count(), version, 90)
    op, _ = load("FusedLionBuilder")
    failures: list[BaseException] = []

    def steps() -> None:
        try:
            for index in range(torch.cuda.device_count()):
                expect_steps_of_float64(op, HALVES, 1, f"cuda:{index}")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
    assert not failures


def test_image_without_a_step_s_kernel_gives_way_to_plain_torch(machine: Any, tmp_path: Path) -> None:
    wheel(tmp_path, stand_ins(90, kernels=[name for name in ARGUMENTS if "f32_f16" not in name]))
    op, reason = load("FusedLionBuilder")
    assert reason.startswith("plain torch: image: cuLibraryGetKernel returns CUDA_ERROR_NOT_FOUND")
    expect_steps_of_float64(op, HALVES, 1, "cuda")
    op, reason = load("FusedAdamBuilder")
    assert "; plain torch (no kernels: image: cuLibraryGetKernel returns CUDA_ERROR_NOT_FOUND" in reason
    expect_steps_of_float64(op, HALVES, 2, "cuda")


@pytest.mark.parametrize(
    ("name", "trial"),
    [("QuantizerBuilder", "a trial of 8 bits"), ("FusedLionBuilder", "a trial step of Lion in f32_f32_f32")],
)
def test_device_that_computes_something_else_is_noticed_at_load(
    name: str, trial: str, machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.Driver, "launch", lambda *arguments: None)
    assert f"{trial} on cuda:0 is not what plain torch computes" in load(name)[1]


def test_refused_launch_is_an_error_in_four_parts(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise KernelsUnusable("cuLaunchKernel returns CUDA_ERROR_LAUNCH_FAILED (719)")

    op, _ = load("FusedLionBuilder")
    monkeypatch.setattr(driver.Driver, "launch", refuse)
    with pytest.raises(KernelNotStarted, match="CUDA_ERROR_LAUNCH_FAILED"):
        take(op, [[torch.ones(8, device="cuda")] for _ in range(3)])


def test_adam_is_all_our_kernels_where_torch_s_operators_do_not_work(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accel_ops import kernel_builders

    monkeypatch.setattr(kernel_builders, "_ARGUMENTS", ("self", "something"))
    kernel_builders.self_check.cache_clear()
    op, reason = load("FusedAdamBuilder")
    kernel_builders.self_check.cache_clear()
    assert reason.startswith("kernels (image sm_90) and plain torch: torch._fused_adamw_ has other arguments")
    before = machine.accel_driver_launches()
    expect_steps_of_float64(op, (torch.float32,) * 3, 2, "cuda")
    assert machine.accel_driver_launches() - before == 3
