# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
from typing import Any, overload

import torch

def amp_definitely_not_available() -> Any: ...
