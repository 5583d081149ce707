# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The `deepspeed` command under a visible-devices variable: its ranks get devices of that variable, and no others.

DeepSpeed's runner unsets the variable, counts the devices, and takes the variable's items for numbers below that count.
A runtime that has read the variable counts the visible devices only. With `--num_gpus` the runner starts ranks on the
machine's first devices, which may be another job's.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accel_core.errors import InvalidEnvironment
from accel_core.vendor import Feature

_HOST = "localhost"
Slots = Mapping[str, Sequence[int | str]]


def patch(module: Any, current: Callable[[], Any]) -> None:
    """Replace two functions of `deepspeed.launcher.runner`, which has just been imported."""
    if hasattr(module, "parse_args") and hasattr(module, "parse_inclusion_exclusion"):
        mask = _Mask(module, current)
        module.parse_args = mask.parse_args
        module.parse_inclusion_exclusion = mask.active


class _Mask:
    """The items of the variable, taken from the runner, which would read them differently."""

    def __init__(self, module: Any, current: Callable[[], Any]) -> None:
        self._parse, self._resolve = module.parse_args, module.parse_inclusion_exclusion
        self._current = current
        self._name, self._items, self._ranks = "", list[str](), -1

    def parse_args(self, *given: Any, **named: Any) -> Any:
        """Return DeepSpeed's options without a number of devices, which `active` applies."""
        args = self._parse(*given, **named)
        accelerator = self._current()
        self._name = accelerator.visible_devices_envs()[0]
        items = [item.strip() for item in os.environ.get(self._name, "").split(",") if item.strip()]
        # hpu and mps have a variable for DeepSpeed's sake only, which restricts nothing.
        unread = Feature.INDEXED_DEVICES in getattr(accelerator, "traits", {})
        if not items or unread or args.num_nodes > 1 or os.path.isfile(args.hostfile):
            return args
        if args.num_gpus >= 0 and (args.include or args.exclude):
            return args  # the runner refuses both together
        self._items, self._ranks = items, args.num_gpus
        args.num_gpus = args.num_nodes = -1
        del os.environ[self._name]
        return args

    def active(self, pool: Mapping[str, int], include: str, exclude: str) -> Slots:
        """Return the devices of this host: the variable's, of these the first `--num_gpus`, or those of the filter."""
        if not self._items:
            found: Slots = self._resolve(pool, include, exclude)
            return found
        if not include and not exclude:
            if not self._ranks <= len(self._items) or self._ranks == 0:
                raise self._refused(f"--num_gpus {self._ranks}", f"1 to {len(self._items)}")
            return self._slots(self._items[: self._ranks if self._ranks > 0 else None])
        if not all(item.isdecimal() for item in self._items):
            raise self._refused(include or exclude, "no filter: the variable has names, a filter has numbers")
        known = [int(item) for item in self._items]
        chosen = self._resolve({_HOST: max(known) + 1}, include, exclude).get(_HOST, ())
        if include and set(chosen) - set(known):
            raise self._refused(f"--include {include}", f"some of {_HOST}:{','.join(self._items)}")
        return self._slots([item for item in known if item in chosen] if exclude else chosen)

    def _slots(self, items: Sequence[int | str]) -> Slots:
        return collections.OrderedDict({_HOST: [int(i) if str(i).isdecimal() else i for i in items]})

    def _refused(self, found: str, expected: str) -> InvalidEnvironment:
        return InvalidEnvironment(
            what=f"ranks cannot be started on devices outside of {self._name}",
            found=f"{found}, with {self._name}={','.join(self._items)}",
            expected=expected,
            do=f"name some of these devices, or unset {self._name} if this job may use others",
        )
