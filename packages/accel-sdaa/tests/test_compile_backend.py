# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""teco_inductor is chosen where torch.compile has it, and asking loads no compiler."""

import subprocess
import sys
from types import SimpleNamespace

from accel_sdaa import compile_backend


def test_an_entry_point_registers_it(monkeypatch):
    points = [SimpleNamespace(name="other"), SimpleNamespace(name="teco_inductor")]
    monkeypatch.setattr(compile_backend, "entry_points", lambda group: points)
    assert compile_backend.default() == "teco_inductor"


def test_asking_leaves_the_compiler_alone_and_a_call_registers_it():
    source = (
        "import sys, torch; from accel_sdaa import compile_backend as c\n"
        "before = c.default(), 'torch._dynamo' in sys.modules\n"
        "torch._dynamo.register_backend(lambda graph, inputs: graph, name='teco_inductor')\n"
        "print(*before, c.default())"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["inductor", "False", "teco_inductor"]
