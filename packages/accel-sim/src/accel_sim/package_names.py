# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Names of a vendor's packages outside its device module: hpu's optimizer, the transfer from cuda to a device."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.utils import _device

from accel_core.launchers import launched
from accel_sim import ops
from accel_sim.errors import raise_not_simulated
from accel_sim.simulation import Simulation


def exports(simulation: Simulation, package: str) -> dict[str, Any]:
    """Return the simulated names of a vendor's package, by the last part of the name."""
    if package.startswith("habana_frameworks"):
        return _habana()
    return ops.packets(simulation) if package == "torch_npu" else {}


def _habana() -> dict[str, Any]:
    class synDeviceType:
        """Generations of the device."""

        synDeviceGaudi, synDeviceGaudi2, synDeviceGaudi3 = 1, 4, 5

    return {
        "synDeviceType": synDeviceType,
        "_get_device_type": lambda: synDeviceType.synDeviceGaudi3,
        "_is_fp16_supported": lambda: True,
        "mark_step": lambda *_a, **_k: None,
        "_mark_step_if_lazy": lambda *_a, **_k: None,
        "initialize_distributed_hpu": _ranks,
        "FusedAdamW": FusedAdamW,
    }


def _ranks() -> tuple[int, ...]:
    ranks = launched()
    return ranks.size or 1, ranks.rank or 0, ranks.local_rank or 0


_LAZY = os.environ.get("PT_HPU_LAZY_MODE", "1") != "0"


def _loss_of(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class FusedAdamW(torch.optim.Optimizer):
    """AdamW with one operator call a parameter group. Moments in another type than the weights are not simulated."""

    def __init__(
        self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-6,
        weight_decay: float = 0.0, bias_correction: bool = True, moments_dtype: Any = None,
    ) -> None:  # fmt: skip
        if moments_dtype is not None:
            raise_not_simulated("hpex.optimizers.FusedAdamW with moments_dtype")
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "bias_correction": bias_correction,
        })  # fmt: skip

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step on every parameter that has a gradient."""
        loss = _loss_of(closure)
        for group in self.param_groups:
            if weights := [p for p in group["params"] if p.grad is not None]:
                self._step(group, weights)
        return loss

    def _step(self, group: dict[str, Any], weights: list[torch.Tensor]) -> None:
        first, second = _states(self.state, weights)
        group["step"] = group.get("step", 0) + 1
        beta1, beta2 = group["betas"]
        size = group["lr"]
        if group["bias_correction"]:
            size *= math.sqrt(1 - beta2 ** group["step"]) / (1 - beta1 ** group["step"])
        kept = 1 - group["weight_decay"] * group["lr"]
        like: Any = {"dtype": weights[0].dtype, "device": weights[0].device}
        decay = (kept,) if _LAZY else (torch.tensor([kept], **like), kept != 1.0)
        torch.ops.hpu.optimizer_adamw(
            [p.grad for p in weights], [p.data for p in weights], first, second, torch.tensor([-size], **like), beta1,
            beta2, group["eps"], *decay,
        )  # fmt: skip


def _states(state: Any, weights: list[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the first and second moments, created as zeros."""
    for p in weights:
        if not state[p]:
            state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
    return [state[p]["exp_avg"] for p in weights], [state[p]["exp_avg_sq"] for p in weights]


_DEVICES = ("device", "device_type", "map_location", "device_id")
_TENSOR = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros", "to",
           "pin_memory")  # fmt: skip
_MORE = ("load", "set_default_device", "rand_like", "randn_like", "randint_like", "ones_like", "zeros_like",
         "full_like", "empty_like", "get_device_module")  # fmt: skip


def transfer(simulation: Simulation) -> None:
    """Let programs that say cuda run on the device, once a process."""
    if hasattr(torch.cuda.is_available, "__wrapped__"):
        return
    module: Any = simulation.module
    kind, collectives = simulation.type, simulation.vendor.collectives

    def device(value: Any) -> Any:
        if isinstance(value, str) and "cuda" in value:
            return value.replace("cuda", kind)
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device(kind, value.index) if value.index is not None else torch.device(kind)
        return value

    def backend(value: Any) -> Any:
        return device(value.replace("nccl", collectives)) if isinstance(value, str) else value

    for name in dir(torch.cuda):
        if not name.startswith("__") and (found := getattr(module, name, None)) is not None:
            setattr(torch.cuda, name, found)
            if callable(found) and not isinstance(found, type):
                _wrap(torch.cuda, name, device)
    constructors = {function.__name__ for function in _device._device_constructors()}
    owners = {
        torch: (*constructors, *_MORE), torch.Tensor: _TENSOR, torch.nn.Module: ("to", "to_empty"),
        torch.autocast: ("__init__",), module.Stream: ("__new__",), module.device: ("__init__",),
    }  # fmt: skip
    for owner, names in owners.items():
        for name in names:
            _wrap(owner, name, device)
    tensor, network = cast(Any, torch.Tensor), cast(Any, torch.nn.Module)
    tensor.cuda, network.cuda = getattr(tensor, kind), getattr(network, kind)
    tensor.is_cuda = getattr(tensor, f"is_{kind}")
    _wrap(torch.distributed, "init_process_group", backend)
    _wrap(torch.distributed, "new_group", backend)


def _wrap(owner: Any, name: str, changed: Callable[[Any], Any]) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return

    @functools.wraps(original)
    def call(*arguments: Any, **options: Any) -> Any:
        given = {
            key: changed(value) if key in (*_DEVICES, "backend") else value for key, value in options.items()
        }
        return original(*map(changed, arguments), **given)

    setattr(owner, name, call)
