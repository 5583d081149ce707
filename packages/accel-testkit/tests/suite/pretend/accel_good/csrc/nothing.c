// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
/* A source that is looked for, and compiled by nobody. */
