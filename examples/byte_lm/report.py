# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Report of a run: its accelerator and the reason, the loss as a picture, the values as JSON."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import platform
import tempfile
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any

from byte_lm.errors import BadInput


def check_plotting() -> None:
    """Raise BadInput if the loss could not be drawn at the end of the run."""
    if importlib.util.find_spec("matplotlib") is None:
        raise BadInput(
            "The loss cannot be drawn.",
            found="matplotlib is not installed",
            expected="what examples/requirements.txt lists",
            do="pip install -r examples/requirements.txt",
        )


def check_writable(out: Path) -> None:
    """Raise BadInput if results cannot be written to the folder; creates nothing that stays."""
    nearest = out.absolute()
    while not nearest.exists():
        nearest = nearest.parent
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise BadInput(
            "The results cannot be written.",
            found=f"{nearest}: {error.strerror}",
            expected="a folder that this user may write to, or a place to create one",
            do="name another folder with --out",
        ) from error


def describe_accelerator() -> dict[str, str]:
    """Name of the accelerator in use, and how it came to be chosen."""
    from deepspeed.accelerator import get_accelerator

    name = get_accelerator()._name
    try:
        import accel_core
    except ImportError:
        return {"name": name, "why": f"accelerator: {name} (DeepSpeed's own choice; accel is not installed)"}
    if accel_core.get_accelerator() is not get_accelerator():
        return {"name": name, "why": f"accelerator: {name} (DeepSpeed's own choice; accel is switched off)"}
    return {"name": name, "why": str(accel_core.explain())}


def versions() -> dict[str, str]:
    """Version of Python and of each installed package that shapes the result."""
    vendors = {point.dist.name for point in entry_points(group="accel.vendors") if point.dist}
    found = {"python": platform.python_version()}
    for package in ("torch", "deepspeed", "accel-core", *sorted(vendors)):
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def write_summary(out: Path, summary: dict[str, Any]) -> None:
    """Write summary.json."""
    text = json.dumps(summary, indent=2, default=str)
    (out / "summary.json").write_text(text + "\n", encoding="utf-8")


def draw_losses(out: Path, train: list[float], validation: list[tuple[int, float]], entropy: float) -> None:
    """Write loss.png: losses and the unigram entropy, all in bits per byte, over the steps."""
    from matplotlib.figure import Figure  # without pyplot there is no display to look for

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(train) + 1), train, color="tab:blue", alpha=0.35, linewidth=0.8, label="training")
    axes.plot(*zip(*validation, strict=True), color="tab:orange", marker="o", label="validation")
    axes.axhline(entropy, color="black", linestyle="--", linewidth=1, label="unigram entropy of the text")
    axes.set(
        xlabel="step", ylabel="bits per byte", ylim=(0, max(entropy * 1.4, max(v for _, v in validation)))
    )
    axes.set_title(f"validation {validation[-1][1]:.2f} bits per byte, unigram entropy {entropy:.2f}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out / "loss.png", dpi=120)
