# Compiles each public header alone, as C11 and as C++17: it includes what it uses, and C++ can
# use it. Run by ctest (tests/lint/CMakeLists.txt) with
#   SOURCE    root of the sources
#   COMPILER  gcc or clang
#   VIEWS     "dir=view,..."; headers in `dir` see the include directory `view`
set(flags -fsyntax-only -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Wshadow -Werror -Wfatal-errors)
set(c -x c -std=c11 -Wstrict-prototypes -Wmissing-prototypes)
set(c++ -x c++ -std=c++17)
# Headers of one CPU path are compiled for its instructions, as the path is; they are C only.
set(avx2 -mavx2 -mfma -mf16c)
set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq)

set(languages c)
execute_process(COMMAND ${COMPILER} -x c++ -fsyntax-only /dev/null RESULT_VARIABLE missing
                OUTPUT_QUIET ERROR_QUIET)
if(missing)
  message("skip: headers as C++, for ${COMPILER} has no C++ compiler (package g++)")
else()
  list(APPEND languages c++)
endif()

string(REPLACE "," ";" VIEWS "${VIEWS}")
set(checked 0)
set(failed 0)
set(seen)
foreach(entry IN LISTS VIEWS)
  string(REPLACE "=" ";" entry ${entry})
  list(GET entry 0 dir)
  list(GET entry 1 view)
  file(GLOB headers RELATIVE ${SOURCE} ${SOURCE}/${dir}/*.h)
  list(REMOVE_ITEM headers ${seen} "")
  list(APPEND seen ${headers})
  foreach(header IN LISTS headers)
    string(REGEX MATCH "avx[0-9]+" instructions ${header})
    foreach(language IN LISTS languages)
      if(instructions AND NOT language STREQUAL c)
        continue()
      endif()
      # The header is included twice: its guard is part of what is checked.
      file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/header_alone.c
           "#include \"${header}\"\n#include \"${header}\"\ntypedef int not_empty;\n")
      execute_process(
        COMMAND ${COMPILER} ${flags} ${${language}} ${${instructions}} -I ${view}
                ${CMAKE_CURRENT_BINARY_DIR}/header_alone.c
        RESULT_VARIABLE code ERROR_VARIABLE said)
      math(EXPR checked "${checked} + 1")
      if(NOT code EQUAL 0)
        math(EXPR failed "${failed} + 1")
        message("${header} does not compile alone as ${language}:\n${said}")
      endif()
    endforeach()
  endforeach()
endforeach()
message("${checked} compilations of headers, ${failed} failed")
if(failed OR checked EQUAL 0)
  message(FATAL_ERROR "headers must include what they use and compile as C and as C++")
endif()
