# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Print as JSON what a vendor's simulated module offers: its names, the parameters of its functions and of the real
ones, and what each simulated function with a parameter of a device raises for wrong devices.
"""

import importlib
import inspect
import json
import sys
from typing import Any

import torch

from accel_sim import simulation, surface
from accel_sim.errors import NotSimulated

NAMES = ("device", "device_id", "device_name", "peer", "peer_device", "peer_device_id")
OTHERS = {"new_state": lambda: simulation.current().module.get_rng_state(), "fraction": lambda: 0.5}
WRONG = {"99": 99, "cpu": "cpu", "another type": torch.device("meta"), "-5": -5}


def _functions(active: simulation.Simulation) -> dict[str, tuple[Any, inspect.Signature]]:
    """Return each simulated function of the surface with its real signature."""
    found = {}
    for name, entry in surface.load(active.vendor.surface).children(active.vendor.module).items():
        real, value = surface.read_signature(entry), getattr(active.module, name, None)
        if real is not None and name in active.simulated and value is not None:
            found[name] = (value, real)
    return found


def _calls(functions: dict[str, tuple[Any, inspect.Signature]]) -> dict[str, tuple[Any, list[str], str]]:
    """Return each function with the names of its parameters and of the one to try."""
    found = {}
    for name, (value, real) in functions.items():
        positional = [p for p in real.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
        required = [p.name for p in positional if p.default is p.empty]
        for parameter in real.parameters:
            if parameter in NAMES:
                found[f"{name}({parameter})"] = (value, required, parameter)
    return found


def _enter(result: Any) -> None:
    if hasattr(result, "__enter__"):
        with result:
            pass


def _outcome(function: Any, required: list[str], parameter: str, wrong: Any) -> str:
    options = {name: OTHERS[name]() if name in OTHERS else 0 for name in required}
    options[parameter] = wrong
    try:
        _enter(function(**options))
    except NotSimulated:
        return "not simulated"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(package: str) -> None:
    """Print all; an outcome is empty where nothing was raised."""
    if package:
        importlib.import_module(package)
    active = simulation.current()
    names = [name for name in vars(active.module) if not name.startswith("__")]
    functions = _functions(active)
    signatures = {
        name: (str(surface.signature_of(value)), str(real)) for name, (value, real) in functions.items()
    }
    torch.ones(1, device=active.type)
    outcomes = {
        name: {word: _outcome(*call, wrong) for word, wrong in WRONG.items()}
        for name, call in _calls(functions).items()
    }
    sys.stdout.write(json.dumps({"names": names, "signatures": signatures, "outcomes": outcomes}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
