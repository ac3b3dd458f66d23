// The commands of `headrace`.
#pragma once

#include <span>

#include "launcher/options.h"

namespace headrace::launcher {

std::span<const Command> commands();

int run_program(const Values& values, const std::vector<std::string>& rest);
int show_smi(const Values& values, const std::vector<std::string>& rest);
int list_gpus(const Values& values, const std::vector<std::string>& rest);
int show_version(const Values& values, const std::vector<std::string>& rest);
int show_help(const Values& values, const std::vector<std::string>& rest);

// "headrace: WHAT: why", and the next step. Returns `code`.
int complain(const std::string& what, const Error& error, int code);

}  // namespace headrace::launcher
