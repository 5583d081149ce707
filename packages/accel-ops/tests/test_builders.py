# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders take the device's own op, torch's operators or kernels where they are right, and say what they take."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch

from accel_core import lost_devices
from accel_core.op_builder import self_test
from accel_ops import routes
from accel_ops.device import self_checks
from accel_ops.device.driver_kernels import KernelNotStarted, KernelsUnusable
from accel_ops.inference import INFERENCE, TransformerFunctions
from accel_ops.memory import PinMemoryBuilder, UtilsBuilder
from accel_ops.op import LoadedOp, Unusable, runtime_ops
from accel_ops.optimizers import fused, step_kernels
from accel_ops.optimizers.fused import AdamStep, Lists


def doubled(vals: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> torch.Tensor:
    return vals * 2


def test_vendor_op_replaces_one_function():
    calls = {"rms_norm": ("aten.add", doubled), "rotate": ("aten.no_such_op", doubled)}
    builder = INFERENCE.builder(__name__, runtime_ops(INFERENCE, calls))()
    functions, x = builder.load(), torch.ones(1, 2, 4)
    assert torch.equal(functions.rms_norm(x, x, 0.0), x * 2)
    # Also inside others.
    assert torch.equal(functions.rms_qkv_gemm_fp32(x, torch.eye(4), x, x, 0.0, False, False)[0], x * 2)
    assert functions.rotate is TransformerFunctions.rotate
    assert builder.reason == "torch.ops.aten.add; the rest in plain torch"


def test_missing_vendor_op_leaves_plain_torch():
    call = {"multi_tensor_adam": ("aten.no_such_op", doubled)}
    builder = fused.ADAM.builder(__name__, runtime_ops(fused.ADAM, call))()
    assert builder.load().multi_tensor_adam is fused.multi_tensor_adam
    assert builder.reason == "plain torch: this runtime has no torch.ops.aten.no_such_op"


@pytest.mark.parametrize(
    "builder", [fused.FusedAdamBuilder, fused.FusedLambBuilder, fused.FusedLionBuilder, UtilsBuilder, PinMemoryBuilder]
)  # fmt: skip
def test_builder_without_routes_passes_the_self_test(builder):
    assert builder().is_compatible()
    assert builder().reason.startswith(("plain torch", "torch._utils", "mmap and mlock"))
    found = self_test.run(builder.NAME, builder().load(), torch.device("cpu"))
    assert found == "loaded and run on a tiny input"


def test_kernels_and_reasons_are_kept_for_each_device_and_other_errors_are_not():
    calls: list[int] = []
    raised: dict[int, type[Exception]] = {1: KernelsUnusable, 2: MemoryError}

    def load(check, device):
        calls.append(device)
        if device:
            raise raised[device](f"device {device} is broken")
        return "kernels", "route"

    source = routes.KernelSource("cpu", "kernels", (), load)
    for _ in range(2):
        assert routes.tried(source, print, 0) == ("kernels", "route")
        assert routes.tried(source, print, 1) == (None, "device 1 is broken")
        with pytest.raises(MemoryError, match="device 2 is broken"):
            routes.tried(source, print, 2)
    assert calls == [0, 1, 2, 2]


HOST = "cpu"


def raised(error: Exception) -> Any:
    def check() -> str:
        raise error

    return check


@pytest.mark.parametrize(
    ("checks", "reason"),
    [
        ([lambda: "", lambda: None], ""),
        ([lambda: "", lambda: "rounds down", raised(ValueError())], "rounds down"),
        ([raised(KernelsUnusable("no image"))], "no image"),
        ([raised(KernelNotStarted("no device", do=""))], "no device"),
        ([raised(RuntimeError("no\nkeys"))], "op raises RuntimeError: no"),
    ],
)
def test_self_check_returns_the_first_reason(checks, reason):
    assert self_checks.unsupported_reason("op", HOST, *checks) == reason
    with pytest.raises(Unusable, match=reason) if reason else nullcontext():
        self_checks.require("op", HOST, *checks)


def test_lost_device_error_names_the_op(monkeypatch):
    add = torch.Tensor.add_
    monkeypatch.setattr(torch.Tensor, "add_", lambda tensor, *rest: tensor)
    assert self_checks.unsupported_reason("good", HOST, lambda: "") == ""
    with monkeypatch.context() as earlier:
        earlier.setattr(torch.cpu, "synchronize", raised(OSError("of an earlier operator")))
        with pytest.raises(OSError, match="of an earlier operator"):
            self_checks.unsupported_reason("op", HOST, lambda: "")
    for op in ("first", "second"):
        with pytest.raises(
            self_checks.DeviceFailed, match=r"first failed .* and cpu no longer computes"
        ) as caught:
            self_checks.unsupported_reason(op, HOST, raised(RuntimeError("why")))
        assert "raises RuntimeError: why; then " in caught.value.message
        assert isinstance(caught.value.__cause__, RuntimeError)
    monkeypatch.setattr(torch.Tensor, "add_", raised(RuntimeError("the queue is dead")))
    with pytest.raises(self_checks.DeviceFailed, match="an addition raises"):
        self_checks.unsupported_reason("first", HOST, lambda: "rounds down")
    assert lost_devices.is_lost(torch.device(HOST))
    assert not lost_devices.is_lost(torch.device("xpu"))  # this machine has none
    monkeypatch.setattr(torch.Tensor, "add_", add)
    assert not lost_devices.is_lost(torch.device(HOST))


Builder = fused.ADAM.builder(__name__, routes.torch_fused_adam(HOST))


@pytest.fixture(autouse=True)
def _checks_itself_in_each_test() -> Iterator[None]:
    self_check = routes.self_check  # a test may replace it
    self_check.cache_clear()
    yield
    self_check.cache_clear()


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


def step(lists: Any, mode: int = 1, function: Any = None, corrected: int = 1) -> None:
    function = function or routes.torch_multi_tensor_adam((torch.float32, torch.bfloat16), HOST)
    function(2048, torch.zeros(1), lists, 0.1, 0.9, 0.99, 1e-8, 3, mode, corrected, 0.1)


def tensors(*kinds: torch.dtype) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(3)
    return [[torch.rand(4, 3, generator=generator).to(kind)] for kind in kinds]


def test_only_the_tensors_that_do_not_fit_are_plain_torch(calls):
    fits, refused = tensors(*[torch.float32] * 4), [[group[0].t()] for group in tensors(*[torch.float32] * 4)]
    half, wide = torch.bfloat16, torch.float32
    for kinds in (
        (half, wide, wide, wide),
        (wide, half, wide, wide),
        (half, half, wide, wide),
        (torch.float64,) * 4,
    ):
        refused = [[*a, *b] for a, b in zip(refused, tensors(*kinds), strict=True)]
    lists = [[*a, *b] for a, b in zip(fits, refused, strict=True)]
    wanted = [[tensor.clone() for tensor in group] for group in lists]
    step(lists)
    step(wanted, function=fused.multi_tensor_adam)
    assert calls == [1]
    for ours, theirs in zip(lists[1:], wanted[1:], strict=True):
        torch.testing.assert_close(ours[0], theirs[0], rtol=3e-7, atol=3e-7)
        assert all(map(torch.equal, ours[1:], theirs[1:]))


def test_operator_of_the_mode_is_called_once(calls, monkeypatch):
    with_decay_in_gradients = counted(monkeypatch, "_fused_adam_")
    parameter = torch.nn.Parameter(torch.ones(3))
    for mode in (1, 0):
        lists = [[torch.ones(3), torch.ones(2, 2)] for _ in range(4)]
        lists[1][0], before = parameter, parameter.tolist()
        step(lists, mode)
        assert parameter.tolist() != before
    step([[], [], [], []])
    assert calls == with_decay_in_gradients == [2]


def spoiled(change: Callable[..., Any]) -> Callable[..., Any]:
    """torch's operator, called as `change` does."""
    return partial(change, torch._fused_adamw_)


def fails(op: Any, *arguments: Any, **named: Any) -> None:
    raise NotImplementedError("Could not run 'aten::_fused_adamw_'\nwith a long list of keys")


def rounded(op: Any, *arguments: Any, **named: Any) -> None:
    """As an operator that gets its numbers in the parameter's type."""
    kind = arguments[0][0].dtype
    names = ("beta1", "beta2", "eps")
    op(*arguments, **named | {name: torch.tensor(named[name]).to(kind).item() for name in names})


def fails_in_bfloat16(op: Any, params: Any, *arguments: Any, **named: Any) -> None:
    if params[0].dtype == torch.bfloat16:
        raise RuntimeError("no bfloat16 here")
    op(params, *arguments, **named)


def finite(op: Any, *arguments: Any, **named: Any) -> None:
    op(*arguments[:-1], [step.clamp(max=9) for step in arguments[-1]], **named)


ALL = "torch._fused_adamw_ and torch._fused_adam_ for float32, float16, bfloat16"


@pytest.mark.parametrize(
    ("change", "reason", "reported"),
    [
        (None, ALL, "plain torch for mixed types"),
        (fails, "plain torch: torch._fused_adamw_ ", "torch._fused_adamw_ raises NotImplementedError: Could not run"),
        (lambda *given, **named: None, "plain torch: torch._fused_adamw_ ", "computes wrongly in torch.float32"),
        (rounded, ALL.partition(", ")[0], "computes wrongly in torch.bfloat16"),
        (fails_in_bfloat16, ALL.rpartition(", ")[0], "no bfloat16 here"),
        (finite, ALL, "without bias correction"),
    ],
)  # fmt: skip
def test_operator_is_used_where_its_check_passes(change, reason, reported, monkeypatch):
    if change:
        monkeypatch.setattr(torch, "_fused_adamw_", spoiled(change))
    builder = Builder()
    assert "when first loaded" in builder.reason
    function = builder.load().multi_tensor_adam
    assert builder.is_compatible()
    assert builder.reason.startswith(f"{reason};" if reason.startswith("torch") else reason)
    assert reported in builder.reason
    assert "keys" not in builder.reason
    assert (function is fused.multi_tensor_adam) == reason.startswith("plain torch")
    calls = counted(monkeypatch, "_fused_adamw_")
    for corrected in (1, 0):
        step(tensors(*[torch.float32] * 4), 1, function, corrected)
    assert calls == [1] * (0 if reason.startswith("plain") else 1 if change is finite else 2)


def test_operator_with_other_arguments_is_not_used(monkeypatch):
    monkeypatch.setattr(routes, "_ARGUMENTS", ("self", "something"))
    builder = Builder()
    assert builder.load().multi_tensor_adam is fused.multi_tensor_adam
    assert "has other arguments in torch" in builder.reason


HALVES = (torch.bfloat16, torch.bfloat16, torch.float32, torch.float32)
ALIKE = (torch.float32,) * 4


class Recorded:
    """A device whose kernels are plain torch: found and works say what happens."""

    def __init__(self) -> None:
        self.found, self.works = 0, True
        self.taken: list[AdamStep] = []
        route = routes.StepRoute((), lambda: "kernels if they work", self._load, takes=self._takes)
        self._builder = fused.ADAM.builder(__name__, routes.torch_fused_adam(HOST, then=route))()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def _takes(self, tensors: Any) -> bool:
        return step_kernels.has_types(tensors) and all(tensor.is_contiguous() for tensor in tensors)

    def _load(self) -> LoadedOp:
        self.found += 1
        if not self.works:
            raise Unusable("no kernels: why")
        return LoadedOp(self._kernels, lambda: "kernels")

    def _kernels(self, lists: Lists, constants: AdamStep) -> None:
        self.taken.append(constants)
        fused.adam_step(lists, constants)


@pytest.fixture
def builder() -> Recorded:
    return Recorded()


def take(op: Any, *kinds: torch.dtype, strided: bool = False) -> None:
    def lists() -> list[list[torch.Tensor]]:
        made = [torch.arange(2, 14).view(4, 3).div(7).to(kind) for kind in kinds]
        return [[tensor.t() if strided else tensor] for tensor in made]

    found, wanted = lists(), lists()
    step(found, function=op.multi_tensor_adam)
    step(wanted, function=fused.multi_tensor_adam)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("works", [True, False])
def test_kernels_are_looked_for_once_when_types_come_that_only_they_take(builder, works):
    builder.works = works
    op = builder.load()
    for kinds, strided in ((ALIKE, False), (ALIKE, True), (HALVES, True), ((torch.float64,) * 4, False)):
        take(op, *kinds, strided=strided)
    assert (builder.found, builder.taken) == (0, [])
    assert "; kernels if they work for mixed types" in builder.reason
    for _ in range(2):
        take(op, *HALVES)
    assert (builder.found, len(builder.taken)) == (1, 2 * works)
    what = "kernels" if works else "plain torch (no kernels: why)"
    assert f"; {what} for mixed types" in builder.reason


def test_nothing_is_tried_while_a_graph_is_captured(builder, monkeypatch):
    op = builder.load()
    with monkeypatch.context() as capture:
        capture.setattr(torch.cpu, "is_current_stream_capturing", lambda: True, raising=False)
        take(op, *HALVES)
    assert (builder.found, builder.taken) == (0, [])
    builder.prepare()
    assert builder.found == 1
    take(op, *HALVES)
    assert (builder.found, len(builder.taken)) == (1, 1)


def test_kernels_are_looked_for_at_load_where_torch_s_operators_do_not_work(builder, monkeypatch):
    gone = routes.Checked((), "they are gone")
    monkeypatch.setattr(routes, "self_check", lambda device_type, modes: gone)
    op = builder.load()
    assert builder.reason == "kernels: they are gone"
    take(op, *ALIKE)
    assert (builder.found, len(builder.taken)) == (1, 1)
