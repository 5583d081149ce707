# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command line, and what of it can be refused before torch is imported."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from byte_lm.errors import BadInput
from byte_lm.options import Parser, unusable

DTYPES = ("fp32", "bf16")
_LEAST = {
    "tokens": 1,
    "layers": 1,
    "width": 2,
    "heads": 1,
    "key_value_heads": 1,
    "positions": 2,
    "repeat": 1,
    "seed": 0,
}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options of one run; raises BadInput."""
    options = _parser().parse_args(arguments)
    for name, least in _LEAST.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise unusable(name, value, f"a whole number of at least {least}")
    if options.dtype not in DTYPES:
        raise unusable("dtype", options.dtype, f"one of {', '.join(DTYPES)}")
    if options.interactive and (options.check or options.repeat > 1):
        raise unusable("interactive", "with --check or --repeat", "prompts from one place")
    if not options.interactive and not options.prompt:
        raise unusable("prompt", "''", "a text of at least one character")
    if options.key_value_heads is None:
        options.key_value_heads = options.heads
    if options.model is None:
        _check_shape(options)
    else:
        _check_folder(options.model)
    _check_transformers()
    return options


def _check_shape(options: argparse.Namespace) -> None:
    if options.width % (2 * options.heads):
        raise unusable("width", options.width, f"a multiple of twice the {options.heads} heads")
    if options.heads % options.key_value_heads:
        raise unusable("key_value_heads", options.key_value_heads, f"a divisor of the {options.heads} heads")


def _check_folder(folder: Path) -> None:
    if (folder / "config.json").is_file():
        return
    raise BadInput(
        "There is no model to load.",
        found=f"--model {folder}: {'no config.json in it' if folder.is_dir() else 'no such folder'}",
        expected="a folder that transformers' save_pretrained() has written, or a download of one",
        do="correct the path; without --model a small model with random weights is made",
    )


def _check_transformers() -> None:
    if importlib.util.find_spec("transformers") is None:
        raise BadInput(
            "There is no library that makes models.",
            found="transformers is not installed",
            expected="what examples/requirements.txt lists",
            do="pip install -r examples/requirements.txt",
        )


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        description="Generate text with a model that DeepSpeed divides among the ranks.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    run = parser.add_argument_group("run")
    run.add_argument("--prompt", default="def main(", help="what the text begins with")
    run.add_argument(
        "--interactive", action="store_true", help="ask for prompts; ends at the end of the input"
    )
    run.add_argument("--tokens", type=int, default=48, help="tokens to generate at most for a prompt")
    run.add_argument("--backend", help="of torch.distributed; default: the accelerator's own")
    run.add_argument("--dtype", default="fp32", help="fp32 or bf16")
    run.add_argument("--check", action="store_true", help="compare with the undivided model on one process")
    run.add_argument("--repeat", type=int, default=1, help="generate the same text as often, to measure it")
    run.add_argument("--json", type=Path, metavar="FILE", help="write tokens and figures to this file")
    run.add_argument("--local_rank", "--local-rank", type=int, help=argparse.SUPPRESS)  # from the launcher
    model = parser.add_argument_group("model")
    model.add_argument("--model", type=Path, metavar="PATH", help="folder of a Hugging Face model")
    made = parser.add_argument_group(
        "model with random weights, where no --model is given; its tokens are bytes"
    )
    made.add_argument("--layers", type=int, default=8)
    made.add_argument("--width", type=int, default=256)
    made.add_argument("--heads", type=int, default=8)
    made.add_argument("--key_value_heads", type=int, help="for grouped-query attention; default: as --heads")
    made.add_argument(
        "--positions", type=int, default=1024, help="tokens of prompt and text together, at most"
    )
    made.add_argument("--seed", type=int, default=1)
    return parser
