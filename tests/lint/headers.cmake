# Compiles each header alone, as C11 and as C++17: it includes what it uses, and C++ can use it.
# Run by ctest (CMakeLists.txt here) with
#   SOURCE    root of the sources
#   COMPILER  gcc or clang
#   GENERATED where the code made from proto/ lies
#   LAYERS    a file that sets `layers`, the folders
#   VIEWS     folder of the views: what the headers of a layer may include
# C only are headers of one CPU path, which are compiled for its instructions as the path is, and
# what stays inside a folder (internal.h, x_internal.h).
cmake_minimum_required(VERSION 3.25)
set(flags -fsyntax-only -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow -Werror -Wfatal-errors)
set(c -x c -std=c11 -Wstrict-prototypes -Wmissing-prototypes)
set(c++ -x c++ -std=c++17)
set(avx2 -mavx2 -mfma -mf16c)
set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)
list(APPEND avx2 -Wno-unused-function) # operations of a path are static, for its table alone
list(APPEND avx512 -Wno-unused-function)

set(languages c)
execute_process(COMMAND ${COMPILER} -x c++ -fsyntax-only /dev/null RESULT_VARIABLE missing
                OUTPUT_QUIET ERROR_QUIET)
if(missing)
  message("skip: headers as C++, for ${COMPILER} has no C++ compiler (package g++)")
else()
  list(APPEND languages c++)
endif()

include(${LAYERS})

# Our own contracts are included by their file's name, as cmake/ProtobufC.cmake has it.
set(generated)
file(GLOB folders ${GENERATED}/fovea/*/v1)
foreach(folder IN ITEMS ${folders} ${GENERATED})
  list(APPEND generated -isystem ${folder})
endforeach()

set(checked 0)
set(failed 0)
set(alone ${CMAKE_CURRENT_BINARY_DIR}/header_alone.c)
foreach(layer IN LISTS layers)
  string(REGEX REPLACE "[/-]" "_" view ${layer})
  file(GLOB headers RELATIVE ${SOURCE} ${SOURCE}/${layer}/*.h)
  foreach(header IN LISTS headers)
    string(REGEX MATCH "avx[0-9]+" instructions ${header})
    if(NOT instructions AND header MATCHES "lanes\\.h$")
      set(instructions avx512)
    endif()
    # It is included twice: its guard is part of what is checked.
    file(WRITE ${alone} "#include \"${header}\"\n#include \"${header}\"\ntypedef int header_alone;\n")
    foreach(language IN LISTS languages)
      if(language STREQUAL "c++" AND (instructions OR header MATCHES "internal\\.h$"))
        continue()
      endif()
      execute_process(
        COMMAND ${COMPILER} ${flags} ${${language}} ${${instructions}} -I ${VIEWS}/${view} ${generated}
                ${alone}
        RESULT_VARIABLE code ERROR_VARIABLE said)
      math(EXPR checked "${checked} + 1")
      if(NOT code EQUAL 0)
        math(EXPR failed "${failed} + 1")
        message("${header} does not compile alone as ${language}:\n${said}")
      endif()
    endforeach()
  endforeach()
endforeach()
message("${checked} headers and languages, ${failed} failed")
if(failed OR checked EQUAL 0)
  message(FATAL_ERROR "headers must include what they use and compile as C and as C++")
endif()
