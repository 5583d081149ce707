# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The variant for Intel GPUs with Intel Extension for PyTorch (IPEX)."""
