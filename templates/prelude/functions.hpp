// What every mathematical function has when it has nothing better.

namespace mp {
namespace detail {

// accurately(double), accurately(float): within a unit in the last place or so.
// quickly(float): the fast policy.
// narrowly<T>(float): accurate enough that rounding it to T, fp16 or bf16, is as good as rounding the true value.
// rounded_once(half), rounded_once(bfloat16): the accurate and the fast policy.
// coarsely(float), roughly(half), roughly(bfloat16): the approx policy.
template <class F>
struct function_defaults {
    static MPTUNE_INLINE float quickly(float x) { return F::accurately(x); }
    template <class T>
    static MPTUNE_INLINE float narrowly(float x) {
        return F::accurately(x);
    }
    template <class T>
    static MPTUNE_INLINE T rounded_once(T x) {
        return T(F::template narrowly<T>(static_cast<float>(x)));
    }
    static MPTUNE_INLINE float coarsely(float x) { return F::quickly(x); }
    template <class T>
    static MPTUNE_INLINE T roughly(T x) {
        return T(F::coarsely(static_cast<float>(x)));
    }
};

// Whether the approx policy has an instruction for 16-bit types themselves.
template <class F>
constexpr bool is_rough_itself = false;

}  // namespace detail
}  // namespace mp
