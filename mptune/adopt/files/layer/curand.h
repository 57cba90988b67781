// cuRAND's functions of the host. The numbers are not cuRAND's own: they have the same distributions. What is generated
// comes to the device by a copy, like other data of the host.
#pragma once

#include <stdint.h>

#include <random>
#include <vector>

#include "mptune_layer/library_calls.hpp"

#include "mptune_layer/letters_begin.hpp"

typedef enum {
    CURAND_STATUS_SUCCESS = 0, CURAND_STATUS_VERSION_MISMATCH = 100, CURAND_STATUS_NOT_INITIALIZED, CURAND_STATUS_ALLOCATION_FAILED,
    CURAND_STATUS_TYPE_ERROR, CURAND_STATUS_OUT_OF_RANGE, CURAND_STATUS_LENGTH_NOT_MULTIPLE,
    CURAND_STATUS_DOUBLE_PRECISION_REQUIRED, CURAND_STATUS_LAUNCH_FAILURE = 201, CURAND_STATUS_PREEXISTING_FAILURE,
    CURAND_STATUS_INITIALIZATION_FAILED, CURAND_STATUS_ARCH_MISMATCH, CURAND_STATUS_INTERNAL_ERROR = 999
} curandStatus_t;
typedef curandStatus_t curandStatus;
typedef enum {
    CURAND_RNG_PSEUDO_DEFAULT = 100, CURAND_RNG_PSEUDO_XORWOW, CURAND_RNG_PSEUDO_MRG32K3A = 121, CURAND_RNG_PSEUDO_MTGP32 = 141,
    CURAND_RNG_PSEUDO_MT19937, CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161, CURAND_RNG_QUASI_DEFAULT = 200, CURAND_RNG_QUASI_SOBOL32,
    CURAND_RNG_QUASI_SCRAMBLED_SOBOL32, CURAND_RNG_QUASI_SOBOL64, CURAND_RNG_QUASI_SCRAMBLED_SOBOL64
} curandRngType_t;
typedef curandRngType_t curandRngType;
typedef enum {
    CURAND_ORDERING_PSEUDO_BEST = 100, CURAND_ORDERING_PSEUDO_DEFAULT, CURAND_ORDERING_PSEUDO_SEEDED,
    CURAND_ORDERING_PSEUDO_LEGACY, CURAND_ORDERING_PSEUDO_DYNAMIC, CURAND_ORDERING_QUASI_DEFAULT = 201
} curandOrdering_t;
typedef curandOrdering_t curandOrdering;

struct curandGenerator_st {
    std::mt19937_64 engine;
};
typedef curandGenerator_st* curandGenerator_t;

inline curandStatus_t curandCreateGenerator(curandGenerator_t* made, curandRngType_t) {
    *made = new curandGenerator_st{};
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandCreateGeneratorHost(curandGenerator_t* made, curandRngType_t type) { return curandCreateGenerator(made, type); }
inline curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
    delete generator;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
    generator->engine.seed(seed);
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long count) {
    if (count < 1ull << 32) generator->engine.discard(count);
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetQuasiRandomGeneratorDimensions(curandGenerator_t, unsigned) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGenerateSeeds(curandGenerator_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGetVersion(int* version) {
    *version = 10300;
    return CURAND_STATUS_SUCCESS;
}

namespace mptune_layer {
template <class T, class F>
curandStatus_t generated(T* out, size_t count, F next) {
    std::vector<T> all(count);
    for (T& each : all) each = next();
    const bool is_done = copy_elements<T>("curandGenerate", out, all.data(), count) == cudaSuccess;
    return is_done ? CURAND_STATUS_SUCCESS : CURAND_STATUS_LAUNCH_FAILURE;
}
}  // namespace mptune_layer

inline curandStatus_t curandGenerate(curandGenerator_t generator, unsigned* out, size_t count) {
    return mptune_layer::generated(out, count, [&] { return static_cast<unsigned>(generator->engine() >> 32); });
}
inline curandStatus_t curandGenerateLongLong(curandGenerator_t generator, unsigned long long* out, size_t count) {
    return mptune_layer::generated(out, count, [&] { return static_cast<unsigned long long>(generator->engine()); });
}
// Above 0, up to 1.
inline curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* out, size_t count) {
    return mptune_layer::generated(out, count, [&] { return static_cast<float>((generator->engine() >> 40) + 1) * 0x1p-24f; });
}
inline curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double* out, size_t count) {
    return mptune_layer::generated(out, count, [&] { return static_cast<double>((generator->engine() >> 11) + 1) * 0x1p-53; });
}
#define MPTUNE_GENERATE(name, T, distribution)                                                                             \
    inline curandStatus_t name(curandGenerator_t generator, T* out, size_t count, T mean, T deviation) {                   \
        std::distribution<T> found(mean, deviation);                                                                       \
        return mptune_layer::generated(out, count, [&] { return found(generator->engine); });                              \
    }
MPTUNE_GENERATE(curandGenerateNormal, float, normal_distribution)
MPTUNE_GENERATE(curandGenerateNormalDouble, double, normal_distribution)
MPTUNE_GENERATE(curandGenerateLogNormal, float, lognormal_distribution)
MPTUNE_GENERATE(curandGenerateLogNormalDouble, double, lognormal_distribution)
#undef MPTUNE_GENERATE
inline curandStatus_t curandGeneratePoisson(curandGenerator_t generator, unsigned* out, size_t count, double mean) {
    std::poisson_distribution<unsigned> found(mean);
    return mptune_layer::generated(out, count, [&] { return found(generator->engine); });
}

#include "mptune_layer/letters_end.hpp"
