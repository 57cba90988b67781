#pragma once

typedef double real;

#define STEFAN 5.670374
const real EMISSIVITY = 0.9;

void radiate(const real* temperature, real* radiation, int n);
