# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`accel new-vendor xyz`: write a vendor package to begin with, which passes the conformance suite as it is."""

from __future__ import annotations

import argparse
import importlib
import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accel_core import devices, install
from accel_core.cli.main import working
from accel_core.errors import InvalidCommand, InvalidInput
from accel_core.selection.candidates import discover

#: The template's questions: how an answer must look, and the same in words.
_QUESTIONS = {
    "key": (r"[a-z][a-z0-9]{1,15}", "2 to 16 lower-case letters and digits, a letter first, no word of Python's"),
    "hardware": (r'[^"\\\n]+', "one line without quotes and backslashes"),
    "runtime": (r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "the name of a module"),
    "collectives": (r"[a-z][a-z0-9_]*", "a backend's name, as torch.distributed has them: lower case"),
    "visible": (r"([A-Z][A-Z0-9_]*)?", "the name of an environment variable, upper case; empty if there is none"),
    "prefix": (r"[A-Za-z]\w{0,18}", "the beginning of a class name, of at most 19 characters"),
    "priority": (r"\d+", "a number"),
    "author": (r'[^"\\\n]+', "one line without quotes and backslashes"),
    "email": (r'[^@\s"\\]+@[^@\s"\\]+', "an e-mail address"),
    "url": (r'https?://[^\s"\\]*[^\s"\\/]', "an address that begins with https:// and does not end with a slash"),
}  # fmt: skip
_OURS = ("core", "host", "testkit")
_WHEELS = (
    "accel-core, accel-ops and accel-testkit are not on the package index yet: CONTRIBUTING.md says how tox and\n"
    "the pipeline get them.\n"
)

#: The build copies the template and the pages from the workspace's shared/ and docs/ into it: see hatch_build.py.
_PACKAGE = Path(__file__).parent


def template() -> Path:
    """Return the folder of the template: in the package, or in the workspace of an editable install."""
    packaged = _PACKAGE / "template"
    return packaged if packaged.is_dir() else _workspace() / "shared/template"


def page(name: str) -> Path:
    """Return the path of a page of the documentation, as `page("writing-a-vendor")`."""
    packaged = _PACKAGE / "docs"
    return (packaged if packaged.is_dir() else _workspace() / "docs") / f"{name}.md"


def _workspace() -> Path:
    return Path(__file__).resolve().parents[4]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command: the questions of the template, and where to."""
    parser.description = "Make the package accel-KEY of a new vendor, ready to be installed and tested."
    parser.add_argument("key", help="the value of DS_ACCELERATOR, and torch's name of the device type")
    parser.add_argument("--hardware", help="what users call the hardware (default: the key in capitals)")
    parser.add_argument("--runtime", help="the module that registers torch.KEY (default: torch_KEY)")
    parser.add_argument(
        "--collectives",
        help="its backend of torch.distributed; gloo, on copies in host memory, if it has none (default: KEYccl)",
    )
    parser.add_argument(
        "--visible",
        help="variable that restricts the devices; '' if there is none (default: KEY_VISIBLE_DEVICES)",
    )
    parser.add_argument("--prefix", help="beginning of the class name (default: KEY, for KEY_Accelerator)")
    parser.add_argument(
        "--priority",
        help="the present vendor with the highest one is chosen (default: 260, above cuda's 200)",
    )
    parser.add_argument("--author", help="who holds the copyright (default: The accel-KEY authors)")
    parser.add_argument("--email", help="where to reach them, for the metadata (default: none)")
    parser.add_argument("--url", help="the repository's address (default: a placeholder at forge.example)")
    parser.add_argument(
        "--no-privateuse1",
        dest="privateuse1",
        action="store_false",
        help="torch itself has this device type; the runtime does not claim PrivateUse1",
    )
    parser.add_argument(
        "--out", type=Path, default=Path(), help="folder in which accel-KEY is made (default: here)"
    )


def run(args: argparse.Namespace) -> int:
    """Check the answers, make the package, and say how to go on."""
    answers = {name: value for name, value in vars(args).items() if name in _QUESTIONS and value is not None}
    _check(answers)
    _refuse_taken(args.key)
    _template_engine()
    with working("asking torch for its device types"):
        _ask_torch(args.key, args.privateuse1)
    target = _target(args.out / f"accel-{args.key}")
    render({**answers, "privateuse1": args.privateuse1}, target)
    sys.stdout.write(_next_steps(args.key, target, args.privateuse1))
    return 0


def render(answers: Mapping[str, Any], target: Path) -> None:
    """Write the package; answers that are left out are the template's. Raises `InvalidCommand`."""
    typed = {name: int(value) if name == "priority" else value for name, value in answers.items()}
    _template_engine().run_copy(str(template()), target, data=typed, defaults=True, quiet=True)


def _template_engine() -> Any:
    try:
        return importlib.import_module("copier")
    except ImportError as error:
        raise InvalidCommand(
            f"a vendor package cannot be made: {type(error).__name__}: {error}",
            do="pip install 'copier>=9.3,<10'",
        ) from error


def _check(answers: Mapping[str, str]) -> None:
    for name, value in answers.items():
        pattern, words = _QUESTIONS[name]
        if re.fullmatch(pattern, value) and not keyword.iskeyword(value):
            continue
        raise InvalidInput(
            f"a vendor package cannot be made with this {name}: {value!r}; expected {words}",
            do=f"choose another {name}; {page('writing-a-vendor')} says what it is for",
        )


def _refuse_taken(key: str) -> None:
    owners = {name: f"the package accel-{name} of this project" for name in _OURS}
    owners |= {row.key: f"DeepSpeed's name of {row.class_name}" for row in devices.DEVICES}
    owners |= {vendor.key: f"the installed package {vendor.distribution}" for vendor in discover().vendors}
    if key in owners:
        raise InvalidInput(
            f"a new vendor cannot have this key: {key!r} is {owners[key]}",
            do="choose another key, or work on that package",
        )


def _ask_torch(key: str, claims: bool) -> None:
    import torch

    try:
        built_in = torch.device(key).type == key and torch._C._get_privateuse1_backend_name() != key
    except RuntimeError:
        built_in = False
    if built_in is claims:
        raise InvalidInput(
            f"a device type {key!r} does not go with {'' if claims else '--no-'}privateuse1: torch "
            f"{torch.__version__} has {'such a type' if built_in else 'no such type'}",
            do="add --no-privateuse1, or choose another key" if claims else "leave out --no-privateuse1",
        )


def _target(folder: Path) -> Path:
    if folder.exists():
        raise InvalidInput(
            f"a vendor package cannot be made here: {folder} is there already",
            do="choose another place with --out, or remove it",
        )
    return folder


def _next_steps(key: str, target: Path, simulated: bool) -> str:
    device = "accel sim tests/simulated.json -- " if simulated else ""
    return f"""made {target}

Next:
  cd {target}
  pip install -e .
  python -m pytest
  {device}python -m pytest --pyargs accel_testkit.suite --accel {key} --tier host

Then edit src/accel_{key}/ (probe, class, traits, ops), and read CONTRIBUTING.md: the first push, a release.
{_WHEELS if not install.ON_INDEX else ""}How each part works: {page("writing-a-vendor")}
"""
