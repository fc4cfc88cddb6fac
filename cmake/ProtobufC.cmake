# fovea_proto_library(TARGET ROOT dir SYMBOL name PROTOS file...)
#
# Adds the static library TARGET: each .proto (relative to ROOT) as protobuf-c code, and all of them
# as a serialized FileDescriptorSet in the bytes `SYMBOL_set`, whose number is `SYMBOL_set_size`
# (rpc/reflection.h serves them). Generated code is not ours to lint: its headers are SYSTEM.
find_program(PROTOC_EXECUTABLE protoc REQUIRED)
find_program(PROTOC_GEN_C_EXECUTABLE protoc-gen-c REQUIRED)

function(fovea_proto_library target)
  cmake_parse_arguments(A "" "ROOT;SYMBOL" "PROTOS" ${ARGN})
  set(out ${CMAKE_BINARY_DIR}/gen)
  file(MAKE_DIRECTORY ${out})
  list(TRANSFORM A_PROTOS PREPEND ${A_ROOT}/ OUTPUT_VARIABLE files)
  set(sources)
  set(folders) # our own contracts are included by their file's name: "inference.pb-c.h"
  foreach(proto IN LISTS A_PROTOS)
    string(REGEX REPLACE "\\.proto$" "" base ${proto})
    get_filename_component(folder ${proto} DIRECTORY)
    if(folder MATCHES "^fovea/")
      list(APPEND folders ${out}/${folder})
    endif()
    # A change in one may change what others import: all depend on all.
    add_custom_command(OUTPUT ${out}/${base}.pb-c.c ${out}/${base}.pb-c.h
      COMMAND ${PROTOC_EXECUTABLE} --plugin=protoc-gen-c=${PROTOC_GEN_C_EXECUTABLE}
              -I ${A_ROOT} --c_out=${out} ${proto}
      DEPENDS ${files} WORKING_DIRECTORY ${A_ROOT} VERBATIM COMMENT "protoc-gen-c ${proto}")
    list(APPEND sources ${out}/${base}.pb-c.c ${out}/${base}.pb-c.h)
  endforeach()

  set(set ${out}/${A_SYMBOL}.bin)
  add_custom_command(OUTPUT ${set}
    COMMAND ${PROTOC_EXECUTABLE} -I ${A_ROOT} --include_imports --descriptor_set_out=${set} ${A_PROTOS}
    DEPENDS ${files} WORKING_DIRECTORY ${A_ROOT} VERBATIM COMMENT "protoc descriptor set")
  fovea_embed(NAME ${A_SYMBOL} SYMBOL ${A_SYMBOL}_set FILE ${set}
              ABOUT "The contracts as a serialized FileDescriptorSet.")

  add_library(${target} STATIC ${sources} ${out}/${A_SYMBOL}.c)
  set_target_properties(${target} PROPERTIES C_CLANG_TIDY "")
  target_include_directories(${target} SYSTEM PUBLIC ${folders} ${out})
  target_link_libraries(${target} PUBLIC PkgConfig::PROTOBUFC)
endfunction()
