# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's accelerator classes and ours side by side, on simulated devices: each method, and what differs.

python -m ci.parity                       compare with the installed DeepSpeed; exits with 1 if one is not listed
python -m ci.parity --deepspeed FOLDER    with that of `pip install --no-deps --target FOLDER deepspeed==0.18.9`
python -m ci.parity --accel npu           on one device
python -m ci.parity --record              on all; keep what was found and write docs/results/parity.md

Why: a method that a new DeepSpeed adds, or answers differently, has to be seen on the day it is released. Differences
that are meant are in ci/parity.toml, with reasons.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import importlib
import importlib.metadata
import inspect
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from packaging.specifiers import SpecifierSet

from ci import workspace
from ci.pages import page
from ci.program import Problem, report, run

DEVICES = ("cpu", "cuda", "xpu", "npu", "hpu", "mlu", "sdaa", "mps", "supa", "klxpu")
MEANT = Path("ci/parity.toml")
KEPT = Path("docs/results/parity/differences.json")
PAGE = Path("docs/results/parity.md")
_MARK = "parity: "
#: What each class registers with the driver, which refuses pages that are registered.
_PAGES: dict[Any, torch.Tensor] = collections.defaultdict(lambda: torch.zeros(_PAGE_BYTES, dtype=torch.uint8))
_PAGE_BYTES = 8192
#: Device, call, stock's answer, ours.
Difference = tuple[str, str, str, str]


# --------------------------------------------------------------------- in the process with the simulated device


def compare(device: str) -> tuple[int, list[Difference]]:
    """Return how many calls were compared on the device of this process, and the differences."""
    from accel_core import get_accelerator

    ours = get_accelerator()
    module = importlib.import_module(f"deepspeed.accelerator.{device}_accelerator")
    stock = getattr(module, f"{device.upper()}_Accelerator")()
    # The allocator has something to keep.
    torch.ones(1 << 20, device=ours.device())
    calls, found = 0, []
    for name in sorted(name for name in dir(stock) if not name.startswith("_") and name != "class_dict"):
        for arguments in _forms(getattr(type(stock), name, None)):
            answers = [_answer(accelerator, name, arguments) for accelerator in (stock, ours)]
            calls += 1
            if answers[0] != answers[1] or _UNKNOWN in answers[0]:
                form = "" if arguments is None else f"({', '.join(arguments)})"
                found.append((device, name + form, answers[0], answers[1]))
    builders = _builders(stock)
    for name in builders:
        if type(ours.create_op_builder(name)).__name__ != name:
            found.append((device, f"builder {name}", "there", "not implemented"))
    return calls + len(builders), found


_BUILDER = re.compile(r".*(?<!Op)(?<!NotImplemented)Builder")
#: A method of a new release takes something new: `_value` has to learn it.
_UNKNOWN = "ci.parity knows no argument"


def _forms(member: Any) -> list[tuple[str, ...] | None]:
    """The names of the arguments to call a method with: those it needs, and all; None to read an attribute."""
    if not callable(member):
        return [None]
    parameters = list(inspect.signature(member).parameters.values())[1:]
    names = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    needed = tuple(each.name for each in names if each.default is each.empty)
    everything = tuple(each.name for each in names)
    return [needed, everything] if everything != needed else [needed]


def _answer(accelerator: Any, name: str, arguments: tuple[str, ...] | None) -> str:
    """Return as text what a call returns or raises, and what it does to its arguments."""
    if not hasattr(accelerator, name):
        return "missing"
    try:
        given = {each: _value(accelerator, each) for each in arguments or ()}
    except KeyError as error:
        return f"{_UNKNOWN} {error}"
    try:
        answer = getattr(accelerator, name)
        if arguments is not None:
            answer = answer(*given.values()) if given else answer()
        text = _text(answer, accelerator, values="empty" not in name)
    except Exception as error:
        text = f"raises {type(error).__name__}"
    environment = given.get("current_env")
    return text if environment is None else f"{text}, environment {environment}"


def _value(accelerator: Any, parameter: str) -> Any:
    """An argument as DeepSpeed's engine passes it, by its name; raises KeyError for a new one."""
    makers: dict[str, Any] = {
        "address": lambda: _PAGES[accelerator].data_ptr(),
        "callback": lambda: list,
        "current_env": dict,
        "graph": lambda: accelerator.create_graph(),
        "local_accelerator_ids": lambda: [0, 1],
        "new_state": lambda: accelerator.get_rng_state(),
        "stream": lambda: accelerator.current_stream(),
        "tensor": lambda: torch.arange(6.0).view(2, 3),
    }
    values = {
        **dict.fromkeys(("category", "domain", "event", "pool")),
        **dict.fromkeys(("make_copy", "match_shape"), True),
        **dict.fromkeys(("class_name", "op_name"), "NoSuchBuilder"),
        "num_bytes": _PAGE_BYTES, "align_bytes": 1, "backend": "eager", "seed": 1234,
        "device": "cpu", "device_index": 0, "dtype": torch.float16, "fraction": 0.5, "msg": "step",
    }  # fmt: skip
    return makers[parameter]() if parameter in makers else values[parameter]


def _text(answer: Any, accelerator: Any, values: bool = True) -> str:
    if isinstance(answer, torch.Tensor):
        pinned = f", pinned {accelerator.is_pinned(answer)}" if answer.device.type == "cpu" else ""
        content = answer.tolist() if values and answer.numel() < 9 else f"of shape {tuple(answer.shape)}"
        return f"tensor {answer.device} {answer.dtype} {content}{pinned}"
    if callable(answer) and not inspect.isroutine(answer):
        try:
            # A constructor of tensors.
            made = answer([1, 2])
            return f"makes {made.dtype} on {made.device.type}"
        except Exception:
            return f"class {answer.__name__}" if isinstance(answer, type) else "callable"
    if isinstance(answer, (str, int, float, bool, type(None), torch.device, torch.dtype)):
        return repr(answer)
    if isinstance(answer, dict):
        return f"dict with {', '.join(sorted(map(str, answer))[:4])} …"
    if isinstance(answer, (list, tuple)):
        return f"[{', '.join(_text(each, accelerator) for each in answer)}]"
    if hasattr(answer, "__enter__"):
        return "context manager"
    if inspect.ismodule(answer):
        return f"module {answer.__name__}"
    return f"{type(answer).__name__} object"


def _builders(stock: Any) -> list[str]:
    """The names of the builders that DeepSpeed has for the device."""
    names = [
        name for name in dir(importlib.import_module(stock.op_builder_dir())) if _BUILDER.fullmatch(name)
    ]
    return [name for name in names if getattr(stock.get_op_builder(name), "__name__", "") == name]


# ----------------------------------------------------------------------------------------- in the starting process


def on_device(device: str, folder: Path | None, *arguments: str) -> str:
    """Return what this Python prints with the DeepSpeed of a folder, on a device that is simulated but for the CPU."""
    sim = () if device == "cpu" else (sys.executable, "-m", "accel_core.cli", "sim", device, "--")
    paths = [str(each) for each in (folder, Path.cwd(), os.environ.get("PYTHONPATH")) if each]
    variables = {**os.environ, "DS_ACCELERATOR": device, "PYTHONPATH": os.pathsep.join(paths)}
    if folder:
        # Stock DeepSpeed compiles by names that all trees share.
        variables["TORCH_EXTENSIONS_DIR"] = str(folder / "extensions")
    # It ends the whole process group, after half an hour.
    return run("timeout", "--kill-after=9", "30m", *sim, sys.executable, *arguments, env=variables)


def reason(found: Sequence[str], release: str, meant: Sequence[Mapping[str, str]]) -> str:
    """Return why a difference is meant; empty if it is not listed."""
    device, call, _, ours = found
    for row in meant:
        devices = row.get("devices", "*").split()
        if (
            any(fnmatch.fnmatch(device, each) for each in devices)
            and any(fnmatch.fnmatch(call, each) for each in row["calls"].split(", "))
            and fnmatch.fnmatchcase(ours, row.get("ours", "*"))
            and SpecifierSet(row.get("deepspeed", "")).contains(release)
        ):
            return row["reason"]
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, report what is not listed, keep it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m ci.parity", description="DeepSpeed's classes and ours.")
    parser.add_argument("--accel", choices=DEVICES, action="append", help="a device (default: all)")
    parser.add_argument("--deepspeed", type=Path, metavar="FOLDER", help="a folder with another DeepSpeed")
    parser.add_argument("--record", action="store_true", help=f"keep what was found, and write {PAGE}")
    parser.add_argument("--here", choices=DEVICES, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.here:
        print(_MARK + json.dumps([importlib.metadata.version("deepspeed"), *compare(options.here)]))
        return 0
    meant = workspace.read_toml(MEANT)["meant"]
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.is_file() else {}
    news = []
    for device in options.accel or DEVICES:
        printed = on_device(device, options.deepspeed, "-m", "ci.parity", "--here", device)
        release, calls, differences = json.loads(printed.partition(_MARK)[2].partition("\n")[0])
        rows = [[*each, reason(each, release, meant)] for each in differences]
        kept.setdefault(release, {})[device] = {"calls": calls, "differences": rows}
        for _, call, stock, ours, why in rows:
            if not why:
                what = f"{device}: {call} differs from DeepSpeed {release}: {ours}, not {stock}"
                news.append(Problem(f"{what}; equal it, or list it in {MEANT} with the reason"))
    if options.record:
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page("parity", kept=kept, devices=DEVICES), encoding="utf-8")
    return report(news, "every difference from DeepSpeed's classes is meant")


if __name__ == "__main__":
    sys.exit(main())
