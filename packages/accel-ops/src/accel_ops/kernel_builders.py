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

from accel_core.op_builder import Implementation
from accel_ops import fused_optimizers, quantizer, quantizer_kernels, step_kernels, torch_fused
from accel_ops.device_kernels import KernelsUnusable, Launch, packed
from accel_ops.fused_optimizers import Step

if TYPE_CHECKING:
    from accel_core.op_builder import OpBuilder as _Base
else:
    _Base = object

#: self_check(launch, device): starts kernels, and raises `KernelsUnusable` if the device computes something wrong.
SelfCheck = Callable[[Launch, torch.device], None]


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
    implementations:      those of the kernels, in order.
    load:        returns the kernels after a self check, and the name of their implementation. Raises `KernelsUnusable`.
    capturing:   whether a graph is being captured, so that nothing can be tried.
    """

    device_type: str
    what: str
    implementations: tuple[Implementation, ...]
    load: Callable[[SelfCheck], tuple[Kernels, str]]
    capturing: Callable[[], bool]


class KernelRoutes(_Base):
    """Mix-in of a builder in plain torch: kernels if they work when first loaded."""

    SOURCE: ClassVar[KernelSource]

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._route = ""

    def self_check(self) -> SelfCheck:
        """Return what tries the kernels before they are used."""
        raise NotImplementedError

    def over(self, kernels: Kernels) -> Any:
        """Return an object with upstream's functions, over kernels."""
        raise NotImplementedError

    @override
    @classmethod
    def implementations(cls) -> tuple[Implementation, ...]:
        return (*cls.SOURCE.implementations, Implementation.PLAIN)

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return True; the reason is certain once `load` has tried the kernels."""
        return True, self._route or f"{self.SOURCE.what} if they work when first loaded, else plain torch"

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return an object with upstream's functions. Computes a few numbers on the device, to see that it works."""
        try:
            kernels, self._route = self.SOURCE.load(self.self_check())
        except KernelsUnusable as error:
            self._route = f"plain torch: {error}"
            return super().load(verbose=verbose)  # type: ignore[safe-super]
        return self.over(kernels)


class QuantizerBuilder(KernelRoutes, quantizer.QuantizerBuilder):
    """Quantization in groups for ZeRO++ (qwZ, hpZ, qgZ, LoCo) and for weights."""

    @override
    def self_check(self) -> SelfCheck:
        return quantizer_kernels.self_check

    @override
    def over(self, kernels: Kernels) -> Any:
        return quantizer_kernels.KernelQuantizerFunctions(
            self.SOURCE.device_type, kernels.launch, kernels.lack
        )


class FusedLionBuilder(KernelRoutes, fused_optimizers.FusedLionBuilder):
    """`multi_tensor_lion` for deepspeed.ops.lion.FusedLion."""

    @override
    def self_check(self) -> SelfCheck:
        return step_kernels.check_lion

    @override
    def over(self, kernels: Kernels) -> Any:
        steps = step_kernels.KernelSteps(self.SOURCE.device_type, kernels.launch, kernels.lack)
        return SimpleNamespace(**{self.FUNCTION: steps.multi_tensor_lion})


class FusedAdamBuilder(torch_fused.TorchFusedAdamBuilder):
    """Adam and AdamW with torch's operators; types that these refuse with kernels, looked for when they come."""

    SOURCE: ClassVar[KernelSource]

    @override
    @classmethod
    def implementations(cls) -> tuple[Implementation, ...]:
        return (Implementation.TORCH_FUSED, *cls.SOURCE.implementations, Implementation.PLAIN)

    @override
    def expected(self) -> str:
        return f"{self.SOURCE.what} if they work when first needed, else plain torch"

    @override
    def busy(self) -> bool:
        return self.SOURCE.capturing()

    @override
    def fallback_step(self) -> tuple[Step, str]:
        """Return kernels, which leave strided tensors to plain torch; plain torch alone where they do not work."""
        try:
            kernels, route = self.SOURCE.load(step_kernels.check_adam)
        except KernelsUnusable as error:
            step, what = super().fallback_step()
            return step, f"{what} (no kernels: {error})"
        steps = step_kernels.KernelSteps(self.SOURCE.device_type, kernels.launch, kernels.lack)
        return steps.adam, f"kernels ({route}) and plain torch"


#: {kernel: C types of its arguments}.
ARGUMENTS: dict[str, tuple[Any, ...]] = {**quantizer_kernels.ARGUMENTS, **step_kernels.ARGUMENTS}


def packed_arguments(kernel: str, arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Return the array of pointers that drivers take, and the C values that it points to; keep both for the call."""
    return packed(ARGUMENTS[kernel], arguments)
