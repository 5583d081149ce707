# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The tests of a FusedAdam that is torch's own operators, for the packages of the vendors that have it."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from accel_core.interface import DeepSpeedAccelerator
from accel_testkit import adam_steps

_DTYPES = [torch.float32, torch.float16, torch.bfloat16]


class TorchFusedAdamTests:
    """Fused Adam beside plain torch and float64: `class TestFusedAdam(TorchFusedAdamTests)`, with the accelerator."""

    accelerator: ClassVar[type[DeepSpeedAccelerator]]

    @pytest.fixture
    def device(self) -> str:
        return self.accelerator().device_name()

    @pytest.fixture
    def step(self) -> Any:
        builder = self.accelerator().create_op_builder("FusedAdamBuilder")
        assert builder is not None
        loaded = builder.load(verbose=False)
        served = "torch._fused_adamw_ and torch._fused_adam_ for float32, float16, bfloat16"
        assert builder.reason.startswith(served)
        return loaded.multi_tensor_adam

    @pytest.mark.parametrize("dtype", _DTYPES, ids=str)
    @pytest.mark.parametrize("halved", [False, True], ids=["float32 moments", "moments of that type"])
    def test_steps_are_adam_s(self, step: Any, device: str, dtype: torch.dtype, halved: bool) -> None:
        moments = dtype if halved else torch.float32
        assert adam_steps.largest_error(step, device, dtype, moments) < 1

    @pytest.mark.parametrize("float64", [False, True], ids=["foreach", "float64"])
    @pytest.mark.parametrize("dtype", _DTYPES, ids=str)
    def test_random_steps_are_within_two_eps(
        self, step: Any, device: str, dtype: torch.dtype, float64: bool
    ) -> None:
        assert adam_steps.apart(step, device, dtype, cases=20, float64=float64) < 2

    @pytest.mark.slow
    @pytest.mark.parametrize("float64", [False, True], ids=["foreach", "float64"])
    @pytest.mark.parametrize("dtype", _DTYPES, ids=str)
    def test_many_random_steps_are_within_two_eps(
        self, step: Any, device: str, dtype: torch.dtype, float64: bool
    ) -> None:
        assert adam_steps.apart(step, device, dtype, cases=2000, float64=float64, seed=1) < 2

    def test_the_operator_of_the_mode_is_called_once_for_all_tensors(
        self, step: Any, device: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        called = []
        for name in ("_fused_adamw_", "_fused_adam_"):
            op = getattr(torch, name)

            def counted(params: Any, *arguments: Any, op: Any = op, name: str = name, **named: Any) -> Any:
                called.append((name, len(params)))
                return op(params, *arguments, **named)

            monkeypatch.setattr(torch, name, counted)
        for mode in (1, 0):
            lists = [[torch.ones(3, device=device), torch.ones(2, 2, device=device)] for _ in range(4)]
            step(2048, torch.zeros(1), lists, 0.1, 0.9, 0.99, 1e-8, 1, mode, 1, 0.1)
        assert called == [("_fused_adamw_", 2), ("_fused_adam_", 2)]
