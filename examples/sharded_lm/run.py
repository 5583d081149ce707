# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""One run: join the ranks, make the model, divide it, generate, report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist
import transformers
from byte_lm import ranks
from byte_lm.errors import BadInput, has_advice
from byte_lm.report import describe_accelerator
from deepspeed import comm
from deepspeed.accelerator import get_accelerator

from sharded_lm import model as models
from sharded_lm.generation import check_length, generate
from sharded_lm.prompts import prompts
from sharded_lm.text import Bytes, OfModel, Tokens

#: How long ranks wait for a person who types at rank 0.
_PATIENCE = timedelta(days=1)


def run(options: argparse.Namespace) -> None:
    """Generate on all ranks of the job; raises BadInput."""
    transformers.logging.set_verbosity_error()
    say(describe_accelerator()["why"])
    backend = join(options)
    text: Tokens = Bytes() if options.model is None else OfModel(options.model)
    model = models.load(options)
    models.check_divisible(model, ranks.count())
    if not options.interactive:
        check_length(model, text.encode(options.prompt), options.tokens)
    wanted = undivided(options, model, text) if options.check else None
    size = sum(parameter.numel() for parameter in model.parameters())
    engine = models.divided(model, ranks.count(), options.dtype)
    shared = f"divided among {ranks.count()} ranks" if ranks.count() > 1 else "one rank: nothing is divided"
    say(f"model: {type(model).__name__}, {size:,} parameters, {options.dtype}; {shared}; backend {backend}")
    texts = list(generated(options, engine, text, backend, wanted))
    if options.json and ranks.speaks():
        options.json.write_text(json.dumps({"backend": backend, "texts": texts}) + "\n", encoding="utf-8")
    comm.destroy_process_group()


def join(options: argparse.Namespace) -> str:
    """Join the other ranks; returns the backend. Raises BadInput for a backend that cannot be used."""
    accelerator = get_accelerator()
    accelerator.set_device(ranks.local_rank())
    backend = options.backend or accelerator.communication_backend_name()
    kind = accelerator.device_name().partition(":")[0]
    known = sorted(
        name
        for name, devices in dist.Backend.backend_capability.items()
        if kind in devices and dist.is_backend_available(name) and name != "fake"  # torch's own, for tests
    )
    try:
        if backend not in known:
            raise ValueError("torch.distributed has no such backend for this accelerator")
        patience = {"timeout": _PATIENCE} if options.interactive else {}
        comm.init_distributed(backend, verbose=False, **patience)
    except Exception as error:
        if has_advice(error):
            raise
        raise BadInput(
            f"The ranks cannot use the backend {backend}.",
            found=f"{type(error).__name__}: {error}",
            expected=f"one of {', '.join(known)}",
            do="name another one with --backend, or install what it needs",
        ) from error
    return str(backend)


def undivided(options: argparse.Namespace, model: Any, text: Tokens) -> list[int]:
    """The tokens of the model as it is on each rank before it is divided."""
    return generate(model, text, text.encode(options.prompt), options.tokens, place(), ignore)[0]


def generated(
    options: argparse.Namespace, engine: Any, text: Tokens, backend: str, wanted: list[int] | None
) -> Iterator[dict[str, Any]]:
    """Generate for each prompt and say how fast; yields tokens and figures. Raises BadInput for unwanted tokens."""
    for number, prompt in enumerate(prompts(options)):
        given = text.encode(prompt)
        try:
            check_length(engine.module, given, options.tokens)
        except BadInput as error:
            say(f"error: {error}")  # of a prompt that was typed; the next one may be better
            continue
        show = number == 0 or options.interactive
        if show:
            write(prompt)
        tokens, clock = generate(engine, text, given, options.tokens, place(), write if show else ignore)
        figures = clock.figures()
        say(("\n\n" if show else "") + described(figures, backend))
        if wanted is not None:
            compare(tokens, wanted, options.dtype)
        yield {"prompt": prompt, "token_ids": tokens, **figures}


def described(figures: dict[str, float], backend: str) -> str:
    """Figures in a sentence."""
    return (
        f"{figures['tokens']} tokens in {figures['seconds']:.2f} s: {figures['tokens_per_second']:.1f} tokens/s, the "
        f"first after {figures['first_token_seconds']:.2f} s; {figures['share_in_collectives']:.0%} of the time in "
        f"{figures['collectives']} collectives of {backend}, waiting for other ranks included"
    )


def compare(tokens: list[int], wanted: list[int], dtype: str) -> None:
    """Raise BadInput if the divided model has made other tokens than the whole one."""
    same = next((n for n, (a, b) in enumerate(zip(tokens, wanted, strict=False)) if a != b), None)
    if same is None and len(tokens) == len(wanted):
        say(f"check: the same {len(tokens)} tokens as the undivided model's")
        return
    raise BadInput(
        "The divided model makes other tokens than the undivided one.",
        found=f"a difference at token {min(len(tokens), len(wanted)) if same is None else same} of {len(wanted)}",
        expected="the same tokens",
        do="use --dtype fp32, as sums are rounded in another order" if dtype != "fp32" else "report it",
    )


def place() -> str:
    """The device of this rank."""
    return str(get_accelerator().current_device_name())


def say(line: str) -> None:
    """Print a line on one rank."""
    if ranks.speaks():
        print(line, flush=True)


def write(part: str) -> None:
    """Print a part of a text on one rank."""
    if ranks.speaks():
        print(part, end="", flush=True)


ignore: Callable[[str], None] = lambda part: None  # noqa: E731
