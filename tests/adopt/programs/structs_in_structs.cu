// Structs of structs of numbers in memory that a struct by value points at, and a struct of several types beside them.
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

struct Pair {
    double x, y;
};
struct Body {
    Pair place, speed;
};
struct Tag {
    double weight;
    int kind, turns;
};
struct Crowd {
    Body* bodies;
    Tag* tags;
    int count;
};

__device__ Pair moved(const Pair& from, const Pair& by, double step) {
    Pair to = from;
    to.x += step * by.x;
    to.y += step * by.y;
    return to;
}

__global__ void drift(Crowd crowd, double step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= crowd.count) return;
    Body body = crowd.bodies[i];
    body.place = moved(body.place, body.speed, step);
    crowd.bodies[i] = body;
    crowd.tags[i].weight *= 0.9;
    crowd.tags[i].kind += 1;
}

int main() {
    const int count = 200;
    std::vector<Body> bodies(count);
    std::vector<Tag> tags(count);
    for (int i = 0; i < count; i++) {
        bodies[i].place.x = 0.1 * i;
        bodies[i].place.y = 1.0 / (1 + i);
        bodies[i].speed.x = 0.3;
        bodies[i].speed.y = 0.7 - 0.01 * i;
        tags[i] = {1.0 + i, i % 3, 0};
    }
    Crowd crowd;
    Body* d_bodies;
    Tag* d_tags;
    cudaMalloc(&d_bodies, count * sizeof(Body));
    cudaMalloc(&d_tags, count * sizeof(Tag));
    crowd.bodies = d_bodies;
    crowd.tags = d_tags;
    crowd.count = count;
    cudaMemcpy(d_bodies, bodies.data(), count * sizeof(Body), cudaMemcpyHostToDevice);
    cudaMemcpy(d_tags, tags.data(), count * sizeof(Tag), cudaMemcpyHostToDevice);
    for (int s = 0; s < 3; s++) drift<<<(count + 63) / 64, 64>>>(crowd, 0.01);
    cudaMemcpy(bodies.data(), d_bodies, count * sizeof(Body), cudaMemcpyDeviceToHost);
    cudaMemcpy(tags.data(), d_tags, count * sizeof(Tag), cudaMemcpyDeviceToHost);
    printf("%.5f %.5f %d\n", bodies[7].place.x, tags[7].weight, tags[7].kind);
    double worst = 0;
    bool kinds = true;
    for (int i = 0; i < count; i++) {
        worst = fmax(worst, fabs(bodies[i].place.x - (0.1 * i + 0.009)) / (1 + 0.1 * i));
        worst = fmax(worst, fabs(tags[i].weight / ((1.0 + i) * 0.729) - 1));
        kinds = kinds && tags[i].kind == i % 3 + 3;
    }
    printf("%s\n", kinds && worst < 1e-2 ? "PASS" : "FAIL");
}
