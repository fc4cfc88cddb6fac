# fovea_layer(NAME FOLDER dir SOURCES glob... [EXCLUDE file...] [DEPENDS layer...] [LIBS target...])
#
# Adds the static library fovea_NAME. Its sources are compiled with one include directory,
# build/layers/NAME, which holds a link to its own folder and to the folders of the layers it
# depends on. So "model/config.h" does not exist for code in kernels/.
#
# The global property FOVEA_HEADER_VIEWS collects "dir=view" for tests/headers.cmake: headers in
# `dir` are compiled alone with `view`.
function(fovea_layer name)
  cmake_parse_arguments(A "" "FOLDER" "SOURCES;EXCLUDE;DEPENDS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${A_SOURCES})
  foreach(file IN LISTS A_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/${file})
  endforeach()
  set(view ${CMAKE_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${view})
  set(folders ${A_FOLDER})
  foreach(dep IN LISTS A_DEPENDS)
    get_target_property(folder fovea_${dep} FOVEA_FOLDER)
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${view}/${folder} SYMBOLIC)
  endforeach()
  foreach(glob IN LISTS A_SOURCES)
    get_filename_component(dir ${glob} DIRECTORY)
    set_property(GLOBAL APPEND PROPERTY FOVEA_HEADER_VIEWS ${dir}=${view})
  endforeach()
  add_library(fovea_${name} STATIC ${sources})
  set_target_properties(fovea_${name} PROPERTIES FOVEA_FOLDER ${A_FOLDER})
  target_include_directories(fovea_${name} PRIVATE ${view})
  target_link_libraries(fovea_${name} PRIVATE fovea_flags)
  list(TRANSFORM A_DEPENDS PREPEND fovea_)
  target_link_libraries(fovea_${name} PUBLIC ${A_DEPENDS} ${A_LIBS})
endfunction()
