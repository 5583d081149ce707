# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The model: loaded from a folder or made, then divided among the ranks by DeepSpeed."""

from __future__ import annotations

import argparse
import contextlib
import io
from typing import Any

import deepspeed
import torch
from byte_lm.errors import BadInput
from deepspeed.accelerator import get_accelerator
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from sharded_lm.text import Bytes, first_line

TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load(options: argparse.Namespace) -> Any:
    """The whole model on this rank's device; raises BadInput."""
    model = made(options) if options.model is None else loaded(options)
    return model.to(get_accelerator().current_device_name()).eval()


def loaded(options: argparse.Namespace) -> Any:
    """The model of a folder; raises BadInput."""
    dtype = TORCH_DTYPES[options.dtype]
    try:
        return AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, local_files_only=True)
    except Exception as error:  # transformers' own errors have no common base
        raise BadInput(
            "The model cannot be loaded.",
            found=f"{options.model}: {type(error).__name__}: {first_line(error)}",
            expected="a causal language model that the installed transformers supports, with its weights",
            do="download the whole model again, or install the release of transformers that its config.json names",
        ) from error


def made(options: argparse.Namespace) -> LlamaForCausalLM:
    """A Llama with random weights, the same on every rank."""
    config = LlamaConfig(
        vocab_size=Bytes.COUNT, hidden_size=options.width, intermediate_size=4 * options.width,
        num_hidden_layers=options.layers, num_attention_heads=options.heads,
        num_key_value_heads=options.key_value_heads, max_position_embeddings=options.positions,
        bos_token_id=None, eos_token_id=None, initializer_range=0.1,
    )  # fmt: skip
    torch.manual_seed(options.seed)
    return LlamaForCausalLM(config).to(TORCH_DTYPES[options.dtype])


def check_divisible(model: Any, ranks: int) -> None:
    """Raise BadInput unless each rank gets as many heads as the others."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    if heads % ranks or groups % ranks:
        raise BadInput(
            f"The model cannot be divided among {ranks} ranks.",
            found=f"{heads} attention heads and {groups} key-value heads",
            expected=f"multiples of {ranks}",
            do="start another number of ranks (--num_accelerators of the launcher)",
        )


def divided(model: Any, ranks: int, dtype: str) -> Any:
    """DeepSpeed's engine, with a part of each layer's weights on each rank; raises BadInput."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # DeepSpeed prints the layers that it divides
            return deepspeed.init_inference(
                model,
                tensor_parallel={"tp_size": ranks},
                dtype=TORCH_DTYPES[dtype],
                replace_with_kernel_inject=False,
            )
    except AssertionError as error:
        raise BadInput(
            "DeepSpeed cannot divide the model.",
            found=f"{type(model).__name__}: {error}",
            expected="a model that AutoTP supports, such as Llama, Mistral or Qwen",
            do="choose another model, or start one rank",
        ) from error
