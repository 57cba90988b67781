// Calls of libraries between kernels: thrust, cub's Device functions, cuBLAS, cuFFT, cuRAND's host functions. They compute on
// the host, in the types that the program has: the memory that a call is given comes to the host, and what the call changed
// goes back.
#pragma once

#include <stddef.h>

#include <type_traits>

#include "mptune_layer/api.hpp"

#include "mptune_layer/letters_begin.hpp"

namespace mptune_layer {

// The name of a number type as C++ spells it; "" for any other type.
template <class T>
constexpr const char* number_name = "";
#define MPTUNE_NUMBER(type) \
    template <>             \
    constexpr const char* number_name<type> = #type;
MPTUNE_NUMBER(double)
MPTUNE_NUMBER(float)
MPTUNE_NUMBER(char)
MPTUNE_NUMBER(signed char)
MPTUNE_NUMBER(unsigned char)
MPTUNE_NUMBER(short)
MPTUNE_NUMBER(unsigned short)
MPTUNE_NUMBER(int)
MPTUNE_NUMBER(unsigned int)
MPTUNE_NUMBER(long)
MPTUNE_NUMBER(unsigned long)
MPTUNE_NUMBER(long long)
MPTUNE_NUMBER(unsigned long long)
MPTUNE_NUMBER(float2)
MPTUNE_NUMBER(double2)
#undef MPTUNE_NUMBER

template <class T>
struct element_of {
    typedef void type;
};
template <class T>
struct element_of<T*> {
    typedef std::remove_cv_t<T> type;
};

// Something that a call is given: any pointer in its bytes may lead to memory of the device.
struct given {
    const void* address;
    unsigned bytes;
    const char* element;  // the name of the type it points at; "" if it is no pointer to numbers
};

// Whether a call only answers the host, as a sum does that it returns, or changes memory.
enum library_call_kind { answers, changes };

void begin_library_call(const char* name, library_call_kind kind, const given* arguments, unsigned count);
void end_library_call();

// A copy by a library between host and device, or on either, in the type that the program has.
cudaError_t copy_for_library(const char* name, const char* element, void* to, const void* from, size_t bytes);
template <class T>
cudaError_t copy_elements(const char* name, T* to, const T* from, size_t count) {
    return copy_for_library(name, number_name<T>, (void*)to, (const void*)from, count * sizeof(T));
}

// Lives as long as a call computes. The name says who is called: "cublasDgemm".
class library_call {
  public:
    template <class... A>
    library_call(const char* name, library_call_kind kind, const A&... arguments) {
        const given all[] = {
            given{&arguments, sizeof arguments, number_name<typename element_of<A>::type>}..., given{nullptr, 0, ""}};
        begin_library_call(name, kind, all, sizeof...(A));
    }
    ~library_call() { end_library_call(); }
    library_call(const library_call&) = delete;
    library_call& operator=(const library_call&) = delete;
};

}  // namespace mptune_layer

#include "mptune_layer/letters_end.hpp"
