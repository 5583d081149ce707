# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command line, and the DeepSpeed configuration that its flags change."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from byte_lm.errors import BadInput

CONFIGS = Path(__file__).parent.parent / "configs"
DTYPES = ("fp32", "bf16")


class Parser(argparse.ArgumentParser):
    """Reports a wrong flag as BadInput instead of leaving by itself."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(
            "The command line cannot be used.",
            found=message,
            expected="flags and values as --help lists them",
            do=f"correct the command; `{self.prog} --help` lists every flag",
        )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options of one run; raises BadInput."""
    options = _parser().parse_args(arguments)
    least = {
        "steps": 1,
        "batch": 1,
        "context": 8,
        "layers": 1,
        "heads": 1,
        "width": 2,
        "max_bytes": 1,
        "sample": 0,
        "save_every": 0,
        "seed": 0,
    }
    for name, smallest in least.items():
        if getattr(options, name) < smallest:
            raise unusable(name, getattr(options, name), f"a whole number of at least {smallest}")
    if options.stage not in (None, 0, 1, 2, 3):
        raise unusable("stage", options.stage, "a ZeRO stage: 0, 1, 2 or 3")
    if options.dtype not in (None, *DTYPES):
        raise unusable("dtype", options.dtype, f"one of {', '.join(DTYPES)}")
    if not options.minutes > 0:
        raise unusable("minutes", options.minutes, "a time above zero")
    if not 0 <= options.dropout < 1:
        raise unusable("dropout", options.dropout, "a share of at least 0 and below 1")
    if options.width % (2 * options.heads):
        raise unusable("width", options.width, f"a multiple of twice the {options.heads} heads")
    return options


def unusable(name: str, value: object, expected: str) -> BadInput:
    return BadInput(
        f"The run cannot use --{name}.", found=f"--{name} {value}", expected=expected, do=f"correct --{name}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Train a small byte-level GPT through DeepSpeed, on whatever accelerator this machine has.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    run = parser.add_argument_group("run")
    run.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of text files; default: Python's library"
    )
    run.add_argument("--out", type=Path, default=Path("runs/train_lm"), metavar="DIR", help="results go here")
    run.add_argument("--steps", type=int, default=750, help="optimizer steps of the whole run")
    run.add_argument(
        "--minutes", type=float, default=2.2, help="train in fewer steps rather than for longer than this"
    )
    run.add_argument("--resume", action="store_true", help="go on from the newest checkpoint in --out")
    run.add_argument(
        "--save_every", type=int, default=0, metavar="STEPS", help="checkpoint also during the run"
    )
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--prompt", default="def ", help="what the generated text begins with")
    run.add_argument("--sample", type=int, default=320, metavar="BYTES", help="how much text to generate")
    run.add_argument("--max_bytes", type=int, default=16_000_000, help="read no more text than this")
    engine = parser.add_argument_group("DeepSpeed (each flag is a change to the configuration file)")
    engine.add_argument("--deepspeed_config", type=Path, default=CONFIGS / "default.json", metavar="FILE")
    engine.add_argument("--stage", type=int, help="ZeRO stage 0, 1, 2 or 3")
    engine.add_argument("--offload", action="store_true", help="optimizer in host memory (needs a stage)")
    engine.add_argument("--dtype", help="fp32 or bf16")
    engine.add_argument(
        "--batch", type=int, default=8, help="windows per rank, if the file names no batch size"
    )
    engine.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    model = parser.add_argument_group("model")
    model.add_argument("--context", type=int, default=128, help="bytes the model sees at once")
    model.add_argument("--layers", type=int, default=5)
    model.add_argument("--heads", type=int, default=4)
    model.add_argument("--width", type=int, default=128)
    model.add_argument("--dropout", type=float, default=0.0)
    return parser


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
