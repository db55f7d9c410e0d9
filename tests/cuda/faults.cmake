# Seeded faults (faults/run_faults.py): what it needs to compile and link a program with one patched source.
set(QR_FAULT_PROGRAMS attention attention_law kv_store device_plan prims device)

# A JSON array of strings.
function(qr_fault_json out)
  set(quoted "")
  foreach(item IN LISTS ARGN)
    list(APPEND quoted "\"${item}\"")
  endforeach()
  list(JOIN quoted "," joined)
  set(${out} "[${joined}]" PARENT_SCOPE)
endfunction()

# One program in one build: its objects, what it is linked with besides, and its PTX.
function(qr_fault_program out name mode)
  set(target test_cuda_${name}_${mode})
  get_target_property(options ${target} LINK_OPTIONS)
  list(FILTER options INCLUDE REGEX "^LINKER:")
  list(TRANSFORM options REPLACE "^LINKER:" "-Wl,")
  qr_fault_json(link ${options})
  set(ptx "${QR_PTX_${name}_90a}")
  if(name MATCHES "^attention")
    set(ptx "${QR_PTX_kernels_90a}")
  endif()
  string(REPLACE ":" ";" ptx "${ptx}")
  qr_fault_json(ptx ${ptx})
  set(by_head_dim false) # does it take --head-dim N
  if(name MATCHES "^attention|^kv_store")
    set(by_head_dim true)
  endif()
  set(${out} "\"${name}\": {\"binary\": \"$<TARGET_FILE:${target}>\", \"by_head_dim\": ${by_head_dim}, \"ptx\": ${ptx},
      \"link\": ${link}, \"objects\": [\"$<JOIN:$<TARGET_OBJECTS:${target}>,\",\">\"]}" PARENT_SCOPE)
endfunction()

# Everything of one build. Programs that have no such build are left out.
function(qr_fault_build out mode)
  set(programs "")
  foreach(name IN LISTS QR_FAULT_PROGRAMS)
    if(TARGET test_cuda_${name}_${mode})
      qr_fault_program(program ${name} ${mode})
      list(APPEND programs "${program}")
    endif()
  endforeach()
  list(JOIN programs ",\n    " programs)
  qr_fault_json(flags ${QR_EMU_FLAGS_${mode}})
  qr_fault_json(libraries $<TARGET_FILE:qr_emu_kernels_${mode}> $<TARGET_FILE:qr_base> $<TARGET_FILE:qr_emulator> ${XXHASH_LDFLAGS}
    -lpthread -lm -ldl)
  set(${out} "\"${mode}\": {\"flags\": ${flags}, \"libraries\": ${libraries}, \"programs\": {\n    ${programs}}}" PARENT_SCOPE)
endfunction()

set(builds "")
foreach(mode IN LISTS QR_EMU_MODES)
  qr_fault_build(build ${mode})
  list(APPEND builds "${build}")
endforeach()
list(JOIN builds ",\n  " builds)
qr_fault_json(compile -D_GNU_SOURCE -ffp-contract=off -fno-omit-frame-pointer -w -I${PROJECT_SOURCE_DIR}
  -I${PROJECT_SOURCE_DIR}/include -I${CMAKE_CURRENT_SOURCE_DIR}/emulator/include)
qr_fault_json(nvcc ${QUIRE_NVCC})
qr_fault_json(nvcc_flags ${QR_NVCC_FLAGS} -w -gencode arch=compute_90a,code=compute_90a)
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/faults.json CONTENT "{\"root\": \"${PROJECT_SOURCE_DIR}\",
  \"cc\": \"${CMAKE_C_COMPILER}\", \"cxx\": \"${CMAKE_CXX_COMPILER}\", \"compile\": ${compile},
  \"nvcc\": ${nvcc}, \"nvcc_flags\": ${nvcc_flags},
  ${builds}}\n")

set(QR_FAULT_BUILDS plain asan tsan)
if(QR_PTX_ARCHITECTURES)
  list(APPEND QR_FAULT_BUILDS ptx)
endif()
foreach(build IN LISTS QR_FAULT_BUILDS)
  add_test(NAME cuda.faults.${build} COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/faults/run_faults.py
    ${CMAKE_CURRENT_BINARY_DIR}/faults.json --build ${build})
  set_tests_properties(cuda.faults.${build} PROPERTIES TIMEOUT 400 LABELS cuda)
endforeach()
