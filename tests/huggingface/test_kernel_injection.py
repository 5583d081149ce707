# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's models with DeepSpeed's injected kernels on the CPU, compared with the models themselves."""

import copy
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="not run: no release of transformers 5.23 is for Python 3.10 (requirements-hf.txt)",
)
WORDS, NEW = 97, 6
_SMALL = {"vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_GPT = {**_SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_WIDE = {**_SMALL, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
#: Options of each model, and whether a layer of transformers 5 may return what DeepSpeed's layer returns with a cache.
MODELS: dict[str, tuple[dict[str, Any], bool]] = {
    "GPTJ": ({**_GPT, "rotary_dim": 8}, True),
    "GPTNeo": (
        {**_SMALL, "hidden_size": 32, "num_layers": 2, "num_heads": 4, "attention_types": [[["global"], 2]]},
        True,
    ),
    "GPT2": (_GPT, False),
    "OPT": ({**_WIDE, "ffn_dim": 128, "word_embed_proj_dim": 32, "max_position_embeddings": 64}, False),
    "Llama": ({**_WIDE, "intermediate_size": 48, "max_position_embeddings": 64}, False),
}


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    import deepspeed
    from deepspeed.accelerator import set_accelerator

    from accel_cpu import CPU_Accelerator

    before = deepspeed.get_accelerator()
    set_accelerator(CPU_Accelerator())
    yield
    set_accelerator(before)


def model(name: str) -> Any:
    """A small model with random weights, large enough for its answers to differ."""
    import transformers

    options, cached = MODELS[name]
    config = getattr(transformers, f"{name}Config")(**options)
    kind = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    made = getattr(transformers, name + kind)(config).eval()
    generator = torch.Generator().manual_seed(5)
    for parameter in made.parameters():
        parameter.data += torch.randn(parameter.shape, generator=generator) * 0.2
    made.config.use_cache = made.generation_config.use_cache = cached
    return made


def injected(made: Any, name: str, dtype: torch.dtype) -> Any:
    import deepspeed
    from deepspeed.model_implementations.transformers.ds_transformer import DeepSpeedTransformerInference

    options = {} if MODELS[name][1] else {"return_tuple": False}
    engine = deepspeed.init_inference(
        copy.deepcopy(made), dtype=dtype, replace_with_kernel_inject=True, **options
    )
    layers = [part for part in engine.module.modules() if isinstance(part, DeepSpeedTransformerInference)]
    assert len(layers) == 2
    return engine


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_answers_and_tokens_are_the_model_s(name: str) -> None:
    made, ids = model(name), torch.randint(3, WORDS, (2, 9), generator=torch.Generator().manual_seed(6))
    options = {"max_new_tokens": NEW, "min_new_tokens": NEW, "attention_mask": torch.ones_like(ids)}
    exact, tokens = made(ids).logits, made.generate(ids, do_sample=False, **options)
    engine = injected(made, name, torch.float32)
    assert torch.allclose(engine(ids).logits, exact, atol=1e-4)
    assert torch.equal(engine.generate(input_ids=ids, do_sample=False, **options), tokens)
    # The weights are rounded to bfloat16 in both; the order of the steps differs.
    half = copy.deepcopy(made).bfloat16()
    error = (half(ids).logits.float() - exact).abs().mean()
    found = (injected(made, name, torch.bfloat16)(ids).logits.float() - exact).abs().mean()
    assert 0 < found < 1.5 * error
