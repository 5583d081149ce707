# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The cheapest setting of a job that fits: fewest ranks, then least offload, lowest ZeRO stage, largest micro-batch.

The global batch stays the same. That a setting does not fit is taken to hold for what needs more memory: fewer
ranks with everything else as lean as it can be, and a larger micro-batch.
"""

from __future__ import annotations

import copy
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from accel_core.reports import one_line
from accel_rehearse import report
from accel_rehearse.record import Rehearsal

#: Rehearses the program's words on so many ranks.
Rehearse = Callable[[tuple[str, ...], int], Rehearsal]

#: Keys by which a JSON file among the program's words is known as DeepSpeed's configuration.
_KEYS = {
    "zero_optimization",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "bf16",
    "fp16",
    "optimizer",
}
_LARGEST_CONFIG = 1 << 20
#: From the fastest to the leanest: where the optimizer's states and the parameters are kept.
_OFFLOADS = ("none", "optimizer", "optimizer and parameters")
_STAGES = (0, 1, 2, 3)
_MICRO_BATCHES = 4
#: Accumulation of more micro-batches needs the memory of two.
_ACCUMULATED = 2


@dataclass(frozen=True)
class Searched:
    """A setting. words: the program's; config: DeepSpeed's, None if no word names one; at: its position."""

    words: tuple[str, ...]
    ranks: int
    config: Mapping[str, Any] | None = None
    at: int = -1


@dataclass(frozen=True)
class Setting:
    """One point of the search. options: the program's own words and their values, `--seq` and `2048`."""

    ranks: int
    stage: int | None = None
    offload: str = "none"
    micro_batch: int | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass
class Result:
    """Rehearsals by setting, in order. cheapest: the one to take; complete: it did not end early."""

    program: Searched
    tried: dict[Setting, Rehearsal] = field(default_factory=dict)
    cheapest: Setting | None = None
    complete: bool = True


def read(words: Sequence[str], ranks: int) -> Searched:
    """Return the program with the DeepSpeed configuration that one of its words names, also as `--option=file`."""
    for at, word in enumerate(words):
        path = Path(_parts(word)[1])
        try:
            if path.suffix == ".json" and path.stat().st_size <= _LARGEST_CONFIG:
                config = json.loads(path.read_text(encoding="utf-8"))
                if isinstance(config, dict) and _KEYS & set(config):
                    return Searched(tuple(words), ranks, config, at)
        except (OSError, ValueError, RecursionError):
            continue
    return Searched(tuple(words), ranks)


def changed(program: Searched, setting: Setting) -> dict[str, Any] | None:
    """Return the configuration of a setting; None if the global batch cannot stay the same."""
    config = copy.deepcopy(dict(program.config or {}))
    if setting.stage is not None:
        zero = config.get("zero_optimization")
        zero = config["zero_optimization"] = zero if isinstance(zero, dict) else {}
        zero["stage"] = setting.stage
        for name, least in (("offload_optimizer", 1), ("offload_param", 2)):
            if _OFFLOADS.index(setting.offload) < least:
                zero.pop(name, None)
            elif not isinstance(zero.get(name), dict) or zero[name].get("device", "none") == "none":
                zero[name] = {"device": "cpu"}
    micro = _number(config, "train_micro_batch_size_per_gpu")
    if micro is not None and setting.micro_batch is not None:
        batch = _number(config, "train_batch_size")
        batch = batch or micro * (_number(config, "gradient_accumulation_steps") or 1) * program.ranks
        steps, rest = divmod(batch, setting.micro_batch * setting.ranks)
        if rest or not steps:
            return None
        config["train_micro_batch_size_per_gpu"] = setting.micro_batch
        config["gradient_accumulation_steps"] = steps
    return config


def lines(program: Searched, setting: Setting) -> list[str]:
    """Return the lines to change, `zero_optimization.stage: 1 -> 3`, from what the program has now."""
    found = [] if setting.ranks == program.ranks else [f"ranks: {program.ranks} -> {setting.ranks}"]
    before, now = dict(_flat(program.config or {})), dict(_flat(changed(program, setting) or {}))
    for name in [*now, *(name for name in before if name not in now)]:
        if before.get(name) != now.get(name):
            found.append(f"{name}: {before.get(name, 'absent')} -> {now.get(name, 'absent')}")
    return found + [f"{word} {value}".rstrip() for word, value in setting.options]


class _Bound(Exception):
    """No more rehearsals are allowed, or of use."""


@dataclass
class Search:
    """The search for the cheapest setting that fits.

    options: words of the program with the values to try, the fastest first and the leanest last; `on` and `off`
    stand for a word alone and for none. bound: most rehearsals. host: bytes of a node's memory, if they are
    limited.
    """

    program: Searched
    rehearse: Rehearse
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    bound: int = 16
    host: int | None = None
    say: Callable[[str], None] = lambda _text: None

    def __post_init__(self) -> None:
        self.result = Result(self.program)
        values = itertools.product(*self.options.values())
        self._words = [tuple(zip(self.options, chosen, strict=True)) for chosen in values]
        plain: list[tuple[int | None, str]] = [(None, "none")]
        self._zero = plain if self.program.config is None else list(_zero_settings())
        self._micro = _micro_batches(self.program.config or {})

    def run(self) -> Result:
        """Return the cheapest setting that fits, and all that were tried."""
        try:
            self.result.cheapest = self._cheapest()
        except _Bound:
            self.result.complete = False
            suiting = [setting for setting, rehearsal in self.result.tried.items() if self._suits(rehearsal)]
            self.result.cheapest = min(suiting, key=self._cost, default=None)
        return self.result

    def _cost(self, setting: Setting) -> tuple[int, ...]:
        """Return what makes a setting slow or dear, the weightiest first."""
        leaner = sum(self.options[word].index(value) for word, value in setting.options)
        return (
            setting.ranks,
            _OFFLOADS.index(setting.offload),
            leaner,
            setting.stage or 0,
            -(setting.micro_batch or 0),
        )

    def _suits(self, rehearsal: Rehearsal) -> bool:
        """Return whether device and host have enough memory."""
        enough = self.host is None or report.host_of_node(rehearsal) <= self.host
        return rehearsal.verdict == "fits" and enough

    def _cheapest(self) -> Setting | None:
        """Return the cheapest setting that fits; raises `_Bound`."""
        ranks = self._fewest_ranks()
        if ranks is None:
            return None
        groups = (
            Setting(ranks, stage, offload, options=words)
            for (stage, offload), words in itertools.product(self._zero, self._words)
        )
        for group in sorted(groups, key=self._cost):
            sizes = self._sizes(group)
            if sizes and self._fits(sizes[-1]):
                return next(setting for setting in sizes if self._fits(setting))
        return None

    def _fewest_ranks(self) -> int | None:
        """Return the fewest ranks on which a leanest setting fits, by bisection over the divisors of all ranks."""
        ranks = self.program.ranks
        divisors = [count for count in range(1, ranks + 1) if ranks % count == 0]
        counts = [count for count in divisors if self._sizes(Setting(count, options=self._words[-1]))]
        low, high = 0, len(counts)
        while low < high:
            middle = (low + high) // 2
            if self._leanest_fits(counts[middle]):
                high = middle
            else:
                low = middle + 1
        return counts[low] if low < len(counts) else None

    def _leanest_fits(self, ranks: int) -> bool:
        """Return whether the leanest setting fits that neither fails nor needs more than the host has."""
        beyond_host: set[str] = set()
        sizes = self._sizes(Setting(ranks, options=self._words[-1]))
        for stage, offload in reversed(self._zero.copy() if sizes else []):
            setting = replace(sizes[-1], stage=stage, offload=offload)
            if offload in beyond_host:
                continue
            if self._fits(setting):
                return True
            verdict = self.result.tried[setting].verdict
            if verdict == "does not fit":
                return False
            if verdict == "fits":
                beyond_host.add(offload)
                continue
            plain = replace(setting, stage=self._zero[0][0], offload="none")
            self._fits(plain)
            if self.result.tried[plain].verdict == "failed":
                return False
            self._zero.remove((stage, offload))  # the program runs, but not with this
        return False

    def _sizes(self, group: Setting) -> list[Setting]:
        """Return the group's settings from the largest micro-batch, without those that change the global batch."""
        settings = [replace(group, micro_batch=size) for size in self._micro]
        return [setting for setting in settings if changed(self.program, setting) is not None]

    def _fits(self, setting: Setting) -> bool:
        tried = self.result.tried
        if setting not in tried:
            if len(tried) >= self.bound:
                raise _Bound
            self.say(_name(setting))
            tried[setting] = rehearsal = self._rehearsed(setting)
            self.say(f"  {report.verdict(rehearsal)}")
            failures = (rank.failure for rank in rehearsal.ranks_rehearsed if rank.outcome == "failed")
            for message in (failure.message for failure in failures if failure):
                self.say(message)
            if rehearsal.verdict == "stopped" or self._only_fails():
                raise _Bound
        return self._suits(tried[setting])

    def _only_fails(self) -> bool:
        """Return whether the program itself is broken: it failed twice, and nothing else was seen."""
        verdicts = [rehearsal.verdict for rehearsal in self.result.tried.values()]
        return len(verdicts) > 1 and set(verdicts) == {"failed"}

    def _rehearsed(self, setting: Setting) -> Rehearsal:
        """Rehearse the program with a setting."""
        config = changed(self.program, setting) or {}
        if "train_micro_batch_size_per_gpu" in config and setting.micro_batch is not None:
            steps = min(config["gradient_accumulation_steps"], _ACCUMULATED)
            config["gradient_accumulation_steps"] = steps
            config["train_batch_size"] = steps * setting.micro_batch * setting.ranks
        words, at = self.program.words, self.program.at
        with tempfile.TemporaryDirectory(prefix="accel-search-") as folder:
            if self.program.config is not None:
                file = Path(folder) / "config.json"
                file.write_text(json.dumps(config), encoding="utf-8")
                words = (*words[:at], f"{_parts(words[at])[0]}{file}", *words[at + 1 :])
            return self.rehearse(_with_options(words, setting.options), setting.ranks)


def _zero_settings() -> Iterator[tuple[int | None, str]]:
    """Yield stages with what each can offload, the leanest last."""
    for stage in _STAGES:
        yield from ((stage, offload) for offload in _OFFLOADS[: (1, 2, 2, 3)[stage]])


def _micro_batches(config: Mapping[str, Any]) -> list[int | None]:
    """Return the configured micro-batch and its halves, the largest first; None alone if it is not configured."""
    size = _number(config, "train_micro_batch_size_per_gpu")
    return [size >> shift for shift in range(_MICRO_BATCHES) if size >> shift] if size else [None]


def _number(config: Mapping[str, Any], name: str) -> int | None:
    value = config.get(name)
    return value if type(value) is int and value > 0 else None


def _parts(word: str) -> tuple[str, str]:
    """Return an option with its `=`, if it has one, and the value behind it."""
    option, sign, value = word.partition("=") if word.startswith("-") else ("", "", word)
    return (f"{option}=", value) if sign else ("", word)


def _with_options(words: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the words with options set."""
    for option, value in options:
        at = words.index(option) if option in words else -1
        if value == "on":
            words = words if at >= 0 else (*words, option)
        elif value == "off":
            words = words if at < 0 else (*words[:at], *words[at + 1 :])
        elif at >= 0:
            words = (*words[: at + 1], value, *words[at + 2 :])
        else:
            words = (*words, option, value)
    return words


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value)


def _name(setting: Setting) -> str:
    words = ["1 rank" if setting.ranks == 1 else f"{setting.ranks} ranks"]
    words += [] if setting.stage is None else [f"ZeRO {setting.stage}", f"offload {setting.offload}"]
    words += [] if setting.micro_batch is None else [f"micro-batch {setting.micro_batch}"]
    return ", ".join(words + [f"{option} {value}" for option, value in setting.options])


def table(result: Result) -> str:
    """Return the settings that were tried, the cheapest that fits and the lines to change."""
    rows = [_row(setting, rehearsal) for setting, rehearsal in result.tried.items()]
    text = "\n".join(report.aligned(rows)) + "\n\n" if rows else ""
    if not result.complete:
        text += "the search ended early: a setting that was not tried may be cheaper\n"
    if result.program.config is None:
        text += "no word of the program names a DeepSpeed configuration: only ranks and options were varied\n"
    if result.cheapest is None:
        return text + "nothing that was tried fits\n"
    changes = lines(result.program, result.cheapest) or ["nothing: the job fits as it is"]
    text += f"cheapest that fits: {_name(result.cheapest)}\nto change:\n"
    return text + "".join(f"  {one_line(line)}\n" for line in changes)


def _row(setting: Setting, rehearsal: Rehearsal) -> dict[str, str]:
    return {
        "ranks": str(setting.ranks),
        "ZeRO": "-" if setting.stage is None else str(setting.stage),
        "offload": setting.offload,
        "micro-batch": "-" if setting.micro_batch is None else str(setting.micro_batch),
        "options": " ".join(f"{option} {value}" for option, value in setting.options),
        "reserved": report.size(max((rank.reserved for rank in rehearsal.ranks_rehearsed), default=0)),
        "host of a node": report.size(report.host_of_node(rehearsal)),
        "verdict": report.verdict(rehearsal),
    }
