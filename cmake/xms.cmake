# The functions that our CMakeLists.txt files call.
#
#   xms_module(<name> [SOURCES ...] [PUBLIC ...] [PRIVATE ...])
#       In src/<name>/. Library xms_<name>, alias xms::<name>; INTERFACE when it has no sources.
#       Every header below the folder belongs to it: nothing to list. Headers in testing/ belong to
#       the testing module; headers in an internal/ folder are not compiled alone.
#   xms_testing_module(<name> [SOURCES ...] [PUBLIC ...] [PRIVATE ...])
#       In src/<name>/testing/, added by itself after the module. Library xms_<name>_testing, alias
#       xms::<name>_testing, linked with xms::<name>. Exists only when tests, benchmarks or fuzz
#       targets are built.
#   xms_binary(<name> SOURCES ... [PRIVATE ...])
#       A program, in <build>/bin.
#   xms_test(<name> SOURCES ... [USES ...] [LABELS ...] [TIMEOUT seconds] [SERIAL])
#       A GoogleTest program whose cases become CTest tests under their own names. USES names
#       modules (kv_index, kv_index_testing) or whole targets (xms_dep::zmq). Defines
#       XMS_SOURCE_DIR, XMS_TEST_DATA_DIR and XMS_BIN_DIR. LABELS: unit, integration, stress, slow,
#       zmq (opens ZeroMQ sockets; left out under ThreadSanitizer); default unit.
#   xms_test_library(<name> SOURCES ... [PUBLIC ...] [PRIVATE ...])
#       Code shared by tests, for tests/support/. Library xms_<name>, alias xms::<name>.
#   xms_pytest(<test name> FILES ... [LABELS ...] [TIMEOUT seconds] [SERIAL])
#       Runs Python files with pytest as one CTest test; XMS_BIN_DIR names the programs' folder.
#   xms_bench(<name> SOURCES ... [USES ...])
#       A Google Benchmark program in <build>/benchmarks; nothing unless XMS_BENCH. The target
#       `benchmarks` builds all.
#   xms_fuzz(<name> SOURCES ... [USES ...])
#       A parser behind LLVMFuzzerTestOneInput. With XMS_FUZZ a libFuzzer program in
#       <build>/fuzzers (the target `fuzzers` builds all). With BUILD_TESTING the test
#       FuzzReplay.<name>, which feeds it fuzz/corpus/<name>/* and fuzz/regressions/<name>/*.
include_guard(GLOBAL)

set(XMS_BIN_DIR "${PROJECT_BINARY_DIR}/bin")
if(XMS_BENCH)
  add_custom_target(benchmarks)
endif()
if(XMS_FUZZ)
  add_custom_target(fuzzers)
endif()

# Names are modules unless they say otherwise: kv_index is xms::kv_index.
function(_xms_targets out)
  set(result "")
  foreach(name IN LISTS ARGN)
    if(name MATCHES "::")
      list(APPEND result ${name})
    else()
      list(APPEND result xms::${name})
    endif()
  endforeach()
  set(${out} "${result}" PARENT_SCOPE)
endfunction()

function(_xms_check_arguments function)
  if(ARG_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "${function}: does not understand \"${ARG_UNPARSED_ARGUMENTS}\"")
  endif()
endfunction()

# A library with include root `base_dir` whose headers are those given.
function(_xms_library name)
  cmake_parse_arguments(ARG "" "BASE_DIR" "SOURCES;PUBLIC;PRIVATE;HEADERS;INTERNAL" ${ARGN})
  if(ARG_SOURCES)
    add_library(xms_${name} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
  else()
    if(ARG_PRIVATE)
      message(FATAL_ERROR "${name} has no SOURCES, so PRIVATE edges mean nothing: ${ARG_PRIVATE}")
    endif()
    add_library(xms_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(xms::${name} ALIAS xms_${name})
  target_include_directories(xms_${name} ${scope} "${ARG_BASE_DIR}")
  target_link_libraries(xms_${name} ${scope} ${ARG_PUBLIC})
  if(ARG_PRIVATE)
    target_link_libraries(xms_${name} PRIVATE ${ARG_PRIVATE})
  endif()
  if(ARG_HEADERS)
    target_sources(xms_${name} ${scope} FILE_SET HEADERS BASE_DIRS "${ARG_BASE_DIR}" FILES ${ARG_HEADERS})
  endif()
  if(ARG_INTERNAL AND ARG_SOURCES)
    target_sources(xms_${name} PRIVATE ${ARG_INTERNAL})
  endif()
endfunction()

function(xms_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  _xms_check_arguments(xms_module)
  set(root "${PROJECT_SOURCE_DIR}/src/${name}")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${root}/*.h")
  list(FILTER headers EXCLUDE REGEX "^${root}/testing/")
  set(internal ${headers})
  list(FILTER internal INCLUDE REGEX "/internal/")
  list(FILTER headers EXCLUDE REGEX "/internal/")
  _xms_library(${name} BASE_DIR "${PROJECT_SOURCE_DIR}/src" SOURCES ${ARG_SOURCES} PUBLIC ${ARG_PUBLIC}
               PRIVATE ${ARG_PRIVATE} HEADERS ${headers} INTERNAL ${internal})
endfunction()

function(xms_testing_module name)
  if(NOT (BUILD_TESTING OR XMS_BENCH OR XMS_FUZZ))
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  _xms_check_arguments(xms_testing_module)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${name}/testing/*.h")
  _xms_library(${name}_testing BASE_DIR "${PROJECT_SOURCE_DIR}/src" SOURCES ${ARG_SOURCES}
               PUBLIC xms::${name} ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} HEADERS ${headers})
endfunction()

# Adds src/<name> in the given order, and src/<name>/testing after it, where they exist.
function(xms_add_modules)
  file(GLOB found CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/src/*/CMakeLists.txt")
  file(GLOB found_testing CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src"
       "${PROJECT_SOURCE_DIR}/src/*/testing/CMakeLists.txt")
  foreach(name IN LISTS ARGN)
    if("${name}/CMakeLists.txt" IN_LIST found)
      list(REMOVE_ITEM found "${name}/CMakeLists.txt")
      add_subdirectory(src/${name})
      if("${name}/testing/CMakeLists.txt" IN_LIST found_testing AND NOT TARGET xms_${name}_testing)
        add_subdirectory(src/${name}/testing)
      endif()
    endif()
  endforeach()
  if(found)
    message(FATAL_ERROR "Not in XMS_MODULES of the top CMakeLists.txt (and tools/check_deps): ${found}")
  endif()
endfunction()

function(xms_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PRIVATE" ${ARGN})
  _xms_check_arguments(xms_binary)
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${XMS_BIN_DIR}")
endfunction()

# What test programs and test libraries have in common. `"tests/support/x.h"` is found from the top.
function(_xms_test_properties target scope)
  target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(
    ${target} ${scope} "XMS_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\"" "XMS_TEST_DATA_DIR=\"${PROJECT_SOURCE_DIR}/tests/data\""
    "XMS_BIN_DIR=\"${XMS_BIN_DIR}\"")
  target_link_libraries(${target} ${scope} GTest::gtest GTest::gmock)
endfunction()

function(xms_test_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  _xms_check_arguments(xms_test_library)
  add_library(xms_${name} STATIC ${ARG_SOURCES})
  add_library(xms::${name} ALIAS xms_${name})
  target_link_libraries(xms_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  _xms_test_properties(xms_${name} PUBLIC)
endfunction()

function(xms_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT" "SOURCES;USES;LABELS" ${ARGN})
  _xms_check_arguments(xms_test)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  _xms_targets(uses ${ARG_USES})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${uses} GTest::gtest_main)
  _xms_test_properties(${name} PRIVATE)
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_SERIAL)
    list(APPEND properties RUN_SERIAL ON)
  endif()
  # Never TEST_PREFIX: tests are selected by the beginning of their suite's name.
  include(GoogleTest)
  gtest_discover_tests(
    ${name}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    DISCOVERY_TIMEOUT 60
    TEST_LIST ${name}_cases
    PROPERTIES ${properties})
  # A list does not survive PROPERTIES above, so a file that CTest reads after the discovered tests
  # sets the labels.
  set(labels_file "${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake")
  file(CONFIGURE OUTPUT "${labels_file}" @ONLY CONTENT [=[
foreach(case IN LISTS @name@_cases)
  set_tests_properties("${case}" PROPERTIES LABELS "@ARG_LABELS@")
endforeach()
]=])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${labels_file}")
endfunction()

function(xms_pytest name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT" "FILES;LABELS" ${ARGN})
  _xms_check_arguments(xms_pytest)
  if(NOT ARG_LABELS)
    set(ARG_LABELS integration)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  list(TRANSFORM ARG_FILES PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  add_test(
    NAME ${name}
    COMMAND "${XMS_PYTHON3}" -m pytest -q -p no:cacheprovider ${ARG_FILES}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(
    ${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT
                       "XMS_BIN_DIR=${XMS_BIN_DIR};PYTHONDONTWRITEBYTECODE=1")
  if(ARG_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

function(xms_bench name)
  if(NOT XMS_BENCH)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  _xms_check_arguments(xms_bench)
  _xms_targets(uses ${ARG_USES})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${name} PRIVATE "XMS_SOURCE_DIR=\"${PROJECT_SOURCE_DIR}\""
                                             "XMS_TEST_DATA_DIR=\"${PROJECT_SOURCE_DIR}/tests/data\"")
  target_link_libraries(${name} PRIVATE ${uses} benchmark::benchmark benchmark::benchmark_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/benchmarks")
  add_dependencies(benchmarks ${name})
endfunction()

function(xms_fuzz name)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  _xms_check_arguments(xms_fuzz)
  _xms_targets(uses ${ARG_USES})
  if(XMS_FUZZ)
    add_executable(${name} ${ARG_SOURCES})
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")  # fuzz/*.h
    target_link_libraries(${name} PRIVATE ${uses})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzzers")
    add_dependencies(fuzzers ${name})
  endif()
  if(BUILD_TESTING)
    add_executable(${name}_replay ${ARG_SOURCES} "${PROJECT_SOURCE_DIR}/fuzz/replay_main.cc")
    target_include_directories(${name}_replay PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(${name}_replay PRIVATE ${uses})
    add_test(NAME FuzzReplay.${name} COMMAND ${name}_replay "${PROJECT_SOURCE_DIR}/fuzz/corpus/${name}"
                                             "${PROJECT_SOURCE_DIR}/fuzz/regressions/${name}")
    set_tests_properties(FuzzReplay.${name} PROPERTIES LABELS unit TIMEOUT 120)
  endif()
endfunction()
