# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A universal checkpoint of ZeRO 2 is not found by ZeRO 3, and the other way round."""

import os
import subprocess
import sys
import tempfile

import torch
from _engine import engine


def trained(stage, **more):
    """An engine of this stage, after a step."""
    made = engine(
        None,
        torch.nn.Linear(1, 1, bias=False),
        optimizer={"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
        bf16={"enabled": True},
        zero_optimization={"stage": stage},
        **more,
    )
    made.backward(made(torch.ones(1, 1, dtype=torch.bfloat16)).sum())
    made.step()
    return made


for saved, loaded in ((2, 2), (2, 3), (3, 2)):
    folder = tempfile.mkdtemp()
    trained(saved).save_checkpoint(folder, tag="saved")
    convert = [
        "deepspeed.checkpoint.ds_to_universal",
        "--num_extract_workers",
        "1",
        "--num_merge_workers",
        "1",
    ]
    paths = ("--input_folder", f"{folder}/saved", "--output_folder", f"{folder}/universal")
    subprocess.run(
        [sys.executable, "-m", *convert, *paths, "--inject_missing_state"],
        check=True,
        env={**os.environ, "WORLD_SIZE": "1"},
    )
    try:
        trained(loaded, checkpoint={"load_universal": True}).load_checkpoint(folder, tag="universal")
        print(f"ZeRO {saved} to {loaded}: loaded")
    except AssertionError:
        print(f"ZeRO {saved} to {loaded}: no file of the checkpoint is found")
