# Tests of base/, and of what holds for the whole house.
qr_criterion(unit base ROOMS qr_base)
target_sources(test_unit_base PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/support/block_traffic.c)
qr_plain_test(stress compute_pool ROOMS qr_base TIMEOUT 300)
qr_plain_test(stress mailbox ROOMS qr_base TIMEOUT 300)

find_package(Python3 REQUIRED COMPONENTS Interpreter)

# qr_house_test(layers COMMAND ...): a check of the tree or of the build, not of a room
function(qr_house_test name)
  cmake_parse_arguments(T "" "" "COMMAND" ${ARGN})
  add_test(NAME house.${name} COMMAND ${T_COMMAND})
  set_tests_properties(house.${name} PROPERTIES TIMEOUT 60 LABELS "house;quick")
endfunction()

set(QUIRE_HOUSE ${CMAKE_CURRENT_SOURCE_DIR}/house)
qr_house_test(layers COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/check_layers ${PROJECT_SOURCE_DIR})
qr_house_test(layers_can_fail COMMAND Python3::Interpreter ${QUIRE_HOUSE}/layers_test.py)
qr_house_test(requirements COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/check_requirements ${PROJECT_SOURCE_DIR})
qr_house_test(requirements_can_fail COMMAND Python3::Interpreter ${QUIRE_HOUSE}/requirements_test.py)
qr_house_test(compile_flags COMMAND Python3::Interpreter ${QUIRE_HOUSE}/compile_flags.py
  ${CMAKE_BINARY_DIR}/compile_commands.json)
qr_house_test(compile_flags_can_fail COMMAND Python3::Interpreter ${QUIRE_HOUSE}/compile_flags.py --self-test)

add_executable(test_house_canary ${QUIRE_HOUSE}/canary.c)
qr_compile(test_house_canary)
qr_house_test(canary COMMAND test_house_canary)
set_tests_properties(house.canary PROPERTIES WILL_FAIL TRUE)

# Sanitizers bring exported symbols of their own.
set(QUIRE_API ${PROJECT_SOURCE_DIR}/include/quire)
if(NOT QUIRE_SANITIZE AND TARGET quire-kv)
  qr_house_test(exports_kv COMMAND Python3::Interpreter ${QUIRE_HOUSE}/exports.py $<TARGET_FILE:quire-kv>
    ${QUIRE_API}/status.h ${QUIRE_API}/types.h ${QUIRE_API}/kv.h)
endif()
if(NOT QUIRE_SANITIZE AND TARGET quire)
  qr_house_test(exports COMMAND Python3::Interpreter ${QUIRE_HOUSE}/exports.py $<TARGET_FILE:quire>
    ${QUIRE_API}/status.h ${QUIRE_API}/types.h ${QUIRE_API}/kv.h ${QUIRE_API}/model.h ${QUIRE_API}/engine.h)
endif()
