// The functions of cuBLAS, or of hipBLAS, whose prefix is MPTUNE_BLAS(name).
#define MPTUNE_STRING_OF(text) #text
#define MPTUNE_STRING(text) MPTUNE_STRING_OF(text)
#define MPTUNE_CALL(name, kind, ...) \
    const mptune_layer::library_call here_(MPTUNE_STRING(MPTUNE_BLAS(name)), kind, __VA_ARGS__)
#define MPTUNE_ANSWER (handle->pointer_mode == CUBLAS_POINTER_MODE_HOST ? mptune_layer::answers : mptune_layer::changes)
#define MPTUNE_CHANGE mptune_layer::changes
#define MPTUNE_FUNCTION(name) inline cublasStatus_t MPTUNE_BLAS(name)

MPTUNE_FUNCTION(Create)(cublasHandle_t* handle) {
    *handle = new cublasContext{};
    return CUBLAS_STATUS_SUCCESS;
}
MPTUNE_FUNCTION(Destroy)(cublasHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
#define MPTUNE_PROPERTY(set, get, type, member)                                                                       \
    MPTUNE_FUNCTION(set)(cublasHandle_t handle, type value) { return handle->member = value, CUBLAS_STATUS_SUCCESS; } \
    MPTUNE_FUNCTION(get)(cublasHandle_t handle, type* value) { return *value = handle->member, CUBLAS_STATUS_SUCCESS; }
MPTUNE_PROPERTY(SetStream, GetStream, cudaStream_t, stream)
MPTUNE_PROPERTY(SetPointerMode, GetPointerMode, cublasPointerMode_t, pointer_mode)
MPTUNE_PROPERTY(SetMathMode, GetMathMode, cublasMath_t, math_mode)
MPTUNE_PROPERTY(SetAtomicsMode, GetAtomicsMode, cublasAtomicsMode_t, atomics_mode)
#undef MPTUNE_PROPERTY
MPTUNE_FUNCTION(SetWorkspace)(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
MPTUNE_FUNCTION(GetVersion)(cublasHandle_t, int* version) { return *version = 120000, CUBLAS_STATUS_SUCCESS; }

MPTUNE_FUNCTION(SetMatrix)(int rows, int columns, int bytes, const void* a, int lda, void* b, int ldb) {
    cudaMemcpy2D(b, size_t(ldb) * bytes, a, size_t(lda) * bytes, size_t(rows) * bytes, columns, cudaMemcpyHostToDevice);
    return CUBLAS_STATUS_SUCCESS;
}
MPTUNE_FUNCTION(GetMatrix)(int rows, int columns, int bytes, const void* a, int lda, void* b, int ldb) {
    cudaMemcpy2D(b, size_t(ldb) * bytes, a, size_t(lda) * bytes, size_t(rows) * bytes, columns, cudaMemcpyDeviceToHost);
    return CUBLAS_STATUS_SUCCESS;
}
MPTUNE_FUNCTION(SetVector)(int n, int bytes, const void* x, int step_x, void* y, int step_y) {
    if (step_x == 1 && step_y == 1) cudaMemcpy(y, x, size_t(n) * bytes, cudaMemcpyHostToDevice);
    else MPTUNE_BLAS(SetMatrix)(1, n, bytes, x, step_x, y, step_y);
    return CUBLAS_STATUS_SUCCESS;
}
MPTUNE_FUNCTION(GetVector)(int n, int bytes, const void* x, int step_x, void* y, int step_y) {
    if (step_x == 1 && step_y == 1) cudaMemcpy(y, x, size_t(n) * bytes, cudaMemcpyDeviceToHost);
    else MPTUNE_BLAS(GetMatrix)(1, n, bytes, x, step_x, y, step_y);
    return CUBLAS_STATUS_SUCCESS;
}
MPTUNE_FUNCTION(SetMatrixAsync)(int rows, int columns, int bytes, const void* a, int lda, void* b, int ldb, cudaStream_t) {
    return MPTUNE_BLAS(SetMatrix)(rows, columns, bytes, a, lda, b, ldb);
}
MPTUNE_FUNCTION(GetMatrixAsync)(int rows, int columns, int bytes, const void* a, int lda, void* b, int ldb, cudaStream_t) {
    return MPTUNE_BLAS(GetMatrix)(rows, columns, bytes, a, lda, b, ldb);
}
MPTUNE_FUNCTION(SetVectorAsync)(int n, int bytes, const void* x, int step_x, void* y, int step_y, cudaStream_t) {
    return MPTUNE_BLAS(SetVector)(n, bytes, x, step_x, y, step_y);
}
MPTUNE_FUNCTION(GetVectorAsync)(int n, int bytes, const void* x, int step_x, void* y, int step_y, cudaStream_t) {
    return MPTUNE_BLAS(GetVector)(n, bytes, x, step_x, y, step_y);
}

// Of every type: S, D, C, Z; with R the letters of the real type's result.
#define MPTUNE_OF_TYPE(X, T, R, I)                                                                                             \
    MPTUNE_FUNCTION(X##copy)(cublasHandle_t, int n, const T* x, int step_x, T* y, int step_y) {                                \
        MPTUNE_CALL(X##copy, MPTUNE_CHANGE, x, y);                                                                             \
        const T* const from = mptune_layer::blas::first_of(x, n, step_x);                                                      \
        T* const to = mptune_layer::blas::first_of(y, n, step_y);                                                              \
        for (int64_t i = 0; i < n; ++i) to[i * step_y] = from[i * step_x];                                                     \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##swap)(cublasHandle_t, int n, T* x, int step_x, T* y, int step_y) {                                      \
        MPTUNE_CALL(X##swap, MPTUNE_CHANGE, x, y);                                                                             \
        T *const a = mptune_layer::blas::first_of(x, n, step_x), *const b = mptune_layer::blas::first_of(y, n, step_y);        \
        for (int64_t i = 0; i < n; ++i) std::swap(a[i * step_x], b[i * step_y]);                                               \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##scal)(cublasHandle_t, int n, const T* alpha, T* x, int step) {                                          \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##scal, MPTUNE_CHANGE, alpha, x);                                                                         \
        typedef value_t<T> V;                                                                                                  \
        const V factor = loaded<V>(*alpha);                                                                                    \
        for (int64_t i = 0; i < n; ++i) store(x[i * step], times(factor, loaded<V>(x[i * step])));                             \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##axpy)(cublasHandle_t, int n, const T* alpha, const T* x, int step_x, T* y, int step_y) {                \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##axpy, MPTUNE_CHANGE, alpha, x, y);                                                                      \
        typedef value_t<T> V;                                                                                                  \
        put_vector(vector<V>(x, n, step_x), loaded<V>(*alpha), V(1), y, step_y);                                               \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(R##nrm2)(cublasHandle_t handle, int n, const T* x, int step, mptune_layer::blas::real_t<T>* result) {      \
        MPTUNE_CALL(R##nrm2, MPTUNE_ANSWER, x, result);                                                                        \
        *result = mptune_layer::blas::norm(n, x, step);                                                                        \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(R##asum)(cublasHandle_t handle, int n, const T* x, int step, mptune_layer::blas::real_t<T>* result) {      \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(R##asum, MPTUNE_ANSWER, x, result);                                                                        \
        *result = total<real_t<T>>(0, n, [&](int64_t i) { return size_of(loaded<value_t<T>>(x[i * step])); });                 \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(I##max)(cublasHandle_t handle, int n, const T* x, int step, int* result) {                                 \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(I##max, MPTUNE_ANSWER, x, result);                                                                         \
        const auto at = [&](int64_t i) { return size_of(loaded<value_t<T>>(x[i * step])); };                                   \
        int found = 0;                                                                                                         \
        for (int i = 1; i < n; ++i) found = at(i) > at(found) ? i : found;                                                     \
        *result = n > 0 ? found + 1 : 0;                                                                                       \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(I##min)(cublasHandle_t handle, int n, const T* x, int step, int* result) {                                 \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(I##min, MPTUNE_ANSWER, x, result);                                                                         \
        const auto at = [&](int64_t i) { return size_of(loaded<value_t<T>>(x[i * step])); };                                   \
        int found = 0;                                                                                                         \
        for (int i = 1; i < n; ++i) found = at(i) < at(found) ? i : found;                                                     \
        *result = n > 0 ? found + 1 : 0;                                                                                       \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##gemv)(cublasHandle_t, cublasOperation_t op, int m, int n, const T* alpha, const T* a, int lda,          \
                             const T* x, int step_x, const T* beta, T* y, int step_y) {                                        \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##gemv, MPTUNE_CHANGE, alpha, a, x, beta, y);                                                             \
        typedef value_t<T> V;                                                                                                  \
        const int rows = op == CUBLAS_OP_N ? m : n, columns = op == CUBLAS_OP_N ? n : m;                                       \
        const auto ax = product(packed<V>(a, lda, rows, columns, op), vector<V>(x, columns, step_x));                          \
        put_vector(ax, loaded<V>(*alpha), loaded<V>(*beta), y, step_y);                                                        \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##trmv)(cublasHandle_t, cublasFillMode_t fill, cublasOperation_t op, cublasDiagType_t diagonal, int n,    \
                             const T* a, int lda, T* x, int step) {                                                            \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##trmv, MPTUNE_CHANGE, a, x);                                                                             \
        typedef value_t<T> V;                                                                                                  \
        const auto ax = product(packed_half<V>(a, lda, n, op, fill, zeros, diagonal), vector<V>(x, n, step));                  \
        put_vector(ax, V(1), V(), x, step);                                                                                    \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##trsv)(cublasHandle_t, cublasFillMode_t fill, cublasOperation_t op, cublasDiagType_t diagonal, int n,    \
                             const T* a, int lda, T* x, int step) {                                                            \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##trsv, MPTUNE_CHANGE, a, x);                                                                             \
        typedef value_t<T> V;                                                                                                  \
        auto b = vector<V>(x, n, step);                                                                                        \
        solve(packed_half<V>(a, lda, n, op, fill, zeros, diagonal), (fill == CUBLAS_FILL_MODE_LOWER) == (op == CUBLAS_OP_N), b); \
        put_vector(b, V(1), V(), x, step);                                                                                     \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##gemm)(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,              \
                             const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {         \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##gemm, MPTUNE_CHANGE, alpha, a, b, beta, c);                                                             \
        typedef value_t<T> V;                                                                                                  \
        const auto ab = product(packed<V>(a, lda, m, k, op_a), packed<V>(b, ldb, k, n, op_b));                                 \
        put(ab, loaded<V>(*alpha), loaded<V>(*beta), c, ldc);                                                                  \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##gemmStridedBatched)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,       \
                                           int n, int k, const T* alpha, const T* a, int lda, long long stride_a, const T* b,  \
                                           int ldb, long long stride_b, const T* beta, T* c, int ldc, long long stride_c,      \
                                           int count) {                                                                        \
        MPTUNE_CALL(X##gemmStridedBatched, MPTUNE_CHANGE, alpha, a, b, beta, c);                                               \
        for (int i = 0; i < count; ++i) {                                                                                      \
            MPTUNE_BLAS(X##gemm)(handle, op_a, op_b, m, n, k, alpha, a + i * stride_a, lda, b + i * stride_b, ldb, beta,       \
                                 c + i * stride_c, ldc);                                                                       \
        }                                                                                                                      \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##gemmBatched)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, \
                                    const T* alpha, const T* const* a, int lda, const T* const* b, int ldb, const T* beta,     \
                                    T* const* c, int ldc, int count) {                                                         \
        const mptune_layer::blas::places<const T> all_a(a, count), all_b(b, count);                                            \
        const mptune_layer::blas::places<T> all_c(c, count);                                                                   \
        for (int i = 0; i < count; ++i) {                                                                                      \
            MPTUNE_BLAS(X##gemm)(handle, op_a, op_b, m, n, k, alpha, all_a.all[i], lda, all_b.all[i], ldb, beta, all_c.all[i], ldc); \
        }                                                                                                                      \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##symm)(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t fill, int m, int n, const T* alpha,       \
                             const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {                         \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##symm, MPTUNE_CHANGE, alpha, a, b, beta, c);                                                             \
        typedef value_t<T> V;                                                                                                  \
        const auto own = packed_half<V>(a, lda, side == CUBLAS_SIDE_LEFT ? m : n, CUBLAS_OP_N, fill, symmetric, false);        \
        const auto other = packed<V>(b, ldb, m, n, CUBLAS_OP_N);                                                               \
        put(side == CUBLAS_SIDE_LEFT ? product(own, other) : product(other, own), loaded<V>(*alpha), loaded<V>(*beta), c, ldc); \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##syrk)(cublasHandle_t, cublasFillMode_t fill, cublasOperation_t op, int n, int k, const T* alpha,        \
                             const T* a, int lda, const T* beta, T* c, int ldc) {                                              \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##syrk, MPTUNE_CHANGE, alpha, a, beta, c);                                                                \
        typedef value_t<T> V;                                                                                                  \
        const auto own = packed<V>(a, lda, n, k, op);                                                                          \
        put(product(own, transposed(own)), loaded<V>(*alpha), loaded<V>(*beta), c, ldc, fill);                                 \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##syr2k)(cublasHandle_t, cublasFillMode_t fill, cublasOperation_t op, int n, int k, const T* alpha,       \
                              const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {                        \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##syr2k, MPTUNE_CHANGE, alpha, a, b, beta, c);                                                            \
        typedef value_t<T> V;                                                                                                  \
        const auto own = packed<V>(a, lda, n, k, op), other = packed<V>(b, ldb, n, k, op);                                     \
        put(product(own, transposed(other)), loaded<V>(*alpha), loaded<V>(*beta), c, ldc, fill);                               \
        put(product(other, transposed(own)), loaded<V>(*alpha), V(1), c, ldc, fill);                                           \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##trmm)(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op,               \
                             cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a, int lda, const T* b,         \
                             int ldb, T* c, int ldc) {                                                                         \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##trmm, MPTUNE_CHANGE, alpha, a, b, c);                                                                   \
        typedef value_t<T> V;                                                                                                  \
        const auto own = packed_half<V>(a, lda, side == CUBLAS_SIDE_LEFT ? m : n, op, fill, zeros, diagonal);                  \
        const auto other = packed<V>(b, ldb, m, n, CUBLAS_OP_N);                                                               \
        put(side == CUBLAS_SIDE_LEFT ? product(own, other) : product(other, own), loaded<V>(*alpha), V(), c, ldc);             \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##trsm)(cublasHandle_t, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op,               \
                             cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* a, int lda, T* b, int ldb) {    \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##trsm, MPTUNE_CHANGE, alpha, a, b);                                                                      \
        typedef value_t<T> V;                                                                                                  \
        const bool is_left = side == CUBLAS_SIDE_LEFT, is_lower = (fill == CUBLAS_FILL_MODE_LOWER) == (op == CUBLAS_OP_N);     \
        const auto own = packed_half<V>(a, lda, is_left ? m : n, op, fill, zeros, diagonal);                                   \
        auto x = packed<V>(b, ldb, m, n, CUBLAS_OP_N);                                                                         \
        for (V& each : x.values) each = times(loaded<V>(*alpha), each);                                                        \
        if (!is_left) x = transposed(x);                                                                                       \
        solve(is_left ? own : transposed(own), is_left == is_lower, x);                                                        \
        put(is_left ? x : transposed(x), V(1), V(), b, ldb);                                                                   \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##trsmBatched)(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t op, \
                                    cublasDiagType_t diagonal, int m, int n, const T* alpha, const T* const* a, int lda,       \
                                    T* const* b, int ldb, int count) {                                                         \
        const mptune_layer::blas::places<const T> all_a(a, count);                                                             \
        const mptune_layer::blas::places<T> all_b(b, count);                                                                   \
        for (int i = 0; i < count; ++i)                                                                                        \
            MPTUNE_BLAS(X##trsm)(handle, side, fill, op, diagonal, m, n, alpha, all_a.all[i], lda, all_b.all[i], ldb);         \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##geam)(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, const T* alpha,     \
                             const T* a, int lda, const T* beta, const T* b, int ldb, T* c, int ldc) {                         \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##geam, MPTUNE_CHANGE, alpha, a, beta, b, c);                                                             \
        typedef value_t<T> V;                                                                                                  \
        const V factor = loaded<V>(*alpha), other = loaded<V>(*beta);                                                          \
        matrix<V> sum(m, n);                                                                                                   \
        if (factor != V()) put(packed<V>(a, lda, m, n, op_a), factor, V(), sum.values.data(), m);                              \
        if (other != V()) put(packed<V>(b, ldb, m, n, op_b), other, V(1), sum.values.data(), m);                               \
        put(sum, V(1), V(), c, ldc);                                                                                           \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##dgmm)(cublasHandle_t, cublasSideMode_t side, int m, int n, const T* a, int lda, const T* x, int step,   \
                             T* c, int ldc) {                                                                                  \
        using namespace mptune_layer::blas;                                                                                    \
        MPTUNE_CALL(X##dgmm, MPTUNE_CHANGE, a, x, c);                                                                          \
        typedef value_t<T> V;                                                                                                  \
        const auto diagonal = vector<V>(x, side == CUBLAS_SIDE_LEFT ? m : n, step);                                            \
        auto own = packed<V>(a, lda, m, n, CUBLAS_OP_N);                                                                       \
        for (int j = 0; j < n; ++j)                                                                                            \
            for (int i = 0; i < m; ++i) own(i, j) = times(own(i, j), diagonal.values[side == CUBLAS_SIDE_LEFT ? i : j]);       \
        put(own, V(1), V(), c, ldc);                                                                                           \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##getrfBatched)(cublasHandle_t, int n, T* const* a, int lda, int* pivots, int* info, int count) {         \
        const mptune_layer::blas::places<T> all(a, count);                                                                     \
        for (int i = 0; i < count; ++i) {                                                                                      \
            MPTUNE_CALL(X##getrfBatched, MPTUNE_CHANGE, all.all[i], pivots, info);                                             \
            mptune_layer::blas::lu(all.all[i], lda, n, pivots != nullptr ? pivots + int64_t(i) * n : nullptr, info + i);       \
        }                                                                                                                      \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }
MPTUNE_OF_TYPE(S, float, S, Isa)
MPTUNE_OF_TYPE(D, double, D, Ida)
MPTUNE_OF_TYPE(C, float2, Sc, Ica)
MPTUNE_OF_TYPE(Z, double2, Dz, Iza)
#undef MPTUNE_OF_TYPE

#define MPTUNE_OF_PRODUCT(name, T, conjugates)                                                                             \
    MPTUNE_FUNCTION(name)(cublasHandle_t handle, int n, const T* x, int step_x, const T* y, int step_y, T* result) {       \
        using namespace mptune_layer::blas;                                                                                \
        MPTUNE_CALL(name, MPTUNE_ANSWER, x, y, result);                                                                    \
        store(*result, dot<value_t<T>>(n, x, step_x, y, step_y, conjugates));                                              \
        return CUBLAS_STATUS_SUCCESS;                                                                                      \
    }
MPTUNE_OF_PRODUCT(Sdot, float, false)
MPTUNE_OF_PRODUCT(Ddot, double, false)
MPTUNE_OF_PRODUCT(Cdotu, float2, false)
MPTUNE_OF_PRODUCT(Zdotu, double2, false)
MPTUNE_OF_PRODUCT(Cdotc, float2, true)
MPTUNE_OF_PRODUCT(Zdotc, double2, true)
#undef MPTUNE_OF_PRODUCT

// A + alpha x y', whole and in one half.
#define MPTUNE_OF_OUTER(name, T, conjugates)                                                                               \
    MPTUNE_FUNCTION(name)(cublasHandle_t, int m, int n, const T* alpha, const T* x, int step_x, const T* y, int step_y,    \
                          T* a, int lda) {                                                                                 \
        using namespace mptune_layer::blas;                                                                                \
        MPTUNE_CALL(name, MPTUNE_CHANGE, alpha, x, y, a);                                                                  \
        typedef value_t<T> V;                                                                                              \
        const auto row = vector<V>(y, n, step_y);                                                                          \
        const auto turned = packed<V>(row.values.data(), n, 1, n, conjugates ? CUBLAS_OP_C : CUBLAS_OP_T);                 \
        put(product(vector<V>(x, m, step_x), turned), loaded<V>(*alpha), V(1), a, lda);                                    \
        return CUBLAS_STATUS_SUCCESS;                                                                                      \
    }
MPTUNE_OF_OUTER(Sger, float, false)
MPTUNE_OF_OUTER(Dger, double, false)
MPTUNE_OF_OUTER(Cgeru, float2, false)
MPTUNE_OF_OUTER(Zgeru, double2, false)
MPTUNE_OF_OUTER(Cgerc, float2, true)
MPTUNE_OF_OUTER(Zgerc, double2, true)
#undef MPTUNE_OF_OUTER

#define MPTUNE_OF_SYMMETRY(X, mv, T, kind)                                                                             \
    MPTUNE_FUNCTION(X##mv)(cublasHandle_t, cublasFillMode_t fill, int n, const T* alpha, const T* a, int lda, const T* x,  \
                           int step_x, const T* beta, T* y, int step_y) {                                                  \
        using namespace mptune_layer::blas;                                                                                \
        MPTUNE_CALL(X##mv, MPTUNE_CHANGE, alpha, a, x, beta, y);                                                           \
        typedef value_t<T> V;                                                                                              \
        const auto ax = product(packed_half<V>(a, lda, n, CUBLAS_OP_N, fill, kind, false), vector<V>(x, n, step_x));       \
        put_vector(ax, loaded<V>(*alpha), loaded<V>(*beta), y, step_y);                                                    \
        return CUBLAS_STATUS_SUCCESS;                                                                                      \
    }
MPTUNE_OF_SYMMETRY(S, symv, float, symmetric)
MPTUNE_OF_SYMMETRY(D, symv, double, symmetric)
MPTUNE_OF_SYMMETRY(C, hemv, float2, hermitian)
MPTUNE_OF_SYMMETRY(Z, hemv, double2, hermitian)
#undef MPTUNE_OF_SYMMETRY
#define MPTUNE_OF_REAL(X, T)                                                                                               \
    MPTUNE_FUNCTION(X##syr)(cublasHandle_t, cublasFillMode_t fill, int n, const T* alpha, const T* x, int step, T* a,      \
                            int lda) {                                                                                     \
        using namespace mptune_layer::blas;                                                                                \
        MPTUNE_CALL(X##syr, MPTUNE_CHANGE, alpha, x, a);                                                                   \
        const auto own = vector<T>(x, n, step);                                                                            \
        put(product(own, transposed(own)), *alpha, T(1), a, lda, fill);                                                    \
        return CUBLAS_STATUS_SUCCESS;                                                                                      \
    }                                                                                                                      \
    MPTUNE_FUNCTION(X##rot)(cublasHandle_t, int n, T* x, int step_x, T* y, int step_y, const T* c, const T* s) {           \
        MPTUNE_CALL(X##rot, MPTUNE_CHANGE, x, y, c, s);                                                                    \
        T *const a = mptune_layer::blas::first_of(x, n, step_x), *const b = mptune_layer::blas::first_of(y, n, step_y);    \
        for (int64_t i = 0; i < n; ++i) {                                                                                  \
            const T left = a[i * step_x], right = b[i * step_y];                                                           \
            a[i * step_x] = *c * left + *s * right;                                                                        \
            b[i * step_y] = *c * right - *s * left;                                                                        \
        }                                                                                                                  \
        return CUBLAS_STATUS_SUCCESS;                                                                                      \
    }
MPTUNE_OF_REAL(S, float)
MPTUNE_OF_REAL(D, double)
#undef MPTUNE_OF_REAL
#define MPTUNE_SCALED(name, T, R)                                                                                          \
    MPTUNE_FUNCTION(name)(cublasHandle_t, int n, const R* alpha, T* x, int step) {                                         \
        MPTUNE_CALL(name, MPTUNE_CHANGE, alpha, x);                                                                        \
        for (int64_t i = 0; i < n; ++i) x[i * step].x *= *alpha, x[i * step].y *= *alpha;                                  \
        return CUBLAS_STATUS_SUCCESS;                                                                                      \
    }
MPTUNE_SCALED(Csscal, float2, float)
MPTUNE_SCALED(Zdscal, double2, double)
#undef MPTUNE_SCALED

// -- types that are known when a program runs ----------------------------------------------------

MPTUNE_FUNCTION(GemmStridedBatchedEx)(cublasHandle_t, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                                      const void* alpha, const void* a, cudaDataType type_a, int lda, long long stride_a,
                                      const void* b, cudaDataType type_b, int ldb, long long stride_b, const void* beta,
                                      void* c, cudaDataType type_c, int ldc, long long stride_c, int count, int compute, int) {
    using namespace mptune_layer::blas;
    if (!is_real(type_a) || !is_real(type_b) || !is_real(type_c)) return CUBLAS_STATUS_NOT_SUPPORTED;
    MPTUNE_CALL(GemmEx, MPTUNE_CHANGE, alpha, a, b, beta, c);
    const double factor = number(scale_type(compute), alpha), other = number(scale_type(compute), beta);
    for (int i = 0; i < count; ++i) {
        with_compute_type(compute, [&](auto one) {
            typedef decltype(one) V;
            const auto ab = product(packed_as<V>(type_a, moved(a, type_a, i * stride_a), lda, m, k, op_a),
                                    packed_as<V>(type_b, moved(b, type_b, i * stride_b), ldb, k, n, op_b));
            with_type(type_c, moved(c, type_c, i * stride_c), [&](const auto* to) {
                put(ab, V(factor), V(other), const_cast<std::remove_const_t<std::remove_pointer_t<decltype(to)>>*>(to), ldc);
            });
        });
    }
    return CUBLAS_STATUS_SUCCESS;
}
MPTUNE_FUNCTION(GemmEx)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                        const void* alpha, const void* a, cudaDataType type_a, int lda, const void* b, cudaDataType type_b,
                        int ldb, const void* beta, void* c, cudaDataType type_c, int ldc, int compute, int way) {
    return MPTUNE_BLAS(GemmStridedBatchedEx)(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, 0, b, type_b, ldb, 0, beta, c,
                                             type_c, ldc, 0, 1, compute, way);
}
MPTUNE_FUNCTION(SgemmEx)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,
                         const float* alpha, const void* a, cudaDataType type_a, int lda, const void* b, cudaDataType type_b,
                         int ldb, const float* beta, void* c, cudaDataType type_c, int ldc) {
    return MPTUNE_BLAS(GemmEx)(handle, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc,
                               CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
#define MPTUNE_OF_SHORT(X, T, type)                                                                                            \
    MPTUNE_FUNCTION(X##gemm)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k,       \
                             const T* alpha, const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {         \
        return MPTUNE_BLAS(GemmEx)(handle, op_a, op_b, m, n, k, alpha, a, type, lda, b, type, ldb, beta, c, type, ldc,         \
                                   CUBLAS_COMPUTE_16F, CUBLAS_GEMM_DEFAULT);                                                   \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##gemmStridedBatched)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m,       \
                                           int n, int k, const T* alpha, const T* a, int lda, long long stride_a, const T* b,  \
                                           int ldb, long long stride_b, const T* beta, T* c, int ldc, long long stride_c,      \
                                           int count) {                                                                        \
        return MPTUNE_BLAS(GemmStridedBatchedEx)(handle, op_a, op_b, m, n, k, alpha, a, type, lda, stride_a, b, type, ldb,     \
                                                 stride_b, beta, c, type, ldc, stride_c, count, CUBLAS_COMPUTE_16F,            \
                                                 CUBLAS_GEMM_DEFAULT);                                                         \
    }                                                                                                                          \
    MPTUNE_FUNCTION(X##gemmBatched)(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int m, int n, int k, \
                                    const T* alpha, const T* const* a, int lda, const T* const* b, int ldb, const T* beta,     \
                                    T* const* c, int ldc, int count) {                                                         \
        const mptune_layer::blas::places<const T> all_a(a, count), all_b(b, count);                                            \
        const mptune_layer::blas::places<T> all_c(c, count);                                                                   \
        for (int i = 0; i < count; ++i) {                                                                                      \
            MPTUNE_BLAS(X##gemm)(handle, op_a, op_b, m, n, k, alpha, all_a.all[i], lda, all_b.all[i], ldb, beta, all_c.all[i], ldc); \
        }                                                                                                                      \
        return CUBLAS_STATUS_SUCCESS;                                                                                          \
    }
MPTUNE_OF_SHORT(H, __half, CUDA_R_16F)
#undef MPTUNE_OF_SHORT
MPTUNE_FUNCTION(DotEx)(cublasHandle_t handle, int n, const void* x, cudaDataType type_x, int step_x, const void* y,
                       cudaDataType type_y, int step_y, void* result, cudaDataType type, cudaDataType compute) {
    using namespace mptune_layer::blas;
    if (!is_real(type_x) || !is_real(type_y) || !is_real(type)) return CUBLAS_STATUS_NOT_SUPPORTED;
    MPTUNE_CALL(DotEx, MPTUNE_ANSWER, x, y, result);
    with_compute_type(compute, [&](auto one) {
        with_type(type_x, x, [&](const auto* a) {
            const auto sum = with_type(type_y, y, [&](const auto* b) { return dot<decltype(one)>(n, a, step_x, b, step_y, false); });
            with_type(type, result, [&](const auto* to) {
                store(*const_cast<std::remove_const_t<std::remove_pointer_t<decltype(to)>>*>(to), sum);
            });
        });
    });
    return CUBLAS_STATUS_SUCCESS;
}

#undef MPTUNE_FUNCTION
#undef MPTUNE_CHANGE
#undef MPTUNE_ANSWER
#undef MPTUNE_CALL
#undef MPTUNE_STRING
#undef MPTUNE_STRING_OF
