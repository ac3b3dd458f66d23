// Functions that are made of others, and the log of the driver, which is empty.
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <set>

#include "driverabi/arrays.h"
#include "driverabi/stream_memory.h"
#include "gen/client_families.h"

namespace headrace::client::families {

#define HEADRACE_BODY(name) families::name
#include "driverabi/composed_bodies.inc"
#undef HEADRACE_BODY

}  // namespace headrace::client::families
