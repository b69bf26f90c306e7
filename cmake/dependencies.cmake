# Third-party libraries, all of them Debian 12 packages, behind target names of our own (xms_dep::*).
# IMPORTED targets, so their headers are SYSTEM and raise no warnings. The package list itself is
# tools/packages.txt; whatever is missing here is reported at once, by package name.
set(_missing "")

macro(_xms_need found package)
  if(NOT ${found})
    list(APPEND _missing ${package})
  endif()
endmacro()

find_package(Threads REQUIRED)

# ZeroMQ, its header-only C++ binding, and xxHash have no CMake files of their own. Their pkg-config
# files are not used: libzmq's carries the include paths of everything it is built on (Kerberos,
# PGM, libxml2), none of which zmq.h needs.
find_path(XMS_ZMQ_INCLUDE zmq.h)
find_library(XMS_ZMQ_LIBRARY zmq)
_xms_need(XMS_ZMQ_INCLUDE libzmq3-dev)
_xms_need(XMS_ZMQ_LIBRARY libzmq3-dev)
find_path(XMS_CPPZMQ_INCLUDE zmq.hpp)
_xms_need(XMS_CPPZMQ_INCLUDE cppzmq-dev)
find_path(XMS_XXHASH_INCLUDE xxhash.h)
find_library(XMS_XXHASH_LIBRARY xxhash)
_xms_need(XMS_XXHASH_INCLUDE libxxhash-dev)
_xms_need(XMS_XXHASH_LIBRARY libxxhash-dev)

find_path(XMS_BOOST_INCLUDE boost/beast/core.hpp)
_xms_need(XMS_BOOST_INCLUDE libboost-dev)
find_path(XMS_MSGPACK_INCLUDE msgpack.hpp)
_xms_need(XMS_MSGPACK_INCLUDE libmsgpack-cxx-dev)

find_package(nlohmann_json QUIET)
_xms_need(nlohmann_json_FOUND nlohmann-json3-dev)
find_package(simdjson QUIET)
_xms_need(simdjson_FOUND libsimdjson-dev)
find_package(spdlog QUIET)
_xms_need(spdlog_FOUND libspdlog-dev)

# Only the core library: the exposition text is ours to serve. Found by hand, because the package's
# own CMake file also wants what its push and pull parts need.
find_path(XMS_PROMETHEUS_INCLUDE prometheus/registry.h)
find_library(XMS_PROMETHEUS_CORE prometheus-cpp-core)
_xms_need(XMS_PROMETHEUS_INCLUDE prometheus-cpp-dev)
_xms_need(XMS_PROMETHEUS_CORE prometheus-cpp-dev)

if(BUILD_TESTING OR XMS_BENCH OR XMS_FUZZ)
  find_package(GTest QUIET)
  _xms_need(GTest_FOUND libgtest-dev)
  if(GTest_FOUND AND NOT TARGET GTest::gmock)
    list(APPEND _missing libgmock-dev)
  endif()
  find_program(XMS_PYTHON3 python3 HINTS /usr/bin) # the one that python3-pytest belongs to
  _xms_need(XMS_PYTHON3 python3)
endif()
if(XMS_BENCH)
  find_package(benchmark QUIET)
  _xms_need(benchmark_FOUND libbenchmark-dev)
endif()

mark_as_advanced(XMS_ZMQ_INCLUDE XMS_ZMQ_LIBRARY XMS_CPPZMQ_INCLUDE XMS_XXHASH_INCLUDE XMS_XXHASH_LIBRARY
                 XMS_BOOST_INCLUDE XMS_MSGPACK_INCLUDE XMS_PROMETHEUS_INCLUDE XMS_PROMETHEUS_CORE XMS_PYTHON3)

if(_missing)
  list(REMOVE_DUPLICATES _missing)
  list(JOIN _missing " " _missing)
  set(_groups "run")
  if(BUILD_TESTING OR XMS_BENCH OR XMS_FUZZ)
    string(APPEND _groups " test")
  endif()
  if(XMS_BENCH)
    string(APPEND _groups " bench")
  endif()
  message(FATAL_ERROR "Missing Debian packages: ${_missing}\n"
                      "Install everything this build needs with: tools/setup ${_groups}")
endif()

function(_xms_dep name)
  cmake_parse_arguments(ARG "" "" "INCLUDE;LINK;DEFINE;OPTIONS" ${ARGN})
  add_library(xms_dep::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(xms_dep::${name} INTERFACE ${ARG_INCLUDE})
  target_link_libraries(xms_dep::${name} INTERFACE ${ARG_LINK})
  target_compile_definitions(xms_dep::${name} INTERFACE ${ARG_DEFINE})
  target_compile_options(xms_dep::${name} INTERFACE ${ARG_OPTIONS})
endfunction()

_xms_dep(zmq INCLUDE ${XMS_ZMQ_INCLUDE} ${XMS_CPPZMQ_INCLUDE} LINK ${XMS_ZMQ_LIBRARY})
_xms_dep(xxhash INCLUDE ${XMS_XXHASH_INCLUDE} LINK ${XMS_XXHASH_LIBRARY})
_xms_dep(msgpack INCLUDE ${XMS_MSGPACK_INCLUDE} ${XMS_BOOST_INCLUDE})
_xms_dep(json LINK nlohmann_json::nlohmann_json)
_xms_dep(simdjson LINK simdjson::simdjson)
_xms_dep(spdlog LINK spdlog::spdlog) # the compiled library with external fmt, as Debian ships it
_xms_dep(prometheus INCLUDE ${XMS_PROMETHEUS_INCLUDE} LINK ${XMS_PROMETHEUS_CORE} Threads::Threads)

# Asio and Beast. Asio 1.74 uses std::exchange without including <utility>, and recognises Clang's
# coroutines only when told.
set(_asio_define BOOST_ASIO_NO_DEPRECATED)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND _asio_define BOOST_ASIO_HAS_CO_AWAIT=1 BOOST_ASIO_HAS_STD_COROUTINE=1)
endif()
_xms_dep(asio INCLUDE ${XMS_BOOST_INCLUDE} LINK Threads::Threads DEFINE ${_asio_define}
         OPTIONS "SHELL:-include utility")
