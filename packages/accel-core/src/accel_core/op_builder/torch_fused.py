# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builder of FusedAdam over torch's own fused operators, for devices on which torch has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from typing_extensions import override

from accel_core.op_builder import fused
from accel_core.op_builder.routes import Route
from accel_core.op_builder.steps import adam, torch_adam
from accel_core.op_builder.steps.adam import Step, as_multi_tensor_adam
from accel_core.op_builder.steps.first_use import FirstUse


class TorchFusedAdamBuilder(fused.FusedAdamBuilder):
    """`multi_tensor_adam` with torch._fused_adam_ and torch._fused_adamw_, else by `rest`.

    DEVICE_TYPE: torch's name of the device type (`xpu`). `load` decides, by a step of one element on the device.
    """

    DEVICE_TYPE: ClassVar[str]
    ROUTES: ClassVar[tuple[Route, ...]] = (Route.TORCH_FUSED, Route.PLAIN)

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._trial: torch_adam.Trial | None = None
        self._rest = FirstUse(self.rest, self.expected(), self.busy)

    def rest(self) -> tuple[Step, str]:
        """Return the step for tensors that torch's operators do not take, and what it is."""
        return adam.step, "plain torch"

    def expected(self) -> str:
        """Return what `rest` will be, if finding it takes time: then it is called when first needed; else empty."""
        return ""

    def busy(self) -> bool:
        """Return whether kernels cannot be tried at the moment, because a graph is being captured."""
        return False

    @override
    @classmethod
    def routes(cls) -> tuple[Route, ...]:
        return cls.ROUTES

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return True; the reason is certain once `load` has tried the operators, and of `rest` once it was needed."""
        if self._trial is None:
            return (
                True,
                "torch._fused_adamw_ and torch._fused_adam_ if a step works when first loaded, else "
                + ("plain torch" if self.expected() else self.rest()[1]),
            )
        dtypes, lack, _ = self._trial
        if not dtypes:
            return True, f"{self._rest.what}: {lack}"
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        why = "mixed types and strided tensors" + (f", and others ({lack})" if lack else "")
        return True, f"torch._fused_adamw_ and torch._fused_adam_ for {names}; {self._rest.what} for {why}"

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return an object with `multi_tensor_adam`. Takes a step of one element on the device, once a process."""
        self._trial = torch_adam.trial(self.DEVICE_TYPE)
        if not self.expected() or not self._trial.dtypes:
            self.prepare()
        if self._trial.dtypes:
            trial = self._trial
            function = torch_adam.multi_tensor_adam(
                trial.dtypes, self.DEVICE_TYPE, self._rest, trial.uncorrected
            )
        else:
            step = self._rest.decide()
            function = adam.multi_tensor_adam if step is adam.step else as_multi_tensor_adam(step)
        return SimpleNamespace(**{self.FUNCTION: function})

    @override
    def prepare(self) -> None:
        """Find what takes the tensors that torch's operators refuse."""
        self._rest.decide()
