# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that trains a small model in one way of parallelism; each rank writes its peaks: WHICH FOLDER."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from peaks import count, peaks

STEPS, BATCH, WIDTH, LAYERS = 2, 8, 256, 4
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def config(**options: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": BATCH, "steps_per_print": 10**9, "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, **options,
    }  # fmt: skip


class Block(torch.nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )


def device() -> torch.device:
    return torch.device(torch.accelerator.current_accelerator().type, int(os.environ["LOCAL_RANK"]))


def begin() -> None:
    torch.accelerator.set_device_index(device().index)
    dist.init_process_group(dist.get_default_backend_for_device(device()))


def pipeline() -> None:
    import deepspeed
    from deepspeed.pipe import LayerSpec, PipelineModule

    deepspeed.init_distributed()
    model = PipelineModule(
        [LayerSpec(Block) for _ in range(LAYERS)], num_stages=2, loss_fn=torch.nn.functional.mse_loss
    )
    settings = config(gradient_accumulation_steps=2, zero_optimization={"stage": 1})
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    example = torch.ones(BATCH, WIDTH, dtype=torch.bfloat16)
    batches = iter([(example, example)] * 2 * STEPS)
    for _ in range(STEPS):
        engine.train_batch(batches)


def moe() -> None:
    import deepspeed
    from deepspeed.moe.layer import MoE

    deepspeed.init_distributed()

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Block()
            self.moe = MoE(WIDTH, Block(), num_experts=4, ep_size=2, k=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y, penalty, _ = self.moe(self.first(x))
            return y.float().square().mean() + 0.01 * penalty

    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer as split

    model = Model()
    groups = split({"params": list(model.parameters()), "name": "parameters"})
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=groups, config=config(zero_optimization={"stage": 2})
    )
    for _ in range(STEPS):
        loss = engine(torch.ones(BATCH, 16, WIDTH, dtype=torch.bfloat16, device=device()))
        engine.backward(loss)
        engine.step()


def fsdp2() -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    begin()
    model = torch.nn.Sequential(*(Block() for _ in range(LAYERS))).to(device())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        model(torch.ones(BATCH, WIDTH, device=device())).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def ddp() -> None:
    begin()
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*(Block() for _ in range(LAYERS))).to(device())
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        with torch.autocast(device().type, dtype=torch.bfloat16):
            loss = model(torch.ones(BATCH, WIDTH, device=device())).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, intermediate_size=512,
            vocab_size=1024, max_position_embeddings=64, use_cache=False, bos_token_id=1, eos_token_id=2,
        )
    )  # fmt: skip


def _texts() -> list[dict[str, torch.Tensor]]:
    return [
        {"input_ids": torch.arange(64), "labels": torch.arange(64)}
        for _ in range(BATCH * RANKS * (STEPS + 1))
    ]


def trainer() -> None:
    from transformers import Trainer, TrainingArguments

    settings = {
        "zero_optimization": {"stage": 3},
        "train_micro_batch_size_per_gpu": "auto",
        "bf16": {"enabled": True},
    }
    arguments = TrainingArguments(
        sys.argv[2] + "/trainer", per_device_train_batch_size=BATCH, max_steps=STEPS, deepspeed=settings, bf16=True,
        report_to=[], save_strategy="no", logging_steps=1,
    )  # fmt: skip
    Trainer(_llama(), arguments, train_dataset=_texts()).train()


def accelerate() -> None:
    from accelerate import Accelerator, DeepSpeedPlugin

    helper = Accelerator(mixed_precision="bf16", deepspeed_plugin=DeepSpeedPlugin(zero_stage=2))
    model = _llama()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(_texts(), batch_size=BATCH)
    model, optimizer, loader = helper.prepare(model, optimizer, loader)
    for batch, _ in zip(loader, range(STEPS), strict=False):
        helper.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()


def autotp() -> None:
    import deepspeed

    deepspeed.init_distributed()
    settings = config(zero_optimization={"stage": 1}, tensor_parallel={"autotp_size": 2})
    model = _llama().bfloat16()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=settings)
    ids = torch.arange(64).expand(BATCH, 64).contiguous().to(device())
    for _ in range(STEPS):
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()


def nvme() -> None:
    import deepspeed

    deepspeed.init_distributed()
    place = {"device": "nvme", "nvme_path": sys.argv[2] + "/nvme", "pin_memory": True}
    zero = {"stage": 3, "offload_optimizer": place, "offload_param": place, "sub_group_size": 10**6}
    model = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config(zero_optimization=zero)
    )
    for _ in range(STEPS):
        engine.backward(
            engine(torch.ones(BATCH, WIDTH, dtype=torch.bfloat16, device=device())).float().square().mean()
        )
        engine.step()


def ulysses() -> None:
    import deepspeed
    from deepspeed.sequence.layer import DistributedAttention

    deepspeed.init_distributed()

    def attend(*parts: torch.Tensor) -> torch.Tensor:
        found = torch.nn.functional.scaled_dot_product_attention(*(part.transpose(1, 2) for part in parts))
        return found.transpose(1, 2)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project, self.last = torch.nn.Linear(WIDTH, 3 * WIDTH), Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = self.project(x).view(BATCH, -1, 3, 4, WIDTH // 4).unbind(2)
            return self.last(self.attention(*parts, 0).reshape(x.shape)).float().square().mean()

    model = Model()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config(zero_optimization={"stage": 3}),
        mesh_param=(RANKS // 2, 2),
    )  # fmt: skip
    model.attention = DistributedAttention(attend, engine.seq_parallel_group, 2, 1)
    for _ in range(STEPS):
        engine.backward(engine(torch.ones(BATCH, 64, WIDTH, dtype=torch.bfloat16, device=device())))
        engine.step()


def _model_parallel() -> Any:
    """Return an `mpu` in which two ranks have the same activations, as if they divided the layers."""
    pairs, _ = dist.new_subgroups_by_enumeration([[i, i + 1] for i in range(0, RANKS, 2)])
    replicas, _ = dist.new_subgroups_by_enumeration([list(range(i, RANKS, 2)) for i in range(2)])
    found: dict[str, Any] = {}
    for kind, group in (("model", pairs), ("data", replicas)):
        answers = {"group": group, "rank": dist.get_rank(group), "world_size": dist.get_world_size(group)}
        for what, answer in answers.items():
            found[f"get_{kind}_parallel_{what}"] = lambda answer=answer: answer
    return SimpleNamespace(**found)


def _checkpointing(**options: bool) -> None:
    import deepspeed

    deepspeed.init_distributed()
    mpu = _model_parallel()
    deepspeed.checkpointing.configure(mpu, **options)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(Block() for _ in range(LAYERS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = deepspeed.checkpointing.checkpoint(layer, x)
            return x.float().square().mean()

    model = Model()
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config=config(zero_optimization={"stage": 2}),
        mpu=mpu,
    )
    for _ in range(STEPS):
        x = torch.ones(BATCH, 64, WIDTH, dtype=torch.bfloat16, device=device(), requires_grad=True)
        engine.backward(engine(x))
        engine.step()


def checkpointing_partitioned() -> None:
    _checkpointing(partition_activations=True)


def checkpointing_on_host() -> None:
    _checkpointing(partition_activations=True, checkpoint_in_cpu=True)


PROGRAMS = {
    each.__name__: each
    for each in (
        pipeline, moe, fsdp2, ddp, trainer, accelerate, autotp, nvme, ulysses, checkpointing_partitioned,
        checkpointing_on_host,
    )
}  # fmt: skip

if __name__ == "__main__":
    count()
    PROGRAMS[sys.argv[1]]()
    Path(sys.argv[2], f"{sys.argv[1]}.{RANK}.json").write_text(json.dumps(peaks()), encoding="utf-8")
