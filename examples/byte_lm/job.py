# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Everything a run needs to know, read and checked before torch is imported."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

from byte_lm import checkpoint, ranks
from byte_lm.checkpoint import State
from byte_lm.corpus import Corpus, load_corpus
from byte_lm.options import Config, engine_config, parse
from byte_lm.report import check_plotting, check_writable


@dataclass(frozen=True)
class Job:
    """One run: `state` is where it begins, `tag` names the checkpoint of that state if there is one."""

    options: argparse.Namespace
    config: Config
    corpus: Corpus
    tag: str | None
    state: State
    started: float  # time.monotonic()

    @property
    def seconds_left(self) -> float:
        """Time that --minutes leaves for training: at least half, however long the start took."""
        seconds: float = 60 * self.options.minutes
        return max(seconds - (time.monotonic() - self.started), seconds / 2)


def read_job(arguments: Sequence[str]) -> Job:
    """The run that the command line asks for; raises BadInput and leaves nothing behind."""
    started = time.monotonic()
    options = parse(arguments)
    config = engine_config(options)
    corpus = load_corpus(options.data, options.max_bytes)
    corpus.check_length(options.context, ranks.count())
    identity = identify(options, config, corpus)
    tag, state = None, State(identity)
    if options.resume:
        tag, state = checkpoint.find(options.out, identity, options.steps)
    check_writable(options.out)
    check_plotting()
    return Job(options, config, corpus, tag, state, started)


def identify(options: argparse.Namespace, config: Config, corpus: Corpus) -> dict[str, object]:
    """Return the settings that must be equal for a run to continue another one."""
    zero = config.get("zero_optimization", {})
    return {
        **{
            name: getattr(options, name)
            for name in ("context", "layers", "heads", "width", "dropout", "seed")
        },
        "text": corpus.fingerprint,
        "ranks": ranks.count(),
        "ZeRO stage": zero.get("stage", 0),
        "offload": "offload_optimizer" in zero,
        "bf16": bool(config.get("bf16", {}).get("enabled", False)),
    }
