# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of functions of the `deepspeed` command: ranks start on the visible devices, and on no others.

The stock runner unsets the visible-devices variable, and takes its items for numbers below the count of devices. With
`--num_gpus` it starts ranks on the machine's first devices, which may be another job's.
"""

from __future__ import annotations

import collections
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accel_core.errors import InvalidEnvironment
from accel_core.vendor import Feature, VisibleDevices
from accel_zero.devices import Changed

_log = logging.getLogger("accel_core")
_HOST = "localhost"
Slots = Mapping[str, Sequence[int | str]]


def parse_args(stock: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Return the options without a number of devices, which `choose` applies."""
    global _mask
    from deepspeed.launcher import runner

    args, accelerator = stock(*given, **named), runner.get_accelerator()
    _mask = _Mask(accelerator, args)
    if not _mask.name:
        # The runner reads the first variable: one that is never set.
        runner.get_accelerator = lambda: Changed(accelerator, visible_devices_envs=lambda: [""])
    return args


def choose(stock: Callable[..., Slots], pool: Mapping[str, int], include: str, exclude: str) -> Slots:
    """Return the devices of this host: the variable's, of these the first `--num_gpus`, or those of the filter."""
    return stock(pool, include, exclude) if _mask is None else _mask.active(stock, pool, include, exclude)


def _devices_of(rule: VisibleDevices | None, accelerator: Any, value: str) -> list[str]:
    """Return the items of the variable that the runtime uses, and warn of the others."""
    if rule is None:
        return [item.strip() for item in value.split(",") if item.strip()]
    count = accelerator.device_count()
    for remark in rule.remarks(count):
        _log.warning("%s", remark)
    return rule.used(value, count)


class _Mask:
    """The items of the variable, taken from the runner, which would read them differently."""

    def __init__(self, accelerator: Any, args: Any) -> None:
        self.name = (accelerator.visible_devices_envs() or [""])[0]
        self._items, self._ranks = list[str](), args.num_gpus
        value, rule = os.environ.get(self.name, ""), getattr(accelerator, "visible", None)
        # hpu has a variable for DeepSpeed's sake only, which restricts nothing.
        unread = Feature.INDEXED_DEVICES in getattr(accelerator, "traits", {})
        if not value.strip() or unread or args.num_nodes > 1 or os.path.isfile(args.hostfile):
            return
        if args.num_gpus >= 0 and (args.include or args.exclude):
            return  # the runner refuses both together
        if later := next((name for name in getattr(rule, "later", ()) if os.environ.get(name)), ""):
            raise self._refused(f"{later}={os.environ[later]}", "one of the two variables")
        self._items = _devices_of(rule, accelerator, value)
        if not self._items:
            raise self._refused("no device of this machine", "at least one")
        args.num_gpus = args.num_nodes = -1
        del os.environ[self.name]

    def active(
        self, stock: Callable[..., Slots], pool: Mapping[str, int], include: str, exclude: str
    ) -> Slots:
        """Return what `choose` does."""
        if not self._items:
            found = stock(pool, include, exclude)
            if not self.name:
                _refuse_choice(found)
            return found
        if not include and not exclude:
            if not self._ranks <= len(self._items) or self._ranks == 0:
                raise self._refused(f"--num_gpus {self._ranks}", f"1 to {len(self._items)}")
            return self._slots(self._items[: self._ranks if self._ranks > 0 else None])
        if not all(item.isdecimal() for item in self._items):
            raise self._refused(include or exclude, "no filter: the variable has names, a filter has numbers")
        known = [int(item) for item in self._items]
        chosen = stock({_HOST: max(known) + 1}, include, exclude).get(_HOST, ())
        if include and set(chosen) - set(known):
            raise self._refused(f"--include {include}", f"some of {_HOST}:{','.join(self._items)}")
        return self._slots([item for item in known if item in chosen] if exclude else chosen)

    def _slots(self, items: Sequence[int | str]) -> Slots:
        return collections.OrderedDict({_HOST: [int(i) if str(i).isdecimal() else i for i in items]})

    def _refused(self, found: str, expected: str) -> InvalidEnvironment:
        return InvalidEnvironment(
            f"ranks cannot be started on devices outside of {self.name}: {found}, with "
            f"{self.name}={','.join(self._items) or os.environ.get(self.name)}; "
            f"expected {expected}",
            do=f"name some of these devices, or unset {self.name} if this job may use others",
        )


#: Of the options that were parsed last; None: the runner has parsed none.
_mask: _Mask | None = None


def _refuse_choice(found: Slots) -> None:
    """Raise if other devices than a host's first ones are chosen where rank i always has device i."""
    for host, slots in found.items():
        if list(slots) != list(range(len(slots))):
            raise InvalidEnvironment(
                f"the devices of ranks cannot be chosen on {host}: devices {', '.join(map(str, slots))}, and "
                "no variable that restricts a process to devices: rank i uses device i",
                do="leave out --include and --exclude; --num_gpus is the number of ranks",
            )
