# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Trains without offload, with stock methods and with the replaced ones, and compares the bits of everything."""

import contextlib
import hashlib
import importlib
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

import offload
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

#: Steps of a run; gradients overflow in the third.
STEPS = 5


class Model(torch.nn.Module):
    """Shared, frozen and sometimes unused parameters, vectors, and layers that are computed again."""

    def __init__(self, recompute: str = "", layers: int = 6) -> None:
        super().__init__()
        self.recompute = recompute
        self.embedding = torch.nn.Embedding(50, 24)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(24, 24) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(24)
        self.sometimes = torch.nn.Linear(24, 24)
        self.frozen = torch.nn.Linear(24, 24).requires_grad_(False)
        self.head = torch.nn.Linear(24, 50)
        self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor, use: bool) -> torch.Tensor:
        values = self.embedding(words)
        for layer in self.layers:
            if self.recompute:
                values = values + checkpoint(layer, values, use_reentrant=self.recompute == "reentrant")
            else:
                values = values + torch.tanh(layer(values))
        if use:
            values = values + self.sometimes(values)
        logits = self.head(self.norm(self.frozen(values))).float()
        return torch.nn.functional.cross_entropy(logits.view(-1, 50), words.roll(1).view(-1))


def switch(on: bool) -> None:
    """Replace DeepSpeed's methods, or put the stock ones back."""
    from accel_zero import table

    for name in dict.fromkeys(row.module for row in table.SPEEDUPS):
        module = importlib.import_module(name)
        table.restore(module)
        if on:
            assert all(state.on for state in table.apply(module, table.SPEEDUPS)), name


def engine_of(case: dict[str, Any]) -> Any:
    """Return DeepSpeed's engine of a case."""
    import deepspeed

    dtype, more = case["dtype"], dict(case.get("config", {}))
    zero = {"stage": case["stage"], **case.get("zero", {})}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": case.get("accumulation", 1),
        "gradient_clipping": case.get("clip", 0.0),
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-3, "torch_adam": case.get("torch", True)}},
        "zero_optimization": zero,
        **more,
    }
    if dtype == "bf16":
        config["bf16"] = {"enabled": True, **more.get("bf16", {})}
    if dtype == "fp16":
        # The first steps overflow.
        config["fp16"] = {"enabled": True, "initial_scale_power": 18, "loss_scale_window": 2}
    torch.manual_seed(0)
    context = contextlib.nullcontext()
    if case.get("init"):
        context = deepspeed.zero.Init(config_dict_or_path=config)
    with context:
        model = Model(case.get("recompute", ""), case.get("layers", 6))
    parameters: Any = list(model.parameters())
    if case.get("groups"):
        parameters = [
            {"params": [each for each in parameters if (each.ndim < 2) is flat], "weight_decay": 0.1 * flat}
            for flat in (True, False)
        ]
    return deepspeed.initialize(model=model, config=config, model_parameters=parameters)[0]


def digest(engine: Any) -> str:
    """Return a digest of parameters, master parameters and optimizer states."""
    total = hashlib.sha256()

    def add(tensor: torch.Tensor) -> None:
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())

    for param in engine.module.parameters():
        add(getattr(param, "ds_tensor", param.data))
    inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
    for group in inner.param_groups:
        for param in group["params"]:
            add(param)
            for _, value in sorted(inner.state[param].items()):
                if isinstance(value, torch.Tensor):
                    add(value)
    return total.hexdigest()[:16]


def run(engine: Any, case: dict[str, Any], steps: range) -> list[Any]:
    """Return losses, norms, loss scales and digests."""
    found: list[Any] = []
    for step in steps:
        generator = torch.Generator().manual_seed(7 * step + int(os.environ["RANK"]))
        for _ in range(case.get("accumulation", 1)):
            words = torch.randint(0, 50, (2, 9), generator=generator).to(engine.device)
            loss = engine(words, step % 3 != 1)
            if step == 2 and case.get("overflow"):
                loss = loss * float("inf")
            engine.backward(loss)
            engine.step()
            found.append(loss.item().hex())
        norm = engine.get_global_grad_norm()
        found.append(norm if norm is None else float(norm).hex())
        found += [getattr(engine.optimizer, "loss_scale", None), digest(engine)]
    return found


def compare(case: dict[str, Any]) -> list[Any]:
    """Return what stock methods and the replaced ones give, and whether the latter had something to do."""
    from accel_zero import adam_pieces, zero3_resident

    found: list[Any] = []
    used: list[bool] = []
    divided: list[int] = []
    fetched, split = zero3_resident._fetched, adam_pieces._split

    def counting(*arguments: Any, **options: Any) -> bool:
        used.append(fetched(*arguments, **options))
        return used[-1]

    def dividing(*arguments: Any) -> list[torch.Tensor]:
        divided.append(len(parts := split(*arguments)))
        return parts

    for on in (False, True):
        switch(on)
        with (
            limits(case),
            mock.patch.object(zero3_resident, "_fetched", counting),
            mock.patch.object(adam_pieces, "_split", dividing),
        ):
            engine = engine_of(case)
            found.append(run(engine, case, range(STEPS)))
            engine.destroy()
    path = vars(engine.optimizer).get("_accel_bucket_path")
    zero = type(engine.optimizer).__name__.startswith("DeepSpeedZeroOptimizer")
    expected = zero and case.get("torch", True) and engine.device.type == "cpu"
    assert bool(divided) is expected or case["dtype"] == "fp16", case  # too few of its steps do not overflow
    return [*found, any(used) or bool(path and path.plans)]


@contextlib.contextmanager
def limits(case: dict[str, Any]) -> Iterator[None]:
    """Copy gradients and update partitions in small pieces, as of a large model."""
    from accel_zero import adam_pieces, many_tensors

    small, chunk = case.get("limits", (many_tensors.SMALL, many_tensors.CHUNK))
    with (
        mock.patch.multiple(many_tensors, SMALL=small, CHUNK=chunk),
        mock.patch.multiple(adam_pieces, LARGE=200, PIECE=77),
    ):
        yield


def resumed(case: dict[str, Any], folder: str) -> list[Any]:
    """Return the steps after a checkpoint: saved and loaded by stock methods, and by one after the other."""
    found: list[Any] = []
    for saved, loaded in ((False, False), (True, False), (False, True)):
        place = f"{folder}/{saved:d}{loaded:d}"
        switch(saved)
        engine = engine_of(case)
        run(engine, case, range(2))
        engine.save_checkpoint(place)
        engine.destroy()
        switch(loaded)
        engine = engine_of(case)
        engine.load_checkpoint(place)
        found.append(run(engine, case, range(2, STEPS)))
        engine.destroy()
    return found


def main(store: str, cases: list[dict[str, Any]]) -> None:
    """Print for each case what `compare` or, with a folder to `resume` from, `resumed` returns."""
    offload.init(store)
    offload.report([resumed(each, each["resume"]) if "resume" in each else compare(each) for each in cases])


@contextlib.contextmanager
def calls() -> Iterator[list[int]]:
    """Count calls from Python."""
    events: list[str] = []
    found: list[int] = []
    sys.setprofile(lambda frame, event, argument: events.append(event))  # type: ignore[misc]
    yield found
    sys.setprofile(None)
    found.append(events.count("call") + events.count("c_call"))


class Launches(TorchDispatchMode):
    """Counts operators that run on the device, and those that wait for it."""

    def __enter__(self) -> list[int]:
        self.found = [0, 0]
        super().__enter__()
        return self.found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operator, unless it is a view."""
        options = kwargs or {}
        result = func(*args, **options)
        tensors = [each for each in tree_leaves((args, result)) if isinstance(each, torch.Tensor)]
        places = {each.device.type for each in tensors}
        waits = func.overloadpacket in (torch.ops.aten._local_scalar_dense, torch.ops.aten.equal)
        copies = len(places) == 2 and tensors[0].device.type != "cpu" and not options.get("non_blocking")
        if places != {"cpu"} and not func.is_view:
            self.found[0] += 1
            self.found[1] += waits or (copies and func.overloadpacket is torch.ops.aten._to_copy)
        return result


def count(store: str, counted: Any) -> None:
    """Print by stage what is counted in an iteration, with stock methods and with the replaced ones."""
    offload.init(store)
    found: dict[int, list[list[int]]] = {stage: [] for stage in (0, 1, 2, 3)}
    for (stage, counts), on in itertools.product(found.items(), (False, True)):
        switch(on)
        engine = engine_of({"dtype": "bf16", "stage": stage, "layers": 100, "clip": 1.0})
        run(engine, {}, range(3))
        words = torch.zeros(2, 9, dtype=torch.long, device=engine.device)
        with counted() as numbers:
            engine.backward(engine(words, True))
            engine.step()
        counts.append(numbers)
        engine.destroy()
    offload.report(found)
