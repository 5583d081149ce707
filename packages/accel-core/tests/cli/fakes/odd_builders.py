# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The op table, and builders whose op works, cannot be loaded, crashes, and is loaded once a file exists."""

import os
import time
from types import SimpleNamespace

from accel_core.op_builder import OpBuilder, OpTable

NAMES = ("FusedAdamBuilder", "FusedLambBuilder", "FusedLionBuilder", "OddLastBuilder", "OddSlowBuilder")
TABLE = OpTable(__name__, {name: f"{__name__}:{name}" for name in NAMES})


def multi_tensor_adam(chunk_size, flag, lists, lr, *constants):
    """The first step of Adam changes each element by lr."""
    for grad, param in zip(lists[0], lists[1], strict=True):
        param.sub_(grad.sign() * lr)


class FusedAdamBuilder(OpBuilder):
    NAME = "fused_adam"
    loaded = prepared = False

    def compatibility(self):
        ready = self.loaded and self.prepared
        return True, f"plain torch in {os.getpid()}" if ready else "to be compiled when first used"

    def load(self, verbose=True):
        self.loaded = True
        return SimpleNamespace(multi_tensor_adam=multi_tensor_adam)

    def prepare(self):
        self.prepared = True


class OddLastBuilder(FusedAdamBuilder):
    pass


class FusedLionBuilder(FusedAdamBuilder):
    NAME = "fused_lion"

    def load(self, verbose=True):
        os.write(2, b"assertion failed in odd.cpp\n")
        os.abort()


class FusedLambBuilder(FusedAdamBuilder):
    NAME = "fused_lamb"

    def load(self, verbose=True):
        raise OSError("libodd.so: cannot open shared object file")


class OddSlowBuilder(FusedAdamBuilder):
    def load(self, verbose=True):
        while not os.path.exists(os.environ.get("ODD_WAIT", "/nowhere")):
            time.sleep(0.02)
        return super().load()
