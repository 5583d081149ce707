# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A program as users of Hugging Face's Trainer write it: nothing in it knows an accelerator.

    torchrun --standalone --nproc-per-node 2 finetune.py --output_dir out --deepspeed zero2.json …

All options are TrainingArguments. The model is built from a configuration and the text from numbers: nothing
is downloaded.
"""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser, Trainer, TrainingArguments, set_seed

LENGTH, WORDS = 32, 96


class Text(torch.utils.data.Dataset):
    """Rows of words that follow each other in steps of one size a row."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = (torch.arange(LENGTH) * (index % 7 + 1) + index) % WORDS
        return {"input_ids": words, "labels": words}


def train() -> Trainer:
    """Train as the command line says; the trainer holds everything afterwards."""
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    set_seed(arguments.seed)
    model = GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=2, n_embd=64, n_positions=LENGTH, vocab_size=WORDS, bos_token_id=0,
                   eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    )  # fmt: skip
    trainer = Trainer(model=model, args=arguments, train_dataset=Text())
    trainer.train()
    return trainer


if __name__ == "__main__":
    train()
