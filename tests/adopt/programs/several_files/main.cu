// A program of three files: the kernel and its launch are in others than main.
#include "physics.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
    int n = argc > 1 ? std::atoi(argv[1]) : 100;
    std::vector<real> temperature(n), radiation(n);
    for (int i = 0; i < n; i++) temperature[i] = 250.0 + i % 50;
    radiate(temperature.data(), radiation.data(), n);
    bool good = true;
    for (int i = 0; i < n; i++) {
        real t = temperature[i] / 100.0, expected = EMISSIVITY * STEFAN * t * t * t * t;
        good = good && radiation[i] < 1.000001 * expected && radiation[i] > 0.999999 * expected;
    }
    std::printf("%s\n", good ? "PASS" : "FAIL");
    return !good;
}
