# Finds the CUDA toolkit, or does without.
#
#   QUIRE_CUDA                 AUTO (default): build the CUDA parts where nvcc is found; ON: fail without it; OFF
#   QUIRE_CUDA_ARCHITECTURES   what to build for, in CMake's words; CMAKE_CUDA_ARCHITECTURES, when given, wins
#
# Gives QUIRE_CUDA_FOUND, QUIRE_NVCC, and qr_cuda_compile. The default covers the GPUs that the kernels are meant for, and ends
# with PTX, which the driver compiles for newer ones. Building for two is enough to check everything that can be checked without
# a GPU:
#
#   cmake --preset release -DQUIRE_CUDA_ARCHITECTURES="80-real;90a-real"
set(QUIRE_CUDA AUTO CACHE STRING "Build the CUDA parts: AUTO, ON or OFF")
set_property(CACHE QUIRE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(QUIRE_CUDA_ARCHITECTURES "80-real;86-real;89-real;90a-real;100" CACHE STRING "GPU architectures to build for")
set(QUIRE_CUDA_FOUND FALSE)
set(QUIRE_CUDA_OLDEST 12.8) # the first toolkit that knows compute capability 10.0

if(QUIRE_CUDA)
  find_program(QUIRE_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin
    PATHS /usr/local/cuda/bin /opt/cuda/bin DOC "CUDA compiler")
  mark_as_advanced(QUIRE_NVCC)
  if(QUIRE_NVCC)
    if(DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(QUIRE_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${QUIRE_CUDA_ARCHITECTURES}) # before the language, which would choose one otherwise
    if(NOT DEFINED CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER ${QUIRE_NVCC})
    endif()
    include(CheckLanguage)
    check_language(CUDA) # an nvcc that cannot compile (no C++ compiler that it takes) counts as none
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS QUIRE_CUDA_OLDEST)
        message(STATUS "CUDA: ${QUIRE_NVCC} is ${CMAKE_CUDA_COMPILER_VERSION}, ${QUIRE_CUDA_OLDEST} is needed")
      else()
        set(QUIRE_CUDA_FOUND TRUE)
        find_package(CUDAToolkit REQUIRED)
      endif()
    endif()
  endif()
  if(QUIRE_CUDA_FOUND)
    message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}")
  elseif(QUIRE_CUDA STREQUAL AUTO)
    message(STATUS "CUDA: no nvcc that works, building without it")
  else()
    message(FATAL_ERROR "QUIRE_CUDA is ON and there is no nvcc that works; point CUDACXX at one, or set QUIRE_CUDA to AUTO")
  endif()
endif()

# Flags that every .cu file of the project is compiled with. Multiply-adds are fused only where the source says so, as in C
# (docs/NUMERICS.md); nothing is approximated or flushed to zero unless a primitive asks for it by name. Spills are scripts/cuda_gates' matter.
function(qr_cuda_compile target)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF
    CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static)
  set(warnings "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-unused-parameter>")
  if(QUIRE_WERROR)
    list(APPEND warnings "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
  endif()
  target_compile_options(${target} PRIVATE ${warnings}
    $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
endfunction()
