# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""FusedAdam over torch's own operators: when they are used, and that plain torch takes over where they cannot be."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from accel_ops import fused_optimizers, kernel_builders
from accel_ops.kernel_builders import TorchFusedAdamBuilder
from accel_testkit import adam_steps

HOST = "cpu"


class Builder(TorchFusedAdamBuilder):
    DEVICE_TYPE = HOST


@pytest.fixture(autouse=True)
def _tried_anew() -> Iterator[None]:
    kernel_builders.self_check.cache_clear()
    yield
    kernel_builders.self_check.cache_clear()


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """The number of tensors of each call of an operator of torch's."""
    seen: list[int] = []
    op = getattr(torch, name)

    def call(params: Any, *arguments: Any, **named: Any) -> Any:
        seen.append(len(params))
        return op(params, *arguments, **named)

    monkeypatch.setattr(torch, name, call)
    return seen


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return counted(monkeypatch, "_fused_adamw_")


def step(lists: Any, mode: int = 1, function: Any = None) -> None:
    function = function or kernel_builders.torch_multi_tensor_adam((torch.float32, torch.bfloat16), HOST)
    function(2048, torch.zeros(1), lists, 0.1, 0.9, 0.99, 1e-8, 3, mode, 1, 0.1)


def tensors(*kinds: torch.dtype) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [[torch.rand(4, 3, generator=generator).to(kind)] for kind in kinds]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("float64", [False, True], ids=["foreach", "float64"])
def test_random_steps_are_within_two_eps(dtype: torch.dtype, float64: bool) -> None:
    function = Builder().load().multi_tensor_adam
    assert adam_steps.apart(function, HOST, dtype, cases=100, float64=float64) < 2


def test_the_reason_is_what_load_found() -> None:
    builder = Builder()
    assert "when first loaded" in builder.reason
    builder.load()
    assert builder.reason.startswith(
        "torch._fused_adamw_ and torch._fused_adam_ for float32, float16, bfloat16"
    )
    assert builder.is_compatible()


@pytest.mark.parametrize(
    "kinds",
    [
        (torch.float32, torch.bfloat16, torch.float32, torch.float32),
        (torch.bfloat16, torch.bfloat16, torch.float32, torch.float32),
        (torch.float64,) * 4,
    ],
    ids=["half parameters", "float32 moments", "a type that was not tried"],
)
def test_types_that_the_operator_refuses_are_plain_torch(kinds: Any, calls: list[int]) -> None:
    found, wanted = tensors(*kinds), tensors(*kinds)
    step(found)
    step(wanted, function=fused_optimizers.multi_tensor_adam)
    assert calls == []
    assert all(torch.equal(a[0], b[0]) for a, b in zip(found, wanted, strict=True))


def test_only_the_tensors_that_do_not_fit_are_plain_torch(calls: list[int]) -> None:
    fits, halves = tensors(*[torch.float32] * 4), tensors(torch.bfloat16, *[torch.float32] * 3)
    strided = [[group[0].t()] for group in tensors(*[torch.float32] * 4)]
    lists = [[*a, *b, *c] for a, b, c in zip(fits, halves, strided, strict=True)]
    wanted = [[tensor.clone() for tensor in group] for group in lists]
    step(lists)
    step(wanted, function=fused_optimizers.multi_tensor_adam)
    assert calls == [1]
    for ours, theirs in zip(lists[1:], wanted[1:], strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=3e-7, atol=3e-7)


def test_parameters_that_need_gradients_are_updated_in_place(calls: list[int]) -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    step([[torch.ones(3)], [parameter], [torch.zeros(3)], [torch.zeros(3)]])
    assert calls == [1]
    assert parameter.tolist() != [1.0, 1.0, 1.0]


def test_the_operator_of_the_mode_is_called_once_for_all_tensors(
    calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_decay_in_gradients = counted(monkeypatch, "_fused_adam_")
    for mode in (1, 0):
        step([[torch.ones(3), torch.ones(2, 2)] for _ in range(4)], mode)
    assert calls == with_decay_in_gradients == [2]


def test_no_tensors_are_no_step(calls: list[int]) -> None:
    step([[], [], [], []])
    assert calls == []


def raising(*arguments: Any, **named: Any) -> None:
    raise NotImplementedError("Could not run 'aten::_fused_adamw_'\nwith a long list of keys")


def doing_nothing(*arguments: Any, **named: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("operator", "reported"),
    [
        (raising, "raises NotImplementedError: Could not run"),
        (doing_nothing, "computes wrongly in torch.float32"),
    ],
)
def test_an_operator_that_fails_its_trial_is_not_used(
    operator: Any, reported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "_fused_adamw_", operator)
    builder = Builder()
    assert builder.load().multi_tensor_adam is fused_optimizers.multi_tensor_adam
    assert builder.reason.startswith("plain torch: torch._fused_adamw_ " + reported)
    assert "keys" not in builder.reason


def test_an_operator_without_an_infinite_step_is_used_with_bias_correction_only(
    monkeypatch: pytest.MonkeyPatch, calls: list[int]
) -> None:
    op = torch._fused_adamw_  # type: ignore[attr-defined]

    def finite(*arguments: Any, **named: Any) -> Any:
        *others, steps = arguments
        return op(*others, [step.clamp(max=9) for step in steps], **named)

    monkeypatch.setattr(torch, "_fused_adamw_", finite)
    builder = Builder()
    function = builder.load().multi_tensor_adam
    assert "without bias correction" in builder.reason
    calls.clear()
    for corrected, count in ((1, [1]), (0, [])):
        function(
            2048, torch.zeros(1), tensors(*[torch.float32] * 4), 0.1, 0.9, 0.99, 1e-8, 3, 1, corrected, 0.1
        )
        assert calls == count
        calls.clear()


def test_one_type_that_fails_leaves_the_operator_to_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    op = torch._fused_adamw_  # type: ignore[attr-defined]

    def no_bfloat16(params: Any, *arguments: Any, **named: Any) -> Any:
        if params[0].dtype == torch.bfloat16:
            raise RuntimeError("no bfloat16 here")
        return op(params, *arguments, **named)

    monkeypatch.setattr(torch, "_fused_adamw_", no_bfloat16)
    builder = Builder()
    builder.load()
    assert "for float32, float16; plain torch for" in builder.reason
    assert "no bfloat16 here" in builder.reason


def test_another_schema_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_builders, "_ARGUMENTS", ("self", "something"))
    builder = Builder()
    assert builder.load().multi_tensor_adam is fused_optimizers.multi_tensor_adam
    assert "has other arguments in torch" in builder.reason
