# Flags that make a memory error a crash instead of a way in, for all code, the generated too:
# checked calls of libc (_FORTIFY_SOURCE), canaries on the stack, addresses that cannot be guessed (PIE),
# tables of the loader that cannot be written (full RELRO), and no code on the stack. The CUDA compiler
# has options of its own, a sanitizer checks more, and without optimisation there is no fortifying.
# tests/lint/hardened.sh looks at the programs.
include(CheckCSourceCompiles)
include(CheckPIESupported)

if(NOT FOVEA_HARDEN OR FOVEA_SANITIZE OR FOVEA_FUZZ OR FOVEA_COVERAGE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(FOVEA_HARDENED OFF)
  return()
endif()
set(FOVEA_HARDENED ON)
check_pie_supported(LANGUAGES C)

# Level 3 needs GCC 12 and glibc 2.34.
set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -Werror")
check_c_source_compiles("
  #include <string.h>
  #if !defined(__USE_FORTIFY_LEVEL) || __USE_FORTIFY_LEVEL < 3
  #error the C library or the compiler has no level 3
  #endif
  int main(void) { return 0; }" FOVEA_FORTIFY_3)
unset(CMAKE_REQUIRED_FLAGS)
set(fortify $<IF:$<BOOL:${FOVEA_FORTIFY_3}>,3,2>)

add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=${fortify};-fstack-protector-strong>")
add_link_options(LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
