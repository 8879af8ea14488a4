# The CPU kernels, compiled for each level of TAPIR_BUILT: kernels -> kernel_objects, what the library is made of.
#
# Note [Kernels side by side]
# Kernels of several levels stand in one library, and beside them the inline functions (of core/, of the standard library) that each level
# has compiled for itself. Of such functions the linker keeps one copy for all: an AVX-512 one, perhaps, for a CPU that has none. So the
# objects of a level are joined into one, in which every symbol is local but
#   - the level's table, cpu_table_<level>, the one thing that the rest of the library asks for;
#   - weak variables that are written to: what a process has once (Eigen's sizes of caches, static variables of inline functions) stays so.
#     From the start none of them holds an address within the object, but of typeinfo;
#   - weak typeinfo with its names, by which exceptions are caught: some standard libraries compare addresses.
# Weak constants are local: their values may be the level's own (kVectorBytes), or addresses of functions (vtables). Nor does anything of a
# level run before main. tests/levels.sh holds the objects against these rules.
#
# Run as a script (-D OBJECTS=FILE, OUTPUT, LD, NM, READELF, OBJCOPY) it makes this object of those that the file lists.
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND ${LD} -r --force-group-allocation -o ${OUTPUT}.joined @${OBJECTS} COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${NM} --extern-only --defined-only --format=sysv ${OUTPUT}.joined
    OUTPUT_FILE ${OUTPUT}.symbols COMMAND_ERROR_IS_FATAL ANY)  # name|value|class|type|size|line|section
  execute_process(COMMAND ${READELF} -SW ${OUTPUT}.joined OUTPUT_VARIABLE sections COMMAND_ERROR_IS_FATAL ANY)
  if(sections MATCHES "\\.(init_array|preinit_array|ctors)")
    message(FATAL_ERROR "${OUTPUT}: kernels of one level have code that runs before main on any CPU. (Sanitizers and --coverage put some there: TAPIR_ARCH=native)")
  endif()
  set(weak "\\| *[VWu] *\\|")
  file(STRINGS ${OUTPUT}.symbols kept REGEX "${weak}.*\\|\\.(data|bss|tdata|tbss)")
  list(FILTER kept EXCLUDE REGEX "\\|\\.data\\.rel\\.ro")  # constants, once addresses have been put in
  file(STRINGS ${OUTPUT}.symbols others REGEX "^_ZT[IS].*${weak}|^[^|]*cpu_table_")
  list(APPEND kept ${others})
  list(TRANSFORM kept REPLACE " *\\|.*" "\n")
  list(JOIN kept "" kept)
  file(WRITE ${OUTPUT}.kept "${kept}")
  execute_process(COMMAND ${OBJCOPY} --keep-global-symbols=${OUTPUT}.kept ${OUTPUT}.joined ${OUTPUT} COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE ${OUTPUT}.joined)
  return()
endif()

set(TAPIR_LEVELS_JOINED OFF)
if(TAPIR_ARCH STREQUAL "portable" AND NOT TAPIR_BUILT STREQUAL "baseline")
  set(TAPIR_LEVELS_JOINED ON)
  get_property(several GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
  if(several)
    message(FATAL_ERROR "TAPIR_ARCH=portable: expected a generator with one configuration, such as Ninja, got ${CMAKE_GENERATOR}")
  endif()
  get_filename_component(cross ${CMAKE_CXX_COMPILER} NAME)
  string(REGEX MATCH "^.+-linux-gnu[a-z]*-" cross "${cross}")  # aarch64-linux-gnu-
  find_program(TAPIR_LD NAMES ${cross}ld.bfd ${cross}ld)
  find_program(TAPIR_NM NAMES ${cross}nm)
  find_program(TAPIR_OBJCOPY NAMES ${cross}objcopy)
  find_program(TAPIR_READELF NAMES ${cross}readelf)
  mark_as_advanced(TAPIR_LD TAPIR_NM TAPIR_OBJCOPY TAPIR_READELF)
  set(help)
  if(TAPIR_LD AND TAPIR_NM AND TAPIR_OBJCOPY AND TAPIR_READELF)
    execute_process(COMMAND ${TAPIR_LD} --help OUTPUT_VARIABLE help ERROR_QUIET)
  endif()
  if(NOT help MATCHES "--force-group-allocation")
    message(FATAL_ERROR "TAPIR_ARCH=portable joins kernels by ld -r --force-group-allocation, nm, readelf and objcopy of GNU binutils 2.31 or newer; "
      "found were '${TAPIR_LD}', '${TAPIR_NM}', '${TAPIR_READELF}' and '${TAPIR_OBJCOPY}'. Install binutils, name its programs (TAPIR_LD, TAPIR_NM, "
      "TAPIR_READELF, TAPIR_OBJCOPY), or choose one level: TAPIR_ARCH=x86-64-v3")
  endif()
endif()

# Elsewhere there is one level, and no object of its own. Inline functions are then compiled for that level as well, and the linker keeps one copy
# for all. So the kernels stand last in the library: where the rest has a copy, the linker meets that first. In a static library the order is the
# linker's own; then an older CPU may meet a wrong instruction before it meets the check.
set(kernel_objects)
set(order)
if(processor STREQUAL "aarch64")  # g++ loads all scalars of a loop first there, and has then no registers left for the sums
  set(order $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
endif()
set(sanitized_kernels)
if(CMAKE_CXX_FLAGS_DEBUG MATCHES "-fsanitize")  # the rest of the library is -Og there, which compiles faster; kernels had better run fast
  set(sanitized_kernels $<$<CONFIG:Debug>:-O1>)
endif()
foreach(level IN LISTS TAPIR_BUILT)
  add_library(tapir_kernels_${level} OBJECT ${kernels})
  tapir_compile(tapir_kernels_${level})
  target_compile_definitions(tapir_kernels_${level} PRIVATE TAPIR_LEVEL=${level})
  target_compile_options(tapir_kernels_${level} PRIVATE
    ${TAPIR_FLAGS_${level}} -fno-math-errno -fno-trapping-math -fopenmp-simd ${order} ${sanitized_kernels} "$<$<CONFIG:Release,RelWithDebInfo>:${TAPIR_KERNELS_OPTIMIZE}>")
  if(NOT TAPIR_LEVELS_JOINED)
    list(APPEND kernel_objects $<TARGET_OBJECTS:tapir_kernels_${level}>)
    continue()
  endif()
  set_target_properties(tapir_kernels_${level} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
  target_compile_options(tapir_kernels_${level} PRIVATE -fno-lto
    $<$<NOT:$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:-Og>  # at -O0 code before main initialises Eigen's placeholders
    $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>  # weak symbols, which may stand there several times
    $<$<CXX_COMPILER_ID:Clang>:-fno-addrsig>)  # a table of symbols by their numbers, which joining changes
  set(object ${PROJECT_BINARY_DIR}/kernels_${level}.o)
  file(GENERATE OUTPUT ${object}.list CONTENT "$<JOIN:$<TARGET_OBJECTS:tapir_kernels_${level}>,\n>\n")
  add_custom_command(OUTPUT ${object} DEPENDS tapir_kernels_${level} $<TARGET_OBJECTS:tapir_kernels_${level}> ${CMAKE_CURRENT_LIST_DIR}/TapirLevels.cmake
    COMMAND ${CMAKE_COMMAND} -D OBJECTS=${object}.list -D OUTPUT=${object} -D LD=${TAPIR_LD} -D NM=${TAPIR_NM} -D READELF=${TAPIR_READELF} -D OBJCOPY=${TAPIR_OBJCOPY}
      -P ${CMAKE_CURRENT_LIST_DIR}/TapirLevels.cmake
    COMMENT "Joining the kernels of ${level}" VERBATIM)
  list(APPEND kernel_objects ${object})
endforeach()

# For backends.cpp.
set(level_tables)
set(level_rows)
foreach(level IN LISTS TAPIR_BUILT)
  string(APPEND level_tables "extern const BackendTable cpu_table_${level};\n")
  string(APPEND level_rows "      {\"${level}\", &cpu_table_${level}, {${TAPIR_NEEDS_${level}}}},\n")
endforeach()
configure_file(cmake/backends.cpp.in ${generated}/backends.cpp @ONLY)
