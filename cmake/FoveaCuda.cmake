# The CUDA plugin, libfovea_cuda.so beside the programs, where nvcc is found: by CUDACXX, on the PATH,
# or in /usr/local/cuda. Elsewhere everything else is built as ever. It links no driver and no cuBLAS:
# both are looked for when a device is asked for.
#
#   FOVEA_CUDA        AUTO, ON (an error without nvcc) or OFF
#   FOVEA_CUDA_ARCHS  what it is compiled for, as in CMAKE_CUDA_ARCHITECTURES
#
# A digest of the headers that program and plugin must share is
# compiled into both (kernels/plugin.h).
set(FOVEA_CUDA AUTO CACHE STRING "The CUDA plugin: AUTO, ON, OFF")
set(FOVEA_CUDA_ARCHS "80-real;90a-real;100" CACHE STRING "GPU architectures of the plugin")

set(shared_headers common/buf.h common/dtype.h common/peer.h common/status.h kernels/ops.def kernels/ops.h
                   kernels/plugin.h kernels/tensor.h packed/codes.h packed/latent.h packed/lowrank.h packed/part.h)
set(contract "")
foreach(header IN LISTS shared_headers)
  file(SHA256 ${CMAKE_SOURCE_DIR}/${header} digest)
  string(APPEND contract ${digest})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${header})
endforeach()
string(SHA256 contract "${contract}")
set(FOVEA_PLUGIN_CONTRACT "FV_PLUGIN_CONTRACT=\"${contract}\"")
target_compile_definitions(fovea_kernels_backends PRIVATE ${FOVEA_PLUGIN_CONTRACT})
# Headers that the plugin's sources may include.
fovea_view(${CMAKE_BINARY_DIR}/layers/cuda "common;packed;kernels;kernels/cuda;kernels/cuda/library")
# Symbols that a plugin takes from the program that loads it.
target_link_options(fovea_kernels_backends INTERFACE
  -Wl,--export-dynamic-symbol=fv_fail -Wl,--export-dynamic-symbol=fv_fail_prefix
  -Wl,--export-dynamic-symbol=fv_buf_alloc -Wl,--export-dynamic-symbol=fv_buf_free
  -Wl,--export-dynamic-symbol=fv_last_error -Wl,--export-dynamic-symbol=fv_log_enabled
  -Wl,--export-dynamic-symbol=fv_log_write)

if(FOVEA_CUDA STREQUAL "OFF" OR FOVEA_SANITIZE OR FOVEA_FUZZ OR FOVEA_COVERAGE)
  return() # a sanitizer would have to be in nvcc's code too
endif()
find_program(FOVEA_NVCC nvcc HINTS $ENV{CUDACXX} ENV CUDA_PATH PATHS /usr/local/cuda
             PATH_SUFFIXES bin)
if(NOT FOVEA_NVCC AND NOT DEFINED ENV{CUDACXX})
  if(FOVEA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FOVEA_CUDA=ON, and there is no nvcc: set CUDACXX")
  endif()
  message(STATUS "no nvcc: libfovea_cuda.so is not built")
  return()
endif()
if(NOT DEFINED ENV{CUDACXX} AND NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${FOVEA_NVCC})
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${FOVEA_CUDA_ARCHS})
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
set(CMAKE_CUDA_STANDARD 17)
enable_language(CUDA)

file(GLOB cuda_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/*.c
     ${CMAKE_SOURCE_DIR}/kernels/cuda/*.cu ${CMAKE_SOURCE_DIR}/kernels/cuda/library/*.c)
add_library(fovea_cuda MODULE ${cuda_sources})
set_target_properties(fovea_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin
  CUDA_ARCHITECTURES "${FOVEA_CUDA_ARCHS}" CUDA_STANDARD_REQUIRED ON)
target_compile_definitions(fovea_cuda PRIVATE ${FOVEA_PLUGIN_CONTRACT})
target_compile_options(fovea_cuda PRIVATE
  # As on the CPU: a multiply-add is fused where the source says fmaf.
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;-Xcompiler=-Wall,-Wextra,-ffp-contract=off>)
target_include_directories(fovea_cuda PRIVATE ${CMAKE_BINARY_DIR}/layers/cuda)
target_include_directories(fovea_cuda SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
target_link_libraries(fovea_cuda PRIVATE fovea_flags ${CMAKE_DL_LIBS})
install(TARGETS fovea_cuda LIBRARY DESTINATION bin)
