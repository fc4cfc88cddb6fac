# The target `llhttp`, which parses HTTP/1.1: the system's, from 9.3 on (Debian 13: libllhttp-dev), or else its C files
# in build/deps/llhttp, where `./dev packages build` has put them (cmake/llhttp.txt).
pkg_check_modules(LLHTTP IMPORTED_TARGET libllhttp>=9.3)
if(LLHTTP_FOUND)
  add_library(llhttp INTERFACE)
  target_link_libraries(llhttp INTERFACE PkgConfig::LLHTTP)
else()
  set(llhttp ${CMAKE_SOURCE_DIR}/build/deps/llhttp)
  if(NOT EXISTS ${llhttp}/src/llhttp.c)
    message(FATAL_ERROR "llhttp is missing. Install it with its pkg-config file (Debian 13: libllhttp-dev), or run "
                        "`./dev packages build`, which puts its sources into build/deps/llhttp.")
  endif()
  add_library(llhttp STATIC ${llhttp}/src/api.c ${llhttp}/src/http.c ${llhttp}/src/llhttp.c)
  target_include_directories(llhttp SYSTEM PUBLIC ${llhttp}/include)
  target_compile_options(llhttp PRIVATE -O2 -w)
  install(FILES ${llhttp}/LICENSE-MIT DESTINATION share/fovea RENAME llhttp-license.txt)
endif()
