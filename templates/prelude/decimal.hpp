// The double nearest to a number as it is written, worked out when a literal is compiled.
//
// A compiler would give an operator such as ""_num a long double, of which the double is rounded a second time: one
// number in two thousand is then off by its last bit.

namespace mp {
namespace detail {

// A natural number of as many digits as it takes.
struct natural {
    unsigned digits[48] = {};  // in base 2^32, the lowest first; the longest literal needs 46
    int count = 0;

    constexpr MPTUNE_INLINE void times_plus(unsigned factor, unsigned more) {
        unsigned long long carry = more;
        for (int k = 0; k < count || carry; ++k) {
            carry += static_cast<unsigned long long>(k < count ? digits[k] : 0) * factor;
            digits[k] = static_cast<unsigned>(carry);
            carry >>= 32;
            if (k == count) ++count;
        }
    }
    constexpr MPTUNE_INLINE void minus(const natural& other) {
        long long borrow = 0;
        for (int k = 0; k < count; ++k) {
            borrow += static_cast<long long>(digits[k]) - (k < other.count ? other.digits[k] : 0);
            digits[k] = static_cast<unsigned>(borrow);
            borrow >>= 32;
        }
        while (count && !digits[count - 1]) --count;
    }
    constexpr MPTUNE_INLINE bool is_below(const natural& other) const {
        if (count != other.count) return count < other.count;
        for (int k = count - 1; k >= 0; --k)
            if (digits[k] != other.digits[k]) return digits[k] < other.digits[k];
        return false;
    }
    constexpr MPTUNE_INLINE int bits() const {
        int found = 32 * count;
        for (unsigned bit = 1u << 31; count && bit && !(digits[count - 1] & bit); bit >>= 1) --found;
        return found;
    }
    constexpr MPTUNE_INLINE void shift(int by) {
        for (; by > 31; by -= 31) times_plus(1u << 31, 0);
        times_plus(1u << by, 0);
    }
};

// A double times a power of two; rounded where that is below the normal numbers.
constexpr MPTUNE_INLINE double times_two_to(double x, int exponent) {
    for (; exponent > 0; --exponent) x *= 2;
    for (; exponent < 0; ++exponent) x /= 2;
    return x;
}

// The double nearest to (numerator / denominator) * 2^exponent, to even where two are.
constexpr MPTUNE_INLINE double nearest(natural numerator, natural denominator, int exponent) {
    if (!numerator.count) return 0;
    const int shift = 55 - (numerator.bits() - denominator.bits());
    if (shift > 0) numerator.shift(shift);
    else denominator.shift(-shift);
    exponent -= shift;
    // The quotient has 55 or 56 bits.
    denominator.shift(56);
    unsigned long long quotient = 0;
    for (int k = 0; k < 57; ++k) {
        quotient *= 2;
        if (!numerator.is_below(denominator)) {
            numerator.minus(denominator);
            ++quotient;
        }
        numerator.times_plus(2, 0);
    }
    // Of these a double has 53, or fewer where it is subnormal.
    int dropped = quotient >> 55 ? 3 : 2;
    if (exponent + dropped < -1074) dropped = -1074 - exponent;
    if (dropped > 60) return 0;
    const unsigned long long half = 1ull << (dropped - 1), rest = quotient & (2 * half - 1);
    unsigned long long kept = quotient >> dropped;
    if (rest > half || (rest == half && (numerator.count || kept & 1))) ++kept;
    return times_two_to(static_cast<double>(kept), exponent + dropped);
}

constexpr MPTUNE_INLINE int digit_of(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The double nearest to the number that some characters spell, in base 10 or, after 0x, in base 16.
template <int length>
constexpr MPTUNE_INLINE double nearest(const char (&text)[length]) {
    const bool is_hex = length > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    natural digits;
    unsigned long long first = 0;
    int used = 0, scale = 0, at = is_hex ? 2 : 0;
    bool is_behind_point = false, has_more = false;
    for (; at < length && (text[at] == '.' || text[at] == '\'' || digit_of(text[at]) >= 0); ++at) {
        if (!is_hex && (text[at] == 'e' || text[at] == 'E')) break;
        if (text[at] == '.') is_behind_point = true;
        if (digit_of(text[at]) < 0) continue;
        const unsigned digit = static_cast<unsigned>(digit_of(text[at]));
        // Of further digits it matters only whether they are all 0.
        if (used < 40) {
            digits.times_plus(is_hex ? 16 : 10, digit);
            if (used < 15) first = first * 10 + digit;
            used += digits.count > 0;
            scale -= is_behind_point;
        } else {
            has_more |= digit != 0;
            scale += !is_behind_point;
        }
    }
    if (has_more) {
        digits.times_plus(10, 1);
        --scale;
    }
    int exponent = 0;
    if (at < length) {
        const bool is_negative = text[at + 1] == '-';
        for (at += text[at + 1] == '-' || text[at + 1] == '+' ? 2 : 1; at < length; ++at)
            if (text[at] != '\'' && exponent < 10000) exponent = exponent * 10 + digit_of(text[at]);
        exponent = is_negative ? -exponent : exponent;
    }
    natural one;
    one.times_plus(0, 1);
    if (is_hex) return nearest(digits, one, exponent + 4 * scale);
    int power = exponent + scale;
    if (power > 330) power = 330;
    if (power < -400) power = -400;
    if (used <= 15 && power >= -22 && power <= 22) {
        // Both are doubles, so that one operation rounds once.
        double ten = 1;
        for (int k = power < 0 ? -power : power; k > 0; --k) ten *= 10;
        return power < 0 ? static_cast<double>(first) / ten : static_cast<double>(first) * ten;
    }
    for (int k = power; k > 0; --k) digits.times_plus(10, 0);
    for (int k = power; k < 0; ++k) one.times_plus(10, 0);
    return nearest(digits, one, 0);
}

template <char... c>
constexpr MPTUNE_INLINE double spelled() {
    constexpr char text[] = {c...};
    return nearest(text);
}
template <char... c>
constexpr double number_spelled = spelled<c...>();

}  // namespace detail
}  // namespace mp
