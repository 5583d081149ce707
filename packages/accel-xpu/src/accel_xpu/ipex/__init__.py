# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The variant to an Intel GPU through Intel Extension for PyTorch."""
