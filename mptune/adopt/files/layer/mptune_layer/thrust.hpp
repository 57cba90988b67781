// thrust on the host: its vectors are in memory of the device, and its algorithms are calls of a library (library_calls.hpp).
#pragma once

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <complex>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "mptune_layer/library_calls.hpp"

#include "mptune_layer/letters_begin.hpp"

#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device begin
#endif

#define THRUST_VERSION 200500
#define THRUST_NS_QUALIFIER thrust

namespace thrust {

using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::swap;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;
typedef std::nullptr_t null_type;

// -- functions -----------------------------------------------------------------------------------

template <class T = void> using plus = std::plus<T>;
template <class T = void> using minus = std::minus<T>;
template <class T = void> using multiplies = std::multiplies<T>;
template <class T = void> using divides = std::divides<T>;
template <class T = void> using modulus = std::modulus<T>;
template <class T = void> using negate = std::negate<T>;
template <class T = void> using equal_to = std::equal_to<T>;
template <class T = void> using not_equal_to = std::not_equal_to<T>;
template <class T = void> using greater = std::greater<T>;
template <class T = void> using less = std::less<T>;
template <class T = void> using greater_equal = std::greater_equal<T>;
template <class T = void> using less_equal = std::less_equal<T>;
template <class T = void> using logical_and = std::logical_and<T>;
template <class T = void> using logical_or = std::logical_or<T>;
template <class T = void> using logical_not = std::logical_not<T>;
template <class T = void> using bit_and = std::bit_and<T>;
template <class T = void> using bit_or = std::bit_or<T>;
template <class T = void> using bit_xor = std::bit_xor<T>;
template <class A, class R>
struct unary_function { typedef A argument_type; typedef R result_type; };
template <class A, class B, class R>
struct binary_function { typedef A first_argument_type; typedef B second_argument_type; typedef R result_type; };
template <class T = void>
struct maximum { T operator()(const T& a, const T& b) const { return a < b ? b : a; } };
template <class T = void>
struct minimum { T operator()(const T& a, const T& b) const { return b < a ? b : a; } };
template <>
struct maximum<void> {
    template <class A, class B>
    std::common_type_t<A, B> operator()(const A& a, const B& b) const { return a < b ? b : a; }
};
template <>
struct minimum<void> {
    template <class A, class B>
    std::common_type_t<A, B> operator()(const A& a, const B& b) const { return b < a ? b : a; }
};
template <class T = void>
struct identity { const T& operator()(const T& x) const { return x; } };
template <class T = void>
struct square { T operator()(const T& x) const { return x * x; } };
template <class T = void, class U = void>
struct project1st { const T& operator()(const T& x, const U&) const { return x; } };
template <class T = void, class U = void>
struct project2nd { const U& operator()(const T&, const U& y) const { return y; } };
template <class P>
struct unary_negate {
    P pred;
    template <class T>
    bool operator()(const T& x) const { return !pred(x); }
};
template <class P>
unary_negate<P> not1(P pred) { return {pred}; }
template <class F>
struct zip_function {
    F function;
    template <class T>
    decltype(auto) operator()(T&& all) const { return std::apply(function, std::forward<T>(all)); }
};
template <class F>
zip_function<F> make_zip_function(F function) { return {function}; }

// -- places --------------------------------------------------------------------------------------

template <class T>
class device_reference;

template <class T>
class device_ptr {
  public:
    typedef T element_type;
    typedef std::remove_cv_t<T> value_type;
    typedef ptrdiff_t difference_type;
    typedef device_ptr pointer;
    typedef T* raw_pointer;
    typedef device_reference<T> reference;
    typedef std::random_access_iterator_tag iterator_category;

    device_ptr() = default;
    device_ptr(std::nullptr_t) {}
    explicit device_ptr(T* place) : place(place) {}
    template <class U, class = std::enable_if_t<std::is_convertible_v<U*, T*>>>
    device_ptr(const device_ptr<U>& other) : place(other.get()) {}
    T* get() const { return place; }
    device_ptr base() const { return *this; }
    explicit operator bool() const { return place != nullptr; }
    reference operator*() const { return reference(place); }
    reference operator[](difference_type i) const { return reference(place + i); }
    device_ptr& operator+=(difference_type n) { place += n; return *this; }
    device_ptr& operator-=(difference_type n) { place -= n; return *this; }
    device_ptr& operator++() { ++place; return *this; }
    device_ptr& operator--() { --place; return *this; }
    device_ptr operator++(int) { return device_ptr(place++); }
    device_ptr operator--(int) { return device_ptr(place--); }
    friend device_ptr operator+(device_ptr p, difference_type n) { return p += n; }
    friend device_ptr operator+(difference_type n, device_ptr p) { return p += n; }
    friend device_ptr operator-(device_ptr p, difference_type n) { return p -= n; }

  private:
    T* place = nullptr;
};
template <class T, class U>
ptrdiff_t operator-(device_ptr<T> a, device_ptr<U> b) { return a.get() - b.get(); }
#define MPTUNE_COMPARE(sign)                                                                     \
    template <class T, class U>                                                                  \
    bool operator sign(device_ptr<T> a, device_ptr<U> b) { return a.get() sign b.get(); }
MPTUNE_COMPARE(==) MPTUNE_COMPARE(!=) MPTUNE_COMPARE(<) MPTUNE_COMPARE(>) MPTUNE_COMPARE(<=) MPTUNE_COMPARE(>=)
#undef MPTUNE_COMPARE

// A number in the device's memory, for the host: read and written by copies.
template <class T>
class device_reference {
  public:
    typedef std::remove_cv_t<T> value_type;
    typedef device_ptr<T> pointer;

    explicit device_reference(T* place) : place(place) {}
    explicit device_reference(device_ptr<T> place) : place(place.get()) {}
    device_reference(const device_reference&) = default;
    operator value_type() const {
        alignas(value_type) unsigned char room[sizeof(value_type)];
        mptune_layer::copy_elements<value_type>("thrust::device_reference", reinterpret_cast<value_type*>(room), place, 1);
        return *std::launder(reinterpret_cast<value_type*>(room));
    }
    const device_reference& operator=(const value_type& value) const {
        mptune_layer::copy_elements<value_type>("thrust::device_reference", const_cast<value_type*>(place), &value, 1);
        return *this;
    }
    const device_reference& operator=(const device_reference& other) const { return *this = value_type(other); }
    device_reference& operator=(const device_reference& other) { *this = value_type(other); return *this; }
    device_ptr<T> operator&() const { return device_ptr<T>(place); }
#define MPTUNE_UPDATE(sign)                                          \
    const device_reference& operator sign##=(const value_type& x) const { return *this = value_type(*this) sign x; }
    MPTUNE_UPDATE(+) MPTUNE_UPDATE(-) MPTUNE_UPDATE(*) MPTUNE_UPDATE(/)
#undef MPTUNE_UPDATE
    value_type operator++() const { *this += 1; return *this; }
    value_type operator--() const { *this -= 1; return *this; }
    value_type operator++(int) const { const value_type old = *this; *this += 1; return old; }
    value_type operator--(int) const { const value_type old = *this; *this -= 1; return old; }

  private:
    T* place;
};

template <class T>
T* raw_pointer_cast(T* place) { return place; }
template <class T>
T* raw_pointer_cast(device_ptr<T> place) { return place.get(); }
template <class T>
T& raw_reference_cast(T& one) { return one; }
template <class T>
T& raw_reference_cast(device_reference<T> one) { return *(&one).get(); }
template <class T>
device_ptr<T> device_pointer_cast(T* place) { return device_ptr<T>(place); }
template <class T>
device_ptr<T> device_pointer_cast(device_ptr<T> place) { return place; }
template <class T>
device_ptr<T> device_malloc(size_t count) {
    void* room = nullptr;
    if (cudaMalloc(&room, count * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
    return device_ptr<T>(static_cast<T*>(room));
}
template <class T>
void device_free(device_ptr<T> place) { cudaFree((void*)place.get()); }

// -- iterators -----------------------------------------------------------------------------------

template <class I>
struct iterator_traits : std::iterator_traits<I> {};
template <class I> struct iterator_value { typedef typename std::iterator_traits<I>::value_type type; };
template <class I> struct iterator_difference { typedef typename std::iterator_traits<I>::difference_type type; };
template <class I> struct iterator_reference { typedef typename std::iterator_traits<I>::reference type; };
template <class I> struct iterator_pointer { typedef typename std::iterator_traits<I>::pointer type; };
template <class I> using iterator_value_t = typename iterator_value<I>::type;
template <class I> using iterator_difference_t = typename iterator_difference<I>::type;
template <class I> using iterator_reference_t = typename iterator_reference<I>::type;

struct host_system_tag {};
struct device_system_tag {};
struct any_system_tag {};
struct random_access_traversal_tag {};
struct use_default {};

// What an iterator has that knows how to move on (to), how far it is from another one (from) and what is there (here).
template <class Self, class Value, class Reference>
struct moving {
    typedef std::remove_cv_t<Value> value_type;
    typedef ptrdiff_t difference_type;
    typedef std::random_access_iterator_tag iterator_category;
    typedef Reference reference;
    typedef void pointer;

    Reference operator*() const { return self().here(); }
    Reference operator[](ptrdiff_t n) const { return (self() + n).here(); }
    Self& operator+=(ptrdiff_t n) { self().to(n); return self(); }
    Self& operator-=(ptrdiff_t n) { return *this += -n; }
    Self& operator++() { return *this += 1; }
    Self& operator--() { return *this += -1; }
    Self operator++(int) { Self old = self(); *this += 1; return old; }
    Self operator--(int) { Self old = self(); *this += -1; return old; }
    friend Self operator+(Self i, ptrdiff_t n) { i += n; return i; }
    friend Self operator+(ptrdiff_t n, Self i) { i += n; return i; }
    friend Self operator-(Self i, ptrdiff_t n) { i += -n; return i; }
    friend ptrdiff_t operator-(const Self& a, const Self& b) { return a.from(b); }
    friend bool operator==(const Self& a, const Self& b) { return a.from(b) == 0; }
    friend bool operator!=(const Self& a, const Self& b) { return a.from(b) != 0; }
    friend bool operator<(const Self& a, const Self& b) { return a.from(b) < 0; }
    friend bool operator>(const Self& a, const Self& b) { return a.from(b) > 0; }
    friend bool operator<=(const Self& a, const Self& b) { return a.from(b) <= 0; }
    friend bool operator>=(const Self& a, const Self& b) { return a.from(b) >= 0; }

  private:
    Self& self() { return static_cast<Self&>(*this); }
    const Self& self() const { return static_cast<const Self&>(*this); }
};

template <class T, class = use_default, class = use_default, class = use_default>
struct counting_iterator : moving<counting_iterator<T>, T, T> {
    T count = T();
    counting_iterator() = default;
    explicit counting_iterator(T count) : count(count) {}
    T base() const { return count; }
    T here() const { return count; }
    void to(ptrdiff_t n) { count = static_cast<T>(count + n); }
    ptrdiff_t from(const counting_iterator& other) const { return static_cast<ptrdiff_t>(count - other.count); }
};
template <class T>
counting_iterator<T> make_counting_iterator(T first) { return counting_iterator<T>(first); }

template <class T, class = use_default, class = use_default>
struct constant_iterator : moving<constant_iterator<T>, T, T> {
    T value = T();
    ptrdiff_t at = 0;
    constant_iterator() = default;
    explicit constant_iterator(T value, ptrdiff_t at = 0) : value(value), at(at) {}
    T here() const { return value; }
    void to(ptrdiff_t n) { at += n; }
    ptrdiff_t from(const constant_iterator& other) const { return at - other.at; }
};
template <class T>
constant_iterator<T> make_constant_iterator(T value, ptrdiff_t at = 0) { return constant_iterator<T>(value, at); }

struct forgetting {
    template <class T>
    const forgetting& operator=(const T&) const { return *this; }
};
template <class = use_default>
struct discard_iterator : moving<discard_iterator<>, forgetting, forgetting> {
    ptrdiff_t at = 0;
    explicit discard_iterator(ptrdiff_t at = 0) : at(at) {}
    forgetting here() const { return {}; }
    void to(ptrdiff_t n) { at += n; }
    ptrdiff_t from(const discard_iterator& other) const { return at - other.at; }
};
inline discard_iterator<> make_discard_iterator(ptrdiff_t at = 0) { return discard_iterator<>(at); }

template <class F, class I>
using applied = std::invoke_result_t<const F&, iterator_reference_t<I>>;
template <class F, class I, class R = use_default, class V = use_default>
struct transform_iterator
    : moving<transform_iterator<F, I, R, V>, std::decay_t<applied<F, I>>,
             std::conditional_t<std::is_same_v<R, use_default>, applied<F, I>, R>> {
    I place{};
    F function{};
    transform_iterator() = default;
    explicit transform_iterator(I place, F function = F()) : place(place), function(function) {}
    const I& base() const { return place; }
    F functor() const { return function; }
    decltype(auto) here() const { return function(*place); }
    void to(ptrdiff_t n) { place += n; }
    ptrdiff_t from(const transform_iterator& other) const { return place - other.place; }
};
template <class F, class I>
transform_iterator<F, I> make_transform_iterator(I place, F function) { return transform_iterator<F, I>(place, function); }

template <class E, class I>
struct permutation_iterator : moving<permutation_iterator<E, I>, iterator_value_t<E>, iterator_reference_t<E>> {
    E elements{};
    I index{};
    permutation_iterator() = default;
    explicit permutation_iterator(E elements, I index) : elements(elements), index(index) {}
    const I& base() const { return index; }
    iterator_reference_t<E> here() const { return elements[static_cast<ptrdiff_t>(*index)]; }
    void to(ptrdiff_t n) { index += n; }
    ptrdiff_t from(const permutation_iterator& other) const { return index - other.index; }
};
template <class E, class I>
permutation_iterator<E, I> make_permutation_iterator(E elements, I index) { return permutation_iterator<E, I>(elements, index); }

template <class Tuple>
struct zip_iterator;
template <class... I>
struct zip_iterator<tuple<I...>>
    : moving<zip_iterator<tuple<I...>>, tuple<iterator_value_t<I>...>, tuple<iterator_reference_t<I>...>> {
    tuple<I...> places{};
    zip_iterator() = default;
    explicit zip_iterator(tuple<I...> places) : places(places) {}
    const tuple<I...>& get_iterator_tuple() const { return places; }
    tuple<iterator_reference_t<I>...> here() const {
        return std::apply([](const I&... each) { return tuple<iterator_reference_t<I>...>(*each...); }, places);
    }
    void to(ptrdiff_t n) { std::apply([n](I&... each) { ((each += n), ...); }, places); }
    ptrdiff_t from(const zip_iterator& other) const { return get<0>(places) - get<0>(other.places); }
};
template <class... I>
zip_iterator<tuple<I...>> make_zip_iterator(tuple<I...> places) { return zip_iterator<tuple<I...>>(places); }
template <class... I>
zip_iterator<tuple<I...>> make_zip_iterator(I... places) { return zip_iterator<tuple<I...>>(tuple<I...>(places...)); }

template <class I>
using reverse_iterator = std::reverse_iterator<I>;
template <class I>
reverse_iterator<I> make_reverse_iterator(I place) { return reverse_iterator<I>(place); }

// The same iterator over memory as an algorithm has it, which reads and writes there itself.
template <class I>
struct direct {
    typedef I type;
    static I of(const I& place) { return place; }
};
template <class T>
struct direct<device_ptr<T>> {
    typedef T* type;
    static T* of(device_ptr<T> place) { return place.get(); }
};
template <class I>
using direct_t = typename direct<I>::type;
template <class I>
direct_t<I> directly(const I& place) { return direct<I>::of(place); }
template <class F, class I, class R, class V>
struct direct<transform_iterator<F, I, R, V>> {
    typedef transform_iterator<F, direct_t<I>> type;
    static type of(const transform_iterator<F, I, R, V>& it) { return type(directly(it.place), it.function); }
};
template <class E, class I>
struct direct<permutation_iterator<E, I>> {
    typedef permutation_iterator<direct_t<E>, direct_t<I>> type;
    static type of(const permutation_iterator<E, I>& it) { return type(directly(it.elements), directly(it.index)); }
};
template <class... I>
struct direct<zip_iterator<tuple<I...>>> {
    typedef zip_iterator<tuple<direct_t<I>...>> type;
    static type of(const zip_iterator<tuple<I...>>& it) {
        return std::apply([](const I&... each) { return type(tuple<direct_t<I>...>(directly(each)...)); }, it.places);
    }
};
template <class I>
struct direct<std::reverse_iterator<I>> {
    typedef std::reverse_iterator<direct_t<I>> type;
    static type of(const std::reverse_iterator<I>& it) { return type(directly(it.base())); }
};

template <class I, class N>
void advance(I& place, N n) { place += n; }
template <class I>
ptrdiff_t distance(I first, I last) { return last - first; }
template <class I>
I next(I place, ptrdiff_t n = 1) { return place + n; }
template <class I>
I prev(I place, ptrdiff_t n = 1) { return place - n; }

// -- policies ------------------------------------------------------------------------------------

struct policy {
    template <class... A>
    policy operator()(const A&...) const { return {}; }
    template <class S>
    policy on(const S&) const { return {}; }
};
template <class P>
using needs_policy = std::enable_if_t<std::is_base_of_v<policy, P>, int>;
struct device_execution_policy : policy {};
template <class = void>
struct execution_policy : policy {};
static const policy device, host, seq;
namespace cuda {
static const policy par, par_nosync;
}
namespace hip = cuda;
namespace system { namespace cuda = thrust::cuda; }

// An algorithm with a policy, which changes nothing here. The functions are those declared so far.
#define MPTUNE_WITH_POLICY(name)                                           \
    template <class P, class... A, needs_policy<P> = 0>                    \
    auto name(const P&, A... given) { return thrust::name(given...); }

// -- copies --------------------------------------------------------------------------------------

// Whether the elements of two iterators are the same bytes, one after the other.
template <class I, class O>
constexpr bool is_one_copy() {
    if constexpr (std::is_pointer_v<I> && std::is_pointer_v<O>) {
        using from = std::remove_cv_t<std::remove_pointer_t<I>>;
        return std::is_same_v<from, std::remove_pointer_t<O>> && std::is_trivially_copyable_v<from>;
    } else {
        return false;
    }
}
template <class I>
auto pointer_of(const I& place) {
    using value = typename std::iterator_traits<I>::value_type;
    // Iterators of the host's vectors are pointers in all but their type.
    if constexpr (std::is_same_v<I, typename std::vector<value>::iterator>) return static_cast<value*>(&*place);
    else if constexpr (std::is_same_v<I, typename std::vector<value>::const_iterator>) return static_cast<const value*>(&*place);
    else return directly(place);
}
template <class I, class N, class O>
O copy_n(I first, N count, O out) {
    if (count <= 0) return out;
    if constexpr (is_one_copy<decltype(pointer_of(first)), decltype(pointer_of(out))>()) {
        mptune_layer::copy_elements<iterator_value_t<I>>("thrust::copy", pointer_of(out), pointer_of(first), count);
    } else {
        const mptune_layer::library_call here("thrust::copy", mptune_layer::changes, first, out);
        auto from = directly(first);
        auto to = directly(out);
        for (N i = 0; i < count; ++i, ++from, ++to) *to = *from;
    }
    return out + count;
}
MPTUNE_WITH_POLICY(copy_n)
template <class I, class O>
O copy(I first, I last, O out) { return thrust::copy_n(first, static_cast<ptrdiff_t>(std::distance(first, last)), out); }
MPTUNE_WITH_POLICY(copy)
template <class I, class O>
O uninitialized_copy(I first, I last, O out) { return thrust::copy(first, last, out); }
MPTUNE_WITH_POLICY(uninitialized_copy)

// What the host makes comes to the device by a copy.
template <class O, class N, class F>
O made_on_host(O out, N count, F make) {
    if (count <= 0) return out;
    using value = iterator_value_t<O>;
    if constexpr (std::is_pointer_v<direct_t<O>> && std::is_trivially_copyable_v<value> && !std::is_same_v<value, bool>) {
        std::vector<value> room(count);
        for (N i = 0; i < count; ++i) room[i] = make(i);
        return thrust::copy_n(room.data(), count, out);
    } else {
        const mptune_layer::library_call here("thrust::fill", mptune_layer::changes, out);
        auto to = directly(out);
        for (N i = 0; i < count; ++i, ++to) *to = make(i);
        return out + count;
    }
}
template <class I, class N, class T>
I fill_n(I first, N count, const T& value) {
    return made_on_host(first, count, [&](auto) { return static_cast<iterator_value_t<I>>(value); });
}
MPTUNE_WITH_POLICY(fill_n)
template <class I, class T>
void fill(I first, I last, const T& value) { thrust::fill_n(first, last - first, value); }
MPTUNE_WITH_POLICY(fill)
template <class I, class T>
void uninitialized_fill(I first, I last, const T& value) { thrust::fill_n(first, last - first, value); }
MPTUNE_WITH_POLICY(uninitialized_fill)
template <class I, class F>
void generate(I first, I last, F make) { made_on_host(first, last - first, [&](auto) { return make(); }); }
MPTUNE_WITH_POLICY(generate)
template <class I, class N, class F>
I generate_n(I first, N count, F make) { return made_on_host(first, count, [&](auto) { return make(); }); }
MPTUNE_WITH_POLICY(generate_n)
template <class I, class F>
void tabulate(I first, I last, F make) { made_on_host(first, last - first, make); }
MPTUNE_WITH_POLICY(tabulate)
template <class I, class T, class S>
void sequence(I first, I last, T start, S step) {
    using value = iterator_value_t<I>;
    made_on_host(first, last - first, [&](auto i) { return static_cast<value>(start + step * static_cast<S>(i)); });
}
template <class I, class T>
void sequence(I first, I last, T start) { thrust::sequence(first, last, start, T(1)); }
template <class I>
void sequence(I first, I last) { thrust::sequence(first, last, iterator_value_t<I>(0)); }
MPTUNE_WITH_POLICY(sequence)

// -- vectors -------------------------------------------------------------------------------------

template <class T>
struct device_allocator { typedef T value_type; };
template <class T>
using device_malloc_allocator = device_allocator<T>;

template <class T, class A = std::allocator<T>>
class host_vector;

template <class T, class A = device_allocator<T>>
class device_vector {
  public:
    typedef T value_type;
    typedef A allocator_type;
    typedef size_t size_type;
    typedef ptrdiff_t difference_type;
    typedef device_ptr<T> pointer;
    typedef device_ptr<const T> const_pointer;
    typedef device_reference<T> reference;
    typedef device_reference<const T> const_reference;
    typedef device_ptr<T> iterator;
    typedef device_ptr<const T> const_iterator;
    typedef std::reverse_iterator<iterator> reverse_iterator;

    device_vector() = default;
    explicit device_vector(size_t count) { resize(count); }
    device_vector(size_t count, const T& value) { resize(count, value); }
    device_vector(const device_vector& other) { assign(other.begin(), other.end()); }
    device_vector(device_vector&& other) noexcept { swap(other); }
    device_vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
    template <class B>
    device_vector(const std::vector<T, B>& values) { assign(values.begin(), values.end()); }
    template <class U, class B, class = std::enable_if_t<!std::is_same_v<T, U>>>
    device_vector(const std::vector<U, B>& values) { assign(values.begin(), values.end()); }
    template <class U, class B>
    device_vector(const device_vector<U, B>& other) { assign(other.begin(), other.end()); }
    template <class I, class = typename std::iterator_traits<I>::iterator_category>
    device_vector(I first, I last) { assign(first, last); }
    ~device_vector() { if (room > 0) cudaFree((void*)start); }

    device_vector& operator=(const device_vector& other) {
        if (this != &other) assign(other.begin(), other.end());
        return *this;
    }
    device_vector& operator=(device_vector&& other) noexcept { swap(other); return *this; }
    template <class U, class B>
    device_vector& operator=(const std::vector<U, B>& values) { assign(values.begin(), values.end()); return *this; }
    template <class U, class B>
    device_vector& operator=(const device_vector<U, B>& other) { assign(other.begin(), other.end()); return *this; }
    device_vector& operator=(std::initializer_list<T> values) { assign(values.begin(), values.end()); return *this; }

    iterator begin() { return iterator(start); }
    iterator end() { return iterator(start + count); }
    const_iterator begin() const { return const_iterator(start); }
    const_iterator end() const { return const_iterator(start + count); }
    const_iterator cbegin() const { return begin(); }
    const_iterator cend() const { return end(); }
    reverse_iterator rbegin() { return reverse_iterator(end()); }
    reverse_iterator rend() { return reverse_iterator(begin()); }
    pointer data() { return pointer(start); }
    const_pointer data() const { return const_pointer(start); }
    reference operator[](size_t i) { return reference(start + i); }
    const_reference operator[](size_t i) const { return const_reference(start + i); }
    reference front() { return (*this)[0]; }
    const_reference front() const { return (*this)[0]; }
    reference back() { return (*this)[count - 1]; }
    const_reference back() const { return (*this)[count - 1]; }
    size_t size() const { return count; }
    size_t capacity() const { return room; }
    size_t max_size() const { return std::numeric_limits<ptrdiff_t>::max() / sizeof(T); }
    bool empty() const { return count == 0; }

    void reserve(size_t wanted) {
        if (wanted <= room) return;
        T* const made = device_malloc<T>(wanted).get();
        if (count > 0) thrust::copy_n(start, count, made);
        if (room > 0) cudaFree((void*)start);
        start = made;
        room = wanted;
    }
    void resize(size_t wanted, const T& value = T()) {
        reserve(wanted);
        if (wanted > count) thrust::fill_n(iterator(start + count), static_cast<ptrdiff_t>(wanted - count), value);
        count = wanted;
    }
    void clear() { count = 0; }
    void shrink_to_fit() {}
    void push_back(const T& value) {
        if (count == room) reserve(2 * room + 1);
        ++count;
        back() = value;
    }
    void pop_back() { --count; }
    void assign(size_t wanted, const T& value) { clear(); resize(wanted, value); }
    template <class I, class = typename std::iterator_traits<I>::iterator_category>
    void assign(I first, I last) {
        const ptrdiff_t wanted = std::distance(first, last);
        reserve(wanted);
        count = wanted;
        if constexpr (std::is_base_of_v<std::random_access_iterator_tag, typename std::iterator_traits<I>::iterator_category>) {
            thrust::copy_n(first, wanted, begin());
        } else {
            const std::vector<T> values(first, last);
            thrust::copy_n(values.begin(), wanted, begin());
        }
    }
    template <class I, class = typename std::iterator_traits<I>::iterator_category>
    iterator insert(iterator at, I first, I last) {
        std::vector<T> values(count);
        const ptrdiff_t place = at - begin();
        thrust::copy_n(start, count, values.data());
        const std::vector<T> more = on_host(first, last);
        values.insert(values.begin() + place, more.begin(), more.end());
        assign(values.begin(), values.end());
        return begin() + place;
    }
    iterator insert(iterator at, const T& value) { return insert(at, &value, &value + 1); }
    iterator erase(iterator first, iterator last) {
        std::vector<T> values(count);
        thrust::copy_n(start, count, values.data());
        values.erase(values.begin() + (first - begin()), values.begin() + (last - begin()));
        assign(values.begin(), values.end());
        return first;
    }
    iterator erase(iterator at) { return erase(at, at + 1); }
    void swap(device_vector& other) noexcept {
        std::swap(start, other.start);
        std::swap(count, other.count);
        std::swap(room, other.room);
    }
    friend void swap(device_vector& a, device_vector& b) noexcept { a.swap(b); }

  private:
    template <class I>
    static std::vector<T> on_host(I first, I last) {
        std::vector<T> values(last - first);
        thrust::copy_n(first, last - first, values.data());
        return values;
    }
    T* start = nullptr;
    size_t count = 0, room = 0;
};

template <class T, class A>
class host_vector : public std::vector<T, A> {
  public:
    using std::vector<T, A>::vector;
    host_vector() = default;
    host_vector(const std::vector<T, A>& values) : std::vector<T, A>(values) {}
    template <class U, class B>
    host_vector(const device_vector<U, B>& other) { *this = other; }
    template <class U>
    host_vector(device_ptr<U> first, device_ptr<U> last) : std::vector<T, A>(last - first) { thrust::copy(first, last, this->data()); }
    template <class U, class B>
    host_vector& operator=(const device_vector<U, B>& other) {
        this->resize(other.size());
        thrust::copy(other.begin(), other.end(), this->data());
        return *this;
    }
    host_vector& operator=(const std::vector<T, A>& values) {
        std::vector<T, A>::operator=(values);
        return *this;
    }
};
template <class T, class A, class B>
bool operator==(const device_vector<T, A>& a, const device_vector<T, B>& b) { return host_vector<T>(a) == host_vector<T>(b); }
template <class T>
using universal_vector = host_vector<T>;

// -- algorithms ----------------------------------------------------------------------------------

#define MPTUNE_CALL(name, kind, ...) \
    const mptune_layer::library_call here_(name, mptune_layer::kind, __VA_ARGS__)

template <class I, class N, class F>
I for_each_n(I first, N count, F f) {
    MPTUNE_CALL("thrust::for_each", changes, first, f);
    auto at = directly(first);
    for (N i = 0; i < count; ++i, ++at) f(*at);
    return first + count;
}
MPTUNE_WITH_POLICY(for_each_n)
template <class I, class F>
I for_each(I first, I last, F f) { return thrust::for_each_n(first, last - first, f); }
MPTUNE_WITH_POLICY(for_each)

template <class I, class O, class F>
O transform(I first, I last, O out, F f) {
    MPTUNE_CALL("thrust::transform", changes, first, out, f);
    const auto count = last - first;
    auto from = directly(first);
    auto to = directly(out);
    for (auto i = count - count; i < count; ++i, ++from, ++to) *to = f(*from);
    return out + count;
}
template <class I, class J, class O, class F>
O transform(I first, I last, J second, O out, F f) {
    MPTUNE_CALL("thrust::transform", changes, first, second, out, f);
    const auto count = last - first;
    auto from = directly(first);
    auto other = directly(second);
    auto to = directly(out);
    for (auto i = count - count; i < count; ++i, ++from, ++other, ++to) *to = f(*from, *other);
    return out + count;
}
MPTUNE_WITH_POLICY(transform)
template <class I, class S, class O, class F, class P>
O transform_if(I first, I last, S stencil, O out, F f, P is_wanted) {
    MPTUNE_CALL("thrust::transform_if", changes, first, stencil, out, f, is_wanted);
    const auto count = last - first;
    auto from = directly(first);
    auto asked = directly(stencil);
    auto to = directly(out);
    for (auto i = count - count; i < count; ++i, ++from, ++asked, ++to)
        if (is_wanted(*asked)) *to = f(*from);
    return out + count;
}
template <class I, class O, class F, class P>
O transform_if(I first, I last, O out, F f, P is_wanted) { return thrust::transform_if(first, last, first, out, f, is_wanted); }
MPTUNE_WITH_POLICY(transform_if)

// Sums of many numbers are taken in halves: one after the other would add up their rounding.
template <class T, class I, class F, class U>
T folded(I at, ptrdiff_t count, F f, U value_of) {
    if (count > 512) {
        const ptrdiff_t half = count / 2;
        return static_cast<T>(f(folded<T>(at, half, f, value_of), folded<T>(at + half, count - half, f, value_of)));
    }
    T total = static_cast<T>(value_of(*at));
    for (ptrdiff_t i = 1; i < count; ++i) total = static_cast<T>(f(total, static_cast<T>(value_of(*++at))));
    return total;
}
template <class I, class U, class T, class F>
T transform_reduce(I first, I last, U value_of, T start, F f) {
    MPTUNE_CALL("thrust::transform_reduce", answers, first, value_of, f);
    const ptrdiff_t count = last - first;
    return count > 0 ? static_cast<T>(f(start, folded<T>(directly(first), count, f, value_of))) : start;
}
MPTUNE_WITH_POLICY(transform_reduce)
template <class I, class T, class F>
T reduce(I first, I last, T start, F f) {
    MPTUNE_CALL("thrust::reduce", answers, first, f);
    const auto itself = [](auto&& value) -> decltype(auto) { return static_cast<decltype(value)>(value); };
    return thrust::transform_reduce(first, last, itself, start, f);
}
template <class I, class T>
T reduce(I first, I last, T start) { return thrust::reduce(first, last, start, plus<T>()); }
template <class I>
iterator_value_t<I> reduce(I first, I last) { return thrust::reduce(first, last, iterator_value_t<I>()); }
MPTUNE_WITH_POLICY(reduce)
template <class I, class J, class T, class F, class G>
T inner_product(I first, I last, J second, T start, F f, G product) {
    MPTUNE_CALL("thrust::inner_product", answers, first, second, f, product);
    const auto both = make_zip_iterator(make_tuple(directly(first), directly(second)));
    const auto value_of = [&](const auto& pair) { return product(get<0>(pair), get<1>(pair)); };
    return thrust::transform_reduce(both, both + (last - first), value_of, start, f);
}
template <class I, class J, class T>
T inner_product(I first, I last, J second, T start) {
    return thrust::inner_product(first, last, second, start, plus<T>(), multiplies<T>());
}
MPTUNE_WITH_POLICY(inner_product)

template <class I, class P>
ptrdiff_t count_if(I first, I last, P is_wanted) {
    MPTUNE_CALL("thrust::count_if", answers, first, is_wanted);
    return std::count_if(directly(first), directly(last), is_wanted);
}
MPTUNE_WITH_POLICY(count_if)
template <class I, class T>
ptrdiff_t count(I first, I last, const T& value) {
    return thrust::count_if(first, last, [value](const auto& each) { return each == value; });
}
MPTUNE_WITH_POLICY(count)
template <class I, class P>
I find_if(I first, I last, P is_wanted) {
    MPTUNE_CALL("thrust::find_if", answers, first, is_wanted);
    const auto from = directly(first);
    return first + (std::find_if(from, directly(last), is_wanted) - from);
}
MPTUNE_WITH_POLICY(find_if)
template <class I, class P>
I find_if_not(I first, I last, P is_wanted) {
    return thrust::find_if(first, last, [is_wanted](const auto& each) { return !is_wanted(each); });
}
MPTUNE_WITH_POLICY(find_if_not)
template <class I, class T>
I find(I first, I last, const T& value) {
    return thrust::find_if(first, last, [value](const auto& each) { return each == value; });
}
MPTUNE_WITH_POLICY(find)
template <class I, class P>
bool any_of(I first, I last, P is_wanted) { return thrust::find_if(first, last, is_wanted) != last; }
MPTUNE_WITH_POLICY(any_of)
template <class I, class P>
bool none_of(I first, I last, P is_wanted) { return !thrust::any_of(first, last, is_wanted); }
MPTUNE_WITH_POLICY(none_of)
template <class I, class P>
bool all_of(I first, I last, P is_wanted) { return thrust::find_if_not(first, last, is_wanted) == last; }
MPTUNE_WITH_POLICY(all_of)
template <class I, class J, class F>
bool equal(I first, I last, J second, F are_equal) {
    MPTUNE_CALL("thrust::equal", answers, first, second, are_equal);
    return std::equal(directly(first), directly(last), directly(second), are_equal);
}
template <class I, class J>
bool equal(I first, I last, J second) { return thrust::equal(first, last, second, equal_to<>()); }
MPTUNE_WITH_POLICY(equal)

template <class I, class F>
I min_element(I first, I last, F is_less) {
    MPTUNE_CALL("thrust::min_element", answers, first, is_less);
    const auto from = directly(first);
    return first + (std::min_element(from, directly(last), is_less) - from);
}
template <class I>
I min_element(I first, I last) { return thrust::min_element(first, last, less<>()); }
MPTUNE_WITH_POLICY(min_element)
template <class I, class F>
I max_element(I first, I last, F is_less) {
    MPTUNE_CALL("thrust::max_element", answers, first, is_less);
    const auto from = directly(first);
    return first + (std::max_element(from, directly(last), is_less) - from);
}
template <class I>
I max_element(I first, I last) { return thrust::max_element(first, last, less<>()); }
MPTUNE_WITH_POLICY(max_element)
template <class I, class F>
pair<I, I> minmax_element(I first, I last, F is_less) {
    return {thrust::min_element(first, last, is_less), thrust::max_element(first, last, is_less)};
}
template <class I>
pair<I, I> minmax_element(I first, I last) { return thrust::minmax_element(first, last, less<>()); }
MPTUNE_WITH_POLICY(minmax_element)

// A running total: of what is in front of an element, or with it; it begins anew with each new key.
template <class K, class I, class O, class T, class E, class F>
O running(const char* name, K keys, I first, ptrdiff_t count, O out, T start, bool is_inclusive, bool has_start, E are_equal, F f) {
    const mptune_layer::library_call here(name, mptune_layer::changes, keys, first, out, f);
    auto key = directly(keys);
    auto from = directly(first);
    auto to = directly(out);
    T total = start;
    bool is_first = true;
    for (ptrdiff_t i = 0; i < count; ++i, ++from, ++to) {
        if (i > 0) {
            const auto before = key;
            if (!are_equal(*before, *++key)) total = start, is_first = true;
        }
        const T value = static_cast<T>(*from);
        const T next = is_first && !has_start ? value : static_cast<T>(f(total, value));
        *to = is_inclusive ? next : total;
        total = next;
        is_first = false;
    }
    return out + count;
}
inline constexpr auto always = [](const auto&, const auto&) { return true; };
template <class I, class O, class T, class F>
O scanned(I first, I last, O out, T start, bool is_inclusive, bool has_start, F f) {
    const char* const name = is_inclusive ? "thrust::inclusive_scan" : "thrust::exclusive_scan";
    return running(name, constant_iterator<int>(0), first, last - first, out, start, is_inclusive, has_start, always, f);
}
template <class I, class O, class F>
O inclusive_scan(I first, I last, O out, F f) { return scanned(first, last, out, iterator_value_t<I>(), true, false, f); }
template <class I, class O, class T, class F>
O inclusive_scan(I first, I last, O out, T start, F f) { return scanned(first, last, out, start, true, true, f); }
template <class I, class O>
O inclusive_scan(I first, I last, O out) { return thrust::inclusive_scan(first, last, out, plus<>()); }
MPTUNE_WITH_POLICY(inclusive_scan)
template <class I, class O, class T, class F>
O exclusive_scan(I first, I last, O out, T start, F f) { return scanned(first, last, out, start, false, true, f); }
template <class I, class O, class T>
O exclusive_scan(I first, I last, O out, T start) { return thrust::exclusive_scan(first, last, out, start, plus<>()); }
template <class I, class O>
O exclusive_scan(I first, I last, O out) { return thrust::exclusive_scan(first, last, out, iterator_value_t<I>()); }
MPTUNE_WITH_POLICY(exclusive_scan)
template <class I, class O, class U, class F>
O transform_inclusive_scan(I first, I last, O out, U value_of, F f) {
    return thrust::inclusive_scan(make_transform_iterator(first, value_of), make_transform_iterator(last, value_of), out, f);
}
MPTUNE_WITH_POLICY(transform_inclusive_scan)
template <class I, class O, class U, class T, class F>
O transform_exclusive_scan(I first, I last, O out, U value_of, T start, F f) {
    return thrust::exclusive_scan(make_transform_iterator(first, value_of), make_transform_iterator(last, value_of), out, start, f);
}
MPTUNE_WITH_POLICY(transform_exclusive_scan)
template <class K, class I, class O, class E = equal_to<>, class F = plus<>>
O inclusive_scan_by_key(K first, K last, I values, O out, E are_equal = {}, F f = {}) {
    return running("thrust::inclusive_scan_by_key", first, values, last - first, out, iterator_value_t<I>(), true, false, are_equal, f);
}
MPTUNE_WITH_POLICY(inclusive_scan_by_key)
template <class K, class I, class O, class T, class E, class F = plus<>>
O exclusive_scan_by_key(K first, K last, I values, O out, T start, E are_equal, F f = {}) {
    return running("thrust::exclusive_scan_by_key", first, values, last - first, out, start, false, true, are_equal, f);
}
template <class K, class I, class O, class T>
O exclusive_scan_by_key(K first, K last, I values, O out, T start) {
    return thrust::exclusive_scan_by_key(first, last, values, out, start, equal_to<>());
}
template <class K, class I, class O>
O exclusive_scan_by_key(K first, K last, I values, O out) {
    return thrust::exclusive_scan_by_key(first, last, values, out, iterator_value_t<I>());
}
MPTUNE_WITH_POLICY(exclusive_scan_by_key)
template <class K, class I, class O, class P, class E = equal_to<>, class F = plus<>>
pair<O, P> reduce_by_key(K first, K last, I values, O keys_out, P out, E are_equal = {}, F f = {}) {
    MPTUNE_CALL("thrust::reduce_by_key", changes, first, values, keys_out, out, f);
    const ptrdiff_t count = last - first;
    auto key = directly(first);
    auto from = directly(values);
    auto key_to = directly(keys_out);
    auto to = directly(out);
    ptrdiff_t found = 0;
    for (ptrdiff_t i = 0; i < count; ++found, ++key_to, ++to) {
        const iterator_value_t<K> own = key[i];
        iterator_value_t<I> total = from[i];
        for (++i; i < count && are_equal(own, key[i]); ++i) total = f(total, from[i]);
        *key_to = own;
        *to = total;
    }
    return {keys_out + found, out + found};
}
MPTUNE_WITH_POLICY(reduce_by_key)
template <class I, class O, class F>
O adjacent_difference(I first, I last, O out, F f) {
    MPTUNE_CALL("thrust::adjacent_difference", changes, first, out, f);
    std::adjacent_difference(directly(first), directly(last), directly(out), f);
    return out + (last - first);
}
template <class I, class O>
O adjacent_difference(I first, I last, O out) { return thrust::adjacent_difference(first, last, out, minus<>()); }
MPTUNE_WITH_POLICY(adjacent_difference)

// What is in a range, as values; and such values back.
template <class I>
struct values_in {
    I first;
    size_t count;
    typedef std::vector<std::conditional_t<std::is_same_v<iterator_value_t<I>, bool>, char, iterator_value_t<I>>> type;
    type values;
    values_in(I from, ptrdiff_t count) : first(from), count(count) {
        values.reserve(count);
        for (ptrdiff_t i = 0; i < count; ++i, ++from) values.push_back(*from);
    }
    void put_back() {
        I to = first;
        for (size_t i = 0; i < values.size(); ++i, ++to) *to = values[i];
    }
};
template <class I, class F>
void stable_sort(I first, I last, F is_less) {
    MPTUNE_CALL("thrust::sort", changes, first, is_less);
    values_in<direct_t<I>> all(directly(first), last - first);
    std::stable_sort(all.values.begin(), all.values.end(), is_less);
    all.put_back();
}
template <class I>
void stable_sort(I first, I last) { thrust::stable_sort(first, last, less<>()); }
MPTUNE_WITH_POLICY(stable_sort)
template <class I, class F>
void sort(I first, I last, F is_less) { thrust::stable_sort(first, last, is_less); }
template <class I>
void sort(I first, I last) { thrust::stable_sort(first, last); }
MPTUNE_WITH_POLICY(sort)
template <class K, class I, class F>
void stable_sort_by_key(K first, K last, I values, F is_less) {
    MPTUNE_CALL("thrust::sort_by_key", changes, first, values, is_less);
    values_in<direct_t<K>> keys(directly(first), last - first);
    values_in<direct_t<I>> all(directly(values), last - first);
    std::vector<size_t> order(keys.count);
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return is_less(keys.values[a], keys.values[b]); });
    auto key_to = directly(first);
    auto to = directly(values);
    for (const size_t at : order) {
        *key_to = keys.values[at], ++key_to;
        *to = all.values[at], ++to;
    }
}
template <class K, class I>
void stable_sort_by_key(K first, K last, I values) { thrust::stable_sort_by_key(first, last, values, less<>()); }
MPTUNE_WITH_POLICY(stable_sort_by_key)
template <class K, class I, class F>
void sort_by_key(K first, K last, I values, F is_less) { thrust::stable_sort_by_key(first, last, values, is_less); }
template <class K, class I>
void sort_by_key(K first, K last, I values) { thrust::stable_sort_by_key(first, last, values); }
MPTUNE_WITH_POLICY(sort_by_key)
template <class I, class F>
bool is_sorted(I first, I last, F is_less) {
    MPTUNE_CALL("thrust::is_sorted", answers, first, is_less);
    return std::is_sorted(directly(first), directly(last), is_less);
}
template <class I>
bool is_sorted(I first, I last) { return thrust::is_sorted(first, last, less<>()); }
MPTUNE_WITH_POLICY(is_sorted)
template <class I>
void reverse(I first, I last) {
    MPTUNE_CALL("thrust::reverse", changes, first);
    values_in<direct_t<I>> all(directly(first), last - first);
    std::reverse(all.values.begin(), all.values.end());
    all.put_back();
}
MPTUNE_WITH_POLICY(reverse)
template <class I, class G>
void shuffle(I first, I last, G&& random) {
    MPTUNE_CALL("thrust::shuffle", changes, first);
    values_in<direct_t<I>> all(directly(first), last - first);
    std::shuffle(all.values.begin(), all.values.end(), random);
    all.put_back();
}
MPTUNE_WITH_POLICY(shuffle)
template <class I, class J>
J swap_ranges(I first, I last, J second) {
    MPTUNE_CALL("thrust::swap_ranges", changes, first, second);
    std::swap_ranges(directly(first), directly(last), directly(second));
    return second + (last - first);
}
MPTUNE_WITH_POLICY(swap_ranges)
template <class I, class J, class O, class F>
O merge(I first, I last, J other, J other_last, O out, F is_less) {
    MPTUNE_CALL("thrust::merge", changes, first, other, out, is_less);
    std::merge(directly(first), directly(last), directly(other), directly(other_last), directly(out), is_less);
    return out + (last - first) + (other_last - other);
}
template <class I, class J, class O>
O merge(I first, I last, J other, J other_last, O out) { return thrust::merge(first, last, other, other_last, out, less<>()); }
MPTUNE_WITH_POLICY(merge)

// Elements that a stencil chooses, in order, to a place; the function says how many they were.
template <class I, class S, class O, class P>
ptrdiff_t chosen(const char* name, I first, I last, S stencil, O out, P is_wanted) {
    const mptune_layer::library_call here(name, mptune_layer::changes, first, stencil, out, is_wanted);
    const ptrdiff_t count = last - first;
    auto from = directly(first);
    auto asked = directly(stencil);
    auto to = directly(out);
    ptrdiff_t found = 0;
    for (ptrdiff_t i = 0; i < count; ++i, ++from, ++asked)
        if (is_wanted(*asked)) *to = static_cast<iterator_value_t<I>>(*from), ++to, ++found;
    return found;
}
template <class P>
auto opposite(P is_wanted) { return [is_wanted](const auto& each) { return !is_wanted(each); }; }
template <class I, class S, class O, class P>
O copy_if(I first, I last, S stencil, O out, P is_wanted) { return out + chosen("thrust::copy_if", first, last, stencil, out, is_wanted); }
template <class I, class O, class P>
O copy_if(I first, I last, O out, P is_wanted) { return thrust::copy_if(first, last, first, out, is_wanted); }
MPTUNE_WITH_POLICY(copy_if)
template <class I, class S, class P>
I remove_if(I first, I last, S stencil, P is_wanted) {
    return first + chosen("thrust::remove_if", first, last, stencil, first, opposite(is_wanted));
}
template <class I, class P>
I remove_if(I first, I last, P is_wanted) { return thrust::remove_if(first, last, first, is_wanted); }
MPTUNE_WITH_POLICY(remove_if)
template <class I, class T>
I remove(I first, I last, const T& value) {
    return thrust::remove_if(first, last, [value](const auto& each) { return each == value; });
}
MPTUNE_WITH_POLICY(remove)
template <class I, class O, class P>
O remove_copy_if(I first, I last, O out, P is_wanted) { return thrust::copy_if(first, last, out, opposite(is_wanted)); }
MPTUNE_WITH_POLICY(remove_copy_if)
template <class I, class P>
I stable_partition(I first, I last, P is_wanted) {
    MPTUNE_CALL("thrust::partition", changes, first, is_wanted);
    values_in<direct_t<I>> all(directly(first), last - first);
    const auto end = std::stable_partition(all.values.begin(), all.values.end(), is_wanted);
    all.put_back();
    return first + (end - all.values.begin());
}
MPTUNE_WITH_POLICY(stable_partition)
template <class I, class P>
I partition(I first, I last, P is_wanted) { return thrust::stable_partition(first, last, is_wanted); }
MPTUNE_WITH_POLICY(partition)
// The first of equal elements next to each other; with values that go with them.
template <class K, class I, class E>
pair<K, I> unique_by_key(K first, K last, I values, E are_equal) {
    MPTUNE_CALL("thrust::unique", changes, first, values);
    const ptrdiff_t count = last - first;
    auto key = directly(first);
    auto value = directly(values);
    ptrdiff_t found = 0;
    for (ptrdiff_t i = 0; i < count; ++i) {
        if (found > 0 && are_equal(key[found - 1], key[i])) continue;
        key[found] = static_cast<iterator_value_t<K>>(key[i]);
        value[found] = static_cast<iterator_value_t<I>>(value[i]);
        ++found;
    }
    return {first + found, values + found};
}
template <class K, class I>
pair<K, I> unique_by_key(K first, K last, I values) { return thrust::unique_by_key(first, last, values, equal_to<>()); }
MPTUNE_WITH_POLICY(unique_by_key)
template <class I, class E>
I unique(I first, I last, E are_equal) { return thrust::unique_by_key(first, last, first, are_equal).first; }
template <class I>
I unique(I first, I last) { return thrust::unique(first, last, equal_to<>()); }
MPTUNE_WITH_POLICY(unique)
template <class I, class O>
O unique_copy(I first, I last, O out) { return thrust::unique(out, thrust::copy(first, last, out)); }
MPTUNE_WITH_POLICY(unique_copy)
template <class I, class S, class P, class T>
void replace_if(I first, I last, S stencil, P is_wanted, const T& value) {
    MPTUNE_CALL("thrust::replace_if", changes, first, stencil, is_wanted);
    const ptrdiff_t count = last - first;
    auto at = directly(first);
    auto asked = directly(stencil);
    for (ptrdiff_t i = 0; i < count; ++i, ++at, ++asked)
        if (is_wanted(*asked)) *at = value;
}
template <class I, class P, class T>
void replace_if(I first, I last, P is_wanted, const T& value) { thrust::replace_if(first, last, first, is_wanted, value); }
MPTUNE_WITH_POLICY(replace_if)
template <class I, class T>
void replace(I first, I last, const T& old, const T& value) {
    thrust::replace_if(first, last, [old](const auto& each) { return each == old; }, value);
}
MPTUNE_WITH_POLICY(replace)

template <class M, class I, class O>
O gather(M first, M last, I values, O out) { return thrust::copy(make_permutation_iterator(values, first), make_permutation_iterator(values, last), out); }
MPTUNE_WITH_POLICY(gather)
template <class I, class M, class O>
void scatter(I first, I last, M map, O out) { thrust::copy(first, last, make_permutation_iterator(out, map)); }
MPTUNE_WITH_POLICY(scatter)
template <class I, class M, class S, class O>
void scatter_if(I first, I last, M map, S stencil, O out) {
    MPTUNE_CALL("thrust::scatter_if", changes, first, map, stencil, out);
    const ptrdiff_t count = last - first;
    auto from = directly(first);
    auto index = directly(map);
    auto asked = directly(stencil);
    auto to = directly(out);
    for (ptrdiff_t i = 0; i < count; ++i, ++from, ++index, ++asked)
        if (*asked) to[*index] = *from;
}
MPTUNE_WITH_POLICY(scatter_if)

// Where a value is, or would be, in a sorted range; for a range of values the places as numbers.
#define MPTUNE_SEARCH(name, result)                                                                            \
    template <class I, class J, class O, class F>                                                              \
    O name(I first, I last, J values, J values_last, O out, F is_less) {                                       \
        MPTUNE_CALL("thrust::" #name, changes, first, values, out);                                            \
        const auto from = directly(first), end = directly(last);                                               \
        auto value = directly(values);                                                                         \
        auto to = directly(out);                                                                               \
        for (ptrdiff_t i = 0; i < values_last - values; ++i, ++value, ++to) *to = result;                      \
        return out + (values_last - values);                                                                   \
    }                                                                                                          \
    template <class I, class J, class O>                                                                       \
    O name(I first, I last, J values, J values_last, O out) { return thrust::name(first, last, values, values_last, out, less<>()); }
MPTUNE_SEARCH(lower_bound, std::lower_bound(from, end, *value, is_less) - from)
MPTUNE_SEARCH(upper_bound, std::upper_bound(from, end, *value, is_less) - from)
MPTUNE_SEARCH(binary_search, std::binary_search(from, end, *value, is_less))
#undef MPTUNE_SEARCH
template <class I, class T>
I lower_bound(I first, I last, const T& value) {
    MPTUNE_CALL("thrust::lower_bound", answers, first);
    return first + (std::lower_bound(directly(first), directly(last), value) - directly(first));
}
MPTUNE_WITH_POLICY(lower_bound)
template <class I, class T>
I upper_bound(I first, I last, const T& value) {
    MPTUNE_CALL("thrust::upper_bound", answers, first);
    return first + (std::upper_bound(directly(first), directly(last), value) - directly(first));
}
MPTUNE_WITH_POLICY(upper_bound)
template <class I, class T>
bool binary_search(I first, I last, const T& value) {
    MPTUNE_CALL("thrust::binary_search", answers, first);
    return std::binary_search(directly(first), directly(last), value);
}
MPTUNE_WITH_POLICY(binary_search)

#undef MPTUNE_CALL
#undef MPTUNE_WITH_POLICY

// -- random numbers ------------------------------------------------------------------------------

namespace random {
typedef std::minstd_rand minstd_rand;
typedef std::minstd_rand0 minstd_rand0;
typedef std::minstd_rand default_random_engine;
typedef std::ranlux24 ranlux24;
typedef std::ranlux48 ranlux48;
using std::normal_distribution;
using std::uniform_int_distribution;
using std::uniform_real_distribution;
}  // namespace random
using namespace random;

// -- complex numbers -----------------------------------------------------------------------------

template <class T>
struct complex : std::complex<T> {
    typedef T value_type;
    using std::complex<T>::complex;
    complex(const std::complex<T>& z) : std::complex<T>(z) {}
    template <class U>
    complex(const std::complex<U>& z) : std::complex<T>(T(z.real()), T(z.imag())) {}
    using std::complex<T>::operator=;
};
#define MPTUNE_COMPLEX(sign)                                                                                     \
    template <class T>                                                                                           \
    complex<T> operator sign(const complex<T>& a, const complex<T>& b) {                                         \
        return static_cast<const std::complex<T>&>(a) sign static_cast<const std::complex<T>&>(b);               \
    }                                                                                                            \
    template <class T>                                                                                           \
    complex<T> operator sign(const complex<T>& a, const T& b) { return static_cast<const std::complex<T>&>(a) sign b; } \
    template <class T>                                                                                           \
    complex<T> operator sign(const T& a, const complex<T>& b) { return a sign static_cast<const std::complex<T>&>(b); }
MPTUNE_COMPLEX(+) MPTUNE_COMPLEX(-) MPTUNE_COMPLEX(*) MPTUNE_COMPLEX(/)
#undef MPTUNE_COMPLEX
template <class T>
complex<T> operator-(const complex<T>& z) { return complex<T>(-z.real(), -z.imag()); }
template <class T>
complex<T> conj(const complex<T>& z) { return complex<T>(z.real(), -z.imag()); }
template <class T>
T norm(const complex<T>& z) { return z.real() * z.real() + z.imag() * z.imag(); }
#define MPTUNE_COMPLEX(name, result) \
    template <class T>               \
    result name(const complex<T>& z) { return std::name(static_cast<const std::complex<T>&>(z)); }
MPTUNE_COMPLEX(abs, T) MPTUNE_COMPLEX(arg, T) MPTUNE_COMPLEX(exp, complex<T>) MPTUNE_COMPLEX(log, complex<T>)
MPTUNE_COMPLEX(sqrt, complex<T>) MPTUNE_COMPLEX(sin, complex<T>) MPTUNE_COMPLEX(cos, complex<T>)
#undef MPTUNE_COMPLEX
template <class T>
complex<T> polar(const T& length, const T& angle = T()) { return std::polar(length, angle); }

}  // namespace thrust

namespace mptune_layer {
template <class T>
struct element_of<thrust::device_ptr<T>> : element_of<T*> {};
}  // namespace mptune_layer

#if defined(MPTUNE_READING)
#pragma clang force_cuda_host_device end
#endif

#include "mptune_layer/letters_end.hpp"
