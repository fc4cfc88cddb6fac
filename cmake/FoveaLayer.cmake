# A folder with sources is a layer, and a layer is a library.
#
# fovea_layer([DEPENDS folder...] [FOLDERS folder...] [LIBS target...])
#
# Called by the folder's CMakeLists.txt: adds the static library fovea_NAME of the *.c files of this
# folder, where NAME is its path with `_` for `/` and `-`. A file main.c is a program's, and no part of
# it. The sources are compiled with one include directory, build/layers/NAME, which holds the headers
# of this layer, of those in DEPENDS, and of those that these depend on. So an upward include does
# not compile. Folders below this one are layers of their own, except FOLDERS, which belong to this one.
#
# fovea_program(PROGRAM [DEPENDS folder...])
#
# The executable PROGRAM of this folder's main.c, which sees this layer, if the folder is one, and those
# in DEPENDS.
#
# fovea_isas(FILE OUT)
#
# Sets OUT to the names of the instruction sets in FILE, rows FV_ISA(name, "flags"), and flags_NAME to their flags.
#
# Global properties, for the tests: FOVEA_LAYERS, the folders in their order; FOVEA_SEES_folder, those
# whose headers a layer sees, itself included; FOVEA_FOLDERS_folder, a layer's own.

# The path of `folder`, as part of a name.
function(fovea_name folder out)
  string(REGEX REPLACE "[/-]" "_" name ${folder})
  set(${out} ${name} PARENT_SCOPE)
endfunction()

# All that is seen by who depends on `folders`, in `out`.
function(fovea_seen folders out)
  set(seen)
  foreach(folder IN LISTS folders)
    get_property(below GLOBAL PROPERTY FOVEA_SEES_${folder})
    if(NOT below)
      message(FATAL_ERROR "there is no layer ${folder} below this one")
    endif()
    list(APPEND seen ${below})
  endforeach()
  list(REMOVE_DUPLICATES seen)
  set(${out} ${seen} PARENT_SCOPE)
endfunction()

# Links the headers of `folders` in `view`, anew each time. (Links are removed, never what they lead to.)
function(fovea_view view folders)
  file(REMOVE_RECURSE ${view})
  foreach(folder IN LISTS folders)
    file(GLOB headers RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*.h
         ${CMAKE_SOURCE_DIR}/${folder}/*.def ${CMAKE_SOURCE_DIR}/${folder}/*.inc
         ${CMAKE_SOURCE_DIR}/${folder}/*.cuh)
    file(MAKE_DIRECTORY ${view}/${folder})
    foreach(header IN LISTS headers)
      file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${header} ${view}/${header} SYMBOLIC)
    endforeach()
  endforeach()
endfunction()

function(fovea_isas file out)
  file(STRINGS ${file} rows REGEX "^FV_ISA\\(")
  set(names)
  foreach(row IN LISTS rows)
    string(REGEX MATCH "^FV_ISA\\(([a-z0-9]+), \"(.*)\"\\)" row "${row}")
    list(APPEND names ${CMAKE_MATCH_1})
    string(REPLACE " " ";" flags "${CMAKE_MATCH_2}")
    set(flags_${CMAKE_MATCH_1} ${flags} PARENT_SCOPE)
  endforeach()
  set(${out} ${names} PARENT_SCOPE)
endfunction()

# AddressSanitizer's preset compiles with -O0, in half the time, but for the layers that compute.
set(layers_that_compute "^(common|handoff|packed|kernels|kernels/cpu|factor|kv|model/net|prefill-worker/.*|text/?.*)$")

# Loops over arrays of numbers, which are faster when a store to one kind of number leaves the others.
set(layers_that_keep_strict_aliasing "^(kernels|kernels/cpu|factor|packed)$")

function(fovea_layer)
  cmake_parse_arguments(A "" "" "DEPENDS;FOLDERS;LIBS" ${ARGN})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  fovea_name(${folder} name)
  fovea_seen("${A_DEPENDS}" seen)
  list(APPEND seen ${folder})
  list(TRANSFORM A_FOLDERS PREPEND ${folder}/ OUTPUT_VARIABLE inner)
  list(APPEND seen ${inner})
  set_property(GLOBAL APPEND PROPERTY FOVEA_LAYERS ${folder})
  set_property(GLOBAL PROPERTY FOVEA_FOLDERS_${folder} ${folder} ${inner})
  set_property(GLOBAL PROPERTY FOVEA_SEES_${folder} ${seen})
  fovea_view(${CMAKE_BINARY_DIR}/layers/${name} "${seen}")
  file(GLOB sources CONFIGURE_DEPENDS *.c)
  foreach(inside IN LISTS A_FOLDERS)
    file(GLOB more CONFIGURE_DEPENDS ${inside}/*.c)
    list(APPEND sources ${more})
  endforeach()
  list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/main.c)
  if(NOT sources)
    file(GLOB sources CONFIGURE_DEPENDS *.h)
    set_source_files_properties(${sources} PROPERTIES LANGUAGE C)
  endif()
  add_library(fovea_${name} STATIC ${sources})
  target_include_directories(fovea_${name} PRIVATE ${CMAKE_BINARY_DIR}/layers/${name})
  target_link_libraries(fovea_${name} PRIVATE fovea_flags PUBLIC ${A_LIBS})
  if(folder MATCHES "${layers_that_keep_strict_aliasing}")
    set_property(TARGET fovea_${name} PROPERTY FOVEA_STRICT_ALIASING ON)
  endif()
  if(FOVEA_SANITIZE MATCHES address AND folder MATCHES "${layers_that_compute}")
    target_compile_options(fovea_${name} PRIVATE -O1)
  endif()
  foreach(below IN LISTS A_DEPENDS)
    fovea_name(${below} target)
    target_link_libraries(fovea_${name} PUBLIC fovea_${target})
  endforeach()
endfunction()

function(fovea_program program)
  cmake_parse_arguments(A "" "" "DEPENDS" ${ARGN})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  get_property(layers GLOBAL PROPERTY FOVEA_LAYERS)
  if(folder IN_LIST layers)
    list(APPEND A_DEPENDS ${folder})
  endif()
  fovea_seen("${A_DEPENDS}" seen)
  fovea_view(${CMAKE_BINARY_DIR}/layers/${program} "${seen}")
  add_executable(${program} main.c)
  target_include_directories(${program} PRIVATE ${CMAKE_BINARY_DIR}/layers/${program})
  target_link_libraries(${program} PRIVATE fovea_flags)
  foreach(below IN LISTS A_DEPENDS)
    fovea_name(${below} target)
    target_link_libraries(${program} PRIVATE fovea_${target})
  endforeach()
  install(TARGETS ${program})
endfunction()
