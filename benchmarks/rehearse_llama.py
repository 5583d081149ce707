# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A Llama with ZeRO 3, `zero.Init` and checkpointing, to be rehearsed: 7b, 70b or 405b.

accel rehearse npu:910b-64 --ranks 64 --rank first -- benchmarks/rehearse_llama.py 70b
"""

import sys
from typing import Any

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SEQUENCE = 4096
#: Hidden size, layers, heads, heads of keys and values, size of the MLP, vocabulary.
SIZES = {
    "7b": (4096, 32, 32, 32, 11008, 32000),
    "70b": (8192, 80, 64, 8, 28672, 32000),
    "405b": (16384, 126, 128, 8, 53248, 128256),
}
CONFIG: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "overlap_comm": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "gradient_clipping": 1.0,
}


def main(size: str) -> None:
    """Train until the rehearsal has its steps."""
    hidden, layers, heads, key_heads, mlp, vocabulary = SIZES[size]
    deepspeed.init_distributed()
    with deepspeed.zero.Init(config_dict_or_path=CONFIG):
        model = LlamaForCausalLM(
            LlamaConfig(
                hidden_size=hidden,
                num_hidden_layers=layers,
                num_attention_heads=heads,
                num_key_value_heads=key_heads,
                intermediate_size=mlp,
                vocab_size=vocabulary,
                max_position_embeddings=SEQUENCE,
                use_cache=False,
                torch_dtype=torch.bfloat16,
            )
        )
    model.gradient_checkpointing_enable()
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    for _ in range(4):
        tokens = torch.ones(1, SEQUENCE, dtype=torch.long, device=engine.device)
        engine.backward(engine(input_ids=tokens, labels=tokens).loss)
        engine.step()


if __name__ == "__main__":
    main(sys.argv[1])
