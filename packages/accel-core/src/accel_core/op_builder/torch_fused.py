# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builder of FusedAdam over torch's own fused operators, for devices on which torch has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from typing_extensions import override

from accel_core.op_builder import fused
from accel_core.op_builder.steps import torch_adam


class TorchFusedAdamBuilder(fused.FusedAdamBuilder):
    """`multi_tensor_adam` with torch._fused_adam_ and torch._fused_adamw_, else in plain torch.

    DEVICE_TYPE: torch's name of the device type (`xpu`). `load` decides, by a step of one element on the device.
    """

    DEVICE_TYPE: ClassVar[str]

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._trial: torch_adam.Trial | None = None

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return True; the reason is certain once `load` has tried the operators."""
        if self._trial is None:
            return (
                True,
                "torch._fused_adamw_ and torch._fused_adam_ if a step works when first loaded, else plain torch",
            )
        dtypes, lack = self._trial
        if not dtypes:
            return True, f"plain torch: {lack}"
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        why = "mixed types and strided tensors" + (f", and others ({lack})" if lack else "")
        return True, f"torch._fused_adamw_ and torch._fused_adam_ for {names}; plain torch for {why}"

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return an object with `multi_tensor_adam`. Takes a step of one element on the device, once a process."""
        self._trial = torch_adam.trial(self.DEVICE_TYPE)
        if not self._trial.dtypes:
            return super().load(verbose=verbose)
        function = torch_adam.multi_tensor_adam(self._trial.dtypes, self.DEVICE_TYPE)
        return SimpleNamespace(**{self.FUNCTION: function})
