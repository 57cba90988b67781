#pragma once
#include "mptune_layer/blas.hpp"
