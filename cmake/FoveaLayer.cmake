# fovea_layer(NAME FOLDER dir [PART] SOURCES glob... [EXCLUDE file...] [HEADERS file...]
#             [DEPENDS layer...] [LIBS target...])
#
# Adds the static library fovea_NAME. Its sources are compiled with one include directory,
# build/layers/NAME, which holds what the layer may include and nothing else: the headers of its own
# and those of the layers it depends on. So "model/config.h" does not exist for code in kernels/.
#
# A layer that has its folder for itself sees the folder. Layers that share one say PART, each of
# them, lowest first; then headers are linked one by one. x.h and x_internal.h are of the layer that
# compiles x.c; a header without such a source is of the first layer that has sources beside it.
# HEADERS names others that are of this layer, whoever compiles the source of that name.
#
# Global properties: FOVEA_HEADER_VIEWS collects "dir=view" for tests/headers.cmake: headers in `dir`
# are compiled alone with `view`. FOVEA_LAYERS has the names, FOVEA_FILES_name what a layer shows to
# those above it (a folder, or headers) and FOVEA_SEES_name whom it sees, itself included.

# The headers (and tables) of a part, in `out`; they are no other layer's then.
function(fovea_part_headers out dirs sources)
  get_property(taken GLOBAL PROPERTY FOVEA_TAKEN_HEADERS)
  set(mine)
  foreach(dir IN LISTS dirs)
    file(GLOB headers RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${dir}/*.h ${dir}/*.def ${dir}/*.inc)
    foreach(header IN LISTS headers)
      string(REGEX REPLACE "(_internal)?\\.(h|def|inc)$" ".c" source ${header})
      list(FIND sources ${CMAKE_SOURCE_DIR}/${source} at)
      if(header IN_LIST taken OR (at EQUAL -1 AND EXISTS ${CMAKE_SOURCE_DIR}/${source}))
        continue()
      endif()
      list(APPEND mine ${header})
    endforeach()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY FOVEA_TAKEN_HEADERS ${mine})
  set(${out} ${mine} PARENT_SCOPE)
endfunction()

function(fovea_layer name)
  cmake_parse_arguments(A "PART" "FOLDER" "SOURCES;EXCLUDE;HEADERS;DEPENDS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${A_SOURCES})
  foreach(file IN LISTS A_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/${file})
  endforeach()
  set(view ${CMAKE_BINARY_DIR}/layers/${name})
  set(dirs)
  foreach(glob IN LISTS A_SOURCES)
    get_filename_component(dir ${glob} DIRECTORY)
    list(APPEND dirs ${dir})
    set_property(GLOBAL APPEND PROPERTY FOVEA_HEADER_VIEWS ${dir}=${view})
  endforeach()
  list(REMOVE_DUPLICATES dirs)
  set(files ${A_FOLDER})
  get_property(folders GLOBAL PROPERTY FOVEA_FOLDERS)
  get_property(parted GLOBAL PROPERTY FOVEA_PARTED_FOLDERS)
  if(A_FOLDER IN_LIST folders AND NOT (A_PART AND A_FOLDER IN_LIST parted))
    message(FATAL_ERROR "layer ${name}: layers that share the folder ${A_FOLDER} say PART, each of them")
  endif()
  set_property(GLOBAL APPEND PROPERTY FOVEA_FOLDERS ${A_FOLDER})
  if(A_PART)
    set_property(GLOBAL APPEND PROPERTY FOVEA_PARTED_FOLDERS ${A_FOLDER})
    set_property(GLOBAL APPEND PROPERTY FOVEA_TAKEN_HEADERS ${A_HEADERS})
    fovea_part_headers(files "${dirs}" "${sources}")
    list(APPEND files ${A_HEADERS})
  endif()
  set_property(GLOBAL APPEND PROPERTY FOVEA_LAYERS ${name})
  set_property(GLOBAL PROPERTY FOVEA_FILES_${name} ${files})
  set_property(GLOBAL PROPERTY FOVEA_SEES_${name} ${A_DEPENDS} ${name})
  # Anew each time, so that nothing stays visible that is not any more. (Links are removed, and never
  # what they lead to.)
  file(REMOVE_RECURSE ${view})
  foreach(seen IN ITEMS ${A_DEPENDS} ${name})
    get_property(files GLOBAL PROPERTY FOVEA_FILES_${seen})
    foreach(file IN LISTS files)
      get_filename_component(dir ${view}/${file} DIRECTORY)
      file(MAKE_DIRECTORY ${dir})
      file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${file} ${view}/${file} SYMBOLIC)
    endforeach()
  endforeach()
  add_library(fovea_${name} STATIC ${sources})
  target_include_directories(fovea_${name} PRIVATE ${view})
  target_link_libraries(fovea_${name} PRIVATE fovea_flags)
  list(TRANSFORM A_DEPENDS PREPEND fovea_)
  target_link_libraries(fovea_${name} PUBLIC ${A_DEPENDS} ${A_LIBS})
endfunction()
