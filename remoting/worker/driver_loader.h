// The driver, loaded only after a grant names it (PROTOCOL.md §11.4).
#pragma once

#include <memory>

#include "common/errors.h"
#include "gen/driver_table.h"
#include "gen/messages.h"
#include "worker/session.h"

namespace headrace::worker {

// Clears LD_* and CUDA_*, sets the grant's environment, loads the library by its absolute path and
// initialises it. Refuses a library that is our own client: an appliance may be a client, too.
Result<std::unique_ptr<DriverTable>> load_driver(const protocol::SessionGrant& grant);

// Finds the granted devices in the driver, by UUID.
Result<std::vector<SessionDevice>> find_devices(const DriverTable& driver,
                                                const protocol::SessionGrant& grant);

// What the client is told about a device: the slice, not the whole GPU.
protocol::Device describe_device(const DriverTable& driver, const SessionDevice& device,
                                 const protocol::GrantedDevice& granted, bool software);

}  // namespace headrace::worker
