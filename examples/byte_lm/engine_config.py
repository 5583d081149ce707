# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The DeepSpeed configuration of a run: a JSON file, changed by the flags that were given."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from byte_lm.errors import BadInput
from byte_lm.options import CONFIGS

Config = dict[str, Any]
BATCH_KEYS = ("train_batch_size", "train_micro_batch_size_per_gpu")


def engine_config(options: argparse.Namespace) -> Config:
    """The configuration to hand to DeepSpeed; raises BadInput."""
    config = read_config(options.deepspeed_config)
    if options.dtype == "bf16":
        config = merge(config, read_config(CONFIGS / "bf16.json"))
    elif options.dtype == "fp32":
        config = {key: value for key, value in config.items() if key not in ("bf16", "fp16")}
    if options.stage is not None:
        config = merge(config, {"zero_optimization": {"stage": options.stage}})
    if options.offload:
        config = merge(config, read_config(CONFIGS / "offload.json"))
    if not any(key in config for key in BATCH_KEYS):
        config["train_micro_batch_size_per_gpu"] = options.batch
    check_stage(config, options.deepspeed_config)
    return config


def read_config(path: Path) -> Config:
    """The JSON object in the file; raises BadInput when there is none or it is cut off."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_config(path, str(error), "a readable JSON file") from error
    except json.JSONDecodeError as error:
        raise _bad_config(path, str(error), "one complete JSON object") from error
    if not isinstance(config, dict):
        raise _bad_config(path, f"a JSON {type(config).__name__}", "one JSON object, { ... }")
    return config


def merge(config: Config, change: Config) -> Config:
    """A copy of `config` with `change` laid over it, objects key by key."""
    merged = dict(config)
    for key, value in change.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def check_stage(config: Config, path: Path) -> None:
    """Refuse what DeepSpeed would refuse only after minutes of start-up."""
    zero = config.get("zero_optimization", {})
    if not isinstance(zero, dict):
        raise _bad_config(path, f"zero_optimization is {zero!r}", "a JSON object with a stage")
    stage = zero.get("stage", 0)
    if stage not in (0, 1, 2, 3):
        raise _bad_config(path, f"zero_optimization.stage is {stage!r}", "a ZeRO stage: 0, 1, 2 or 3")
    if stage == 0 and "offload_optimizer" in zero:
        raise BadInput(
            "The optimizer cannot be offloaded.",
            found="ZeRO stage 0, which has no offload",
            expected="ZeRO stage 1, 2 or 3",
            do="add --stage 2, or leave the offload out",
        )


def _bad_config(path: Path, found: str, expected: str) -> BadInput:
    return BadInput(
        f"Cannot use the DeepSpeed configuration {path}.",
        found=found,
        expected=expected,
        do=f"correct the file, or start from a copy of {CONFIGS.name}/default.json",
    )
