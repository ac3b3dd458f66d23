// Connects the undocumented tables of remoting/driverabi to this library's state.
#pragma once

namespace headrace::client {

void set_export_hooks();

}  // namespace headrace::client
