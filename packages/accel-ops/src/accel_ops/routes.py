# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The routes that several vendors share: torch's own fused operators, and kernels of a device.

A vendor says in a `KernelSource` where its kernels come from::

    QuantizerBuilder = QUANTIZER.builder(__name__, kernel_quantizer(SOURCE))
    FusedAdamBuilder = ADAM.builder(__name__, torch_fused_adam("xpu", then=kernel_adam(SOURCE)))

torch's operators, `torch._fused_adam_` and `torch._fused_adamw_`, are private, and each device implements them or not,
for some float types. `self_check` takes steps of two elements to find out.
"""

from __future__ import annotations

import ctypes
import logging
import math
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch

from accel_core.errors import in_short
from accel_core.op_builder import Implementation
from accel_ops import reference
from accel_ops.device import self_checks
from accel_ops.device.driver_kernels import KernelNotStarted, KernelsUnusable, Launch
from accel_ops.op import LoadedOp, Route, Unusable
from accel_ops.optimizers import step_kernels
from accel_ops.optimizers.fused import (
    AdamStep,
    Lists,
    Step,
    Tensors,
    adam_step,
    as_multi_tensor_adam,
    multi_tensor_adam,
    runtime_adam,
)
from accel_ops.quantizers import quantizer_kernels

#: The arguments without a default that this module passes.
_ARGUMENTS = (
    "self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_steps",
    "lr", "beta1", "beta2", "weight_decay", "eps", "amsgrad", "maximize",
)  # fmt: skip
#: The first must work, or none is used.
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


class Checked(NamedTuple):
    """Result of steps of two elements.

    dtypes: types that the operators accept and compute right.
    lack:   why there are none, or fewer than three, or none without bias correction.
    uncorrected: whether they are right without bias correction, too.
    """

    dtypes: tuple[torch.dtype, ...]
    lack: str
    uncorrected: bool = True


#: torch's operators by `adam_w_mode`.
OPERATORS = {1: "_fused_adamw_", 0: "_fused_adam_"}
_MODES = tuple(OPERATORS)


@cache
def self_check(device_type: str, modes: Sequence[int] = _MODES) -> Checked:
    """Take steps with each operator in each type on the current device, once a process. Raise `DeviceFailed`."""
    dtypes: list[torch.dtype] = []
    lacks: list[str] = []
    uncorrected = True
    for dtype in _DTYPES:
        lack = _lack(torch.device(device_type), dtype, modes, 1)
        if not lack:
            dtypes.append(dtype)
            lack = _lack(torch.device(device_type), dtype, modes, 0)
            uncorrected = uncorrected and not lack
        lacks += filter(None, [lack])
    lack = "; ".join(dict.fromkeys(lacks))
    return Checked(tuple(dtypes) if _DTYPES[0] in dtypes else (), lack, uncorrected)


def torch_multi_tensor_adam(
    dtypes: Sequence[torch.dtype],
    device_type: str,
    fallback_step: Step = adam_step,
    uncorrected: bool = True,
    modes: Sequence[int] = _MODES,
) -> Callable[..., None]:
    """Return a `multi_tensor_adam` with torch's operators for tensors of these types; `fallback_step` takes others.

    uncorrected: use them without bias correction, too.

    They want gradient, parameter and moments of one type and device. The layouts may not differ, which is
    only certain of contiguous tensors.
    """

    def step(lists: Lists, adam: AdamStep) -> None:
        other = fallback_step if adam.adam_w_mode in modes else adam_step
        usable = adam.adam_w_mode in modes and (adam.bias_correction or uncorrected)
        groups: dict[tuple[torch.device, torch.dtype] | None, list[Tensors]] = defaultdict(
            lambda: [[], [], [], []]
        )
        for tensors in zip(*lists, strict=True):
            first = tensors[0]
            fits = usable and first.dtype in dtypes and first.device.type == device_type and _alike(tensors)
            group = groups[(first.device, first.dtype) if fits else None]
            for column, tensor in zip(group, tensors, strict=True):
                column.append(tensor)
        for kind, group in groups.items():
            (other if kind is None else fused_step)(group, adam)

    return as_multi_tensor_adam(step)


def fused_step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on tensors of one type and device with torch's operator."""
    grads, params, exp_avgs, exp_avg_sqs = ([tensor.detach() for tensor in tensors] for tensors in lists)
    # The operator corrects by 1 - beta ** step, and reads the step on the device. An infinite one gives no correction.
    number = float(adam.step) if adam.bias_correction else math.inf
    step = torch.full((), number, dtype=torch.float32, device=params[0].device)
    getattr(torch, OPERATORS[adam.adam_w_mode])(
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


def _lack(device: torch.device, dtype: torch.dtype, modes: Sequence[int], corrected: int) -> str:
    """Return why the operators cannot be used for this type, with or without bias correction; empty if they can."""
    for adam_w_mode in modes:
        name = f"torch.{OPERATORS[adam_w_mode]}"
        lack = _schema_lack(OPERATORS[adam_w_mode]) or self_checks.unsupported_reason(
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
        reference.step_lists(reference.adam, wanted, **adam.hyperparameters)
        eps = 2 * torch.finfo(dtype).eps
        for place, ((ours,), (theirs,)) in enumerate(zip(lists, wanted, strict=True)):
            # Second moments are small: what is right to eps may be all wrong.
            allowed = max(eps, least) if place < 2 else theirs.abs() * max(eps, 1e-3)
            if not ((ours.cpu().double() - theirs).abs() <= allowed).all():
                kind = "with" if corrected else "without"
                return f"{name} computes wrongly in {dtype} {kind} bias correction on {device}"
    return ""


_log = logging.getLogger("accel_core")


def tried_adam(operator: str, step: Step, device_type: str) -> Route:
    """Return `runtime_adam` for an operator whose schema is not public: steps of two elements must be right first."""
    route, name = runtime_adam(operator, step), f"torch.ops.{operator}"

    def load() -> LoadedOp:
        modes = [(mode, corrected) for mode in (1, 0) for corrected in (1, 0)]
        checks = (partial(wrong_step, name, step, device_type, torch.float32, *mode) for mode in modes)
        self_checks.require(name, device_type, *checks)
        return route.load()

    return replace(route, load=load)


@dataclass(frozen=True)
class StepRoute(Route):
    """Steps of Adam for tensors that torch's operators refuse: what `load` has loaded is a `Step`.

    takes: whether it may take gradient, parameter and moments; plain torch takes others.
    """

    takes: Callable[[Sequence[torch.Tensor]], bool] = lambda tensors: True


class LazyStep:
    """The step of a route, loaded when it is first needed; plain torch takes all that the route would leave to it."""

    def __init__(self, route: StepRoute | None) -> None:
        self._route = None if route is None or route.lack() else route
        self._step: Step | None = None
        self.what = self._route.expected() if self._route else "plain torch"

    def decide(self) -> Step:
        """Return the step, loaded now if it was not before."""
        if self._step is None and self._route:
            try:
                loaded = self._route.load()
                self._step, self.what = loaded.functions, loaded.what()
            except Unusable as error:
                self._step, self.what = adam_step, f"plain torch ({error})"
        return self._step or adam_step

    def __call__(self, lists: Lists, adam: AdamStep) -> None:
        """Do one step in place on [gradients, parameters, first moments, second moments]."""
        route = self._route if self._step is None else None
        taken = route and next(filter(route.takes, zip(*lists, strict=True)), None)
        if taken and not is_capturing(taken[0].device.type):
            self.decide()
            _log.info("FusedAdam: %s for tensors that torch's operators refuse", self.what)
        (self._step or adam_step)(lists, adam)


def torch_fused_adam(device_type: str, then: StepRoute | None = None, modes: Sequence[int] = _MODES) -> Route:
    """Return the route with torch._fused_adam_ and torch._fused_adamw_; other tensors by `then`, or by plain torch.

    device_type: torch's name of the device type (`xpu`). `load` decides, by steps of two elements on the device, once a
    process; where torch's operators do not work, `then` takes all tensors.
    modes: the values of `adam_w_mode` whose operator is used; plain torch takes steps of the other.
    """
    names = " and ".join(f"torch.{OPERATORS[mode]}" for mode in modes)
    names += "".join(f" (adam_w_mode={mode}: plain torch)" for mode in _MODES if mode not in modes)

    def expected() -> str:
        return f"{names} if a step works when first loaded, else {LazyStep(then).what}"

    def load() -> LoadedOp:
        checked, step = self_check(device_type, modes), LazyStep(then)
        if checked.dtypes:
            function = torch_multi_tensor_adam(checked.dtypes, device_type, step, checked.uncorrected, modes)
        else:
            decided = step.decide()
            function = multi_tensor_adam if decided is adam_step else as_multi_tensor_adam(decided)
        return LoadedOp(
            SimpleNamespace(multi_tensor_adam=function), lambda: _what(names, checked, step.what), step.decide
        )

    implementations = (Implementation.TORCH_FUSED, *(then.implementations if then else ()))
    return Route(implementations, expected, load)


def _what(operators: str, checked: Checked, other: str) -> str:
    dtypes, lack, _ = checked
    if not dtypes:
        return f"{other}: {lack}"
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    why = "mixed types and strided tensors" + (f", and others ({lack})" if lack else "")
    return f"{operators} for {names}; {other} for {why}"


def is_capturing(device_type: str) -> bool:
    """Return whether a graph is being captured on the current stream, so that nothing can be tried."""
    return bool(getattr(torch.get_device_module(device_type), "is_current_stream_capturing", bool)())


#: self_check(launch, device): starts kernels, and raises `KernelsUnusable` if the device computes something wrong.
SelfCheck = Callable[[Launch, torch.device], None]


class Kernels(ABC):
    """Loaded kernels. `advice`: how to find the kernel that failed, for the error of a launch."""

    advice = ""

    def launch(self, name: str, blocks: int, threads: int, arguments: tuple[Any, ...]) -> None:
        """Start a kernel on torch's current stream of the first argument's device. Raises `KernelNotStarted`."""
        device = arguments[0].device
        pointers, _kept = packed_arguments(name, arguments)
        try:
            self.start(device.index, name, blocks, threads, pointers)
        except KernelsUnusable as error:
            raise KernelNotStarted(
                f"{name} cannot be started on {device}: {error}",
                do=f"an error of an earlier kernel shows here, too{self.advice}. Without these kernels: no "
                'quantization (zero_quantized_weights, zero_quantized_gradients), and `"torch_adam": true`',
            ) from error

    @abstractmethod
    def start(self, device: int, name: str, blocks: int, threads: int, pointers: Any) -> None:
        """Start a kernel. pointers: array of those to its arguments. Raises `KernelsUnusable`."""

    def lack(self, tensor: torch.Tensor) -> str:
        """Return why a tensor is left to plain torch at the moment; empty if it is not."""
        # Graph replay is untested; fall back while capturing.
        return "a graph is being captured" if is_capturing(tensor.device.type) else ""


class KernelSource(NamedTuple):
    """Source of a vendor's kernels.

    device_type: torch's name of the devices (`xpu`).
    what:        the kernels in words, before they are loaded (`kernels (SPIR-V)`).
    implementations:      those of the kernels, in order.
    load:        returns the kernels for the current device, tried, and their route. Raises `KernelsUnusable`.
    """

    device_type: str
    what: str
    implementations: tuple[Implementation, ...]
    load: Callable[[SelfCheck, int], tuple[Kernels, str]]


#: Threads that need the same kernels wait for the first one.
_ONE = threading.Lock()


@cache
def tried(source: KernelSource, check: SelfCheck, device: int) -> tuple[Kernels | None, str]:
    """Return the kernels and their route, or the reason not to use them: a driver takes seconds to compile them."""
    try:
        return source.load(check, device)
    except KernelsUnusable as error:
        return None, str(error)


def _loaded(source: KernelSource, check: SelfCheck) -> tuple[Kernels, str]:
    runtime: Any = torch.get_device_module(source.device_type)
    if not runtime.is_available():
        raise KernelsUnusable("no device")
    try:
        device = runtime.current_device()
    except RuntimeError as error:
        raise KernelsUnusable(in_short(error)) from error
    with _ONE:
        kernels, what = tried(source, check, device)
    if kernels is None:
        raise KernelsUnusable(what)
    return kernels, what


def _kernels(source: KernelSource, check: SelfCheck, over: Callable[[Kernels], Any]) -> Route:
    def load() -> LoadedOp:
        kernels, what = _loaded(source, check)
        return LoadedOp(over(kernels), lambda: what)

    expected = f"{source.what} if they work when first loaded, else plain torch"
    return Route(source.implementations, lambda: expected, load)


def kernel_quantizer(source: KernelSource) -> Route:
    """Return the route of the quantizer with kernels."""
    check, functions = quantizer_kernels.self_check, quantizer_kernels.KernelQuantizerFunctions
    return _kernels(source, check, lambda k: functions(source.device_type, k.launch, k.lack))


def kernel_lion(source: KernelSource) -> Route:
    """Return the route of `multi_tensor_lion` with kernels."""

    def over(kernels: Kernels) -> Any:
        steps = step_kernels.KernelSteps(source.device_type, kernels.launch, kernels.lack)
        return SimpleNamespace(multi_tensor_lion=steps.multi_tensor_lion)

    return _kernels(source, step_kernels.check_lion, over)


def kernel_adam(source: KernelSource) -> StepRoute:
    """Return the steps of Adam with kernels, which leave strided tensors to plain torch."""

    def load() -> LoadedOp:
        try:
            kernels, what = _loaded(source, step_kernels.check_adam)
        except KernelsUnusable as error:
            raise Unusable(f"no kernels: {error}") from error
        steps = step_kernels.KernelSteps(source.device_type, kernels.launch, kernels.lack)
        return LoadedOp(steps.adam, lambda: f"kernels ({what}) and plain torch")

    def takes(tensors: Sequence[torch.Tensor]) -> bool:
        return step_kernels.has_types(tensors) and all(tensor.is_contiguous() for tensor in tensors)

    expected = f"{source.what} if they work when first needed, else plain torch"
    return StepRoute(source.implementations, lambda: expected, load, takes=takes)


#: {kernel: C types of its arguments}.
ARGUMENTS: dict[str, tuple[Any, ...]] = {**quantizer_kernels.ARGUMENTS, **step_kernels.ARGUMENTS}


def packed_arguments(kernel: str, arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Return the array of pointers that drivers take, and the C values that it points to; keep both for the call."""
    values = [_c_value(kind, given) for kind, given in zip(ARGUMENTS[kernel], arguments, strict=True)]
    return (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values)), values


def _c_value(kind: Any, given: Any) -> Any:
    if isinstance(given, ctypes.Structure):
        return given
    return kind(given.data_ptr() if isinstance(given, torch.Tensor) else given)
