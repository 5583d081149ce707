# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains with an offloaded optimizer, with stock methods of DeepSpeed and with the replaced ones; also with ZenFlow."""

import importlib
import json
import logging
import math
import os
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch

#: The loss of a model, or of DeepSpeed's engine, on a batch.
Loss = Callable[[Any, Any], torch.Tensor]


class Model(torch.nn.Module):
    """A language model in miniature, with layers that only some steps use."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(50, 24)
        self.hidden = torch.nn.Linear(24, 61)
        self.sometimes = torch.nn.Linear(24, 24)
        self.head = torch.nn.Linear(61, 50)

    def forward(self, words: torch.Tensor, use: bool) -> torch.Tensor:
        values = self.embedding(words)
        if use:
            values = values + self.sometimes(values)
        logits = self.head(torch.tanh(self.hidden(values))).float()
        return torch.nn.functional.cross_entropy(logits.view(-1, 50), words.roll(1).view(-1))


def config(
    stage: int, dtype: str, accumulation: int, clip: float, optimizer: str, **more: Any
) -> dict[str, Any]:
    """DeepSpeed's configuration; `zero` in `more` adds to the ZeRO options."""
    zero = {
        "stage": stage,
        "offload_optimizer": {"device": "cpu"},
        "stage3_param_persistence_threshold": 0,
        "sub_group_size": 3000,
        "reduce_bucket_size": 2500,
        **more.pop("zero", {}),
    }
    made: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": clip,
        "optimizer": {"type": optimizer, "params": {"lr": 3e-3}},
        "zero_optimization": zero,
    }
    if dtype == "bf16":
        made["bf16"] = {"enabled": True, **more.pop("bf16", {})}
    if dtype == "fp16":
        # The first steps overflow.
        made["fp16"] = {"enabled": True, "initial_scale_power": 20, "loss_scale_window": 3}
    return made | more


def train(made: dict[str, Any], steps: int, zenflow: bool = False, **backward: Any) -> tuple[Any, Any, Any]:
    """Losses, norms of the gradients, and DeepSpeed's optimizer. backward: options of the engine's method."""
    import deepspeed

    torch.manual_seed(0)
    model = Model()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, config=json.loads(json.dumps(made)), model_parameters=model.parameters()
    )
    generator = torch.Generator().manual_seed(5 + int(os.environ["RANK"]))
    losses, norms = [], []
    for step in range(steps):
        for _ in range(made.get("gradient_accumulation_steps", 1)):
            words = torch.randint(0, 50, (2, 9), generator=generator).to(engine.device)
            loss = engine(words, zenflow or step % 3 != 1)
            engine.backward(loss, **backward)
            engine.step()
            losses.append(loss.item())
        if not zenflow:
            norms.append(float(engine.get_global_grad_norm()))
    engine.destroy()
    return losses, norms, optimizer


def torch_losses(
    model: torch.nn.Module, batches: Iterable[Any], loss: Loss, lr: float, clip: float = math.inf
) -> list[float]:
    """Return the losses of SGD with plain torch, in one process."""
    params = [param for param in model.parameters() if param.requires_grad]
    optimizer = torch.optim.SGD(params, lr)
    losses = []
    for batch in batches:
        found = loss(model, batch)
        found.backward()
        torch.nn.utils.clip_grad_norm_(params, clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(found.item())
    return losses


def sgd(stage: int, lr: float, rows: int = 2, bf16: bool = False, **more: Any) -> dict[str, Any]:
    """Return the configuration of DeepSpeed for SGD. rows: of a batch."""
    return {
        "train_micro_batch_size_per_gpu": rows,
        "optimizer": {"type": "SGD", "params": {"lr": lr}},
        "bf16": {"enabled": bf16},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": stage},
        **more,
    }


def engine_losses(engine: Any, batches: Iterable[Any], loss: Loss) -> list[float]:
    """Return the losses of training with DeepSpeed's engine."""
    losses = []
    for batch in batches:
        found = loss(engine, batch.to(engine.device))
        engine.backward(found)
        engine.step()
        losses.append(found.item())
    return losses


def report(found: Any) -> None:
    """Print what the test reads, and end the process."""
    print(json.dumps(found), flush=True)
    os._exit(0)  # torch now and then aborts over threads of gloo


def main(store: str, cases: list[dict[str, Any]], steps: int = 5) -> None:
    """Print a list of [stock, replaced, whether kernels scaled the gradients, number of our norms] for the cases.

    store: the file through which the ranks find each other.
    """
    init(store)
    report([compare(case, steps) for case in cases])


def init(store: str) -> None:
    """Join the process group of this job."""
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    # Every CPU computes in fp16, but DeepSpeed refuses to train on those without instructions for it.
    get_accelerator().is_fp16_supported = lambda: True  # type: ignore[method-assign]
    deepspeed.init_distributed(
        dist_backend=get_accelerator().communication_backend_name(),
        auto_mpi_discovery=False,
        verbose=False,
        init_method=f"file://{store}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def switch(on: bool) -> bool:
    """Replace DeepSpeed's methods, or put the stock ones back; return whether all are replaced."""
    from accel_zero import table

    modules = [
        importlib.import_module(f"deepspeed.runtime.zero.{name}") for name in ("stage_1_and_2", "stage3")
    ]
    if on:
        return all(status.on for module in modules for status in table.apply(module))
    for module in modules:
        table.restore(module)
    return False


def compare(given: dict[str, Any], steps: int) -> list[Any]:
    """Train with stock methods, then with the replaced ones; `unit` in the case changes `host_path._UNIT`."""
    case = dict(given)
    unit = case.pop("unit", 2.0**-53)
    from accel_zero import host_path

    switch(False)
    *stock, untouched = train(config(**case), steps)
    assert not hasattr(untouched, "_accel_host_path")
    assert switch(True)
    norms = 0
    original = host_path.exact_norms

    def counting(path: Any, *arguments: Any) -> Any:
        nonlocal norms
        norms += len(path.norms)
        return original(path, *arguments)

    with mock.patch.object(host_path, "exact_norms", counting), mock.patch.object(host_path, "_UNIT", unit):
        *replaced, optimizer = train(config(**case), steps)
    # As text: a norm of NaN is equal to the other one.
    exact = [[number.hex() for numbers in found for number in numbers] for found in (stock, replaced)]
    return [*exact, bool(optimizer._accel_host_path.unscaled), norms]


# --- ZenFlow: steps in the optimizer process and, for comparison, in the process that trains


#: Steps of every kind: warm-up, selection, with and without an update. There is one selection: at a later one DeepSpeed
#: copies its parameters over those that the optimizer process may be about to write, and losses depend on who is first.
_ZENFLOW = {
    "topk_ratio": 0.2, "select_strategy": "step", "select_interval": 100, "update_interval": 2,
    "full_warm_up_rounds": 2,
}  # fmt: skip
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


def zenflow_main(store: str, cases: list[dict[str, Any]]) -> None:
    """Print for each case the losses with stock methods, with the replaced ones, and with steps in this process."""
    init(store)
    report([zenflow_compare(dict(case)) for case in cases])


def zenflow_compare(case: dict[str, Any]) -> list[list[float]]:
    """The three lists of losses of a case."""
    from deepspeed.runtime.zenflow import zenflow_stage_1_and_2

    switch(False)
    stock = zenflow_losses(case)
    switch(True)
    replaced = zenflow_losses(case)
    with mock.patch.object(zenflow_stage_1_and_2, "start_optimizer_process", _in_this_process):
        return [stock, replaced, zenflow_losses(case)]


def zenflow_config(
    stage: int, dtype: str, overlap: bool, clip: float = 0.5, eps: float = 1e-7,
    loss_scale: float = 1024.0, **zenflow: Any,
) -> Any:  # fmt: skip
    """DeepSpeed's configuration; ZenFlow sets the accumulation itself."""
    zero = {"zenflow": _ZENFLOW | {"overlap_step": overlap} | zenflow, "reduce_bucket_size": 10**6}
    made = config(stage, dtype, 1, clip, "AdamW", zero=zero)
    if dtype == "fp16":
        made["fp16"] = {"enabled": True, "loss_scale": loss_scale}
    made["optimizer"]["params"]["eps"] = eps
    del made["gradient_accumulation_steps"]
    return made


def zenflow_losses(case: dict[str, Any], **backward: Any) -> list[float]:
    """The losses of a case. backward: options of the engine's method."""
    losses: list[float] = train(zenflow_config(**case), _STEPS, zenflow=True, **backward)[0]
    return losses


def zenflow_alone(store: str, **case: Any) -> None:
    """Print the losses of a case with its own optimizer process."""
    init(store)
    report(zenflow_losses(case))


def intervals(store: str, **case: Any) -> None:
    """Print the losses with the update interval "auto", and those with the caller's word that it scales the loss."""
    init(store)
    auto = case | {"select_strategy": "auto", "select_interval": "auto", "update_interval": "auto"}
    report([zenflow_losses(auto), zenflow_losses(auto, scale_wrt_gas=False)])


def refusal(**case: Any) -> None:
    """Print the class and the text of the error of `initialize`."""
    from deepspeed.accelerator import get_accelerator

    get_accelerator().is_fp16_supported = lambda: True  # type: ignore[method-assign]
    try:
        zenflow_losses(case)
    except Exception as error:
        report([type(error).__name__, str(error)])
    report(["", ""])
