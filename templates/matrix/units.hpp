// Matrix units: what a warp multiplies together, 16 x 16 elements of the product at a time.
//
// A lane holds a part of the 16 x depth elements of A (a_part), of the depth x 16 of B (b_part), and of the 16 x 16 sums.
// Which part is the device's affair: load_a and load_b fetch it from tiles in shared memory, row_of and column_of tell
// where a sum lies. fp32 is multiplied as TF32 by NVIDIA's units, as it is by AMD's, and by both as three bfloat16 that add
// up to it (split.hpp).
//
// NVIDIA from sm_80 on (PTX ISA, "Matrix multiply-accumulate operation using mma instruction"), AMD gfx90a and later
// (MFMA) and gfx11 (WMMA; both in the instruction set references). A host computes what one of them would
// (simulated.hpp): NVIDIA's, or those of the AMD architecture whose macro is defined.

#if defined(MPTUNE_CUDA)
#define MPTUNE_UNITS_MMA 1
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__)
#define MPTUNE_UNITS_WMMA 1
#elif defined(__gfx90a__) || defined(MPTUNE_HIP)
#define MPTUNE_UNITS_MFMA 1
#else
#define MPTUNE_UNITS_MMA 1
#endif

namespace mp {
namespace units {

// What fp32 in shared memory is rounded to on its way to NVIDIA's units.
struct tf32 {
    unsigned bits;
};
// What it is taken apart into: three bfloat16.
struct split;

#if defined(MPTUNE_UNITS_MFMA)
constexpr int warp_threads = 64;
#else
constexpr int warp_threads = 32;
#endif

#if defined(MPTUNE_UNITS_MMA)
template <class T>
constexpr int depth = 32 / sizeof(T);
// Neighbouring elements of a row that a lane has sums of.
constexpr int run = 2;
// Columns that a lane has sums of, and lanes that have those of a row; the next as many have other rows.
constexpr int lane_columns = 4, row_lanes = 4;
#else
template <class T>
constexpr int depth = sizeof(T) == 2 ? 16 : 4;
constexpr int run = 1;
constexpr int lane_columns = 1, row_lanes = 16;
#endif

// A lane's part of 16 x 16 sums.
template <class S>
struct sums {
    static constexpr int count = 256 / warp_threads;
    alignas(16) S value[count];
};

// A tile of Columns in shared memory, by rows. Chunks of 16 bytes of a row change places, so that those that a warp
// reads at once are in different banks: one chunk of each of eight rows, or Together = 2 chunks of each of four.
template <class T, int Columns, int Together>
struct tile {
    static constexpr unsigned in_chunk = 16 / sizeof(T), chunks = Columns / in_chunk;
    // Those of one row in the 128 bytes that all banks have together, and how many rows these are of.
    static constexpr unsigned places = chunks < 8 ? chunks : 8, rows = 8 / places;
    T* elements;
    static MPTUNE_INLINE unsigned offset(unsigned row, unsigned column) {
        const unsigned chunk = column / in_chunk ^ row / rows * Together % places;
        return row * Columns + chunk * in_chunk + column % in_chunk;
    }
    // The same of row r and column c of a sub-block of 16 x 16 or depth. Where that is does not matter to how chunks change
    // places, so that what depends on the lane is computed once.
    static MPTUNE_INLINE unsigned offset(unsigned row, unsigned column, unsigned r, unsigned c) {
        return row * Columns + (offset(r, c) ^ column);
    }
};

}  // namespace units
}  // namespace mp

#if defined(MPTUNE_HOST)
{% include "matrix/simulated.hpp" %}
#endif

namespace mp {
namespace units {

#if defined(MPTUNE_UNITS_MMA)

// Chunks that ldmatrix fetches are one of each of eight rows.
template <class T, int Columns>
using tile_a = tile<T, Columns, sizeof(T) == 8 ? 2 : 1>;
template <class T, int Columns>
using tile_b = tile<T, Columns, sizeof(T) == 2 ? 1 : 2>;

template <class T>
struct part {
    unsigned word[4];
};
template <>
struct part<double> {
    double word[2];
};
template <class T>
using a_part = part<T>;
template <class T>
using b_part = part<T>;

#if defined(MPTUNE_CUDA)

MPTUNE_INLINE unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Four matrices of 8 x 16 bytes: lane l says where row l % 8 of matrix l / 8 is.
template <class T>
MPTUNE_INLINE void ldmatrix(unsigned (&d)[4], const T* tile, unsigned offset) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(shared_address(tile) + offset * static_cast<unsigned>(sizeof(T))) : "memory");
}
template <class T>
MPTUNE_INLINE void ldmatrix_transposed(unsigned (&d)[4], const T* tile, unsigned offset) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(shared_address(tile) + offset * static_cast<unsigned>(sizeof(T))) : "memory");
}
template <class T>
MPTUNE_INLINE T load_shared(const T* pointer) {
    return *pointer;
}

// Shared memory gets 16 bytes: as many from memory as are given, then zeros; by when, wait_for_copies says.
MPTUNE_INLINE void copy_later(void* to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(bytes) : "memory");
}
MPTUNE_INLINE void end_of_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all copies of this thread have arrived but those of the `Groups` latest groups.
template <int Groups>
MPTUNE_INLINE void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Groups) : "memory");
}

#define MPTUNE_MMA(type, name)                                                                              \
    MPTUNE_INLINE void mma(type, float* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {              \
        asm volatile("mma.sync.aligned." name " { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};" \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                \
    }
MPTUNE_MMA(half, "m16n8k16.row.col.f32.f16.f16.f32")
MPTUNE_MMA(bfloat16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MPTUNE_MMA(tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef MPTUNE_MMA
MPTUNE_INLINE void mma(half, half* d, const unsigned (&a)[4], unsigned b0, unsigned b1) {
    unsigned word[2];
    MPTUNE_COPY(word, d, 8);
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 { %0, %1}, { %2, %3, %4, %5}, { %6, %7}, { %0, %1};"
        : "+r"(word[0]), "+r"(word[1]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    MPTUNE_COPY(d, word, 8);
}
MPTUNE_INLINE void mma(double* d, double a, double b) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 { %0, %1}, { %2}, { %3}, { %0, %1};"
        : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
}

#endif

// To nearest, ties away from zero, as cvt.rna.tf32 does; the units leave out the lower 13 bits. What is no number says so in
// the others, too, which cvt.rna.tf32 does not see to.
MPTUNE_INLINE unsigned to_tf32(unsigned bits) {
#if defined(MPTUNE_CUDA)
    bits = detail::bits_as<unsigned>(::__fmul_rn(detail::bits_as<float>(bits), 1.0f));  // of NaN 0x7fffffff
#else
    bits |= (bits & 0x7fffffffu) > 0x7f800000u ? 0x400000u : 0u;
#endif
    return MPTUNE_BUILTIN(fabsf)(detail::bits_as<float>(bits)) < detail::bits_as<float>(0x7f800000u) ? bits + 0x1000 : bits;
}

template <class T, class Tile>
MPTUNE_INLINE void load_a(part<T>& a, const Tile& tile, int row, int k, int lane) {
    if constexpr (sizeof(T) == 8) {
        MPTUNE_UNROLL
        for (int i = 0; i < 2; ++i)
            a.word[i] = load_shared(tile.elements + Tile::offset(row + 8 * i, k, lane / 4, lane % 4));
    } else {
        ldmatrix(a.word, tile.elements, Tile::offset(row, k, lane % 16, lane / 16 * Tile::in_chunk));
    }
    if constexpr (detail::same<T, tf32>) {
        MPTUNE_UNROLL
        for (int i = 0; i < 4; ++i) a.word[i] = to_tf32(a.word[i]);
    }
}

// Words 0 and 1 are of the left eight columns, 2 and 3 of the others.
template <class T, class Tile>
MPTUNE_INLINE void load_b(part<T>& b, const Tile& tile, int k, int column, int lane) {
    if constexpr (sizeof(T) == 8) {
        MPTUNE_UNROLL
        for (int i = 0; i < 2; ++i) b.word[i] = load_shared(tile.elements + Tile::offset(k, column + 8 * i, lane % 4, lane / 4));
    } else if constexpr (sizeof(T) == 4) {
        MPTUNE_UNROLL
        for (int i = 0; i < 4; ++i) {
            const unsigned from = Tile::offset(k + i % 2 * 4, column + i / 2 * 8, lane % 4, lane / 4);
            b.word[i] = detail::bits_as<unsigned>(load_shared(tile.elements + from));
            if constexpr (detail::same<T, tf32>) b.word[i] = to_tf32(b.word[i]);
        }
    } else {
        ldmatrix_transposed(b.word, tile.elements, Tile::offset(k, column, lane % 16, lane / 16 * 8));
    }
}

template <class T, class S>
MPTUNE_INLINE void multiply_add(sums<S>& sum, const part<T>& a, const part<T>& b) {
    MPTUNE_UNROLL
    for (int half_of_columns = 0; half_of_columns < 2; ++half_of_columns) {
        S* const d = sum.value + 4 * half_of_columns;
        if constexpr (sizeof(T) == 8) {
            MPTUNE_UNROLL
            for (int i = 0; i < 2; ++i) mma(d + 2 * i, a.word[i], b.word[half_of_columns]);
        } else {
            mma(T(), d, a.word, b.word[2 * half_of_columns], b.word[2 * half_of_columns + 1]);
        }
    }
}

template <class S>
MPTUNE_INLINE int row_of(int lane, int i) {
    return lane / 4 + i / 2 % 2 * 8;
}
MPTUNE_INLINE int column_of(int lane, int i) {
    return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

#else  // AMD

template <class T, int Columns>
using tile_a = tile<T, Columns, 1>;
template <class T, int Columns>
using tile_b = tile<T, Columns, sizeof(T) == 2 ? 1 : 2>;

#if defined(MPTUNE_UNITS_MFMA)
template <class T>
constexpr int held = sizeof(T) == 2 ? 4 : 1;
#else
template <class T>
constexpr int held = 16;
#endif
// Neighbouring k of one row of A or one column of B.
template <class T>
struct part {
    alignas(held<T> * sizeof(T) < 16 ? held<T> * sizeof(T) : 16) T element[held<T>];
};
template <class T>
using a_part = part<T>;
template <class T>
using b_part = part<T>;
// Of MFMA, lanes 16 to 31 have those after these; of WMMA the same.
template <class T>
MPTUNE_INLINE int first_k(int lane) {
    return warp_threads == 64 ? lane / 16 * held<T> : 0;
}

// Here there are no copies that a thread does not wait for.
MPTUNE_INLINE void copy_later(void* to, const void* from, int bytes) {
    const vec<unsigned, 4> chunk = bytes == 16 ? load<4>(static_cast<const unsigned*>(from)) : vec<unsigned, 4>(0u);
    store(static_cast<unsigned*>(to), chunk);
}
MPTUNE_INLINE void end_of_copies() {}
template <int Groups>
MPTUNE_INLINE void wait_for_copies() {}

#if defined(MPTUNE_HIP)

template <class T, int N>
using vector = T __attribute__((ext_vector_type(N)));
template <class V, class T>
MPTUNE_INLINE V as(const T* elements) {
    V result;
    __builtin_memcpy(&result, elements, sizeof(V));
    return result;
}

#if defined(MPTUNE_UNITS_MFMA)
MPTUNE_INLINE vector<float, 4> unit(const part<half>& a, const part<half>& b, vector<float, 4> c) {
    using four = vector<_Float16, 4>;
    return __builtin_amdgcn_mfma_f32_16x16x16f16(as<four>(a.element), as<four>(b.element), c, 0, 0, 0);
}
MPTUNE_INLINE vector<float, 4> unit(const part<bfloat16>& a, const part<bfloat16>& b, vector<float, 4> c) {
    using four = vector<short, 4>;
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(as<four>(a.element), as<four>(b.element), c, 0, 0, 0);
}
MPTUNE_INLINE vector<float, 4> unit(const part<float>& a, const part<float>& b, vector<float, 4> c) {
    return __builtin_amdgcn_mfma_f32_16x16x4f32(a.element[0], b.element[0], c, 0, 0, 0);
}
MPTUNE_INLINE vector<double, 4> unit(const part<double>& a, const part<double>& b, vector<double, 4> c) {
    return __builtin_amdgcn_mfma_f64_16x16x4f64(a.element[0], b.element[0], c, 0, 0, 0);
}
#else
MPTUNE_INLINE vector<float, 8> unit(const part<half>& a, const part<half>& b, vector<float, 8> c) {
    using sixteen = vector<_Float16, 16>;
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(as<sixteen>(a.element), as<sixteen>(b.element), c);
}
MPTUNE_INLINE vector<float, 8> unit(const part<bfloat16>& a, const part<bfloat16>& b, vector<float, 8> c) {
    using sixteen = vector<short, 16>;
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(as<sixteen>(a.element), as<sixteen>(b.element), c);
}
#endif

template <class T, class S>
MPTUNE_INLINE void multiply_add(sums<S>& sum, const part<T>& a, const part<T>& b) {
    using V = vector<S, sums<S>::count>;
    const V result = unit(a, b, as<V>(sum.value));
    __builtin_memcpy(sum.value, &result, sizeof(V));
}

#endif

// Elements of a tile, of which a lane takes those that it would hold of T.
template <class T, class E, class Tile>
MPTUNE_INLINE void fetch_a(E* element, const Tile& tile, int row, int k, int lane) {
    constexpr int chunk = Tile::in_chunk, each = held<T> < chunk ? held<T> : chunk;
    MPTUNE_UNROLL
    for (int i = 0; i < held<T>; i += each)
        store(element + i, load<each>(tile.elements + Tile::offset(row, k, lane % 16, first_k<T>(lane) + i)));
}
template <class T, class E, class Tile>
MPTUNE_INLINE void fetch_b(E* element, const Tile& tile, int k, int column, int lane) {
    MPTUNE_UNROLL
    for (int i = 0; i < held<T>; ++i) element[i] = tile.elements[Tile::offset(k, column, first_k<T>(lane) + i, lane % 16)];
}
template <class T, class Tile>
MPTUNE_INLINE void load_a(part<T>& a, const Tile& tile, int row, int k, int lane) {
    fetch_a<T>(a.element, tile, row, k, lane);
}
template <class T, class Tile>
MPTUNE_INLINE void load_b(part<T>& b, const Tile& tile, int k, int column, int lane) {
    fetch_b<T>(b.element, tile, k, column, lane);
}

template <class S>
MPTUNE_INLINE int row_of(int lane, int i) {
    if constexpr (warp_threads == 32) return 2 * i + lane / 16;
    else return sizeof(S) == 8 ? 4 * i + lane / 16 : lane / 16 * 4 + i;
}
MPTUNE_INLINE int column_of(int lane, int) {
    return lane % 16;
}

#endif

// Of the columns that a lane has sums of, where the one with number c is.
MPTUNE_INLINE int lane_column(int lane, int c) {
    return column_of(lane, c / 2 * 4 + c % 2);
}
// The greatest of what is given and a lane's sums of each of its columns; what is no number is not.
template <class S>
MPTUNE_INLINE void most_of_columns(S (&most)[lane_columns], const sums<S>& sum) {
    MPTUNE_UNROLL
    for (int i = 0; i < sums<S>::count; ++i) {
        S& found = most[lane_columns == 1 ? 0 : i / 4 * 2 + i % 2];
        // In fp64 there is no instruction for it, and a comparison takes half as many as fmax.
        if constexpr (sizeof(S) == 8) found = max(found, sum.value[i]);
        else found = fmax(found, sum.value[i]);
    }
}

// What a lane has written to shared memory before, the others of its warp read behind it.
MPTUNE_INLINE void sync_warp() {
#if defined(MPTUNE_CUDA)
    __syncwarp();
#elif defined(MPTUNE_HIP)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
#else
    ::mptune_host::barrier<0>();
#endif
}

}  // namespace units
}  // namespace mp
