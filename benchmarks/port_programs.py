# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Write docs/results/port-programs.md: ports by regular expressions beside those of accel port.

The rules are those of DeepSpeed's tutorial "Accelerator Abstraction Interface", which asks to rewrite by hand.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accel_port.porting import port
from benchmarks import results

TESTS = Path(__file__).resolve().parent.parent / "packages" / "accel-port" / "tests"
sys.path.insert(0, str(TESTS))

_A = "get_accelerator()"
_RULES = [
    (r"torch\.cuda\.current_device\(\)(?=\))", f"{_A}.current_device_name()"),
    (r"torch\.device\(['\"]cuda['\"],\s*(\w+)\)", rf"torch.device({_A}.device_name(\1))"),
    (r"torch\.cuda\.(?!amp\b)", f"{_A}."),
    (r"\.cuda\(\)", f".to({_A}.device_name())"),
    (r"\.cuda\(([^()]+)\)", rf".to({_A}.device_name(\1))"),
    (r"(\w+(?:\.\w+)*)\.is_cuda\b", rf"{_A}.on_accelerator(\1)"),
    (r"f['\"]cuda:\{([^{}]+)\}['\"]", rf"{_A}.device_name(\1)"),
    (r"['\"]cuda:(\d)['\"]", rf"{_A}.device_name(\1)"),
    (r"['\"]cuda['\"]", f"{_A}.device_name()"),
    (r"['\"]nccl['\"]", f"{_A}.communication_backend_name()"),
]


def by_expressions(text: str) -> str:
    """Port a program by the document's rules, as a person with an editor would."""
    after = text
    for pattern, new in _RULES:
        after = re.sub(pattern, new, after)
    line = "from deepspeed.accelerator import get_accelerator\n"
    return (
        after
        if after == text
        else re.sub(r"^(import torch\b.*\n)", rf"\1{line}", after, count=1, flags=re.MULTILINE)
    )


WAYS: dict[str, Callable[[str], str]] = {
    "regular expressions": by_expressions,
    "accel port": lambda text: port(text).text,
}


def main() -> int:
    """Port, run, compare with the programs before the port, and write the table."""
    import test_programs as harness

    parser = results.parser(__doc__)
    parser.add_argument("--devices", nargs="+", default=["cpu", "npu", "hpu"])
    options = parser.parse_args()
    names = [name for name in harness.PROGRAMS if name.endswith(".py")]
    need = {name: harness.ON_DEVICES.get(name, {}) for name in names}
    alone: dict[str, dict[str, Any]] = {name: {} for name in names if name not in harness.NEED_A_DEVICE}
    expected = {
        "cpu": harness.run(harness.FOLDER, alone, "cpu"),
        "cuda": harness.run(harness.FOLDER, need, "cuda"),
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for way, ported in WAYS.items():
            after = Path(folder, way.replace(" ", "-"))
            shutil.copytree(harness.FOLDER, after)
            for path in after.rglob("*.py"):
                path.write_text(ported(path.read_text(encoding="utf-8")), encoding="utf-8")
            row: dict[str, Any] = {"ported by": way}
            for device in options.devices:
                wanted = expected["cpu" if device == "cpu" else "cuda"]
                tried = alone if device == "cpu" else need
                chosen = {n: with_ for n, with_ in tried.items() if (n, device) not in harness.CANNOT}
                printed = harness.run(after, chosen, device)
                good = [name for name in chosen if printed[name] == wanted[name]]
                row[f"{device}: as before"] = f"{len(good)} of {len(chosen)}"
                bad = ", ".join(sorted(set(chosen) - set(good))) or "none"
                print(f"{way} on {device}: {row[f'{device}: as before']}; not as before: {bad}", flush=True)
            rows.append(row)
    text = (
        f"{len(names)} programs in the styles that people write (`packages/accel-port/tests/programs`), ported by the"
        " rules of DeepSpeed's tutorial as regular expressions, and by `accel port`. *As before* compares all that a"
        " program prints, its losses included: on the CPU with the program before its port, on a simulated device with"
        " the program on simulated CUDA. On the CPU those that need a device are left out."
    )
    results.write("port-programs", "Programs that still run after a port", text, rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
