# fovea_embed(NAME name SYMBOL symbol FILE file ABOUT sentence)
#
# Writes gen/NAME.c and gen/NAME.h in the build folder: the bytes of a file as `symbol`, their number
# as `symbol_size`. The object is built again when the file changes.
function(fovea_embed)
  cmake_parse_arguments(E "" "NAME;SYMBOL;FILE;ABOUT" "" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${out})
  file(CONFIGURE OUTPUT ${out}/${E_NAME}.c @ONLY CONTENT [[
__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global @E_SYMBOL@\n"
        "@E_SYMBOL@:\n"
        ".incbin \"@E_FILE@\"\n"
        "1:\n"
        ".balign 8\n"
        ".global @E_SYMBOL@_size\n"
        "@E_SYMBOL@_size:\n"
        ".quad 1b - @E_SYMBOL@\n"
        ".text\n");
]])
  file(CONFIGURE OUTPUT ${out}/${E_NAME}.h @ONLY CONTENT [[
/* @E_ABOUT@ */
#include <stdint.h>
extern const uint8_t @E_SYMBOL@[];
extern const uint64_t @E_SYMBOL@_size;
]])
  set_source_files_properties(${out}/${E_NAME}.c PROPERTIES OBJECT_DEPENDS ${E_FILE})
endfunction()
