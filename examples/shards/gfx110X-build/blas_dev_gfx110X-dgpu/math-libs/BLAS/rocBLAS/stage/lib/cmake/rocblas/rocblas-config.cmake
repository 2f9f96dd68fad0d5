# Finds the rocBLAS stand-in relative to this file.
get_filename_component(_rocblas_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET roc::rocblas)
  add_library(roc::rocblas SHARED IMPORTED)
  set_target_properties(roc::rocblas PROPERTIES
    IMPORTED_LOCATION "${_rocblas_root}/lib/librocblas.so.5.2"
    IMPORTED_SONAME "librocblas.so.5"
    INTERFACE_INCLUDE_DIRECTORIES "${_rocblas_root}/include")
endif()
unset(_rocblas_root)
