/* The public header of the rocBLAS stand-in. */
#ifndef ROCBLAS_FIXTURE_ROCBLAS_H
#define ROCBLAS_FIXTURE_ROCBLAS_H
#ifdef __cplusplus
extern "C" {
#endif
int rocblas_fixture_axpy(unsigned n, float a, const float *x, float *y);
int rocblas_fixture_scal(unsigned n, float a, float *x);
int rocblas_fixture_dot(unsigned n, const float *x, const float *y, float *out);
int rocblas_fixture_gemm(unsigned n, const float *a, const float *b, float *c);
#ifdef __cplusplus
}
#endif
#endif
