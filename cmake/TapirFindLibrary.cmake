# Finds a library by its header and its file: TAPIR_<name>_INCLUDE, _LIBRARY and _NAME, the linker's; and, where both are there,
# _VERSION, which `header_of_version` defines as <define>_MAJOR, _MINOR and _PATCH.
macro(tapir_find_library name header library header_of_version define)
  find_path(TAPIR_${name}_INCLUDE ${header})
  find_library(TAPIR_${name}_LIBRARY ${library})
  mark_as_advanced(TAPIR_${name}_INCLUDE TAPIR_${name}_LIBRARY)
  set(TAPIR_${name}_NAME ${library})
  set(TAPIR_${name}_VERSION)
  if(TAPIR_${name}_INCLUDE AND TAPIR_${name}_LIBRARY)
    file(STRINGS ${TAPIR_${name}_INCLUDE}/${header_of_version} defines REGEX "define ${define}_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "[0-9]+" TAPIR_${name}_VERSION "${defines}")
    list(JOIN TAPIR_${name}_VERSION . TAPIR_${name}_VERSION)
  endif()
endmacro()
