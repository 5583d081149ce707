# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders of the ops that have device kernels, or torch's own fused operators; plain torch for all else.

A vendor says in a `KernelSource` where its kernels come from, and derives::

    class QuantizerBuilder(kernel_builders.QuantizerBuilder):
        SOURCE = SOURCE

torch's operators, `torch._fused_adam_` and `torch._fused_adamw_`, are private, and each device implements them or not,
for some float types. `self_check` takes steps of two elements to find out.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch
from typing_extensions import override

from accel_core.op_builder import Implementation
from accel_ops import fused_optimizers, quantizer, quantizer_kernels, self_checks, step_kernels
from accel_ops.device_kernels import KernelsUnusable, Launch, packed
from accel_ops.fused_optimizers import (
    AdamStep,
    Lists,
    Step,
    Tensors,
    adam_step,
    as_multi_tensor_adam,
    multi_tensor_adam,
)

#: The arguments without a default that this module passes.
_ARGUMENTS = (
    "self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps",
    "lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize",
)  # fmt: skip
#: The first must work, or none is used.
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Checked(NamedTuple):
    """What steps of two elements have shown.

    dtypes: types that the operators accept and compute right.
    lack:   why there are none, or fewer than three, or none without bias correction.
    uncorrected: whether they are right without bias correction, too.
    """

    dtypes: tuple[torch.dtype, ...]
    lack: str
    uncorrected: bool = True


def op_name(adam_w_mode: int) -> str:
    """Return the name of the operator in `torch`."""
    return "_fused_adamw_" if adam_w_mode else "_fused_adam_"


@cache
def self_check(device_type: str) -> Checked:
    """Take steps with each operator in each type on the current device, once a process. Raise `DeviceFailed`."""
    dtypes: list[torch.dtype] = []
    lacks: list[str] = []
    uncorrected = True
    for dtype in _DTYPES:
        lack = _lack(torch.device(device_type), dtype, 1)
        if not lack:
            dtypes.append(dtype)
            lack = _lack(torch.device(device_type), dtype, 0)
            uncorrected = uncorrected and not lack
        lacks += filter(None, [lack])
    lack = "; ".join(dict.fromkeys(lacks))
    return Checked(tuple(dtypes) if _DTYPES[0] in dtypes else (), lack, uncorrected)


def torch_multi_tensor_adam(
    dtypes: Sequence[torch.dtype], device_type: str, fallback_step: Step = adam_step, uncorrected: bool = True
) -> Callable[..., None]:
    """Return a `multi_tensor_adam` with torch's operators for tensors of these types; `fallback_step` takes others.

    uncorrected: use them without bias correction, too.

    They want gradient, parameter and moments of one type and device. The layouts may not differ, which is
    only certain of contiguous tensors.
    """

    def step(lists: Lists, adam: AdamStep) -> None:
        if not (adam.bias_correction or uncorrected):
            fallback_step(lists, adam)
            return
        groups: dict[tuple[torch.device, torch.dtype] | None, list[Tensors]] = defaultdict(
            lambda: [[], [], [], []]
        )
        for tensors in zip(*lists, strict=True):
            first = tensors[0]
            fits = first.dtype in dtypes and first.device.type == device_type and _alike(tensors)
            group = groups[(first.device, first.dtype) if fits else None]
            for column, tensor in zip(group, tensors, strict=True):
                column.append(tensor)
        for kind, group in groups.items():
            (fallback_step if kind is None else fused_step)(group, adam)

    return as_multi_tensor_adam(step)


def fused_step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on tensors of one type and device with torch's operator."""
    grads, params, exp_avgs, exp_avg_sqs = ([tensor.detach() for tensor in tensors] for tensors in lists)
    # The operator corrects by 1 - beta ** step, and reads the step on the device. An infinite one gives no correction.
    number = float(adam.step) if adam.bias_correction else math.inf
    step = torch.full((), number, dtype=torch.float32, device=params[0].device)
    getattr(torch, op_name(adam.adam_w_mode))(
        params, grads, exp_avgs, exp_avg_sqs, [], [step] * len(params),
        lr=float(adam.lr), beta1=adam.beta1, beta2=adam.beta2, weight_decay=adam.weight_decay, eps=adam.epsilon,
        amsgrad=False, maximize=False,
    )  # fmt: skip


def _alike(tensors: Sequence[torch.Tensor]) -> bool:
    first = tensors[0]
    return all(
        tensor.dtype == first.dtype and tensor.device == first.device and tensor.is_contiguous()
        for tensor in tensors
    )


def _lack(device: torch.device, dtype: torch.dtype, corrected: int) -> str:
    """Return why the operators cannot be used for this type, with or without bias correction; empty if they can."""
    for adam_w_mode in (1, 0):
        name = f"torch.{op_name(adam_w_mode)}"
        lack = _schema_lack(op_name(adam_w_mode)) or self_checks.unsupported_reason(
            name, device, partial(wrong_step, name, fused_step, device, dtype, adam_w_mode, corrected)
        )
        if lack:
            return lack
    return ""


def _schema_lack(name: str) -> str:
    op: Any = getattr(torch.ops.aten, name, None)
    if op is None or not hasattr(torch, name):
        return f"torch.{name} is missing in torch {torch.__version__}"
    wanted = tuple(
        argument.name for argument in op.default._schema.arguments if not argument.has_default_value()
    )
    return "" if wanted == _ARGUMENTS else f"torch.{name} has other arguments in torch {torch.__version__}"


def wrong_step(
    name: str, step: Step, device: torch.device | str, dtype: torch.dtype, adam_w_mode: int, corrected: int
) -> str:
    """Return what is wrong with steps of two elements, one of which has no gradient; empty if nothing is."""
    # In float32, 1 - 0.999 is off by 1.3e-5 of itself.
    for constants, least in zip(step_kernels.ADAM_CONSTANTS, (2e-5, 0.0), strict=True):
        adam = constants._replace(adam_w_mode=adam_w_mode, bias_correction=corrected)
        moment = 0.5 * (adam.step > 1)
        # The conversion is for `deepspeed.zero.Init`, which replaces torch.full and ignores its dtype.
        start = [torch.full((2,), value).to(dtype) for value in (0.5, 1.0, moment, moment)]
        start[0][1] = 0.0
        lists = [[tensor.to(device, copy=True)] for tensor in start]
        wanted = [[tensor.cpu().double()] for tensor in start]
        step(lists, adam)
        adam_step(wanted, adam)
        eps = 2 * torch.finfo(dtype).eps
        for place, ((ours,), (theirs,)) in enumerate(zip(lists, wanted, strict=True)):
            # Second moments are small: what is right to eps may be all wrong.
            allowed = max(eps, least) if place < 2 else theirs.abs() * max(eps, 1e-3)
            if not ((ours.cpu().double() - theirs).abs() <= allowed).all():
                kind = "with" if corrected else "without"
                return f"{name} computes wrongly in {dtype} {kind} bias correction on {device}"
    return ""


_log = logging.getLogger("accel_core")


class LazyStep:
    """A step that is decided when it is first needed; plain torch takes all that the kernels would leave to it anyway.

    find:     returns the step, and what it is.
    expected: what it is before that.
    wanted:   returns True for gradient, parameter and moments that it may take.
    busy:     returns True while nothing can be tried: plain torch takes such a step, and a later one decides.
    """

    def __init__(
        self,
        find: Callable[[], tuple[Step, str]],
        expected: str,
        wanted: Callable[[Sequence[torch.Tensor]], bool],
        busy: Callable[[], bool],
    ) -> None:
        self._find, self._wanted, self._busy = find, wanted, busy
        self._step: Step | None = None
        self.what = expected

    def decide(self) -> Step:
        """Return the step, found now if it was not before."""
        if self._step is None:
            self._step, self.what = self._find()
        return self._step

    def __call__(self, lists: Lists, adam: AdamStep) -> None:
        """Do one step in place on [gradients, parameters, first moments, second moments]."""
        if self._step is None and any(map(self._wanted, zip(*lists, strict=True))) and not self._busy():
            self.decide()
            _log.info("FusedAdam: %s for tensors that torch's operators refuse", self.what)
        (self._step or adam_step)(lists, adam)


class TorchFusedAdamBuilder(fused_optimizers.FusedAdamBuilder):
    """`multi_tensor_adam` with torch._fused_adam_ and torch._fused_adamw_, else by `fallback_step`.

    DEVICE_TYPE: torch's name of the device type (`xpu`). `load` decides, by steps of two elements on the device.
    """

    DEVICE_TYPE: ClassVar[str]
    IMPLEMENTATIONS: ClassVar[tuple[Implementation, ...]] = (Implementation.TORCH_FUSED, Implementation.PLAIN)

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self._checked: Checked | None = None
        self._fallback = LazyStep(self.fallback_step, self.expected(), self.wanted, self.busy)

    def fallback_step(self) -> tuple[Step, str]:
        """Return the step for tensors that torch's operators do not take, and what it is."""
        return adam_step, "plain torch"

    def expected(self) -> str:
        """Return what `fallback_step` will be if finding it takes time, and it is called when needed; else empty."""
        return ""

    def wanted(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return True for gradient, parameter and moments that `fallback_step` may take other than by plain torch."""
        return step_kernels.has_types(tensors) and all(tensor.is_contiguous() for tensor in tensors)

    def busy(self) -> bool:
        """Return whether kernels cannot be tried at the moment, because a graph is being captured."""
        return False

    @override
    @classmethod
    def implementations(cls) -> tuple[Implementation, ...]:
        return cls.IMPLEMENTATIONS

    @override
    def compatibility(self) -> tuple[bool, str]:
        """Return True; the reason is certain once `load` has tried the operators and `fallback_step` was needed."""
        if self._checked is None:
            return (
                True,
                "torch._fused_adamw_ and torch._fused_adam_ if a step works when first loaded, else "
                + (self.expected() or self.fallback_step()[1]),
            )
        dtypes, lack, _ = self._checked
        if not dtypes:
            return True, f"{self._fallback.what}: {lack}"
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        why = "mixed types and strided tensors" + (f", and others ({lack})" if lack else "")
        return (
            True,
            f"torch._fused_adamw_ and torch._fused_adam_ for {names}; {self._fallback.what} for {why}",
        )

    @override
    def load(self, verbose: bool = True) -> Any:
        """Return an object with `multi_tensor_adam`. Takes steps of two elements on the device, once a process."""
        self._checked = self_check(self.DEVICE_TYPE)
        if not self.expected() or not self._checked.dtypes:
            self.prepare()
        if self._checked.dtypes:
            checked = self._checked
            function = torch_multi_tensor_adam(
                checked.dtypes, self.DEVICE_TYPE, self._fallback, checked.uncorrected
            )
        else:
            step = self._fallback.decide()
            function = multi_tensor_adam if step is adam_step else as_multi_tensor_adam(step)
        return SimpleNamespace(**{self.FUNCTION: function})

    @override
    def prepare(self) -> None:
        """Find what takes the tensors that torch's operators refuse."""
        self._fallback.decide()


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
    load:        returns the kernels after a self check, and their route. Raises `KernelsUnusable`.
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


class FusedAdamBuilder(TorchFusedAdamBuilder):
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
