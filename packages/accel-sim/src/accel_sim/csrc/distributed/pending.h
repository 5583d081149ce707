// SPDX-FileCopyrightText: accel contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace accel_sim {

void finish_collectives();  // waits for every collective that has been started

} // namespace accel_sim
