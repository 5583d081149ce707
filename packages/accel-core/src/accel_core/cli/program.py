# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Command lines that end with a program: `accel sim npu --devices 1 -- python train.py --lr 3`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def program_words(
    words: Sequence[str],
    declare: Callable[[argparse.ArgumentParser], None],
    args: argparse.Namespace,
    command: str,
) -> list[str]:
    """Return the program's command line, and parse the options in front of it, which argparse does not.

    words:   what argparse.REMAINDER has taken behind the command's own argument.
    declare: declares the options that may be among them; their values go to `args`.
    """
    words = list(words)
    if words and words[0].startswith("-") and words[0] not in ("--", "-m"):
        at = words.index("--") if "--" in words else len(words)
        parser = argparse.ArgumentParser(prog=command)
        declare(parser)
        parser.add_argument("program", nargs=argparse.REMAINDER)
        words = [*parser.parse_args(words[:at], namespace=args).program, *words[at:]]
    # The first `--` is ours; a later one is the program's.
    return words[words[:1] == ["--"] :]
