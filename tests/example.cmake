# The worked example of CONTRIBUTING.md: its blocks are taken from the page, applied beside the sources, built and
# run. Of the tree only what expands methods.def is compiled again, over a methods.def with the example's rows; the
# rest is the build's own. A block is a fence behind a line `<!-- example: PATH -->`.
set(page ${CMAKE_SOURCE_DIR}/CONTRIBUTING.md)
set(table ${CMAKE_SOURCE_DIR}/policy/methods.def)
set(example ${CMAKE_BINARY_DIR}/example)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page} ${table})

# The text between two others, which must be there, one behind the other.
function(between text begin end out)
  string(FIND "${text}" "${begin}" from)
  if(from EQUAL -1)
    message(FATAL_ERROR "CONTRIBUTING.md, the worked example: there is no ${begin}")
  endif()
  string(LENGTH "${begin}" length)
  math(EXPR from "${from} + ${length}")
  string(SUBSTRING "${text}" ${from} -1 rest)
  string(FIND "${rest}" "${end}" length)
  string(SUBSTRING "${rest}" 0 ${length} found)
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Written where it differs, so that nothing is built again without a reason.
function(put path text)
  file(CONFIGURE OUTPUT ${example}/${path} CONTENT "${text}" @ONLY NEWLINE_STYLE UNIX)
endfunction()

file(READ ${page} text)
foreach(path prefill-worker/prune/stride.c policy/methods.def tests/unit/prefill-worker/prune/test_stride.c)
  between("${text}" "<!-- example: ${path} -->\n```c\n" "```" block)
  if(path STREQUAL policy/methods.def)
    # Behind the stage's methods: ahead of the next stage.
    file(READ ${table} rows)
    string(REPLACE "FV_STAGE(LAZY," "${block}\nFV_STAGE(LAZY," block "${rows}")
  endif()
  put(${path} "${block}")
endforeach()

# A library's part is taken from here, and the library's own file is left out by the linker.
set(expanded policy/table.c policy/plan/plan.c policy/conflicts.c prefill-worker/prune/prune.c)
list(TRANSFORM expanded PREPEND ${CMAKE_SOURCE_DIR}/)
add_library(example_method OBJECT ${expanded} ${example}/prefill-worker/prune/stride.c)
target_link_libraries(example_method PRIVATE test_support fovea_flags)

foreach(source ${example}/tests/unit/prefill-worker/prune/test_stride.c ${CMAKE_CURRENT_SOURCE_DIR}/unit/policy/test_every_policy.c)
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source} $<TARGET_OBJECTS:example_method>)
  target_link_libraries(example_${name} PRIVATE test_support fovea_flags PkgConfig::CRITERION)
  fovea_add_test(unit example_${name} --verbose)
endforeach()
foreach(target example_method example_test_stride example_test_every_policy)
  target_include_directories(${target} BEFORE PRIVATE ${example} ${CMAKE_SOURCE_DIR})
endforeach()
