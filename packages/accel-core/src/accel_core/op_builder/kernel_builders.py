# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of the ops that have device kernels: kernels where they work, plain torch for all else.

A vendor says in a `KernelSource` where its kernels come from, and derives::

    class QuantizerBuilder(kernel_builders.QuantizerBuilder):
        SOURCE = SOURCE
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch
from typing_extensions import override

from accel_core.op_builder import fused, quantizer, torch_fused
from accel_core.op_builder.device_kernels import KernelsUnusable
from accel_core.op_builder.kernel_arguments import Launch
from accel_core.op_builder.quantizer.kernels import KernelQuantizerFunctions
from accel_core.op_builder.quantizer.trial import trial as quantizer_trial
from accel_core.op_builder.routes import Route
from accel_core.op_builder.steps import trial as step_trials
from accel_core.op_builder.steps.adam import Step
from accel_core.op_builder.steps.kernels import KernelSteps

if TYPE_CHECKING:
    from accel_core.op_builder.base import OpBuilder as _Base
else:
    _Base = object

#: trial(launch, device): starts kernels, and raises `KernelsUnusable` if the device computes something wrong.
Trial = Callable[[Launch, torch.device], None]


class Kernels(Protocol):
    """Loaded kernels."""

    def launch(self, name: str, blocks: int, threads: int, arguments: tuple[Any, ...], /) -> None:
        """Start a kernel on the current stream of the first argument's device."""

    def lack(self, tensor: torch.Tensor, /) -> str:
        """Return why a tensor is left to plain torch at the moment; empty if it is not."""


class KernelSource(NamedTuple):
    """Where a vendor's kernels come from.

    device_type: torch's name of the devices (`xpu`).
    what:        the kernels in words, before they are loaded (`kernels (SPIR-V)`).
    routes:      those of the kernels, in order.
    load:        returns the kernels after a trial, and their route. Raises `KernelsUnusable`.
    capturing:   whether a graph is being captured, so that nothing can be tried.
    """

    device_type: str
    what: str
    routes: tuple[Route, ...]
    load: Callable[[Trial], tuple[Kernels, str]]
    capturing: Callable[[], bool]


class KernelRoutes(_Base):
    """Mix-in of a builder in plain torch: kernels if they work when first loaded."""

    SOURCE: ClassVar[KernelSource]

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._route = ""

    def trial(self) -> Trial:
        """Return what tries the kernels before they are used."""
        raise NotImplementedError

    def over(self, kernels: Kernels) -> Any:
        """Return an object with upstream's functions, over kernels."""
        raise NotImplementedError

    @override
    @classmethod
    def routes(cls) -> tuple[Route, ...]:
        return (*cls.SOURCE.routes, Route.PLAIN)

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return True; the reason is certain once `load` has tried the kernels."""
        return True, self._route or f"{self.SOURCE.what} if they work when first loaded, else plain torch"

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions. Computes a few numbers on the device, to see that it works."""
        try:
            kernels, self._route = self.SOURCE.load(self.trial())
        except KernelsUnusable as error:
            self._route = f"plain torch: {error}"
            return super().load(verbose=verbose)  # type: ignore[safe-super]
        return self.over(kernels)


class QuantizerBuilder(KernelRoutes, quantizer.QuantizerBuilder):
    """Quantization in groups for ZeRO++ (qwZ, hpZ, qgZ, LoCo) and for weights."""

    @override
    def trial(self) -> Trial:
        return quantizer_trial

    @override
    def over(self, kernels: Kernels) -> Any:
        return KernelQuantizerFunctions(self.SOURCE.device_type, kernels.launch, kernels.lack)


class FusedLionBuilder(KernelRoutes, fused.FusedLionBuilder):
    """`multi_tensor_lion` for deepspeed.ops.lion.FusedLion."""

    @override
    def trial(self) -> Trial:
        return step_trials.lion

    @override
    def over(self, kernels: Kernels) -> Any:
        steps = KernelSteps(self.SOURCE.device_type, kernels.launch, kernels.lack)
        return SimpleNamespace(**{self.FUNCTION: steps.multi_tensor_lion})


class FusedAdamBuilder(torch_fused.TorchFusedAdamBuilder):
    """Adam and AdamW with torch's operators; types that these refuse with kernels, looked for when they come."""

    SOURCE: ClassVar[KernelSource]

    @override
    @classmethod
    def routes(cls) -> tuple[Route, ...]:
        return (Route.TORCH_FUSED, *cls.SOURCE.routes, Route.PLAIN)

    @override
    def expected(self) -> str:
        return f"{self.SOURCE.what} if they work when first needed, else plain torch"

    @override
    def busy(self) -> bool:
        return self.SOURCE.capturing()

    @override
    def rest(self) -> tuple[Step, str]:
        """Return kernels, which leave strided tensors to plain torch; plain torch alone where they do not work."""
        try:
            kernels, route = self.SOURCE.load(step_trials.adam)
        except KernelsUnusable as error:
            step, what = super().rest()
            return step, f"{what} (no kernels: {error})"
        steps = KernelSteps(self.SOURCE.device_type, kernels.launch, kernels.lack)
        return steps.adam, f"kernels ({route}) and plain torch"
