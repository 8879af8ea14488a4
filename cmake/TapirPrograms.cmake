# tapir_program(name sources...): an executable of ours, linked with a fast linker where there is one.
include(CheckLinkerFlag)
foreach(linker mold lld)
  check_linker_flag(CXX -fuse-ld=${linker} TAPIR_LINKER_${linker})
  if(TAPIR_LINKER_${linker})
    set(TAPIR_LINKER -fuse-ld=${linker})
    break()
  endif()
endforeach()

function(tapir_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tapir::tapir)
  target_compile_options(${name} PRIVATE ${warnings})
  target_link_options(${name} PRIVATE ${TAPIR_LINKER})
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF BUILD_RPATH ${PROJECT_BINARY_DIR})  # there the CUDA plugin lies
endfunction()
