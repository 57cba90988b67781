// cuRAND's generators for kernels: XORWOW (Marsaglia, Xorshift RNGs, 2003) and Philox4x32-10 (Salmon et al., 2011).
//
// One text for templates (`USES_LIBRARY(curand);`) and for programs that run behind CUDA's names. Whole numbers are
// those of cuRAND to the bit, with its seeds, subsequences and offsets; uniform numbers are made of them by its formulas,
// and normal ones by Box and Muller's. States have cuRAND's size, so that the host can allocate them.

#pragma once

#define MPTUNE_RANDOM __device__ inline
#if defined(MPTUNE_HOST) || defined(MPTUNE_GPU)
#define MPTUNE_RANDOM_F(name) mp::name
#define MPTUNE_RANDOM_D(name) mp::name
#else
#define MPTUNE_RANDOM_F(name) name##f
#define MPTUNE_RANDOM_D(name) name
#endif

struct curandStateXORWOW {
    unsigned int d, v[5];
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState_t;
typedef curandStateXORWOW curandState;

struct curandStatePhilox4_32_10 {
    uint4 ctr, output;
    uint2 key;
    unsigned int STATE;
    int boxmuller_flag, boxmuller_flag_double;
    float boxmuller_extra;
    double boxmuller_extra_double;
};
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace mptune_random {

// XORWOW without its counter is linear over the field of two elements: n steps are x^n modulo the polynomial below,
// x^160 + x^155 + ..., applied to the state. The least significant word comes first.
struct polynomial {
    unsigned words[5];
};
MPTUNE_RANDOM void step(unsigned (&v)[5]) {
    const unsigned t = v[0] ^ (v[0] >> 2);
    for (int i = 0; i < 4; ++i) v[i] = v[i + 1];
    v[4] = (v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1));
}
MPTUNE_RANDOM polynomial product(const polynomial& a, const polynomial& b) {
    constexpr unsigned rest[5] = {0x00060001u, 0x08610030u, 0x00062121u, 0x0f3c0035u, 0x00000f0eu};
    polynomial found = {};
    for (int bit = 159; bit >= 0; --bit) {
        const unsigned overflow = 0u - (found.words[4] >> 31), wanted = 0u - (b.words[bit / 32] >> (bit % 32) & 1u);
        for (int i = 4; i >= 0; --i) {
            const unsigned moved = found.words[i] << 1 | (i > 0 ? found.words[i > 0 ? i - 1 : 0] >> 31 : 0u);
            found.words[i] = moved ^ (overflow & rest[i]) ^ (wanted & a.words[i]);
        }
    }
    return found;
}
// Goes on by n times as many steps as a power of x says.
MPTUNE_RANDOM void skip(unsigned (&v)[5], polynomial power, unsigned long long n) {
    if (n == 0) return;
    polynomial all = {{1u, 0u, 0u, 0u, 0u}};
    for (; n != 0; n >>= 1) {
        if (n & 1) all = product(all, power);
        if (n > 1) power = product(power, power);
    }
    unsigned sum[5] = {};
    for (int bit = 0; bit < 160; ++bit) {
        const unsigned wanted = 0u - (all.words[bit / 32] >> (bit % 32) & 1u);
        for (int i = 0; i < 5; ++i) sum[i] ^= wanted & v[i];
        step(v);
    }
    for (int i = 0; i < 5; ++i) v[i] = sum[i];
}

MPTUNE_RANDOM uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        const unsigned long long a = 0xD2511F53ull * counter.x, b = 0xCD9E8D57ull * counter.z;
        uint4 next;
        next.x = static_cast<unsigned>(b >> 32) ^ counter.y ^ key.x;
        next.y = static_cast<unsigned>(b);
        next.z = static_cast<unsigned>(a >> 32) ^ counter.w ^ key.y;
        next.w = static_cast<unsigned>(a);
        counter = next;
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}
// Adds to the lower or the upper half of the counter.
MPTUNE_RANDOM void add(unsigned& low, unsigned& high, unsigned long long n) {
    const unsigned long long sum = (static_cast<unsigned long long>(high) << 32 | low) + n;
    low = static_cast<unsigned>(sum);
    high = static_cast<unsigned>(sum >> 32);
}
MPTUNE_RANDOM void advance(curandStatePhilox4_32_10* state, unsigned long long n) {
    const unsigned long long before = static_cast<unsigned long long>(state->ctr.y) << 32 | state->ctr.x;
    add(state->ctr.x, state->ctr.y, n);
    if (before + n < n) add(state->ctr.z, state->ctr.w, 1);
}

constexpr float width = 2.3283064e-10f;
constexpr double width_double = 1.1102230246251565e-16;
MPTUNE_RANDOM float uniform(unsigned x) { return x * width + width / 2.0f; }
MPTUNE_RANDOM unsigned long long joined(unsigned x, unsigned y) {
    return x ^ static_cast<unsigned long long>(y) << 21;
}
MPTUNE_RANDOM float2 normal(unsigned x, unsigned y) {
    const float radius = MPTUNE_RANDOM_F(sqrt)(-2.0f * MPTUNE_RANDOM_F(log)(uniform(x)));
    constexpr float turn = 2.3283064e-10f * 6.2831855f;
    float2 found;
    MPTUNE_RANDOM_F(sincos)(y * turn + turn / 2, &found.x, &found.y);
    found.x *= radius;
    found.y *= radius;
    return found;
}
MPTUNE_RANDOM double2 normal_double(const uint4& x) {
    const double u = joined(x.x, x.y) * width_double + width_double / 2.0;
    const double radius = MPTUNE_RANDOM_D(sqrt)(-2.0 * MPTUNE_RANDOM_D(log)(u));
    double2 found;
    MPTUNE_RANDOM_D(sincospi)(joined(x.z, x.w) * (width_double * 2.0) + width_double, &found.x, &found.y);
    found.x *= radius;
    found.y *= radius;
    return found;
}

}  // namespace mptune_random

MPTUNE_RANDOM void skipahead(unsigned long long n, curandStateXORWOW* state) {
    mptune_random::skip(state->v, {{2u, 0u, 0u, 0u, 0u}}, n);
    state->d += 362437u * static_cast<unsigned>(n);
}
MPTUNE_RANDOM void skipahead_sequence(unsigned long long n, curandStateXORWOW* state) {
    // x to the power of 2^67
    mptune_random::skip(state->v, {{0x26294934u, 0x77bbc248u, 0x1a87dad0u, 0x930052d4u, 0x947e6dd2u}}, n);
}
MPTUNE_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                               curandStateXORWOW* state) {
    const unsigned a = 1099087573u * (static_cast<unsigned>(seed) ^ 0xaad26b49u);
    const unsigned b = 2591861531u * (static_cast<unsigned>(seed >> 32) ^ 0xf7dcefddu);
    const unsigned v[5] = {123456789u + a, 362436069u ^ a, 521288629u + b, 88675123u ^ b, 5783321u + a};
    *state = {6615241u + a + b, {v[0], v[1], v[2], v[3], v[4]}, 0, 0, 0.0f, 0.0};
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}
MPTUNE_RANDOM unsigned int curand(curandStateXORWOW* state) {
    mptune_random::step(state->v);
    state->d += 362437u;
    return state->v[4] + state->d;
}
MPTUNE_RANDOM uint4 curand4(curandStateXORWOW* state) {
    uint4 found;
    found.x = curand(state);
    found.y = curand(state);
    found.z = curand(state);
    found.w = curand(state);
    return found;
}

MPTUNE_RANDOM void skipahead(unsigned long long n, curandStatePhilox4_32_10* state) {
    const unsigned in_four = state->STATE + static_cast<unsigned>(n & 3);
    mptune_random::advance(state, n / 4 + in_four / 4);
    state->STATE = in_four % 4;
    state->output = mptune_random::philox(state->ctr, state->key);
}
MPTUNE_RANDOM void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* state) {
    mptune_random::add(state->ctr.z, state->ctr.w, n);
    state->output = mptune_random::philox(state->ctr, state->key);
}
MPTUNE_RANDOM void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                               curandStatePhilox4_32_10* state) {
    state->ctr.x = state->ctr.y = state->ctr.z = state->ctr.w = 0;
    state->key.x = static_cast<unsigned>(seed);
    state->key.y = static_cast<unsigned>(seed >> 32);
    state->STATE = 0;
    state->boxmuller_flag = state->boxmuller_flag_double = 0;
    state->boxmuller_extra = 0.0f;
    state->boxmuller_extra_double = 0.0;
    skipahead_sequence(subsequence, state);
    skipahead(offset, state);
}
MPTUNE_RANDOM unsigned int curand(curandStatePhilox4_32_10* state) {
    const uint4 four = state->output;
    const unsigned at = state->STATE++;
    if (at == 3) {
        mptune_random::advance(state, 1);
        state->output = mptune_random::philox(state->ctr, state->key);
        state->STATE = 0;
    }
    return at == 0 ? four.x : at == 1 ? four.y : at == 2 ? four.z : four.w;
}
MPTUNE_RANDOM uint4 curand4(curandStatePhilox4_32_10* state) {
    uint4 found;
    found.x = curand(state);
    found.y = curand(state);
    found.z = curand(state);
    found.w = curand(state);
    return found;
}

template <class State>
MPTUNE_RANDOM float curand_uniform(State* state) {
    return mptune_random::uniform(curand(state));
}
template <class State>
MPTUNE_RANDOM float4 curand_uniform4(State* state) {
    const uint4 four = curand4(state);
    float4 found;
    found.x = mptune_random::uniform(four.x);
    found.y = mptune_random::uniform(four.y);
    found.z = mptune_random::uniform(four.z);
    found.w = mptune_random::uniform(four.w);
    return found;
}
MPTUNE_RANDOM double curand_uniform_double(curandStateXORWOW* state) {
    const unsigned x = curand(state), y = curand(state);
    return mptune_random::joined(x, y) * mptune_random::width_double + mptune_random::width_double / 2.0;
}
MPTUNE_RANDOM double curand_uniform_double(curandStatePhilox4_32_10* state) {
    return curand(state) * 2.3283064365386963e-10 + 2.3283064365386963e-10;
}
template <class State>
MPTUNE_RANDOM double2 curand_uniform2_double(State* state) {
    const uint4 four = curand4(state);
    double2 found;
    found.x = mptune_random::joined(four.x, four.y) * mptune_random::width_double + mptune_random::width_double / 2.0;
    found.y = mptune_random::joined(four.z, four.w) * mptune_random::width_double + mptune_random::width_double / 2.0;
    return found;
}

template <class State>
MPTUNE_RANDOM float2 curand_normal2(State* state) {
    const unsigned x = curand(state), y = curand(state);
    return mptune_random::normal(x, y);
}
template <class State>
MPTUNE_RANDOM float4 curand_normal4(State* state) {
    const float2 a = curand_normal2(state), b = curand_normal2(state);
    float4 found;
    found.x = a.x;
    found.y = a.y;
    found.z = b.x;
    found.w = b.y;
    return found;
}
template <class State>
MPTUNE_RANDOM double2 curand_normal2_double(State* state) {
    return mptune_random::normal_double(curand4(state));
}
// One of a pair is kept for the next call.
template <class State>
MPTUNE_RANDOM float curand_normal(State* state) {
    state->boxmuller_flag = !state->boxmuller_flag;
    if (!state->boxmuller_flag) return state->boxmuller_extra;
    const float2 two = curand_normal2(state);
    state->boxmuller_extra = two.y;
    return two.x;
}
template <class State>
MPTUNE_RANDOM double curand_normal_double(State* state) {
    state->boxmuller_flag_double = !state->boxmuller_flag_double;
    if (!state->boxmuller_flag_double) return state->boxmuller_extra_double;
    const double2 two = curand_normal2_double(state);
    state->boxmuller_extra_double = two.y;
    return two.x;
}
template <class State>
MPTUNE_RANDOM float curand_log_normal(State* state, float mean, float deviation) {
    return MPTUNE_RANDOM_F(exp)(mean + deviation * curand_normal(state));
}
template <class State>
MPTUNE_RANDOM double curand_log_normal_double(State* state, double mean, double deviation) {
    return MPTUNE_RANDOM_D(exp)(mean + deviation * curand_normal_double(state));
}

#undef MPTUNE_RANDOM_D
#undef MPTUNE_RANDOM_F
#undef MPTUNE_RANDOM
