# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A project that trains with Hugging Face's Trainer: which device it uses is the Trainer's own choice."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import Dataset

transformers = pytest.importorskip("transformers")


class Rows(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        words = (torch.arange(16) * (index % 5 + 1)) % 32
        return {"input_ids": words, "labels": words}


def test_training_uses_the_accelerator_and_its_checkpoint_goes_on(tmp_path, simulated_device):
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=16, vocab_size=32)
    arguments = {
        "output_dir": str(tmp_path), "per_device_train_batch_size": 4, "save_steps": 2,
        "report_to": "none", "disable_tqdm": True, "seed": 1,
    }  # fmt: skip

    def trainer(steps):
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config)
        options = transformers.TrainingArguments(max_steps=steps, **arguments)
        return transformers.Trainer(model=model, args=options, train_dataset=Rows())

    first = trainer(2)
    first.train()
    assert next(first.model.parameters()).device.type == simulated_device.type
    second = trainer(4)
    result = second.train(resume_from_checkpoint=True)
    assert result.global_step == 4
