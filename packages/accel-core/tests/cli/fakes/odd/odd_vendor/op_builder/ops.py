# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Builders whose op works, cannot be loaded, crashes, and is loaded once a file exists."""

import os
import time

from accel_core.op_builder import fused


class FusedAdamBuilder(fused.FusedAdamBuilder):
    loaded = prepared = False

    def compatibility(self):
        ready = self.loaded and self.prepared
        return True, f"plain torch in {os.getpid()}" if ready else "to be compiled when first used"

    def load(self, verbose=True):
        self.loaded = True
        return super().load()

    def prepare(self):
        self.prepared = True


class OddLastBuilder(FusedAdamBuilder):
    pass


class FusedLionBuilder(fused.FusedLionBuilder):
    def load(self, verbose=True):
        os.write(2, b"assertion failed in odd.cpp\n")
        os.abort()


class FusedLambBuilder(fused.FusedLambBuilder):
    def load(self, verbose=True):
        raise OSError("libodd.so: cannot open shared object file")


class OddSlowBuilder(FusedAdamBuilder):
    def load(self, verbose=True):
        while not os.path.exists(os.environ.get("ODD_WAIT", "/nowhere")):
            time.sleep(0.02)
        return super().load()
