// Where the client's certificate is and which server it is for.
#pragma once

#include <string>
#include <vector>

#include "common/credentials.h"
#include "common/errors.h"
#include "common/socket.h"

namespace headrace::launcher {

struct Config {
  std::string folder;
  Endpoint server;
  Identity identity;
  std::vector<Certificate> trust;
};

// `folder` from --config, otherwise HEADRACE_CONFIG, otherwise the first that exists of
// $XDG_CONFIG_HOME/headrace (~/.config/headrace) and /etc/headrace. It has client.conf
// (`server HOST:PORT`), client.pem, client.key and ca.pem. `server` (from --server) comes before
// the file's.
Result<Config> load_config(const std::string& folder, const std::string& server);

}  // namespace headrace::launcher
