# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every environment variable that this project reads, in one place.

`accel env` and the documentation are printed from `VARIABLES`. Core reads them here, but for
`accel_core.activate`, which is loaded with every torch; `accel_ops.io.engines` reads ACCEL_IO_ENGINE itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from accel_core import launchers
from accel_core.errors import InvalidEnvironment

_TRUE = {"1", "true", "yes", "on"}
_FALSE = {"", "0", "false", "no", "off"}


@dataclass(frozen=True)
class Variable:
    """One environment variable: name, default, and the sentence that documents it."""

    name: str
    default: str
    sentence: str
    secret: bool = False

    def get(self) -> str:
        """Return the value, or the default if unset."""
        return os.environ.get(self.name, self.default)

    def raw(self) -> str | None:
        """Return the value exactly as set, None if unset."""
        return os.environ.get(self.name)

    def shown(self) -> str | None:
        """Return the value for people to read, None if unset."""
        return "(secret)" if self.secret and self.raw() else self.raw()

    def on(self) -> bool:
        """Return the value as a bool; raises `InvalidEnvironment` if it is not one of the accepted words."""
        value = self.get().strip().lower()
        if value in _TRUE or value in _FALSE:
            return value in _TRUE
        raise InvalidEnvironment(
            f"cannot read the switch {self.name}: {self.name}={self.get()!r}; expected one of "
            f"{', '.join(sorted(_TRUE))} or {', '.join(sorted(_FALSE - {''}))}",
            do=f"unset {self.name}, or set it to 0 or 1",
        )

    def names(self) -> tuple[str, ...]:
        """Return the items of a comma-separated value, stripped; empty items are dropped."""
        return tuple(item.strip() for item in self.get().split(",") if item.strip())


DS_ACCELERATOR = Variable(
    "DS_ACCELERATOR", "", "Use this accelerator and no other (DeepSpeed's own variable; empty is an error)."
)
STRICT = Variable(
    "ACCEL_STRICT", "0", "1: a CPU fall-back, a broken vendor or an unsupported DeepSpeed is an error."
)
SKIP = Variable("ACCEL_SKIP", "", "Comma-separated keys of accelerators that detection passes over unseen.")
BRIDGE = Variable("ACCEL_BRIDGE", "1", "0: leave DeepSpeed untouched; only accel_core's own functions serve.")
VERBOSE = Variable(
    "ACCEL_VERBOSE",
    "0",
    "1: a line on stderr before each package or runtime that the selection imports; a crash dumps its Python stack.",
)
SYSROOT = Variable(
    "ACCEL_SYSROOT",
    "/",
    "Folder under which /dev, /sys and torch/version.py are looked up (for tests and recordings).",
)
CACHE_DIR = Variable(
    "ACCEL_CACHE_DIR", "", "Folder for what is built on this machine; default: `accel` in the user's cache."
)

SPEEDUPS = Variable(
    "ACCEL_SPEEDUPS",
    "1",
    "0: no method that docs/offload.md and docs/engine.md list is replaced; a comma-separated list: not those.",
)
FIXES = Variable(
    "ACCEL_FIXES",
    "1",
    "0: no fault of DeepSpeed that docs/upstream-hooks.md lists is fixed; a comma-separated list: not those.",
)

IO_ENGINE = Variable(
    "ACCEL_IO_ENGINE",
    "",
    "Engine of file I/O: uring, threads or python; default: the first of them that works in this process.",
)

STORE_ADDRESS = Variable(
    "ACCEL_STORE_ADDRESS",
    "",
    "Where torch's store of rank 0 listens, instead of on all interfaces; set by `accel launch` for rank 0.",
)
JOB_SECRET = Variable(
    "ACCEL_JOB_SECRET",
    "",
    "With it ranks sign what they exchange through torch's store; set by `accel launch` on one host.",
    secret=True,
)


def is_local_rank_zero() -> bool:
    """Return False in ranks of a host other than the first, which alone warns."""
    try:
        ranks = launchers.launched()
    except InvalidEnvironment:  # reported where the rank is needed
        return True
    return not (ranks.rank if ranks.local_rank is None else ranks.local_rank)


def system_root() -> Path:
    """Return the root folder of /dev and /sys: `/`, or the folder of a recorded machine (ACCEL_SYSROOT)."""
    return Path(SYSROOT.get() or SYSROOT.default)


VARIABLES = tuple(each for each in vars().copy().values() if isinstance(each, Variable))
