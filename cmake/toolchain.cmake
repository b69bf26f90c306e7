# Language level, warnings, sanitizers, and the tools that make builds faster. Everything here applies
# to the whole tree: all code below the top directory is ours, third-party headers are SYSTEM.
include(CheckLinkerFlag)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)

# -O2: measured code is written to be fast at -O2, and -O3 costs build time everywhere.
if(CMAKE_CXX_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG" CACHE STRING "Flags of a Release build" FORCE)
endif()

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER) # the empty string means: none
  find_program(XMS_CCACHE ccache)
  mark_as_advanced(XMS_CCACHE)
  if(XMS_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${XMS_CCACHE}")
  endif()
endif()

find_program(XMS_MOLD mold)
mark_as_advanced(XMS_MOLD)
if(XMS_MOLD)
  check_linker_flag(CXX "-fuse-ld=mold" XMS_LINKS_WITH_MOLD)
  if(XMS_LINKS_WITH_MOLD)
    add_link_options(-fuse-ld=mold)
  endif()
endif()

add_compile_options(
  -Wall
  -Wextra
  -Wpedantic
  -Wnon-virtual-dtor
  -Woverloaded-virtual
  -Wno-missing-field-initializers) # Options{.limit = 3} leaves the other fields at their defaults
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wshadow -Wthread-safety)
else()
  add_compile_options(-Wshadow=local)
endif()
if(XMS_WERROR)
  add_compile_options(-Werror)
endif()

if(XMS_SANITIZE)
  list(JOIN XMS_SANITIZE "," _sanitizers)
  if(NOT _sanitizers MATCHES "^(address|undefined|address,undefined|thread)$")
    message(FATAL_ERROR "XMS_SANITIZE=${XMS_SANITIZE}: allowed are \"address;undefined\", \"thread\", or nothing")
  endif()
  add_compile_options(-fsanitize=${_sanitizers} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${_sanitizers})
endif()

# Coverage feedback for libFuzzer has to be in the libraries, not only in the targets.
if(XMS_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "XMS_FUZZ needs Clang (libFuzzer): use cmake --preset fuzz")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
