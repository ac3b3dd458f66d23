# HEADRACE_SANITIZE: empty, "address,undefined" or "thread"; set by the presets.
set(HEADRACE_SANITIZE "" CACHE STRING "Sanitizers to build with")
if(HEADRACE_SANITIZE)
  add_compile_options(-fsanitize=${HEADRACE_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${HEADRACE_SANITIZE})
endif()
