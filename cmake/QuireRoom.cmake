# A room is one folder: a static library qr_<name> whose objects also go into the shared libraries.
#
#   qr_room(NAME kv SOURCES kv.c ... HEADERS kv.h ... DEPENDS qr_prefix_cache ...)
#
# DEPENDS names the rooms that this one may include (docs/ARCHITECTURE.md; scripts/check_layers proves it).

set(QUIRE_WARNINGS -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef -Wpointer-arith
    -Wwrite-strings -Wimplicit-fallthrough -Wformat=2 -Wno-unused-parameter)
if(QUIRE_WERROR)
  list(APPEND QUIRE_WARNINGS -Werror)
endif()

set(QUIRE_SANITIZE_FLAGS "")
if(QUIRE_SANITIZE)
  set(QUIRE_SANITIZE_FLAGS -fsanitize=${QUIRE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
endif()

# Flags that every C file of the project is compiled with. Contraction is off everywhere: arithmetic is written, never
# left to the compiler (docs/NUMERICS.md).
function(qr_compile target)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE
    $<$<OR:$<CONFIG:Debug>,$<BOOL:${QUIRE_DEBUG}>>:QR_DEBUG=1> $<$<BOOL:${QUIRE_CONSTANT_HASH}>:QR_CONSTANT_HASH=1>)
  target_compile_options(${target} PRIVATE ${QUIRE_WARNINGS} -ffp-contract=off -fno-math-errno ${QUIRE_SANITIZE_FLAGS})
  target_link_options(${target} PRIVATE ${QUIRE_SANITIZE_FLAGS})
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
endfunction()

function(qr_room)
  cmake_parse_arguments(ROOM "" "NAME" "SOURCES;HEADERS;DEPENDS;LIBS" ${ARGN})
  add_library(qr_${ROOM_NAME} STATIC ${ROOM_SOURCES} ${ROOM_HEADERS})
  qr_compile(qr_${ROOM_NAME})
  target_link_libraries(qr_${ROOM_NAME} PUBLIC ${ROOM_DEPENDS} ${ROOM_LIBS})
endfunction()
