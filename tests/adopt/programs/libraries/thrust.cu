// Algorithms of thrust on what a kernel computes: printed with the name of the call.
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/inner_product.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/remove.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>

#include <cstdio>

__global__ void fill(double* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = (i * 37 % 101) * 0.5 - 7;
}

struct square {
    __host__ __device__ double operator()(double x) const { return x * x; }
};
struct add_to {
    const double* values;
    double factor;
    __host__ __device__ double operator()(int i) const { return factor * values[i] + i; }
};
struct weigh {
    template <class Tuple>
    __host__ __device__ void operator()(Tuple t) const {
        thrust::get<1>(t) = thrust::get<0>(t) * 2 + thrust::get<1>(t);
    }
};

template <class V>
void show(const char* name, const V& vector) {
    thrust::host_vector<double> values(vector.begin(), vector.end());
    printf("%s", name);
    for (double value : values) printf(" %.17g", value);
    printf("\n");
}

int main() {
    const int n = 1000;
    thrust::device_vector<double> x(n), y(n, 0.25), z(n);
    double* raw = thrust::raw_pointer_cast(x.data());
    fill<<<(n + 127) / 128, 128>>>(raw, n);
    printf("reduce %.17g %.17g %.17g\n", thrust::reduce(x.begin(), x.end()),
           thrust::reduce(thrust::device, raw, raw + n, -100.0, thrust::maximum<double>()),
           thrust::transform_reduce(x.begin(), x.end(), square(), 0.0, thrust::plus<double>()));
    printf("inner_product %.17g\n", thrust::inner_product(x.begin(), x.end(), y.begin(), 1.0));
    printf("counts %d %d %d\n", (int)thrust::count(x.begin(), x.end(), 3.0), (int)(thrust::max_element(x.begin(), x.end()) - x.begin()),
           (int)(thrust::find(x.begin(), x.end(), 3.0) - x.begin()));
    thrust::transform(x.begin(), x.end(), y.begin(), z.begin(), thrust::minus<double>());
    show("transform", z);
    thrust::transform(thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(n), z.begin(), add_to{raw, 0.5});
    show("captured", z);
    auto both = thrust::make_zip_iterator(thrust::make_tuple(x.begin(), z.begin()));
    thrust::for_each(both, both + n, weigh());
    show("zipped", z);
    thrust::inclusive_scan(x.begin(), x.end(), z.begin());
    show("inclusive_scan", z);
    thrust::exclusive_scan(thrust::device, x.begin(), x.end(), z.begin(), 10.0);
    show("exclusive_scan", z);
    thrust::device_vector<int> order(n);
    thrust::sequence(order.begin(), order.end());
    thrust::sort_by_key(x.begin(), x.end(), order.begin(), thrust::greater<double>());
    show("sorted", x);
    show("order", order);
    z.resize(thrust::copy_if(x.begin(), x.end(), z.begin(), [] __device__(double value) { return value > 20; }) - z.begin());
    show("copy_if", z);
    z.erase(thrust::unique(z.begin(), z.end()), z.end());
    show("unique", z);
    y = x;
    y[3] = y[2] + 1;
    printf("element %.17g %.17g\n", (double)y[3], (double)y.back());
    return 0;
}
