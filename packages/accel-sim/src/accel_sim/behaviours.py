# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Failures and peculiarities of the real runtimes, switched on by name: ACCEL_SIM_BEHAVIOUR=npu.no-cann,…"""

from __future__ import annotations

from dataclasses import dataclass

from accel_core.errors import InvalidInput


@dataclass(frozen=True)
class Behaviour:
    """One failure or peculiarity.

    module: the import that fails; empty if none does.
    error:  the exception's class, text: its message.
    seen:   where the real one does so.
    """

    name: str
    sentence: str
    module: str = ""
    error: type[BaseException] | None = None
    text: str = ""
    seen: str = ""


_CANN = "libhccl.so: cannot open shared object file: No such file or directory"
_HABANA = "habana_frameworks/torch/__init__.py of gaudi-pytorch-bridge 1.19.0"

BEHAVIOURS = (
    Behaviour(
        "npu.no-cann", "torch_npu is installed and CANN is not: its import fails.",
        "torch_npu", ImportError, _CANN, "torch_npu 2.13.0 with torch 2.13.0"),
    Behaviour(
        "npu.two-accelerators", "torch_npu finds another accelerator and refuses.",
        "torch_npu", RuntimeError, "Two accelerators cannot be used at the same time in PyTorch: npu and cuda.",
        "torch_npu/__init__.py of 2.13.0"),
    Behaviour(
        "hpu.no-version-file", "Habana's package lacks a file: FileNotFoundError at import.",
        "habana_frameworks.torch", FileNotFoundError,
        "[Errno 2] No such file or directory: 'required_version.txt'", _HABANA),
    Behaviour(
        "hpu.no-local-version", "Habana's package meets a torch without a local version: AttributeError at import.",
        "habana_frameworks.torch", AttributeError, "'NoneType' object has no attribute 'startswith'", _HABANA),
    Behaviour(
        "hpu.other-torch", "Habana's package meets another torch: AssertionError at import.",
        "habana_frameworks.torch", AssertionError, "PyTorch version mismatch", _HABANA),
    Behaviour(
        "hpu.no-library", "Habana's libraries are missing: OSError at import.",
        "habana_frameworks.torch", OSError,
        "libSynapse.so: cannot open shared object file: No such file or directory", _HABANA),
    Behaviour(
        "mlu.no-toolkit", "torch_mlu is installed and CNToolkit is not: its import fails.",
        "torch_mlu", ImportError, "libcnrt.so: cannot open shared object file: No such file or directory",
        "inferred; torch_mlu loads _MLUC.so at import"),
    Behaviour(
        "xpu.ipex-other-torch", "IPEX meets another torch: AttributeError from its own exit.",
        "intel_extension_for_pytorch", AttributeError, "module 'os' has no attribute 'exit'",
        "intel_extension_for_pytorch 2.8.0 with torch 2.13.0"),
    *(Behaviour(
        f"{key}.no-device-file", "The device works, and its device files are missing or have other names.",
        seen="cards of other makers with the interface of torch.cuda; containers")
      for key in ("npu", "mlu", "sdaa", "hpu", "xpu", "supa", "klxpu", "cuda")),
)  # fmt: skip


def has_device_files(key: str, chosen: frozenset[str]) -> bool:
    """Return whether the simulated machine has the device files of a vendor."""
    return f"{key}.no-device-file" not in chosen


def check(names: frozenset[str]) -> None:
    """Raise `InvalidInput` for a name that is not a behaviour."""
    known = {behaviour.name for behaviour in BEHAVIOURS}
    if wrong := sorted(names - known):
        raise InvalidInput(
            f"a vendor behaviour cannot be simulated: {', '.join(wrong)}; expected some of "
            f"{', '.join(sorted(known))}",
            do="correct ACCEL_SIM_BEHAVIOUR",
        )


def fail(module: str, chosen: frozenset[str]) -> None:
    """Raise what the real import of a module raises under the chosen behaviours."""
    check(chosen)
    for behaviour in BEHAVIOURS:
        if behaviour.name in chosen and behaviour.module == module and behaviour.error:
            raise behaviour.error(behaviour.text)
