# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains with ZenFlow: steps in the optimizer process and, for comparison, in the process that trains."""

import importlib
import json
import os
from typing import Any
from unittest import mock

import offload
import torch

#: Steps of every kind: warm-up, selection, with and without an update. There is one selection: at a later one DeepSpeed
#: copies its parameters over those that the optimizer process may be about to write, and losses depend on who is first.
_ZENFLOW = {
    "topk_ratio": 0.2,
    "select_strategy": "step",
    "select_interval": 100,
    "update_interval": 2,
    "full_warm_up_rounds": 2,
}
_STEPS = 9


class Immediate:
    """The op, with ZenFlow's steps taken by `adam_update` as soon as they are submitted."""

    def __init__(self, op: Any, zero: Any) -> None:
        self._op, self._zero, self._moments = op, zero, {}
        op.create_adam(4711, 1e-3, 0.9, 0.999, 1e-8, 0.0, True, False)

    def zenflow_adam_submit(self, _: int, state: int, step: int, *options: Any) -> None:
        params = [group["params"][0] for group in self._zero.optimizer.param_groups]
        for index, (param, *chosen) in enumerate(zip(params, *options, strict=True)):
            lr, beta1, beta2, eps, decay, correction = chosen
            moments = self._moments.setdefault(
                (index, state), (torch.zeros_like(param.data), torch.zeros_like(param.data))
            )
            grad = param.overlap_grad[state]
            self._op.adam_update(
                4711, step, lr, beta1, beta2, eps, decay, bool(correction), param.data, grad, *moments
            )
            param.stale_param = param.data.clone()

    def zenflow_adam_wait(self, *_: Any) -> bool:
        return True


def _in_this_process(zero: Any) -> None:
    from deepspeed.ops.op_builder import CPUAdamBuilder

    zero.zf_op = Immediate(CPUAdamBuilder().load(), zero)
    zero.zf_ctrl = torch.zeros(1)
    zero.process_optimizer_established = True


def main(store: str, cases: list[dict[str, Any]]) -> None:
    """Print for each case the losses with stock methods, with the replaced ones, and with steps in this process."""
    offload.init(store)
    print(json.dumps([compare(dict(case)) for case in cases]), flush=True)
    os._exit(0)


def compare(case: dict[str, Any]) -> list[list[float]]:
    """The three lists of losses of a case."""
    from deepspeed.runtime.zenflow import zenflow_stage_1_and_2

    from accel_ops.offload import speedups

    modules = [importlib.import_module(name) for name in speedups.MODULES]
    for module in modules:
        speedups.restore(module)
    stock = train(case)
    for module in modules:
        speedups.apply(module)
    replaced = train(case)
    with mock.patch.object(zenflow_stage_1_and_2, "start_optimizer_process", _in_this_process):
        return [stock, replaced, train(case)]


def configuration(
    stage: int,
    dtype: str,
    overlap: bool,
    clip: float = 0.5,
    optimizer: str = "AdamW",
    eps: float = 1e-7,
    loss_scale: float = 1024.0,
    **zenflow: Any,
) -> Any:
    """DeepSpeed's configuration; ZenFlow sets the accumulation itself."""
    zero = {"zenflow": _ZENFLOW | {"overlap_step": overlap} | zenflow, "reduce_bucket_size": 10**6}
    made = offload.config(stage, dtype, 1, clip, optimizer, zero=zero)
    if dtype == "fp16":
        made["fp16"] = {"enabled": True, "loss_scale": loss_scale}
    made["optimizer"]["params"]["eps"] = eps
    del made["gradient_accumulation_steps"]
    return made


def train(case: dict[str, Any], **backward: Any) -> list[float]:
    """The losses. backward: options of the engine's method."""
    import deepspeed

    torch.manual_seed(0)
    model = offload.Model()
    engine, _, _, _ = deepspeed.initialize(
        model=model, config=configuration(**case), model_parameters=model.parameters()
    )
    generator = torch.Generator().manual_seed(5 + int(os.environ["RANK"]))
    losses = []
    for _ in range(_STEPS):
        words = torch.randint(0, 50, (2, 9), generator=generator)
        loss = engine(words, True)
        engine.backward(loss, **backward)
        engine.step()
        losses.append(loss.item())
    engine.destroy()
    return losses


def intervals(store: str, **case: Any) -> None:
    """Print the losses with the update interval "auto", and those with the caller's word that it scales the loss."""
    offload.init(store)
    auto = {"select_strategy": "auto", "select_interval": "auto", "update_interval": "auto"}
    print(json.dumps([train(case | auto), train(case | auto, scale_wrt_gas=False)]), flush=True)
    os._exit(0)


def refusal(**case: Any) -> None:
    """Print the class and the text of the error of `initialize`."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True  # type: ignore[method-assign]
    model = offload.Model()
    try:
        deepspeed.initialize(model=model, config=configuration(**case), model_parameters=model.parameters())
    except Exception as error:
        print(json.dumps([type(error).__name__, str(error)]), flush=True)
    else:
        print(json.dumps(["", ""]), flush=True)
    os._exit(0)  # which flushes nothing
