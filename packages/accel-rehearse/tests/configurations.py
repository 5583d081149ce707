# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program that trains a small model in many configurations, and writes the peak of each: OUT NAME…

The same file runs on real ranks of the simulator and in a rehearsal; the peaks are compared (test_equality.py).
"""

import contextlib
import copy
import json
import os
import sys
import traceback
from typing import Any

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from peaks import count, peaks
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

STEPS, BATCH, SEQUENCE, HIDDEN, VOCABULARY = 2, 2, 64, 256, 1024
BASE: dict[str, Any] = {"model": "gpt", "zero": {}, "dtype": "bf16", "checkpointing": False, "init": False}
CPU = {"device": "cpu", "pin_memory": True}


def _all() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    def add(name: str, **options: Any) -> None:
        assert name not in found, name
        found[name] = {**BASE, **options}

    for model in ("gpt", "llama"):
        for stage in range(4):
            own: dict[str, Any] = {"model": model, "zero": {"stage": stage}}
            for dtype in ("fp32", "bf16", "fp16"):
                add(f"{model}, ZeRO {stage}, {dtype}", **own, dtype=dtype)
            add(f"{model}, ZeRO {stage}, checkpointing", **own, checkpointing=True)
            add(f"{model}, ZeRO {stage}, accumulation", **own, accumulation=2)
    for stage in (1, 2, 3):
        on_host = {"stage": stage, "offload_optimizer": CPU}
        add(f"ZeRO {stage}, optimizer on the host", zero=on_host)
        add(f"ZeRO {stage}, fp16, optimizer on the host", zero=on_host, dtype="fp16")
        add(f"ZeRO {stage}, overlap", zero={"stage": stage, "overlap_comm": True})
        buckets = {"reduce_bucket_size": 10**8, "allgather_bucket_size": 10**8}
        add(f"ZeRO {stage}, one bucket", zero={"stage": stage, **buckets})
        add(f"ZeRO {stage}, without clipping", zero={"stage": stage}, gradient_clipping=0.0)
        add(f"ZeRO {stage}, torch's AdamW", zero={"stage": stage}, optimizer=("AdamW", {"torch_adam": True}))
    for name in ("SGD", "Lion", "Adagrad", "Lamb", "Muon"):
        add(f"ZeRO 1, {name}", zero={"stage": 1}, optimizer=(name, {}))
    for name in ("Lion", "Adagrad"):
        add(f"ZeRO 2, {name} on the host", zero={"stage": 2, "offload_optimizer": CPU}, optimizer=(name, {}))
    add("ZeRO 0, fp16, Lamb", dtype="fp16", optimizer=("Lamb", {}))
    add("ZeRO 1, gradients reduced whole", zero={"stage": 1, "reduce_scatter": False})
    add("ZeRO 2, gradients not contiguous", zero={"stage": 2, "contiguous_gradients": False})
    add("ZeRO 2, round robin", zero={"stage": 2, "round_robin_gradients": True})
    add("ZeRO 3, zero.Init", zero={"stage": 3}, init=True)
    add("ZeRO 3, fp16, zero.Init", zero={"stage": 3}, init=True, dtype="fp16")
    everything = {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU}
    add("ZeRO 3, everything on the host", zero=everything)
    add("ZeRO 3, zero.Init, everything on the host", zero=everything, init=True)
    add("ZeRO 3, no prefetch", zero={"stage": 3, "stage3_prefetch_bucket_size": 0})
    add("ZeRO 3, everything persistent", zero={"stage": 3, "stage3_param_persistence_threshold": 10**9})
    add("ZeRO 3, nothing persistent", zero={"stage": 3, "stage3_param_persistence_threshold": 0})
    add("ZeRO++, quantized weights", zero={"stage": 3, "zero_quantized_weights": True})
    add("ZeRO++, secondary partitions", zero={"stage": 3, "zero_hpz_partition_size": 2})
    add("ZeRO++, quantized gradients", zero={"stage": 3, "zero_quantized_gradients": True})
    return found


CONFIGURATIONS = _all()


def _config(chosen: dict[str, Any]) -> dict[str, Any]:
    name, options = chosen.get("optimizer", ("AdamW", {}))
    zero = {
        "reduce_bucket_size": 2 * 10**5, "allgather_bucket_size": 2 * 10**5, "stage3_prefetch_bucket_size": 2 * 10**4,
        "stage3_param_persistence_threshold": 10**5, **copy.deepcopy(chosen["zero"]),
    }  # fmt: skip
    config = {
        "train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": chosen.get("accumulation", 1),
        "gradient_clipping": chosen.get("gradient_clipping", 1.0), "steps_per_print": 10**9, "zero_optimization": zero,
        "optimizer": {"type": name, "params": {"lr": 1e-4, **options}}, "zero_allow_untested_optimizer": True,
    }  # fmt: skip
    if chosen["dtype"] != "fp32":
        config[chosen["dtype"]] = {"enabled": True}
    if chosen["dtype"] == "fp16":
        # A rehearsal never overflows. A real run with a larger scale skips its first steps.
        config["fp16"]["initial_scale_power"] = 4
    return config


def _model(chosen: dict[str, Any]) -> Any:
    if chosen["model"] == "llama":
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                intermediate_size=704, vocab_size=VOCABULARY, max_position_embeddings=SEQUENCE, use_cache=False,
                pad_token_id=None, bos_token_id=1, eos_token_id=2,
            )
        )  # fmt: skip
    else:
        model = GPT2LMHeadModel(
            GPT2Config(
                n_embd=HIDDEN, n_layer=2, n_head=4, vocab_size=VOCABULARY, n_positions=SEQUENCE, use_cache=False,
                resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
            )
        )  # fmt: skip
    if chosen["checkpointing"]:
        model.gradient_checkpointing_enable()
    return model


def train(chosen: dict[str, Any]) -> dict[str, int]:
    """Train in one configuration; return the peaks of this rank."""
    config = _config(chosen)
    torch.manual_seed(0)
    context = deepspeed.zero.Init(config_dict_or_path=config) if chosen["init"] else contextlib.nullcontext()
    with context:
        model = _model(chosen)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE)).to(get_accelerator().current_device_name())
    for _ in range(STEPS * chosen.get("accumulation", 1)):
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
    return peaks()


def alone(name: str, meeting: str) -> dict[str, Any]:
    """Train in one configuration in a process of its own, which has what this one has imported."""
    end, begin = os.pipe()
    child = os.fork()
    if child:
        os.close(begin)
        with open(end, encoding="utf-8") as answer:
            text = answer.read()
        os.waitpid(child, 0)
        return dict(json.loads(text or '{"error": "ended without an answer"}'))
    try:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        deepspeed.init_distributed(init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        found: dict[str, Any] = train(CONFIGURATIONS[name])
    except BaseException as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"[:300]}
    os.write(begin, json.dumps(found).encode())
    if "error" not in found:
        deepspeed.comm.barrier()  # the others still need this rank
    os._exit(0)


def main() -> None:
    out, names = sys.argv[1], sys.argv[2:] or list(CONFIGURATIONS)
    count()
    found = {name: alone(name, f"{out}.{number}") for number, name in enumerate(names)}
    if os.environ["RANK"] == "0":
        with open(out, "w", encoding="utf-8") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
