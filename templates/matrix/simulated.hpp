// The instructions of matrix units on the host, for tests: a lane puts down what it holds, waits for the others of its
// warp, and takes what it gets. Written from the vendors' tables of which lane holds what, not from units.hpp.
//
// Products are exact; an instruction rounds its sum once to the type of the sums, NVIDIA's of fp32 to zero (Fasi et al. 2021).
// Copies arrive as late as they may, and what they will overwrite is lost as soon as they are asked for. Every lane of a warp
// has to come to every instruction: the process is ended if one does not. None is inlined, which would take the compiler
// minutes.

namespace mp {
namespace units {
namespace simulated {

constexpr int most_threads = 1024;

inline int thread() {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
inline int lane() {
    return thread() % warp_threads;
}

// What all lanes of the warp have put down, which stays there until the next but one time.
template <class T>
__attribute__((noinline)) const T* of_warp(const T& mine) {
    constexpr int bytes = 128;
    static_assert(sizeof(T) <= bytes, "a lane holds more than there is room for");
    static thread_local struct {
        alignas(16) char held[2][most_threads][bytes];
        unsigned long times[most_threads];
    } all;
    const int self = thread(), first = self - lane();
    char(*const held)[bytes] = all.held[all.times[self]++ % 2];
    __builtin_memcpy(held[self], &mine, sizeof(T));
    ::mptune_host::barrier<0>();
    // Those that have gone on since may have put down the next already.
    for (int i = 0; i < warp_threads; ++i)
        if (all.times[first + i] - all.times[self] > 1) __builtin_trap();
    static thread_local T found[warp_threads];
    for (int i = 0; i < warp_threads; ++i) __builtin_memcpy(found + i, held[first + i], sizeof(T));
    return found;
}

inline double value(half, unsigned bits) {
    return static_cast<float>(half::from_bits(static_cast<unsigned short>(bits)));
}
inline double value(bfloat16, unsigned bits) {
    return static_cast<float>(bfloat16::from_bits(static_cast<unsigned short>(bits)));
}

// c + sum over k of row[k] * column[k]; in fp64 every product is added in one rounding.
template <class S>
__attribute__((noinline)) S sum_of_products(S c, const double* row, const double* column, int n) {
    double sum = static_cast<double>(c);
    for (int k = 0; k < n; ++k) sum = __builtin_fma(row[k], column[k], sum);
    const S rounded(sum);
#if defined(MPTUNE_UNITS_MMA)
    if constexpr (detail::same<S, float>) {
        const unsigned bits = detail::bits_as<unsigned>(rounded);
        // One of smaller magnitude, or of an infinity the largest number.
        if (__builtin_fabs(static_cast<double>(rounded)) > __builtin_fabs(sum)) return detail::bits_as<float>(bits - 1);
    }
#endif
    return rounded;
}

}  // namespace simulated

#if defined(MPTUNE_UNITS_MMA)

__attribute__((noinline)) inline void ldmatrix_of(unsigned (&d)[4], const void* row, bool is_transposed) {
    using rows = unsigned short[8];
    const void* const* address = simulated::of_warp(row);
    const int first = simulated::lane() / 4, second = simulated::lane() % 4 * 2;
    for (int matrix = 0; matrix < 4; ++matrix) {
        unsigned element[2];
        for (int i = 0; i < 2; ++i) {
            const int r = is_transposed ? second + i : first, c = is_transposed ? first : second + i;
            element[i] = (*static_cast<const rows*>(address[8 * matrix + r]))[c];
        }
        d[matrix] = element[0] | element[1] << 16;
    }
}
template <class T>
inline void ldmatrix(unsigned (&d)[4], const T* tile, unsigned offset) {
    ldmatrix_of(d, tile + offset, false);
}
template <class T>
inline void ldmatrix_transposed(unsigned (&d)[4], const T* tile, unsigned offset) {
    ldmatrix_of(d, tile + offset, true);
}
template <class T>
inline T load_shared(const T* pointer) {
    return *pointer;
}

namespace simulated {

struct copies {
    static constexpr unsigned long most = 512;
    struct {
        void* to;
        const void* from;
        int bytes;
        unsigned long group;
    } pending[most];
};
static thread_local copies of_thread[most_threads];
// From 1 on: what has no initial value is taken for shared memory, and may begin as NaN.
struct counts {
    unsigned long asked = 1, arrived = 1, group = 1;
};
static thread_local counts counts_of_thread[most_threads];

__attribute__((noinline)) inline void arrive(unsigned long before_group) {
    counts& own = counts_of_thread[thread()];
    for (; own.arrived < own.asked; ++own.arrived) {
        auto& copy = of_thread[thread()].pending[own.arrived % copies::most];
        if (copy.group >= before_group) return;
        __builtin_memset(copy.to, 0, 16);
        __builtin_memcpy(copy.to, copy.from, static_cast<unsigned long>(copy.bytes));
    }
}

}  // namespace simulated

__attribute__((noinline)) inline void copy_later(void* to, const void* from, int bytes) {
    simulated::counts& own = simulated::counts_of_thread[simulated::thread()];
    if (own.asked - own.arrived == simulated::copies::most || bytes < 0 || bytes > 16) __builtin_trap();
    if (reinterpret_cast<unsigned long>(to) % 16 != 0 || reinterpret_cast<unsigned long>(from) % 16 != 0) __builtin_trap();
    simulated::of_thread[simulated::thread()].pending[own.asked++ % simulated::copies::most] = {to, from, bytes, own.group};
    __builtin_memset(to, 0xff, 16);
}
inline void end_of_copies() {
    ++simulated::counts_of_thread[simulated::thread()].group;
}
template <int Groups>
inline void wait_for_copies() {
    const unsigned long group = simulated::counts_of_thread[simulated::thread()].group;
    simulated::arrive(group < Groups ? 0 : group - Groups);
}

namespace simulated {

// mma.m16n8k16 of 16-bit types: which row or column of A, B and C the i-th element of a lane is of.
template <class T, class S>
__attribute__((noinline)) void mma_16(S* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
    struct registers {
        unsigned a[4], b[2];
    };
    const registers* warp = of_warp(registers{ {a[0], a[1], a[2], a[3]}, {b0, b1} });
    double rows[16][16], columns[8][16];
    for (int lane = 0; lane < 32; ++lane) {
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 8; ++i) {
            const int row = i < 2 || (4 <= i && i < 6) ? group : group + 8;
            const int column = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
            rows[row][column] = value(T(), warp[lane].a[i / 2] >> 16 * (i % 2) & 0xffff);
        }
        for (int i = 0; i < 4; ++i) {
            const int row = in_group * 2 + (i & 1) + (i < 2 ? 0 : 8);
            columns[group][row] = value(T(), warp[lane].b[i / 2] >> 16 * (i % 2) & 0xffff);
        }
    }
    const int self = lane();
    for (int i = 0; i < 4; ++i) {
        const int row = (self >> 2) + (i < 2 ? 0 : 8), column = self % 4 * 2 + (i & 1);
        d[i] = sum_of_products(d[i], rows[row], columns[column], 16);
    }
}

}  // namespace simulated

template <class T, class S>
inline void mma(T, S* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
    simulated::mma_16<T>(d, a, b0, b1);
}

// mma.m16n8k8 of TF32, which takes the upper 19 bits of a word.
__attribute__((noinline)) inline void mma(tf32, float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
    struct registers {
        unsigned a[4], b[2];
    };
    const registers* warp = simulated::of_warp(registers{ {a[0], a[1], a[2], a[3]}, {b0, b1} });
    double rows[16][8], columns[8][8];
    const auto tf32 = [](unsigned bits) { return static_cast<double>(detail::bits_as<float>(bits & 0xffffe000)); };
    for (int lane = 0; lane < 32; ++lane) {
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 4; ++i)
            rows[i == 0 || i == 2 ? group : group + 8][i < 2 ? in_group : in_group + 4] = tf32(warp[lane].a[i]);
        for (int i = 0; i < 2; ++i) columns[group][in_group + 4 * i] = tf32(warp[lane].b[i]);
    }
    const int self = simulated::lane();
    for (int i = 0; i < 4; ++i) {
        const int row = (self >> 2) + (i < 2 ? 0 : 8), column = self % 4 * 2 + (i & 1);
        d[i] = simulated::sum_of_products(d[i], rows[row], columns[column], 8);
    }
}

// mma.m8n8k4 of fp64.
__attribute__((noinline)) inline void mma(double* d, double a, double b) {
    struct registers {
        double a, b;
    };
    const registers* warp = simulated::of_warp(registers{a, b});
    double rows[8][4], columns[8][4];
    for (int lane = 0; lane < 32; ++lane) {
        rows[lane >> 2][lane % 4] = warp[lane].a;
        columns[lane >> 2][lane % 4] = warp[lane].b;
    }
    const int self = simulated::lane();
    for (int i = 0; i < 2; ++i)
        d[i] = simulated::sum_of_products(d[i], rows[self >> 2], columns[self % 4 * 2 + i], 4);
}

#else

template <class Sums, class Part>
__attribute__((noinline)) void multiply_add(Sums& sum, const Part& a, const Part& b) {
    using T = detail::bare_t<decltype(+a.element[0])>;
    struct registers {
        Part a, b;
    };
    const registers* warp = simulated::of_warp(registers{a, b});
    constexpr int held = sizeof(a.element) / sizeof(a.element[0]);
    const int self = simulated::lane();
    double rows[16][16], columns[16][16];
#if defined(MPTUNE_UNITS_MFMA)
    // v_mfma_*_16x16x16 and 16x16x4: blocks of 16 lanes have the next k each.
    constexpr int depth = 4 * held;
    for (int lane = 0; lane < 64; ++lane) {
        for (int i = 0; i < held; ++i) {
            rows[lane & 15][(lane >> 4) * held + i] = static_cast<double>(warp[lane].a.element[i]);
            columns[lane & 15][(lane >> 4) * held + i] = static_cast<double>(warp[lane].b.element[i]);
        }
    }
    for (int i = 0; i < 4; ++i) {
        const int row = sizeof(T) == 8 ? (self >> 4) + 4 * i : (self >> 4) * 4 + i;
        sum.value[i] = simulated::sum_of_products(sum.value[i], rows[row], columns[self & 15], depth);
    }
#else
    // v_wmma_*_16x16x16: all k in one lane, the same in the lane sixteen further; rows of sums take turns.
    for (int lane = 0; lane < 32; ++lane) {
        for (int k = 0; k < 16; ++k) {
            const double of_a = static_cast<double>(warp[lane].a.element[k]);
            const double of_b = static_cast<double>(warp[lane].b.element[k]);
            const bool agree = of_a == rows[lane & 15][k] && of_b == columns[lane & 15][k];
            if (lane >= 16 && !agree && of_a == of_a && of_b == of_b) __builtin_trap();
            rows[lane & 15][k] = of_a;
            columns[lane & 15][k] = of_b;
        }
    }
    for (int i = 0; i < 8; ++i)
        sum.value[i] = simulated::sum_of_products(sum.value[i], rows[2 * i + (self >> 4)], columns[self & 15], 16);
#endif
}

#endif

}  // namespace units
}  // namespace mp
