# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Settings of a simulated device: environment variables, so that child processes inherit them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from accel_core.errors import InvalidInput
from accel_core.simulated import DEVICE as DEVICE
from accel_core.vendor import Variable

DEVICES = Variable("ACCEL_SIM_DEVICES", "2", "Number of simulated devices.")
MEMORY = Variable(
    "ACCEL_SIM_MEMORY", "16GiB", "Memory of each simulated device, in bytes or with KiB, MiB, GiB."
)
STRICT = Variable("ACCEL_SIM_STRICT", "1", "0: host and device tensors may mix, which no accelerator allows.")
BEHAVIOUR = Variable(
    "ACCEL_SIM_BEHAVIOUR", "", "Comma-separated vendor behaviours to switch on: see `accel sim --list`."
)
RACE = Variable("ACCEL_SIM_RACE", "0", "1: two accesses to the same memory that nothing orders are an error.")
DEFER = Variable(
    "ACCEL_SIM_DEFER",
    "0",
    "1: asynchronous copies and collectives complete as late as the order of work allows.",
)
FAIL = Variable(
    "ACCEL_SIM_FAIL", "", "Comma-separated operators that fail on the device, such as _fused_adamw_."
)
HARDWARE = Variable(
    "ACCEL_SIM_HARDWARE",
    "0",
    "1: hardware-like mode, in which what holds only for simulated devices does not hold.",
)

_UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
MAX_DEVICES = 64


@dataclass(frozen=True)
class Settings:
    """The settings of this process. memory: bytes a device."""

    devices: int
    memory: int
    strict: bool
    behaviours: frozenset[str]
    race: bool
    deferred: bool
    like_hardware: bool
    failing: tuple[str, ...]


def read() -> Settings:
    """Return the settings from the environment. Raises `InvalidInput`."""
    return Settings(
        count(DEVICES.get()),
        size(MEMORY.get()),
        STRICT.on(),
        frozenset(BEHAVIOUR.names()),
        RACE.on(),
        DEFER.on(),
        HARDWARE.on(),
        tuple(FAIL.names()),
    )


def count(text: str) -> int:
    """Return a number of devices. Raises `InvalidInput`."""
    if not text.isdecimal() or int(text) > MAX_DEVICES:
        raise _invalid(DEVICES, text, f"a number from 0 to {MAX_DEVICES}")
    return int(text)


def size(text: str) -> int:
    """Return a device's memory in bytes. Raises `InvalidInput`."""
    match = re.fullmatch(r"(\d+)\s*([KMG]iB)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise _invalid(MEMORY, text, "bytes, or a number with KiB, MiB or GiB, as 8GiB")
    return int(match[1]) * _UNITS[(match[2] or "").upper()]


def _invalid(variable: Variable, text: str, expected: str) -> InvalidInput:
    option = {DEVICES: "--devices", MEMORY: "--memory"}[variable]
    return InvalidInput(
        f"the simulated device cannot be set up: {variable.name}={text!r}; expected {expected}",
        do=f"correct or unset {variable.name}; it is `accel sim {option}`",
    )
