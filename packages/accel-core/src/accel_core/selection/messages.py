# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The messages of the selection: all errors and warnings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from accel_core.devices import CPU_KEY, SUPPORTED_ACCELERATOR_LIST, known_devices
from accel_core.errors import (
    AcceleratorBroken,
    AcceleratorUnavailable,
    AccelError,
    AmbiguousAccelerator,
    NoAccelerator,
    StrictSelection,
    TorchUnavailable,
    UnknownAccelerator,
    in_short,
)
from accel_core.install import pip_install
from accel_core.selection.candidates import Candidate, State

_SEE = "run `accel doctor` for every candidate and its reason"


def _listed(candidates: Iterable[Candidate]) -> str:
    return "\n".join(
        f"{candidate.label}: {candidate.state.value}: {candidate.reason}" for candidate in candidates
    )


def _reportable(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates about installed packages and devices, without the other known devices."""
    return [f for f in candidates if f.key != CPU_KEY and f.state is not State.NOT_INSTALLED]


def is_notable(candidate: Candidate) -> bool:
    """Return whether a candidate that was not chosen could have been: its runtime or its device is there."""
    return candidate.state is not State.ABSENT or candidate.runtime or candidate.hardware is True


def unknown(key: str, candidates: Iterable[Candidate], upstream: AbstractSet[str] | None) -> AccelError:
    """Error: DS_ACCELERATOR is empty or unknown."""
    installed = {candidate.key for candidate in candidates} | set(upstream or ())
    valid = [*SUPPORTED_ACCELERATOR_LIST, *sorted(installed - set(SUPPORTED_ACCELERATOR_LIST))]
    # Keys are short: with a lower cutoff `gpu` would be near to one that differs in a letter.
    near = difflib.get_close_matches(key, valid, 2, 0.8)
    return UnknownAccelerator(
        f"DS_ACCELERATOR must be one of {valid}, found {key!r}",
        do="unset DS_ACCELERATOR to select by the devices that are present, or set it to "
        + (" or ".join(near) if near else "one of these"),
    )


def unavailable(key: str, candidates: Sequence[Candidate], upstream: AbstractSet[str] | None) -> AccelError:
    """Error: DS_ACCELERATOR names an accelerator whose package or runtime is missing, broken or blocked."""
    broken = [candidate for candidate in candidates if candidate.state in (State.BROKEN, State.BLOCKED)]
    cls = AcceleratorBroken if broken else AcceleratorUnavailable
    requires = candidates[0].requires or f"{key} needs its runtime"
    packages = sorted({candidate.package for candidate in candidates if candidate.package})
    here = [candidate for candidate in candidates if candidate.version]
    advice = "; ".join(candidate.advice for candidate in broken if candidate.advice)
    if advice:
        do = f"{advice}; {_SEE}"
    elif broken:
        do = "repair it (the cause is below; `accel doctor` shows it whole)"
    elif here:
        do = _install_runtimes(here) or f"install {requires.partition(' requires ')[2] or 'its runtime'}"
    else:
        known = (
            "; DeepSpeed's own backend serves it once the runtime is there" if key in (upstream or ()) else ""
        )
        runtime = requires.partition(" requires ")[2]
        also = f"; `accel doctor` then says how to install its runtime{f', {runtime}' if runtime else ''}"
        do = f"{pip_install(*(packages or [key]))}{also}{known}"
    instead = "unset DS_ACCELERATOR, to use a device that is present"
    # Nobody needs a runtime for a device that is not in the machine.
    no_device = not broken and all(candidate.hardware is False for candidate in candidates)
    return cls(
        f"DS_ACCELERATOR={key} cannot be used: {requires}",
        do=f"{instead}, or, where there is such a device: {do}" if no_device else f"{do}, or {instead}",
        details=_listed(candidates),
    )


def _install_runtimes(candidates: Iterable[Candidate]) -> str:
    """How to install the runtimes, as the vendors' records say; several if a key has variants."""
    stated = {candidate.label: candidate.advice for candidate in candidates if candidate.advice}
    if len(stated) == 1:
        return next(iter(stated.values()))
    return ", or ".join(f"for {label}: {advice}" for label, advice in stated.items())


def unserved(winner: Candidate, upstream: AbstractSet[str] | None) -> AccelError:
    """Error: a device has no vendor package, and the installed DeepSpeed has no backend for it."""
    own = (
        "deepspeed is not installed" if upstream is None else f"the installed deepspeed has no {winner.key!r}"
    )
    do = pip_install(known_devices(winner.key)[0].distribution)
    cls = NoAccelerator if winner.key == CPU_KEY else AcceleratorUnavailable
    return cls(
        f"found a device for {winner.key!r}, but nothing installed supports it: {winner.reason}; {own}",
        do=f"{do}, or name another accelerator with DS_ACCELERATOR",
    )


def torch_fails(error: BaseException) -> AccelError:
    """Error: `import torch` raises during the selection."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    cause = f", caused by {type(root).__name__}: {in_short(root)}" if root is not error else ""
    return TorchUnavailable(
        f"`import torch` raises {type(error).__name__}: {in_short(error)}{cause}",
        do="run `accel doctor`, which names the package at fault; export TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps "
        "torch from importing vendors' runtimes",
    )


def nothing_at_all(candidates: Iterable[Candidate]) -> AccelError:
    """Error: no accelerator is present, not even the CPU."""
    return NoAccelerator(
        "no accelerator can be chosen, not even the CPU",
        do=f"{pip_install('accel-cpu')}, and take `cpu` out of ACCEL_SKIP",
        details=_listed(candidates) or "no vendor package is installed",
    )


def ambiguous(tied: Sequence[Candidate]) -> AccelError:
    """Error: two present accelerators have equal priority."""
    names = " and ".join(f"{candidate.label} ({candidate.package or 'deepspeed'})" for candidate in tied)
    return AmbiguousAccelerator(
        f"{names} are present and have priority {tied[0].priority}",
        do=f"choose one: DS_ACCELERATOR={tied[0].key} (or {', '.join(candidate.key for candidate in tied[1:])})",
    )


def strict(candidates: Iterable[Candidate], winner: Candidate, fallback: bool) -> AccelError:
    """Error under ACCEL_STRICT=1: a fall-back to the CPU, or a broken candidate."""
    reported = _reportable(candidates)
    broken = [candidate for candidate in reported if candidate.state is State.BROKEN]
    return StrictSelection(
        f"ACCEL_STRICT=1, but {'only the CPU is present' if fallback else 'an accelerator is broken'}",
        do=f"set DS_ACCELERATOR={winner.key} if that is what you want, or repair the others; {_SEE}",
        details=_listed(reported if fallback else broken),
    )


def blocked(claimed: str) -> str:
    """Reason: another backend holds the PrivateUse1 slot of this process."""
    return (
        f"blocked by {claimed}, which holds torch's PrivateUse1 slot (one a process); to use this one, set "
        f"ACCEL_SKIP={claimed}, and TORCH_DEVICE_BACKEND_AUTOLOAD=0 if torch itself loads it"
    )


def broken(candidate: Candidate) -> str:
    """Warning: an accelerator is chosen, and another candidate is broken."""
    return f"{candidate.label} is broken and was passed over: {candidate.reason}; {_SEE}"


def left_to_deepspeed(candidate: Candidate) -> str:
    """Warning: an installed package cannot be used, and DeepSpeed's own backend is chosen in its place."""
    package = f"{candidate.package} {candidate.version}".strip()
    return (
        f"{candidate.label} is left to DeepSpeed's own backend, because {package} cannot be used: {candidate.reason}; "
        f"{_repair(candidate)}{_SEE}"
    )


def _repair(candidate: Candidate) -> str:
    """Return what to install in place of a broken package; empty if the reason says it, or if that does not help."""
    if candidate.reason.startswith("[ACC-1") or candidate.upstream or "shared object" in candidate.reason:
        return ""
    return f"{candidate.advice or pip_install(candidate.package, options='--upgrade')}; "


def device_lost(lost: Sequence[Candidate]) -> AccelError:
    """Error: a device is in this machine, and neither its package nor DeepSpeed's own backend can use it."""
    keys = list(dict.fromkeys(candidate.key for candidate in lost))
    repairs = "".join(dict.fromkeys(map(_repair, lost)))
    return AcceleratorBroken(
        f"{' and '.join(keys)} cannot be used, and the device is in this machine",
        do=f"{repairs}repair what is named below (`accel doctor` shows it whole), or, to run without the device, set "
        f"DS_ACCELERATOR=cpu, or ACCEL_SKIP={','.join(keys)} to choose another",
        details=_listed(lost),
    )


def no_device(candidate: Candidate) -> str:
    """Warning: the requested accelerator has a runtime but no device, as on a login node."""
    return (
        f"DS_ACCELERATOR={candidate.key} is chosen though no device is present: {candidate.reason}. What needs a "
        f"device will fail: tensors on it, and init_distributed with an error of its collectives. On a machine "
        f"that should have one, look at its driver; to run without it, set DS_ACCELERATOR=cpu, or unset it"
    )


def cpu_fallback(candidates: Iterable[Candidate]) -> str:
    """Warning: no other accelerator than the CPU is present."""
    reported = _reportable(candidates)
    notable = [candidate for candidate in reported if is_notable(candidate)]
    others = ", ".join(candidate.label for candidate in reported if not is_notable(candidate))
    why = ": no other accelerator's package or device was found."
    if notable:
        why = ":\n" + _listed(notable) + (f"\nneither usable runtime nor device: {others}" if others else "")
    elif others:
        why = f": no usable runtime and no device of the installed vendor packages was found ({others})."
    return f"Setting accelerator to CPU{why}\nSet DS_ACCELERATOR=cpu if this is what you want; {_SEE}."


def skips_nothing(keys: Iterable[str]) -> str:
    """Warning: ACCEL_SKIP has an unknown key, which may be a typing error."""
    return f"ACCEL_SKIP names {', '.join(keys)}, which no candidate here has; {_SEE}."
