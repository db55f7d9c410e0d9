# libquire-kv and libquire, shared and static, their headers, pkg-config files and CMake package.
#
#   libquire-kv   the KV manager alone (include/quire/kv.h)
#   libquire      the same with models and the engine; a program links one of the two
#
# Both are made of the rooms' objects. Everything not marked QUIRE_API is hidden.
include(CMakePackageConfigHelpers)

set(QUIRE_KV_ROOMS qr_base qr_blockmgr qr_offload qr_prefix_cache qr_attention qr_kv)
set(QUIRE_ROOMS qr_model qr_engine)
set(QUIRE_KV_HEADERS kv.h status.h types.h)
set(QUIRE_HEADERS engine.h model.h)
list(TRANSFORM QUIRE_KV_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/quire/)
list(TRANSFORM QUIRE_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/quire/)

# qr_library(quire-kv EXPORT kv ROOMS ... HEADERS ... LIBS PkgConfig targets; SYSTEM_LIBS names for static consumers)
function(qr_library name)
  cmake_parse_arguments(L "" "EXPORT" "ROOMS;HEADERS;LIBS;SYSTEM_LIBS" ${ARGN})
  set(objects "")
  foreach(room IN LISTS L_ROOMS)
    list(APPEND objects $<TARGET_OBJECTS:${room}>)
  endforeach()
  add_library(${name} SHARED ${objects})
  add_library(${name}-static STATIC ${objects})
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    EXPORT_NAME ${L_EXPORT} VERIFY_INTERFACE_HEADER_SETS ON)
  set_target_properties(${name}-static PROPERTIES OUTPUT_NAME ${name} EXPORT_NAME ${L_EXPORT}-static)
  foreach(target IN ITEMS ${name} ${name}-static)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
      $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${L_HEADERS})
  endforeach()
  target_link_libraries(${name} PRIVATE ${L_LIBS} Threads::Threads m)
  target_link_libraries(${name}-static INTERFACE ${L_SYSTEM_LIBS} Threads::Threads m)
  target_link_options(${name} PRIVATE ${QUIRE_SANITIZE_FLAGS})
  if(NOT QUIRE_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,--no-undefined)
  endif()
  install(TARGETS ${name} ${name}-static EXPORT Quire-${L_EXPORT}-targets COMPONENT ${L_EXPORT}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${L_EXPORT} NAMELINK_COMPONENT ${L_EXPORT}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${L_EXPORT}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ${L_EXPORT})
  install(EXPORT Quire-${L_EXPORT}-targets NAMESPACE Quire:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Quire
    COMPONENT ${L_EXPORT})
endfunction()

qr_library(quire-kv EXPORT kv ROOMS ${QUIRE_KV_ROOMS} HEADERS ${QUIRE_KV_HEADERS}
  LIBS PkgConfig::XXHASH SYSTEM_LIBS xxhash)
qr_library(quire EXPORT quire ROOMS ${QUIRE_KV_ROOMS} ${QUIRE_ROOMS} HEADERS ${QUIRE_KV_HEADERS} ${QUIRE_HEADERS}
  LIBS PkgConfig::XXHASH PkgConfig::UTF8PROC SYSTEM_LIBS xxhash utf8proc)

# qr_pkg_config(quire-kv kv "what it is" "private pkg-config requirements")
function(qr_pkg_config name component description requires)
  set(QR_NAME ${name})
  set(QR_DESCRIPTION ${description})
  set(QR_REQUIRES_PRIVATE ${requires})
  # Seen from the file itself, so that an install can be moved and `cmake --install --prefix` needs no configuring.
  file(RELATIVE_PATH QR_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
  string(REGEX REPLACE "/$" "" QR_PC_PREFIX "${QR_PC_PREFIX}")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/quire.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ${component})
endfunction()

qr_pkg_config(quire-kv kv "Paged KV cache manager with exact prefix reuse" "libxxhash")
qr_pkg_config(quire quire "LLM inference engine with a paged, prefix-cached KV store" "libxxhash, libutf8proc")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/QuireConfig.cmake.in ${PROJECT_BINARY_DIR}/QuireConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Quire)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/QuireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
foreach(component IN ITEMS kv quire)
  install(FILES ${PROJECT_BINARY_DIR}/QuireConfig.cmake ${PROJECT_BINARY_DIR}/QuireConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/Quire COMPONENT ${component})
endforeach()
